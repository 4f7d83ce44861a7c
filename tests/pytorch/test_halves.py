"""Two inputs as the halves of one tensor, where torch follows the call: gradients without a copy, transforms."""

from __future__ import annotations

import pytest
import torch

import skuda
import skuda.torch
from skuda.errors import InvalidProblem, NotAnArray
from skuda.torch.halves import joined


def rows(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def gradient(run, tensor) -> torch.Tensor:
    leaf = tensor.detach().clone().requires_grad_()
    made = run(leaf)
    (found,) = torch.autograd.grad(made, leaf, rows(*made.shape, seed=9))
    return found


@pytest.mark.parametrize("name", ["glu", "reglu", "geglu", "geglu_tanh", "silu_mul"])
def test_gradients_are_those_of_two_tensors(name):
    function, x = getattr(skuda, name), rows(3, 5, 16)
    for call, alone in (
        (function, lambda whole: function(*whole.chunk(2, -1))),
        (lambda whole: function(up=whole), lambda whole: function(*whole.chunk(2, -1)[::-1])),
    ):
        assert torch.equal(call(x), alone(x))
        assert torch.equal(gradient(call, x), gradient(alone, x))
        strided = lambda whole: call(whole.transpose(0, 1)[:, 1:])  # noqa: E731, B023
        assert torch.equal(gradient(strided, x), gradient(lambda whole: alone(whole.transpose(0, 1)[:, 1:]), x))  # noqa: B023


def test_it_is_the_glu_of_torch():
    x = rows(4, 6)
    ours, theirs = (lambda whole: skuda.glu(up=whole)), torch.nn.functional.glu
    assert torch.allclose(ours(x), theirs(x)) and torch.allclose(gradient(ours, x), gradient(theirs, x))


def test_both_gradients_are_written_into_one_tensor(monkeypatch):
    monkeypatch.setattr(torch, "cat", None)
    assert gradient(skuda.silu_mul, rows(3, 8)).is_contiguous()
    assert gradient(lambda whole: skuda.glu(up=whole), rows(3, 8)).is_contiguous()


def test_gradients_that_lie_elsewhere_are_joined():
    one = rows(3, 8)
    assert joined(*one.chunk(2, -1)).data_ptr() == one.data_ptr()
    for first, second in ((rows(3, 4), rows(3, 4, seed=1)), one.chunk(2, -1)[::-1], (one[:, :2], one[:, 4:6])):
        assert torch.equal(joined(first, second), torch.cat((first, second), -1))
    used_twice = lambda whole: skuda.silu_mul(whole) + skuda.glu(whole)  # noqa: E731
    apart = lambda whole: skuda.silu_mul(*whole.chunk(2, -1)) + skuda.glu(*whole.chunk(2, -1))  # noqa: E731
    assert torch.allclose(gradient(used_twice, one), gradient(apart, one))


def test_empty_tensors():
    assert gradient(skuda.silu_mul, rows(0, 8)).shape == (0, 8)
    assert gradient(skuda.silu_mul, rows(3, 0)).shape == (3, 0)


def test_transforms():
    x = rows(3, 4, 8)
    alone = lambda whole: skuda.silu_mul(*whole.chunk(2, -1))  # noqa: E731
    assert torch.equal(torch.func.vmap(skuda.silu_mul, 1)(x), torch.func.vmap(alone, 1)(x))
    grad = torch.func.grad(lambda whole: skuda.silu_mul(whole).sum())
    assert torch.equal(grad(x), torch.func.grad(lambda whole: alone(whole).sum())(x))
    assert torch.func.vmap(grad)(x).shape == x.shape
    with pytest.raises(RuntimeError, match="gradient of a gradient is not declared"):
        leaf = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(skuda.silu_mul(leaf).sum(), leaf, create_graph=True)
        first.sum().backward()


def test_a_backward_pass_that_torch_follows():
    d_output, x = rows(3, 4), rows(3, 8)
    wanted = skuda.silu_mul_backward(d_output, x)
    assert torch.equal(torch.func.vmap(skuda.silu_mul_backward)(d_output, x), wanted)


def test_arrays_of_other_libraries_beside_a_tensor():
    x, d_output = rows(3, 8), rows(3, 4)
    wanted = skuda.silu_mul_backward(d_output, x)
    for beside in (d_output, d_output.clone().requires_grad_(), d_output.numpy()):
        for whole in (x.numpy(), x, x.clone().requires_grad_()):
            made = skuda.silu_mul_backward(beside, whole)
            assert type(made) is type(whole.detach() if isinstance(whole, torch.Tensor) else whole)
            assert torch.equal(torch.as_tensor(made), wanted)
    out = torch.empty(3, 8)
    assert skuda.silu_mul_backward(d_output.numpy(), x.numpy(), out=out) is out and torch.equal(out, wanted)
    out = torch.empty(3, 4)
    assert skuda.silu_mul(x.numpy(), out=out) is out and torch.equal(out, skuda.silu_mul(x))
    with pytest.raises(InvalidProblem, match="output requires grad, and autograd would not see"):
        skuda.silu_mul(x.numpy(), out=out.requires_grad_())


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("recorded", [False, True])
def test_what_is_no_dense_tensor_is_refused(recorded):
    for tensor, said in (
        (rows(2, 6).to_sparse(), "of layout torch.sparse_coo"),
        (rows(2, 6).to_sparse_csr(), "of layout torch.sparse_csr"),
        (torch.nested.nested_tensor([rows(2, 6), rows(3, 6)]), "a nested torch tensor"),
    ):
        tensor = tensor.requires_grad_(recorded)
        for call in (skuda.silu_mul, lambda whole: skuda.silu_mul(whole, whole), skuda.relu):
            with pytest.raises(NotAnArray, match=said):
                call(tensor)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(dynamic):
    compiled = torch.compile(skuda.silu_mul, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for shape in ((3, 8), (5, 12)):
        assert torch.equal(gradient(compiled, rows(*shape)), gradient(skuda.silu_mul, rows(*shape)))


def test_exported():
    class Gate(torch.nn.Module):
        def forward(self, x):
            return skuda.silu_mul(x)

    n = torch.export.Dim("n", min=2)
    program = torch.export.export(Gate(), (rows(3, 8),), dynamic_shapes=({0: n},))
    assert torch.equal(program.module()(rows(5, 8)), skuda.silu_mul(rows(5, 8)))
