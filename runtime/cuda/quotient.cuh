// Division by a value that many elements share: the IEEE quotient at the price of a multiplication.
//
// With y = RN(1 / s) rounded once, q0 = RN(x * y), r = x - s * q0 (exact by FMA) and q = RN(q0 + r * y), q is the IEEE
// quotient as long as nothing over- or underflows on the way (Markstein 1990; Brisebarre, Muller and Raina 2004). The
// `fast` flags say when that is certain; everything else takes the division instruction. Both give the same bits.
#pragma once
#include "numbers.cuh"

template <typename C> struct limits;
template <> struct limits<f32> {
  static constexpr f32 scale_low = 0x1p-60f, scale_high = 0x1p60f;  // a shared divisor outside is divided by
  static constexpr f32 value_low = 0x1p-63f, value_high = 0x1p63f;  // a dividend outside is divided
  static constexpr f32 half_unit = 0x1p-24f;                        // in the last place of 1
};
template <> struct limits<f64> {
  static constexpr f64 scale_low = 0x1p-480, scale_high = 0x1p480;
  static constexpr f64 value_low = 0x1p-500, value_high = 0x1p500;
  static constexpr f64 half_unit = 0x1p-53;
};

__device__ inline f32 divided(f32 x, f32 s) { return __fdiv_rn(x, s); }
__device__ inline f64 divided(f64 x, f64 s) { return __ddiv_rn(x, s); }
__device__ inline f32 fused(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }
__device__ inline f64 fused(f64 a, f64 b, f64 c) { return __fma_rn(a, b, c); }
__device__ inline f32 fused_down(f32 a, f32 b, f32 c) { return __fmaf_rd(a, b, c); }
__device__ inline f64 fused_down(f64 a, f64 b, f64 c) { return __fma_rd(a, b, c); }
// The power of two in a normal number.
__device__ inline f32 exponent(f32 x) { return __uint_as_float(__float_as_uint(x) & 0x7f800000u); }
__device__ inline f64 exponent(f64 x) { return __longlong_as_double(__double_as_longlong(x) & 0x7ff0000000000000ll); }
__device__ inline bool even(f32 x) { return (__float_as_uint(x) & 1) == 0; }
__device__ inline bool even(f64 x) { return (__double_as_longlong(x) & 1) == 0; }
__device__ inline i32 nearest(f32 x) { return __float2int_rn(x); }  // saturates; NaN gives 0
__device__ inline i32 nearest(f64 x) { return is_nan(x) ? 0 : __double2int_rn(x); }

// RN(1 / s) for a safe divisor: the hardware's estimate and steps of Newton, which is what __frcp_rn and __drcp_rn do
// there, without their way out for other divisors. prove_division.py compares the two of f32.
__device__ inline f32 inverse(f32 s) {
  f32 y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(s));
  return fused(fused(-s, y, 1.0f), y, y);
}
__device__ inline f64 inverse(f64 s) {
#ifdef __CUDACC_RTC__
  const f64 start = __nvvm_rcp_approx_ftz_d(s);  // not as assembly, of which compilers share no equal ones
  const u32 low = u32(__double_as_longlong(s) >> 32) + 0x300402u;  // below the estimate's bits, as __drcp_rn has it
  const f64 y = __longlong_as_double(__double_as_longlong(start) | low), e = fused(-s, y, 1.0);
  const f64 near = fused(y, fused(e, e, e), y);
  return fused(near, fused(-s, near, 1.0), near);
#else
  return __drcp_rn(s);
#endif
}

// The square root of a normal number: the hardware's estimate and a Newton step, which is what sqrt does there, without
// its way out for other numbers.
__device__ inline f32 sure_root(f32 x) {
#ifdef __CUDACC_RTC__
  f32 y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  const f32 root = x * y;
  return fused(fused(-root, root, x), 0.5f * y, root);
#else
  return sqrt(x);
#endif
}

