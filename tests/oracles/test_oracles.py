"""The oracles against each other, against hardware arithmetic, and against results worked out by hand."""

from __future__ import annotations

import ast
from fractions import Fraction
from operator import attrgetter
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from oracles import affine, affine_array, floats, floats_array, fp8, fp8_array, lerp, patterns
from oracles.floats import BF16, E4M3, E5M2, F16, F32, F64, FORMATS, FP8
from oracles.patterns import sample

STORAGE = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
UINT = {16: np.uint16, 32: np.uint32, 64: np.uint64}
WORD = attrgetter("word")
ELEMENTS = [(t, s) for t in FORMATS for s in dict.fromkeys((t, "f32"))]


def same_bits(actual: np.ndarray, expected: np.ndarray, form: floats.Format) -> np.ndarray:
    """Which of two float arrays agree, any NaN with any NaN."""
    kind = UINT[form.bits]
    return (np.ascontiguousarray(actual).view(kind) == np.ascontiguousarray(expected).view(kind)) | (
        np.isnan(actual) & np.isnan(expected)
    )


# NumPy's own conversions warn of the NaNs and overflows that these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("form", [F16, BF16], ids=WORD)
def test_decode_and_encode_every_16_bit_pattern(form):
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = bits.view(STORAGE[form.word]).astype(np.float64)
    for pattern, witness in zip(range(1 << 16), wide.tolist()):
        value = floats.decode(pattern, form)
        if witness != witness:
            assert value.kind == "nan" and floats.encode(value, form) == form.nan
            continue
        assert floats.encode(value, form) == pattern
        if value.kind == "finite":
            assert value.magnitude == abs(Fraction(witness))
        else:
            assert abs(witness) == float("inf")
    expected = np.where(np.isnan(wide), form.nan, bits)
    np.testing.assert_array_equal(floats_array.encode(floats_array.decode(bits, form), form), expected)


@pytest.mark.parametrize("form", [F16, BF16, F32], ids=WORD)
def test_narrowing_matches_the_hardware(form):
    rng = np.random.default_rng(1)
    grid = sample(rng, form, 4000).astype(UINT[form.bits]).view(STORAGE[form.word]).astype(np.float64)
    halfway = np.where(np.isfinite(grid), grid * (1 + 2.0 ** -(form.fraction_bits + 1)), grid)
    wide = np.concatenate([grid, halfway, np.nextafter(halfway, 0), np.nextafter(halfway, np.inf)])
    if form is BF16:  # ml_dtypes narrows f64 by way of f32; only values that f32 holds can be compared
        wide = wide.astype(np.float32).astype(np.float64)
    hardware = wide.astype(STORAGE[form.word])
    wide_bits = wide.view(np.uint64)
    ours = floats_array.encode(floats_array.decode(wide_bits, F64), form).astype(UINT[form.bits])
    assert same_bits(ours.view(STORAGE[form.word]), hardware, form).all()
    assert [floats.encode(floats.decode(p, F64), form) for p in wide_bits.tolist()] == ours.tolist()


NARROW = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


@pytest.mark.parametrize("form", [E4M3, E5M2], ids=WORD)
def test_decode_and_encode_every_8_bit_pattern(form):
    bits = np.arange(256, dtype=np.uint8)
    wide = bits.view(NARROW[form.word]).astype(np.float64)
    kinds = {"nan": 0, "inf": 0, "finite": 0}
    for pattern, witness in zip(range(256), wide.tolist()):
        value = floats.decode(pattern, form)
        kinds[value.kind] += 1
        if value.kind == "finite":
            assert value.magnitude == abs(Fraction(witness)) and floats.encode(value, form) == pattern
        elif value.kind == "inf":
            assert abs(witness) == float("inf") and floats.encode(value, form) == pattern - 1  # saturated
        else:
            assert witness != witness and floats.encode(value, form) == 0x7F
    assert kinds == ({"nan": 2, "inf": 0, "finite": 254} if form is E4M3 else {"nan": 6, "inf": 2, "finite": 248})
    expected = [floats.encode(floats.decode(pattern, form), form) for pattern in range(256)]
    assert floats_array.encode(floats_array.decode(bits, form), form).tolist() == expected


