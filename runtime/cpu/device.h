// What programs ask of CUDA, for a C++ compiler of the CPU: its functions by their names, and instructions of PTX as
// functions with `_` for each dot. Nothing here branches on an element, so that loops over elements become vectors.
#pragma once
#include <cfenv>
#include <memory>
#include <type_traits>
#include "bits.h"

#define __forceinline__ inline __attribute__((always_inline))

// Few elements ask for what a branch would keep all of a loop from being vectors for: angles beyond 2^17, logarithms of
// what is not above 0. `source.py` has the conditions asked here. A loop over elements runs without these branches first,
// and once more with them where some element would have taken one.
static thread_local int unusual_seen = 0, takes_branches = 1;
inline bool unusual(bool condition) {
  unusual_seen |= condition;
  return condition & (takes_branches != 0);
}
template <typename Loop> inline void without_branches(const Loop& loop) {
  unusual_seen = 0;
  takes_branches = 0;
  loop();
  takes_branches = 1;
  if (__builtin_expect(unusual_seen, 0)) loop();
}

inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
// -fused(a, b, c): gcc takes the negative of a sum for a sum of negatives, which has another sign where it is 0.
inline float negative_fused(float a, float b, float c) {
  return __uint_as_float(__float_as_uint(__builtin_fmaf(a, b, c)) ^ 0x80000000u);
}
inline double negative_fused(double a, double b, double c) {
  return same_bits<double>(same_bits<unsigned long long>(__builtin_fma(a, b, c)) ^ 1ull << 63);
}
// Rounded down: one before the nearest where that is above. The product is exact in double, and so is what its sum
// loses.
inline float __fmaf_rd(float a, float b, float c) {
  const double product = double(a) * double(b), x = c, sum = product + x;
  const double of_x = sum - product, lost = (product - (sum - of_x)) + (x - of_x);
  const float near = float(sum);
  const bool above = (double(near) > sum) | ((double(near) == sum) & (lost < 0));
  const int bits = __float_as_int(near);
  return __int_as_float(above ? (near > 0 ? bits - 1 : near < 0 ? bits + 1 : int(0x80000001u)) : bits);
}
__attribute__((noinline)) inline double __fma_rd(double a, double b, double c) {
  volatile double x = a, y = b, z = c;  // none is known before the direction is set
  fesetround(FE_DOWNWARD);
  const volatile double found = std::fma(double(x), double(y), double(z));
  fesetround(FE_TONEAREST);
  return found;
}
// By a function for each rounding: gcc 12 takes int(rint(x)) made a float again for rint(x), which may be -0.
inline int __float2int_rn(float x) {
  const float cut = x < 2147483520.f ? (x > -2147483648.f ? x : -2147483648.f) : 2147483520.f;  // NaN: the largest
  const int found = __builtin_irintf(cut), large = x >= 2147483648.f ? INT32_MAX : found;
  return x != x ? 0 : large;
}
inline int __double2int_rn(double x) {
  const double cut = x < 2147483647. ? (x > -2147483648. ? x : -2147483648.) : 2147483647.;
  const int found = __builtin_irint(cut);
  return x != x ? 0 : found;
}
inline long long __float2ll_rn(float x) { return __builtin_llrintf(x); }
inline long long __double2ll_rn(double x) { return __builtin_llrint(x); }
inline float __double2float_rz(double x) {
  const float near = float(x);
  const bool above = std::fabs(double(near)) > std::fabs(x) && std::fabs(x) <= 1.7976931348623157e308;
  return same_bits<float>(same_bits<unsigned>(near) - unsigned(above));
}

// What is no NaN of two, the lesser or the greater: the functions of C are calls.
template <typename V> inline V lesser_number(V a, V b) {
  const V found = a < b ? a : b;
  return b != b ? a : found;
}
template <typename V> inline V greater_number(V a, V b) {
  const V found = a > b ? a : b;
  return b != b ? a : found;
}
#define fminf lesser_number<float>
#define fmaxf greater_number<float>
#define fmin lesser_number<double>
#define fmax greater_number<double>