// min(x, most), max(x, least) and both: they keep NaN, and are one instruction in f32, or two.
__device__ inline f32 at_most(f32 x, f32 most) {
  f32 y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(most));
  return y;
}
__device__ inline f32 at_least(f32 x, f32 least) {
  f32 y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(least));
  return y;
}
__device__ inline f64 at_most(f64 x, f64 most) { return minimum(x, most); }
__device__ inline f64 at_least(f64 x, f64 least) { return maximum(x, least); }
__device__ inline f32 bounded(f32 x, f32 low, f32 high) { return at_most(at_least(x, low), high); }
__device__ inline f64 bounded(f64 x, f64 low, f64 high) { return clamp(x, low, high); }

// A number, and any other one in place of NaN.
__device__ inline f32 number_or_any(f32 x) { return fminf(x, Format<f32>::highest); }
__device__ inline f64 number_or_any(f64 x) { return is_nan(x) ? 0.0 : x; }

template <typename C> __device__ inline bool safe_divisor(C s) {
  return absolute(s) >= limits<C>::scale_low && absolute(s) <= limits<C>::scale_high;
}

// The general forms are out of line: they are taken for odd parameters only, and would fill the kernels.
template <typename C> __device__ __noinline__ C general_quotient(C x, C s) { return divided(x, s); }
template <typename C> __device__ __noinline__ i64 general_steps(C x, C s, i64 low, i64 high) {
  return clamp(round_to_int(divided(x, s)), low, high);
}
template <typename C> __device__ __noinline__ bool general_inside(C x, C s, i64 low, i64 high) {
  const i64 q = round_to_int(divided(x, s));
  return low <= q && q <= high;
}

// Whether all values of an element type, widened, are in the range of dividends, or 0, infinite or NaN.
template <typename E, bool = Format<E>::real> constexpr bool NARROW = false;
template <typename E>
constexpr bool NARROW<E, true> =
    Format<E>::smallest >= limits<f32>::value_low && Format<E>::highest <= limits<f32>::value_high;

// How an element is computed: in general forms, whatever the shared values are; in fast ones; in fast ones and `within`
// their range, so that not each of them has to look; in those of a group whose elements are `apart`.
enum { GENERAL, FAST_FORM, FAST_WITHIN, FAST_GROUP };

// x / s
template <typename C> struct Divisor {
  C s, y;
  bool fast;

  Divisor() = default;
  __device__ explicit Divisor(C s) : s(s), y(inverse(s)), fast(safe_divisor(s)) {}

  // The scheme itself, for values that nothing on the way takes out of range. Without a remainder q0 is the quotient,
  // and has the right sign if it is 0; the remainder of an infinity or NaN is NaN, and q0 what is wanted.
  __device__ C refined(C x) const {
    const C q0 = x * y, r = fused(-s, q0, x);
    return absolute(r) > C(0) ? fused(r, y, q0) : q0;
  }

  // Whether the scheme holds for a dividend of type E.
  template <typename E> __device__ static bool within(C x) {
    const C size = absolute(x);
    return NARROW<E> || ((size >= limits<C>::value_low || size == C(0)) && size <= limits<C>::value_high);
  }

  template <int FAST, typename E> __device__ C quotient(C x) const {
    return FAST == FAST_WITHIN || (FAST && within<E>(x)) ? refined(x) : general_quotient(x, s);
  }
};

// x / s for s >= 1, where x is 0 or not below 1, or the quotient is rounded to an integer: no step overflows, and a
// quotient whose remainder underflows is rounded to a zero of its sign either way. The remainder has its sign changed
// twice: as s > 0, a quotient of -0 keeps its own. Of an infinity or NaN it is NaN, and any number does, for q0 is what
// is wanted.
template <typename C> struct DivisorFromOne {
  C s, y;
  bool fast;

  DivisorFromOne() = default;
  __device__ explicit DivisorFromOne(C s) : s(s), y(inverse(s)), fast(s >= C(1) && s <= limits<C>::scale_high) {}
  template <int FAST> __device__ C quotient(C x) const {
    if (!FAST) return general_quotient(x, s);
    const C q0 = x * y;
    return fused(-number_or_any(fused(s, q0, -x)), y, q0);
  }
  template <int FAST> __device__ C rounded(C x) const { return rint(quotient<FAST>(x)); }
};

