"""torch's operators on CUDA: the bits of the CPU, in eager calls, compiled ones, graphs, streams and threads."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
import torch

import skuda
from skuda.torch import operator_of

sys.path.insert(0, str(Path(__file__).parents[1] / "pytorch"))

from operations import call_of, of_tensors, plans, same
from test_followed_functions import chain, gradients, rows


def moved(call, device="cuda"):
    rest = [getattr(call, name) for name in call._fields[2:]]
    return type(call)(call.plan_class, tuple(value.to(device) for value in call.inputs), *rest)


def on_cpu(made):
    return tuple(each.cpu() for each in made) if isinstance(made, tuple) else made.cpu()


# Others take instructions of the GPU: test_precision.py.
EXACT = [name for name in of_tensors() if plans()[name].operation.analysis.exact]


@pytest.mark.parametrize("name", EXACT)
def test_the_operator_has_the_bits_of_the_cpu(name):
    call = call_of(plans()[name])
    operator = operator_of(call.plan_class)
    expected = operator.apply(call)
    for _ in range(4):  # from the full check to the call that repeats one
        assert same(on_cpu(operator.apply(moved(call))), expected)
        assert same(on_cpu(moved(call).run()), expected)


@pytest.mark.parametrize("name", [name for name in EXACT if plans()[name].operation.broadcast])
def test_tensors_of_several_shapes_have_the_bits_of_the_cpu(name):
    """As functions and operators, also where a number stands for the last one; on a stream of the call's own, too."""
    call = call_of(plans()[name])
    places, inputs = call.plan_class.operation.broadcast, list(call.inputs)
    for index, place in enumerate(places):
        inputs[place] = (inputs[place][..., :1], inputs[place][0], inputs[place][:1])[index % 3]
    number = [each.reshape(-1)[0].item() if at == places[-1] else each for at, each in enumerate(inputs)]
    number[places[0]] = call.inputs[places[0]]
    for each in (inputs, number):
        call.inputs = tuple(each)
        expected = call.run()
        call.inputs = tuple(value.cuda() if isinstance(value, torch.Tensor) else value for value in each)
        for _ in range(3):
            assert same(on_cpu(call.run()), expected)
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        call.stream = stream
        made = call.run()
        stream.synchronize()
        assert same(on_cpu(made), expected)
        call.stream = None
        if each is inputs:
            assert same(on_cpu(operator_of(call.plan_class).apply(call)), expected)


def test_numbers_in_a_captured_graph():
    x = rows(7, 96).cuda()
    skuda.sub(1, x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = skuda.mul(skuda.sub(1, x), x[0])
    x.copy_(rows(7, 96, seed=3))
    graph.replay()
    assert same(y.cpu(), (1 - x.cpu()) * x[0].cpu())


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(mode, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(chain, fullgraph=True, dynamic=dynamic, mode=mode)
    for count in (3, 5):
        x, weight = rows(count, 8), rows(8, seed=1)
        for _ in range(4):
            with torch.no_grad():
                assert same(compiled(x.cuda(), weight.cuda()).cpu(), chain(x, weight))
            assert same(on_cpu(gradients(compiled, x.cuda(), weight.cuda())), gradients(chain, x, weight))


def test_the_first_call_of_an_operation_is_captured():
    """Kernels are loaded while a graph is captured, and shapes are new."""
    x = rows(7, 96).cuda()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = skuda.log_softmax(x * 2)
    x.copy_(rows(7, 96, seed=3))
    graph.replay()
    assert same(y.cpu(), skuda.log_softmax(rows(7, 96, seed=3) * 2))


def test_gradients_again_and_again():
    """The call that repeats the last one, recorded: shapes, types and attributes change between calls."""
    for turn in range(12):
        x = rows(3 + turn % 3, 8, seed=turn)
        for axis in (0, 1):
            run = lambda x, axis=axis: skuda.softmax(x, axis=axis)  # noqa: E731
            assert same(on_cpu(gradients(run, x.cuda())), gradients(run, x))
        half = x.half()
        assert same(on_cpu(gradients(skuda.gelu, half.cuda())), gradients(skuda.gelu, half))


def test_calls_that_repeat_one_and_then_do_not():
    x = rows(4, 8).cuda()
    expected = skuda.softmax(x.cpu())
    for _ in range(3):
        assert same(skuda.softmax(x).cpu(), expected)
    assert same(skuda.softmax(x.T).cpu(), skuda.softmax(x.cpu().T))
    assert same(skuda.softmax(x[:, 1:]).cpu(), skuda.softmax(x.cpu()[:, 1:]))
    assert same(skuda.softmax(x, axis=0).cpu(), skuda.softmax(x.cpu(), axis=0))
    assert same(skuda.softmax(x.double()).cpu(), skuda.softmax(x.cpu().double()))
    out = torch.empty_like(x)
    assert skuda.softmax(x, out=out) is out and same(out.cpu(), expected)
    assert out._version == 1
    with torch.autocast("cuda", torch.float16):
        assert same(skuda.softmax(x).cpu(), expected)
        learned = x.clone().requires_grad_()
        (half,) = torch.autograd.grad(skuda.softmax(learned).square().sum(), learned)
    assert same(half.cpu(), gradients(skuda.softmax, x.cpu())[1])
    other = rows(4, 8, seed=2).cuda()  # which no transform wraps

    def both(x, other):
        return (skuda.softmax(x) * skuda.softmax(other)).sum()

    for transform in (torch.func.grad, torch.func.functionalize, lambda f: torch.vmap(lambda x: f(x[None]))):
        found = [transform(lambda x, other=each: both(x, other))(y) for y, each in ((x, other), (x.cpu(), other.cpu()))]
        assert torch.allclose(found[0].cpu(), found[1], atol=1e-6)
    with pytest.raises(skuda.SkudaError):
        skuda.softmax(x, axis=True)
    with pytest.raises(skuda.SkudaError):
        skuda.softmax(x, axis=2)
    assert same(skuda.softmax(x).cpu(), expected)
    a, b = rows(4).cuda(), rows(4, seed=1).cuda()
    for weight in (0.5, 0.5, 0.25, -0.0, 0.0, 1, 0.5):
        assert same(skuda.lerp(a, b, weight).cpu(), skuda.lerp(a.cpu(), b.cpu(), weight))


def test_streams_and_threads():
    x = rows(64, 512).cuda()
    expected = skuda.softmax(x.cpu())

    def work(found, index):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            for _ in range(50):
                y = skuda.softmax(x)
                z = gradients(skuda.softmax, x)[1]
        stream.synchronize()
        found[index] = y.cpu(), z.cpu()

    found = {}
    threads = [threading.Thread(target=work, args=(found, index)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gradient = gradients(skuda.softmax, x.cpu())[1]
    assert len(found) == 4
    for y, z in found.values():
        assert same(y, expected) and same(z, gradient)


def test_several_devices():
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    x = rows(4, 8)
    for _ in range(4):
        for device in ("cuda:0", "cuda:1"):
            y = skuda.softmax(x.to(device))
            assert y.device == torch.device(device) and same(y.cpu(), skuda.softmax(x))
            assert same(on_cpu(gradients(skuda.softmax, x.to(device))), gradients(skuda.softmax, x))
