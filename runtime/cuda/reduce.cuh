// Reductions over a row that the threads of a warp's part, of a warp or of a block hold together. Sums and products are
// made in one order, which depends on the row's length alone and which skuda.rows describes: the reference's bits.
#pragma once
#include "quick.cuh"
#include "walk.cuh"

constexpr int GROUP = 8;        // neighbours that are added first: a thread's share
constexpr int SEGMENT = 65536;  // elements
__device__ constexpr int larger(int a, int b) { return a > b ? a : b; }
// Blocks that a multiprocessor is to have room for, where threads hold so many bits of an element in registers, and
// `others` beside them.
__device__ constexpr int blocks_of(int threads, int chunks, int bits, int others) {
  const int registers = chunks * GROUP * bits / 32 + others;
  return threads < 256 || threads * registers > 65536 ? 1 : 65536 / (threads * registers);
}

// `nothing` changes no bit of what it is joined with; `empty` is the reduction of no elements.
struct Sum {
  template <typename V> static __device__ V nothing() { return V(-0.0); }
  template <typename V> static __device__ V empty() { return V(0); }
  template <typename V> static __device__ V of(V a, V b) { return a + b; }
};
struct Product {
  template <typename V> static __device__ V nothing() { return V(1); }
  template <typename V> static __device__ V empty() { return V(1); }
  template <typename V> static __device__ V of(V a, V b) { return a * b; }
};
// NaN if any is NaN; +0 is above -0.
struct Largest {
  template <typename V> static __device__ V nothing();
  template <typename V> static __device__ V empty() { return nothing<V>(); }  // refused by the plan
  static __device__ i64 of(i64 a, i64 b) { return a > b ? a : b; }
  static __device__ f32 of(f32 a, f32 b) {
    f32 y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
  }
  static __device__ f64 of(f64 a, f64 b) {
    if (a == b) return __longlong_as_double(__double_as_longlong(a) & __double_as_longlong(b));
    return a > b || is_nan(a) ? a : b;
  }
};
template <> __device__ inline i64 Largest::nothing<i64>() { return i64(1ull << 63); }
template <> __device__ inline f32 Largest::nothing<f32>() { return __uint_as_float(0xff800000u); }
template <> __device__ inline f64 Largest::nothing<f64>() { return __longlong_as_double(0xfff0000000000000ull); }
struct Smallest {
  template <typename V> static __device__ V nothing();
  template <typename V> static __device__ V empty() { return nothing<V>(); }  // refused by the plan
  static __device__ i64 of(i64 a, i64 b) { return a < b ? a : b; }
  static __device__ f32 of(f32 a, f32 b) {
    f32 y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
  }
  static __device__ f64 of(f64 a, f64 b) {
    if (a == b) return __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b));
    return a < b || is_nan(a) ? a : b;
  }
};
template <> __device__ inline i64 Smallest::nothing<i64>() { return i64(~0ull >> 1); }
template <> __device__ inline f32 Smallest::nothing<f32>() { return __uint_as_float(0x7f800000u); }
template <> __device__ inline f64 Smallest::nothing<f64>() { return __longlong_as_double(0x7ff0000000000000ull); }
struct Any {
  template <typename V> static __device__ V nothing() { return false; }
  template <typename V> static __device__ V empty() { return false; }
  static __device__ bool of(bool a, bool b) { return a || b; }
};
struct All {
  template <typename V> static __device__ V nothing() { return true; }
  template <typename V> static __device__ V empty() { return true; }
  static __device__ bool of(bool a, bool b) { return a && b; }
};

// The largest or smallest element with its place in the row: the first of equals, the first NaN if any is NaN. Any order
// gives the same.
template <typename V> struct Placed {
  V value;
  i64 place;
};
template <bool LARGEST> struct ExtremePlace {
  template <typename P> static __device__ P nothing() {
    using V = decltype(P::value);
    if constexpr (LARGEST) return {Largest::nothing<V>(), i64(~0ull >> 1)};
    else return {Smallest::nothing<V>(), i64(~0ull >> 1)};
  }
  template <typename P> static __device__ P empty() { return nothing<P>(); }  // refused by the plan
  template <typename V> static __device__ Placed<V> of(const Placed<V>& a, const Placed<V>& b) {
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    const bool before = LARGEST ? a.value > b.value : a.value < b.value;
    const bool same = a.value == b.value || (nan_a && nan_b);
    return same ? (a.place < b.place ? a : b) : before || nan_a ? a : b;
  }
};
struct LargestPlace : ExtremePlace<true> {};
struct SmallestPlace : ExtremePlace<false> {};

