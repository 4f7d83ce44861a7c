"""Where and when kernels run: the library's current stream, CUDA graphs, threads, several devices."""

from __future__ import annotations

import threading

import cupy
import numpy as np
import pytest
import torch
from values import UNTOUCHED, cases

import skuda
from gpu.arrays import Pair
from skuda.errors import DeviceMismatch
from skuda.generated import (
    QuantizePerTokenArgs,
    QuantizePerTokenDescriptor,
    QuantizePerTokenPlan,
)
from skuda.launch import kernel, registry
from skuda.model.sku import BackendKind, KernelSku

N, D = 64, 1031


def problem(seed: int = 0):
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 40, (N, D)).astype(np.float32)
    return x, rng.uniform(0.1, 2, N).astype(np.float32), rng.integers(-9, 10, N).astype(np.int32)


def captured(stream, call):
    """The CUDA graph of a call. While it is recorded, work on any other stream of the thread is an error."""
    call()  # compiled and loaded before
    stream.synchronize()
    stream.begin_capture()
    call()
    return stream.end_capture()


@pytest.mark.parametrize("given", ["current", "cupy", "integer", "protocol"])
def test_cupy_graph_follows_its_inputs(given):
    x, scale, zero_point = (cupy.asarray(each) for each in problem())
    output = cupy.empty((N, D), np.int8)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)

    class Protocol:
        def __cuda_stream__(self):
            return 0, stream.ptr

    chosen = {"current": None, "cupy": stream, "integer": stream.ptr, "protocol": Protocol()}[given]
    with stream:
        graph = captured(
            stream, lambda: skuda.quantize_per_token(x, scale, zero_point, out=output, stream=chosen)
        )
    for seed in (1, 2):
        arrays = problem(seed)
        for target, array in zip((x, scale, zero_point), arrays, strict=True):
            target.set(array)
        output.fill(77)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(output.get(), skuda.quantize_per_token(*arrays))


@pytest.mark.parametrize("shape", [(1 << 20,), (3000, 520)])
def test_a_graph_of_parts_and_what_joins_them(shape):
    from skuda.generated import SumArgs, SumDescriptor, SumPlan

    kept, reduced = shape[1:], shape[:1]
    x, output = cupy.empty(shape, np.float32), cupy.empty(kept, np.float32)
    plan = SumPlan.select(SumDescriptor(kept=kept, reduced=reduced), preference=BackendKind.CUDA)
    assert plan.workspace_size
    operand = x.T if kept else x
    args, workspace = SumArgs(input=operand, output=output), cupy.empty(plan.workspace_size, np.uint8)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        graph = captured(stream, lambda: plan.run(args, workspace=workspace))
    for seed in (1, 2):
        array = np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)
        x.set(array)
        output.fill(77)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        graph.launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(output.get(), skuda.sum(array, axis=0))


def test_a_stream_that_is_given_is_used_and_not_the_current_one():
    """The current stream is being captured, so work on it would be recorded and not done."""
    arrays = problem()
    x, scale, zero_point = (cupy.asarray(each) for each in arrays)
    output, other = cupy.empty((N, D), np.int8), cupy.cuda.Stream(non_blocking=True)
    skuda.quantize_per_token(x, scale, zero_point, out=output)
    output.fill(77)
    cupy.cuda.Device().synchronize()
    recorded = cupy.cuda.Stream(non_blocking=True)
    with recorded:
        recorded.begin_capture(cupy.cuda.runtime.streamCaptureModeRelaxed)
        skuda.quantize_per_token(x, scale, zero_point, out=output, stream=other)
        recorded.end_capture()
    other.synchronize()
    np.testing.assert_array_equal(output.get(), skuda.quantize_per_token(*arrays))


def test_a_stream_of_the_plan():
    arrays = problem()
    x, scale, zero_point = (cupy.asarray(each) for each in arrays)
    output = cupy.empty((N, D), np.int8)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    plan = QuantizePerTokenPlan.select(
        QuantizePerTokenDescriptor(n=N, d=D), stream=stream, preference=BackendKind.CUDA
    )
    args = QuantizePerTokenArgs(input=x, scale=scale, zero_point=zero_point, output=output)
    with cupy.cuda.Stream(non_blocking=True):
        plan.run(args)
    stream.synchronize()
    np.testing.assert_array_equal(output.get(), skuda.quantize_per_token(*arrays))


