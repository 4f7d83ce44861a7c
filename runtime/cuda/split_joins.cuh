// Joins what several blocks have reduced of a row. Each block reduces one split: an aligned range of the accumulators
// of a segment. Trees of neighbours join splits to the bits that one block makes of the whole row (`model.sum_order`).
// The kernel that joins splits, and one that a later stage reduces with, are dependent launches.
#pragma once
#include "dependent_launch.cuh"
#include "split_moves.cuh"

__device__ inline f32 beside(f32 value, int lane) { return __shfl_xor_sync(~0u, value, lane); }
__device__ inline f64 beside(f64 value, int lane) { return __shfl_xor_sync(~0u, value, lane); }
__device__ inline i64 beside(i64 value, int lane) { return __shfl_xor_sync(~0u, value, lane); }
__device__ inline bool beside(bool value, int lane) { return __shfl_xor_sync(~0u, int(value), lane) != 0; }
template <typename V> __device__ inline ValueAndIndex<V> beside(const ValueAndIndex<V>& found, int lane) {
  return {beside(found.value, lane), beside(found.index, lane)};
}
template <typename V> __device__ inline Moments<V> beside(const Moments<V>& found, int lane) {
  return from_lane(found, lane);
}
template <typename V> __device__ inline Exponentials<V> beside(const Exponentials<V>& found, int lane) {
  return from_lane(found, lane);
}

// What a reduction takes for elements that a group does not have.
template <typename How, typename V> __device__ inline void leave_out(V (&group)[GROUP], i32 exist) {
  const auto nothing = How::template nothing<state_t<How, V>>();
#pragma unroll
  for (int i = 1; i < GROUP; ++i)
    if (i >= exist) {
      if constexpr (same<How, LogSumExp>) group[i] = nothing.largest;
      else if constexpr (sizeof(nothing) == sizeof(V)) group[i] = nothing;
      else group[i] = nothing.value;
    }
}

template <typename How> struct is_largest { static constexpr bool value = false; };
template <> struct is_largest<ArgLargest> { static constexpr bool value = true; };

// Takes a group, which begins at `first` in its row, in addition to what there is of the accumulator's groups before
// it. E: of the elements that are reduced as they are stored, or V.
template <typename How, typename E, typename V> __device__ inline void take(V& value, V (&group)[GROUP], i64 first) {
  value = How::of(value, joined_stored<How, E>(group));
}
template <typename How, typename E, typename V>
__device__ inline void take(Exponentials<V>& value, V (&group)[GROUP], i64 first) {
  value = How::of(value, group);
}
// The first of a group's best, 0 and -0 being equal; without branches, so that groups are looked through side by side.
// Where there is NaN, that is the best, and the first is sought.
template <bool LARGEST, typename V>
__device__ inline void take_with_index(ValueAndIndex<V>& found, V (&group)[GROUP], i64 first) {
  V best;
  if constexpr (LARGEST) best = joined<Largest>(group);
  else best = joined<Smallest>(group);
  int lane = GROUP - 1;
#pragma unroll
  for (int i = GROUP - 2; i >= 0; --i)
    if ((group[i] == best) | (group[i] != group[i])) lane = i;
  const bool none = i32(found.index >> 32) == 0x7fffffff;  // no row is so long
  const bool kept = (found.value != found.value) | (LARGEST ? best <= found.value : best >= found.value);
  const bool better = none | !kept;
  found.value = better ? best : found.value;
  // As PTX: the compiler would jump over the search, and columns could not be searched side by side.
  asm("slct.s64.s32 %0, %1, %2, %3;" : "=l"(found.index) : "l"(first + lane), "l"(found.index), "r"(better ? 0 : -1));
}
template <typename How, typename E, typename V>
__device__ inline void take(ValueAndIndex<V>& found, V (&group)[GROUP], i64 first) {
  take_with_index<is_largest<How>::value>(found, group, first);
}

// Eight neighbours, or any power of two, made one.
template <typename P, int N> __device__ inline P tree(P (&values)[N]) {
#pragma unroll
  for (int apart = 1; apart < N; apart *= 2)
#pragma unroll
    for (int i = 0; i < N; i += 2 * apart) values[i] = P::of(values[i], values[i + apart]);
  return values[0];
}

