// What a division of reals leaves, and its quotient toward minus infinity, with the bits of C's fmod and of the rules
// in numbers.cuh and data.cuh that are made of it. For an integer n near a / b, whatever estimate gave it, a - n b is
// exact by FMA where it is smaller than b: it is a multiple of b's last place. The rules take everything else.
#pragma once
#include "data.cuh"
#include "quotient.cuh"

// On a GPU they are out of line, for they are long and seldom wanted. On the CPU `fmod` of f32 has no branch, and loops
// over these become vectors.
#ifdef __CUDACC_RTC__
#define SELDOM __noinline__
#else
#define SELDOM inline
#endif
template <typename C> __device__ SELDOM C general_fmod(C a, C b) { return fmod(a, b); }
template <typename C> __device__ SELDOM C general_remainder(C a, C b) { return remainder_floor(a, b); }
template <typename C> __device__ SELDOM C general_floor_quotient(C a, C b) { return floor_quotient<C>(a, b); }
#undef SELDOM

// 1 / b within 2^-22 in f32 and 2^-38 in f64; 0, infinite or NaN where it or b is subnormal.
__device__ inline f32 estimated_inverse(f32 b) {
  f32 y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(b));
  return y;
}
__device__ inline f64 estimated_inverse(f64 b) {
  f64 y;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(b));
  return fused(fused(-b, y, 1.0), y, y);
}

// x, with its sign changed where another's is set.
__device__ inline f32 turned(f32 x, f32 by) {
  return __uint_as_float(__float_as_uint(x) ^ (__float_as_uint(by) & 0x80000000u));
}
__device__ inline f64 turned(f64 x, f64 by) {
  return __longlong_as_double(__double_as_longlong(x) ^ (__double_as_longlong(by) & i64(1ull << 63)));
}
// Whether what is left lies from 0 to below a size, by their bits: not if it is below 0 or NaN.
__device__ inline bool is_found(f32 rest, f32 size) { return __float_as_uint(rest) < __float_as_uint(size); }
__device__ inline bool is_found(f64 rest, f64 size) {
  return u64(__double_as_longlong(rest)) < u64(__double_as_longlong(size));
}

// An integer near a / b, and a - count b. Below -2^22 in f32 and -2^51 in f64 the count may end in a half.
template <typename C> struct Counted {
  C count, rest;

  __device__ Counted(C a, C b) {
    constexpr C integer = C(0.75) / limits<C>::half_unit;  // a sum with it has no fraction
    count = fused(a, estimated_inverse(b), integer) - integer;
    rest = fused(-count, b, a);
  }
};

// |a| - n |b|, n the integer near the quotient: beside 0, on either side. Where |a| is smaller, it would not be exact.
template <typename C> __device__ inline C rest_near_zero(C a, C b) {
  return absolute(a) < absolute(b) ? absolute(a) : Counted<C>(absolute(a), absolute(b)).rest;
}
template <typename C> __device__ inline C raised(C rest, C size) { return rest + (rest < C(0) ? size : C(0)); }

template <typename C> __device__ inline C remainder_toward_zero(C a, C b) {
  const C rest = raised(rest_near_zero(a, b), absolute(b));
  return is_found(rest, absolute(b)) ? copysign(rest, a) : general_fmod(a, b);
}
template <typename C> __device__ inline C usual_remainder(C a, C b) {
  const C rest = raised(turned(rest_near_zero(a, b), turned(a, b)), absolute(b));
  return is_found(rest, absolute(b)) ? copysign(rest, b) : general_remainder(a, b);
}
__device__ inline f32 remainder_floor(f32 a, f32 b) { return usual_remainder(a, b); }
__device__ inline f64 remainder_floor(f64 a, f64 b) { return usual_remainder(a, b); }
__device__ inline f32 modulo(f32 a, f32 b) { return usual_remainder(a, b); }
__device__ inline f64 modulo(f64 a, f64 b) { return usual_remainder(a, b); }

// The rule divides a - rest by b and takes the integer nearest what it finds. Up to 2^21 in f32 and 2^50 in f64 its
// roundings move that by at most 3/8.
template <typename C> __device__ inline C usual_floor_quotient(C a, C b) {
  const C size = absolute(b), by = turned(a, b);
  const Counted<C> found(by, size);
  const C whole = found.count - (found.rest < C(0) ? C(1) : C(0));
  const bool usual = (absolute(found.rest) < size) & (absolute(found.count) <= C(0.125) / limits<C>::half_unit);
  return usual ? copysign(whole, by) : general_floor_quotient(a, b);
}
__device__ inline f32 floor_quotient(f32 a, f32 b) { return usual_floor_quotient(a, b); }
__device__ inline f64 floor_quotient(f64 a, f64 b) { return usual_floor_quotient(a, b); }
