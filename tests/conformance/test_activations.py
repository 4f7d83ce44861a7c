"""Activations on their own, and quantized by a given scale: within the spans of their oracles, and near the truth."""

from __future__ import annotations

from itertools import cycle, product

import mpmath
import numpy as np
import pytest

import skuda
from oracles import rows
from oracles.floats import FORMATS
from oracles.spans import ANY

from .support import ELEMENTS, RANGE, STORAGE, bits_of, floats, pattern
from .test_rows import assert_admitted, compute, other_row, random_row, unusual_rows

ACTIVATIONS = ("gelu", "gelu_tanh", "silu_mul")


def some_rows(element: str) -> dict[str, list[int]]:
    near = [pattern(each, element) for each in ("-0.1", "0.5", "-4", "5", "-5.5", "-9", "13", "-13.2", "20", "-40")]
    return unusual_rows(element) | {"random": random_row(element, 300, 2), "where it bends": near}


@pytest.mark.turns(2)
@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_their_gradients(backend, name, element):
    said = 0
    for what, row in some_rows(element).items():
        given = (row, other_row(element, len(row))) if name == "silu_mul" else (row,)
        gradient = random_row(element, len(row), 5)
        expected = getattr(rows, name)(*given, element=element)
        assert_admitted(compute(backend, name, element, *given), expected, element, f"{name} {element} {what}")
        arrays = (backend.array(floats(each, element)) for each in (gradient, *given))
        found = getattr(skuda, f"{name}_backward")(*arrays)
        slopes = getattr(rows, f"{name}_backward")(gradient, *given, element=element)
        pairs = zip(found, slopes, strict=True) if name == "silu_mul" else [(found, slopes)]
        for actual, spans in pairs:
            assert_admitted(backend.numpy(actual), spans, element, f"{name}_backward {element} {what}")
            said += sum(span is not ANY for span in spans)
    assert said > 500


def exact_of(name: str):
    """An activation and its slope, in mpmath."""
    if name == "gelu":
        return (lambda x: x * mpmath.ncdf(x)), (lambda x: mpmath.ncdf(x) + x * mpmath.npdf(x))

    def gelu_tanh(x):
        return x * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3))) / 2

    return gelu_tanh, lambda x: mpmath.diff(gelu_tanh, x)


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("name", ["gelu", "gelu_tanh"])
def test_gelu_is_near_the_truth_far_below_zero_too(backend, name, element):
    """Relative to the value, not to 1, next to the slope's zero too: gelu within 2 units in the last place and its
    slope within 1.5; of tanh within x^4 / 4 + 12, for its cube is rounded, and its slope so far from 1/2.
    """
    form = FORMATS[element]
    x = np.concatenate([np.linspace(-9, 9, 200), [1e-30, -1e-30, 1e-6, -0.7517, -0.7518]])
    x = x.astype(STORAGE[element])
    function, slope = exact_of(name)
    given = backend.array(x)
    got = backend.numpy(getattr(skuda, name)(given)).tolist()
    ones = backend.array(np.ones_like(x))
    gradient = backend.numpy(getattr(skuda, f"{name}_backward")(ones, given)).tolist()
    unit = mpmath.ldexp(1, -form.fraction_bits)
    with mpmath.workprec(200):
        for each, value, rise in zip(x.tolist(), got, gradient, strict=True):
            exact, exact_rise = function(mpmath.mpf(each)), slope(mpmath.mpf(each))
            if name == "gelu":
                units, slope_units, least = 2, 1.5, 0
            else:
                units, slope_units, least = each**4 / 4 + 12, each**4 / 4 + 30, mpmath.mpf("0.5")
            assert abs(value - exact) <= units * unit * abs(exact)
            assert abs(rise - exact_rise) <= slope_units * unit * max(abs(exact_rise), least)


