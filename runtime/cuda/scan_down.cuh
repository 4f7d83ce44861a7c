// The kernel of scans of rows that lie beside each other: a warp's threads have neighbouring rows, and its walkers go
// down them, each some groups at a time.
#pragma once
#include "scans.cuh"

constexpr int SCAN_GROUPS = 4;  // that a walker takes at once: those of eight are a warp's in model/scan_order.py

template <typename P, int WALKERS_> struct ScanDownSchedule {
  using Program = P;
  static constexpr int WALKERS = WALKERS_, ROWS = SCAN_THREADS / WALKERS;
};

// What a thread has of one scan.
template <typename S, typename Make> struct DownScan {
  using How = typename Make::How;
  using V = scan_state<Make>;
  static constexpr int TREE = 3;  // levels of a tile
  struct Memory { V of[2][S::WALKERS][S::ROWS]; };
  ScanGroup<Make> groups[SCAN_GROUPS];
  V totals[SCAN_GROUPS], before[SCAN_GROUPS];
  V warps = How::template nothing<V>();  // before this one, of its tile
  V halves[TREE];                        // totals of 1, 2 and 4 warps, after which as many come
  int warp = 0;                          // of its tile
  ScanCarry<How, V> carry;

  __device__ void scan_group(int group, i64 left) { totals[group] = groups[group].scan(left); }
  __device__ void scan_groups(int walker, int row, Memory& memory, int turn) {
    totals[1] = How::of(totals[0], totals[1]);
    totals[3] = How::of(totals[2], totals[3]);
    totals[2] = How::of(totals[1], totals[2]);
    totals[3] = How::of(totals[1], totals[3]);
    memory.of[turn][walker][row] = totals[3];
  }
  // What comes before a thread's groups, once all walkers have left their totals. Returns the total of all.
  __device__ V join(int walker, int row, const Memory& memory, int turn) {
    before[0] = How::template nothing<V>();
    for (int group = 1; group < SCAN_GROUPS; ++group) before[group] = totals[group - 1];
    if constexpr (S::WALKERS == 1) return totals[3];
    else {
      const auto& of = memory.of[turn];
      const V low = How::of(of[0][row], of[1][row]), high = How::of(of[4][row], of[5][row]);
      const V half = How::of(low, How::of(of[2][row], of[3][row]));
      if (walker > 0) before[0] = whole(of[walker - 1][row], walker - 1, row, of, low, high, half);
#pragma unroll
      for (int group = 1; group < SCAN_GROUPS; ++group)
        before[group] = whole(before[group], walker, row, of, low, high, half);
      return How::of(half, How::of(high, How::of(of[6][row], of[7][row])));
    }
  }
  __device__ V before_all() const { return How::of(carry.before(), warps); }
  __device__ void add_before(V all) {
#pragma unroll
    for (int group = 0; group < SCAN_GROUPS; ++group) before[group] = How::of(all, before[group]);
  }
  __device__ void advance(V total) {
#pragma unroll
    for (int level = 0; level < TREE; ++level) {
      const int below = (1 << level) - 1;
      if (warp >> level & 1) total = How::of(halves[level], total);
      else if ((warp & below) == below) halves[level] = total;
    }
    warps = total;
    warp = (warp + 1) % SCAN_TILE;
    if (warp > 0) return;
    carry.add(total);
    warps = How::template nothing<V>();
  }

 private:
  // A scan of a walker's groups as that of the warp.
  template <typename Totals>
  static __device__ V whole(V value, int walker, int row, const Totals& of, V low, V high, V half) {
    if (walker & 1) value = How::of(of[walker - 1][row], value);
    if (walker & 2) value = How::of(walker & 4 ? high : low, value);
    if (walker & 4) value = How::of(half, value);
    return value;
  }
};

