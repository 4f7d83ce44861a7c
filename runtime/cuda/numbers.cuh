// Element types, their widening to the compute type and their one narrowing at the store.
// Conversions are spelled in PTX, so that no CUDA header is needed and a kernel compiles in tens of milliseconds.
#pragma once

using s8 = signed char;
using u8 = unsigned char;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;
using f32 = float;
using f64 = double;

// What is known of an element type: `Format` of it. A float's fields are a sign, an exponent and a mantissa. Without
// infinities the largest exponent is one as others; a NaN, if there is one, has all bits but the sign set.
template <typename Stored, typename Compute, int BITS> struct FloatFormat {
  using storage = Stored;
  using compute = Compute;
  static constexpr int bits = BITS;
  static constexpr bool real = true;
};
template <typename Stored, typename Compute, int BITS, bool SIGN> struct ExactFormat {
  using storage = Stored;
  using compute = Compute;
  static constexpr int bits = BITS;
  static constexpr bool real = false, has_sign = SIGN;
  static constexpr Compute smallest = 1;
};
template <typename E> struct Format : ExactFormat<E, i64, 8 * int(sizeof(E)), true> {};  // of what is no element type
#include "types.cuh"

// What an element is computed in: f32 for narrower floats and f32, f64 for f64, an exact 64-bit integer for codes.
template <typename E> using compute_t = typename Format<E>::compute;

// What an element is stored in.
template <typename E> using storage_t = typename Format<E>::storage;
template <typename E> struct storage { static constexpr int bits = Format<E>::bits; };

// The least positive value of a type, of floats subnormal.
template <typename E> constexpr compute_t<E> smallest = Format<E>::smallest;

// Whether it is a float of at most 8 bits: small_floats.cuh.
template <typename E> constexpr bool small_float = Format<E>::real && Format<E>::bits <= 8;

__device__ inline i64 widen(s8 x) { return x; }
__device__ inline i64 widen(u8 x) { return x; }
__device__ inline i64 widen(i32 x) { return x; }
__device__ inline i64 widen(i64 x) { return x; }
__device__ inline bool widen(bool x) { return x; }
__device__ inline f32 widen(f32 x) { return x; }
__device__ inline f64 widen(f64 x) { return x; }
__device__ inline f32 widen(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }
__device__ inline f32 widen(f16 x) {
  f32 y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

// f64 as f32, where the last bit is 1 if something was lost: rounded again to fewer bits, it is as if rounded once.
__device__ inline f32 to_odd(f64 x) {
  const f32 y = __double2float_rz(x);
  return __uint_as_float(__float_as_uint(y) | (f64(y) != x ? 1u : 0u));
}

// A NaN is stored as the canonical one of its type, sign clear and all other bits set, so that every kernel and the
// reference write the same bits. The conversions to narrower types do that by themselves, and so does the smaller of
// f32.
template <typename E, bool SMALL = small_float<E>> struct narrow_to {
  __device__ static E from(i64 x) { return E(x); }
};
template <> struct narrow_to<bool> {
  __device__ static bool from(bool x) { return x; }
};
template <> struct narrow_to<f32> {
  __device__ static f32 from(f32 x) {
    f32 y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(__int_as_float(0x7f800000)));
    return y;
  }
};
template <> struct narrow_to<f64> {
  __device__ static f64 from(f64 x) {
    const i64 bits = __double_as_longlong(x);
    return __longlong_as_double((bits & 0x7fffffffffffffffll) > 0x7ff0000000000000ll ? 0x7fffffffffffffffll : bits);
  }
};
template <> struct narrow_to<f16> {
  __device__ static f16 from(f32 x) {
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
  }
  __device__ static f16 from(f64 x) { return from(to_odd(x)); }
};
template <> struct narrow_to<bf16> {
  __device__ static bf16 from(f32 x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
  }
  __device__ static bf16 from(f64 x) { return from(to_odd(x)); }
};

// A value as an output holds it.
template <typename E, typename V> __device__ inline V stored(V value) { return V(widen(narrow_to<E>::from(value))); }

// Functions of the formula language that CUDA does not have, or has with another rule at NaN.
__device__ inline bool is_nan(f32 x) { return x != x; }
__device__ inline bool is_nan(f64 x) { return x != x; }
__device__ inline bool is_inf(f32 x) { return fabsf(x) == __int_as_float(0x7f800000); }
__device__ inline bool is_inf(f64 x) { return fabs(x) == __longlong_as_double(0x7ff0000000000000ll); }
__device__ inline bool is_finite(f32 x) { return fabsf(x) < __int_as_float(0x7f800000); }
__device__ inline bool is_finite(f64 x) { return fabs(x) < __longlong_as_double(0x7ff0000000000000ll); }
__device__ inline bool is_nan(i64) { return false; }
__device__ inline bool is_nan(i32) { return false; }

template <typename V> __device__ inline V minimum(V a, V b) { return a < b || is_nan(a) ? a : b; }
template <typename V> __device__ inline V maximum(V a, V b) { return a > b || is_nan(a) ? a : b; }
template <typename V> __device__ inline V minimum_number(V a, V b) { return a < b || is_nan(b) ? a : b; }
template <typename V> __device__ inline V maximum_number(V a, V b) { return a > b || is_nan(b) ? a : b; }
template <typename V> __device__ inline V weighted(V x, V weight) { return weight == 0 ? V(0) : x * weight; }
template <typename V> __device__ inline V clamp(V x, V low, V high) { return minimum(maximum(x, low), high); }
template <typename V> __device__ inline V absolute(V x) { return x < 0 ? -x : x; }
__device__ inline f32 absolute(f32 x) { return fabsf(x); }
__device__ inline f64 absolute(f64 x) { return fabs(x); }
template <typename V> __device__ inline V sign(V x) { return x > 0 ? V(1) : x < 0 ? V(-1) : x; }
template <typename V> __device__ inline V remainder_floor(V a, V b) {
  const V r = fmod(a, b);
  return r != 0 ? ((r < 0) != (b < 0) ? r + b : r) : copysign(r, b);
}

// Both values are computed: a branch for each element would keep neighbours from being computed side by side.
template <typename V> __device__ inline V chosen(bool first, V a, V b) { return first ? a : b; }

template <typename C> __device__ inline C to_real(i64 x) { return C(x); }

// Nearest integer, ties to even, saturating at +-2^53; NaN gives 0.
__device__ inline i64 round_to_int(f32 x) {
  return is_nan(x) ? 0 : __float2ll_rn(fminf(fmaxf(x, -9007199254740992.0f), 9007199254740992.0f));
}
__device__ inline i64 round_to_int(f64 x) {
  return is_nan(x) ? 0 : __double2ll_rn(fmin(fmax(x, -9007199254740992.0), 9007199254740992.0));
}