// x / s for any x. Of a power of two the inverse is exact, and a product with it is the quotient.
template <typename C> struct PowerDivisor {
  static constexpr bool fast = true;
  C s, y;
  bool within;

  PowerDivisor() = default;
  __device__ explicit PowerDivisor(C s) : s(s), y(inverse(s)), within(safe_divisor(s) && exponent(s) == absolute(s)) {}
  template <int FAST> __device__ C quotient(C x) const { return FAST == FAST_WITHIN ? x * y : divided(x, s); }
};

// clamp(x, low, high). The hardware's extremes take -0 for less than 0, which comparisons do not.
template <typename C> struct Bounds {
  static constexpr bool fast = true;
  C low, high;
  bool within;

  Bounds() = default;
  __device__ Bounds(C low, C high) : low(low), high(high), within(low != C(0) && high != C(0)) {}
  template <int FAST> __device__ C value(C x) const {
    return FAST == FAST_WITHIN ? bounded(x, low, high) : clamp(x, low, high);
  }
};

// x / s where FAST: for usual numbers and s > 0; where one is unusual, `usual` becomes false and the result is
// anything, so that many quotients share one branch. The remainder has its sign changed twice: a quotient of -0 keeps
// its own.
template <typename C> __device__ inline C quick_quotient(C x, C s, C y, bool& usual) {
  const C size = absolute(x);
  usual &= (s >= limits<C>::scale_low) & (s <= limits<C>::scale_high) & (size <= limits<C>::value_high) &
           ((size >= limits<C>::value_low) | (x == C(0)));
  const C q0 = x * y;
  return fused(-fused(s, q0, -x), y, q0);
}

// 1 / s, and the scheme of quick_quotient, where nothing on the way leaves the range of normal numbers.
template <typename C> __device__ inline C sure_inverse(C s) { return inverse(s); }
template <typename C> __device__ inline C sure_quotient(C x, C s) {
  const C y = inverse(s), q0 = x * y;
  return fused(-fused(s, q0, -x), y, q0);
}

template <int FAST, typename C> __device__ inline C quotient(C x, C s, bool& usual) {
  return FAST ? quick_quotient(x, s, inverse(s), usual) : divided(x, s);
}
template <int FAST, typename C> __device__ inline C quotient(C x, const Divisor<C>& by, bool& usual) {
  return FAST ? quick_quotient(x, by.s, by.y, usual) : general_quotient(x, by.s);
}

// The largest x > 0 whose quotient by s > 0, rounded to C and then to an integer, is at most `bound` >= 0.
//
// With h = bound + 1/2 (exact), the last quotient that rounds to `bound` is h itself where `bound` is even, for ties go
// to even, else the one before h. Next to that quotient, half a unit in the last place beyond, lies the middle m of two
// values of C: what is larger than s m has a larger quotient. s m itself is no value of C, since m has one bit too
// many.
template <typename C> __device__ inline C last_inside(C s, i32 bound) {
  const C h = C(bound) + C(0.5);
  const C half = exponent(h) * limits<C>::half_unit * s;  // exact
  return fused_down(s, h, bound & 1 ? -half : half);
}

