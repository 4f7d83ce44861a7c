// Double-double arithmetic: a number is the unevaluated sum of two f64. `reference.double_double` has the same text
// in NumPy.
#pragma once
#include "quotient.cuh"

struct DoubleDouble { f64 high, low; };

// a + b, and what its rounding lost.
__device__ inline DoubleDouble two_sum(f64 a, f64 b) {
  const f64 sum = a + b, other = sum - a;
  return {sum, (a - (sum - other)) + (b - other)};
}
// The same where |a| >= |b|, or a is 0.
__device__ inline DoubleDouble fast_two_sum(f64 a, f64 b) {
  const f64 sum = a + b;
  return {sum, b - (sum - a)};
}
// a * b, and what its rounding lost, where neither over- or underflows.
__device__ inline DoubleDouble two_product(f64 a, f64 b) {
  const f64 product = a * b;
  return {product, fused(a, b, -product)};
}
__device__ inline DoubleDouble pair_product(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble product = two_product(a.high, b.high);
  return {product.high, product.low + (a.high * b.low + a.low * b.high)};
}
// For a safe divisor.
__device__ inline DoubleDouble pair_quotient(DoubleDouble n, DoubleDouble d) {
  const f64 y = inverse(d.high), quotient = n.high * y;
  const DoubleDouble product = two_product(quotient, d.high);
  const f64 rest = (((n.high - product.high) - product.low) + n.low) - quotient * d.low;
  return {quotient, rest * y};
}
// c + p x, rounded once but for the low part of c.
__device__ inline DoubleDouble pair_step(f64 p, f64 x, DoubleDouble c) {
  const f64 value = fused(p, x, c.high);
  return {value, fused(p, x, c.high - value) + c.low};
}
// Of 0, or where twice the root is a safe divisor.
__device__ inline DoubleDouble pair_root(DoubleDouble x) {
  const f64 root = sqrt(x.high);
  const DoubleDouble square = two_product(root, root);
  const f64 rest = ((x.high - square.high) - square.low) + x.low;
  return {root, root == 0.0 ? 0.0 : rest * inverse(root + root)};
}

// 2^k, where that is a normal number.
__device__ inline f64 two_to_the(i32 k) { return __longlong_as_double(i64(k + 1023) << 52); }
// y * 2^k, rounded once where it is subnormal.
__device__ inline f64 times_two_to(f64 y, i32 k) {
  const i32 half = k >> 1;
  return y * two_to_the(half) * two_to_the(k - half);
}

__device__ inline f64 infinity() { return __longlong_as_double(0x7ff0000000000000ll); }
__device__ inline f64 not_a_number() { return __longlong_as_double(0x7fffffffffffffffll); }
