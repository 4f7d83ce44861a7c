"""`skuda build`: what it compiles is what a first call looks for."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from problems import kernel_of

from skuda.codegen.cli import main
from skuda.codegen.commands import build, gpus
from skuda.errors import CompileError
from skuda.launch import compiler, kernel, registry
from skuda.launch.compiler import Compiled
from skuda.model.sku import BackendKind
from skuda.schedules import table

LERP = [
    sku
    for sku in registry.skus()
    if (sku.op, sku.backend) == ("lerp", BackendKind.CUDA)
]


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("SKUDA_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


@pytest.fixture
def compiled(monkeypatch):
    """Stands in for NVRTC; holds (entry, architecture) of each compilation."""
    asked = []

    def compile_cubin(source, name, entries, arch):
        (entry,) = entries
        asked.append((entry, arch))
        return Compiled(b"machine code", {entry: "lowered"}, "")

    monkeypatch.setattr(compiler, "compile_cubin", compile_cubin)
    return asked


@pytest.fixture
def gpu(monkeypatch):
    """As if there were two GPUs here, and a driver that loads everything."""
    devices = (("NVIDIA H200", "sm_90"), ("NVIDIA H200", "sm_90"))
    monkeypatch.setattr(gpus, "find", lambda: gpus.Gpus(devices, "580.1", "13.0", None))
    driver = SimpleNamespace(CUDADriverError=OSError)
    runtime = SimpleNamespace(getDevice=lambda: 0, setDevice=lambda device: None)
    monkeypatch.setattr(kernel, "_cupy_cuda", lambda: SimpleNamespace(driver=driver, runtime=runtime))
    monkeypatch.setattr(kernel, "compute_capability", lambda device: "sm_90")
    monkeypatch.setattr(kernel, "Loaded", lambda device, cubin, lowered: (cubin, lowered))


def test_a_first_call_after_it_compiles_nothing(compiled, gpu, capsys, folder):
    assert main(["build", "lerp", "--jobs", "2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{len(LERP)} kernels for sm_90 in {folder}: {len(LERP)} compiled, 0 were there (")
    assert len(compiled) == len(LERP)
    catalog = registry.catalogs()[0]
    for job in build.jobs_of([catalog], ["lerp"], ["sm_90"]):
        made = kernel.Kernel(lambda job=job: catalog.source(job.source), job.source, job.entry)
        assert made.on(0) == (b"machine code", "lowered")
    assert len(compiled) == len(LERP)
    assert main(["build", "lerp"]) == 0
    assert f"0 compiled, {len(LERP)} were there (" in capsys.readouterr().out


def test_every_kernel_of_what_is_named_for_each_architecture(compiled, capsys):
    arguments = ["build", "lerp_backward", "lerp_tensor", "--arch", "sm_80", "--arch", "sm_90", "--arch", "sm_80"]
    assert main(arguments) == 0
    names = {(kernel_of(entry)[0], arch) for entry, arch in compiled}
    functions = ("lerp_backward", "lerp_tensor", "lerp_tensor_backward")
    assert names == {(function, arch) for function in functions for arch in ("sm_80", "sm_90")}
    kernels = sum((sku.op, sku.backend) == ("lerp_tensor", BackendKind.CUDA) for sku in registry.skus())
    assert f"lerp_tensor.cu sm_80: {kernels} kernels" in capsys.readouterr().err
    every = build.jobs_of(registry.catalogs(), [], ["sm_90"])
    found = [registry.entry_of(sku) for sku in registry.skus() if sku.backend is BackendKind.CUDA]
    wanted = {(e.operation.source, x) for e in found for x in table.entries(e.operation, e.types, e.variant)}
    assert len(every) == len(wanted) and {(job.source, job.entry) for job in every} == wanted


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("softmax_backward", {"softmax_backward", "softmax_stage1_backward", "softmax_stage2_backward"}),
        ("logsumexp", {"logsumexp", "logsumexp_backward"}),
        ("dynamic_quantize_per_tensor", {f"dynamic_quantize_per_tensor_stage{stage}" for stage in (1, 2)}),
    ],
)
def test_stages_belong_to_what_they_are_of(name, kernels):
    jobs = build.jobs_of(registry.catalogs(), [name], ["sm_90"])
    assert {kernel_of(job.entry)[0] for job in jobs} == kernels


@pytest.mark.turns(2)
def test_it_compiles_for_a_machine_that_is_not_here(folder, capsys):
    pytest.importorskip("cuda.bindings.nvrtc")
    assert main(["build", "lerp_backward", "--arch", "sm_120"]) == 0
    entries = list(folder.glob("*.cubin"))
    assert len(entries) == sum(sku.direction.value == "backward" for sku in LERP)
    assert all(b"\x7fELF" in entry.read_bytes() for entry in entries)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lrep"], "no operation 'lrep' in the catalogs that are loaded; did you mean lerp?"),
        (["zzz"], "; `skuda list` shows what there is"),
        (["lerp", "--arch", "sm_1"], "the installed NVRTC does not compile for sm_1; it knows sm_"),
    ],
)
def test_mistakes(arguments, message, capsys, gpu):
    assert main(["build", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_without_a_gpu_an_architecture_must_be_named(monkeypatch, capsys):
    monkeypatch.setattr(gpus, "find", lambda: gpus.Gpus((), None, None, "no NVIDIA driver"))
    assert main(["build", "lerp"]) == 1
    message = "skuda build: no GPU here (no NVIDIA driver); name an architecture, such as --arch sm_90"
    assert message in capsys.readouterr().err


def test_without_nvrtc_the_extra_is_named(monkeypatch, capsys, folder):
    compiler._nvrtc.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    assert main(["build", "lerp", "--arch", "sm_90"]) == 1
    assert "pip install 'skuda[cuda13]'" in capsys.readouterr().err
    assert list(folder.glob("*")) == []


@pytest.mark.turns(2)
def test_the_first_kernel_that_is_refused_ends_it(monkeypatch, capsys):
    asked = []

    def refuse(source, name, entries, arch):
        asked.append(entries)
        raise CompileError(f"{name}: NVRTC refused the source")

    monkeypatch.setattr(compiler, "compile_cubin", refuse)
    assert main(["build", "--arch", "sm_90", "--jobs", "1"]) == 1
    assert capsys.readouterr().err.count("NVRTC refused") == 1
    assert len(asked) < 1000  # of more than ten thousand; some were under way


def test_a_cache_that_keeps_nothing_is_an_error(compiled, monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SKUDA_CACHE_DIR", str(tmp_path / "file" / "kernels"))
    assert main(["build", "lerp", "--arch", "sm_90"]) == 1
    assert "nothing could be kept in" in capsys.readouterr().err