def test_order_on_a_stream():
    """A chain of calls on one stream, each reading what the one before wrote, without any synchronisation."""
    x = cupy.asarray(problem()[0])
    expected = x.get()
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        for _ in range(50):
            x = skuda.lerp(x, x + np.float32(1), 0.5)
    stream.synchronize()
    for _ in range(50):
        expected = skuda.lerp(expected, expected + np.float32(1), 0.5)
    np.testing.assert_array_equal(x.get(), expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 16, 128])
def test_kernels_of_few_elements_wait_for_those_before_them(rows, dtype):
    """They start while the kernel before them ends (dependent launches): each reads what that one writes, and writes
    what the one before it reads. Between them stand kernels that start as usual, and one of another library."""
    width, steps = 5120, 12
    rng = np.random.default_rng(rows)
    start = torch.from_numpy(rng.normal(0, 3, (rows, width)).astype(np.float32)).to(getattr(torch, dtype))
    weight = torch.from_numpy(rng.normal(1, 0.1, width).astype(np.float32)).to(start.dtype)

    def chain(x, weight, other):
        for step in range(steps):
            skuda.rms_norm(x, weight, out=other)
            skuda.add(x, other, out=x)
            skuda.softmax(x, out=other)
            skuda.mul(other, x, out=other)
            if step % 4 == 1:
                x.add_(other.clone())
            if step % 4 == 3:
                x.mul_(skuda.sum(other.T.contiguous(), axis=0).abs().to(x.dtype)[:, None] + 1)
            skuda.layer_norm(x, weight, weight, out=other)
            skuda.gelu_tanh(other, out=x)

    expected, on_gpu = start.clone(), [start.cuda(), weight.cuda(), torch.empty_like(start, device="cuda")]
    chain(expected, weight, torch.empty_like(start))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        chain(*on_gpu)
    stream.synchronize()
    assert torch.equal(on_gpu[0].cpu(), expected), "on a stream"
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain(*on_gpu)
    for _ in range(3):
        on_gpu[0].copy_(start)
        graph.replay()
        graph.replay()  # the second reads what the first has written
        torch.cuda.synchronize()
    twice = start.clone()
    for _ in range(2):
        chain(twice, weight, torch.empty_like(start))
    assert torch.equal(on_gpu[0].cpu(), twice), "in a graph"


