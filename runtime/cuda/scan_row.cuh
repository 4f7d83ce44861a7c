// Scans by threads that lie along rows: some threads of a warp hold a short row, a warp a longer one; a block goes along a
// long one, tiles at a time.
#pragma once
#include "scans.cuh"

template <typename P, int THREADS_, int TILES_, int MODE_> struct ScanSchedule {
  using Program = P;
  using Index = i64;
  static constexpr int THREADS = THREADS_, TILES = TILES_, MODE = MODE_, ROWS = SCAN_THREADS / THREADS;
  static constexpr int LANES = THREADS < SCAN_WARP ? THREADS : SCAN_WARP;
  static constexpr bool BLOCK = THREADS > SCAN_WARP;  // whether warps meet
};

// The scan of LANES threads beside each other, each of which is the `lane`-th of them.
template <typename How, int LANES, typename V> __device__ inline V scan_lanes(V value, int lane) {
  const int start = (threadIdx.x & 31) - lane;
#pragma unroll
  for (int half = 1; half < LANES; half *= 2) {
    const V other = __shfl_sync(~0u, value, start + (lane & -2 * half) + half - 1);
    if (lane & half) value = How::of(other, value);
  }
  return value;
}

// What a thread has of one scan: a group of each tile, and what comes before it.
template <typename S, typename Make> struct RowScan {
  using How = typename Make::How;
  using V = typename Make::Value;
  struct Memory { V of[2][S::TILES][SCAN_TILE]; };  // totals of warps; those of a turn are read while others are written
  ScanGroup<Make> groups[S::TILES];
  V before[S::TILES];
  ScanCarry<How, V> carry;

  __device__ void scan_group(int tile, int thread, i64 left, Memory& memory, int turn) {
    const int lane = thread % S::LANES;
    const V total = scan_lanes<How, S::LANES>(groups[tile].scan(left), lane);
    if (S::BLOCK && lane == SCAN_WARP - 1) memory.of[turn][tile][thread / SCAN_WARP] = total;
    before[tile] = __shfl_sync(~0u, total, (threadIdx.x & 31) - (lane > 0));
    if (lane == 0) before[tile] = How::template nothing<V>();
  }
  __device__ void join_warps(int thread, const Memory& memory, int turn) {
#pragma unroll
    for (int tile = 0; tile < S::TILES; ++tile) {
      const int lane = threadIdx.x % SCAN_TILE, warp = thread / SCAN_WARP;
      const V total = scan_lanes<How, SCAN_TILE>(memory.of[turn][tile][lane], lane);
      V warps = __shfl_sync(~0u, total, warp > 0 ? warp - 1 : 0);
      if (warp == 0) warps = How::template nothing<V>();
      before[tile] = How::of(How::of(carry.before(), warps), before[tile]);
      carry.add(__shfl_sync(~0u, total, SCAN_TILE - 1));
    }
  }
};

template <typename S, typename I> struct RowScansOf;
template <typename S, int... I> struct RowScansOf<S, Seq<I...>> {
  using P = typename S::Program;
  using Passes = ScanPasses<P>;
  using Memory = Tuple<typename RowScan<S, typename Passes::template scan<I>>::Memory...>;
  Tuple<RowScan<S, typename Passes::template scan<I>>...> of;

  // Goes along groups of a row, `begin` to `end` from the end at which the scan begins. STORES: makes the outputs too;
  // else only what comes after these groups.
  template <bool STORES>
  __device__ void run(
      const RowArgs<P>& args, const RowStarts<P>& starts, const typename P::Shared& shared, int thread, i64 length,
      i64 begin, i64 end, Memory& memory) {
    using Last = typename Passes::Last;
    constexpr int TILES = S::TILES;
    constexpr bool REVERSE = Passes::reverse;
    const typename Passes::First pass(shared);
    const Last last(shared);
    const i64 groups = (length + GROUP - 1) / GROUP;
    int turn = 0;
    for (; begin < end; begin += TILES * S::THREADS) {
      ScanShares<P> shares[TILES] = {};
      typename P::Held held[TILES][GROUP];
      i64 first[TILES];  // of a group; from `length` on where there is none
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) {
        const i64 place = begin + tile * S::THREADS + thread;
        first[tile] = (place >= groups ? groups : REVERSE ? groups - 1 - place : place) * GROUP;
        if (first[tile] < length) shares[tile].template load<S::MODE>(args, starts, first[tile], length);
      }
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) {
        compute_group<P, 0>(pass, shares[tile], held[tile], [&](int lane, const auto& values) {
          ((get<I>(of).groups[tile].of[lane] = get<I>(values)), ...);
        });
        (get<I>(of).scan_group(tile, thread, length - first[tile], get<I>(memory), turn), ...);
      }
      if constexpr (S::BLOCK) {
        __syncthreads();
        (get<I>(of).join_warps(thread, get<I>(memory), turn), ...);
        turn ^= 1;
      }
      if constexpr (STORES)
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
          if (first[tile] >= length) continue;
          if constexpr (Passes::again) shares[tile].template load<S::MODE>(args, starts, first[tile], length);
          const i64 start = REVERSE ? length - 1 - first[tile] : -first[tile];  // the lane of the row's first element
#pragma unroll
          for (int lane = 0; lane < GROUP; ++lane)
            ((held[tile][lane].*Passes::template scan<I>::member =
                  get<I>(of).groups[tile].value(lane, get<I>(of).before[tile], lane == start)),
             ...);
          store_group<P, S::MODE>(
              args, starts, last, shares[tile], held[tile], first[tile], length, typename Last::Makes::Index());
        }
    }
  }
};
template <typename S> using RowScans = RowScansOf<S, make_seq<ScanPasses<typename S::Program>::scans>>;
