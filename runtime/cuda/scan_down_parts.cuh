// The kernels of scans of long rows that lie beside each other, of which each block has a part: what a warp of groups is.
#pragma once
#include "scan_chain.cuh"
#include "scan_down.cuh"

template <typename P>
__global__ void __launch_bounds__(SCAN_THREADS) scan_down_parts(const __grid_constant__ ScanPartsArgs<P> args) {
  ScanChain<P, ScanDownSchedule<P, SCAN_TILE>::ROWS, 1, SCAN_TILE>::clear(args, SCAN_WARP * GROUP);
}

template <typename P>
__global__ void __launch_bounds__(SCAN_THREADS) scan_down_rest(const __grid_constant__ ScanPartsArgs<P> args) {
  using S = ScanDownSchedule<P, SCAN_TILE>;
  using Passes = ScanPasses<P>;
  static_assert(S::ROWS == SCAN_WARP && S::WALKERS * SCAN_GROUPS == SCAN_WARP);
  const ScanChain<P, S::ROWS, 1, SCAN_TILE> chain(args, SCAN_WARP * GROUP);
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
  each<Passes::scans>([&](auto i) {
    const auto total = get<i>(scans.of).join(walker, beside, get<i>(memory), 0);
    if (walker == 0) *chain.template total<i>(0, beside) = total;
  });
  if (walker == 0) {
    __threadfence();
    __syncwarp();
    if (beside == 0) chain.tell(chain.flag_of_part(chain.part), CHAIN_TOTALS);
    __syncwarp();
    chain.wait_for_parts();
    each<Passes::scans>([&](auto i) {
      auto& scan = get<i>(scans.of);
      decltype(scan.warps) totals[SCAN_TILE];
#pragma unroll
      for (int warp = 0; warp < SCAN_TILE; ++warp)
        totals[warp] = left_by_another(chain.template total<i>(0, beside, min(chain.first_of_unit() + warp, chain.part)));
#pragma unroll
      for (int warp = 0; warp < SCAN_TILE; ++warp)
        if (chain.first_of_unit() + warp < chain.part) scan.advance(totals[warp]);
      if (!chain.ends_unit()) return;
      auto whole = scan;
      whole.advance(totals[SCAN_TILE - 1]);
      *chain.template of_unit<i>(chain.UNIT_TOTAL, beside) = whole.carry.tiles;
    });
    if (chain.ends_unit()) {
      __threadfence();
      __syncwarp();
      if (beside == 0) chain.tell(chain.flag_of_unit(chain.unit), CHAIN_TOTALS);
      __syncwarp();
    }
    const i64 from = chain.carried();
    each<Passes::scans>([&](auto i) {
      auto& scan = get<i>(scans.of);
      scan.carry = {};
      if (from >= 0) {
        scan.carry.tiles = left_by_another(chain.template of_unit<i>(chain.UNIT_CARRY, beside, from));
        scan.carry.segments = left_by_another(chain.template of_unit<i>(chain.UNIT_CARRY + 1, beside, from));
      }
      scan.carry.done = int((from + 1) % SCAN_SEGMENT);
      for (i64 unit = from + 1; unit < chain.unit; unit += GROUP) {
        decltype(scan.warps) totals[GROUP];
#pragma unroll
        for (int other = 0; other < GROUP; ++other)
          totals[other] =
              left_by_another(chain.template of_unit<i>(chain.UNIT_TOTAL, beside, min(unit + other, chain.unit - 1)));
#pragma unroll
        for (int other = 0; other < GROUP; ++other)
          if (unit + other < chain.unit) scan.carry.add(totals[other]);
      }
      get<i>(befores[beside]) = scan.before_all();
      if (!chain.ends_unit()) return;
      scan.carry.add(*chain.template of_unit<i>(chain.UNIT_TOTAL, beside));
      *chain.template of_unit<i>(chain.UNIT_CARRY, beside) = scan.carry.tiles;
      *chain.template of_unit<i>(chain.UNIT_CARRY + 1, beside) = scan.carry.segments;
    });
    if (chain.ends_unit()) {
      __threadfence();
      __syncwarp();
      if (beside == 0) chain.tell(chain.flag_of_unit(chain.unit), CHAIN_CARRY);
    }
  }
  __syncthreads();
  each<Passes::scans>([&](auto i) { get<i>(scans.of).add_before(get<i>(befores[beside])); });
  scans.store(args, starts, shared, length);
}