// What a thread has of all scans, and how it goes down a row.
template <typename S, typename I> struct DownScansOf;
template <typename S, int... I> struct DownScansOf<S, Seq<I...>> {
  using P = typename S::Program;
  using Passes = ScanPasses<P>;
  using Last = typename Passes::Last;
  using Memory = Tuple<typename DownScan<S, typename Passes::template scan<I>>::Memory...>;
  using Befores = Tuple<typename DownScan<S, typename Passes::template scan<I>>::V...>;  // of a row
  static constexpr bool REVERSE = Passes::reverse;
  Tuple<DownScan<S, typename Passes::template scan<I>>...> of;
  ScanShares<P> shares[SCAN_GROUPS];
  typename P::Held held[SCAN_GROUPS][GROUP];
  i64 first[SCAN_GROUPS];

  // A walker's groups from `begin` on, counted from the end at which the scan begins: reads and scans them. Returns
  // when all walkers have.
  __device__ void scan(
      const RowArgs<P>& args, const RowStarts<P>& starts, const typename P::Shared& shared, int walker, int beside,
      i64 length, i64 begin, Memory& memory, int turn) {
    const typename Passes::First pass(shared);
    const i64 groups = (length + GROUP - 1) / GROUP;
#pragma unroll
    for (int group = 0; group < SCAN_GROUPS; ++group) {
      shares[group] = {};
      const i64 place = begin + walker * SCAN_GROUPS + group;
      first[group] = (place >= groups ? groups : REVERSE ? groups - 1 - place : place) * GROUP;
      if (first[group] < length) shares[group].template load<STEPPED>(args, starts, first[group], length);
    }
#pragma unroll
    for (int group = 0; group < SCAN_GROUPS; ++group) {
      compute_group<P, 0>(pass, shares[group], held[group], [&](int lane, const auto& values) {
        ((get<I>(of).groups[group].of[lane] = get<I>(values)), ...);
      });
      (get<I>(of).scan_group(group, length - first[group]), ...);
    }
    (get<I>(of).scan_groups(walker, beside, get<I>(memory), turn), ...);
    if constexpr (S::WALKERS > 1) __syncthreads();
  }
  __device__ void store(
      const RowArgs<P>& args, const RowStarts<P>& starts, const typename P::Shared& shared, i64 length) {
    const Last last(shared);
#pragma unroll
    for (int group = 0; group < SCAN_GROUPS; ++group) {
      if (first[group] >= length) continue;
      if constexpr (Passes::again) shares[group].template load<STEPPED>(args, starts, first[group], length);
      const i64 start = REVERSE ? length - 1 - first[group] : -first[group];
#pragma unroll
      for (int lane = 0; lane < GROUP; ++lane)
        ((held[group][lane].*Passes::template scan<I>::member =
              get<I>(of).groups[group].value(lane, get<I>(of).before[group], lane == start)),
         ...);
      store_group<P, STEPPED>(
          args, starts, last, shares[group], held[group], first[group], length, typename Last::Makes::Index());
    }
  }
};
template <typename S> using DownScans = DownScansOf<S, make_seq<ScanPasses<typename S::Program>::scans>>;

template <typename P, int WALKERS>
__global__ void __launch_bounds__(SCAN_THREADS) scan_down(const __grid_constant__ RowArgs<P> args) {
  using S = ScanDownSchedule<P, WALKERS>;
  const int beside = threadIdx.x % S::ROWS, walker = threadIdx.x / S::ROWS;
  const i64 wanted = i64(blockIdx.x) * S::ROWS + beside;
  const bool live = wanted < args.rows.rows;
  const DownRow<P> row{args.rows.position(live ? wanted : args.rows.rows - 1)};
  RowStarts<P> starts;
  const i64 most = starts.set(args, row), length = live ? most : 0;
  typename P::Shared shared = shared_at_start<P>(args, row.position, typename P::C(length));
  P::finish(shared);
  if (walker == 0 && live) store_of_row<P>(starts, shared, make_seq<operands_of<P>::outputs>());
  __shared__ alignas(16) typename DownScans<S>::Memory memory;
  DownScans<S> scans;
  const i64 all = (most + GROUP - 1) / GROUP;
  int turn = 0;
  for (i64 begin = 0; begin < all; begin += S::WALKERS * SCAN_GROUPS, turn ^= 1) {
    scans.scan(args, starts, shared, walker, beside, length, begin, memory, turn);
    each<ScanPasses<P>::scans>([&](auto i) {
      auto& scan = get<i>(scans.of);
      const auto total = scan.join(walker, beside, get<i>(memory), turn);
      if constexpr (WALKERS > 1) {
        scan.add_before(scan.before_all());
        scan.advance(total);
      }
    });
    scans.store(args, starts, shared, length);
  }
}