// Joins what the threads of a team have that lie below each other, `1 << wide` being beside each other with LANES
// columns each: within a warp here, the warps' values in `scratch`, where `joined` finds them. A team is of several
// warps, or a part of one.
template <int LANES, typename P> __device__ inline void join_warps(P (&values)[LANES], int wide, int team, P* scratch) {
#pragma unroll
  for (int apart = 1; apart < 32; apart *= 2)
    if (apart >> wide && apart < team)
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane) values[lane] = P::of(values[lane], values[lane].beside(apart));
  const int part = min(team, 32), thread = threadIdx.x % part, width = 1 << wide;
  if (thread < width)
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane)
      scratch[((threadIdx.x / part) * width + thread) * LANES + lane] = values[lane];
  __syncthreads();
}
// One column of a team of so many threads, whose values begin in `scratch`.
template <int WARPS, typename P> __device__ inline P joined(const P* scratch, int columns, int column, int team) {
  P values[WARPS];
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp)
    values[warp] = warp * 32 < team ? scratch[warp * columns + column] : P::nothing();
  return tree(values);
}

// Joins what the threads of a block have of a row's accumulators, where `joined` finds it. `dealt`: each warp has a
// turn of the same 32 accumulators, which are joined one after the other.
template <typename P> __device__ inline void join_accumulators(P (&accumulators)[1], bool dealt, P* scratch) {
  if (dealt) {
    scratch[threadIdx.x] = accumulators[0];
    __syncthreads();
    if (threadIdx.x < 32)
      for (i32 turn = 32; turn < blockDim.x; turn += 32)
        accumulators[0] = P::of(accumulators[0], scratch[turn + threadIdx.x]);
    else
      accumulators[0] = P::nothing();
    __syncthreads();
  }
  join_warps<1>(accumulators, 0, blockDim.x, scratch);
}

// Splits of a row, `count` of those that a thread may have, as a tree of neighbours; `apart` values lie between those
// of neighbours. Eights of one row are whole words, for which there is room.
template <typename P> struct alignas(sizeof(P) < 2 ? 8 : 16) Eight {
  P values[GROUP];
};
template <typename P> __device__ inline P join_eight(const P* first, i64 count, i64 each, i64 apart) {
  P values[GROUP];
  if (apart == 1 && each >= GROUP) {  // then they begin at a multiple of eight
    Eight<P> eight;
    if (count > 0) eight = *reinterpret_cast<const Eight<P>*>(first);
#pragma unroll
    for (int i = 0; i < GROUP; ++i) values[i] = i < count ? eight.values[i] : P::nothing();
  } else {
#pragma unroll
    for (int i = 0; i < GROUP; ++i) values[i] = i < count ? first[i * apart] : P::nothing();
  }
  return tree(values);
}
// A range of them, one of those of `each` that a row's splits are dealt in: mostly eight at most.
template <typename P> __device__ inline P join_splits(const P* first, i64 count, i64 each, i64 apart) {
  P total = join_eight(first, count, each, apart);
  if (__builtin_expect(count <= GROUP, 1)) return total;
  P waiting[32];  // of each height, a tree that waits for the one beside it
  waiting[0] = total;
  int eights = 1;
#pragma unroll 1
  for (i64 start = GROUP; start < count; start += GROUP, ++eights) {
    P value = join_eight(first + start * apart, count - start, each, apart);
    int height = 0;
    for (; eights >> height & 1; ++height) value = P::of(waiting[height], value);
    waiting[height] = value;
  }
  bool found = false;
  for (int height = 0; eights >> height; ++height)
    if (eights >> height & 1) {
      total = found ? P::of(waiting[height], total) : waiting[height];
      found = true;
    }
  return total;
}

