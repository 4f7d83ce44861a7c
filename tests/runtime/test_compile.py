"""NVRTC, without a GPU: what is compiled, with which arithmetic, and how a refusal reads."""

from __future__ import annotations

import logging
import subprocess
import sys
from importlib import resources

import pytest

from skuda.errors import CompileError, MissingDependency, Unsupported
from skuda.launch import compiler
from skuda.launch.compiler import Compiled, compile_cubin
from skuda.schedules import tuning

SCALE = """
#include "slots.cuh"
template <typename T>
__global__ void scale(Slots slots) {
  static_cast<T*>(slots.output)[threadIdx.x] *= static_cast<T>(slots.factor);
}
"""
SLOTS = "struct Slots { void* output; double factor; };"


@pytest.fixture(autouse=True)
def slots_header(monkeypatch):
    """One small header in place of the package's own."""
    monkeypatch.setattr(compiler, "_file", {"slots.cuh": SLOTS}.get)


def cubin_of(expression: str) -> bytes:
    """Machine code that stores one f32 expression of the f32 values a, b and c."""
    source = f"""
    __global__ void evaluate(float* at) {{
      const float a = at[0], b = at[1], c = at[2];
      at[3] = {expression};
    }}
    """
    return compile_cubin(source, "evaluate.cu", ["evaluate"], "sm_90").cubin


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_the_cubin_is_an_elf_file_of_the_architecture_with_every_entry(arch):
    compiled = compile_cubin(SCALE, "scale.cu", ["scale<float>", "scale<double>"], arch)
    assert compiled.lowered == {"scale<float>": "_Z5scaleIfEv5Slots", "scale<double>": "_Z5scaleIdEv5Slots"}
    assert compiled.cubin[:4] == b"\x7fELF"
    assert compiled.cubin[49] == int(arch.removeprefix("sm_"))  # the second byte of e_flags
    assert all(mangled.encode() in compiled.cubin for mangled in compiled.lowered.values())
    assert compiled.log == ""


def test_only_the_entries_asked_for_are_instantiated():
    compiled = compile_cubin(SCALE, "scale.cu", ["scale<float>"], "sm_90")
    assert b"_Z5scaleIdEv5Slots" not in compiled.cubin


@pytest.mark.parametrize(
    ("plain", "exact", "fast_option"),
    [
        ("a * b + c", "__fadd_rn(__fmul_rn(a, b), c)", "--fmad=true"),
        ("a / b", "__fdiv_rn(a, b)", "--prec-div=false"),
        ("sqrtf(a)", "__fsqrt_rn(a)", "--prec-sqrt=false"),
        ("a * b", "__fmul_rn(a, b)", "--ftz=true"),
    ],
)
def test_plain_arithmetic_compiles_to_the_ieee_operations(monkeypatch, plain, exact, fast_option):
    ours = cubin_of(plain)
    assert ours == cubin_of(exact)
    name = fast_option.split("=")[0]
    fast = tuple(fast_option if option.startswith(name) else option for option in compiler.OPTIONS)
    monkeypatch.setattr(compiler, "OPTIONS", fast)
    assert ours != cubin_of(plain)


def test_a_header_is_never_read_from_the_working_directory(monkeypatch, tmp_path):
    (tmp_path / "slots.cuh").write_text("#error a file of the working directory was included\n")
    (tmp_path / "stray.cuh").write_text("\n")
    monkeypatch.chdir(tmp_path)
    assert compile_cubin(SCALE, "scale.cu", ["scale<float>"], "sm_90").cubin
    with pytest.raises(CompileError, match=r'could not open source file "stray\.cuh"'):
        compile_cubin('#include "stray.cuh"\n' + SCALE, "scale.cu", ["scale<float>"], "sm_90")


def test_warnings_are_returned():
    source = "__global__ void idle() { int unused; }"
    compiled = compile_cubin(source, "idle.cu", ["idle"], "sm_90")
    assert isinstance(compiled, Compiled)
    assert 'idle.cu(1): warning #177-D: variable "unused" was declared but never referenced' in compiled.log


def test_a_refusal_names_the_source_and_shows_the_log():
    with pytest.raises(CompileError) as caught:
        compile_cubin("__global__ void broken() { missing(); }", "broken.cu", ["broken"], "sm_90")
    message = str(caught.value)
    assert message.startswith("broken.cu: NVRTC refused the source for sm_90 (NVRTC_ERROR_COMPILATION):\n")
    assert 'broken.cu(1): error: identifier "missing" is undefined' in message
    assert isinstance(caught.value, RuntimeError)


def test_an_entry_that_is_not_there_is_a_refusal():
    with pytest.raises(CompileError, match='identifier "half" is undefined'):
        compile_cubin(SCALE, "scale.cu", ["scale<half>"], "sm_90")


@pytest.mark.parametrize("arch", ["sm_35", "sm_9999", "compute_90", "hopper"])
def test_an_architecture_that_nvrtc_cannot_make_machine_code_for_is_unsupported(arch):
    expected = rf"scale\.cu: the installed NVRTC does not compile for {arch}; it knows .* sm_90 "
    with pytest.raises(Unsupported, match=expected):
        compile_cubin(SCALE, "scale.cu", ["scale<float>"], arch)


@pytest.fixture
def nvrtc_unknown():
    """NVRTC is looked for anew, in the test and after it."""
    compiler._nvrtc.cache_clear()
    yield
    compiler._nvrtc.cache_clear()


def test_a_missing_binding_names_the_extra(monkeypatch, nvrtc_unknown):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(MissingDependency, match=r"pip install 'skuda\[cuda13\]'"):
        compile_cubin(SCALE, "scale.cu", ["scale<float>"], "sm_90")


