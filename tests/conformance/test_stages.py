"""Operations that run in stages: what each stage leaves is rounded nowhere but in the compute type, and outputs are
what the definition says of the whole."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import skuda
from oracles import fp8, rows
from oracles.floats import FORMATS, FP8, compute_format
from skuda.errors import InvalidProblem

from .support import RANGE, STORAGE, assert_codes, assert_floats, bits_of, floats, pattern
from .test_rows import assert_admitted, other_row, parameter, random_row, unusual_rows

GRADIENTS = {"rms_norm": (rows.rms_norm_backward, "1e-6"), "layer_norm": (rows.layer_norm_backward, "1e-5")}


def quantized(name: str, row: list[int], element: str, word: str, scale_element: str) -> tuple:
    """What the oracle says of one row: the scale, a zero point where there is one, the codes."""
    kinds = {"element": element, "scale_element": scale_element}
    if "fp8" in name:
        return fp8.dynamic_quantize(row, fp8.highest(word), word=word, **kinds)
    oracle = rows.dynamic_quantize_asymmetric if "asymmetric" in name else rows.dynamic_quantize
    return oracle(row, *RANGE[word], **kinds)


def check_codes(
    backend, name: str, x: np.ndarray, element: str, word: str, channels: list[tuple], scale_word=None, **options
) -> None:
    """Each channel (an index into the input) is quantized as if it stood alone."""
    call = getattr(skuda, name)
    got = [backend.numpy(each) for each in call(backend.array(x), dtype=word, scale_dtype=scale_word, **options)]
    scale_word = scale_word or compute_format(element).word
    codes = np.zeros(x.shape, np.int64)
    for number, channel in enumerate(channels):
        part = x[channel]
        line = bits_of(part.reshape(-1), element).tolist()
        scale, *zero_point, row = quantized(name, line, element, word, scale_word)
        here = (number,) if got[0].ndim else ()
        assert_floats(got[0][here][()].reshape(1), [scale], scale_word)
        assert [each[here].item() for each in got[1:-1]] == zero_point
        codes[channel] = np.reshape(row, part.shape)
    if word in FP8:
        assert_floats(got[-1].view(STORAGE[word]), codes, word, input=x)
    else:
        assert_codes(got[-1], codes, word, input=x)


WORDS = {"dynamic_quantize": ("s8", "s4"), "dynamic_quantize_asymmetric": ("s8", "u4")}
WORDS["dynamic_quantize_fp8"] = ("e4m3", "e5m2")


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", WORDS)
@pytest.mark.parametrize("element", FORMATS)
def test_a_tensor_has_one_scale(backend, name, element):
    for row in unusual_rows(element).values():
        for word in WORDS[name]:
            x = floats(row, element)
            check_codes(backend, f"{name}_per_tensor", x, element, word, [...])
        check_codes(backend, f"{name}_per_tensor", x.reshape(4, 5), element, WORDS[name][0], [...], element)
    long = floats(random_row(element, 3001, 21), element)
    check_codes(backend, f"{name}_per_tensor", long, element, WORDS[name][0], [...])


@pytest.mark.parametrize("name", WORDS)
@pytest.mark.parametrize(("shape", "axis"), [((7,), 0), ((5, 9), 0), ((5, 9), 1), ((3, 4, 6), 1), ((2, 3, 2, 8), -1)])
def test_each_channel_has_its_own(backend, name, shape, axis):
    x = floats(random_row("f16", int(np.prod(shape)), 22), "f16").reshape(shape)
    channels = [(slice(None),) * (axis % len(shape)) + (index,) for index in range(shape[axis])]
    for scale_word in ("f32", "f16"):
        check_codes(backend, f"{name}_per_channel", x, "f16", WORDS[name][0], channels, scale_word, axis=axis)


def test_a_tensor_of_nothing_is_quantized_as_zeros_are(backend):
    scale, codes = skuda.dynamic_quantize_per_tensor(backend.array(np.zeros((0, 3), np.float32)))
    assert backend.numpy(scale) == 1 and codes.shape == (0, 3)


@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("name", GRADIENTS)
def test_the_gradients_of_norms(backend, name, element):
    oracle, eps = GRADIENTS[name]
    unusual = [row for what, row in unusual_rows(element).items() if what != "wide exponents"]
    for count, length, matrix in (
        (3, 9, None), (1, 64, None), (9, 5, None), (3, 65, None), (len(unusual), 20, unusual),
    ):  # fmt: skip
        x = matrix or [random_row(element, length, 30 + each) for each in range(count)]
        dy = [other_row(element, length) if matrix else random_row(element, length, 60 + each) for each in range(count)]
        weight = parameter(element, length, 7)
        expected = oracle(dy, x, weight, pattern(eps, compute_format(element).word), element=element)
        given = [backend.array(floats(each, element)) for each in (dy, x, weight)]
        actual = [backend.numpy(each) for each in getattr(skuda, f"{name}_backward")(*given)]
        assert_admitted(actual[0].reshape(-1), sum(expected[0], []), element, f"d_input of {name} {element}")
        for got, spans in zip(actual[1:], expected[1:], strict=True):
            assert_admitted(got, spans, element, f"parameters of {name} {element}")


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_slopes(backend, name):
    """Against the central difference of the definition, in 60 digits."""
    rng = np.random.default_rng(13)
    x, dy, weight = rng.normal(0, 2, (3, 5)), rng.normal(0, 1, (3, 5)), rng.normal(1, 0.3, 5)
    got = [backend.numpy(each) for each in getattr(skuda, f"{name}_backward")(*map(backend.array, (dy, x, weight)))]
    eps = mpmath.mpf(float(GRADIENTS[name][1]))

    def loss(x, weight):
        total = mpmath.mpf(0)
        for row, gradient in zip(x, dy.tolist(), strict=True):
            middle = sum(row) / len(row) if name == "layer_norm" else 0
            row = [each - middle for each in row]
            root = mpmath.sqrt(sum(each * each for each in row) / len(row) + eps)
            total += mpmath.fsum(g * w * each / root for g, w, each in zip(gradient, weight, row, strict=True))
        return total

    with mpmath.workdps(60):
        step = mpmath.mpf("1e-20")
        exact_x = [[mpmath.mpf(each) for each in row] for row in x.tolist()]
        exact_w = [mpmath.mpf(each) for each in weight.tolist()]

        def slope(values, position, of):
            before = values[position]
            ends = []
            for move in (step, -step):
                values[position] = before + move
                ends.append(of())
            values[position] = before
            return (ends[0] - ends[1]) / (2 * step)

        for i, row in enumerate(exact_x):
            for j in range(5):
                assert abs(slope(row, j, lambda: loss(exact_x, exact_w)) - float(got[0][i, j])) < 1e-13
        for j in range(5):
            assert abs(slope(exact_w, j, lambda: loss(exact_x, exact_w)) - float(got[1][j])) < 1e-13
    if name == "layer_norm":
        np.testing.assert_allclose(got[2], dy.sum(0), rtol=1e-14)


def test_no_rows_have_no_gradient(backend):
    x, weight = np.zeros((0, 5), np.float32), np.ones(5, np.float32)
    d_input, d_weight, d_bias = skuda.layer_norm_backward(*map(backend.array, (x, x, weight)))
    assert backend.numpy(d_input).shape == (0, 5)
    for each in (d_weight, d_bias):
        assert (backend.numpy(each).view(np.uint32) == 0).all()


def test_an_output_is_no_input_that_a_later_stage_reads(backend):
    rng = np.random.default_rng(14)
    x, dy, weight = (rng.normal(0, 1, shape).astype(STORAGE["f32"]) for shape in ((6, 8), (6, 8), (8,)))
    with pytest.raises(InvalidProblem, match="d_input overlaps d_output"):
        array = backend.array(dy)
        out = (array, backend.array(weight))
        skuda.rms_norm_backward(array, backend.array(x), backend.array(weight), out=out)
