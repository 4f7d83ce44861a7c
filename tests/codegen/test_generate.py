"""The output folder: what is written, what is never touched, and that the same spec gives the same bytes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from catalogs import own_spec

from skuda.codegen.cli import main
from skuda.codegen.output import MANIFEST, RenderError, changes, up_to_date, write
from skuda.codegen.render import generate, render, rendered_files
from skuda.codegen.spec import loads
from skuda.errors import SpecError

REPOSITORY = Path(__file__).parents[2]
SPEC = """\
functions:
  squared(x): x * x
ops:
  scaled_add:
    kind: custom.add
    inputs: {x: "T[*shape]", y: "T[*shape]"}
    attrs: {alpha: C = 2}
    outputs:
      output: T[*shape] = x + alpha * y
    backward:
      d_x: T[*shape] = d_output
      d_y: T[*shape] = alpha * d_output
  square:
    inputs:
      x: T[*shape]
    outputs:
      output: T[*shape] = squared(x)
"""


@pytest.fixture
def spec(tmp_path) -> Path:
    path = tmp_path / "my_ops.yaml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def catalog(spec, tmp_path) -> Path:
    folder = tmp_path / "generated"
    generate(spec, folder)
    return folder


def drift(spec: Path, catalog: Path) -> dict[str, str]:
    """Path -> kind of what `skuda check` would report."""
    return {change.path: change.kind for change in changes(catalog, rendered_files(spec)[1])}


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def inputs_hash(path: Path) -> str:
    return re.search(r"inputs sha256:(\w+)", path.read_text())[1]


# ---- what is written ----


def test_a_catalog_has_one_file_a_row_of_each_sort(catalog):
    expected = {"__init__.py", "__init__.pyi", "plans/__init__.py", "ops.schema.json", MANIFEST}
    for row in ("scaled_add", "square"):
        expected |= {f"cuda/{row}.cu", f"plans/{row}.py", f"docs/{row}.md"}
    assert set(tree(catalog)) == expected


def test_a_second_run_changes_nothing(spec, catalog):
    stamps = {path: path.stat().st_mtime_ns for path in catalog.rglob("*")}
    assert up_to_date(catalog, spec)
    assert generate(spec, catalog).changed == ()
    assert {path: path.stat().st_mtime_ns for path in catalog.rglob("*")} == stamps


def test_only_the_files_of_a_changed_row_are_written(spec, catalog):
    edit(spec, "x + alpha * y", "x - alpha * y")
    written = {change.path for change in generate(spec, catalog).changed}
    assert written == {
        "cuda/scaled_add.cu", "plans/scaled_add.py", "docs/scaled_add.md", MANIFEST,
    }  # fmt: skip
    assert drift(spec, catalog) == {}


def test_a_changed_function_reaches_the_rows_that_call_it_and_no_other(spec, catalog):
    source = catalog / "cuda" / "square.cu"
    before = inputs_hash(source)
    edit(spec, "squared(x): x * x", "squared(x): x * x * x")
    stale = set(drift(spec, catalog))
    assert "cuda/square.cu" in stale
    assert not any("scaled_add" in path for path in stale)
    generate(spec, catalog)
    assert inputs_hash(source) != before


def test_a_row_that_is_gone_takes_its_files_along(spec, catalog):
    spec.write_text(SPEC[: SPEC.index("  square:")])
    generate(spec, catalog)
    assert not any("square" in path for path in tree(catalog))
    assert drift(spec, catalog) == {}


def test_an_empty_subfolder_is_removed_with_its_last_file(spec, catalog):
    (catalog / "docs" / "scaled_add.md").unlink()
    files = {path: text for path, text in rendered_files(spec)[1].items() if not path.startswith("docs/")}
    write(catalog, files)
    assert not (catalog / "docs").exists()


@pytest.mark.turns(4)
def test_the_bytes_do_not_depend_on_the_hash_seed(tmp_path):
    """Those of a process with another seed than this one's."""
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    run_python(
        "-m", "skuda.codegen.cli", "generate", "--spec", str(REPOSITORY / "ops.yaml"), "--out", seed,
        environment={"PYTHONHASHSEED": seed}, folder=tmp_path,
    )  # fmt: skip
    found = {path: text.decode() for path, text in tree(tmp_path / seed).items() if path != MANIFEST}
    assert len(found) > 50
    assert found == render(own_spec())