// The extremes of shares as they are stored, of half types two elements at a time.
template <typename How, typename E> struct Extremes : Packed<How, E> {};
template <typename How> struct Extremes<How, f32> {
  static constexpr bool can = direction<How> != 0;
  static constexpr bool magnitude = same<How, LargestMagnitude>, sure = same<How, Largest> || same<How, Smallest>;
  f32 largest = magnitude ? 0 : Largest::nothing<f32>(), smallest = Smallest::nothing<f32>();

  __device__ void add(const Lanes<f32, GROUP>& lanes) {
    f32 values[GROUP];
#pragma unroll
    for (int i = 0; i < GROUP; ++i) values[i] = magnitude ? absolute(lanes.get(i)) : lanes.get(i);
    largest = Largest::of(largest, joined<Largest>(values));
    smallest = Smallest::of(smallest, joined<Smallest>(values));
  }
  // Whether `value` is what is wanted: it is not where some element is not finite and that matters.
  __device__ bool known() const { return sure || (is_finite(largest) && (magnitude || is_finite(smallest))); }
  __device__ f32 value() const { return direction<How> < 0 ? smallest : largest; }
};

// The index of the extreme of a block's split, if there is one, in a thread of it that says so: first what it is and in
// which group, then where in that. `scratch` has room for 16 words.
template <typename How, int MODE, typename E, int TURNS, bool ONCE>
__device__ inline bool seek_in_split(
    ValueAndIndex<f32>& sought, const storage_t<E>* row, i64 begin, i32 first, i32 apart, i32 size, i32 turns,
    const Reduction& rows, const Reach& reach, const storage_t<E>* origin, u32* scratch) {
  using Value = typename extreme_of<How>::type;
  Lanes<E, GROUP> lanes[TURNS];
  f32 best = Value::template nothing<f32>();
  u32 found = first < size ? first : ~0u;  // the group that has it
#pragma unroll 1
  for (i32 turn = 0; turn < turns; turn += TURNS) {
    const i32 start = first + turn * apart;
    split_shares<MODE, E, TURNS, ONCE>(lanes, row, begin, start, apart, size, rows, reach, origin);
#pragma unroll
    for (int t = 0; t < TURNS; ++t) {
      const i32 left = size - start - t * apart;
      if (left <= 0) break;
      if constexpr (MODE != WHOLE) lanes[t] = repeated(lanes[t], left);
      const f32 value = extreme_of_share<Value>(lanes[t]);
      if (is_largest<How>::value ? value > best : value < best) found = start + t * apart;
      best = Value::of(best, value);
    }
  }
  auto again = [&](i32 at) {
    Lanes<E, GROUP> group[1];
    split_shares<MODE, E, 1, false, false>(group, row, begin, at, apart, size, rows, reach, origin);
    return repeated(group[0], size - at);
  };
  if (__builtin_expect(is_nan(best), 0)) {
    found = first;
#pragma unroll 1
    while (!is_nan(extreme_of_share<Value>(again(found)))) found += apart;
  }
  f32* const values = reinterpret_cast<f32*>(scratch);
  u32* const groups = scratch + 8;
  const f32 of_warp = extreme_of_warp<direction<Value>>(best);
  const u32 group = __reduce_min_sync(0xffffffffu, alike(best, of_warp) ? found : ~0u);
  if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = of_warp, groups[threadIdx.x / 32] = group;
  __syncthreads();
  f32 whole = values[0];
  u32 where = groups[0];
  for (i32 warp = 1; warp * 32 < blockDim.x; ++warp) {
    const f32 value = values[warp];
    if (alike(value, whole)) where = min(where, groups[warp]);
    else if (alike(Value::of(value, whole), value)) whole = value, where = groups[warp];
  }
  if (where == ~0u) return threadIdx.x == 0;  // none of the split's accumulators has any element
  if (found != where) return false;
  Lanes<E, GROUP> own;  // still there, if all turns were
  if (turns <= TURNS && !is_nan(whole)) {
#pragma unroll
    for (int t = 0; t < TURNS; ++t)
      if (found == first + t * apart) own = lanes[t];
  } else {
    own = again(found);
  }
  u32 index = found;
#pragma unroll
  for (int lane = GROUP; lane-- > 0;)
    if (alike(own.get(lane), whole)) index = found + lane;
  sought = {whole, begin + index};
  return true;
}
