"""The command line: what is printed where, and the exit status. Nothing here needs a GPU."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from catalogs import own_spec

import skuda
from skuda.codegen.cli import COMMANDS, main
from skuda.codegen.commands import doctor, generate, gpus, oracles
from skuda.codegen.render import render
from skuda.codegen.spec import loads
from skuda.errors import SpecError
from skuda.launch import registry

REPOSITORY = Path(__file__).parents[2]
SPEC = """\
ops:
  twice:
    inputs:
      x: T[*shape]
    outputs:
      output: T[*shape] = 2 * x
"""


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder with a spec, as the current one."""
    (tmp_path / "ops.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def skuda_command(capsys):
    """Runs a command: (exit status, standard output, standard error)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            status = main(arguments)
        except SystemExit as error:  # argparse's way
            status = error.code
        return status, *capsys.readouterr()

    return run


# ---- generate ----


def test_generate_says_what_it_did(here, skuda_command):
    status, out, _ = skuda_command("generate")
    assert status == 0
    assert out.startswith("1 operation, 8 files: 8 written, 0 removed in 0.")
    assert skuda_command("generate")[1].startswith("generated: up to date (0.")


def test_generate_says_which_edited_files_it_overwrites_and_removes(here, skuda_command):
    skuda_command("generate")
    for name in ("cuda/twice.cu", "plans/twice.py"):
        path = here / "generated" / name
        path.write_text(path.read_text() + "\n")
    (here / "ops.yaml").write_text(SPEC.replace("twice", "thrice"))
    out = skuda_command("generate")[1]
    assert "generated/cuda/twice.cu was edited by hand: removed\n" in out
    assert "generated/plans/twice.py was edited by hand: removed\n" in out
    assert "6 written, 3 removed" in out
    path = here / "generated" / "cuda" / "thrice.cu"
    path.write_text(path.read_text() + "\n")
    assert "generated/cuda/thrice.cu was edited by hand: overwritten\n" in skuda_command("generate")[1]


def test_a_mistake_is_printed_as_it_is_laid_out_and_nothing_is_written(here, skuda_command):
    (here / "ops.yaml").write_text(SPEC.replace("2 * x", "2 * y"))
    status, out, err = skuda_command("generate")
    assert (status, out) == (1, "")
    assert err.startswith("ops.yaml:6:31: error: `y` is neither an argument nor an intrinsic\n 6 |")
    assert err.endswith("1 error in ops.yaml; nothing was written\n")
    assert not (here / "generated").exists()


def test_no_spec_here(tmp_path, monkeypatch, skuda_command):
    monkeypatch.chdir(tmp_path)
    for command in ("generate", "check"):
        assert skuda_command(command) == (
            1, "", "error: there is no ops.yaml in this folder; give its path with --spec\n"
        )  # fmt: skip
    assert skuda_command("generate", "--spec", "absent.yaml") == (
        1, "", "error: absent.yaml: cannot be read: No such file or directory\n"
    )  # fmt: skip


@pytest.mark.parametrize("option", ["--out", "--spec"])
def test_an_empty_path_is_not_this_folder(here, skuda_command, option):
    before = sorted(here.iterdir())
    status, _, err = skuda_command("generate", option, "")
    assert status == 2 and f"argument {option}: expected a path, got an empty one" in err
    assert sorted(here.iterdir()) == before


def test_a_folder_that_cannot_be_written(here, skuda_command):
    (here / "file").write_text("")
    status, _, err = skuda_command("generate", "--out", "file/generated")
    assert (status, err.count("\n")) == (1, 1)
    assert err.startswith("error: ")


# ---- check ----


def test_check_is_silent_but_for_one_line_when_all_is_well(here, skuda_command):
    skuda_command("generate")
    assert skuda_command("check") == (0, "generated: 1 operation, 8 files, all as ops.yaml wants them\n", "")


def test_check_names_each_kind_of_drift_and_the_command_that_mends_it(here, skuda_command):
    (here / "my.yaml").write_text(SPEC)
    options = ("--spec", "my.yaml", "--out", "pkg/generated")
    skuda_command("generate", *options)
    folder = here / "pkg" / "generated"
    (folder / "docs" / "twice.md").unlink()
    path = folder / "cuda" / "twice.cu"
    path.write_text(path.read_text().replace("C(2)", "C(2) /* faster */", 1))
    (folder / "cuda" / "copied.cu").write_text((folder / "plans" / "twice.py").read_text())
    (here / "my.yaml").write_text(SPEC.replace("2 * x", "3 * x"))
    status, out, err = skuda_command("check", *options)
    assert (status, err) == (1, "")
    heads = {line.split(": ")[0]: line.split(": ")[1] for line in out.splitlines() if line.startswith("pkg/")}
    assert heads == {
        "pkg/generated/cuda/copied.cu": "orphan",
        "pkg/generated/cuda/twice.cu": "edited",
        "pkg/generated/docs/twice.md": "missing",
        "pkg/generated/plans/twice.py": "stale",
        "pkg/generated/MANIFEST": "stale",
    }
    assert "  -    return {C(2) /* faster */ * element.x};\n" in out
    assert "mend: skuda generate --spec my.yaml --out pkg/generated\n" in out
    assert path.read_text().count("faster") == 1  # a check writes nothing
    assert skuda_command("generate", *options)[0] == 0
    assert skuda_command("check", *options)[0] == 0


def test_check_cuts_long_diffs_unless_all_is_wanted(here, skuda_command):
    skuda_command("generate")
    path = here / "generated" / "cuda" / "twice.cu"
    path.write_text(path.read_text() + "// mine\n" * 100)
    short, full = skuda_command("check")[1], skuda_command("check", "--full")[1]
    assert len(short.splitlines()) == 43  # the head, 40 lines, how many more, the last line
    assert "more lines: --full" in short
    assert len(full.splitlines()) > 100


def test_a_foreign_file_in_the_way(here, skuda_command):
    (here / "generated" / "cuda").mkdir(parents=True)
    (here / "generated" / "cuda" / "twice.cu").write_text("mine")
    status, out, _ = skuda_command("check")
    assert status == 1
    assert "generated/cuda/twice.cu: foreign: not written by the generator" in out
    status, _, err = skuda_command("generate")
    assert (status, err) == (
        1,
        "error: generated holds cuda/twice.cu, which the generator did not write; "
        "move it away, or give another folder to --out\n",
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("@oracle\ndef twice(x): return 2 * x\n", None),
        ("@oracle(over='n')\ndef twice(x): return 2 * x\n", None),
        ("def twice(x): pass\n", "`twice` has no oracle: write `twice` under @oracle in tests/oracles, by hand"),
        ("@other\ndef twice(x): return 2 * x\n", "`twice` has no oracle"),
        ("@oracle\ndef twce(x): return 2 * x\n", "doubling.py: `twce` is no operation; did you mean `twice`?"),
        ("@oracle\ndef twice(x): return 2 * x\n@oracle\ndef twice_backward(x): return 2\n", None),
        ("@oracle\ndef thrice_backward(x): return 2\n", "doubling.py: `thrice_backward` is no operation"),
        ("@oracle\ndef twice(x:\n", "doubling.py: expected a file of Python, but: "),
    ],
)
def test_check_wants_an_oracle_for_each_operation_where_there_are_oracles(here, skuda_command, text, complaint):
    skuda_command("generate")
    folder = here / "tests" / "oracles"
    folder.mkdir(parents=True)
    (folder / "doubling.py").write_text(f"raise SystemExit('never run')\n{text}")
    status, out, err = skuda_command("check")
    if complaint is None:
        assert status == 0
    else:
        assert (status, complaint in out + err) == (1, True)


def test_a_backward_pass_wants_its_oracle_too(tmp_path):
    (tmp_path / "doubling.py").write_text("@oracle\ndef twice(x): return 2 * x\n")
    rows = loads(SPEC + "    backward:\n      d_x: T[*shape] = 2 * d_output\n").rows
    assert oracles.complaints(tmp_path, rows) == [
        f"`twice_backward` has no oracle: write `twice_backward` under @oracle in {tmp_path}, by hand"
    ]


def test_granularities_share_an_oracle(tmp_path):
    (tmp_path / "doubling.py").write_text("@oracle\ndef twice(x): return 2 * x\n")
    per_row, per_tensor = (loads(SPEC.replace("twice", f"twice_per_{each}")).rows for each in ("row", "tensor"))
    assert oracles.complaints(tmp_path, [*per_row, *per_tensor]) == []
    assert oracles.complaints(tmp_path, loads(SPEC.replace("twice", "thrice_per_row")).rows)[1:] == [
        f"`thrice_per_row` has no oracle: write `thrice_per_row` or `thrice` under @oracle in {tmp_path}, by hand"
    ]


def test_every_operation_of_the_repository_has_its_oracle():
    assert oracles.complaints(REPOSITORY / "tests" / "oracles", own_spec().rows) == []


# ---- list, show, new ----


def listed(out: str) -> list[str]:
    """The lines of the operations, without the heading and what stands below each."""
    return [line for line in out.splitlines()[1:] if not line.startswith(" ")]


def test_list_has_every_operation_of_the_spec(skuda_command):
    status, out, _ = skuda_command("list")
    rows = {line.split()[0]: line for line in listed(out)}
    assert status == 0
    assert list(rows) == [row.name for row in own_spec().rows]
    assert re.search("quantization +forward.backward ", rows["quantize_per_token"])
    below = out.split("\nquantize_per_token ")[1].split("\n")[1:3]
    assert below == ["  T[*n, d], S[*n], i32[*n] -> Q[*n, d]", "  T: f32 f64 f16 bf16, Q: s8 u8 s4 u4, S: T f32"]


def test_list_fits_80_columns(skuda_command):
    lines = skuda_command("list")[1].splitlines()
    assert max(map(len, lines)) <= 80
    assert all(line.startswith("  ") or len(line.split()) == 4 for line in lines)


def test_the_summary_counts_what_the_list_has(skuda_command):
    """Each category's numbers, and all together."""
    lines = [line.split() for line in skuda_command("list", "--summary")[1].splitlines()]
    heads, *categories = lines[: [line[:1] for line in lines].index(["all"]) + 1]
    assert heads == ["CATEGORY", "ROWS", "KINDS", "PLANS", "TYPES", "KERNELS"]
    numbers = [[int(each) for each in line[1:]] for line in categories]
    for column in (0, 2, 3, 4):
        assert sum(line[column] for line in numbers[:-1]) == numbers[-1][column]
    listing = [line.split() for line in listed(skuda_command("list")[1])]
    assert [numbers[-1][0], numbers[-1][4]] == [len(listing), sum(int(line[-1]) for line in listing)]
    assert numbers[-1][2] == sum(1 + line[2].count("+") for line in listing)
    unary = next(line for line in categories if line[0] == "unary")
    assert unary[1] == str(len(listed(skuda_command("list", "unary")[1])))


def test_show_of_a_kernel_has_no_private_field(skuda_command):
    symbol = "quantize_per_token_f16_s8__vec16"
    hash(registry.sku_of_symbol(symbol).precision_guarantee)  # which is kept
    out = skuda_command("show", symbol)[1]
    assert "\nmath_precision: f32\n" in out
    assert not re.search(r"^_", out, re.MULTILINE)


def test_list_filters_by_a_part_of_the_name_and_by_kind(skuda_command):
    names = [line.split()[0] for line in listed(skuda_command("list", "per_channel")[1])]
    assert names == [
        "quantize_per_channel", "dequantize_per_channel", "quantize_fp8_per_channel", "dequantize_fp8_per_channel",
        "fake_quantize_per_channel", "learnable_fake_quantize_per_channel", "affine_per_channel",
        "dynamic_quantize_per_channel", "dynamic_quantize_fp8_per_channel", "dynamic_quantize_asymmetric_per_channel",
        "observe_min_max_per_channel",
        "observe_absmax_per_channel", "observe_moving_average_per_channel",
    ]  # fmt: skip
    assert [line.split()[0] for line in listed(skuda_command("list", "gated")[1])] == [
        "glu", "reglu", "geglu", "geglu_tanh",
    ]  # fmt: skip
    assert skuda_command("list", "nothing")[0] == 1


def test_list_counts_and_names_every_kernel(skuda_command):
    symbols = skuda_command("list", "--skus")[1].splitlines()
    assert sorted(symbols) == sorted(sku.symbol for sku in registry.skus())
    counts = [int(line.split()[3]) for line in listed(skuda_command("list")[1])]
    assert sum(counts) == len(symbols)
    backward = skuda_command("list", "lerp_tensor", "--skus")[1].splitlines()
    assert "lerp_tensor_backward_bf16__reference" in backward


def test_show_has_the_formula_the_special_values_and_the_cuda(skuda_command):
    status, out, _ = skuda_command("show", "quantize_per_token")
    assert status == 0
    assert re.search(r"^evidence: (not verified on a GPU|\d+ of \d+ kernels bit-equal on )", out, re.MULTILINE)
    for line in (
        "  output: Q[*n, d] = quantize(input, scale, zero_point, q_min, q_max)",
        "  output = clamp(round_to_int(input / scale), q_min - zero_point, q_max - zero_point) + zero_point",
        "   input  nan  inf  -inf  0.5  1.5  2.5  -0.5  -0  1e+09  -1e+09",
        "  output    0  127  -128    0    2    2     0   0    127    -128",
        "  round_to_int: nearest integer, ties to even, saturating at +-2^53; NaN gives 0",
        "  math_precision: f32 or f64",
        "  scale: S[*n].",
        "== quantize_per_token_backward ==",
    ):
        assert f"{line}\n" in out
    assert "d_input = where(q_min - zero_point <= round_to_int(input / scale) and" in out
    assert "struct quantize_per_token_program {" in out
    assert "struct quantize_per_token_backward_program {" in out


@pytest.mark.parametrize(
    ("operation", "expected"),
    [("pow", "output = pow(a, b)"), ("gelu", "output = input * ndtr(input)"),
     ("softmax_backward", "d_input = output * (d_output - sum(d_output * output, over=d))")],
)  # fmt: skip
def test_show_writes_formulas_as_rows_do(operation, expected, skuda_command):
    """Types that functions of references are told are left out."""
    assert f"  {expected}\n" in skuda_command("show", operation)[1].split("formula, written out\n")[1]


def test_show_cuda_is_the_source_and_nothing_else(skuda_command):
    source = (REPOSITORY / "generated" / "cuda" / "lerp.cu").read_text()
    assert skuda_command("show", "lerp", "--cuda") == (0, source, "")


def test_show_of_a_backward_pass_alone(skuda_command):
    out = skuda_command("show", "lerp_backward")[1]
    assert "== lerp_backward ==" in out
    assert "== lerp ==" not in out
    assert "  d_a = (1 - weight) * d_output\n" in out


def test_show_tells_a_reduction_from_the_function_of_two_that_has_its_name(skuda_command):
    out = skuda_command("show", "dynamic_quantize_per_token")[1]
    assert "\n  max over: NaN if any is NaN; +0 is above -0; of no elements an error\n" in out
    assert "\n  max: " not in out


def test_show_types_names_the_kernels(skuda_command):
    out = skuda_command("show", "quantize_per_group", "--types", "bf16,s4,f32")[1]
    assert "  T = bf16, Q = s4, S = f32, C = f32\n" in out
    assert "  output: s4, travels as uint8, two to a byte, low nibble first\n" in out
    assert "  quantize_per_group_bf16_s4_scale_f32__reference (reference, strided_packed4)\n" in out
    assert "  quantize_per_group_backward_bf16_scale_f32__reference (reference, strided)\n" in out


@pytest.mark.turns(12)
@pytest.mark.parametrize("name", [row.name for row in own_spec().rows])
def test_show_serves_every_operation(skuda_command, name):
    plans = [plan for plan in registry.catalogs()[0].own_plans(name) if plan.operation.is_whole]
    words = {word for types in plans[0].operation.combinations for word in types.values()}
    word = next(word for word in ("f64", "i32", "f32") if word in words)
    status, out, err = skuda_command("show", name, "--types", word)
    assert (status, err) == (0, "")
    assert all(f"  {plan.operation.name}" in out and f"== {plan.operation.function} ==" in out for plan in plans)
    assert re.search(rf"  {name}_\w*{word}_?\w*__", out) and "struct" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("quantize_per_toke",), "did you mean quantize_per_token?"),
        (("zzz",), "`skuda list` shows what there is"),
        (("lerp", "--types", "f16,s8"), "--types f16,s8: expected at most 1, for T"),
        (
            ("quantize_per_token", "--types", "f16,e4m3"),
            "quantize_per_token: output is e4m3, expected s8, u8, s4 or u4",
        ),
        (("lerp", "--catalog", "json"), "--catalog json: expected a package that `skuda generate` wrote"),
        (
            ("lerp", "--catalog", "no_such_package"),
            "--catalog no_such_package: No module named 'no_such_package'",
        ),
    ],
)
def test_show_of_what_is_not_there(skuda_command, arguments, message):
    status, out, err = skuda_command("show", *arguments)
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err


