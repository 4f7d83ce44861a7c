"""What divisions leave, and their quotients, as the CPU's C++ compiler makes them of remainders.cuh and data.cuh:
NumPy's bits, whatever the estimate of an inverse is that they start from."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from host.functions import compiled
from skuda.reference import formulas, integers

NAMES = {
    "remainder_toward_zero": np.fmod,
    "remainder_floor": formulas.remainder,
    "modulo": integers.modulo,
    "floor_quotient": integers.floor_quotient,
}
INTEGERS = ("modulo", "floor_quotient")
# A GPU's estimate may be a unit off, and is 0 or infinite where it or its argument is subnormal.
ESTIMATES = """
inline float estimate_f32(float s) {
  const float y = 1 / s, size = std::fabs(y);
  if (std::fabs(s) < 0x1p-126f) return std::copysign(INFINITY, s);
  if (!(size >= 0x1p-126f && size < INFINITY)) return std::copysign(size < 1 ? 0 : size, s);
  return __uint_as_float(__float_as_uint(y) + __float_as_uint(s) % 3 - 1);
}
inline double estimate_f64(double s) {
  const double y = 1 / s, size = std::fabs(y);
  if (std::fabs(s) < 0x1p-1022) return std::copysign(INFINITY, s);
  if (!(size >= 0x1p-1022 && size < INFINITY)) return std::copysign(size < 1 ? 0 : size, s);
  return __longlong_as_double(__double_as_longlong(y) & 0xffffffff00000000ll);
}
#define rcp_approx_ftz_f32 estimate_f32
#define rcp_approx_ftz_f64 estimate_f64
"""
TEXT = '#include "remainders.cuh"\n#include "data.cuh"\n' + "".join(f"""
extern "C" void {name}_{C}({C}* value, const {C}* a, const {C}* b, long count) {{
  for (long i = 0; i < count; ++i) value[i] = ::{name}(a[i], b[i]);
}}
""" for C, names in (("f32", NAMES), ("f64", NAMES), ("i64", INTEGERS)) for name in names)  # fmt: skip


@pytest.fixture(scope="module", params=["exact", "estimated"])
def library(request, tmp_path_factory):
    return compiled((ESTIMATES if request.param == "estimated" else "") + TEXT, tmp_path_factory.mktemp("remainders"))


def pairs(C: type) -> tuple[np.ndarray, np.ndarray]:
    """Dividends and divisors: any, with quotients of a few digits, next to multiples and to half multiples, special."""
    generator, count = np.random.default_rng(3), 20_000
    info, kind = np.finfo(C), f"i{np.dtype(C).itemsize}"
    drawn = [generator.integers(np.iinfo(kind).min, np.iinfo(kind).max, count, kind).view(C) for _ in range(3)]
    any_a, b, any_b = (np.where(np.isfinite(each), each, C(3)) for each in drawn)
    usual = b * C(1.5) ** generator.integers(-3, 45, count).astype(C)
    multiple = b * np.exp2(generator.uniform(0, info.nmant + 2, count)).astype(kind).astype(C)
    near = multiple, C(0.5) * multiple
    close = [(each.view(kind) + generator.integers(-2, 3, count, kind)).view(C) for each in near]
    power = np.exp2(np.rint(generator.uniform(info.minexp + 2, info.maxexp - 1, 500))).astype(C)
    special = [0, 1, 3, 2.5, 1e30, info.tiny, info.smallest_subnormal, info.max, np.inf, np.nan, 2.0**info.nmant]
    special = np.array([*special, *(-each for each in special)], C)
    a = [any_a, usual, *close, np.nextafter(C(0.5) * power, C(0)), np.repeat(special, len(special))]
    b = [any_b, b, b, b, power, np.tile(special, len(special))]
    return np.concatenate(a), np.concatenate(b)


@pytest.mark.parametrize("C", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_bits(library, name, C):
    word = {np.float32: "f32", np.float64: "f64"}[C]
    with np.errstate(all="ignore"):
        a, b = pairs(C)
        expected = NAMES[name](a, b)
    got = np.empty_like(a)
    arrays = (ctypes.c_void_p(each.ctypes.data) for each in (got, a, b))
    getattr(library, f"{name}_{word}")(*arrays, ctypes.c_long(len(a)))
    kind = f"u{got.itemsize}"
    wrong = np.flatnonzero(formulas.narrow(got, word).view(kind) != formulas.narrow(expected, word).view(kind))
    assert not len(wrong), [(a[i], b[i], got[i], expected[i]) for i in wrong[:5]]


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_of_every_width(library, name):
    """All pairs of bytes, each end of a width with each, and any numbers of all widths, as Python divides them."""
    ends = [sign * (1 << bits) + off for bits in (7, 8, 15, 16, 31, 32, 62) for sign in (1, -1) for off in (-1, 0, 1)]
    ends = np.array([0, 1, -1, 2, 3, *ends, np.iinfo(np.int64).max, np.iinfo(np.int64).min], np.int64)
    generator = np.random.default_rng(4)
    any_a, any_b = generator.integers(-(1 << 62), 1 << 62, (2, 20_000)) >> generator.integers(0, 62, (2, 20_000))
    bytes_ = np.arange(-128, 256)
    sets = (bytes_, ends)
    a = np.concatenate([any_a, *(np.repeat(each, len(each)) for each in sets)])
    b = np.concatenate([any_b, *(np.tile(each, len(each)) for each in sets)])
    wanted = {"modulo": lambda a, b: a % b, "floor_quotient": lambda a, b: a // b}[name]
    expected = [wanted(x, y) if y else 0 for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    expected = np.array([each - (1 << 64) if each >= 1 << 63 else each for each in expected], np.int64)
    got = np.empty_like(a)
    arrays = (ctypes.c_void_p(each.ctypes.data) for each in (got, a, b))
    getattr(library, f"{name}_i64")(*arrays, ctypes.c_long(len(a)))
    wrong = np.flatnonzero(got != expected)
    assert not len(wrong), [(a[i], b[i], got[i], expected[i]) for i in wrong[:5]]
