// Reductions over a row that the threads of a warp's part, of a warp or of a block hold together. Sums and products are
// made in one order, which depends on the row's length alone and which `model.sum_order` describes: the reference's
// bits.
#pragma once
#include "reductions.cuh"
#include "tuning.cuh"

constexpr int SEGMENT = 65536;      // elements
constexpr int FEWEST = 4;           // accumulators of a row
constexpr int ACCUMULATORS = 1024;  // of a row, at most
constexpr int ACCUMULATOR_GROUPS = 4;  // of an accumulator, at most, until there are all accumulators
constexpr int REGISTERS = 65536;  // of a multiprocessor, 32 bits each
__device__ constexpr int larger(int a, int b) { return a > b ? a : b; }
__device__ constexpr int smaller(int a, int b) { return a < b ? a : b; }
// How many loads of so many bits are under way together: those of `under_way` bits, a power of two up to `most`.
__device__ constexpr int turns_of(int bits, int under_way, int most) {
  return most <= 1 || bits * most <= under_way ? most : turns_of(bits, under_way, most / 2);
}
// Blocks that a multiprocessor is to have room for, where threads hold so many bits of an element in registers, and
// `others` beside them.
__device__ constexpr int blocks_of(int threads, int chunks, int bits, int others) {
  const int registers = chunks * GROUP * bits / 32 + others;
  return threads < BOUND_THREADS || threads * registers > REGISTERS ? 1 : REGISTERS / (threads * registers);
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

// How many accumulators of a row a thread has: one, or one for its even chunks and one for its odd chunks.
__device__ constexpr int accumulators_each(int threads, int chunks) {
  return threads == 1 ? chunks : chunks > ACCUMULATOR_GROUPS && threads < ACCUMULATORS ? 2 : 1;
}

// What several parts of a row have that lie beside each other in memory.
template <typename How, int COUNT, typename V> __device__ inline V any_parts(const V* parts) {
  V each[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) each[i] = parts[i];
  return joined_neighbours<How>(each);
}
// The same out of line, of sums of exponentials some of which have to be moved.
template <typename How, int COUNT, typename V> __device__ __noinline__ V moved_parts(const V* parts) {
  return any_parts<How, COUNT>(parts);
}
// The same; sums of exponentials mostly stay as they are.
template <typename How, int COUNT, typename V> __device__ inline V joined_parts(const V* parts) {
  if constexpr (same<How, LogSumExp>) {
    decltype(V::sum) largest[COUNT], sums[COUNT];
    static_assert(COUNT % 2 == 0 && sizeof(V) == 8);
    bool stay = true;
#pragma unroll
    for (int i = 0; i < COUNT; i += 2) {  // two at once, as words: members would be read apart
      const uint4 two = reinterpret_cast<const uint4*>(parts)[i / 2];
      largest[i] = __int_as_float(two.x), sums[i] = __int_as_float(two.y);
      largest[i + 1] = __int_as_float(two.z), sums[i + 1] = __int_as_float(two.w);
      stay &= How::near_0(largest[i]) & How::near_0(largest[i + 1]);
    }
    if (__builtin_expect(!stay, 0)) return moved_parts<How, COUNT>(parts);
    return {joined_neighbours<Largest>(largest), joined_neighbours<Sum>(sums)};
  } else {
    return any_parts<How, COUNT>(parts);
  }
}

// The accumulators but the first of a thread that holds a row alone.
template <typename V, int COUNT> struct MoreAccumulators { V more[COUNT]; };
template <typename V> struct MoreAccumulators<V, 0> {};

// What a thread has of a row that THREADS hold: one or two of its accumulators; or where it holds the row alone, all
// EACH of them, which have a group each. SPREAD: threads that have one group each of the same accumulator; their
// numbers are HOLDERS apart.
template <typename How, typename V, int THREADS, int EACH = 1, int SPREAD = 1>
struct Partial : MoreAccumulators<V, THREADS == 1 && ordered<How> ? EACH - 1 : 0> {
  static constexpr int WARPS = THREADS / 32, HOLDERS = THREADS / SPREAD;
  static constexpr bool TWO = THREADS > 1 && EACH == 2 && ordered<How>, ALONE = THREADS == 1 && EACH > 1 && ordered<How>;
  V accumulator = How::template nothing<V>();
  V other = accumulator;  // the accumulator of odd chunks, where there are two
  bool finite = true;     // whether all values were, for a reduction that asks

  __device__ Partial() {
    if constexpr (ALONE)
      for (int i = 1; i < EACH; ++i) of_chunk(i) = How::template nothing<V>();
  }
  // The accumulator that takes a thread's chunk.
  __device__ V& of_chunk(int chunk) {
    if constexpr (ALONE) return chunk == 0 ? accumulator : this->more[chunk - 1];
    else return TWO && chunk % 2 != 0 ? other : accumulator;
  }

  // ASKED: whether all values are finite is asked of each group; otherwise once, of all groups: where `sure` is false,
  // they have to be added again.
  template <bool ASKED = true> __device__ void add(V (&group)[GROUP], int chunk = 0) {
    V& to = of_chunk(chunk);
    if constexpr (same<How, LogSumExp>) to = How::of(to, group);
    else if constexpr (ASKED) to = How::of(to, Group<How, V>::of(group, finite));
    else to = How::of(to, joined_unasked<How>(group));
  }
  // A group of which a row has `count` elements, made one once more where some are missing: what passes hold of the
  // elements is not changed, or compilers would hold it twice.
  template <bool ASKED = true> __device__ void add(const V (&group)[GROUP], int chunk, i32 count) {
    add_cut<ASKED>(group, chunk, count, [](V(&some)[GROUP], i32 count) { cut<How>(some, count); });
  }
  // `cut`: leaves out what the row does not have of a group.
  template <bool ASKED = true, typename Cut>
  __device__ void add_cut(const V (&group)[GROUP], int chunk, i32 count, const Cut& cut) {
    Partial next = *this;
    V some[GROUP];
#pragma unroll
    for (int i = 0; i < GROUP; ++i) some[i] = group[i];
    next.template add<ASKED>(some, chunk);
    if (__builtin_expect(count < GROUP, 0)) {
      next = *this;
#pragma unroll
      for (int i = 0; i < GROUP; ++i) some[i] = group[i];
      cut(some, count);
      next.template add<ASKED>(some, chunk);
    }
    *this = next;
  }
  __device__ bool sure() const { return sure_of<How>(accumulator); }

  // All shares of a thread, of elements themselves.
  template <bool CUT, typename E, int CHUNKS>
  __device__ void add_all(const Lanes<E, GROUP> (&lanes)[CHUNKS], i32 thread, i32 length) {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const i32 first = (chunk * THREADS + thread) * GROUP;
      if (first >= length) break;
      V group[GROUP];
#pragma unroll
      for (int lane = 0; lane < GROUP; ++lane) {
        if constexpr (parted<How>) group[lane] = How::of_one(lanes[chunk].get(lane));
        else group[lane] = lanes[chunk].get(lane);
      }
      if (CUT) add(group, chunk, length - first);
      else add(group, chunk);
    }
  }

  // The same of a sum of exponentials, where all elements are near 0, and the largest is known: sums need no anchors.
  // Those that a row does not have would change no bit.
  template <bool CUT, typename E, int CHUNKS, typename C>
  __device__ void add_near(const Lanes<E, GROUP> (&lanes)[CHUNKS], i32 thread, i32 length, C largest) {
    accumulator.largest = other.largest = largest;
    if constexpr (ALONE)
      for (int i = 1; i < EACH; ++i) of_chunk(i).largest = largest;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const i32 left = length - (chunk * THREADS + thread) * GROUP;
      if (left <= 0) break;
      C powers[GROUP];
#pragma unroll
      for (int lane = 0; lane < GROUP; ++lane) powers[lane] = How::near_power(C(lanes[chunk].get(lane)));
      if (CUT && __builtin_expect(left < GROUP, 0))
#pragma unroll
        for (int lane = 1; lane < GROUP; ++lane) powers[lane] = lane < left ? powers[lane] : C(0);
      V& to = of_chunk(chunk);
      to.sum = to.sum + joined_neighbours<Sum>(powers);
    }
  }

  // Values of so many rows that `scratch` has room for: EACH of each warp, and where groups are spread, each thread's.
  static constexpr int scratch_of(int rows) {
    return THREADS <= 32 ? 1 : rows * (WARPS * EACH + (SPREAD > 1 ? THREADS : 0));
  }
  // The value of the whole row, in every thread of it. No thread may still read what another reduction left in
  // `scratch`.
  __device__ V total(V* scratch) const {
    if constexpr (ALONE) {
      const V two = How::of(accumulator, this->more[0]);
      if constexpr (EACH == 2) return two;
      else if constexpr (EACH == 3) return How::of(two, this->more[1]);
      else return How::of(two, How::of(this->more[1], this->more[2]));
    }
    if constexpr (SPREAD > 1 && ordered<How>) {
      V* const groups = scratch + WARPS;
      const int own = threadIdx.x % HOLDERS;
      groups[threadIdx.x] = accumulator;
      __syncthreads();
      Partial<How, V, HOLDERS> joined;
      joined.accumulator = groups[own];
#pragma unroll
      for (int i = 1; i < SPREAD; ++i)
        joined.accumulator = How::of(joined.accumulator, groups[own + i * HOLDERS]);
      return joined.total(scratch);
    }
    constexpr int LANES = THREADS < 32 ? THREADS : 32, PARTS = TWO ? 2 * WARPS : WARPS;
    V value = of_lanes<LANES>();
    if constexpr (TWO && WARPS <= 1) value = joined_lanes<How>(value, from_lane(value, 1), 1);
    if constexpr (WARPS > 1) {
      const int row = threadIdx.x / THREADS * PARTS, warp = threadIdx.x % THREADS / 32;
      if (threadIdx.x % 32 < PARTS / WARPS) scratch[row + threadIdx.x % 32 * WARPS + warp] = value;
      __syncthreads();
      const V* const own = scratch + row;
      if constexpr (PARTS <= 8 && sizeof(V) <= 8)  // every thread reads all: that takes less time than shuffles
        value = joined_parts<How, PARTS>(own);
      else
        value = in_lanes<direction<How> != 0 ? 32 : PARTS>(own[threadIdx.x % PARTS]);  // an extreme may count twice
    }
    return value;
  }

  // What lanes have together; of two accumulators, even lanes what all have of the first, odd ones of the second.
  template <int LANES> __device__ V of_lanes() const {
    if constexpr (same<How, LogSumExp>) {
      using C = decltype(accumulator.sum);
      const bool stay = How::stays(accumulator) && (!TWO || How::stays(other));
      if (__builtin_expect(!__all_sync(0xffffffffu, stay), 0)) {  // a loop, for sums are moved out of line
        V value = TWO ? halves_of_lanes() : accumulator;
#pragma unroll 1
        for (int lane = TWO ? 2 : 1; lane < LANES; lane *= 2) value = How::of(value, from_lane(value, lane));
        return value;
      }
      Partial<Sum, C, THREADS, EACH> sums;
      sums.accumulator = accumulator.sum, sums.other = other.sum;
      // The largest of both accumulators stands for that of each: they will be joined.
      const C largest = TWO ? Largest::of(accumulator.largest, other.largest) : accumulator.largest;
      return {Partial<Largest, C, THREADS>::template across<LANES>(largest), sums.template of_lanes<LANES>()};
    } else if constexpr (TWO) {
      return across<LANES, 2>(halves_of_lanes());
    } else {
      return across<LANES>(accumulator);
    }
  }
  // The same of a value that each lane has.
  template <int LANES> static __device__ V in_lanes(const V& value) {
    Partial<How, V, THREADS> own;
    own.accumulator = value;
    return own.template of_lanes<LANES>();
  }
  // What lanes that are FROM, 2 FROM, 4 FROM .. apart have, up to LANES.
  template <int LANES, int FROM = 1> static __device__ V across(V value) {
    if constexpr (LANES == 32 && FROM == 1 && (same<V, f32> || same<V, i32>) && direction<How> != 0) {
      return extreme_of_warp<direction<How>>(value);
    } else {
#pragma unroll
      for (int lane = FROM; lane < LANES; lane *= 2) value = How::of(value, from_lane(value, lane));
      return same_in_lanes<How, LANES - FROM>(value);
    }
  }

 private:
  // Even lanes go on with the first of two accumulators, odd ones with the second.
  __device__ V halves_of_lanes() const {
    const bool odd = threadIdx.x % 2;
    // Copies: an address that is chosen between both would keep both in local memory.
    const V first = accumulator, second = other;
    const V own = odd ? second : first, next = odd ? first : second;
    return joined_lanes<How>(own, from_lane(next, 1), 1);
  }
};