def test_a_catalog_of_ones_own_is_listed_and_shown(here):
    run_skuda("generate", "--out", "pkg", folder=here)
    listed = run_skuda("list", "twice", "--catalog", "pkg", folder=here)
    assert listed.splitlines()[1].split()[:3] == ["twice", "custom", "forward+backward"]
    shown = run_skuda("show", "twice", "--catalog", "pkg", folder=here)
    assert "  output = 2 * x\n" in shown
    assert "  output  nan  inf  -inf    1    3    5    -1  -0  2e+09  -2e+09\n" in shown


def test_a_new_row_is_an_operation_as_it_is_printed(skuda_command):
    status, out, _ = skuda_command("new", "scaled_add")
    assert status == 0
    row = loads(out).rows[0]
    assert (row.name, row.kind) == ("scaled_add", "custom.scaled_add")
    assert row.backward is not None
    programs = re.findall(r" struct (\w+) \{\n", render(loads(out))["cuda/scaled_add.cu"])
    assert programs == ["scaled_add_program", "scaled_add_backward_program"]


def test_a_new_row_can_be_appended_to_the_catalog(skuda_command):
    out = skuda_command("new", "scaled_add", "--row")[1]
    rows = loads((REPOSITORY / "ops.yaml").read_text() + out).rows
    assert rows[-1].name == "scaled_add"