// clamp(round_to_int(x / s), low, high), exact whatever the bounds, and whether the rounded quotient lies in them.
template <typename C> struct Steps {
  C s, y;
  C least, most;    // dividends are cut here: beyond, the quotient rounds to a bound or further
  C first, last;    // dividends whose rounded quotient lies in the bounds
  i64 low, high;
  bool fast;

  Steps() = default;
  __device__ Steps(C s, i64 low, i64 high) : s(s), y(inverse(s)), low(low), high(high) {
    fast = safe_divisor(s) && 0 - u64(low) <= 1 << 22 && u64(high) <= 1 << 22;  // 0, the code of NaN, is inside
    const C at_low = C(i32(low)) * s, at_high = C(i32(high)) * s;
    least = s < 0 ? at_high : at_low;
    most = s < 0 ? at_low : at_high;
    const i32 below = s < 0 ? i32(high) : -i32(low), above = s < 0 ? -i32(low) : i32(high);
    first = -last_inside(absolute(s), below);
    last = last_inside(absolute(s), above);
  }

  // The quotient of a dividend cut to RN(low s) .. RN(high s), which are within a relative 2^-24 of the products: the
  // quotients there are within a quarter of the bounds and round to them, so no integer has to be cut any more. A
  // dividend too small for an exact remainder has a quotient that rounds to 0 either way.
  __device__ i32 cut_quotient(C x) const {
    const C cut = bounded(x, least, most), q0 = cut * y;
    return nearest(fused(fused(-s, q0, cut), y, q0));
  }

  template <int FAST> __device__ i64 value(C x) const {
    return FAST ? cut_quotient(x) : general_steps(x, s, low, high);
  }
  template <int FAST> __device__ C real(C x) const {
    return FAST ? C(cut_quotient(x)) : C(general_steps(x, s, low, high));
  }
  template <int FAST> __device__ bool inside(C x) const {
    return FAST ? !(x < first) && !(x > last) : general_inside(x, s, low, high);
  }
};

// clamp(x / s, low, high) for a store to floats of 8 bits, E, of which the bounds are two, below and above 0: the bits
// of what is stored. The dividend is cut to RN(low s) .. RN(high s), whose quotients are within a relative 2^-22 of the
// bounds and are stored as these. Where the quotient is not stored as a zero, nothing over- or underflows on the way.
template <typename C, typename E> struct Saturated {
  C s, y;
  C least, most;
  C low, high;
  bool fast;

  Saturated() = default;
  __device__ Saturated(C s, C low, C high) : s(s), y(inverse(s)), low(low), high(high) {
    fast = safe_divisor(s) && low < 0 && high > 0 && stored<E>(low) == low && stored<E>(high) == high;
    least = (s < 0 ? high : low) * s;
    most = (s < 0 ? low : high) * s;
  }

  template <int FAST> __device__ C value(C x) const {
    if (!FAST) return clamp(general_quotient(x, s), low, high);
    const C cut = bounded(x, least, most), q0 = cut * y;
    return copysign(fused(fused(-s, q0, cut), y, q0), q0);  // the remainder of a zero has another sign
  }
};

// |x / s| <= bound. The last dividend inside is found as `last_inside` does, for a bound whose last bit is 0: the
// quotient is rounded to the bound up to half a unit beyond.
template <typename C> struct Magnitude {
  C s, bound, last;
  bool fast;

  Magnitude() = default;
  __device__ Magnitude(C s, C bound) : s(s), bound(bound) {
    fast = safe_divisor(s) && bound >= C(0x1p-30) && bound <= C(0x1p30) && even(bound);
    last = fused_down(absolute(s), bound, exponent(bound) * limits<C>::half_unit * absolute(s));
  }

  template <int FAST> __device__ bool inside(C x) const {
    return absolute(FAST ? x : general_quotient(x, s)) <= (FAST ? last : bound);
  }
};

// x - h of integers as a real, rounded once, where x is narrow.
template <typename C> struct Offset {
  C real_h;
  i64 h;
  bool fast;

  Offset() = default;
  __device__ explicit Offset(i64 h) : real_h(C(i32(h))), h(h), fast(h >= -(1 << 22) && h <= (1 << 22)) {}

  template <int FAST> __device__ C difference(i64 x) const {
    return FAST ? C(i32(x)) - real_h : C(x - h);
  }
};
