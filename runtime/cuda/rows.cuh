// Where rows lie.
#pragma once
#include "index_space.cuh"
#include "reductions.cuh"
#include "tuning.cuh"

// Rows: a number of outer axes with any strides, and an innermost one whose elements are `step` apart. Where rows are
// blocks along an axis, the last block of that axis may be shorter.
struct RowSpace {
  i64 rows, length;
  i64 block_axis, last_length;  // block_axis: AXES where rows are whole
  Outer outer;

  // A row, and where it lies in a plane of two axes, which needs no loop.
  struct Position {
    i64 row;
    bool in_plane;
    i32 above, inner;
  };
  __device__ Position position(i64 row) const {
    if (i32(outer.first_axis) != AXES - 2 || u64(row) >> 31 != 0) return {row, false, 0, 0};
    const i32 above = outer.extent[AXES - 1](i32(row));
    return {row, true, above, i32(row) - above * i32(outer.extent[AXES - 1].divisor)};
  }

  // Whether all rows are of one length and lie along one axis.
  __device__ bool plain() const { return i32(block_axis) == AXES && i32(outer.first_axis) >= AXES - 1; }

  __device__ i64 length_of(const Position& at) const {
    if (i32(block_axis) == AXES) return length;
    if (at.in_plane && i32(block_axis) == AXES - 1)
      return at.inner == outer.extent[AXES - 1].divisor - 1 ? last_length : length;
    return block_length(at.row);
  }
  __device__ __noinline__ i64 block_length(i64 row) const {
#pragma unroll 1
    for (int axis = AXES - 1; axis > block_axis; --axis) row = outer.extent[axis](row);
    const Divide& blocks = outer.extent[block_axis];
    return row - blocks(row) * blocks.divisor == blocks.divisor - 1 ? last_length : length;
  }

  // Elements between an operand's start and that of a row.
  __device__ i64 offset(const Position& at, const Strides& strides) const {
    if (i32(outer.first_axis) >= AXES - 1) return at.row * strides.of[AXES - 1];
    if (at.in_plane) return at.above * strides.of[AXES - 2] + at.inner * strides.of[AXES - 1];
    return far_offset(at.row, strides);
  }
  __device__ __noinline__ i64 far_offset(i64 row, const Strides& strides) const {
    return outer.far_offset(row, strides);
  }
};

// Brings a thread's shares of what rows have in common to the cache beside it. Of many rows, others have done so.
template <typename E, int THREADS, int CHUNKS>
__device__ inline void bring_near(const storage_t<E>* row, i32 thread, i32 length) {
#pragma unroll
  for (int chunk = 0; chunk < CHUNKS; ++chunk) {
    const i32 first = (chunk * THREADS + thread) * GROUP;
    if (first < length) asm volatile("prefetch.global.L1 [%0];" ::"l"(at<E>(row, first)) : "memory");
  }
}

// Memory is kept busy while blocks compute: a block asks the L2 cache for rows of one that is yet to begin. That is so
// many bytes of all inputs later.
__device__ inline i64 rows_ahead(int ahead, i64 bytes_of_row) {
  return max(i64(f32(ahead) / f32(bytes_of_row)), i64(1));
}
template <typename E> __device__ inline void ask_for(const storage_t<E>* first, i64 elements) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  const u64 at = u64(first), begin = (at + 15) & ~15ull, end = (at + elements * storage<E>::bits / 8) & ~15ull;
  if (begin < end)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(begin), "r"(u32(end - begin)) : "memory");
#endif
}

// What counts the elements of a row: 32 bits where threads hold all of it.
template <bool KEEP> struct index { using type = i64; };
template <> struct index<true> { using type = i32; };