def test_what_a_new_row_has_in_comments_can_be_switched_on(skuda_command):
    out = skuda_command("new", "scaled_add")[1]
    for line in ("types:", "requires:"):
        assert f"    # {line}" in out
        out = out.replace(f"    # {line}", f"    {line}")
    row = loads(out.replace(", Q: [s8, u8, s4, u4], S: [T, f32]", "")).rows[0]
    assert row.forward.operation.types == {"T": ("f32", "f16")}
    assert row.forward.operation.requirements[0].text == "alpha > 0"


@pytest.mark.parametrize(
    "name", ["Upper", "two__lines", "1st", "class", "plans", "x_f32", "x_backward", "a b", "a\nb", ""]
)
def test_a_bad_name_is_refused_as_the_loader_does(skuda_command, name):
    status, out, err = skuda_command("new", name)
    assert (status, out) == (1, "")
    message = err.splitlines()[0].partition(": error: ")[2]
    assert "operation's name" in message
    with pytest.raises(SpecError) as caught:
        loads(SPEC.replace("twice", json.dumps(name)))
    assert message in str(caught.value)


# ---- doctor, cache ----


def test_doctor_without_a_gpu(skuda_command, monkeypatch):
    monkeypatch.setattr(gpus, "find", lambda: gpus.Gpus((), None, None, "no NVIDIA driver"))
    status, out, _ = skuda_command("doctor")
    assert status == 0
    assert "no GPU (no NVIDIA driver): plans run on the CPU" in out
    assert f"{len(registry.catalogs()[0].modules)} operations" in out


