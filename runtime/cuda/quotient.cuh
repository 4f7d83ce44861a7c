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
  static constexpr f32 integer = 0x1.8p23f;                         // added and subtracted: rounds to an integer
};
template <> struct limits<f64> {
  static constexpr f64 scale_low = 0x1p-480, scale_high = 0x1p480;
  static constexpr f64 value_low = 0x1p-500, value_high = 0x1p500;
  static constexpr f64 integer = 0x1.8p52;
};

__device__ inline f32 inverse(f32 s) { return __frcp_rn(s); }
__device__ inline f64 inverse(f64 s) { return __drcp_rn(s); }
__device__ inline f32 divided(f32 x, f32 s) { return __fdiv_rn(x, s); }
__device__ inline f64 divided(f64 x, f64 s) { return __ddiv_rn(x, s); }
__device__ inline f32 fused(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }
__device__ inline f64 fused(f64 a, f64 b, f64 c) { return __fma_rn(a, b, c); }
__device__ inline i32 nearest(f32 x) { return __float2int_rn(x); }  // saturates; NaN gives 0
__device__ inline i32 nearest(f64 x) { return is_nan(x) ? 0 : __double2int_rn(x); }

// min(max(x, low), high) that keeps NaN, one instruction each.
__device__ inline f32 bounded(f32 x, f32 low, f32 high) {
  f32 y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(low));
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(y), "f"(high));
  return y;
}
__device__ inline f64 bounded(f64 x, f64 low, f64 high) { return clamp(x, low, high); }

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

// x / s
template <typename C> struct Divisor {
  C s, y;
  bool fast;

  Divisor() = default;
  __device__ explicit Divisor(C s) : s(s), y(inverse(s)), fast(safe_divisor(s)) {}

  // The scheme itself, for values that nothing on the way takes out of range.
  __device__ C refined(C x) const {
    const C q0 = x * y;
    return fused(fused(-s, q0, x), y, q0);
  }

  template <bool FAST> __device__ C quotient(C x) const {
    if (!FAST) return general_quotient(x, s);
    const C size = absolute(x);
    if (size >= limits<C>::value_low && size <= limits<C>::value_high) return refined(x);
    return size == C(0) ? x * y : general_quotient(x, s);
  }
};

// clamp(round_to_int(x / s), low, high), exact whatever the bounds, and whether the rounded quotient lies in them.
template <typename C> struct Steps {
  C s, y, below, above;  // below and above: one beyond the bounds, where a quotient may be cut without being changed
  i64 low, high;
  bool fast;

  Steps() = default;
  __device__ Steps(C s, i64 low, i64 high)
      : s(s), y(inverse(s)), below(C(i32(low) - 1)), above(C(i32(high) + 1)), low(low), high(high),
        fast(safe_divisor(s) && low >= -(1 << 22) && high <= (1 << 22)) {}

  // Cut before the remainder is taken, so that an infinite x is not turned into NaN. A dividend too small for an exact
  // remainder has a quotient that rounds to 0 either way.
  __device__ C cut_quotient(C x) const {
    const C q0 = bounded(x * y, below, above);
    return fused(fused(-s, q0, x), y, q0);
  }

  template <bool FAST> __device__ i64 value(C x) const {
    if (!FAST) return general_steps(x, s, low, high);
    const i32 q = nearest(cut_quotient(x));
    return min(max(q, i32(low)), i32(high));
  }

  template <bool FAST> __device__ C real(C x) const {
    if (!FAST) return C(value<false>(x));
    const C rounded = (cut_quotient(x) + limits<C>::integer) - limits<C>::integer;
    return is_nan(rounded) ? C(clamp(i32(0), i32(low), i32(high))) : bounded(rounded, C(i32(low)), C(i32(high)));
  }

  template <bool FAST> __device__ bool inside(C x) const {
    if (!FAST) return general_inside(x, s, low, high);
    const i32 q = nearest(cut_quotient(x));
    return i32(low) <= q && q <= i32(high);
  }
};

// x - h of integers as a real, rounded once, where x is narrow.
template <typename C> struct Offset {
  C real_h;
  i64 h;
  bool fast;

  Offset() = default;
  __device__ explicit Offset(i64 h) : real_h(C(i32(h))), h(h), fast(h >= -(1 << 22) && h <= (1 << 22)) {}

  template <bool FAST> __device__ C difference(i64 x) const {
    return FAST ? C(i32(x)) - real_h : C(x - h);
  }
};
