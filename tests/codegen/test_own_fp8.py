"""Operations of one's own over floats of 8 bits: the store saturates whatever the formula, and types are asked for."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from catalogs import catalog_fixture
from quick_compiler import compile_quickly

from oracles import floats_array
from oracles.floats import F32, F64, FORMATS, FP8, encode_fraction
from skuda.codegen import spec as specs
from skuda.errors import InvalidProblem, SpecError
from skuda.launch import registry
from skuda.model.sku import BackendKind
from skuda.schedules import table

SPEC = """\
ops:
  cast:
    types: {T: [f32, f64, f16, bf16], Q: [e4m3, e5m2]}
    inputs: {x: "T[*shape]"}
    outputs: {y: "Q[*shape] = x"}
    backward: {d_x: "T[*shape] = d_y"}

  scaled_cast:
    types: {T: [f32, f64], Q: [e4m3, e5m2], S: [C, f16]}
    inputs: {x: "T[*n, d]"}
    attrs: {limit: Q = 24}
    outputs:
      scale: S[*n, d] = x / limit
      y: Q[*n, d] = clamp(2 * x, -limit, limit)
      back: T[*n, d] = y * scale

  requantize:
    types: {Q: [e4m3, e5m2], T: [f32]}
    inputs: {x: "Q[*shape]", factor: "Q[]"}
    outputs: {y: "Q[*shape] = x * factor"}
