"""The spans of rows.py: exact where every step is, and as wide as they must be elsewhere."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from oracles import rows, spans
from oracles.floats import BF16, F16, F32, F64, FORMATS, NAN, Value, decode, encode, encode_fraction
from oracles.patterns import sample
from oracles.spans import ANY, Span, admits, point, real


def finite(number, form=F32) -> Value:
    return real(Fraction(number), form)


def f32(*numbers) -> list[int]:
    return [encode_fraction(Fraction(number), F32) for number in numbers]


INF, MINUS_INF = Value("inf"), Value("inf", True)
ONE = encode_fraction(1, F32)


@pytest.mark.parametrize("form", [F32, F64], ids=lambda form: form.word)
def test_square_roots_match_the_hardware(form):
    kind, storage = {F32: (np.uint32, np.float32), F64: (np.uint64, np.float64)}[form]
    bits = sample(np.random.default_rng(1), form, 3000)
    with np.errstate(invalid="ignore"):
        expected = np.sqrt(bits.astype(kind).view(storage)).view(kind)
    for pattern, root in zip(bits.tolist(), expected.tolist(), strict=True):
        got = encode(spans.sqrt(point(decode(pattern, form)), form).low, form)
        assert got == root or got == form.nan and root & ~form.sign > form.infinity


def test_steps_of_known_values_are_exact():
    a, b = point(finite("0.1")), point(finite(3))
    for name in ("add", "subtract", "multiply", "divide"):
        assert getattr(spans, name)(a, b, F32).exact
    assert spans.add(a, b, F32).low == finite(finite("0.1").signed + 3)
    assert spans.multiply(point(INF), point(finite(0)), F32) == point(NAN)


def test_steps_take_ends_to_ends():
    a, b = Span(finite(-1), finite(2)), Span(finite(3), finite(5))
    assert spans.multiply(a, b, F32) == Span(finite(-5), finite(10))
    assert spans.divide(b, b, F32) == Span(finite(Fraction(3, 5)), finite(Fraction(5, 3)))
    assert spans.subtract(a, b, F32) == Span(finite(-6), finite(-1))
    assert spans.magnitude(a) == Span(finite(0), finite(2))
    assert spans.negate(a) == Span(finite(-2), finite(1))
    assert spans.divide(b, a, F32) is ANY  # by values of both signs
    assert spans.divide(b, Span(finite(0), finite(1)), F32) is ANY
    assert spans.divide(b, point(finite(0)), F32) == point(INF)
    assert spans.add(ANY, b, F32) is ANY


def test_sums():
    ones = [point(finite(1))] * 3
    total = spans.total([point(finite(2**24)), *ones], F32)
    assert total.low.signed <= 2**24 <= 2**24 + 3 <= total.high.signed
    assert total.high.signed - total.low.signed <= 2 * 21
    assert spans.total([], F32) == point(Value("finite"))
    assert spans.total([point(finite("0.1"))], F32).exact
    minus, plus = point(Value("finite", True)), point(Value("finite"))
    assert spans.total([minus, minus], F32) == minus and spans.total([minus, plus], F32) == plus
    assert spans.total([point(INF), point(finite(1))], F32) == point(INF)
    assert spans.total([point(INF), point(MINUS_INF)], F32) == point(NAN)
    largest = decode(F32.largest, F32)
    assert spans.total([point(largest), point(largest)], F32).high == INF
    assert spans.total([point(largest), point(spans.floats.negate(largest))], F32) is ANY


@pytest.mark.parametrize("form", [F32, F64], ids=lambda form: form.word)
@pytest.mark.parametrize("name", ["exp", "log"])
def test_elementary_functions_are_around_their_values(name, form):
    for number in ("0.1", "-3.7", "1", "88", "-87.3", "1e-30", "0.99999"):
        x = finite(number, form)
        if name == "log" and x.negative:
            continue
        span = getattr(spans, name)(point(x), form)
        exact = getattr(math, name)(float(x.signed))
        low, high = float(span.low.signed), float(span.high.signed)
        if exact:
            unit = math.ldexp(1, math.frexp(exact)[1] - 1 - form.fraction_bits)
            assert high - low <= 2 * unit
            assert low - unit <= exact <= high + unit
    assert spans.exp(point(MINUS_INF), form) == point(Value("finite"))
    assert spans.exp(point(finite(2000, form)), form) == point(INF)
    assert spans.log(point(Value("finite")), form) == point(MINUS_INF)
    assert spans.log(point(finite(-1, form)), form) == point(NAN)


def test_what_is_admitted():
    span = Span(finite(1), finite(Fraction(9, 8)))
    assert admits(span, ONE, F32) and admits(span, ONE + 1, F32)
    assert not admits(span, ONE - 1, F32) and not admits(span, F32.nan, F32)
    assert admits(span, encode_fraction(1, F16), F16)
    assert admits(point(NAN), F16.nan, F16) and not admits(point(NAN), F16.nan | F16.sign, F16)
    assert not admits(point(Value("finite")), F32.sign, F32) and admits(point(Value("finite", True)), F32.sign, F32)
    assert admits(point(finite(10**6)), F16.infinity, F16) and not admits(point(finite(10**6)), BF16.infinity, BF16)


def test_rows_by_hand():
    assert rows.dynamic_quantize(f32(1, "-2.54", 0), -128, 127, element="f32") == (f32("0.02")[0], [50, -127, 0])
    assert rows.dynamic_quantize([0, F32.sign], -8, 7, element="f32") == (ONE, [0, 0])
    assert rows.dynamic_quantize([F32.nan, F32.infinity], -8, 7, element="f32") == (ONE, [0, 7])
    scale, zero_point, codes = rows.dynamic_quantize_asymmetric(f32(-1, 3), 0, 255, element="f32")
    assert (zero_point, codes) == (64, [0, 255]) and abs(decode(scale, F32).signed - Fraction(4, 255)) < 2**-28
    assert rows.dynamic_quantize_asymmetric(f32(1, 4), 0, 15, element="f32")[1:] == (0, [4, 15])
    half = rows.softmax(f32(5, 5), element="f32")
    assert all(admits(span, f32("0.5")[0], F32) for span in half)
    assert rows.rms_norm(f32(3, -3), f32(1, 2), 0, element="f32")[1].low.signed < -2 + 1e-5
    assert admits(rows.layer_norm(f32(4, 4), f32(1, 1), f32(7, 8), ONE, element="f32")[1], f32(8)[0], F32)
    assert rows.softmax_backward(f32(1, 1), f32("0.5", "0.5"), element="f32")[0].high.signed <= 2**-18
    assert rows.product(f32(2, 3, -4), element="f32").low.signed <= -24
    assert rows.mean(f32(1, 2), element="f32").low.signed <= Fraction(3, 2)
    assert rows.largest([0, F32.sign], element="f32") == point(Value("finite"))
    assert rows.smallest([0, F32.sign], element="f32") == point(Value("finite", True))


@pytest.mark.parametrize("element", ["f32", "f64"])
def test_spans_hold_the_exact_values_and_are_narrow(element):
    """Of each operation evaluated in 60 digits: within the span, which is a few hundred units wide at most."""
    form = FORMATS[element]
    x = np.random.default_rng(4).normal(0, 2, 40).astype({"f32": np.float32, "f64": np.float64}[element])
    bits = x.view({"f32": np.uint32, "f64": np.uint64}[element]).tolist()
    eps = encode_fraction(Fraction(1, 1000), form)
    with mpmath.workdps(60):
        values = [mpmath.mpf(each) for each in x.tolist()]
        raised = [mpmath.exp(each) for each in values]
        squares, mean = mpmath.fsum(v * v for v in values), mpmath.fsum(values) / 40
        variance = mpmath.fsum((v - mean) ** 2 for v in values) / 40
        small = mpmath.mpf(float(decode(eps, form).signed))
        exact = {
            "softmax": ((), [each / mpmath.fsum(raised) for each in raised]),
            "log_softmax": ((), [v - mpmath.log(mpmath.fsum(raised)) for v in values]),
            "rms_norm": ((bits, eps), [v * v / mpmath.sqrt(squares / 40 + small) for v in values]),
            "layer_norm": (
                (bits, bits, eps),
                [(v - mean) / mpmath.sqrt(variance + small) * v + v for v in values],
            ),
            "l2_normalize": ((eps,), [v / mpmath.sqrt(squares) for v in values]),
        }
        for name, (given, expected) in exact.items():
            got = getattr(rows, name)(bits, *given, element=element)
            for span, value in zip(got, expected, strict=True):
                low, high = (mpmath.mpf(e.signed.numerator) / e.signed.denominator for e in (span.low, span.high))
                slack = abs(value) * mpmath.mpf(2) ** -form.fraction_bits
                assert low - 2 * slack <= value <= high + 2 * slack, name
                assert high - low <= 400 * mpmath.mpf(2) ** -form.fraction_bits * max(1, abs(value)), name