@pytest.mark.parametrize(("cuda", "extra"), [("12.8", "cuda12"), ("13.0", "cuda13"), ("14.1", "cuda13")])
def test_doctor_names_the_extra_for_the_driver(skuda_command, monkeypatch, cuda, extra):
    found = gpus.Gpus((("NVIDIA H200", "sm_90"),), "570.1", cuda, None)
    monkeypatch.setattr(gpus, "find", lambda: found)
    monkeypatch.setitem(sys.modules, "cupy", None)
    status, out, _ = skuda_command("doctor", "--json")
    by_name = {finding["name"]: finding for finding in json.loads(out)}
    assert status == 1
    assert by_name["GPU"]["found"] == "0: NVIDIA H200 (sm_90)"
    assert by_name["driver"]["found"] == f"570.1, runs CUDA up to {cuda}"
    assert by_name["CuPy"]["missing"]
    assert by_name["CuPy"]["help"] == f"for arrays on a GPU: pip install 'skuda[{extra}]'"


def test_doctor_says_that_a_driver_is_too_old(monkeypatch):
    found = gpus.Gpus((("NVIDIA V100", "sm_70"),), "470.1", "11.4", None)
    monkeypatch.setattr(gpus, "find", lambda: found)
    monkeypatch.setitem(sys.modules, "cupy", None)
    by_name = {finding.name: finding for finding in doctor.findings()}
    assert by_name["driver"].missing
    assert "CUDA 12 or newer" in by_name["driver"].help


