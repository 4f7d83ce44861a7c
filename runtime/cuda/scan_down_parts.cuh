// The kernels of scans of long rows that lie beside each other, of which each block has a part: what a warp of groups is.
#pragma once
#include "scan_chain.cuh"
#include "scan_down.cuh"

template <typename P>
__global__ void __launch_bounds__(SCAN_THREADS) scan_down_parts(const __grid_constant__ ScanPartsArgs<P> args) {
  clear_chain<P, ScanDownSchedule<P, SCAN_TILE>::ROWS, 1>(args, SCAN_WARP * GROUP);
}

template <typename P>
__global__ void __launch_bounds__(SCAN_THREADS) scan_down_rest(const __grid_constant__ ScanPartsArgs<P> args) {
  using S = ScanDownSchedule<P, SCAN_TILE>;
  using Passes = ScanPasses<P>;
  static_assert(S::ROWS == SCAN_WARP && S::WALKERS * SCAN_GROUPS == SCAN_WARP);
  const ScanChain<P, S::ROWS, 1> chain(args, SCAN_WARP * GROUP);
  const int beside = threadIdx.x % S::ROWS, walker = threadIdx.x / S::ROWS;
  const i64 wanted = chain.chain * S::ROWS + beside;
  const bool live = wanted < args.rows.rows;
  const DownRow<P> row{args.rows.position(live ? wanted : args.rows.rows - 1)};
  RowStarts<P> starts;
  const i64 most = starts.set(args, row), length = live ? most : 0;
  typename P::Shared shared = shared_at_start<P>(args, row.position, typename P::C(length));
  P::finish(shared);
  if (walker == 0 && live && chain.part == 0)
    store_of_row<P>(starts, shared, make_seq<operands_of<P>::outputs>());
  __shared__ alignas(16) typename DownScans<S>::Memory memory;
  __shared__ alignas(16) typename DownScans<S>::Befores befores[S::ROWS];
  DownScans<S> scans;
  scans.scan(args, starts, shared, walker, beside, length, chain.part * SCAN_WARP, memory, 0);
  wait_for_earlier();
  // The last part of a tile leaves what comes before the next tile, the others their totals alone.
  const bool ends = chain.part % SCAN_TILE == SCAN_TILE - 1;
  each<Passes::scans>([&](auto i) {
    const auto total = get<i>(scans.of).join(walker, beside, get<i>(memory), 0);
    if (walker == 0) *chain.template values<i>(chain.part, beside) = total;
  });
  if (walker == 0) {
    __threadfence();
    __syncwarp();
    if (beside == 0) chain.tell(PART_TOTALS);
    __syncwarp();
    const i64 from = chain.part > 0 ? chain.carried() : -1;
    each<Passes::scans>([&](auto i) {
      auto scan = get<i>(scans.of);
      if (from >= 0) {
        const auto* const left = chain.template values<i>(from, beside) + chain.apart();
        scan.carry.tiles = left_by_another(left);
        scan.carry.segments = left_by_another(left + chain.apart());
        scan.carry.done = int((from + 1) / SCAN_TILE % SCAN_SEGMENT);
      }
#pragma unroll 1
      for (i64 part = from + 1; part < chain.part; ++part)
        scan.advance(left_by_another(chain.template values<i>(part, beside)));
      get<i>(befores[beside]) = scan.before_all();
      if (!ends) return;
      scan.advance(*chain.template values<i>(chain.part, beside));
      auto* const left = chain.template values<i>(chain.part, beside) + chain.apart();
      left[0] = scan.carry.tiles;
      left[chain.apart()] = scan.carry.segments;
    });
    if (ends) {
      __threadfence();
      __syncwarp();
      if (beside == 0) chain.tell(PART_CARRY);
    }
  }
  __syncthreads();
  each<Passes::scans>([&](auto i) { get<i>(scans.of).add_before(get<i>(befores[beside])); });
  scans.store(args, starts, shared, length);
}
