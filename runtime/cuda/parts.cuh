// Rows that several blocks reduce, each a part of a row: an aligned range of its segments' places. Trees of neighbours
// join parts to the same bits as one block makes of the whole row (skuda.rows), whoever makes them.
#pragma once
#include "row_moves.cuh"

// Rows of `length` elements. Where an element lies is told by two index spaces: that of the rows, `kept`, and that
// along a row, `along`.
struct Reduction {
  i64 rows, length;
  i64 columns;  // rows whose elements lie beside each other, where they do; else all
  i64 places;   // of a segment
  i64 turns;    // groups that a place takes, at most
  i64 cut;      // parts to a segment, as a power of two
  i64 wide;     // threads of a block beside each other, as a power of two
  i64 each;     // places that a thread takes
  Divide parts;  // of a row
  Divide tiles;  // blocks beside each other
  i64 finish_wide, finish_each;  // the same of the kernel that joins parts, where there are several
  Outer kept, along;

  // A part: its first place, and the elements of its segment.
  struct Part {
    i64 number, begin, end;
    i32 place;
  };
  __device__ Part part(i64 number, i32 places_of_part) const {
    const i64 begin = (number >> cut) * SEGMENT;
    return {number, begin, min(begin + SEGMENT, length), i32(number & ((1 << cut) - 1)) * places_of_part};
  }

  // Elements between the start of a row and one of its elements; of two axes without a loop.
  __device__ i64 offset(i64 index, const Strides& strides) const {
    if (i32(along.first_axis) >= AXES - 1) return index * strides.of[AXES - 1];
    if (i32(along.first_axis) == AXES - 2 && u64(index) >> 31 == 0) {
      const Divide& inner = along.extent[AXES - 1];
      const i32 above = inner(i32(index));
      return above * strides.of[AXES - 2] + (i32(index) - above * i32(inner.divisor)) * strides.of[AXES - 1];
    }
    return along.far_offset(index, strides);
  }
};

// An input in the index space, and the bytes between which it lies.
struct Reach {
  Strides kept, along;
  i64 low, high;
};

__device__ inline f32 beside(f32 value, int lane) { return __shfl_xor_sync(~0u, value, lane); }
__device__ inline f64 beside(f64 value, int lane) { return __shfl_xor_sync(~0u, value, lane); }
__device__ inline i64 beside(i64 value, int lane) { return __shfl_xor_sync(~0u, value, lane); }
__device__ inline bool beside(bool value, int lane) { return __shfl_xor_sync(~0u, int(value), lane) != 0; }

// Eight neighbours, or any power of two, made one.
template <typename P, int N> __device__ inline P tree(P (&values)[N]) {
#pragma unroll
  for (int apart = 1; apart < N; apart *= 2)
#pragma unroll
    for (int i = 0; i < N; i += 2 * apart) values[i] = P::of(values[i], values[i + apart]);
  return values[0];
}

// Joins what the threads of a block have that lie below each other, `1 << wide` being beside each other with LANES
// columns each: within a warp here, the warps' values in `scratch`, where `joined` finds them.
template <int LANES, typename P> __device__ inline void join_warps(P (&values)[LANES], int wide, P* scratch) {
#pragma unroll
  for (int apart = 1; apart < 32; apart *= 2)
    if (apart >> wide)
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane) values[lane] = P::of(values[lane], values[lane].beside(apart));
  const int thread = threadIdx.x % 32, width = 1 << wide;
  if (thread < width)
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane)
      scratch[((threadIdx.x / 32) * width + thread) * LANES + lane] = values[lane];
  __syncthreads();
}
template <int WARPS, typename P> __device__ inline P joined(const P* scratch, int columns, int column) {
  P values[WARPS];
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp)
    values[warp] = warp * 32 < blockDim.x ? scratch[warp * columns + column] : P::nothing();
  return tree(values);
}

// A range of a row's parts, as a tree of neighbours. `apart` values lie between those of neighbours.
template <typename P> __device__ inline P join_parts(const P* first, i64 count, i64 apart) {
  P waiting[32];
  P total = P::nothing();
  int batch = 0;
  for (i64 start = 0; start < count; start += GROUP, ++batch) {
    P values[GROUP];
#pragma unroll
    for (int i = 0; i < GROUP; ++i) values[i] = start + i < count ? first[(start + i) * apart] : P::nothing();
    P value = tree(values);
    if (count <= GROUP) return value;
    int height = 0;
    for (; batch >> height & 1; ++height) value = P::of(waiting[height], value);
    waiting[height] = value;
  }
  bool found = false;
  for (int height = 0; batch >> height; ++height)
    if (batch >> height & 1) {
      total = found ? P::of(waiting[height], total) : waiting[height];
      found = true;
    }
  return total;
}