template <typename How> struct extreme_of;
template <> struct extreme_of<LargestPlace> { using type = Largest; };
template <> struct extreme_of<SmallestPlace> { using type = Smallest; };

// What a reduction makes of values V while it goes on: V itself, or V with its place in the row.
template <typename How, typename V> struct state { using type = V; };
template <typename V> struct state<LargestPlace, V> { using type = Placed<V>; };
template <typename V> struct state<SmallestPlace, V> { using type = Placed<V>; };
template <typename How, typename V> using state_t = typename state<How, V>::type;
template <typename How, typename V> __device__ inline state_t<How, V> state_of(V value, i64 place) {
  if constexpr (sizeof(state_t<How, V>) == sizeof(V)) return value;
  else return {value, place};
}
template <typename V> __device__ inline V result_of(V value) { return value; }
template <typename V> __device__ inline i64 result_of(const Placed<V>& found) { return found.place; }

template <typename V> __device__ inline V from_lane(V value, int apart) {
  return __shfl_xor_sync(0xffffffffu, value, apart);
}
template <typename V> __device__ inline Placed<V> from_lane(const Placed<V>& found, int apart) {
  return {from_lane(found.value, apart), from_lane(found.place, apart)};
}
// The largest magnitude of the finite values; 0 if there are none.
struct LargestMagnitude : Largest {
  template <typename V> static __device__ V nothing() { return V(0); }
  template <typename V> static __device__ V empty() { return Largest::empty<V>(); }
};

// The largest and the smallest where values that are not finite count as 0.
struct LargestFinite : Largest {};
struct SmallestFinite : Smallest {};

template <typename A, typename B> constexpr bool same = false;
template <typename A> constexpr bool same<A, A> = true;

template <typename How> constexpr int direction = 0;  // of an extreme: up or down
template <> constexpr int direction<Largest> = 1;
template <> constexpr int direction<LargestMagnitude> = 1;
template <> constexpr int direction<LargestFinite> = 1;
template <> constexpr int direction<Smallest> = -1;
template <> constexpr int direction<SmallestFinite> = -1;

// The largest or smallest value of a warp, of which each is a number or the canonical NaN, in one instruction of
// integers: their order is that of floats once the bits of negative ones are turned. NaN is above all numbers, or wraps
// around to below them.
template <int DIRECTION> __device__ inline f32 extreme_of_warp(f32 value) {
  const i32 bits = __float_as_int(value), ordered = bits ^ (bits >> 31 & 0x7fffffff);
  const i32 found = DIRECTION > 0 ? __reduce_max_sync(0xffffffffu, ordered)
                                  : i32(u32(__reduce_min_sync(0xffffffffu, i32(u32(ordered) + 1u))) - 1u);
  return __int_as_float(found ^ (found >> 31 & 0x7fffffff));
}

// A group made one by adding neighbours.
template <typename How, typename V> __device__ inline V joined(const V (&group)[GROUP]) {
  V values[GROUP];
#pragma unroll
  for (int i = 0; i < GROUP; ++i) values[i] = group[i];
#pragma unroll
  for (int apart = 1; apart < GROUP; apart *= 2)
#pragma unroll
    for (int i = 0; i < GROUP; i += 2 * apart) values[i] = How::of(values[i], values[i + apart]);
  return values[0];
}

template <typename How, typename V> __device__ inline V of_finite(V (&values)[GROUP]) {
#pragma unroll
  for (int i = 0; i < GROUP; ++i) values[i] = is_finite(values[i]) ? values[i] : V(0);
  return joined<How>(values);
}

// Whether values are finite is asked of their group first; `finite` becomes false where one is not.
template <typename How, typename V> struct Group {
  static __device__ V of(V (&values)[GROUP], bool&) { return joined<How>(values); }
};
template <typename V> struct Group<LargestMagnitude, V> {
  static __device__ V of(V (&values)[GROUP], bool& finite) {
#pragma unroll
    for (int i = 0; i < GROUP; ++i) values[i] = absolute(values[i]);
    const V largest = joined<Largest>(values);
    if (is_finite(largest)) return largest;
    finite = false;
    return of_finite<Largest>(values);
  }
};

// Where the largest is positive and finite, values that count as 0 make no difference.
template <typename V> struct Group<LargestFinite, V> {
  static __device__ V of(V (&values)[GROUP], bool& finite) {
    const V largest = joined<Largest>(values);
    finite &= is_finite(largest);
    return largest > V(0) && is_finite(largest) ? largest : of_finite<Largest>(values);
  }
};
template <typename V> struct Group<SmallestFinite, V> {
  static __device__ V of(V (&values)[GROUP], bool& finite) {
    const V smallest = joined<Smallest>(values);
    finite &= is_finite(smallest);
    return smallest < V(0) && is_finite(smallest) ? smallest : of_finite<Smallest>(values);
  }
};

