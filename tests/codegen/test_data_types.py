"""Integers and booleans as data: beside PyTorch's arithmetic, at the ends of the types, and bytes of booleans."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from catalogs import catalog_fixture

import skuda
from skuda.generated import CATALOG
from skuda.model.dtypes import DTYPES, word_of

INTEGERS = ("s8", "u8", "i16", "i32", "i64")  # those that PyTorch computes with
PACKAGE = "data_types"
PAIRS = {(a, b): word_of(torch.result_type(*(torch.zeros(1, dtype=getattr(torch, DTYPES[each].element.name))
                                             for each in (a, b)))) for a, b in product(INTEGERS, repeat=2)}  # fmt: skip
SIGNS = {"total": "+", "less": "-", "times": "*"}
SPEC = "ops:\n" + "".join(
    f"  of_{a}_and_{b}_made:\n    inputs: {{a: '{a}[*n]', b: '{b}[*n]'}}\n    outputs:\n"
    + "".join(f"      {name}: {word}[*n] = wrap(a {sign} b)\n" for name, sign in SIGNS.items())
    for (a, b), word in PAIRS.items()
)
MIXED = """\
ops:
  mean_of_two:
    types: {T: [f32, f16, i64, i32, s8]}
    inputs: {a: "T[*n]", b: "T[*n]"}
    outputs: {y: "T[*n] = (a + b) // 2"}
  stored_twice:
    types: {T: [f32, i32, u32, s8]}
    inputs: {a: "T[*n]"}
    outputs: {total: "T[*n] = a + a", half: "T[*n] = total // 2"}
  largest:
    types: {T: [f32, u32, i16]}
    inputs: {a: "T[*n, d]"}
    outputs: {y: "T[*n] = max(a, over=d) - min(a, over=d)"}
  any_of:
    inputs: {a: "bool[*n, d]"}
    outputs: {y: "bool[*n] = any(a, over=d)", z: "bool[*n] = all(not a, over=d)"}
  exclusive:
    inputs: {a: "bool[*n]", b: "i32[*n]"}
    outputs: {y: "bool[*n] = a ^ (b % 3 == 1) | ~a"}
