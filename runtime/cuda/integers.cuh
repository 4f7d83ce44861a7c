// An exact integer as an integer type holds it. Only sources that call these include this header.
#pragma once

#include "numbers.cuh"

// The nearest integer of the type.
template <typename E> __device__ inline i64 saturated(i64 x) {
  constexpr i64 high = i64(~u64(0) >> (64 - storage<E>::bits + int(Format<E>::has_sign)));
  constexpr i64 low = Format<E>::has_sign ? -high - 1 : 0;
  return clamp(x, low, high);
}

// The lowest bits, as many as the type has, in two's complement where it has a sign.
template <typename E> __device__ inline i64 wrapped(i64 x) {
  constexpr int above = 64 - storage<E>::bits;
  const u64 shifted = u64(x) << above;
  return Format<E>::has_sign ? i64(shifted) >> above : i64(shifted >> above);
}