// A group made one as if all values were finite, and whether what comes of such groups then is what is wanted.
template <typename How, typename V> __device__ inline V joined_unasked(V (&values)[GROUP]) {
  if constexpr (same<How, LargestMagnitude>)
#pragma unroll
    for (int i = 0; i < GROUP; ++i) values[i] = absolute(values[i]);
  return joined<How>(values);
}
template <typename How, typename V> __device__ inline bool sure_of(V value) {
  if constexpr (same<How, LargestMagnitude>) return is_finite(value);
  else if constexpr (same<How, LargestFinite>) return is_finite(value) && value > V(0);
  else if constexpr (same<How, SmallestFinite>) return is_finite(value) && value < V(0);
  else return true;
}

// Two elements of 16 bits at once.
template <typename E> struct Pair;
template <> struct Pair<f16> {
  static constexpr u32 infinity = 0x7c007c00u;
  static __device__ u32 larger(u32 a, u32 b) {
    u32 y;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
  }
  static __device__ u32 smaller(u32 a, u32 b) {
    u32 y;
    asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
  }
};
template <> struct Pair<bf16> {
  static constexpr u32 infinity = 0x7f807f80u;
  static __device__ u32 larger(u32 a, u32 b) {
    u32 y;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
  }
  static __device__ u32 smaller(u32 a, u32 b) {
    u32 y;
    asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
  }
};

// The extremes of elements as they are stored, where two of them fit a word. NaN if any is NaN.
template <typename How, typename E> struct Packed {
  static constexpr bool can = false;
};
template <typename How, typename E> struct PackedPairs {
  static constexpr bool can = direction<How> != 0;
  static constexpr bool magnitude = same<How, LargestMagnitude>;
  static constexpr bool sure = same<How, Largest> || same<How, Smallest>;  // whatever the elements are
  u32 largest = magnitude ? 0u : Pair<E>::infinity | 0x80008000u, smallest = Pair<E>::infinity;

  __device__ void add(const Lanes<E, GROUP>& lanes) {
#pragma unroll
    for (int i = 0; i < GROUP / 2; ++i) {
      const u32 pair = reinterpret_cast<const u32*>(lanes.data)[i];
      largest = Pair<E>::larger(largest, magnitude ? pair & 0x7fff7fffu : pair);
      smallest = Pair<E>::smaller(smallest, pair);
    }
  }

  static __device__ f32 low(u32 pair) { return widen(E{(unsigned short)pair}); }
  static __device__ f32 high(u32 pair) { return widen(E{(unsigned short)(pair >> 16)}); }
  __device__ f32 greatest() const { return Largest::of(low(largest), high(largest)); }
  __device__ f32 least() const { return Smallest::of(low(smallest), high(smallest)); }

  // Whether `value` is what is wanted: it is not where some element is not finite and that matters.
  __device__ bool known() const {
    return sure || (is_finite(greatest()) && (magnitude || is_finite(least())));
  }
  __device__ f32 value() const { return direction<How> < 0 ? least() : greatest(); }
};

template <typename How> struct Packed<How, f16> : PackedPairs<How, f16> {};
template <typename How> struct Packed<How, bf16> : PackedPairs<How, bf16> {};

// A share whose first stands for those that a row does not have: for extremes it makes no difference.
template <typename E> __device__ inline Lanes<E, GROUP> repeated(Lanes<E, GROUP> lanes, i32 count) {
  if (__builtin_expect(count >= GROUP, 1)) return lanes;
#pragma unroll
  for (int i = 1; i < Lanes<E, GROUP>::units; ++i) lanes.data[i] = i < count ? lanes.data[i] : lanes.data[0];
  return lanes;
}

// What a pass found of the elements that a row does not have counts for nothing.
template <typename How, typename V> __device__ inline void cut(V (&values)[GROUP], i32 count) {
  if (__builtin_expect(count >= GROUP, 1)) return;
#pragma unroll
  for (int i = 1; i < GROUP; ++i) values[i] = i < count ? values[i] : How::template nothing<V>();
}

