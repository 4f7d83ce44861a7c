// Floats by their neighbours and powers of two, exactly. NumPy has the same functions.
#pragma once
#include "elementary.cuh"

// The next value after a in the direction of b; b where both are equal.
__device__ inline f32 next_after(f32 a, f32 b) {
  if (is_nan(a) || is_nan(b)) return a + b;
  if (a == b) return b;
  if (a == 0.0f) return copysign(0x1p-149f, b);
  return __int_as_float(__float_as_int(a) + ((a < b) == (a > 0.0f) ? 1 : -1));
}
__device__ inline f64 next_after(f64 a, f64 b) {
  if (is_nan(a) || is_nan(b)) return a + b;
  if (a == b) return b;
  if (a == 0.0) return copysign(__longlong_as_double(1), b);
  return __longlong_as_double(__double_as_longlong(a) + ((a < b) == (a > 0.0) ? 1 : -1));
}

// x * 2^i, rounded once.
__device__ inline f64 scaled_by(f64 x, i64 i) {
  i32 power = i32(clamp(i, i64(-2200), i64(2200)));
  // Down in steps after which 53 bits are left, so that the last one alone rounds.
#pragma unroll
  for (i32 step = 0; step < 2; ++step) {
    if (power > 1023) x = x * 0x1p1023, power -= 1023;
    if (power < -1022) x = x * 0x1p-969, power += 969;
  }
  return x * power_of_two(x, max(min(power, 1023), -1022));
}
__device__ inline f32 scaled_by(f32 x, i64 i) {
  const i32 power = i32(clamp(i, i64(-400), i64(400)));
  return f32(f64(x) * power_of_two(f64(x), power));
}