// By bits: compilers make no vectors of several conditions where one is the same for all elements.
inline float chosen(bool first, float a, float b) {
  const unsigned mask = 0u - unsigned(first);
  return __uint_as_float((__float_as_uint(a) & mask) | (__float_as_uint(b) & ~mask));
}
inline double chosen(bool first, double a, double b) {
  const unsigned long long mask = 0ull - (unsigned long long)first;
  return same_bits<double>(
      (same_bits<unsigned long long>(a) & mask) | (same_bits<unsigned long long>(b) & ~mask));
}

// By integers near the quotient, in double: what each step leaves is exact, and smaller by 2^-52 or than the divisor.
inline double fmod_step(double rest, double by, double inverse) {
  return __builtin_fma(-__builtin_rint(rest * inverse), by, rest);
}
inline float fmod(float a, float b) {
  const double size = std::fabs(a), by = std::fabs(b), inverse = 1 / by;
  double rest = fmod_step(fmod_step(fmod_step(size, by, inverse), by, inverse), by, inverse);
  rest = fmod_step(fmod_step(fmod_step(rest, by, inverse), by, inverse), by, inverse);  // the largest quotient is 2^277
  rest += rest < 0 ? by : 0;
  return std::copysign(float(size < by ? size : rest), a);
}

// ---- PTX ----

// NaN if either is; +0 is above -0. One condition a step: compilers make no vectors of several where one is the same
// for all elements.
constexpr unsigned CANONICAL = 0x7fffffffu;
inline float max_NaN_f32(float a, float b) {
  const unsigned x = __float_as_uint(a), y = __float_as_uint(b);
  unsigned found = a > b ? x : y;
  found = a == b ? x & y : found;
  found = a != a ? CANONICAL : found;
  return __uint_as_float(b != b ? CANONICAL : found);
}
inline float min_NaN_f32(float a, float b) {
  const unsigned x = __float_as_uint(a), y = __float_as_uint(b);
  unsigned found = a < b ? x : y;
  found = a == b ? x | y : found;
  found = a != a ? CANONICAL : found;
  return __uint_as_float(b != b ? CANONICAL : found);
}
inline float cvt_f32_f16(unsigned short bits) {
#if defined(__FLT16_MAX__)
  return float(same_bits<_Float16>(bits));
#else
  const unsigned size = bits & 0x7fffu, sign = (bits & 0x8000u) << 16;
  const float small = float(size) * 0x1p-24f;
  const unsigned large = (size << 13) + (size >= 0x7c00u ? 0x70000000u : 0x38000000u);
  return __uint_as_float((size < 0x400u ? __float_as_uint(small) : large) | sign);
#endif
}
inline unsigned short cvt_rn_f16_f32(float x) {
  const unsigned bits = __float_as_uint(x), size = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
  const unsigned normal = (size + 0xfffu + (size >> 13 & 1) - 0x38000000u) >> 13;
  const float sum = __uint_as_float(size) + 0.5f;  // its last place is that of subnormal f16
  const unsigned subnormal = __float_as_uint(sum) - 0x3f000000u;
  const unsigned found = size < 0x38800000u ? subnormal : size >= 0x47800000u ? 0x7c00u : normal;
  return (unsigned short)(x != x ? 0x7fffu : found | sign);
}
inline unsigned short cvt_rn_bf16_f32(float x) {
  const unsigned bits = __float_as_uint(x);
  return (unsigned short)(x != x ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

// What headers name and no program of the CPU reaches.
void __syncwarp();
unsigned max_NaN_f16x2(unsigned, unsigned);
unsigned min_NaN_f16x2(unsigned, unsigned);
unsigned max_NaN_bf16x2(unsigned, unsigned);
unsigned min_NaN_bf16x2(unsigned, unsigned);
template <typename T> T __shfl_xor_sync(unsigned, T value, int);
template <typename T> T __ldcs(const T*);
template <typename T> T __reduce_max_sync(unsigned, T value);
template <typename T> T __reduce_min_sync(unsigned, T value);

#define index device_index  // POSIX has a function of that name