@pytest.mark.turns(2)
@pytest.mark.parametrize(("element", "scale_element"), ELEMENTS)
@pytest.mark.parametrize("name", ["gelu_quantize", "gelu_tanh_quantize"])
def test_an_activation_quantized_by_a_given_scale(backend, name, element, scale_element):
    open_codes = closed_codes = 0
    parameters = cycle(product((("s8", -117), ("u8", 8), ("s8", 0)), ("0.02", "0.3")))
    for (what, row), ((word, zero_point), scale) in zip(some_rows(element).items(), parameters):
        bits = pattern(scale, scale_element)
        x = backend.array(floats(row, element).reshape(2, -1))
        given = floats([bits] * 2, scale_element), np.array([zero_point] * 2, np.int32)
        of_each = backend.numpy(getattr(skuda, f"{name}_per_token")(x, *map(backend.array, given), dtype=word))
        one = (backend.array(each[:1].reshape(())) for each in given)
        whole = backend.numpy(getattr(skuda, f"{name}_per_tensor")(x, *one, dtype=word))
        np.testing.assert_array_equal(of_each, whole)
        kinds = {"element": element, "scale_element": scale_element}
        admitted = getattr(rows, name)(row, bits, zero_point, *RANGE[word], **kinds)
        for code, (low, high) in zip(whole.reshape(-1).tolist(), admitted, strict=True):
            assert low <= code <= high, f"{name} {what}: got {code}, expected {low} to {high}"
            open_codes += low < high
            closed_codes += low == high
    assert closed_codes > 30 * open_codes


@pytest.mark.turns(3)
@pytest.mark.parametrize(("element", "scale_element"), ELEMENTS)
@pytest.mark.parametrize("name", ["gelu_quantize", "gelu_tanh_quantize"])
def test_the_gradient_of_an_activation_quantized_by_a_given_scale(backend, name, element, scale_element):
    said = 0
    parameters = cycle(product((("s8", -117), ("u8", 8), ("s8", 0)), ("0.02", "0.3")))
    for (what, row), ((word, zero_point), scale) in zip(some_rows(element).items(), parameters):
        bits, gradient = pattern(scale, scale_element), random_row(element, len(row), 5)
        low, high = RANGE[word]
        arrays = [backend.array(floats(each, element).reshape(2, -1)) for each in (gradient, row)]
        given = floats([bits] * 2, scale_element), np.array([zero_point] * 2, np.int32)
        of_each = getattr(skuda, f"{name}_per_token_backward")(*arrays, *map(backend.array, given), dtype=word)
        one = (backend.array(each[:1].reshape(())) for each in given)
        whole = backend.numpy(getattr(skuda, f"{name}_per_tensor_backward")(*arrays, *one, dtype=word))
        np.testing.assert_array_equal(bits_of(backend.numpy(of_each), element), bits_of(whole, element))
        kinds = {"element": element, "scale_element": scale_element}
        slopes = getattr(rows, f"{name}_backward")(gradient, row, bits, zero_point, low, high, **kinds)
        assert_admitted(whole.reshape(-1), slopes, element, f"{name}_backward {element} {what}")
        said += sum(span is not ANY for span in slopes)
    assert said > 500


def test_the_gradient_of_gelu_then_quantize_is_that_of_both(backend):
    x, gradient = (backend.array(floats(random_row("f32", 4096, seed), "f32")) for seed in (3, 4))
    for name in ("gelu", "gelu_tanh"):
        active = getattr(skuda, name)(x)
        through = skuda.quantize_per_tensor_backward(gradient, active, 0.01, 3, dtype="u8")
        apart = backend.numpy(getattr(skuda, f"{name}_backward")(through, x))
        fused = getattr(skuda, f"{name}_quantize_per_tensor_backward")(gradient, x, 0.01, 3, dtype="u8")
        np.testing.assert_array_equal(backend.numpy(fused), apart)
        assert 100 < np.count_nonzero(apart) < 4000


def test_gelu_then_quantize_is_the_same_where_nothing_is_rounded_between(backend):
    x = backend.array(floats(random_row("f32", 4096, 3), "f32"))
    for name in ("gelu", "gelu_tanh"):
        fused = getattr(skuda, f"{name}_quantize_per_tensor")(x, 0.05, 3, dtype="u8")
        apart = skuda.quantize_per_tensor(getattr(skuda, name)(x), 0.05, 3, dtype="u8")
        np.testing.assert_array_equal(backend.numpy(fused), backend.numpy(apart))
        scale, codes = getattr(skuda, f"{name}_dynamic_quantize")(x)
        own_scale, own_codes = skuda.dynamic_quantize_per_token(getattr(skuda, name)(x))
        np.testing.assert_array_equal(backend.numpy(codes), backend.numpy(own_codes))
        assert bits_of(backend.numpy(scale), "f32") == bits_of(backend.numpy(own_scale), "f32")