"""


catalog = catalog_fixture(PACKAGE, SPEC + MIXED.removeprefix("ops:\n"))


def patterns(word: str, seed: int, count: int = 500) -> np.ndarray:
    """Integers of every magnitude, the ends of the type among them."""
    rng, dtype = np.random.default_rng(seed), DTYPES[word].element
    if word == "bool":
        return rng.random(count) < 0.5
    found = np.frombuffer(rng.bytes(count * dtype.itemsize), dtype)
    found = found >> rng.integers(0, DTYPES[word].bits, count).astype(dtype)
    ends = [DTYPES[word].lowest, DTYPES[word].highest, 0, 1, DTYPES[word].highest - 1]
    return np.concatenate([np.repeat(np.array(ends, dtype), 5), np.tile(np.array(ends, dtype), 5), found])


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_sums_and_products_have_the_bits_of_pytorch_in_its_type(catalog, a, b):
    x, y = patterns(a, 1), patterns(b, 2)[: len(patterns(a, 1))]
    made = getattr(catalog, f"of_{a}_and_{b}_made")(x, y)
    for ours, theirs in zip(made, (torch.add, torch.sub, torch.mul), strict=True):
        wanted = theirs(torch.from_numpy(x.copy()), torch.from_numpy(y.copy())).numpy()
        assert ours.dtype == wanted.dtype
        np.testing.assert_array_equal(ours, wanted)


BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "minimum": torch.minimum, "maximum": torch.maximum,
    "eq": torch.eq, "ne": torch.ne, "gt": torch.gt, "ge": torch.ge, "lt": torch.lt, "le": torch.le,
    "logical_and": torch.logical_and, "logical_or": torch.logical_or, "logical_xor": torch.logical_xor,
    "bitwise_and": torch.bitwise_and, "bitwise_or": torch.bitwise_or, "bitwise_xor": torch.bitwise_xor,
    "bitwise_left_shift": torch.bitwise_left_shift, "bitwise_right_shift": torch.bitwise_right_shift,
    "floor_divide": torch.floor_divide, "remainder": torch.remainder,
}  # fmt: skip
UNARY = {"neg": torch.neg, "abs": torch.abs, "sign": torch.sign, "bitwise_not": torch.bitwise_not}
UNARY["logical_not"] = torch.logical_not


def taking(name: str) -> list[str]:
    """The integer types, and bool, of an operation."""
    words = CATALOG.own_plans(name)[0].operation.words_of("T")
    return [word for word in words if word in (*INTEGERS, "bool")]


@pytest.mark.parametrize("name", BINARY)
def test_operations_of_two_are_pytorchs(name):
    """On tensors, whose type the result has."""
    for word in taking(name):
        x, y = patterns(word, 3), np.roll(patterns(word, 4), 7)
        if name in ("floor_divide", "remainder"):  # PyTorch raises an error at 0, and traps at the least by -1
            y = np.where((y == 0) | (y == -1), 3, y).astype(y.dtype)
        tensors = [torch.from_numpy(each.copy()) for each in (x, y)]
        ours, theirs = getattr(skuda, name)(*tensors), BINARY[name](*tensors)
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs), word


@pytest.mark.parametrize("name", UNARY)
def test_operations_of_one_are_pytorchs(name):
    for word in taking(name):
        tensor = torch.from_numpy(patterns(word, 5).copy())
        assert torch.equal(getattr(skuda, name)(tensor), UNARY[name](tensor)), word


def test_division_of_reals_is_pytorchs():
    rng = np.random.default_rng(6)
    for dtype in (np.float32, np.float64):
        special = np.array([0.0, -0.0, 1, -1, 3.5, -3.5, np.inf, -np.inf, np.nan, 1e5, 1e-5], dtype)
        x, y = (each.reshape(-1) for each in np.meshgrid(special, special))
        x = np.concatenate([x, rng.normal(0, 100, 5000).astype(dtype)])
        y = np.concatenate([y, rng.normal(0, 3, 5000).astype(dtype)])
        for name in ("floor_divide", "remainder"):
            ours = getattr(skuda, name)(x, y)
            theirs = getattr(torch, name)(torch.from_numpy(x), torch.from_numpy(y)).numpy()
            same = (ours == theirs) | np.isnan(ours) & np.isnan(theirs)
            if name == "floor_divide":  # a zero that is left has the divisor's sign here, as NumPy's
                same &= (np.signbit(ours) == np.signbit(theirs)) | np.isnan(ours)
            assert same.all(), (name, x[~same], y[~same], ours[~same], theirs[~same])


@pytest.mark.parametrize("word", [*INTEGERS, "u32"])
def test_what_has_no_result_elsewhere(word):
    dtype, bits = DTYPES[word].element, DTYPES[word].bits
    low, high = DTYPES[word].lowest, DTYPES[word].highest
    values = np.array([low, high, 1, 0], dtype)
    zeros = np.zeros_like(values)
    assert not skuda.floor_divide(values, zeros).any()
    assert not skuda.remainder(values, zeros).any()
    if DTYPES[word].signed:
        least, minus = np.array([low], dtype), np.array([-1], dtype)
        for made in (skuda.floor_divide(least, minus), skuda.neg(least), skuda.abs(least), skuda.mul(least, minus)):
            assert made.tolist() == [low]
        assert skuda.remainder(least, minus).tolist() == [0]
        assert skuda.bitwise_right_shift(least, minus).tolist() == [-1]  # by less than none
        assert skuda.bitwise_left_shift(np.array([1], dtype), minus).tolist() == [0]
    for by in (bits, bits + 1, 100):
        assert not skuda.bitwise_left_shift(values, np.full_like(values, by)).any()
        assert skuda.bitwise_right_shift(values, np.full_like(values, by)).tolist() == [-(low < 0), 0, 0, 0]
    assert skuda.popcount(values).tolist() == [int(low < 0), bits - (low < 0), 1, 0]
    assert skuda.clz(values).tolist() == [0 if low < 0 else bits, int(low < 0), bits - 1, bits]


@pytest.mark.parametrize("word", [*INTEGERS, "u32"])
def test_sums_and_products_of_rows_wrap_at_64_bits(word):
    values = np.tile(patterns(word, 8), 3)
    exact = [int(each) for each in values]
    lowest = lambda value: (value + (1 << 63)) % (1 << 64) - (1 << 63)  # noqa: E731
    odd = np.array([each | 1 for each in exact]).astype(values.dtype)
    product_ = 1
    for each in odd.tolist():
        product_ *= each
    assert skuda.sum_of_integers(values) == lowest(sum(exact))
    assert skuda.prod_of_integers(odd) == lowest(product_)
    assert skuda.sum_of_integers(values).dtype == skuda.prod_of_integers(odd).dtype == np.int64
    assert skuda.sum_of_integers(values[:0]) == 0
    assert skuda.prod_of_integers(values[:0]) == 1


def test_any_byte_but_0_is_a_true_boolean(catalog):
    flags = np.array([0, 1, 2, 128, 255], np.uint8).view(np.bool_)
    assert skuda.logical_not(flags).view(np.uint8).tolist() == [1, 0, 0, 0, 0]
    assert skuda.bitwise_not(flags).view(np.uint8).tolist() == [1, 0, 0, 0, 0]
    assert skuda.eq(flags, np.ones(5, bool)).tolist() == [False, True, True, True, True]
    assert skuda.where(flags, flags, ~np.zeros(5, bool)).view(np.uint8).tolist() == [1] * 5
    assert [each.tolist() for each in catalog.any_of(flags[None])] == [[True], [False]]


def test_a_formula_wraps_once_at_the_store(catalog):
    a, b = (np.array(each, np.int8) for each in ([127, -128, 3], [127, -128, 4]))
    assert catalog.mean_of_two(a, b).tolist() == [127, -128, 3]
    assert catalog.mean_of_two(a.astype(np.float32), b.astype(np.float32)).tolist() == [127, -128, 3]
    assert [each.tolist() for each in catalog.stored_twice(a)] == [[-2, 0, 6], [-1, 0, 3]]  # as it is stored
    wide = np.array([2**31, 2**32 - 1], np.uint32)
    assert [each.tolist() for each in catalog.stored_twice(wide)] == [[0, 2**32 - 2], [0, 2**31 - 1]]
    assert catalog.largest(np.array([[1, 2**32 - 1]], np.uint32)).tolist() == [2**32 - 2]
    assert catalog.largest(np.array([[-32768, 32767]], np.int16)).tolist() == [-1]


def test_booleans_have_the_signs_of_bits(catalog):
    a, b = np.array([True, True, False, False]), np.array([1, 2, 1, 2], np.int32)
    assert catalog.exclusive(a, b).tolist() == [False, True, True, True]


def test_operands_that_are_spread_need_no_copy():
    """A view with strides of 0, as NumPy's and PyTorch's broadcasting makes it, is an array like any other."""
    row, column = np.arange(4, dtype=np.int16), np.arange(3, dtype=np.int16)[:, None]
    made = skuda.sub(*np.broadcast_arrays(row, column))
    np.testing.assert_array_equal(made, row - column)
