// The kernel of scans whose threads lie along rows: some threads of a warp hold a short row, a warp a longer one; a block
// goes along a long one, tiles at a time.
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

template <typename S, int... I>
__device__ inline void scan_rows(const RowArgs<typename S::Program>& args, Seq<I...>) {
  using P = typename S::Program;
  using Passes = ScanPasses<P>;
  using Last = typename Passes::Last;
  constexpr int TILES = S::TILES;
  constexpr bool REVERSE = Passes::reverse;
  const ThreadRow<S> row(args);
  typename P::Shared shared = shared_at_start<P>(args, row.position, typename P::C(row.length));
  const typename Passes::First pass(shared);
  const Last last(shared);
  P::finish(shared);
  if (row.thread == 0 && row.live) store_of_row<P>(row.starts, shared, make_seq<operands_of<P>::outputs>());
  __shared__ alignas(16) Tuple<typename RowScan<S, typename Passes::template scan<I>>::Memory...> memory;
  Tuple<RowScan<S, typename Passes::template scan<I>>...> scans;
  const i64 groups = (row.length + GROUP - 1) / GROUP, most = (args.rows.length + GROUP - 1) / GROUP;
  int turn = 0;
  for (i64 begin = 0; begin < most; begin += TILES * S::THREADS) {
    ScanShares<P> shares[TILES] = {};
    typename P::Held held[TILES][GROUP];
    i64 first[TILES];  // of a group; from `length` on where there is none
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      const i64 place = begin + tile * S::THREADS + row.thread;
      first[tile] = (place >= groups ? groups : REVERSE ? groups - 1 - place : place) * GROUP;
      if (first[tile] < row.length) shares[tile].template load<S::MODE>(args, row.starts, first[tile], row.length);
    }
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      compute_group<P, 0>(pass, shares[tile], held[tile], [&](int lane, const auto& values) {
        ((get<I>(scans).groups[tile].of[lane] = get<I>(values)), ...);
      });
      (get<I>(scans).scan_group(tile, row.thread, row.length - first[tile], get<I>(memory), turn), ...);
    }
    if constexpr (S::BLOCK) {
      __syncthreads();
      (get<I>(scans).join_warps(row.thread, get<I>(memory), turn), ...);
      turn ^= 1;
    }
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      if (first[tile] >= row.length) continue;
      const i64 start = REVERSE ? row.length - 1 - first[tile] : -first[tile];  // the lane of the row's first element
#pragma unroll
      for (int lane = 0; lane < GROUP; ++lane)
        ((held[tile][lane].*Passes::template scan<I>::member =
              get<I>(scans).groups[tile].value(lane, get<I>(scans).before[tile], lane == start)),
         ...);
      store_group<P, S::MODE>(
          args, row.starts, last, shares[tile], held[tile], first[tile], row.length, typename Last::Makes::Index());
    }
  }
}

template <typename P, int THREADS, int TILES, int MODE>
__global__ void __launch_bounds__(SCAN_THREADS) scan(const __grid_constant__ RowArgs<P> args) {
  scan_rows<ScanSchedule<P, THREADS, TILES, MODE>>(args, make_seq<ScanPasses<P>::scans>());
}
