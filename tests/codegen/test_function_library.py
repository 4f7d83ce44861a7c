"""A spec of one's own calls the functions of the catalog, which travel with the package."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from catalogs import catalog_fixture, own_spec

import skuda
from skuda.codegen import inputs, library
from skuda.codegen import spec as specs
from skuda.codegen.cli import main
from skuda.codegen.render import render
from skuda.codegen.spec import loads
from skuda.errors import SpecError

REPOSITORY = Path(__file__).parents[2]
SPEC = """\
functions:
  halved(x): 0.5 * gelu(x)
ops:
  geglu:
    inputs: {gate: "T[*shape]", up: "T[*shape]"}
    outputs:
      output: T[*shape] = gelu(gate) * up
  halves:
    inputs: {x: "T[*shape]"}
    outputs:
      output: T[*shape] = halved(x)
  gelu_codes:
    types: {T: [f32, f16], Q: [s8, u8], S: [T, f32]}
    inputs: {x: "T[*n, d]", scale: "S[*n]", zero_point: "i32[*n]"}
    attrs: {q_min: Q = lowest(Q), q_max: Q = highest(Q)}
    requires: q_min <= q_max
    outputs:
      output: Q[*n, d] = quantize(gelu(x), scale, zero_point, q_min, q_max)
  normal:
    inputs: {x: "T[*n, d]", weight: "T[d]"}
    outputs:
      output: T[*n, d] = rms_norm(x, weight, 1e-6, d)
"""


def spec(formula: str, functions: str = "") -> str:
    return f"{functions}ops:\n  op:\n    inputs: {{x: 'T[*n]', y: 'T[*n]'}}\n    outputs:\n      o: T[*n] = {formula}\n"


def said(text: str) -> str:
    with pytest.raises(SpecError) as raised:
        loads(text)
    return str(raised.value)

ours = catalog_fixture("skuda_function_library", SPEC)


def test_operations_fuse_by_calling_the_catalogs_functions(ours, backend):
    """To the bits of the catalog's own operations."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(0, 2, (2, 5, 64)).astype(np.float32)
    scale, zero = np.full(5, 0.02, np.float32), np.arange(5, dtype=np.int32)
    here = backend.array

    def bits(array) -> bytes:
        return backend.numpy(array).tobytes()

    assert bits(ours.geglu(here(x), here(y))) == (backend.numpy(skuda.gelu(here(x))) * y).tobytes()
    assert bits(ours.halves(here(x))) == (backend.numpy(skuda.gelu(here(x))) * np.float32(0.5)).tobytes()
    codes = skuda.gelu_quantize_per_token(here(x), here(scale), here(zero), dtype="s8")
    assert bits(ours.gelu_codes(here(x), here(scale), here(zero), dtype="s8")) == bits(codes)
    assert len(set(bits(codes))) > 50
    weight = here(y[0].copy())
    assert bits(ours.normal(here(x), weight)) == bits(skuda.rms_norm(here(x), weight, eps=1e-6))


def test_every_function_of_the_catalog_is_there():
    """As many parameters, and a body, as ops.yaml says."""
    own = {name: function for name, function in own_spec().functions.items() if not function.library}
    assert len(own) > 30 and own.keys() == specs.library().keys()
    for name, function in own.items():
        assert function.signature == specs.library()[name].signature
    reached = loads(spec("magnitude(x) + y")).functions
    assert reached.keys() == own.keys()