// Extremes whose index is sought in a second step, once a row's threads know what they are.
template <typename How, typename E> constexpr bool sought = false;
template <> constexpr bool sought<ArgLargest, f16> = true;
template <> constexpr bool sought<ArgLargest, bf16> = true;
template <> constexpr bool sought<ArgLargest, f32> = true;
template <> constexpr bool sought<ArgSmallest, f16> = true;
template <> constexpr bool sought<ArgSmallest, bf16> = true;
template <> constexpr bool sought<ArgSmallest, f32> = true;
// Where threads hold a row, those of integers that 32 bits hold as well.
template <typename How, typename E>
constexpr bool sought_in_row = sought<How, E> || ((same<How, ArgLargest> || same<How, ArgSmallest>) && !Format<E>::real &&
                                                  Format<E>::bits + !Format<E>::has_sign <= 32);
template <bool REAL> struct sought_type { using type = f32; };
template <> struct sought_type<false> { using type = i32; };
template <typename E> using sought_t = typename sought_type<Format<E>::real>::type;
// The extreme of a share, as `Partial` has it.
template <typename Value, typename E> __device__ inline sought_t<E> extreme_of_share(const Lanes<E, GROUP>& share) {
  if constexpr (Packed<Value, E>::can) {
    Packed<Value, E> packed;
    packed.add(share);
    return packed.value();
  } else {
    sought_t<E> group[GROUP];
#pragma unroll
    for (int lane = 0; lane < GROUP; ++lane) group[lane] = sought_t<E>(share.get(lane));
    return joined<Value>(group);
  }
}
__device__ inline bool alike(i32 a, i32 b) { return a == b; }
__device__ inline bool alike(f32 a, f32 b) { return a == b || (is_nan(a) && is_nan(b)); }

