// The kernels of scans of long rows that lie beside each other, of which each block has a part: what a warp of groups
// is.
#pragma once
#include "scan_chain.cuh"
#include "scan_down.cuh"

template <typename P> struct ScanDownParts {
  using S = ScanDownSchedule<P, SCAN_TILE>;
  static constexpr i64 ELEMENTS = SCAN_WARP * GROUP;
  static_assert(S::ROWS == SCAN_WARP && S::WALKERS * SCAN_GROUPS == SCAN_WARP);
  template <int I> using chain = chain_of<P, I, S::ROWS, 1, SCAN_TILE>;
};

template <typename P>
__global__ void __launch_bounds__(SCAN_THREADS) scan_down_parts(const __grid_constant__ ScanPartsArgs<P> args) {
  using Parts = ScanDownParts<P>;
  let_next_begin();
  each<ScanPasses<P>::scans>([&](auto i) { typename Parts::template chain<i>(args, Parts::ELEMENTS, i).clear(); });
}

// What comes before a part, in the warp whose threads have a row each. total: of the part.
template <typename V, typename Scan>
__device__ inline V look_back(
    const ScanChain<V, SCAN_WARP, 1, SCAN_TILE>& chain, i64 row, i64 part, const V& total, Scan scan) {
  const i64 unit = part / SCAN_TILE, begins = unit * SCAN_TILE;
  const int own = int(part - begins);
  const bool ends = own == SCAN_TILE - 1;
  chain.leave(chain.of_part(part, 0, row), total);
  V totals[SCAN_TILE];
  for (bool there = false; !there;) {
    there = true;
#pragma unroll
    for (int warp = 0; warp < SCAN_TILE - 1; ++warp)
      if (warp < own) there &= chain.take(chain.of_part(begins + warp, 0, row), totals[warp]);
  }
#pragma unroll
  for (int warp = 0; warp < SCAN_TILE - 1; ++warp)
    if (warp < own) scan.advance(totals[warp]);
  V tile;
  if (ends) {
    Scan whole = scan;
    whole.advance(total);
    tile = whole.carry.tiles;
    chain.leave(chain.of_unit(unit, chain.UNIT_TOTAL, row), tile);
  }
  __syncwarp();
  // Tiles, from the nearest one on that has left what comes after it.
  i64 from = unit - 1;
  for (bool carried = false; from >= 0 && !carried;) {
    bool there = chain.take(chain.of_unit(from, chain.UNIT_CARRY, row), scan.carry.tiles);
    there &= chain.take(chain.of_unit(from, chain.UNIT_CARRY + 1, row), scan.carry.segments);
    const bool told = chain.take(chain.of_unit(from, chain.UNIT_TOTAL, row), totals[0]);  // all on their way at once
    carried = __all_sync(~0u, there);
    if (!carried && __all_sync(~0u, told)) --from;
  }
  if (from < 0) scan.carry = {};
  scan.carry.done = int((from + 1) % SCAN_SEGMENT);
  for (i64 first = from + 1; first < unit; first += SCAN_TILE) {
#pragma unroll
    for (int other = 0; other < SCAN_TILE; ++other)
      chain.take(chain.of_unit(min(first + other, unit - 1), chain.UNIT_TOTAL, row), totals[other]);
#pragma unroll
    for (int other = 0; other < SCAN_TILE; ++other)
      if (first + other < unit) scan.carry.add(totals[other]);
  }
  const V before = scan.before_all();
  if (ends) {
    scan.carry.add(tile);
    chain.leave(chain.of_unit(unit, chain.UNIT_CARRY, row), scan.carry.tiles);
    chain.leave(chain.of_unit(unit, chain.UNIT_CARRY + 1, row), scan.carry.segments);
  }
  return before;
}

template <typename P>
__global__ void __launch_bounds__(SCAN_THREADS, scan_bytes<P> <= 4 ? 3 : 0)
    scan_down_rest(const __grid_constant__ ScanPartsArgs<P> args) {
  using Parts = ScanDownParts<P>;
  using S = typename Parts::S;
  using Passes = ScanPasses<P>;
  const int beside = threadIdx.x % S::ROWS, walker = threadIdx.x / S::ROWS;
  const i64 chains = (args.rows.rows + S::ROWS - 1) / S::ROWS, part = blockIdx.x / chains;
  const i64 wanted = (blockIdx.x - part * chains) * S::ROWS + beside;
  const bool live = wanted < args.rows.rows;
  const DownRow<P> row{args.rows.position(live ? wanted : args.rows.rows - 1)};
  RowStarts<P> starts;
  const i64 most = starts.set(args, row), length = live ? most : 0;
  typename P::Shared shared = shared_at_start<P>(args, row.position, typename P::C(length));
  P::finish(shared);
  if (walker == 0 && live && part == 0) store_of_row<P>(starts, shared, make_seq<operands_of<P>::outputs>());
  __shared__ alignas(16) typename DownScans<S>::Memory memory;
  __shared__ alignas(16) typename DownScans<S>::Befores befores[S::ROWS];
  DownScans<S> scans;
  scans.scan(args, starts, shared, walker, beside, length, part * SCAN_WARP, memory, 0);
  wait_for_earlier();
  each<Passes::scans>([&](auto i) {
    auto& scan = get<i>(scans.of);
    const auto total = scan.join(walker, beside, get<i>(memory), 0);
    if (walker > 0) return;
    const typename Parts::template chain<i> chain(args, Parts::ELEMENTS, i);
    get<i>(befores[beside]) = look_back(chain, wanted, part, total, scan);
  });
  __syncthreads();
  each<Passes::scans>([&](auto i) { get<i>(scans.of).add_before(get<i>(befores[beside])); });
  scans.store(args, starts, shared, length);
}