// The vectors of neighbouring columns in GROUP elements along a row, of which `exist` are there; of a vector, `count`
// columns. `origin` is the array, `row` where its columns begin. Where vectors start at any byte, the words around all
// of them are on their way before one is shifted; those that would leave the array are read element by element.
template <bool ALIGNED, typename E, int LANES>
__device__ inline void load_columns(
    Lanes<E, LANES> (&lanes)[GROUP], const storage_t<E>* origin, i64 row, i64 first, int exist, int count,
    const Reduction& rows, const Reach& reach) {
  if constexpr (LANES == 1 || ALIGNED) {
#pragma unroll
    for (int i = 0; i < GROUP; ++i)
      if (i < exist) {
        const storage_t<E>* const from = origin + row + rows.offset(first + i, reach.along);
        if constexpr (LANES == 1) lanes[i].data[0] = *from;
        else lanes[i] = load<true, E, LANES>(from, 0, LANES);
      }
  } else {
    const Span span = {reach.low, reach.high - reach.low - i64(sizeof(Lanes<E, LANES>)) - 15};
    const storage_t<E>* from[GROUP];
    bool inside = exist == GROUP && span.size > 0;
#pragma unroll
    for (int i = 0; i < GROUP; ++i) {
      from[i] = origin + row + rows.offset(first + min(i, exist - 1), reach.along);
      inside = inside && Around<E, LANES>::inside(from[i], origin, span);
    }
    if (inside) {
      Around<E, LANES> around[GROUP];
#pragma unroll
      for (int i = 0; i < GROUP; ++i) around[i].load(from[i], LANES);
#pragma unroll
      for (int i = 0; i < GROUP; ++i) lanes[i] = around[i].lanes(from[i]);
    } else {
#pragma unroll
      for (int i = 0; i < GROUP; ++i)
        if (i < exist) lanes[i] = gather<E, LANES>(from[i], count);
    }
  }
}
template <bool ALIGNED, typename E, int LANES>
__device__ inline void store_columns(storage_t<E>* to, int count, const Lanes<E, LANES>& lanes) {
  if constexpr (ALIGNED && LANES > 1) {
    store<true, E, LANES>(to, 0, lanes);
  } else {
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane)
      if (lane < count) to[lane] = lanes.data[lane];
  }
}

// A group of a row's elements; what lies beyond the row reads as 0. Where elements lie apart, each is found by itself.
template <int MODE, typename E>
__device__ inline Lanes<E, GROUP> part_share(
    const storage_t<E>* row, i64 first, const Reduction& rows, const Reach& reach, const storage_t<E>* origin) {
  if constexpr (MODE == STEPPED) {
    Lanes<E, GROUP> lanes = {};
#pragma unroll
    for (int i = 0; i < GROUP; ++i)
      if (first + i < rows.length) lanes.data[i] = row[rows.offset(first + i, reach.along)];
    return lanes;
  } else if constexpr (MODE == WHOLE) {
    return load<true, E, GROUP>(row + rows.offset(first, reach.along), 0, GROUP);
  } else {
    constexpr i64 bytes = sizeof(Lanes<E, GROUP>);
    const Span span = {reach.low, max(i64(0), reach.high - reach.low - bytes - min(i64(16), bytes) + 1)};
    return share<UNIT, E>(row, first, rows.length, Along(), origin, span);
  }
}
template <int MODE, typename E>
__device__ inline void keep_share(
    storage_t<E>* row, i64 first, const Reduction& rows, const Reach& reach, const Lanes<E, GROUP>& lanes) {
  if constexpr (MODE == STEPPED) {
#pragma unroll
    for (int i = 0; i < GROUP; ++i)
      if (first + i < rows.length) row[rows.offset(first + i, reach.along)] = lanes.data[i];
  } else if constexpr (MODE == WHOLE) {
    store<true, E, GROUP>(row + rows.offset(first, reach.along), 0, lanes);
  } else {
    keep<UNIT, E>(row, first, rows.length, Along(), lanes);
  }
}