// The sums of segments, as a tree of neighbours: one of each height waits for the one beside it.
template <typename How, typename V, bool SEVERAL> struct Segments {
  V waiting[SEVERAL ? 32 : 1];
  int count = 0;

  __device__ void add(V value) {
    int height = 0;
    if (SEVERAL)
      for (; count >> height & 1; ++height) value = How::of(waiting[height], value);
    waiting[height] = value;
    ++count;
  }
  __device__ V total() const {
    if (!SEVERAL) return waiting[0];
    V value = How::template nothing<V>();
    for (int height = 0; count >> height; ++height)
      if (count >> height & 1) value = How::of(waiting[height], value);
    return value;
  }
};

// What a thread has of a row that THREADS hold: each is one of the places to which groups are dealt.
template <typename How, typename V, int THREADS> struct Partial {
  static constexpr int WARPS = THREADS / 32;
  V place = How::template nothing<V>();
  bool finite = true;  // whether all values were, for a reduction that asks

  __device__ void add(V (&group)[GROUP]) { place = How::of(place, Group<How, V>::of(group, finite)); }

  // The same as long as all values are finite, which is asked once, of all groups: where `sure` is false, they have to
  // be added again.
  __device__ void add_unasked(V (&group)[GROUP]) { place = How::of(place, joined_unasked<How>(group)); }
  __device__ bool sure() const { return sure_of<How>(place); }

  // All shares of a thread, of elements themselves.
  template <bool CUT, typename E, int CHUNKS>
  __device__ void add_all(const Lanes<E, GROUP> (&lanes)[CHUNKS], i32 thread, i32 length) {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const i32 first = (chunk * THREADS + thread) * GROUP;
      if (first >= length) break;
      V group[GROUP];
#pragma unroll
      for (int lane = 0; lane < GROUP; ++lane) group[lane] = lanes[chunk].get(lane);
      if (CUT) cut<How>(group, length - first);
      add(group);
    }
  }

  // The value of the whole row, in every thread of it. `scratch` has a place for each warp of the block, and no thread
  // may still read what another reduction left there.
  __device__ V total(V* scratch) const {
    V value = across<(THREADS < 32 ? THREADS : 32)>(place);
    if constexpr (WARPS > 1) {
      if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
      __syncthreads();
      const V* const own = scratch + threadIdx.x / THREADS * WARPS;
      if constexpr (WARPS <= 8 && sizeof(V) <= 8) {  // every thread reads all: that takes less time than shuffles
        V each[WARPS];
#pragma unroll
        for (int i = 0; i < WARPS; ++i) each[i] = own[i];
#pragma unroll
        for (int apart = 1; apart < WARPS; apart *= 2)
#pragma unroll
          for (int i = 0; i < WARPS; i += 2 * apart) each[i] = How::of(each[i], each[i + apart]);
        value = each[0];
      } else {
        value = across<direction<How> != 0 ? 32 : WARPS>(own[threadIdx.x % WARPS]);  // an extreme may count twice
      }
    }
    return value;
  }

  template <int LANES> static __device__ V across(V value) {
    if constexpr (LANES == 32 && same<V, f32> && direction<How> != 0) {
      return extreme_of_warp<direction<How>>(value);
    } else {
#pragma unroll
      for (int lane = 1; lane < LANES; lane *= 2) value = How::of(value, from_lane(value, lane));
      return value;
    }
  }
};

// Extremes whose place is sought in a second step, once a row's threads know what they are.
template <typename How, typename E> constexpr bool sought = false;
template <> constexpr bool sought<LargestPlace, f16> = true;
template <> constexpr bool sought<LargestPlace, bf16> = true;
template <> constexpr bool sought<LargestPlace, f32> = true;
template <> constexpr bool sought<SmallestPlace, f16> = true;
template <> constexpr bool sought<SmallestPlace, bf16> = true;
template <> constexpr bool sought<SmallestPlace, f32> = true;
// The extreme of a share, as `Partial` has it.
template <typename Value, typename E> __device__ inline f32 extreme_of_share(const Lanes<E, GROUP>& share) {
  if constexpr (Packed<Value, E>::can) {
    Packed<Value, E> packed;
    packed.add(share);
    return packed.value();
  } else {
    f32 group[GROUP];
#pragma unroll
    for (int lane = 0; lane < GROUP; ++lane) group[lane] = share.get(lane);
    return joined<Value>(group);
  }
}
__device__ inline bool alike(f32 a, f32 b) { return a == b || (is_nan(a) && is_nan(b)); }

