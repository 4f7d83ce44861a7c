// What CUDA has that is one operation of C++, or a function of it: words, casts of bits, shifts, counts, quotients.
// Kernels of the CPU include it, and so do tests that run the kernels of GPUs on the CPU. Conversions, fused operations
// and what depends on NaN are not here: both write these themselves, so that a mistake in one makes the two differ.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#define __device__
#define __global__
#define __grid_constant__
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)

struct uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct Dim { int x; };
extern Dim threadIdx, blockIdx, blockDim, gridDim;

// The overloads for float of what C has for double alone.
using std::acos, std::acosh, std::asin, std::asinh, std::atan, std::atan2, std::atanh, std::cbrt, std::ceil,
    std::copysign, std::cos, std::cosh, std::exp2, std::expm1, std::floor, std::hypot, std::log10, std::log1p,
    std::log2, std::pow, std::rint, std::sin, std::sinh, std::sqrt, std::tan, std::tanh, std::trunc;
inline float rsqrt(float x) { return float(1 / std::sqrt(double(x))); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
template <typename T> inline T min(T a, T b) { return b < a ? b : a; }
template <typename T> inline T max(T a, T b) { return a < b ? b : a; }

template <typename To, typename From> inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
inline float __uint_as_float(unsigned x) { return same_bits<float>(x); }
inline float __int_as_float(int x) { return same_bits<float>(x); }
inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
inline int __float_as_int(float x) { return same_bits<int>(x); }
inline double __longlong_as_double(long long x) { return same_bits<double>(x); }
inline long long __double_as_longlong(double x) { return same_bits<long long>(x); }

inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __drcp_rn(double a) { return 1 / a; }
inline float rcp_approx_ftz_f32(float s) { return 1 / s; }
inline double rcp_approx_ftz_f64(double s) { return 1 / s; }
inline float rsqrt_approx_f32(float x) { return 1 / std::sqrt(x); }
inline float rsqrt_approx_ftz_f32(float x) { return 1 / std::sqrt(x); }

inline long long mul_wide_s32(int a, int b) { return (long long)a * b; }
// Two integers of 16 bits, and four of 8.
template <typename Half, typename Of> unsigned of_halves(unsigned a, unsigned b, Of of) {
  const unsigned short low = of(Half(a), Half(b)), high = of(Half(a >> 16), Half(b >> 16));
  return low | unsigned(high) << 16;
}
inline unsigned __vmaxs2(unsigned a, unsigned b) {
  return of_halves<short>(a, b, [](short x, short y) { return x > y ? x : y; });
}
inline unsigned __vmins2(unsigned a, unsigned b) {
  return of_halves<short>(a, b, [](short x, short y) { return x < y ? x : y; });
}
inline unsigned __vmaxu2(unsigned a, unsigned b) {
  return of_halves<unsigned short>(a, b, [](unsigned short x, unsigned short y) { return x > y ? x : y; });
}
inline unsigned __vminu2(unsigned a, unsigned b) {
  return of_halves<unsigned short>(a, b, [](unsigned short x, unsigned short y) { return x < y ? x : y; });
}
inline int dp4a_s32_s32(int a, int b, int sum) {
  for (int bit = 0; bit < 32; bit += 8) sum += (signed char)(a >> bit) * (signed char)(b >> bit);
  return sum;
}
inline unsigned dp4a_u32_u32(unsigned a, unsigned b, unsigned sum) {
  for (int bit = 0; bit < 32; bit += 8) sum += (a >> bit & 0xff) * (b >> bit & 0xff);
  return sum;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long both = (unsigned long long)b << 32 | a;
  unsigned found = 0;
  for (int i = 0; i < 4; ++i) found |= unsigned(both >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return found;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
  return unsigned(((unsigned long long)high << 32 | low) >> (n & 31));
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
  return unsigned(((unsigned long long)high << 32 | low) << (n & 31) >> 32);
}
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
