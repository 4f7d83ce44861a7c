// Floats of 8 bits. A value is stored as the nearest element, ties to even; what is beyond the largest finite element,
// infinities too, is stored as that. The same bits on every GPU: by its instructions, or by integers where it has none.
#pragma once
#include "numbers.cuh"

#if __CUDA_ARCH__ >= 890
#define SKUDA_HAS_FP8 1
#else
#define SKUDA_HAS_FP8 0
#endif

template <typename E> struct fp8;
template <> struct fp8<e4m3> {
  static constexpr int fraction = 3, bias = 7;
  static constexpr f32 highest = 448.0f;
};
template <> struct fp8<e5m2> {
  static constexpr int fraction = 2, bias = 15;
  static constexpr f32 highest = 57344.0f;
};
template <typename E> struct is_fp8 { static constexpr bool value = false; };
template <> struct is_fp8<e4m3> { static constexpr bool value = true; };
template <> struct is_fp8<e5m2> { static constexpr bool value = true; };

// ---- without instructions ----

template <typename E> __device__ inline u32 nearest_code(f32 x) {
  constexpr int lost = 23 - fp8<E>::fraction, bias = fp8<E>::bias;
  const f32 size = fminf(fabsf(x), fp8<E>::highest);
  const u32 bits = __float_as_uint(size);
  const u32 normal = ((bits + (1u << (lost - 1)) - 1 + (bits >> lost & 1)) >> lost) - ((127u - bias) << fp8<E>::fraction);
  // Below the normal numbers: the sum with a number whose last place is the least element is rounded as wanted.
  const f32 coarse = __uint_as_float((127u + 1 - bias + lost) << 23);
  const u32 subnormal = __float_as_uint(size + coarse) - __float_as_uint(coarse);
  const u32 code = bits < (128u - bias) << 23 ? subnormal : normal;
  return is_nan(x) ? 0x7fu : (__float_as_uint(x) >> 24 & 0x80u) | code;
}

// The bits of an f16 are those of an e5m2 and eight more; those of an e4m3, moved there, are worth 1/256 of it.
__device__ inline f32 value_of_half(u32 bits) {
  f32 y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((unsigned short)bits));
  return y;
}
__device__ inline f32 value_of_code(e5m2 x) { return value_of_half(u32(x.bits) << 8); }
__device__ inline f32 value_of_code(e4m3 x) {
  const u32 size = x.bits & 0x7fu;
  const f32 y = value_of_half((x.bits & 0x80u) << 8 | size << 7) * 256.0f;
  return size == 0x7f ? __uint_as_float(0x7fffffffu) : y;
}

// ---- two elements at once, the first in the low byte ----

template <typename E> __device__ inline u32 narrow_pair(f32 low, f32 high) {
  return nearest_code<E>(low) | nearest_code<E>(high) << 8;
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

__device__ inline f32 widen(e5m2 x) { return value_of_code(x); }
__device__ inline f32 widen(e4m3 x) { return widen_of(x, x.bits, false); }

template <> struct narrow_to<e4m3> {
  __device__ static e4m3 from(f32 x) { return {u8(narrow_pair<e4m3>(x, 0.0f))}; }
  __device__ static e4m3 from(f64 x) { return from(to_odd(x)); }
};
template <> struct narrow_to<e5m2> {
  __device__ static e5m2 from(f32 x) { return {u8(narrow_pair<e5m2>(x, 0.0f))}; }
  __device__ static e5m2 from(f64 x) { return from(to_odd(x)); }
};