def test_a_missing_library_names_the_extra_and_what_was_looked_for(monkeypatch, nvrtc_unknown):
    from cuda.bindings import nvrtc

    def no_library():
        raise RuntimeError("Failure finding libnvrtc.so.13")

    monkeypatch.setattr(nvrtc, "nvrtcVersion", no_library)
    with pytest.raises(MissingDependency, match=r"skuda\[cuda13\]'.*finding libnvrtc\.so\.13") as caught:
        compile_cubin(SCALE, "scale.cu", ["scale<float>"], "sm_90")
    assert isinstance(caught.value, ImportError)
    monkeypatch.undo()  # installed meanwhile: the failure must not have been remembered
    monkeypatch.setattr(compiler, "_file", {"slots.cuh": SLOTS}.get)
    assert compile_cubin(SCALE, "scale.cu", ["scale<float>"], "sm_90").cubin


def test_importing_the_module_loads_neither_nvrtc_nor_cupy():
    code = (
        "import sys, skuda.launch.compiler, skuda.launch.cubin_cache, skuda.launch.kernel; "
        "print('cuda.bindings' in sys.modules, 'cupy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_slow_compilation_says_what_took_how_long(monkeypatch, caplog):
    caplog.set_level(logging.DEBUG, logger="skuda")
    compile_cubin(SCALE, "scale.cu", ["scale<float>"], "sm_90")  # warm: takes a small part of a second
    caplog.clear()
    monkeypatch.setattr(compiler, "SLOW_SECONDS", 60.0)
    compile_cubin(SCALE, "scale.cu", ["scale<float>"], "sm_90")
    assert caplog.records == []
    monkeypatch.setattr(compiler, "SLOW_SECONDS", 0.0)
    compile_cubin(SCALE, "scale.cu", ["scale<float>"], "sm_90")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING  # seen although nobody has configured logging
    assert record.getMessage().startswith("compiling scale.cu (scale<float>) for sm_90 took ")


def test_headers_are_all_those_of_the_package(monkeypatch):
    monkeypatch.undo()
    folder = resources.files("skuda").joinpath("cuda")
    files = [file for file in folder.iterdir() if file.name.endswith(".cuh")]
    expected = {file.name: file.read_text(encoding="utf-8") for file in files}
    assert expected and tuning.HEADER not in expected  # it is written from a record
    assert compiler.headers() == expected | {tuning.HEADER: tuning.header("sm_90")}


def test_headers_are_included_together(monkeypatch):
    """No name has two meanings: a source of some operation may include any of them."""
    monkeypatch.undo()
    source = "".join(f'#include "{name}"\n' for name in sorted(compiler.headers()))
    source += "template <int> __global__ void nothing() {}\n"
    assert compile_cubin(source, "together.cu", ["nothing<0>"], "sm_90").cubin[:4] == b"\x7fELF"


def test_a_source_means_what_it_includes_and_no_more(monkeypatch):
    texts = {"a.cuh": '#include "b.cuh"\n', "b.cuh": "// b", "other.cuh": "// other", "c.cuh": '\n  #include "a.cuh"'}
    monkeypatch.setattr(compiler, "_file", texts.get)
    assert compiler.included('// no #include "other.cuh"\n#include "a.cuh"\nint x;') == {
        "a.cuh": texts["a.cuh"],
        "b.cuh": texts["b.cuh"],
    }
    assert compiler.included('#include "a.cuh"\n#include "b.cuh"') == compiler.included('#include "a.cuh"')
    assert compiler.included("int x;") == {}


def test_nvrtc_reads_no_schedule_but_that_of_the_kernel(monkeypatch):
    texts = {
        "all.cuh": '#include "vec.cuh"\n#include "groups.cuh"\n#include "columns_unaligned.cuh"',
        "vec.cuh": '#include "program.cuh"\n#include "flat.cuh"\nint vec;',
        "groups.cuh": '#pragma once\n#include "program.cuh"\n#include "runs.cuh"\nint groups;',
        "columns_unaligned.cuh": '#include "row_shares.cuh"\nint columns;',
        "row_shares.cuh": '#include "program.cuh"\nint rows;',
        "program.cuh": "",
        "flat.cuh": "// flat",
        "runs.cuh": "// runs",
        "erf.cuh": "// erf",
    }
    monkeypatch.setattr(compiler, "_file", texts.get)
    source = '#include "all.cuh"\n#include "erf.cuh"\n'

    def left_out(*entries: str) -> set[str]:
        given = compiler.needed(source, entries, "sm_90")
        assert given.keys() == compiler.included(source).keys()
        changed = {name for name, text in given.items() if text != texts[name]}
        for name in changed:  # programs that the kernel is not of want what is included there
            assert "int" not in given[name]
            assert [*compiler._named(given[name])] == [*compiler._named(texts[name])]
        return changed

    assert left_out("vec<lerp_program<f16>, 8>") == {"groups.cuh", "columns_unaligned.cuh", "row_shares.cuh"}
    assert left_out("groups<lerp_program<f16>, 8>") == {"vec.cuh", "columns_unaligned.cuh", "row_shares.cuh"}
    # What a schedule includes of another one is kept.
    assert left_out("columns_unaligned<lerp_program<f16>, 8>") == {"vec.cuh", "groups.cuh"}
    assert left_out("vec<lerp_program<f16>, 8>", "groups<lerp_program<f16>, 8>") == {
        "columns_unaligned.cuh", "row_shares.cuh"
    }
    assert left_out("vec<lerp_program<f16>, 8>", "scale<float>") == set()  # not of this package


def test_every_include_of_a_header_is_found(monkeypatch):
    monkeypatch.undo()
    for text in compiler.headers().values():
        named = {line.split('"')[1] for line in text.splitlines() if "#include" in line and not line.startswith("//")}
        assert named <= set(compiler.included(text))