def test_a_function_of_the_same_name_is_the_specs_own_and_that_is_said(tmp_path, capsys):
    own = "functions:\n  silu(x): x + 1\n"
    found = loads(spec("silu(x) + silu_slope(y) * gelu(y)", own))
    end = "is a function of this spec, which its formulas call in place of the catalog's"
    assert found.notes == [f"note: `silu(x)` {end}"]
    assert "x + C(1)" in render(found)["plans/op.py"]
    (tmp_path / "own.yaml").write_text(spec("silu(x) + y", own), encoding="utf-8")
    assert main(["generate", "--spec", str(tmp_path / "own.yaml"), "--out", str(tmp_path / "out")]) == 0
    assert main(["check", "--spec", str(tmp_path / "own.yaml"), "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.count("note: `silu(x)` is a function of this spec") == 2
    alike = loads(spec("silu(x) + y", "functions:\n  silu(x):  x / (1 + exp(-x))\n"))
    assert alike.notes == []
    assert own_spec().notes == []


def test_a_function_of_the_catalog_calls_those_of_the_catalog():
    """gelu_tanh calls gelu_tanh_share: a spec's own of that name does not change it."""
    own = "functions:\n  gelu_tanh_share(x): 7 * x\n"
    text = render(loads(spec("gelu_tanh(x) + gelu_tanh_share(y)", own)))["plans/op.py"]
    assert "sigmoid(" in text and "C(7) * y" in text and "C(7) * x" not in text


def test_mistakes_stand_in_the_spec():
    """Never in a line of the catalog."""
    found = said(spec("gelu(x > 0) + y"))
    assert "ops.yaml:5:18: error: `gelu(x)` of the catalog: `ndtr` needs a number, this is a boolean" in found
    assert " 5 |       o: T[*n] = gelu(x > 0) + y" in found and "1 error in" in found
    found = said(spec("gelu(x, y)"))
    assert "`gelu` takes 1 argument, got 2" in found and "it is `gelu(x)`" in found
    found = said(spec("rms_normalized(x, 1, y)"))
    assert "`rms_normalized(x, eps, d)` of the catalog: `over=` needs a dimension" in found
    assert "did you mean `silu_slope`?" in said(spec("silu_slop(x) + y"))
    found = said(spec("wrong(x) + y", "functions:\n  wrong(x): gelu(x < 1)\n"))
    assert "ops.yaml:2:13: error: `gelu(x)` of the catalog" in found and "line 7 calls `wrong` so" in found


@pytest.mark.parametrize("broken", ["gelu(x): x * (", "gelu(x, x): x", "gelu(x)): x", "gelu(x): unknown * x"])
def test_a_broken_function_does_not_blame_the_catalog(broken):
    """Nor is the catalog's called in its place."""
    found = said(spec("gelu(x) + gelu(y) * 2", f"functions:\n  {broken}\n"))
    assert "1 error in" in found and "ops.yaml:2:" in found and "catalog:" not in found


def test_generated_files_follow_the_functions_that_they_call(monkeypatch, tmp_path):
    """The manifest's digest, and the files' own: of what calls the function, and of nothing else."""
    text = spec("gelu_tanh(x) + y") + "  plain:\n    inputs: {x: 'T[*n]'}\n    outputs: {o: 'T[*n] = 2 * x'}\n"
    path = tmp_path / "own.yaml"
    path.write_text(text, encoding="utf-8")
    before, digest = render(loads(text)), inputs.digest(path)
    other = library.functions_text().replace("sigmoid(x * (1.5957691216057308 +", "sigmoid(x * (1.5 +")
    assert other != library.functions_text()
    monkeypatch.setattr(specs, "functions_text", lambda: other)
    monkeypatch.setattr(inputs, "functions_text", lambda: other)
    specs.library.cache_clear()
    try:
        after = render(loads(text))
        changed = {name for name in after if after[name] != before[name]}
        assert changed == {"cuda/op.cu", "plans/op.py", "docs/op.md"}
        assert inputs.digest(path) != digest
    finally:
        specs.library.cache_clear()


def test_the_catalogs_functions_are_listed(capsys):
    assert main(["list", "--functions", "gelu_tanh_share"]) == 0
    assert capsys.readouterr().out == (
        "gelu_tanh_share(x): sigmoid(x * (1.5957691216057308 + 0.07135481627260025 * (x * x)))\n"
    )
    assert main(["list", "--functions", "no such"]) == 1


@pytest.mark.turns(4)
def test_the_table_travels_in_wheel_and_sdist(tmp_path):
    """An installed package reads it; the wheel of an sdist has it too."""
    project = tmp_path / "project"
    project.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("runtime", "codegen", "templates", "generated", "evidence"):
        shutil.copytree(REPOSITORY / name, project / name, ignore=ignored, symlinks=True)
    for path in REPOSITORY.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, project)
    table = (REPOSITORY / "ops.yaml").read_bytes()
    code = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"

    def built(step: str, folder: Path, at: Path) -> Path:
        ran = subprocess.run([sys.executable, "-c", code, step, str(folder)], cwd=at, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        (path,) = folder.glob("skuda*")
        return path

    sdist = built("build_sdist", tmp_path / "sdist", project)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert (unpacked / "ops.yaml").read_bytes() == table
    for number, folder in enumerate((project, unpacked)):
        wheel = built("build_wheel", tmp_path / f"wheel{number}", folder)
        with zipfile.ZipFile(wheel) as archive:
            assert archive.read("skuda/codegen/ops.yaml") == table
            archive.extractall(tmp_path / f"installed{number}")
        run = [sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import skuda.codegen.spec as s; "
               "assert s.__file__.startswith(sys.argv[1]); print(len(s.library()))"]  # fmt: skip
        ran = subprocess.run([*run, str(tmp_path / f"installed{number}")], capture_output=True, text=True, cwd=tmp_path)
        assert ran.stdout.strip() == str(len(specs.library())), ran.stderr