@pytest.mark.parametrize("form", [E4M3, E5M2], ids=WORD)
def test_narrowing_to_8_bits_matches_ml_dtypes(form):
    """Of every f16, which f32 holds; ml_dtypes does not saturate."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    largest = float(floats.decode(form.largest, form).magnitude)
    clipped = np.clip(bits.view(np.float16).astype(np.float32), -largest, largest)
    theirs = clipped.astype(NARROW[form.word])
    ours = floats_array.encode(floats_array.decode(bits, F16), form)
    assert ours.tolist() == np.where(np.isnan(theirs), np.uint8(0x7F), theirs.view(np.uint8)).tolist()
    assert ours.tolist() == [floats.encode(floats.decode(pattern, F16), form) for pattern in range(1 << 16)]


@pytest.mark.parametrize("word", FP8)
@pytest.mark.parametrize(("element", "scale_element"), ELEMENTS)
def test_array_oracle_of_fp8_equals_scalar_oracle(element, scale_element, word):
    rng = np.random.default_rng(4)
    kinds = {"element": element, "scale_element": scale_element}
    x, d = (sample(rng, FORMATS[element], 400) for _ in range(2))
    scale, code = sample(rng, FORMATS[scale_element], 400), rng.integers(0, 256, 400)
    for q_max in (fp8.highest(word), Fraction(24)):
        calls = {
            "quantize": ((x, scale, q_max), {"word": word}),
            "in_range": ((x, scale, q_max), {}),
            "quantize_backward": ((d, x, scale, q_max), {}),
            "dequantize": ((code, scale), {"word": word}),
        }
        for name, (arguments, more) in calls.items():
            whole = getattr(fp8_array, name)(*arguments, **kinds, **more).tolist()
            for index, actual in enumerate(whole):
                row = [int(each[index]) if isinstance(each, np.ndarray) else each for each in arguments]
                assert getattr(fp8, name)(*row, **kinds, **more) == actual, f"{name}{tuple(row)} {kinds}"


@pytest.mark.parametrize("form", [F32, F64], ids=WORD)
@pytest.mark.parametrize("name", ["divide", "multiply", "add", "subtract"])
def test_arithmetic_matches_the_hardware(form, name):
    rng = np.random.default_rng(2)
    a, b = (sample(rng, form, 4000).astype(UINT[form.bits]) for _ in range(2))
    hardware = getattr(np, name)(a.view(STORAGE[form.word]), b.view(STORAGE[form.word]))
    decoded = [(floats.decode(x, form), floats.decode(y, form)) for x, y in zip(a.tolist(), b.tolist())]
    ours = [floats.encode(getattr(floats, name)(x, y, form), form) for x, y in decoded]
    assert same_bits(np.array(ours, dtype=UINT[form.bits]).view(STORAGE[form.word]), hardware, form).all()
    if name in ("divide", "multiply"):
        arrays = getattr(floats_array, name)(floats_array.decode(a, form), floats_array.decode(b, form), form)
        assert floats_array.encode(arrays, form).tolist() == ours


@pytest.mark.parametrize(("element", "scale_element"), ELEMENTS)
def test_array_oracle_equals_scalar_oracle(element, scale_element):
    rng = np.random.default_rng(3)
    count = 3000
    kinds = {"element": element, "scale_element": scale_element}
    x, d = (sample(rng, FORMATS[element], count) for _ in range(2))
    scale = sample(rng, FORMATS[scale_element], count)
    tied = np.arange(count) % 3 == 0  # x = (k + 1/2) * scale, and one unit beside it
    steps, beside = rng.integers(-300, 300, count), rng.integers(-1, 2, count)
    forms = FORMATS[scale_element], FORMATS[element]
    ties = [
        patterns.near_multiple(int(size), int(k) + Fraction(1, 2), int(unit), *forms)
        for size, k, unit in zip(scale, steps, beside)
    ]
    x = np.where(tied, np.array(ties, dtype=np.uint64), x)
    extremes = np.array([0, 1, -1, 127, -128, 255, 2**31 - 1, -(2**31), 2**24 + 1, -(2**24) - 1])
    small = rng.integers(-300, 300, count)
    zero_point = np.where(rng.random(count) < 0.5, small, rng.choice(extremes, count))
    q_min, q_max = -128, 255
    full = (x, scale, zero_point, q_min, q_max)
    calls = {
        "quantize": full,
        "in_range": full,
        "fake_quantize": full,
        "quantize_backward": (d, *full),
        "fake_quantize_backward": (d, *full),
        "dequantize": (rng.integers(q_min, q_max + 1, count), scale, zero_point),
        "dequantize_backward": (d, scale),
    }
    for name, arguments in calls.items():
        whole = getattr(affine_array, name)(*arguments, **kinds).tolist()
        for index, actual in enumerate(whole):
            row = [int(each[index]) if isinstance(each, np.ndarray) else each for each in arguments]
            assert getattr(affine, name)(*row, **kinds) == actual, f"{name}{tuple(row)} {kinds}"


@pytest.mark.parametrize("form", [F32, F64], ids=WORD)
def test_integers_round_once(form):
    edges = [k * (1 << form.fraction_bits) + j for k in (1, 2, 4, 6) for j in range(-9, 10)]
    edges += [2**31, 2**32 + 1, 2**33 - 1, 2**32 + 2**8, 2**32 + 3 * 2**8, 0, 1, 255]
    numbers = np.array(edges + [-n for n in edges], dtype=np.int64)
    ours = floats_array.encode(floats_array.from_integers(numbers, form), form)
    assert ours.tolist() == [floats.encode(floats.integer(n, form), form) for n in numbers.tolist()]
    hardware = numbers.astype(STORAGE[form.word])
    assert same_bits(ours.astype(UINT[form.bits]).view(STORAGE[form.word]), hardware, form).all()


def test_to_integers_rounds_ties_to_even_and_saturates():
    numbers = [Fraction(k, 4) for k in range(-50, 51)] + [2**39 + Fraction(1, 2), -(2**39) - Fraction(1, 2)]
    bits = np.array([floats.encode_fraction(n, F64) for n in numbers], dtype=np.uint64)
    assert floats_array.to_integers(floats_array.decode(bits, F64)).tolist() == [round(n) for n in numbers]
    huge = floats.encode_fraction(-(2**60), F64)
    far = [F64.infinity, F64.infinity | F64.sign, F64.nan, huge, 1, 1 | F64.sign]
    decoded = floats_array.decode(np.array(far, dtype=np.uint64), F64)
    assert floats_array.to_integers(decoded).tolist() == [2**40, -(2**40), 0, -(2**40), 0, 0]


def f32(number) -> int:
    return floats.encode_fraction(Fraction(number), F32)


def f16(number) -> int:
    return floats.encode_fraction(Fraction(number), F16)


F32_KINDS = {"element": "f32", "scale_element": "f32"}

# x, scale, zero_point, q_min, q_max -> code, worked out by hand.
BY_HAND = [
    (f32("2.5"), f32(1), 0, -128, 127, 2),  # tie to even
    (f32("2.5"), f32(1), 1, -128, 127, 3),  # the zero point comes after: round(2.5) + 1, not round(3.5)
    (f32("-3.5"), f32(1), 3, 0, 255, 0),  # -4 + 3 = -1, clamped
    (F32.infinity, f32(1), 128, 0, 255, 255),
    (F32.infinity | F32.sign, f32(1), 2**31 - 1, -128, 127, -128),
    (F32.infinity, f32(1), -(2**31), -128, 127, 127),
    (F32.nan, f32(1), 5, -128, 127, 5),
    (F32.nan, f32(1), 300, -128, 127, 127),
    (f32(2**31), f32(1), -(2**31), -128, 127, 0),  # exact integers: no saturation at 2^31 - 1 on the way
    (f32(0), f32(0), 7, -128, 127, 7),  # 0 / 0 is a NaN
    (f32(1), f32(0), 7, -128, 127, 127),  # 1 / 0 is an infinity
    (f32(-6), f32(-2), 0, -128, 127, 3),
]


@pytest.mark.parametrize(("x", "scale", "zero_point", "q_min", "q_max", "code"), BY_HAND)
def test_quantize_by_hand(x, scale, zero_point, q_min, q_max, code):
    assert affine.quantize(x, scale, zero_point, q_min, q_max, **F32_KINDS) == code


def test_dequantize_by_hand():
    kinds = {"element": "f16", "scale_element": "f32"}
    assert affine.dequantize(127, f32(1000), 0, **kinds) == F16.infinity  # 127000 > 65504
    assert affine.dequantize(3, f32("0.5"), 5, **kinds) == f16(-1)
    assert affine.dequantize(5, f32(-1), 5, **kinds) == F16.sign  # +0 * -1 is -0
    assert affine.dequantize(5, F32.infinity, 5, **kinds) == F16.nan  # 0 * inf
    # 127 + 2^31 needs 32 bits: f32 rounds it to 2^31 + 0 before the product.
    assert affine.dequantize(127, f32(1), -(2**31), **F32_KINDS) == f32(2**31)
    in_f64 = affine.dequantize(127, f32(1), -(2**31), element="f64", scale_element="f32")
    assert in_f64 == floats.encode_fraction(2**31 + 127, F64)


def test_backward_by_hand():
    rest = (0, -4, 2)  # round(1.5) = round(2.5) = 2 is inside, round(3.5) = 4 outside
    assert affine.quantize_backward(f32(5), f32(3), f32(2), *rest, **F32_KINDS) == f32("2.5")
    assert affine.quantize_backward(f32(5), f32("3.5"), f32(1), *rest, **F32_KINDS) == 0
    assert affine.fake_quantize_backward(f32(5), f32("2.5"), f32(1), *rest, **F32_KINDS) == f32(5)
    assert affine.fake_quantize_backward(F32.nan, f32(9), f32(1), *rest, **F32_KINDS) == 0
    assert affine.dequantize_backward(f32(3), f32("0.25"), **F32_KINDS) == f32("0.75")


def test_fp8_by_hand():
    e4m3, e5m2 = {**F32_KINDS, "word": "e4m3"}, {**F32_KINDS, "word": "e5m2"}
    assert fp8.quantize(f32("1.0625"), f32(1), 448, **e4m3) == 0x38  # a tie between 1 and 1.125: to even
    assert fp8.quantize(f32("1.1875"), f32(1), 448, **e4m3) == 0x3A  # between 1.125 and 1.25
    assert fp8.quantize(f32(1), f32(3), 448, **e4m3) == 0x2B  # 0.34375
    assert fp8.quantize(f32(464), f32(1), 448, **e4m3) == 0x7E  # between 448 and what would be 480
    assert fp8.quantize(F32.infinity | F32.sign, f32(1), 448, **e4m3) == 0xFE
    assert fp8.quantize(F32.nan | F32.sign, f32(1), 448, **e4m3) == 0x7F
    assert fp8.quantize(f32("1/1024"), f32(1), 448, **e4m3) == 0  # half the least subnormal: to even
    assert fp8.quantize(f32("3/1024"), f32(-1), 448, **e4m3) == 0x82
    assert fp8.quantize(F32.infinity, f32(1), 57344, **e5m2) == 0x7B
    assert fp8.quantize(f32(1000), f32(1), 24, **e5m2) == 0x4E
    assert fp8.dequantize(0xFE, f32("0.5"), **e4m3) == f32(-224)
    assert fp8.dequantize(0x7C, f32(2), **e5m2) == F32.infinity
    assert fp8.quantize_backward(f32(5), f32(896), f32(2), 448, **F32_KINDS) == f32("2.5")  # inclusive
    assert fp8.quantize_backward(f32(5), f32(897), f32(2), 448, **F32_KINDS) == 0
    assert fp8.quantize_backward(f32(5), F32.nan, f32(2), 448, **F32_KINDS) == 0
    assert fp8.dequantize_backward(f32(3), f32("0.25"), **F32_KINDS) == f32("0.75")
    assert fp8.dynamic_quantize([f32(-224), 0, F32.infinity], 448, element="f32", word="e4m3") == (
        f32("0.5"),
        [0xFE, 0, 0x7E],
    )


def test_lerp_by_hand():
    kinds = {"element": "f32", "weight_element": "f32"}
    assert lerp.lerp(f32(2), f32(4), f32("0.25"), **kinds) == f32("2.5")
    assert lerp.lerp_backward(f32(8), f32("0.25"), **kinds) == (f32(6), f32(2))
    # 1e8 - 1 and 1 - 1e8 are 1e8 and -1e8 in f32: at weight 1 the second gives 1e8 - 1e8 = 0, not b.
    assert lerp.lerp(f32(1), f32(10**8), f32(1), **kinds) == f32(10**8)
    assert lerp.lerp(f32(10**8), f32(1), f32(1), **kinds) == f32(0)
    assert lerp.lerp(F32.infinity, F32.infinity, f32("0.5"), **kinds) == F32.nan


@pytest.mark.parametrize("file", sorted(Path(__file__).parent.glob("[!t]*.py")), ids=lambda file: file.stem)
def test_an_oracle_imports_nothing_of_what_it_checks(file):
    imports = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    named = [getattr(node, "module", None) or "" for node in imports] + [a.name for node in imports for a in node.names]
    assert not [name for name in named if name.partition(".")[0] == "skuda"]
