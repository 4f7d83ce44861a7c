"""Kernels of the CPU give the reference's bits: for every operation, in the ways that operands of GPU kernels lie."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import skuda
from cpu.runs import faults
from skuda import generated
from skuda.cpu import kernels, library, workers
from skuda.cpu.source import PART_SEGMENTS
from skuda.errors import Unsupported
from skuda.launch import cubin_cache, registry
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.model.sum_order import SEGMENT
from skuda.plans import plan, selection

SKUS = [sku for sku in registry.skus() if sku.backend is BackendKind.CPU]


def one_each() -> list[str]:
    """Of each function a kernel: the first has its first element types, the next one its next."""
    members: dict[str, list[str]] = {}
    for sku in SKUS:
        members.setdefault(registry.entry_of(sku).operation.function, []).append(sku.symbol)
    return [symbols[7 * index % len(symbols)] for index, symbols in enumerate(members.values())]


@pytest.mark.turns(64)
@pytest.mark.parametrize("symbol", one_each())
def test_bytes(symbol):
    assert list(faults(registry.sku_of_symbol(symbol))) == []


def of_both(name: str, word: str, inputs: dict[str, np.ndarray], output: np.ndarray, **sizes) -> list[bytes]:
    """What a plan gives by a kernel of the CPU, and by the reference."""
    plan_class, args, descriptor = (getattr(generated, f"{name}{part}") for part in ("Plan", "Args", "Descriptor"))
    results = []
    for backend in (BackendKind.CPU, BackendKind.REFERENCE):
        found = np.empty_like(output)
        plan_class.select(descriptor(element=word, **sizes), preference=backend).run(args(**inputs, output=found))
        results.append(found.tobytes())
    return results


@pytest.mark.parametrize("word", ["f32", "f64", "f16"])
@pytest.mark.parametrize("name", ["Amax", "Amin", "Sum", "Mean"])
def test_whole_blocks_are_reduced_where_they_lie(name, word):
    """Also where some of a block tell NaN, or the sign of a zero: -0 is below +0."""
    random, dtype = np.random.default_rng(7), DTYPES[word].storage
    for length in (255, 256, 257, 512, 5000, 70_000):
        x = random.standard_normal((6, length)).astype(dtype)
        x[1] = np.copysign(0, x[1])
        x[2, random.random(length) < 0.01] = np.nan
        x[3], x[4] = np.minimum(x[3], 0), np.maximum(x[4], 0)
        x[4, ::3], x[3, ::3] = -0.0, -0.0
        x[5, random.random(length) < 0.01] = np.inf
        found, expected = of_both(name, word, {"input": x}, np.empty(6, dtype), kept=6, reduced=length)
        assert found == expected, length


@pytest.mark.parametrize("word", ["f32", "f64"])
@pytest.mark.parametrize("name", ["Sin", "Cos", "Tan", "Log1p", "Log2", "Log10"])
def test_what_few_elements_ask_for(name, word):
    """Blocks with an angle or an argument that takes another way, at each of their ends, and blocks without."""
    dtype = DTYPES[word].storage
    x = np.random.default_rng(8).uniform(0.1, 3, 5000).astype(dtype)
    for places, value in (((0, 255, 700), 3e38), ((256, 1023), np.nan), ((1500,), -2), ((2000, 4999), np.inf),
                          ((2500,), 0), ((2501,), -0.0), ((2502,), 1e-300), ((2503, 2504), -np.inf)):  # fmt: skip
        x[list(places)] = value
    x[3000:3300] = 1e10
    found, expected = of_both(name, word, {"input": x}, x, shape=x.shape)
    assert found == expected


@pytest.mark.parametrize("word", ["f32", "f64", "f16", "i32", "s8", "u8"])
@pytest.mark.parametrize("name", ["Argmax", "Argmin"])
def test_indices_are_sought_in_blocks(name, word):
    """The first of equals, in one block and in several; of zeros with either sign; of infinities; and the first NaN."""
    real, dtype = word.startswith("f"), DTYPES[word].storage
    random = np.random.default_rng(9)
    for length in (1, 7, 8, 255, 256, 257, 512, 5000, 70_000):
        x = (10 * random.standard_normal((8, length))).astype(dtype)
        x[1], x[2] = 3, np.clip(x[2], 0, 1)
        if real:
            x[3] = np.copysign(0, x[3])
            x[4, random.random(length) < 0.01] = np.nan
            x[5], x[6] = -np.inf, np.inf
            x[7] = np.nan
        output = np.empty(8, np.int64)
        found, expected = of_both(name, word, {"input": x}, output, kept=8, reduced=length)
        assert found == expected, length


@pytest.fixture
def calls(monkeypatch):
    """Plans that calls select anew, in this test and after it."""
    selection.forget()
    made = []
    select = plan.Plan.__init__

    def noted(self, *args):
        select(self, *args)
        made.append(self)

    monkeypatch.setattr(plan.Plan, "__init__", noted)
    yield made
    selection.forget()


def both(monkeypatch, call):
    """What a call gives by a kernel of the CPU, and by the reference."""
    found = call()
    monkeypatch.setattr(plan, "LEAST_ON_CPU", 1 << 62)
    selection.forget()
    return found, call()


def rows(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def test_large_calls_take_it_and_small_ones_do_not(calls, monkeypatch):
    large, small = rows(300, 500), rows(30, 50)
    found, expected = both(monkeypatch, lambda: skuda.softmax(large))
    assert [each.backend for each in calls] == [BackendKind.CPU, BackendKind.REFERENCE]
    assert calls[0].sku.symbol == "softmax_f32__cpu" and calls[0].workspace_size == 0
    assert found.tobytes() == expected.tobytes()
    monkeypatch.undo()
    calls.clear()
    skuda.softmax(small)
    assert all(each.backend is BackendKind.REFERENCE for each in calls)


def test_a_kernel_takes_over_where_numpy_takes_long(calls, monkeypatch):
    x = rows(30, 50)
    monkeypatch.setattr(selection, "_WAITED", {})
    monkeypatch.setattr(selection, "PATIENCE", 1e-9)
    monkeypatch.setattr(selection, "LAUNCH", 0.0)
    calls.clear()
    first, second = skuda.softmax(x), skuda.softmax(x)
    assert [each.backend for each in calls] == [BackendKind.REFERENCE, BackendKind.CPU]
    assert first.tobytes() == second.tobytes()
    skuda.softmax(x[:7])
    assert calls[-1].backend is BackendKind.CPU  # whatever their shape
    skuda.softmax(x.astype(np.float64))
    assert calls[-1].backend is BackendKind.REFERENCE


def test_numpy_goes_on_without_a_compiler(calls, monkeypatch):
    monkeypatch.setattr(selection, "_WAITED", {})
    monkeypatch.setattr(selection, "PATIENCE", 0.0)
    monkeypatch.setattr(library, "compiler", lambda: None)
    for length in (50, 40):
        skuda.softmax(rows(30, length))
    assert all(each.backend is BackendKind.REFERENCE for each in calls) and len(calls) == 2


def test_threads_share_what_is_much(monkeypatch):
    monkeypatch.setattr(workers, "threads", lambda: 3)
    workers._pool.cache_clear()
    x = rows(1100, 131)
    try:
        found, expected = both(monkeypatch, lambda: skuda.layer_norm(x, x[0], x[1]))
    finally:
        workers._pool.cache_clear()
        selection.forget()
    assert found.tobytes() == expected.tobytes()


PART = PART_SEGMENTS * SEGMENT
REDUCTIONS = (
    "sum", "prod", "mean", "var", "std", "amax", "amin", "argmax", "argmin", "logsumexp", "norm1", "norm2", "any",
    "all", "count_nonzero", "observe_absmax_per_tensor", "observe_min_max_per_tensor",
)  # fmt: skip


@pytest.fixture
def shared(monkeypatch):
    """Work is shared by three threads, however little it is."""
    monkeypatch.setattr(workers, "threads", lambda: 3)
    monkeypatch.setattr(kernels, "WAKE", 0.0)
    workers._pool.cache_clear()
    yield
    workers._pool.cache_clear()
    selection.forget()


@pytest.mark.turns(3)
@pytest.mark.parametrize("function", REDUCTIONS)
@pytest.mark.parametrize("element", ["f4", "f8", "f2"])
def test_parts_of_few_long_rows_join_in_the_order_of_the_row(shared, monkeypatch, function, element):
    observed = {"observe_absmax_per_tensor": 1, "observe_min_max_per_tensor": 2}.get(function, 0)
    axis = {} if observed else {"axis": -1}
    before = [np.zeros((), np.float64 if element == "f8" else np.float32)] * observed
    for count, length in ((1, 2 * PART), (3, PART + 5), (2, 5 * PART - 70_001)):
        x = rows(count, length).astype(element)
        if element == "f2":
            x[-1, -3] = np.inf
        found, expected = both(monkeypatch, lambda x=x: getattr(skuda, function)(x, *before, **axis))
        pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
        for one, other in pairs:
            assert one.tobytes() == other.tobytes(), (count, length)
        monkeypatch.undo()
        monkeypatch.setattr(workers, "threads", lambda: 3)
        monkeypatch.setattr(kernels, "WAKE", 0.0)


def test_rows_that_do_not_come_apart_are_whole(shared, monkeypatch):
    x = rows(2, PART + 100)
    beside = np.asfortranarray(x)
    for call in (lambda: skuda.sum(beside, axis=-1), lambda: skuda.softmax(x)):
        found, expected = both(monkeypatch, call)
        assert found.tobytes() == expected.tobytes()
        monkeypatch.undo()


def test_a_call_that_was_interrupted_leaves_nothing_to_the_next(shared, monkeypatch):
    x = rows(3 * PART)
    expected = skuda.sum(x).tobytes()

    def interrupt(work, shares):
        work(shares - 1)
        raise KeyboardInterrupt

    run = workers.run
    for _ in range(3):
        monkeypatch.setattr(workers, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            skuda.sum(x)
        monkeypatch.setattr(workers, "run", run)
        assert skuda.sum(x).tobytes() == expected


def test_other_threads_end_before_an_interrupt_goes_on(shared):
    here, begun, done = threading.get_ident(), threading.Event(), threading.Event()

    def work(share):
        if threading.get_ident() == here:
            begun.wait(10)
            raise KeyboardInterrupt
        begun.set()
        time.sleep(0.05)
        done.set()

    with pytest.raises(KeyboardInterrupt):
        workers.run(work, 2)
    assert done.is_set()


@pytest.mark.skipif(workers.threads() < 2 or workers._cpu() < 0, reason="one CPU, or a system that does not tell which")
def test_threads_are_kept_off_the_cpu_of_the_one_that_wakes_them(monkeypatch):
    mine = os.sched_getaffinity(0)
    with workers.Workers() as pool:
        pool.submit(int).result()
        (native,) = pool._native
        for here in sorted(mine)[:2]:
            monkeypatch.setattr(workers, "_cpu", lambda here=here: here)
            pool.keep_off()
            assert os.sched_getaffinity(native) == mine - {here}
        monkeypatch.setattr(os, "sched_setaffinity", None)  # what is so already is not asked for again
        pool.keep_off()
        monkeypatch.setattr(workers, "_cpu", lambda: -1)
        pool.keep_off()
        assert os.sched_getaffinity(native) == mine - {here}
    assert os.sched_getaffinity(0) == mine


def test_threads_go_on_where_a_system_lets_none_choose(monkeypatch):
    def refuse(*_):
        raise PermissionError("not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", refuse, raising=False)
    with workers.Workers() as pool:
        assert pool.submit(int).result() == 0
        pool.keep_off()
        assert pool.submit(int).result() == 0


def test_a_call_of_several_kernels(calls, monkeypatch):
    x = rows(600, 256)
    found, expected = both(monkeypatch, lambda: skuda.rms_norm_backward(x, x, x[0]))
    assert BackendKind.CPU in {each.backend for each in calls}
    assert all(one.tobytes() == other.tobytes() for one, other in zip(found, expected, strict=True))


def test_views_and_outputs_of_the_caller(monkeypatch):
    x = rows(400, 800)[::2, ::-3].T
    out = np.empty((x.shape[1], x.shape[0]), np.float32).T
    selection.forget()
    found, expected = both(monkeypatch, lambda: skuda.gelu(x, out=out).copy())
    selection.forget()
    assert found.tobytes() == expected.tobytes()


def test_every_second_element(calls, monkeypatch):
    x = rows(400, 800)
    found, expected = both(monkeypatch, lambda: skuda.mul(x[:, ::2], x[:, 400:]))
    assert calls[0].backend is BackendKind.CPU and found.tobytes() == expected.tobytes()


def test_elements_at_odd_addresses(calls):
    memory = np.zeros(4 * (1 << 17) + 1, np.uint8)
    x = memory[1:].view(np.float32)
    assert (skuda.relu(x) == 0).all() and calls[0].backend is BackendKind.CPU


def test_a_child_of_fork_has_threads_of_its_own():
    x = rows(512, 512)
    expected = skuda.exp(x)
    child = os.fork()
    if child == 0:
        os._exit(0 if skuda.exp(x).tobytes() == expected.tobytes() else 1)
    assert os.waitpid(child, 0)[1] == 0


# ---- compilers and libraries ----


@pytest.fixture
def anew(monkeypatch, tmp_path):
    """No library is known, and none is kept."""
    monkeypatch.setenv("SKUDA_CACHE_DIR", str(tmp_path / "cache"))
    for known in (library.kernel, library.compiler):
        known.cache_clear()
    selection.forget()
    yield tmp_path / "cache"
    for known in (library.kernel, library.compiler):
        known.cache_clear()
    selection.forget()


def test_without_a_compiler_the_reference_serves(anew, calls, monkeypatch):
    monkeypatch.setenv("CXX", "")
    assert library.compiler() is None
    assert skuda.relu(rows(512, 512)).min() == 0
    assert calls[0].backend is BackendKind.REFERENCE
    descriptor = skuda.ReluDescriptor(shape=(4,))
    with pytest.raises(Unsupported, match="^ReluPlan: kernels on the CPU need a C\\+\\+ compiler"):
        skuda.ReluPlan.select(descriptor, preference=BackendKind.CPU)


def test_a_compiler_that_refuses_is_told_of_once(anew, calls, monkeypatch, caplog):
    monkeypatch.setattr(library, "OPTIONS", ("--no-such-option",))
    x = rows(512, 512)
    for _ in range(2):
        assert skuda.relu(x).min() == 0
    assert calls[0].backend is BackendKind.REFERENCE and calls[0].sku.backend is BackendKind.REFERENCE
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["ReluPlan"]
    assert list(anew.iterdir()) == []


def test_a_library_is_kept_and_believed_only_whole(anew, monkeypatch):
    x = rows(512, 512)
    skuda.relu(x)
    (kept,) = anew.iterdir()
    assert kept.suffix == ".so"
    compiled = []
    monkeypatch.setattr(library, "_compile", lambda *args, inner=library._compile: compiled.append(inner(*args)))
    library.kernel.cache_clear()
    selection.forget()
    skuda.relu(x)
    assert compiled == []
    whole = kept.read_bytes()
    kept.unlink()
    kept.write_bytes(whole[:100] + b"?" + whole[101:])
    library.kernel.cache_clear()
    selection.forget()
    assert skuda.relu(x).min() == 0
    assert len(compiled) == 1 and kept.read_bytes()[100:101] != b"?"


@pytest.mark.parametrize("shape", [(2, 900, 131), (3, 8000, 37), (5, 16384, 2), (1, 140_003, 9), (900, 200)])
@pytest.mark.parametrize("call", [skuda.sum, skuda.amax, skuda.var, skuda.logsumexp, skuda.all, skuda.argmin])
def test_rows_beside_each_other(calls, monkeypatch, call, shape):
    """Columns: of one outer index and of the next, of a few and of many, of a segment and of several."""
    x = rows(*shape)
    x[..., 300:305, 1] = 0.0, -0.0, np.inf, -np.inf, np.nan
    x[..., 7:9, 0] = 0.0, -0.0
    found, expected = both(monkeypatch, lambda: call(x, axis=-2))
    assert calls[0].backend is BackendKind.CPU and found.tobytes() == expected.tobytes()


def test_a_folder_that_nobody_can_write_to_leaves_it_to_the_reference(anew, calls, monkeypatch, caplog):
    monkeypatch.setattr(cubin_cache, "folder", lambda: None)
    assert skuda.relu(rows(512, 512)).min() == 0
    assert calls[0].backend is BackendKind.REFERENCE and "no folder keeps a library of it" in caplog.text


# A compiler that has written half of its output (the last argument) when the whole group of processes is killed.
KILLED = """#!/bin/sh
for output; do :; done
echo half > "$output"
kill -KILL 0
"""


def test_what_a_killed_build_leaves_is_removed(anew, tmp_path):
    """By the next build, when nobody can still be writing it; and with all else by `skuda cache clear`."""
    killed = tmp_path / "killed-c++"
    killed.write_text(KILLED)
    killed.chmod(0o755)
    code = "import numpy, skuda; skuda.relu(numpy.ones((512, 512), numpy.float32))"
    for _ in range(2):
        env = os.environ | {"CXX": str(killed)}
        done = subprocess.run([sys.executable, "-c", code], env=env, start_new_session=True)
        assert done.returncode == -signal.SIGKILL
    old, young = anew.iterdir()
    assert old.suffix == young.suffix == ".tmp"
    os.utime(old, (0, 0))
    skuda.relu(rows(512, 512))
    (kept,) = {*anew.iterdir()} - {young}
    assert kept.suffix == ".so" and young.exists() and not old.exists()
    assert cubin_cache.clear() == 2 and list(anew.iterdir()) == []


@pytest.mark.parametrize("reverse", [False, True])
def test_long_scans(calls, monkeypatch, reverse):
    x = rows(3, 70_003)
    call = skuda.cumsum_reverse if reverse else skuda.cumsum
    found, expected = both(monkeypatch, lambda: call(x))
    assert calls[0].backend is BackendKind.CPU and found.tobytes() == expected.tobytes()


def test_zeros_keep_their_signs(monkeypatch):
    """Compilers take the negative of a sum for a sum of negatives, and a float of a rounded integer for the float."""
    x = rows(3, 70_003)
    x[:, ::5], x[:, 1::5] = 0.0, -0.0
    for call in (skuda.l2_normalize, lambda x: skuda.fake_quantize_per_tensor(x * 0.01, 0.05)):
        selection.forget()
        with monkeypatch.context() as patch:
            found, expected = both(patch, lambda call=call: call(x))
        assert found.tobytes() == expected.tobytes()
    selection.forget()


@pytest.mark.parametrize("word", ["f32", "bf16", "f16", "s8", "u32", "i64"])
@pytest.mark.parametrize(
    "shapes", [((9, 30_000), (9, 1)), ((80_000, 3), (3,)), ((7, 1, 900), (40, 1)), ((200_001,), (1,))]
)
def test_inputs_that_repeat(calls, monkeypatch, word, shapes):
    """Along the last axis, which may be short, or along others."""
    random, dtype = np.random.default_rng(10), DTYPES[word].storage
    a, b = (random.integers(-99 if DTYPES[word].lowest < 0 else 0, 99, shape).astype(dtype) for shape in shapes)
    for call in (skuda.mul, skuda.lt):
        with monkeypatch.context() as patch:
            found, expected = both(patch, lambda call=call: call(a, b))
        assert found.tobytes() == expected.tobytes()
        selection.forget()
    assert [each.backend for each in calls].count(BackendKind.CPU) == 2


def test_halves_are_converted_as_one_by_one(calls, monkeypatch):
    """All of them, and of f32 those around halves, ties, infinities and NaN of any kind."""
    halves = np.tile(np.arange(1 << 16, dtype=np.uint16), 4)
    floats = np.arange(1 << 16, dtype=np.uint32)
    floats = np.concatenate([floats << 16, floats << 16 | 0xFFFF, floats * 0x10000 + 0x1000, 0x477FE000 + floats])
    selection.forget()
    for x in (halves.view(np.float16), floats.astype(np.uint32).view(np.float32)):
        for dtype in ("f16", "f32"):
            with monkeypatch.context() as patch:
                found, expected = both(patch, lambda x=x, dtype=dtype: skuda.cast(x, dtype=dtype))
            selection.forget()
            assert found.tobytes() == expected.tobytes()
    assert [each.backend for each in calls].count(BackendKind.CPU) == 4


@pytest.mark.parametrize("shape", [(700, 255), (1 << 17, 1)])
def test_two_elements_to_a_byte(monkeypatch, shape):
    """The one that pads an odd line is 0."""
    x = rows(*shape)
    selection.forget()
    found, expected = both(monkeypatch, lambda: skuda.quantize_per_tensor(x, 0.02, dtype="s4"))
    selection.forget()
    assert found.tobytes() == expected.tobytes()


def test_a_disk_that_keeps_nothing_leaves_it_to_the_reference(anew, calls, monkeypatch, caplog):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cubin_cache.tempfile, "mkstemp", full)
    assert skuda.relu(rows(512, 512)).min() == 0
    assert calls[0].backend is BackendKind.REFERENCE and "No space left on device" in caplog.text