def test_torch_graph_follows_its_inputs():
    tensors = [torch.from_numpy(each).cuda() for each in problem()]
    output = torch.empty((N, D), dtype=torch.int8, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        skuda.quantize_per_token(*tensors, out=output)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        skuda.quantize_per_token(*tensors, out=output)
    for seed in (1, 2):
        arrays = problem(seed)
        for target, array in zip(tensors, arrays, strict=True):
            target.copy_(torch.from_numpy(array))
        output.fill_(77)
        graph.replay()
        np.testing.assert_array_equal(output.cpu().numpy(), skuda.quantize_per_token(*arrays))


def test_torch_graph_with_outputs_of_its_own_pool():
    tensors = [torch.from_numpy(each).cuda() for each in problem()]
    skuda.quantize_per_token(*tensors)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = skuda.quantize_per_token(*tensors)
    arrays = problem(3)
    for target, array in zip(tensors, arrays, strict=True):
        target.copy_(torch.from_numpy(array))
    graph.replay()
    np.testing.assert_array_equal(output.cpu().numpy(), skuda.quantize_per_token(*arrays))


def test_a_scale_on_the_device_is_never_read_by_the_cpu():
    """Reading it would be a copy or a synchronisation, both errors during capture; the replay sees the new
    value.
    """
    x = cupy.asarray(problem()[0])
    scale, zero_point = cupy.asarray(np.array([0.5], np.float32)), cupy.asarray(np.array(3, np.int32))
    output = cupy.empty((N, D), np.uint8)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        graph = captured(
            stream, lambda: skuda.quantize_per_tensor(x, scale, zero_point, dtype="u8", q_max=200, out=output)
        )
    scale.set(np.array([2.25], np.float32))
    zero_point.set(np.array(77, np.int32))
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    expected = skuda.quantize_per_tensor(x.get(), np.float32(2.25), 77, dtype="u8", q_max=200)
    np.testing.assert_array_equal(output.get(), expected)


def in_threads(count: int, work) -> None:
    """Runs work(index) in threads that start together; raises what any of them raised."""
    failures, start = [], threading.Barrier(count)

    def run(index):
        try:
            start.wait()
            work(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_threads_with_streams_of_their_own():
    """The first calls race to compile and load; every thread's results are its own."""

    def work(index):
        arrays = problem(index)
        expected = skuda.fake_quantize_per_token(*arrays, dtype="u8")
        with cupy.cuda.Stream(non_blocking=True) as stream:
            on_gpu = [cupy.asarray(each) for each in arrays]
            for _ in range(30):
                output = skuda.fake_quantize_per_token(*on_gpu, dtype="u8")
                stream.synchronize()
                np.testing.assert_array_equal(output.get(), expected)

    in_threads(8, work)


@pytest.mark.parametrize("device", range(kernel.device_count()))
def test_each_device(device):
    """The arrays say where to run; the caller's current device stays what it is."""
    arrays = problem(device)
    with cupy.cuda.Device(device):
        on_gpu = [cupy.asarray(each) for each in arrays]
        cupy.cuda.Device().synchronize()
    for current in {0, device, kernel.device_count() - 1}:
        with cupy.cuda.Device(current):
            output = skuda.quantize_per_token(*on_gpu)
            assert cupy.cuda.runtime.getDevice() == current
        assert output.device.id == device
        with cupy.cuda.Device(device):
            cupy.cuda.Device().synchronize()
            np.testing.assert_array_equal(output.get(), skuda.quantize_per_token(*arrays))
    tensors = [torch.from_numpy(each).to(f"cuda:{device}") for each in arrays]
    output = skuda.quantize_per_token(*tensors)
    assert output.device == torch.device("cuda", device)
    np.testing.assert_array_equal(output.cpu().numpy(), skuda.quantize_per_token(*arrays))


@pytest.mark.parametrize("device", range(1, kernel.device_count()))
def test_operands_on_two_devices(device):
    x, scale, zero_point = problem()
    with cupy.cuda.Device(0):
        x = cupy.asarray(x)
    with cupy.cuda.Device(device):
        scale, zero_point = cupy.asarray(scale), cupy.asarray(zero_point)
    with pytest.raises(DeviceMismatch, match=f"scale is on CUDA device {device}, expected CUDA device 0"):
        skuda.quantize_per_token(x, scale, zero_point)


def test_operands_on_the_cpu_and_the_gpu():
    x, scale, zero_point = problem()
    with pytest.raises(DeviceMismatch, match="scale is on the CPU, expected CUDA device 0"):
        skuda.quantize_per_token(cupy.asarray(x), scale, zero_point)
    with pytest.raises(DeviceMismatch, match="scale is on CUDA device 0, expected the CPU"):
        skuda.quantize_per_token(x, cupy.asarray(scale), zero_point)


# ---- the same bits, however often and beside whatever else ----


def reducing() -> list[KernelSku]:
    """A kernel of each schedule of operations with reductions: of f32, and of one that sums where there is one."""
    chosen: dict[object, tuple[tuple, KernelSku]] = {}
    for sku in registry.skus():
        entry = registry.entry_of(sku)
        if sku.backend is BackendKind.CUDA and entry.operation.analysis.over:
            summing = ("layer_norm", "sum").index(sku.op) if sku.op in ("layer_norm", "sum") else 2
            rank = (summing, entry.types["C"] != "f32", next(iter(entry.types.values())) != "f32", sku.symbol)
            if entry.variant not in chosen or rank < chosen[entry.variant][0]:
                chosen[entry.variant] = (rank, sku)
    return [sku for _, sku in chosen.values()]


@pytest.mark.parametrize("sku", reducing(), ids=lambda sku: sku.symbol)
def test_the_same_bits_every_time_and_beside_a_busy_stream(sku):
    """Who adds what to what is fixed, so that neither chance nor other work decides a sum's last bit."""
    case = cases(sku)[0]
    pair = Pair(case)
    plan = case.call.plan(BackendKind.CUDA)
    args = plan.args_type(**pair.arguments())
    workspace = cupy.empty(plan.workspace_size, np.uint8) if plan.workspace_size else None
    outputs = {name: pair.gpu[name] for name in pair.expected}
    expected = {name: cupy.asarray(each) for name, each in pair.expected.items()}
    load = cupy.random.random(1 << 24, dtype=np.float32)
    wrong = cupy.zeros(200, np.int64)
    ours, busy = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    cupy.cuda.Device().synchronize()
    for index in range(len(wrong)):
        if index >= len(wrong) // 2:
            with busy:
                cupy.sin(load, out=load)
        with ours:
            for output in outputs.values():
                output.fill(UNTOUCHED)
            plan.run(args, workspace=workspace)
            for name, output in outputs.items():
                wrong[index] += cupy.count_nonzero(output != expected[name])
    cupy.cuda.Device().synchronize()
    assert not wrong.any(), f"bytes that differ from the reference's, by run: {wrong.get().tolist()}"