def test_doctor_counts_the_cache(skuda_command, monkeypatch, tmp_path):
    monkeypatch.setenv("SKUDA_CACHE_DIR", str(tmp_path / "kernels"))
    assert f"{tmp_path}/kernels, 0 entries, 0.0 MB" in skuda_command("doctor")[1]
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / ("0" * 64 + ".cubin")).write_bytes(bytes(2_500_000))
    assert f"{tmp_path}/kernels, 1 entry, 2.5 MB" in skuda_command("doctor")[1]


def test_the_cache_is_cleared_of_kernels_only(skuda_command, monkeypatch, tmp_path):
    monkeypatch.setenv("SKUDA_CACHE_DIR", str(tmp_path))
    (tmp_path / ("0" * 64 + ".cubin")).write_bytes(b"")
    (tmp_path / "mine").write_bytes(b"")
    assert skuda_command("cache", "path") == (0, f"{tmp_path}\n", "")
    assert skuda_command("cache", "clear") == (0, f"{tmp_path}: 1 entry removed\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


# ---- the program ----


def run_skuda(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "skuda.codegen.cli", *arguments], capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_version(skuda_command):
    assert skuda_command("--version") == (0, f"skuda {skuda.__version__}\n", "")


def test_the_menu_names_every_command_that_is_there(skuda_command):
    status, out, _ = skuda_command("--help")
    assert status == 0
    for name in set(COMMANDS) - {"bench"}:
        assert f"\n    {name} " in out


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"bench"}))
def test_every_command_explains_itself(skuda_command, name):
    status, out, _ = skuda_command(name, "--help")
    assert status == 0
    assert out.startswith(f"usage: skuda {name} ")


def test_an_unknown_command_is_wrong_usage(skuda_command):
    status, out, err = skuda_command("generat")
    assert (status, out) == (2, "")
    assert "invalid choice: 'generat'" in err


def test_the_menu_imports_no_command(tmp_path):
    code = (
        "import sys, skuda.codegen.cli as c\ntry: c.main(['--help'])\nexcept SystemExit: print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    modules = done.stdout.splitlines()[-1].split()
    assert not {"numpy", "jinja2", "yaml", "skuda.demo", "skuda.launch.registry"} & set(modules)


def test_a_reader_that_has_enough_is_no_error(tmp_path):
    code = f"{sys.executable} -m skuda.codegen.cli list --skus | head -n 1"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")


def test_ctrl_c_gives_130(monkeypatch, here):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(generate.output, "up_to_date", interrupted)
    assert main(["generate"]) == 130
