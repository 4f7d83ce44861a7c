"""Calls without arrays: what they say of shapes, element types and places, and what comes back where."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

import skuda
from skuda.errors import ElementMismatch, InvalidProblem, NotAnArray, SkudaError, Unsupported
from skuda.model.sku import BackendKind


def test_numbers_say_the_element_type():
    made = [skuda.full(2, 1.5), skuda.full(2, 3), skuda.full(2, True), skuda.full(2, 3, dtype="bf16")]
    assert [each.dtype for each in made] == [np.float32, np.int64, np.bool_, ml_dtypes.bfloat16]
    assert [each.tolist() for each in made] == [[1.5, 1.5], [3, 3], [True, True], [3, 3]]
    made = [skuda.arange(3), skuda.arange(3, 0.5), skuda.arange(3, 2, 3), skuda.arange(3, dtype=torch.float16)]
    assert [each.dtype for each in made] == [np.int64, np.float32, np.int64, np.float16]
    assert [each.tolist() for each in made] == [[0, 1, 2], [0.5, 1.5, 2.5], [2, 5, 8], [0, 1, 2]]


def test_a_shape_is_a_tuple_or_the_extent_of_one_axis():
    assert skuda.full((2, 3), 0).shape == (2, 3)
    assert skuda.full((), 0).shape == ()
    assert skuda.arange(np.int32(4)).shape == skuda.arange([4]).shape == (4,)
    assert skuda.full((0, 3), 1).shape == (0, 3)
    assert skuda.eye((2, 3), diagonal=1).tolist() == [[0, 1, 0], [0, 0, 1]]


def test_an_array_to_write_says_everything():
    out = np.zeros((3, 4), np.float16)[:, ::2]
    assert skuda.full(value=7, out=out) is out and (out == 7).all()
    tensor = torch.zeros(5, dtype=torch.bfloat16)
    version = tensor._version
    assert skuda.arange(out=tensor) is tensor and tensor.tolist() == [0, 1, 2, 3, 4] and tensor._version > version


def test_the_place_is_that_of_like_of_the_device_or_of_the_arrays():
    tensor = torch.zeros(1, dtype=torch.float64)
    for made in (skuda.eye((2, 2), like=tensor), skuda.eye((2, 2), device="cpu"),
                 skuda.full((2, 2), torch.tensor(1.0)), skuda.eye((2, 2), device=torch.device("cpu"))):  # fmt: skip
        assert isinstance(made, torch.Tensor) and made.dtype == torch.float32
    assert skuda.eye((2, 2), device="meta").device.type == "meta"
    assert isinstance(skuda.full((2, 2), np.float64(1)), np.ndarray)


def test_random_numbers_follow_from_the_seed():
    x = skuda.randn((64, 64), seed=1)
    assert (x == skuda.randn((64, 64), 1, 0)).all() and (x != skuda.randn((64, 64), 2)).mean() > 0.99
    assert (x == skuda.randn(4096, torch.tensor(1), torch.tensor(0)).numpy().reshape(64, 64)).all()
    assert abs(x.mean()) < 0.05 and abs(x.std() - 1) < 0.05
    uniform = skuda.rand(1000, 3, dtype="f64")
    assert uniform.min() >= 0 and uniform.max() < 1


def test_equal_steps_are_those_of_numpy_and_torch():
    """To the bit where each step is a number of the type; elsewhere to what both differ by themselves."""
    ranges = (5, -1.0, 3.0), (9, 0.0, 1.0), (257, 8.0, -8.0), (1, 2.0, 7.0), (2, 0.1, 0.3), (0, 0.0, 1.0), (11, 0, 10)
    for count, start, end in ranges:
        for word in ("f32", "f64"):
            made = skuda.linspace(count, start, end, dtype=word)
            assert made.tolist() == np.linspace(start, end, count, dtype=made.dtype).tolist()
            assert made.tolist() == torch.linspace(start, end, count, dtype=torch.from_numpy(made).dtype).tolist()
    made = skuda.linspace(100_001, 0.1, 7.7, dtype="f64")
    assert np.abs(made - np.linspace(0.1, 7.7, 100_001)).max() <= 2 * np.spacing(7.7)
    assert made[0] == 0.1 and made[-1] == 7.7 and (np.diff(made) > 0).all()


def test_random_integers_fill_their_range():
    made = skuda.randint(1 << 16, -4, 9, seed=3)
    counts = np.bincount(made + 4)
    assert made.dtype == np.int64 and counts.size == 13
    assert ((counts - 2**16 / 13) ** 2 / (2**16 / 13)).sum() < 33  # of chi squared with 12 degrees one in a thousand
    assert skuda.randint(4, 5, 5, seed=1).tolist() == [5] * 4  # an empty range
    wide = skuda.randint(1 << 12, -(2**31), 2**31 - 1, seed=1, dtype="i32")
    assert wide.min() >= -(2**31) and wide.max() < 0  # no more than 2^31 above low
    assert (wide - np.int64(-(2**31)) == skuda.randint(1 << 12, 0, 2**31 - 1, seed=1)).all()


def test_a_plan_creates():
    plan = skuda.FullPlan.select(skuda.FullDescriptor(shape=(2, 3), element="f16"), preference=BackendKind.REFERENCE)
    out = np.zeros((2, 3), np.float16)
    plan.run(skuda.FullArgs(value=1.5, output=out))
    assert (out == 1.5).all() and plan.sku.symbol.startswith("full_f16")


WRONG = [
    (lambda: skuda.full((2,)), InvalidProblem, "value is missing, expected a number or an array of one element"),
    (lambda: skuda.full(value=3), InvalidProblem, "shape is missing, expected an integer or a tuple"),
    (lambda: skuda.full((2, -1), 3), InvalidProblem, r"shape is \(2, -1\), expected a tuple of non-negative integers"),
    (lambda: skuda.arange("a"), InvalidProblem, r"shape is \('a',\)"),
    (lambda: skuda.arange(2.5), InvalidProblem, r"shape is \(2.5,\)"),
    (lambda: skuda.eye(5), InvalidProblem, r"output has shape \(5,\), expected \(r, c\)"),
    (lambda: skuda.full(2, "a"), NotAnArray, "an input is a str, expected an array"),
    (lambda: skuda.full(2, 1.5, dtype="i32"), ElementMismatch, "value is 1.5, expected an integer"),
    (lambda: skuda.full(2, 300, dtype="u8"), InvalidProblem, "value is 300, which u8 cannot hold"),
    (lambda: skuda.full(2, 1, dtype="e4m3"), Unsupported, "output is e4m3, expected f32, f64"),
    (lambda: skuda.full(2, np.ones(2, np.float32)), InvalidProblem, r"value has shape \(2,\), expected one element"),
    (lambda: skuda.full(2, 1, out=np.zeros(3)), InvalidProblem, r"output has shape \(3,\)"),
    (lambda: skuda.arange(5, None, 3), InvalidProblem, "step is given, but start is not"),
    (lambda: skuda.arange(5, like=torch.ones(1), device="cpu"), InvalidProblem, "like= and device= are given"),
    (lambda: skuda.arange(5, like=3), NotAnArray, "like is a int"),
    (lambda: skuda.arange(5, device="nowhere"), InvalidProblem, "device is 'nowhere', expected a torch.device"),
    (lambda: skuda.arange(5, out=np.zeros(5, np.complex64)), SkudaError, "complex64"),
]


@pytest.mark.parametrize("wrong, error, message", WRONG, ids=[message for _, _, message in WRONG])
def test_what_does_not_fit_is_refused(wrong, error, message):
    with pytest.raises(error, match=message):
        wrong()


# ---- torch ----


def test_operators_take_a_device():
    ops = torch.ops.skuda
    assert torch.equal(ops.eye([2, 2], device="cpu"), torch.eye(2))
    assert torch.equal(ops.full(7, [2]), torch.tensor([7, 7])) and ops.eye([2, 2], device="meta").device.type == "meta"
    assert torch.equal(ops.arange(torch.tensor(1), torch.tensor(2), [2]), torch.tensor([1, 3]))
    with torch._subclasses.FakeTensorMode():
        assert skuda.eye((2, 3), device="cuda").device.type == "cuda"


def test_torch_compile_creates_where_a_call_says():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def compiled(x):
        noise = skuda.randn(x.shape, 1, device=x.device)
        return noise + x + skuda.arange(x.shape[0], 0.5, like=x) + skuda.full(x.shape, 2.0, like=x)

    x = torch.ones(3)
    expected = torch.from_numpy(skuda.randn(3, 1)) + 1 + torch.arange(3) + 0.5 + 2
    assert torch.allclose(compiled(x), expected)
    with pytest.raises(Exception, match="expected like= or device= to say where"):
        torch.compile(lambda x: x + skuda.arange(3, 0.5), backend="eager", fullgraph=True)(x)


def test_a_formula_of_torch_creates_on_the_device():
    compiled = skuda.torch.compile(lambda x: x + skuda.eye((3, 3), like=x), fusible=True, backend="eager")
    assert torch.equal(compiled(torch.ones(3)), torch.eye(3) + 1)


def test_a_value_that_requires_grad_gets_none():
    made = skuda.full(3, torch.tensor(1.0, requires_grad=True))
    with pytest.raises(Unsupported, match="no gradient is declared for value"):
        made.sum().backward()
    with pytest.raises(InvalidProblem, match="requires grad"):
        skuda.arange(out=torch.zeros(3, requires_grad=True))


@pytest.mark.parametrize("out", [[], ()])
def test_no_array_to_write_is_named(out):
    with pytest.raises(InvalidProblem, match="shape is missing"):
        skuda.full(None, 1.0, out=out)
    with pytest.raises(InvalidProblem, match="out has 0 arrays"):
        skuda.full(3, 1.0, out=out)