def test_rendering_twice_in_one_process_gives_the_same_text():
    spec = own_spec()
    assert render(spec) == render(spec)


# ---- drift ----


def test_a_process_that_renders_goes_on_collecting_what_nobody_needs(spec):
    """Cycles that were made before and while the files were rendered, too; nothing is left frozen."""
    program = """
import gc, sys, weakref
from pathlib import Path
from skuda.codegen.render import rendered_files

class Cycle: pass

cycle = Cycle()
cycle.self = cycle
known = weakref.ref(cycle)
del cycle
rendered_files(Path(sys.argv[1]))
assert gc.isenabled() and gc.get_freeze_count() == 0
gc.collect()
assert known() is None
"""
    run_python("-c", program, str(spec))


def test_a_changed_spec_makes_files_stale(spec, catalog):
    edit(spec, "alpha: C = 2", "alpha: C = 3")
    found = drift(spec, catalog)
    assert found["plans/scaled_add.py"] == "stale"
    assert found[MANIFEST] == "stale"
    assert not up_to_date(catalog, spec)


def test_a_hand_edit_is_told_from_a_stale_file(spec, catalog):
    edit(catalog / "cuda" / "square.cu", "__device__", "/* faster */ __device__")
    assert drift(spec, catalog) == {"cuda/square.cu": "edited"}
    assert not up_to_date(catalog, spec)


def test_a_hand_edit_is_seen_in_a_file_without_a_header(spec, catalog):
    (catalog / "plans" / "__init__.py").write_text("import os\n")
    assert drift(spec, catalog) == {"plans/__init__.py": "edited"}


def test_a_hand_edit_that_removes_the_header_is_seen(spec, catalog):
    (catalog / "cuda" / "square.cu").write_text("// mine now\n")
    assert drift(spec, catalog) == {"cuda/square.cu": "edited"}


def test_a_missing_file(spec, catalog):
    (catalog / "docs" / "square.md").unlink()
    assert drift(spec, catalog) == {"docs/square.md": "missing"}
    assert not up_to_date(catalog, spec)


def test_an_orphan(spec, catalog):
    spec.write_text(SPEC[: SPEC.index("  square:")])
    found = drift(spec, catalog)
    assert {path for path, kind in found.items() if kind == "orphan"} == {
        "cuda/square.cu", "plans/square.py", "docs/square.md",
    }  # fmt: skip


def test_an_orphan_is_found_without_the_manifest(spec, catalog):
    spec.write_text(SPEC[: SPEC.index("  square:")])
    (catalog / MANIFEST).unlink()
    assert drift(spec, catalog)["cuda/square.cu"] == "orphan"


def test_a_generated_file_of_no_row_stops_the_short_way(spec, catalog):
    text = (catalog / "cuda" / "square.cu").read_text()
    (catalog / "cuda" / "copied.cu").write_text(text)
    assert not up_to_date(catalog, spec)
    assert drift(spec, catalog) == {"cuda/copied.cu": "orphan"}


# ---- what is not the generator's ----


def test_foreign_files_stay(spec, catalog):
    mine = {
        "cuda/mine.cu": "// mine\n",
        "plans/notes.txt": "notes\n",
        "deeper/cuda/square.cu": "// mine too\n",
        "README.md": "# mine\n",
    }
    for path, text in mine.items():
        (catalog / path).parent.mkdir(parents=True, exist_ok=True)
        (catalog / path).write_text(text)
    assert up_to_date(catalog, spec)
    spec.write_text(SPEC[: SPEC.index("  square:")])
    generate(spec, catalog)
    assert {path: (catalog / path).read_text() for path in mine} == mine


