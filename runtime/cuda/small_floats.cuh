// Floats of at most 8 bits, by what types.cuh says of them. A value is stored as the nearest element, ties to even.
// What is beyond the largest finite element, infinities too, is stored as that, and so is a NaN where the type has
// none. The same bits on every GPU: by its instructions, or by integers where it has none.
#pragma once
#include "numbers.cuh"

#if __CUDA_ARCH__ >= 890
#define SKUDA_HAS_FP8 1
#else
#define SKUDA_HAS_FP8 0
#endif

// The fields of a code, in its lowest bits.
template <typename E> struct Fields : Format<E> {
  using F = Format<E>;
  static constexpr int bias = (1 << (F::exponent - 1)) - 1, size_bits = F::exponent + F::mantissa;
  static constexpr u32 size = (1u << size_bits) - 1, sign = F::has_sign ? 1u << size_bits : 0u;
};

// ---- without instructions ----

template <typename E> __device__ inline u32 nearest_code(f32 x) {
  using F = Fields<E>;
  constexpr int lost = 23 - F::mantissa, bias = F::bias;
  const f32 size = fminf(fabsf(x), F::highest);
  const u32 bits = __float_as_uint(size);
  u32 code;
  if constexpr (F::mantissa == 0) {  // a power of two, ties up; there is no zero. 2^-126 is the least normal f32
    static_assert(F::exponent == 8);
    code = bits < 1u << 23 ? u32(bits >= 3u << 21) : (bits + (1u << 22)) >> 23;
  } else {
    const u32 normal =
        ((bits + (1u << (lost - 1)) - 1 + (bits >> lost & 1)) >> lost) - ((127u - bias) << F::mantissa);
    // Below the normal numbers: the sum with a number whose last place is the least element is rounded as wanted.
    const f32 coarse = __uint_as_float((127u + 1 - bias + lost) << 23);
    const u32 subnormal = __float_as_uint(size + coarse) - __float_as_uint(coarse);
    code = bits < (128u - bias) << 23 ? subnormal : normal;
  }
  const bool nan = is_nan(x) || (!F::has_sign && x < 0);
  return nan ? F::size : (__float_as_uint(x) >> (31 - F::size_bits) & F::sign) | code;
}

// With 5 bits of exponent a code is the upper bits of an f16. With fewer, the f16 that has its fields is worth a power
// of two of it.
__device__ inline f32 value_of_half(u32 bits) {
  f32 y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((unsigned short)bits));
  return y;
}
template <typename E> __device__ inline f32 value_of_code(E x) {
  using F = Fields<E>;
  static_assert(F::has_infinities == (F::exponent == 5) && (F::exponent <= 5 || F::mantissa == 0));
  if constexpr (F::exponent == 5) {
    return value_of_half(u32(x.bits) << (15 - F::size_bits));
  } else {
    const u32 size = x.bits & F::size, sign = (x.bits & F::sign) << (15 - F::size_bits);
    f32 y = 0;
    if constexpr (F::mantissa == 0)
      y = __uint_as_float(size == 0 ? 1u << 22 : size << 23);
    else
      y = value_of_half(sign | size << (10 - F::mantissa)) * f32(1 << (15 - F::bias));
    return F::has_nan && size == F::size ? __uint_as_float(0x7fffffffu) : y;
  }
}

// ---- two elements at once, the first in the low half ----

template <typename E> __device__ inline u32 narrow_pair(f32 low, f32 high) {
  return nearest_code<E>(low) | nearest_code<E>(high) << Format<E>::bits;
}
#if SKUDA_HAS_FP8
template <> __device__ inline u32 narrow_pair<e4m3>(f32 low, f32 high) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}
template <> __device__ inline u32 narrow_pair<e5m2>(f32 low, f32 high) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}
#endif

// The element of a pair: one conversion serves both where the compiler sees both.
template <typename E> __device__ inline f32 widen_of(E, u32 pair, bool high) {
  constexpr int bits = Format<E>::bits;
  return value_of_code(E{u8((high ? pair >> bits : pair) & ((1u << bits) - 1))});
}
__device__ inline f32 widen_of(e5m2, u32 pair, bool high) {
  return value_of_half(high ? pair & 0xff00u : pair << 8 & 0xff00u);
}
__device__ inline f32 widen_of(e4m3, u32 pair, bool high) {
#if SKUDA_HAS_FP8
  u32 halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)pair));
  return value_of_half(high ? halves >> 16 : halves & 0xffffu);
#else
  return value_of_code(e4m3{u8(high ? pair >> 8 : pair)});
#endif
}

template <bool> struct only;
template <> struct only<true> { using type = f32; };
template <typename E> __device__ inline typename only<small_float<E>>::type widen(E x) { return value_of_code(x); }
__device__ inline f32 widen(e4m3 x) { return widen_of(x, x.bits, false); }

template <typename E> struct narrow_to<E, true> {
  __device__ static E from(f32 x) { return {u8(narrow_pair<E>(x, 0.0f))}; }
  __device__ static E from(f64 x) { return from(to_odd(x)); }
};
