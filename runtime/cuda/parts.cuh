// Rows that several blocks reduce, each a part of a row: an aligned range of its segments' places. Trees of neighbours
// join parts to the same bits as one block makes of the whole row (skuda.rows), whoever makes them.
#pragma once
#include "row_moves.cuh"

// What joins parts, and what a later stage reduces, is launched behind the kernel in front, and may begin when all blocks
// of that have begun.
__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
// Waits until the kernel in front has ended and what it wrote is there.
__device__ inline void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

constexpr int LINE = 128;  // bytes of memory that come together

// Rows of `length` elements. Where an element lies is told by two index spaces: that of the rows, `kept`, and that
// along a row, `along`.
struct Reduction {
  i64 rows, length;
  i64 columns;  // rows whose elements lie beside each other, where they do; else all
  i64 segment;  // elements that are dealt to the same places
  i64 places;   // of a segment
  i64 turns;    // groups that a place takes, at most
  i64 cut;      // parts to a segment, as a power of two
  i64 wide;     // threads of a block beside each other, as a power of two
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
    const i64 begin = (number >> cut) * segment;
    return {number, begin, min(begin + segment, length), i32(number & ((1 << cut) - 1)) * places_of_part};
  }

  // Whether a row lies along one axis.
  __device__ bool straight() const { return i32(along.first_axis) >= AXES - 1; }

  // Elements between the start of a row and one of its elements; of two axes without a loop.
  __device__ i64 offset(i64 index, const Strides& strides) const {
    if (straight()) return index * strides.of[AXES - 1];
    return far_offset(index, strides);
  }
  __device__ i64 far_offset(i64 index, const Strides& strides) const {
    if (i32(along.first_axis) == AXES - 2 && u64(index) >> 31 == 0) {
      const Divide& inner = along.extent[AXES - 1];
      const i32 above = inner(i32(index));
      return above * strides.of[AXES - 2] + (i32(index) - above * i32(inner.divisor)) * strides.of[AXES - 1];
    }
    return along.far_offset(index, strides);
  }
};

// The same of several elements, `apart` from each other: of `count`, then of the last one again. Rows along several axes
// are rare: their code stands once.
template <int COUNT>
__device__ inline void offsets(
    i64 (&at)[COUNT], i64 first, i64 apart, i32 count, const Reduction& rows, const Strides& strides) {
  if (rows.straight()) {
    const i64 start = first * strides.of[AXES - 1], step = apart * strides.of[AXES - 1];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) at[i] = start + min(i, count - 1) * step;
  } else {
#pragma unroll 1
    for (int i = 0; i < COUNT; ++i) {
      const i64 found = rows.far_offset(first + min(i, count - 1) * apart, strides);
#pragma unroll
      for (int j = 0; j < COUNT; ++j)
        if (i == j) at[j] = found;
    }
  }
}

// An input in the index space, and the bytes between which it lies.
struct Reach {
  Strides kept, along;
  i64 low, high;
};

__device__ inline f32 beside(f32 value, int lane) { return __shfl_xor_sync(~0u, value, lane); }
__device__ inline f64 beside(f64 value, int lane) { return __shfl_xor_sync(~0u, value, lane); }
__device__ inline i64 beside(i64 value, int lane) { return __shfl_xor_sync(~0u, value, lane); }
__device__ inline bool beside(bool value, int lane) { return __shfl_xor_sync(~0u, int(value), lane) != 0; }
template <typename V> __device__ inline Placed<V> beside(const Placed<V>& found, int lane) {
  return {beside(found.value, lane), beside(found.place, lane)};
}

// What a reduction takes for elements that a group does not have.
template <typename How, typename V> __device__ inline void leave_out(V (&group)[GROUP], i32 exist) {
  const auto nothing = How::template nothing<state_t<How, V>>();
#pragma unroll
  for (int i = 1; i < GROUP; ++i)
    if (i >= exist) {
      if constexpr (sizeof(nothing) == sizeof(V)) group[i] = nothing;
      else group[i] = nothing.value;
    }
}

template <typename How> struct is_largest { static constexpr bool value = false; };
template <> struct is_largest<LargestPlace> { static constexpr bool value = true; };

