"""Operations of one's own over small floats: what is stored and read on the CPU, by oracles that list all values."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from catalogs import catalog_fixture
from quick_compiler import compile_quickly
from small_float_calls import E8M0, SPEC, STORAGE, STORES, codes_of, held, pack, patterns, stored

from oracles import small_floats
from oracles.floats import FORMATS, NAN, compute_format, encode, multiply, rounded
from skuda.codegen import element_types
from skuda.errors import ElementMismatch
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.schedules import table
from skuda.schedules.variant import STRIDED, VEC

PACKAGE = "own_types_catalog"

ours = catalog_fixture(PACKAGE, SPEC)


@pytest.mark.turns(3)
@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("name", STORES)
def test_a_store_takes_the_nearest(ours, name, element):
    bits = patterns(STORES[name], element)
    output = getattr(ours, name)(bits.view(STORAGE[element]))
    assert output.dtype == DTYPES[STORES[name]].storage
    np.testing.assert_array_equal(output.view(np.uint8), stored(bits, FORMATS[element], STORES[name]))


@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("word", small_floats.SIZES)
def test_every_code_is_read(ours, word, element):
    """Times every scale where the codes are few, else times every fifth."""
    form, wide, codes = FORMATS[element], compute_format(element), codes_of(word)
    scales = codes_of("e8m0")[:: 1 if len(codes) <= 64 else 5]
    products = [
        [multiply(small_floats.decode(code, word), small_floats.decode(scale, "e8m0"), wide) for code in codes.tolist()]
        for scale in scales.tolist()
    ]
    expected = np.array([[encode(each, form) for each in row] for row in products], f"u{form.bits // 8}")
    given = np.tile(held(codes, word), (len(scales), 1))
    for scale in (scales.view(E8M0), scales):  # CuPy has no arrays of e8m0: they may travel as bytes
        options = {"shape": expected.shape} if DTYPES[word].packed else {}
        output = getattr(ours, f"{word}_read")(given, scale, dtype=element, input_dtype=word, **options)
        np.testing.assert_array_equal(output.view(expected.dtype), expected)


@pytest.mark.parametrize("word", small_floats.SIZES)
def test_one_element_as_an_array_and_as_a_number(ours, word):
    x = np.array([1.0, -3.0, 0.0], np.float32)
    for code in codes_of(word):
        value = small_floats.decode(int(code), word)
        number = np.float32(-value.magnitude if value.negative else value.magnitude) if value is not NAN else np.nan
        number = np.copysign(number, -1.0 if value.negative else 1.0)
        array = np.array(code).view(DTYPES[word].storage)
        for factor in (array, float(number)):
            with np.errstate(over="ignore"):
                expected = x * np.float32(number)
            np.testing.assert_array_equal(getattr(ours, f"{word}_product")(x, factor), expected)


def test_a_scale_of_another_type(ours):
    codes = np.array([[0x21, 0x0F]], np.uint8)  # 0.5, 1, -6
    output = ours.e2m1_read(codes, np.array([1.5], np.float16), shape=(1, 3))
    np.testing.assert_array_equal(output, np.array([[0.75, 1.5, -9]], np.float16))
    with pytest.raises(ElementMismatch, match="input is e2m1, which travels as uint8"):
        ours.e2m1_read(codes.view(np.int8), np.ones(1, np.float32), input_dtype="e2m1")


def test_ml_dtypes_stores_the_same_where_it_has_the_same_rules(ours):
    x = np.random.default_rng(3).normal(0, 4, 10000).astype(np.float32)
    x[:5] = 0.25, 0.75, 5, -5, -0.0
    np.testing.assert_array_equal(ours.e2m1_store(x), pack(x.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)))
    x = np.ldexp(np.where(x == 0, 1, x), np.arange(len(x)) % 240 - 120)
    np.testing.assert_array_equal(ours.e8m0_store(x).view(np.uint8), x.astype(E8M0).view(np.uint8))


@pytest.mark.parametrize("word", small_floats.SIZES)
def test_the_table_says_what_the_lists_do(word):
    row, sizes = DTYPES[word], small_floats.SIZES[word]
    positive = [size for size in sizes if size]
    assert (row.smallest, row.highest) == (positive[0], positive[-1])
    assert row.lowest == (-positive[-1] if word in small_floats.SIGN else positive[0])
    assert all(row.holds(float(size)) for size in sizes[:: max(1, len(sizes) // 20)])
    assert not row.holds(float(positive[-1]) * 0.9)
    numbers = [0.3, 1.2, 1.5, 2.5, 100.0, 3e38]
    wanted = [rounded(small_floats.decode(small_floats.encode(_value(x), word), word), FORMATS["f32"]) for x in numbers]
    assert [row.number(x) for x in numbers] == [float(each.magnitude) for each in wanted]


def _value(x: float):
    return small_floats.Value("finite", x < 0, small_floats.Fraction(abs(x)))


def test_the_header_is_what_the_table_makes(tmp_path, monkeypatch, capsys):
    assert not element_types.stale()
    monkeypatch.setattr(element_types, "header", lambda apart=False: tmp_path / f"{apart}.cuh")
    assert element_types.stale()
    element_types.bring_up_to_date()
    assert not element_types.stale() and "written from the table of types" in capsys.readouterr().out


@pytest.mark.turns(3)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_kernels_compile(ours, arch):
    """Vectors and single elements; the other schedules run on the host."""
    kernels = {}
    for sku in registry.skus():
        entry = registry.entry_of(sku)
        if entry.catalog.package == PACKAGE and entry.variant in (VEC, STRIDED):
            kernels.setdefault(entry.operation.source, {})[entry.variant.kernel] = entry
    assert len(kernels) == 3 * len(small_floats.SIZES)
    for source, found in kernels.items():
        names = [table.entry(entry.operation, entry.types, entry.variant) for entry in found.values()]
        text = next(iter(found.values())).catalog.source(source)
        assert compile_quickly(text, source, names, arch).log == ""
