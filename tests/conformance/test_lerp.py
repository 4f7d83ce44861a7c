"""a + weight * (b - a), each step rounded once, never fused; and its gradients."""

from __future__ import annotations

import numpy as np
import pytest

import skuda
from oracles import lerp, patterns
from oracles.floats import FORMATS, compute_format

from .support import assert_floats, bits_of, floats, pattern

WEIGHTS = ["0", "1", "0.5", "0.3", "-0.25", "1.5", "1/3", "1e-30", "16777217"]
COUNT = 1500


def problem(element, seed):
    """Patterns of a and b: random, equal, opposite, and close (where b - a cancels)."""
    rng = np.random.default_rng(seed)
    form = FORMATS[element]
    a, b = patterns.sample(rng, form, COUNT), patterns.sample(rng, form, COUNT)
    choice = rng.integers(0, 4, COUNT)
    close = a ^ rng.integers(0, 8, COUNT).astype(np.uint64)
    return a, np.choose(choice, [b, a, a ^ np.uint64(form.sign), close])


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("element", FORMATS)
def test_scalar_weight(backend, element, weight):
    compute = compute_format(element).word
    weight = pattern(weight, compute)
    a, b = problem(element, 1)
    expected = [lerp.lerp(*row, weight, **kinds(element, compute)) for row in zip(a.tolist(), b.tolist())]
    a, b = floats(a, element), floats(b, element)
    number = float(floats(weight, compute))
    actual = skuda.lerp(backend.array(a), backend.array(b), number)
    assert_floats(backend.numpy(actual), expected, element, a=a, b=b, weight=number)


@pytest.mark.turns(3)
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("element", FORMATS)
def test_scalar_weight_backward(backend, element, weight):
    compute = compute_format(element).word
    weight = pattern(weight, compute)
    d_output, _ = problem(element, 2)
    rows = [lerp.lerp_backward(each, weight, **kinds(element, compute)) for each in d_output.tolist()]
    d_output, number = floats(d_output, element), float(floats(weight, compute))
    gradients = skuda.lerp_backward(backend.array(d_output), number)
    for actual, expected in zip(gradients, zip(*rows), strict=True):
        assert_floats(backend.numpy(actual), expected, element, d_output=d_output, weight=number)


@pytest.mark.parametrize("element", FORMATS)
def test_tensor_weight(backend, element):
    a, b = problem(element, 3)
    weight = patterns.sample(np.random.default_rng(4), FORMATS[element], COUNT)
    rows = zip(a.tolist(), b.tolist(), weight.tolist())
    expected = [lerp.lerp(*row, **kinds(element, element)) for row in rows]
    arrays = [floats(each, element) for each in (a, b, weight)]
    actual = skuda.lerp_tensor(*[backend.array(each) for each in arrays])
    assert_floats(backend.numpy(actual), expected, element, **dict(zip(("a", "b", "weight"), arrays)))


@pytest.mark.parametrize("element", FORMATS)
def test_tensor_weight_backward(backend, element):
    (a, b), (d_output, weight) = problem(element, 3), problem(element, 5)
    rows = zip(d_output.tolist(), a.tolist(), b.tolist(), weight.tolist())
    rows = [lerp.lerp_tensor_backward(*row, element=element) for row in rows]
    arrays = [floats(each, element) for each in (d_output, a, b, weight)]
    gradients = skuda.lerp_tensor_backward(*[backend.array(each) for each in arrays])
    names = ("d_output", "a", "b", "weight")
    for actual, expected in zip(gradients, zip(*rows), strict=True):
        assert_floats(backend.numpy(actual), expected, element, **dict(zip(names, arrays)))


def test_f64_keeps_every_bit_of_the_weight(backend):
    """A weight that f32 would round to 1, and whose share shows in the last bit of the result only."""
    a, b = (backend.array(np.array([value])) for value in (0.0, 1.0))
    weight = 1.0 - 2.0**-53
    assert bits_of(backend.numpy(skuda.lerp(a, b, weight)), "f64").tolist() == [0x3FEFFFFFFFFFFFFF]


def test_the_product_is_rounded_before_the_sum(backend):
    """Fused, -1 + (1 + 2^-12)^2 would be 2^-11 + 2^-24; the rounded product loses the 2^-24."""
    a, b, weight = np.float32(-1), np.float32(2.0**-12), np.float32(1 + 2.0**-12)  # b - a = 1 + 2^-12
    actual = skuda.lerp_tensor(*[backend.array(each.reshape(1)) for each in (a, b, weight)])
    assert bits_of(backend.numpy(actual), "f32").tolist() == [pattern("1/2048", "f32")]


def kinds(element, weight_element) -> dict:
    return {"element": element, "weight_element": weight_element}