// The least number that a row's threads have. `scratch` has room for one of each warp of the block.
template <int THREADS> __device__ inline u32 least_of_row(u32 value, u32* scratch) {
  constexpr int WARPS = THREADS < 32 ? 0 : THREADS / 32;
  if constexpr (WARPS > 0) {
    value = __reduce_min_sync(0xffffffffu, value);
    if constexpr (WARPS > 1) {
      if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
      __syncthreads();
      const u32* const ours = scratch + threadIdx.x / THREADS * WARPS;
#pragma unroll
      for (int i = 0; i < WARPS; ++i) value = min(value, ours[i]);
    }
  } else {
#pragma unroll
    for (int lane = 1; lane < THREADS; lane *= 2) value = min(value, from_lane(value, lane));
  }
  return value;
}

// The extreme of the bytes that a thread holds of a row, and the index of the first that has it, as one number: the
// better, the lower. ~0 where there are none.
template <bool LARGEST, int THREADS, bool CUT, typename E, int CHUNKS>
__device__ inline u32 first_best_byte(const Lanes<E, GROUP> (&lanes)[CHUNKS], i32 thread, i32 left) {
  constexpr bool SIGNED = Format<E>::has_sign;
  static_assert(CHUNKS * GROUP <= 256 && CHUNKS * GROUP * THREADS <= 1 << 24);
  if (left <= 0) return ~0u;
  u32 even, odd;  // of the bytes of a word: each above which of the thread's it is
#pragma unroll
  for (int chunk = 0; chunk < CHUNKS; ++chunk) {
    if (chunk * (THREADS * GROUP) >= left) break;
    const Lanes<E, GROUP> share = CUT ? repeated(lanes[chunk], left - chunk * (THREADS * GROUP)) : lanes[chunk];
#pragma unroll
    for (int i = 0; i < GROUP / 4; ++i) {
      const u32 word = reinterpret_cast<const u32*>(share.data)[i];
      const u32 which = (chunk * GROUP + i * 4) * 0x01010101u + 0x03020100u;  // a byte each
      const u32 low = __byte_perm(word, LARGEST ? ~which : which, 0x2604);
      const u32 high = __byte_perm(word, LARGEST ? ~which : which, 0x3715);
      even = chunk + i == 0 ? low : better_halves<LARGEST, SIGNED>(even, low);
      odd = chunk + i == 0 ? high : better_halves<LARGEST, SIGNED>(odd, high);
    }
  }
  u32 best = better_halves<LARGEST, SIGNED>(even, odd);
  best = better_halves<LARGEST, SIGNED>(best, best << 16);  // the upper half
  if (LARGEST) best = ~best;
  const i32 which = best >> 16 & 0xff, index = (which / GROUP * THREADS + thread) * GROUP + which % GROUP;
  return ((best >> 24) ^ (SIGNED ? 0x80 : 0)) << 24 | index;
}