// Takes a group, which begins at `first` in its row, in addition to what there is of the place's groups before it.
template <typename How, typename V> __device__ inline void take(V& value, V (&group)[GROUP], i64 first) {
  value = How::of(value, joined<How>(group));
}
// The first of a group's best, 0 and -0 being equal; without branches, so that groups are looked through side by side.
// Where there is NaN, that is the best, and the first is sought.
template <bool LARGEST, typename V>
__device__ inline void take_place(Placed<V>& found, V (&group)[GROUP], i64 first) {
  V best;
  if constexpr (LARGEST) best = joined<Largest>(group);
  else best = joined<Smallest>(group);
  int lane = GROUP - 1;
#pragma unroll
  for (int i = GROUP - 2; i >= 0; --i)
    if ((group[i] == best) | (group[i] != group[i])) lane = i;
  const bool none = i32(found.place >> 32) == 0x7fffffff;  // no row is so long
  const bool kept = (found.value != found.value) | (LARGEST ? best <= found.value : best >= found.value);
  const bool better = none | !kept;
  found.value = better ? best : found.value;
  // As PTX: the compiler would jump over the search, and columns could not be searched side by side.
  asm("slct.s64.s32 %0, %1, %2, %3;" : "=l"(found.place) : "l"(first + lane), "l"(found.place), "r"(better ? 0 : -1));
}
template <typename How, typename V>
__device__ inline void take(Placed<V>& found, V (&group)[GROUP], i64 first) {
  take_place<is_largest<How>::value>(found, group, first);
}

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

// The columns that a thread takes of a tile: neighbours, which are whole vectors; or as many that lie APART, so that a
// warp's are neighbours: then 32 threads lie beside each other. A thread beyond the table's edge is given the last ones.
template <int LANES, bool ALIGNED> struct Beside {
  static constexpr int APART = ALIGNED ? 1 : 32;
  i64 first;
  i32 left;    // columns after the first
  i32 count;   // how many of its columns exist
  i32 thread;  // of those beside each other
  i32 width;   // columns of the tile
  i64 begin;   // of the tile

  __device__ Beside(const Reduction& rows, i64 tile, i32 wide) {
    thread = threadIdx.x & ((1 << wide) - 1);
    width = LANES << wide;
    begin = tile * width;
    const i64 wanted = begin + thread * (ALIGNED ? LANES : 1);
    first = min(wanted, rows.columns - (ALIGNED ? LANES : 1));
    left = i32(min(rows.columns - 1 - first, i64(width)));
    count = wanted >= rows.columns ? 0 : min(left / APART + 1, LANES);
  }
  __device__ i32 step(int lane) const { return min(lane * APART, left); }
  // How far a column of the tile lies from the first of the thread's; of one beyond the edge, the table's last column.
  __device__ i32 until(i32 column) const { return min(i32(begin - first) + column, left); }

  // Which column of a tile it is whose value lies at `index` of a block's scratch memory, thread by thread.
  static __device__ i32 place(i32 index) {
    return ALIGNED || LANES == 1 ? index : index / LANES + index % LANES * APART;
  }
};

// Where GROUP elements along rows lie, from `first` on, of which `exist`; then the last one again. Several columns a
// thread are those of rows that lie along one axis, in steps of less than 2^31 bytes: a multiplication each.
template <int LANES, typename S>
__device__ inline void places_along(
    S* (&at)[GROUP], S* row, i64 first, i32 exist, const Reduction& rows, const Strides& strides) {
  if constexpr (LANES == 1) {
    i64 before[GROUP];
    offsets(before, first, 1, exist, rows, strides);
#pragma unroll
    for (int i = 0; i < GROUP; ++i) at[i] = row + before[i];
  } else {
    const i32 step = i32(strides.of[AXES - 1] * i64(sizeof(S)));
    const u8* const start = reinterpret_cast<const u8*>(row + first * strides.of[AXES - 1]);
#pragma unroll
    for (int i = 0; i < GROUP; ++i)
      at[i] = reinterpret_cast<S*>(const_cast<u8*>(start + i64(min(i, exist - 1)) * i64(step)));
  }
}

