// A linear recurrence, y = factor * before + term: what a scan of one joins.
#pragma once
#include "numbers.cuh"

// The step of an element, or those of several as one. As a value it is what the steps make of nothing.
template <typename C> struct Linear {
  C factor, term;
  __device__ operator C() const { return term; }
};
template <typename C> __device__ inline Linear<C> of_lane(Linear<C> value, int lane) {
  return {__shfl_sync(~0u, value.factor, lane), __shfl_sync(~0u, value.term, lane)};
}

// What is multiplied by 0 is forgotten, whatever it is, and 0 stays as it is: so nothing changes no bit.
struct LinearRecurrence {
  template <typename V> static __device__ V nothing() { return {1, decltype(V::term)(-0.0)}; }
  template <typename V> static __device__ V empty() { return {1, 0}; }
  template <typename V> static __device__ V of(V first, V later) {
    using C = decltype(V::term);
    const bool forgets = later.factor == 0;
    const C product = later.factor * first.term;
    const C before = forgets ? C(-0.0) : first.term == 0 ? first.term : product;
    return {forgets || first.factor == 0 ? C(0) : later.factor * first.factor, before + later.term};
  }
};