// The index of an extreme of a row whose threads hold all of it: of bytes with the extreme; else first what it is, then
// where, which only threads that have it look for. `scratch` has room for a value and its index of each warp of the
// block.
template <typename How, int THREADS, bool CUT, typename E, int CHUNKS, typename C>
__device__ inline ValueAndIndex<C> seek(
    const Lanes<E, GROUP> (&lanes)[CHUNKS], i32 thread, i32 length, ValueAndIndex<C>* scratch) {
  using Value = typename extreme_of<How>::type;
  using V = sought_t<E>;
  const i32 left = length - thread * GROUP;
  if constexpr (Packed<Value, E>::can && !Format<E>::real) {
    constexpr bool LARGEST = direction<Value> > 0;
    const u32 best = least_of_row<THREADS>(
        first_best_byte<LARGEST, THREADS, CUT>(lanes, thread, left), reinterpret_cast<u32*>(scratch));
    const u32 byte = (best >> 24) ^ (LARGEST ? 0xff : 0) ^ (Format<E>::has_sign ? 0x80 : 0);
    return {C(E(byte)), i64(best & 0xffffff)};
  }
  Partial<Value, V, THREADS> partial;
  Packed<Value, E> packed;
  auto share = [&](int chunk) {
    return CUT ? repeated(lanes[chunk], left - chunk * (THREADS * GROUP)) : lanes[chunk];
  };
#pragma unroll
  for (int chunk = 0; chunk < CHUNKS; ++chunk) {
    if (chunk * (THREADS * GROUP) >= left) break;
    if constexpr (Packed<Value, E>::can) packed.add(share(chunk));
    else partial.accumulator = Value::of(partial.accumulator, extreme_of_share<Value>(share(chunk)));
  }
  if constexpr (Packed<Value, E>::can) partial.accumulator = packed.value();
  const V found = partial.total(reinterpret_cast<V*>(scratch));
  u32 index = ~0u;
  if (alike(partial.accumulator, found)) {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      if (chunk * (THREADS * GROUP) >= left) break;
      const Lanes<E, GROUP> here = share(chunk);
      if (!alike(extreme_of_share<Value>(here), found)) continue;
#pragma unroll
      for (int lane = GROUP; lane-- > 0;)
        if (alike(V(here.get(lane)), found)) index = (chunk * THREADS + thread) * GROUP + lane;
      break;
    }
  }
  u32* const indices = reinterpret_cast<u32*>(scratch) + blockDim.x / 16;
  index = least_of_row<THREADS>(index, indices);
  return {found, i64(index)};
}
