// How an element's index becomes the place of what it needs: parameters that a run of elements shares, and operands
// with any strides. Every division is a multiplication with a constant that the host prepared.
#pragma once
#include "lanes.cuh"

constexpr int AXES = 8;

// n / divisor for 0 <= n < 2^63: multiply by ceil(2^(63 + shift) / divisor).
struct Divide {
  i64 divisor;
  u64 magic;
  i64 shift;
  __device__ i64 operator()(i64 n) const { return i64(__umul64hi(magic, u64(n) << 1) >> shift); }
};

// A contiguous array cut into runs that share parameters: rows of `row` elements, each cut into runs of `run` (the last
// may be shorter); `runs` to a row; the parameters repeat every `period` runs.
struct Runs {
  Divide row, run, period;
  i64 runs;

  struct Run {
    i64 index, start, end;  // which parameters, and the elements that share them
  };
  __device__ Run at(i64 element) const {
    const i64 line = row(element), inside = element - line * row.divisor;
    const i64 piece = run(inside), index = line * runs + piece;
    const i64 start = piece * run.divisor, end = min(start + run.divisor, row.divisor);
    return {index - period(index) * period.divisor, line * row.divisor + start, line * row.divisor + end};
  }
};

// The index space of an operation whose operands have strides: its axes end at axis AXES - 1, which has `last` elements,
// and of those a thread takes LANES neighbours. A parameter that belongs to a block is found at coordinate / block.
struct Space {
  i64 size, first_axis, last, block_axis;
  Divide block;
  Divide extent[AXES];  // the last one counts threads, not elements

  __device__ i64 threads() const { return size; }
};
struct Strides {
  i64 of[AXES];
};

struct Coordinates {
  i64 of[AXES];

  __device__ Coordinates(const Space& space, i64 thread) {
#pragma unroll
    for (int axis = AXES - 1; axis >= 0; --axis) {
      of[axis] = 0;
      if (axis >= space.first_axis) {
        const i64 outer = space.extent[axis](thread);
        of[axis] = thread - outer * space.extent[axis].divisor;
        thread = outer;
      }
    }
  }

  // Elements between an operand's start and these coordinates; BLOCKED: it has one entry for each block. Packed: in
  // nibbles, where the last axis steps through bytes, two elements each, and the other strides count nibbles.
  template <typename E, bool BLOCKED> __device__ i64 offset(const Space& space, const Strides& strides) const {
    i64 sum = 0;
#pragma unroll
    for (int axis = 0; axis < AXES; ++axis) {
      if (axis < space.first_axis) continue;
      if (storage<E>::bits < 8 && axis == AXES - 1)
        sum += (of[axis] >> 1) * 2 * strides.of[axis] + (of[axis] & 1);
      else
        sum += (BLOCKED && axis == space.block_axis ? space.block(of[axis]) : of[axis]) * strides.of[axis];
    }
    return sum;
  }
};

// Elements of the last axis, LANES neighbours of which `left` exist; a packed pair is one byte.
template <typename E, int LANES>
__device__ inline void store_at(storage_t<E>* array, i64 offset, i64 stride, i64 left, const Lanes<E, LANES>& lanes) {
  if (storage<E>::bits < 8) {
    array[offset >> 1] = lanes.data[0];
  } else {
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane)
      if (lane < left) array[offset + lane * stride] = lanes.data[lane];
  }
}

// One element at any offset; a packed one by its nibble.
template <typename E> __device__ inline compute_t<E> read(const storage_t<E>* array, i64 offset) {
  return widen(array[offset]);
}
template <> __device__ inline i64 read<s4>(const u8* array, i64 offset) {
  const u8 byte = array[offset >> 1];
  return s8(offset & 1 ? byte : byte << 4) >> 4;
}
template <> __device__ inline i64 read<u4>(const u8* array, i64 offset) {
  const u8 byte = array[offset >> 1];
  return offset & 1 ? byte >> 4 : byte & 15;
}