def test_what_somebody_made_of_a_copy_stays(spec, catalog):
    text = (catalog / "cuda" / "square.cu").read_text().replace("__device__", "/* mine */ __device__")
    (catalog / "cuda" / "mine.cu").write_text(text)
    generate(spec, catalog)
    assert (catalog / "cuda" / "mine.cu").read_text() == text


def test_a_foreign_file_in_the_way_is_not_overwritten_and_nothing_is_written(spec, catalog):
    (catalog / "cuda" / "cube.cu").write_text("// mine\n")
    spec.write_text(
        SPEC + "  cube:\n    inputs: {x: 'T[*shape]'}\n    outputs: {y: 'T[*shape] = x * x * x'}\n"
    )
    before = tree(catalog)
    with pytest.raises(RenderError, match=r"holds cuda/cube\.cu, which the generator did not write"):
        generate(spec, catalog)
    assert tree(catalog) == before


def test_a_folder_above_a_catalog_is_not_taken_for_one(spec, catalog, tmp_path):
    before = tree(catalog)
    generate(spec, tmp_path)
    assert tree(catalog) == before


def test_the_catalog_of_another_spec_is_not_overwritten(spec, catalog, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(SPEC)
    before = tree(catalog)
    with pytest.raises(RenderError, match=r"is the catalog of my_ops\.yaml"):
        generate(other, catalog)
    assert tree(catalog) == before


def test_a_file_in_the_place_of_the_folder(spec, tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(RenderError, match="is a file, expected a folder"):
        generate(spec, tmp_path / "out")


def test_a_manifest_cannot_point_out_of_its_folder(spec, catalog, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("mine")
    with (catalog / MANIFEST).open("a") as file:
        file.write(f"{'0' * 64}  ../mine.py\nnonsense\n")
    generate(spec, catalog)
    assert mine.read_text() == "mine"
    assert up_to_date(catalog, spec)


# ---- mistakes and malice ----


def test_nothing_is_written_where_the_spec_has_a_mistake(spec, catalog, tmp_path):
    spec.write_text(SPEC.replace("x + alpha * y", "x + beta * y"))
    before = tree(catalog)
    for folder in (catalog, tmp_path / "new"):
        with pytest.raises(SpecError, match=r"my_ops\.yaml:9:\d+: error: `beta`"):
            generate(spec, folder)
    assert tree(catalog) == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ['a"""b.yaml', "a*b.yaml", "a b.yaml", "a\nb.yaml"])
def test_the_name_of_a_spec_cannot_put_text_into_the_files(tmp_path, name):
    (tmp_path / name).write_text(SPEC)
    with pytest.raises(RenderError, match="the name of the spec is"):
        generate(tmp_path / name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


HOSTILE = [
    ("x + alpha * y", "__import__('os').system('touch hacked')"),
    ("x + alpha * y", "(lambda: x)()"),
    ("x + alpha * y", "x.__class__.__mro__[1]"),
    ("x + alpha * y", "x); system(1); ("),
    ("x + alpha * y", "x + alpha * y */ int evil; /*"),
    ("x + alpha * y", "${7*7}"),
    ("alpha: C = 2", "alpha: C = __import__('os').getpid()"),
    ("kind: custom.add", 'kind: custom"""'),
    ("kind: custom.add", 'doc: "x\\n#error\\n"'),
    ("kind: custom.add", "doc: '{{ 7 * 7 }}'"),
    ("kind: custom.add", "doc: x */ evil"),
    ("kind: custom.add", "doc: !!python/object/apply:os.system ['touch hacked']"),
    ("kind: custom.add", "requires: \"__import__('os').getpid() > 0\""),
    ('x: "T[*shape]"', 'x: "T[*shape] /* */ evil"'),
    ("scaled_add:", '"scaled_add(): pass #":'),
    ("scaled_add:", "../../evil:"),
]


@pytest.mark.parametrize(("old", "new"), HOSTILE)
def test_a_hostile_spec_runs_no_code_and_gets_no_text_into_a_file(tmp_path, monkeypatch, old, new):
    monkeypatch.chdir(tmp_path)
    assert old in SPEC
    with pytest.raises(SpecError):
        loads(SPEC.replace(old, new, 1))
    assert list(tmp_path.iterdir()) == []


def test_braces_and_signs_in_a_doc_are_only_text(tmp_path, spec, catalog):
    """A template renders a doc, it does not read it."""
    edit(spec, "kind: custom.add", "doc: 50 % of {x}, '7' <b>")
    generate(spec, catalog)
    for path in ("cuda/scaled_add.cu", "plans/scaled_add.py", "docs/scaled_add.md"):
        assert "50 % of {x}, '7' <b>" in (catalog / path).read_text()


# ---- a catalog in somebody's own package ----


def test_a_catalog_of_ones_own_runs_with_the_runtime_alone(tmp_path, monkeypatch):
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (tmp_path / "my_ops.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    assert main(["generate", "--spec", "my_ops.yaml", "--out", "my_package/generated"]) == 0
    printed = run_python("-c", USER_PROGRAM, folder=tmp_path)
    assert printed.splitlines() == ["[7.0, 10.0]", "[1.0, 1.0] [2.0, 2.0]", "[9.0, 16.0]", "round trip", "[]"]


USER_PROGRAM = """
import sys
sys.path.insert(0, ".")
import numpy as np
from my_package.generated import ScaledAddPlan, scaled_add, square
from my_package.generated.plans.scaled_add import scaled_add_backward
from skuda import KernelSku
from skuda.launch import registry

x = np.array([3.0, 4.0], np.float32)
print(scaled_add(x, np.array([2, 3], np.float32)).tolist())
d_x, d_y = scaled_add_backward(np.ones(2, np.float32))
print(d_x.tolist(), d_y.tolist())
print(square(x).tolist())
mine = [sku for sku in registry.skus() if sku.op == "scaled_add"]
assert mine and all(KernelSku.parse(sku.symbol) == sku for sku in mine)
assert "scaled_add_backward_f16__reference" in {sku.symbol for sku in mine}
print("round trip")
print([name for name in ("jinja2", "yaml", "skuda.codegen") if name in sys.modules])
"""


def test_the_repository_is_as_generated():
    assert drift(REPOSITORY / "ops.yaml", REPOSITORY / "generated") == {}


# ---- imports ----


def run_python(*arguments: str, environment: dict[str, str] | None = None, folder: Path | None = None) -> str:
    """What a new Python prints; it must succeed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported(code: str, folder: Path) -> set[str]:
    """Which of the heavy modules some code imports."""
    heavy = "cupy torch jinja2 yaml cuda.core ml_dtypes"
    program = f"import sys\n{code}\nprint()\nprint(*(set('{heavy}'.split()) & set(sys.modules)))"
    return set(run_python("-c", program, folder=folder).splitlines()[-1].split())


def test_importing_skuda_and_running_on_the_cpu_imports_nothing_heavy(tmp_path):
    code = "import numpy, skuda; skuda.lerp(numpy.zeros(2, 'f4'), numpy.ones(2, 'f4'), 0.5)"
    assert imported("import skuda", tmp_path) == set()
    assert imported(code, tmp_path) == set()


def test_generating_what_is_there_imports_neither_jinja_nor_yaml(spec, catalog, tmp_path):
    arguments = ["generate", "--spec", str(spec), "--out", str(catalog)]
    code = f"from skuda.codegen.cli import main; assert main({arguments}) == 0"
    assert imported(code, tmp_path) == set()
    edit(spec, "alpha: C = 2", "alpha: C = 3")
    assert imported(code, tmp_path) == {"jinja2", "yaml"}
