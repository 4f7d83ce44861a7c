// Scans by threads that lie along rows: some threads of a warp hold a short row, a warp a longer one; a block goes
// along a long one, tiles at a time.
#pragma once
#include "scans.cuh"

template <typename P, int THREADS_, int TILES_, int MODE_> struct ScanSchedule {
  using Args = RowArgs<P>;
  using Program = P;
  using Index = i64;
  static constexpr int THREADS = THREADS_, TILES = TILES_, MODE = MODE_, ROWS = SCAN_THREADS / THREADS;
  static constexpr int LANES = THREADS < SCAN_WARP ? THREADS : SCAN_WARP, WARPS = THREADS / SCAN_WARP;
  static constexpr bool BLOCK = THREADS > SCAN_WARP;  // whether warps meet
};

// Blocks that a multiprocessor is to have room for, where threads hold much; 0: as the compiler likes.
template <typename P> __device__ constexpr int scan_blocks(int tiles, int mode) {
  return scan_bytes<P> > 4 || tiles < 2 ? 0 : tiles > 2 ? 3 : mode == UNIT ? 4 : 0;
}

// What another lane of a warp has of a value; of pairs, scan_linear.cuh says it.
template <typename V> __device__ inline V of_lane(V value, int lane) { return __shfl_sync(~0u, value, lane); }

// The scan of LANES threads beside each other, each of which is the `lane`-th of them.
template <typename How, int LANES, typename V> __device__ inline V scan_lanes(V value, int lane) {
  const int start = (threadIdx.x & 31) - lane;
#pragma unroll
  for (int half = 1; half < LANES; half *= 2) {
    const V other = of_lane(value, start + (lane & -2 * half) + half - 1);
    if (lane & half) value = How::of(other, value);
  }
  return value;
}

// What a thread has of one scan: a group of each tile, and what comes before it.
template <typename S, typename Make> struct RowScan {
  using How = typename Make::How;
  using V = scan_state<Make>;
  struct Memory { V of[2][S::TILES][SCAN_TILE]; };  // totals of warps; those of a turn are read while others are written
  ScanGroup<Make> groups[S::TILES];
  V before[S::TILES], warps[S::TILES], totals[S::TILES];  // warps: what comes before this one's, of its tile
  ScanCarry<How, V> carry;

  __device__ void scan_group(int tile, int thread, i64 left, Memory& memory, int turn) {
    const int lane = thread % S::LANES;
    const V total = scan_lanes<How, S::LANES>(groups[tile].scan(left), lane);
    if (S::BLOCK && lane == SCAN_WARP - 1) memory.of[turn][tile][threadIdx.x / SCAN_WARP] = total;
    before[tile] = of_lane(total, (threadIdx.x & 31) - (lane > 0));
    if (lane == 0) before[tile] = How::template nothing<V>();
  }
  // All warps have left their totals.
  __device__ void scan_warps(int thread, const Memory& memory, int turn) {
#pragma unroll
    for (int tile = 0; tile < S::TILES; ++tile) {
      const int lane = threadIdx.x % S::WARPS, warp = thread / SCAN_WARP, own = threadIdx.x / S::THREADS * S::WARPS;
      const V total = scan_lanes<How, S::WARPS>(memory.of[turn][tile][own + lane], lane);
      warps[tile] = of_lane(total, warp > 0 ? warp - 1 : 0);
      if (warp == 0) warps[tile] = How::template nothing<V>();
      totals[tile] = of_lane(total, S::WARPS - 1);
    }
  }
  __device__ void join_tiles() {
#pragma unroll
    for (int tile = 0; tile < S::TILES; ++tile) {
      before[tile] = How::of(How::of(carry.before(), warps[tile]), before[tile]);
      carry.add(totals[tile]);
    }
  }
};

// How an output goes to memory. Where a thread's groups are not words beside its neighbours', a warp's threads, or
// those of a short row, write a stretch of the row together; of whole words, where a thread has several of them.
template <typename S, typename Pass, int N> struct ScanStretch {
  using Store = ScanStore<typename S::Program, Pass, N>;
  using Part = Stretch<typename Store::E, S::LANES, 1>;
  static constexpr int bytes = SCAN_THREADS / S::LANES * Part::bytes;
  static constexpr bool joined = Part::wanted(S::MODE) && (S::MODE == UNIT || S::TILES > 1) &&
                                 operands_of<typename S::Program>::result_bits * SCAN_THREADS <= STRETCH_BYTES;
  struct alignas(16) Memory { u8 of[joined ? bytes : 16]; };

  // begin: the stretch's first element; `count` of them exist; `own`: whether this thread's group does, at `first`.
  static __device__ void store(
      const Store& store, const RowArgs<typename S::Program>& args, const RowStarts<typename S::Program>& starts,
      Memory& memory, i64 begin, i32 count, bool own, i64 first, i64 length) {
    if constexpr (joined) {
      const Part part{memory.of + threadIdx.x / S::LANES * Part::bytes};
      const int lane = threadIdx.x % S::LANES;
      if (own) part.put(int(first - begin) / GROUP, 0, store.lanes(), i32(min(length - first, i64(GROUP))));
      auto* const row = get<RowStarts<typename S::Program>::inputs + Store::O>(starts.at);
      part.template store<S::MODE == WHOLE>(at<typename Store::E>(row, begin), count, lane);
      Part::wait();
    } else if (own) {
      store.template store<S::MODE>(args, starts, first, length);
    }
  }
};

