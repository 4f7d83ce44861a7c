// Polynomials of x by Horner's scheme, the coefficient of the highest power first.
#pragma once
#include "quotient.cuh"

// Each step is fused, rounded once.
template <typename C, typename... Rest> __device__ inline C fused_polynomial(C x, C first, Rest... rest) {
  ((first = fused(first, x, rest)), ...);
  return first;
}
// Each step is a product and a sum, which round apart.
template <typename C, typename... Rest> __device__ inline C unfused_polynomial(C x, C first, Rest... rest) {
  ((first = first * x + rest), ...);
  return first;
}
template <bool FUSED, typename C, typename... Rest> __device__ inline C polynomial(C x, C first, Rest... rest) {
  if constexpr (FUSED) return fused_polynomial(x, first, rest...);
  else return unfused_polynomial(x, first, rest...);
}
