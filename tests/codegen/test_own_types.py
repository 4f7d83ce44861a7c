"""Operations of one's own over e2m1 and e8m0: what is stored and read on the CPU, by oracles that list all values."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from catalogs import forget_catalog, make_catalog
from small_float_calls import E8M0, SPEC, STORAGE, STORES, pack, patterns, stored

from oracles import small_floats
from oracles.floats import FORMATS, compute_format, encode, multiply, rounded
from skuda import dispatch, schedules
from skuda.codegen import element_types
from skuda.compile import compile_cubin
from skuda.dtypes import DTYPES
from skuda.errors import ElementMismatch
from skuda.sku import BackendKind

PACKAGE = "own_types_catalog"


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    module = make_catalog(tmp_path_factory.mktemp("own_types"), PACKAGE, SPEC)
    yield module
    forget_catalog(module)


@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("name", STORES)
def test_a_store_takes_the_nearest(ours, name, element):
    bits = patterns(STORES[name], element)
    output = getattr(ours, name)(bits.view(STORAGE[element]))
    assert output.dtype == (np.uint8 if name == "to_fp4" else E8M0)
    np.testing.assert_array_equal(output.view(np.uint8), stored(bits, FORMATS[element], STORES[name]))


@pytest.mark.parametrize("element", FORMATS)
def test_every_code_times_every_scale(ours, element):
    form, wide = FORMATS[element], compute_format(element)
    codes = np.arange(16, dtype=np.uint8)
    expected = [
        [
            encode(multiply(small_floats.decode(code, "e2m1"), small_floats.decode(scale, "e8m0"), wide), form)
            for code in range(16)
        ]
        for scale in range(256)
    ]
    scales = np.arange(256, dtype=np.uint8)
    for given in (scales.view(E8M0), scales):  # CuPy has no arrays of e8m0: they may travel as bytes
        output = ours.from_fp4(np.tile(pack(codes), (256, 1)), given, dtype=element)
        np.testing.assert_array_equal(output.view(f"u{form.bits // 8}"), np.array(expected, f"u{form.bits // 8}"))
    for code in codes:  # one element as an array, and as a number
        column = [each[code] for each in expected]
        value = small_floats.decode(int(code), "e2m1")
        for factor in (np.array(code), (-1.0 if value.negative else 1.0) * float(value.magnitude)):
            output = ours.from_power(scales.view(E8M0), factor, dtype=element)
            np.testing.assert_array_equal(output.view(f"u{form.bits // 8}"), np.array(column, f"u{form.bits // 8}"))


def test_a_scale_of_another_type(ours):
    codes = np.array([[0x21, 0x0F]], np.uint8)  # 0.5, 1, -6
    output = ours.from_fp4(codes, np.array([1.5], np.float16), shape=(1, 3))
    np.testing.assert_array_equal(output, np.array([[0.75, 1.5, -9]], np.float16))
    with pytest.raises(ElementMismatch, match="input is e2m1, which travels as uint8"):
        ours.from_fp4(codes.view(np.int8), np.ones(1, np.float32), input_dtype="e2m1")


def test_ml_dtypes_stores_the_same_where_it_has_the_same_rules(ours):
    x = np.random.default_rng(3).normal(0, 4, 10000).astype(np.float32)
    x[:5] = 0.25, 0.75, 5, -5, -0.0
    np.testing.assert_array_equal(ours.to_fp4(x), pack(x.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)))
    x = np.ldexp(np.where(x == 0, 1, x), np.arange(len(x)) % 240 - 120)
    np.testing.assert_array_equal(ours.to_power(x).view(np.uint8), x.astype(E8M0).view(np.uint8))


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
    monkeypatch.setattr(element_types, "header", lambda: tmp_path / "types.cuh")
    assert element_types.stale()
    element_types.bring_up_to_date()
    assert not element_types.stale() and "written from the table of types" in capsys.readouterr().out


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_kernels_compile(ours, arch):
    """One of each schedule, for the narrowest T."""
    kernels = {}
    for sku in dispatch.skus():
        entry = dispatch.entry_of(sku)
        if entry.catalog.package == PACKAGE and sku.backend is BackendKind.CUDA and entry.types["T"] == "f16":
            kernels.setdefault(entry.operation.source, {})[entry.variant.kernel] = entry
    assert len(kernels) == 4
    for source, found in kernels.items():
        names = [schedules.entry(entry.operation, entry.types, entry.variant) for entry in found.values()]
        text = next(iter(found.values())).catalog.source(source)
        assert compile_cubin(text, source, names, arch).log == ""