// The place of an extreme of a row whose threads hold all of it: first what it is, then where, which only threads that
// have it look for. `scratch` has room for a value and its place of each warp of the block.
template <typename How, int THREADS, bool CUT, typename E, int CHUNKS>
__device__ inline Placed<f32> seek(
    const Lanes<E, GROUP> (&lanes)[CHUNKS], i32 thread, i32 length, Placed<f32>* scratch) {
  using Value = typename extreme_of<How>::type;
  constexpr int WARPS = THREADS < 32 ? 0 : THREADS / 32;
  const i32 left = length - thread * GROUP;
  Partial<Value, f32, THREADS> partial;
  Packed<Value, E> packed;
  auto share = [&](int chunk) {
    return CUT ? repeated(lanes[chunk], left - chunk * (THREADS * GROUP)) : lanes[chunk];
  };
#pragma unroll
  for (int chunk = 0; chunk < CHUNKS; ++chunk) {
    if (chunk * (THREADS * GROUP) >= left) break;
    if constexpr (Packed<Value, E>::can) packed.add(share(chunk));
    else partial.place = Value::of(partial.place, extreme_of_share<Value>(share(chunk)));
  }
  if constexpr (Packed<Value, E>::can) partial.place = packed.value();
  const f32 found = partial.total(reinterpret_cast<f32*>(scratch));
  u32 place = ~0u;
  if (alike(partial.place, found)) {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      if (chunk * (THREADS * GROUP) >= left) break;
      const Lanes<E, GROUP> here = share(chunk);
      if (!alike(extreme_of_share<Value>(here), found)) continue;
#pragma unroll
      for (int lane = GROUP; lane-- > 0;)
        if (alike(here.get(lane), found)) place = (chunk * THREADS + thread) * GROUP + lane;
      break;
    }
  }
  u32* const places = reinterpret_cast<u32*>(scratch) + blockDim.x / 16;
  if constexpr (WARPS > 0) {
    place = __reduce_min_sync(0xffffffffu, place);
    if constexpr (WARPS > 1) {
      if (threadIdx.x % 32 == 0) places[threadIdx.x / 32] = place;
      __syncthreads();
      const u32* const ours = places + threadIdx.x / THREADS * WARPS;
#pragma unroll
      for (int i = 0; i < WARPS; ++i) place = min(place, ours[i]);
    }
  } else {
#pragma unroll
    for (int lane = 1; lane < THREADS; lane *= 2) place = min(place, from_lane(place, lane));
  }
  return {found, i64(place)};
}

// Rows: a number of outer axes with any strides, and an innermost one whose elements are `step` apart. Where rows are
// blocks along an axis, the last block of that axis may be shorter.
struct RowSpace {
  i64 rows, length;
  i64 block_axis, last_length;  // block_axis: AXES where rows are whole
  Outer outer;

  // A row, and where it lies in a plane of two axes, which needs no loop.
  struct Place {
    i64 row;
    bool in_plane;
    i32 above, inner;
  };
  __device__ Place place(i64 row) const {
    if (i32(outer.first_axis) != AXES - 2 || u64(row) >> 31 != 0) return {row, false, 0, 0};
    const i32 above = outer.extent[AXES - 1](i32(row));
    return {row, true, above, i32(row) - above * i32(outer.extent[AXES - 1].divisor)};
  }

  // Whether all rows are of one length and lie along one axis.
  __device__ bool plain() const { return i32(block_axis) == AXES && i32(outer.first_axis) >= AXES - 1; }

  __device__ i64 length_of(const Place& at) const {
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
  __device__ i64 offset(const Place& at, const Strides& strides) const {
    if (i32(outer.first_axis) >= AXES - 1) return at.row * strides.of[AXES - 1];
    if (at.in_plane) return at.above * strides.of[AXES - 2] + at.inner * strides.of[AXES - 1];
    return far_offset(at.row, strides);
  }
  __device__ __noinline__ i64 far_offset(i64 row, const Strides& strides) const {
    return outer.far_offset(row, strides);
  }
};

// Brings a thread's shares of what rows have in common to the cache beside it. Of many rows, others have done so.
constexpr int FEW_ROWS = 512;
template <typename E, int THREADS, int CHUNKS>
__device__ inline void bring_near(const storage_t<E>* row, i32 thread, i32 length) {
#pragma unroll
  for (int chunk = 0; chunk < CHUNKS; ++chunk) {
    const i32 first = (chunk * THREADS + thread) * GROUP;
    if (first < length) asm volatile("prefetch.global.L1 [%0];" ::"l"(at<E>(row, first)) : "memory");
  }
}

// What counts the elements of a row: 32 bits where threads hold all of it.
template <bool KEEP> struct index { using type = i64; };
template <> struct index<true> { using type = i32; };