// Those of a thread's columns; beyond the end, the last element again. The first of them exists.
template <typename E, int LANES, bool ALIGNED>
__device__ inline void load_columns(
    Lanes<E, LANES> (&lanes)[GROUP], const storage_t<E>* row, i64 first, i64 end, const Reduction& rows,
    const Reach& reach, const Beside<LANES, ALIGNED>& columns) {
  const storage_t<E>* at[GROUP];
  places_along<LANES>(at, row, first, i32(min(end - first, i64(GROUP))), rows, reach.along);
#pragma unroll
  for (int i = 0; i < GROUP; ++i) {
    if constexpr (ALIGNED && LANES > 1) {
      lanes[i] = load<true, E, LANES>(at[i], 0, LANES);
    } else {
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane)
        if (LANES == 1 || lane < columns.count) lanes[i].data[lane] = at[i][lane * columns.APART];
    }
  }
}
// Has the lines of a group that is loaded later brought into the L2 cache; nothing waits for them. Each of the threads
// beside each other asks for one line, which is all of them where a thread loads 16 bytes a row or less.
template <typename E, int LANES, bool ALIGNED>
__device__ inline void ask_for_columns(
    const storage_t<E>* row, i64 first, i64 end, const Reduction& rows, const Reach& reach,
    const Beside<LANES, ALIGNED>& columns) {
  static_assert(LANES > 1);
  const i32 beside = columns.thread / GROUP * i32(LINE / sizeof(storage_t<E>));
  const i64 index = first + columns.thread % GROUP;
  if (index >= end || beside >= columns.width) return;
  const storage_t<E>* const at = row + index * reach.along.of[AXES - 1] + columns.until(beside);
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at) : "memory");
}
// The same of what does not run along columns: GROUP elements for all of a thread's columns, or for each of them.
template <typename E, int LANES, bool ALIGNED, int COUNT>
__device__ inline void load_places(
    Lanes<E, GROUP> (&lanes)[COUNT], const storage_t<E>* array, i64 first_row, i64 first, i64 end,
    const Reduction& rows, const Reach& reach, const Beside<LANES, ALIGNED>& columns) {
#pragma unroll
  for (int lane = 0; lane < COUNT; ++lane) {
    const storage_t<E>* row = array;
    if (COUNT > 1 || LANES == 1) row += rows.kept.offset(first_row + columns.step(lane), reach.kept);
    const storage_t<E>* at[GROUP];
    places_along<LANES>(at, row, first, i32(min(end - first, i64(GROUP))), rows, reach.along);
#pragma unroll
    for (int i = 0; i < GROUP; ++i) lanes[lane].data[i] = *at[i];
  }
}
template <typename E, int LANES, bool ALIGNED>
__device__ inline void store_columns(
    storage_t<E>* row, i64 first, i32 exist, const Reduction& rows, const Reach& reach,
    const Beside<LANES, ALIGNED>& columns, const Lanes<E, LANES> (&lanes)[GROUP]) {
  storage_t<E>* at[GROUP];
  places_along<LANES>(at, row, first, exist, rows, reach.along);
  if (columns.count == 0) return;
#pragma unroll
  for (int i = 0; i < GROUP; ++i) {
    if (i >= exist) continue;
    if constexpr (ALIGNED && LANES > 1) {
      store<true, E, LANES>(at[i], 0, lanes[i]);
    } else {
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane)
        if (lane < columns.count) at[i][lane * columns.APART] = lanes[i].data[lane];
    }
  }
}

// Groups of a row's elements, `apart` elements from each other, those that begin before `end`; what lies beyond the row
// is 0. All loads are on their way before the first is used.
template <int MODE, typename E, int COUNT>
__device__ inline void part_shares(
    Lanes<E, GROUP> (&lanes)[COUNT], const storage_t<E>* row, i64 first, i64 apart, i64 end, const Reduction& rows,
    const Reach& reach, const storage_t<E>* origin) {
  if constexpr (MODE == WHOLE) {
    i64 at[COUNT];
    offsets(at, first, apart, COUNT, rows, reach.along);
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      if (first + i * apart < end) lanes[i] = load<true, E, GROUP>(row + at[i], 0, GROUP);
  } else if constexpr (MODE == STEPPED) {
#pragma unroll
    for (int turn = 0; turn < COUNT; ++turn) {
      lanes[turn] = {};
#pragma unroll
      for (int i = 0; i < GROUP; ++i) {
        const i64 index = first + turn * apart + i;
        if (index < end) lanes[turn].data[i] = row[rows.offset(index, reach.along)];
      }
    }
  } else {
    constexpr i64 bytes = sizeof(Lanes<E, GROUP>);
    const Span span = {reach.low, max(i64(0), reach.high - reach.low - bytes - min(i64(16), bytes) + 1)};
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      if (first + i * apart < end)
        lanes[i] = share<UNIT, E>(row, first + i * apart, rows.length, Along(), origin, span);
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