"""

ours = catalog_fixture("own_fp8_catalog", SPEC)


def bits_of(array: np.ndarray) -> list[int]:
    return np.asarray(array).view(np.uint8).reshape(-1).tolist()


@pytest.mark.parametrize("word", FP8)
def test_a_store_saturates(ours, word):
    largest = float(ml_dtypes.finfo(ml_dtypes.float8_e4m3fn if word == "e4m3" else ml_dtypes.float8_e5m2).max)
    x = np.array([largest, 2 * largest, np.inf, -np.inf, -1e30, np.nan, -np.nan, -0.0], np.float32)
    most = FP8[word].largest
    assert bits_of(ours.cast(x, dtype=word)) == [most, most, most, most | 128, most | 128, 0x7F, 0x7F, 128]
    d_y = np.linspace(-1000, 1000, 8, dtype=np.float32)  # the gradient of codes has the type of what they came from
    np.testing.assert_array_equal(ours.cast_backward(d_y), d_y)


@pytest.mark.parametrize("word", FP8)
@pytest.mark.parametrize("step", ["1/1000000", "1/100000000000", "1/1000000000000000"])
def test_f64_is_rounded_once(ours, word, step):
    """Beside a tie by less than f32 can tell."""
    ties = [Fraction(17, 16) + Fraction(k, 8) for k in range(16)] + [Fraction(9, 8) + Fraction(k, 4) for k in range(8)]
    x = [encode_fraction(tie + side * Fraction(step), F64) for tie in ties for side in (1, -1, 0)]
    x = np.array(x, np.uint64)
    expected = floats_array.encode(floats_array.decode(x, F64), FP8[word]).tolist()
    assert bits_of(ours.cast(x.view(np.float64), dtype=word)) == expected
    halves = ours.scaled_cast(x.view(np.float64)[None], scale_dtype="f16", limit=1.0)[0]  # f16 from f64 likewise
    rounded = floats_array.encode(floats_array.decode(x, F64), FORMATS["f16"])
    assert halves.view(np.uint16).reshape(-1).tolist() == rounded.tolist()


def test_an_output_is_named_as_it_is_stored(ours):
    x = np.array([[1.06, 3.3, 300]], np.float32)
    scale, y, back = ours.scaled_cast(x)
    assert (scale.dtype, y.dtype) == (np.float32, ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(y.astype(np.float32), [[2.0, 6.5, 24]])
    np.testing.assert_array_equal(back, y.astype(np.float32) * scale)
    scale, y, back = ours.scaled_cast(x, dtype="e5m2", scale_dtype="f16")
    assert (scale.dtype, y.dtype) == (np.float16, ml_dtypes.float8_e5m2)
    np.testing.assert_array_equal(y.astype(np.float32), [[2.0, 7, 24]])
    np.testing.assert_array_equal(back, y.astype(np.float32) * scale.astype(np.float32))
    with pytest.raises(InvalidProblem, match="limit is 25, expected a value of e4m3"):
        ours.scaled_cast(x, limit=25)


def test_a_number_in_the_place_of_an_element(ours):
    x = np.arange(256, dtype=np.uint8)
    y = ours.requantize(x, np.array([2], np.uint8).view(ml_dtypes.float8_e4m3fn), input_dtype="e4m3")
    assert y.dtype == ml_dtypes.float8_e4m3fn
    doubled = ours.requantize(x.view(ml_dtypes.float8_e4m3fn), 2.0).astype(np.float32)
    finite = np.clip(2 * x.view(ml_dtypes.float8_e4m3fn).astype(np.float32), -448, 448)
    np.testing.assert_array_equal(doubled, finite)


@pytest.mark.turns(2)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_kernels_compile(ours, arch):
    kernels = {}
    for sku in registry.skus():
        entry = registry.entry_of(sku)
        if entry.catalog.package == "own_fp8_catalog" and sku.backend is BackendKind.CUDA:
            kernels.setdefault(entry.operation.source, {})[entry.operation.function, entry.variant.kernel] = entry
    for source, found in kernels.items():
        names = [table.entry(entry.operation, entry.types, entry.variant) for entry in found.values()]
        text = next(iter(found.values())).catalog.source(source)
        assert compile_quickly(text, source, names, arch).log == ""


HEAD = "ops:\n  op:\n    types: {T: [f32, f64], %s}\n    inputs: {x: \"T[*shape]\"}\n"


Q_OF_X = 'outputs: {y: "Q[*shape] = x * q"}'


@pytest.mark.parametrize(
    ("types", "rest", "said"),
    [
        ("Q: [e4m3, e5m2]", f"attrs: {{q: Q = 100.3}}\n    {Q_OF_X}", "`100.3` does not fit e4m3"),
        ("Q: [e4m3, e5m2]", f"attrs: {{q: Q = 52}}\n    {Q_OF_X}", "`52.0` does not fit e5m2"),
        ("Q: [e4m3, e5m2]", f"attrs: {{q: T = 1}}\n    {Q_OF_X}", "`T` is not a type of attribute"),
        ("Q: [e4m3, s8]", 'outputs: {y: "Q[*shape] = x"}', "mixes float and int types"),
        ("S: [C, T], Q: [s8, u8]", 'outputs: {y: "S[*shape] = x"}', "`dtype=` can name only one"),
        (
            "Q: [s8], S: [C, T]",
            'attrs: {z_dtype: Q = 1}\n    outputs: {y: "Q[*shape] = z_dtype", z: "S[*shape] = x"}',
            "`z_dtype` is an attribute, and would name the type S",
        ),
    ],
)
def test_mistakes(types, rest, said):
    with pytest.raises(SpecError, match=said):
        specs.loads(f"{HEAD % types}    {rest}\n")


def test_the_first_letter_cannot_be_what_it_is_computed_in():
    row = 'types: {T: [C]}\n    inputs: {x: "T[*shape]"}\n    outputs: {y: "T[*shape] = x"}'
    with pytest.raises(SpecError, match="`C` is not an element type"):
        specs.loads(f"ops:\n  op:\n    {row}\n")


def test_the_formats_are_known_apart():
    assert encode_fraction(Fraction(448), FP8["e4m3"]) == 0x7E and encode_fraction(Fraction(57344), FP8["e5m2"]) == 0x7B
    assert F32.largest == 0x7F7FFFFF  # IEEE's formats are as they were
