// The order of sums across rows that the program before writes (`model.sum_order`): consecutive rows are a slab, which
// are added one after the other, and slabs as a tree.
#pragma once
#include "lanes.cuh"

constexpr int SLABS = 264;                            // of so many rows that one is not too long
constexpr int FEWEST_SLAB_ROWS = 16, SLAB_ROWS = 256;  // of a slab

__device__ inline i64 slab_of(i64 rows) {
  return max(min((rows + SLABS - 1) / SLABS, i64(SLAB_ROWS)), i64(FEWEST_SLAB_ROWS));
}

// Whether a program's sums are so: it has a member IN_SLABS.
template <typename P, typename V = void> constexpr bool in_slabs = false;
template <typename P> constexpr bool in_slabs<P, decltype(void(P::IN_SLABS))> = true;