template <typename S, typename I> struct RowScansOf;
template <typename S, int... I> struct RowScansOf<S, Seq<I...>> {
  using P = typename S::Program;
  using Passes = ScanPasses<P>;
  using Last = typename Passes::Last;
  using Stored = typename Last::Makes::Index;
  using Memory = Tuple<typename RowScan<S, typename Passes::template scan<I>>::Memory...>;
  template <typename N> struct StretchesOf;
  template <int... N> struct StretchesOf<Seq<N...>> {
    Tuple<typename ScanStretch<S, Last, N>::Memory...> memory;
    static constexpr bool joined = (ScanStretch<S, Last, N>::joined || ...);
  };
  using Stretches = StretchesOf<Stored>;
  using Carries = Tuple<decltype(RowScan<S, typename Passes::template scan<I>>::carry)...>;
  static constexpr int TILES = S::TILES;
  static constexpr bool REVERSE = Passes::reverse;
  Tuple<RowScan<S, typename Passes::template scan<I>>...> of;
  ScanShares<P> shares[TILES];
  typename P::Held held[TILES][GROUP];
  i64 first[TILES];  // of a group; from the row's length on where there is none

  // Groups of a row from `begin` on, counted from the end at which the scan begins: reads and scans them.
  __device__ void load(const RowArgs<P>& args, const RowStarts<P>& starts, int thread, i64 length, i64 begin) {
    const i64 groups = (length + GROUP - 1) / GROUP;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      shares[tile] = {};
      const i64 place = begin + tile * S::THREADS + thread;
      first[tile] = (place >= groups ? groups : REVERSE ? groups - 1 - place : place) * GROUP;
      if (first[tile] < length) shares[tile].template load<S::MODE>(args, starts, first[tile], length);
    }
  }
  __device__ void scan(const typename P::Shared& shared, int thread, i64 length, Memory& memory, int turn) {
    const typename Passes::First pass(shared);
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      compute_group<P, 0>(pass, shares[tile], held[tile], [&](int lane, const auto& values) {
        ((get<I>(of).groups[tile].of[lane] = get<I>(values)), ...);
      });
      (get<I>(of).scan_group(tile, thread, length - first[tile], get<I>(memory), turn), ...);
    }
    if constexpr (S::BLOCK) {
      __syncthreads();
      (get<I>(of).scan_warps(thread, get<I>(memory), turn), ...);
    }
  }
  __device__ void join_tiles() { (get<I>(of).join_tiles(), ...); }
  __device__ void store(
      const RowArgs<P>& args, const RowStarts<P>& starts, const typename P::Shared& shared, int thread, i64 length,
      i64 begin, Stretches& stretches) {
    const Last last(shared);
    const i64 groups = (length + GROUP - 1) / GROUP;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      const bool own = first[tile] < length;
      const i64 place = begin + tile * S::THREADS + thread - threadIdx.x % S::LANES;  // of the stretch
      if (Stretches::joined && S::LANES == SCAN_WARP ? place >= groups : !Stretches::joined && !own) continue;
      ScanStoresOf<Stored> stores;
      if (own) {
        if constexpr (Passes::again) shares[tile].template load<S::MODE>(args, starts, first[tile], length);
        const i64 start = REVERSE ? length - 1 - first[tile] : -first[tile];  // the lane of the row's first element
#pragma unroll
        for (int lane = 0; lane < GROUP; ++lane)
          ((held[tile][lane].*Passes::template scan<I>::member =
                get<I>(of).groups[tile].value(lane, get<I>(of).before[tile], lane == start)),
           ...);
        compute_stores<P>(last, shares[tile], held[tile], stores.of, Stored());
      }
      const i64 begins = REVERSE ? max(groups - place - S::LANES, i64(0)) : min(place, groups);
      const i64 ends = REVERSE ? max(groups - place, i64(0)) : min(place + S::LANES, groups);
      const i32 count = i32(min(ends * GROUP, length) - begins * GROUP);
      ::each(Stored(), [&](auto n) {
        ScanStretch<S, Last, n>::store(
            get<n>(stores.of), args, starts, get<n>(stretches.memory), begins * GROUP, max(count, 0), own, first[tile],
            length);
      });
    }
  }

 private:
  template <typename N> struct ScanStoresOf;
  template <int... N> struct ScanStoresOf<Seq<N...>> { Tuple<ScanStore<P, Last, N>...> of; };
};
template <typename S> using RowScans = RowScansOf<S, make_seq<ScanPasses<typename S::Program>::scans>>;
