"""Rows of one's own whose operands have dimensions in several orders, or of which none has all."""

from __future__ import annotations

import numpy as np
import pytest

import skuda
from skuda.cpu import library
from skuda.errors import InvalidProblem
from skuda.plans import plan, selection
from skuda.reference import formulas

SIZES = {"n": 3, "m": 4, "k": 5}
ROWS = [
    ("nm,mn->nm", "x * y"),
    ("nm,m->mn", "x * y"),
    ("nmk,km->nm", "sum(x * y, over=k)"),
    ("nk,km->nm", "sum(x * y, over=k)"),
    ("nk,mk->mn", "sum(x * y, over=k)"),
    ("n,m->n", "sum(x * y, over=m)"),
    ("nk,m->m", "sum(x * y, over=(n, k))"),
    ("mnk,n->km", "sum(x * y, over=n)"),
]


def called(row: str, formula: str):
    """The operation of a row, arrays for it, and what it is by NumPy."""
    first, second, made = row.replace("->", ",").split(",")
    inputs = {"x": f"T[{', '.join(first)}]", "y": f"T[{', '.join(second)}]"}
    output = {"z": f"T[{', '.join(made)}] = {formula}"}
    operation = skuda.define(types={"T": ["f32"]}, inputs=inputs, outputs=output, backward="none")
    rng = np.random.default_rng(5)
    arrays = [rng.uniform(1, 2, [SIZES[name] for name in dims]).astype(np.float32) for dims in (first, second)]
    return operation, arrays, np.einsum(row, *arrays)


@pytest.fixture(autouse=True)
def anew():
    selection.forget()
    yield
    selection.forget()


@pytest.mark.parametrize("row, formula", ROWS)
@pytest.mark.parametrize("chunk", [formulas._CHUNK, 1, 7])
def test_the_reference_finds_each_element(monkeypatch, row, formula, chunk):
    monkeypatch.setattr(formulas, "_CHUNK", chunk)
    operation, arrays, expected = called(row, formula)
    np.testing.assert_allclose(operation(*arrays), expected, rtol=1e-6)


@pytest.mark.turns(2)
@pytest.mark.skipif(library.compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("row, formula", ROWS)
def test_a_kernel_gives_the_same_bits(monkeypatch, row, formula):
    operation, arrays, _ = called(row, formula)
    expected = operation(*arrays)
    monkeypatch.setattr(plan, "LEAST_ON_CPU", 0)
    selection.forget()
    assert operation(*arrays).tobytes() == expected.tobytes()


@pytest.mark.parametrize("row, formula", ROWS)
def test_so_does_onnx(row, formula):
    pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    import skuda.onnx

    operation, arrays, expected = called(row, formula)
    (made,) = ReferenceEvaluator(skuda.onnx.model(operation, *arrays)).run(None, dict(zip("xy", arrays, strict=True)))
    np.testing.assert_allclose(made, expected, rtol=1e-6)


def test_extremes_of_what_no_input_has_all_of():
    row = {"types": {"T": ["f32"]}, "inputs": {"x": "T[n]", "y": "T[m]"}, "backward": "none"}
    largest = skuda.define(**row, outputs={"z": "T[n] = max(x * y, over=m)"})
    x, y = np.array([1, -2], np.float32), np.array([3, 5, 4], np.float32)
    assert largest(x, y).tolist() == [5, -6]
    with pytest.raises(InvalidProblem, match="m is 0; there is no largest of no elements"):
        largest(x, y[:0])


def test_axes_of_a_batch():
    torch = pytest.importorskip("torch")
    scaled = skuda.define(
        types={"T": ["f32"]}, inputs={"x": "T[*a, c, *b]", "w": "T[m]", "s": "T[c] = 1"},
        attrs={"axis": "axis of c = -1"}, outputs={"z": "T[*a, c, *b] = s * sum(x * w, over=m)"}, backward="none",
    )  # fmt: skip
    x, w = torch.arange(24.0).reshape(2, 3, 4), torch.ones(5)
    for axis in (0, 1, -1):
        assert torch.equal(torch.func.vmap(lambda each: scaled(each, w, axis=axis))(x), 5 * x)  # noqa: B023


@pytest.mark.parametrize("default", ["a", "b"])
def test_words_of_which_one_has_no_gradient(default):
    """Neither has one then, whichever is the default."""
    formula = {"z": "T[*n] = choose(m, a=x * 2, b=round_even(x))"}
    operation = skuda.define(
        types={"T": ["f32"]}, inputs={"x": "T[*n]"}, attrs={"m": f"a | b = {default}"}, outputs=formula
    )
    x = np.array([1.25, 3], np.float32)
    assert operation(x, m="a").tolist() == [2.5, 6] and operation(x, m="b").tolist() == [1, 3]
    assert operation.backward is None
