// From a thread's number to the memory that it reads and writes, for operands with any strides. Every division is
// a multiplication with a constant that the host prepared.
#pragma once
#include "lanes.cuh"

constexpr int AXES = 8;

// n / divisor for 0 <= n < 2^63: multiply by ceil(2^(63 + shift) / divisor), or, where n < 2^31, by
// ceil(2^(31 + shift) / divisor), which is 0 for a divisor beyond 2^31.
__device__ __noinline__ i64 wide_quotient(i64 n, u64 multiplier, i64 shift) {
  return i64(__umul64hi(multiplier, u64(n) << 1) >> shift);
}
struct Divide {
  i64 divisor;
  u64 wide;
  u64 narrow;
  i64 shift;
  __device__ i64 operator()(i64 n) const {
    if (u64(n) >> 31) return wide_quotient(n, wide, shift);
    return (*this)(i32(n));
  }
  __device__ i32 operator()(i32 n) const {
    return i32(__umulhi(u32(narrow), u32(n) << 1) >> (u32(shift) & 31));
  }
};

// An operand's steps along each axis of an index space, whose axes end at AXES - 1.
struct Strides {
  i64 of[AXES];
};

// The axes outside of a row.
struct Outer {
  i64 first_axis;  // AXES where there is only one row
  Divide extent[AXES];

  // Elements (of a packed operand, nibbles) between an operand's start and that of a row.
  __device__ i64 offset(i64 row, const Strides& strides) const {
    return i32(first_axis) >= AXES - 1 ? row * strides.of[AXES - 1] : far_offset(row, strides);
  }
  __device__ i64 far_offset(i64 row, const Strides& strides) const {
    i64 sum = 0;
#pragma unroll 1
    for (int axis = AXES - 1; axis >= first_axis; --axis) {
      const i64 above = extent[axis](row);
      sum += (row - above * extent[axis].divisor) * strides.of[axis];
      row = above;
    }
    return sum;
  }
};

// Rows of neighbouring elements: a number of outer axes, with any strides, and an innermost axis along which every
// operand in the output's shape has stride 1. Parameters change along a row only from run to run, and repeat after
// `period` runs (0: never). Shares of LANES elements are counted from a row's start, so that only the last one of a row
// is short, and none straddles runs that are multiples of LANES. A thread takes `depth` shares: of long rows, those of
// a warp follow each other; of short ones, and of columns, they lie in rows below each other.
struct Shares {
  i64 units;   // threads with work
  i64 length;  // elements of a row
  i64 chunks;  // shares to a row
  i64 rows;    // rows of a table
  i64 depth;
  i64 below;          // 1: rows below each other
  Divide across;      // threads next to each other
  Divide slabs;       // threads below each other in a table
  Divide run;         // elements
  Divide run_chunks;  // shares to a run; 0 where shares may straddle runs
  Divide period;
  Outer outer;        // of the tables

  struct Position {
    i32 table, row, chunk, count;  // count: elements; 0: no work
  };

  // A thread's first share. There are fewer than 2^31 threads, rows and shares to a row.
  template <int LANES> __device__ Position position(i32 thread) const {
    const i32 slab = across(thread), over = thread - slab * i32(across.divisor);
    const i32 table = i32(outer.first_axis) < AXES ? slabs(slab) : 0, each = i32(below) ? i32(depth) : 1;
    const i32 row = (slab - table * i32(slabs.divisor)) * each;
    const i32 chunk = i32(below) ? over : (over & ~31) * i32(depth) + (over & 31);
    return {table, row, chunk, thread < i32(units) ? LANES : 0};
  }
  // The share of a group.
  template <int LANES> __device__ Position step(const Position& start, int group) const {
    Position at = start;
    at.row += i32(below) ? group : 0;
    at.chunk += i32(below) ? 0 : 32 * group;
    const i32 last = i32(chunks) - 1;
    if (group >= i32(depth) || at.row >= i32(rows) || at.chunk > last) at.count = 0;
    if (at.count > 0 && at.chunk == last) at.count = i32(length) - last * LANES;  // right modulo 2^32
    return at;
  }
  // Whether the lane before holds the share before in the same row; the lane after the share after.
  __device__ bool follows(const Position& at, int group) const {
    return at.chunk > 0 && ((threadIdx.x & 31) > 0 || (group > 0 && !i32(below)));
  }
  __device__ bool followed(const Position& at, int group) const {
    return at.chunk + 1 < i32(chunks) && ((threadIdx.x & 31) < 31 || (group + 1 < i32(depth) && !i32(below)));
  }

  // Where a row of an operand begins; `bytes` lie between the rows of a table.
  template <typename E, typename P>
  __device__ P* row_of(P* array, const Position& at, const Strides& strides, i64 bytes) const {
    const u8* start = reinterpret_cast<const u8*>(array) + at.row * bytes;
    if (i32(outer.first_axis) < AXES) start += outer.offset(at.table, strides) * storage<E>::bits / 8;
    return reinterpret_cast<P*>(const_cast<u8*>(start));
  }
  template <typename E, int LANES> __device__ static i64 bytes_before(const Position& at) {
    return i64(at.chunk) * (LANES * storage<E>::bits / 8);
  }

  // Elements of a row that share parameters: where those lie along the row, and how many elements of a share come
  // before the run's end (all of them where it is at least the share's count).
  struct Run {
    i64 index;
    i32 end;
  };
  // The run of a share's element.
  template <int LANES> __device__ Run run_at(const Position& at, i32 lane) const {
    if (i32(run_chunks.divisor) == 0) return straddled<LANES>(at.chunk, lane);
    const i32 piece = run_chunks(at.chunk);
    return {i32(period.divisor) == 0 ? piece : piece - period(piece) * i32(period.divisor), LANES};
  }
  template <int LANES> __device__ __noinline__ Run straddled(i32 chunk, i32 lane) const {
    const i64 first = i64(chunk) * LANES, piece = run(first + lane);
    return {period.divisor == 0 ? piece : piece - period(piece) * period.divisor,
            i32(min((piece + 1) * run.divisor - first, i64(LANES)))};
  }
};

// Any strides at all: the last axis has `last` elements, of which a thread takes LANES neighbours. A parameter that
// belongs to a block of elements is found at coordinate / block.
struct Space {
  i64 units, first_axis, last, block_axis;
  Divide block;
  Divide extent[AXES];  // the last one counts threads, not elements
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
  if constexpr (storage<E>::bits < 8) {
    return half_of<E>(array[offset >> 1], offset & 1);
  } else {
    return widen(fetch(array + offset));
  }
}
// `last`: nothing follows it, so that the nibble which pads an odd row becomes 0; until then a low nibble leaves its
// neighbour alone, which may be an input's that is yet to be read.
template <typename E, typename V> __device__ inline void write(storage_t<E>* array, i64 offset, bool last, V value) {
  if constexpr (storage<E>::bits < 8) {
    const u32 code = half_code<E>(value), byte = last ? 0 : array[offset >> 1];
    array[offset >> 1] = u8(offset & 1 ? (array[offset >> 1] & 15) | code << 4 : (byte & 240) | code);
  } else {
    array[offset] = narrow_to<E>::from(value);
  }
}
