// The schedule columns_unaligned: inputs that differ between the columns of tables, whose rows may start anywhere.
#pragma once
#include "row_shares.cuh"

template <int LANES> struct RowsColumns {
  template <typename E> using type = Column<E, LANES>;
};

// ROWS rows of a thread's columns, from `row` on. Rows are stored by whole warps.
template <int FAST, typename P, int LANES, int ROWS, typename Starts, typename To>
__device__ inline void unaligned_rows(const RowsArgs<P>& args, const Shares::Position& start, const Starts& in_starts,
                                      const To& out_starts, const P (&programs)[LANES], bool inside, bool reads,
                                      i32 row) {
  using E = Elementwise<P>;
  const Shares& shares = args.head;
  typename E::template OfInputs<RowsWords<LANES, ROWS>> words;
#pragma unroll
  for (int next = 0; next < ROWS; ++next) {
    const Shares::Position at = shares.template step<LANES>(start, row + next);
    if (at.count == 0 || !inside || !reads) continue;
    E::each_input(
        args,
        [&](const auto& input, auto& own, const auto* from) {
          own.of[next].load(further(from, (row + next) * input.apart), at.count);
        },
        words, in_starts);
  }
#pragma unroll
  for (int next = 0; next < ROWS; ++next) {
    const Shares::Position at = shares.template step<LANES>(start, row + next);
    typename E::template InputLanes<LANES> in;
    E::each_input(
        args,
        [&](const auto& input, auto& lanes, const auto& own, const auto* from) {
          input.template lanes<LANES>(lanes, own.of[next], further(from, (row + next) * input.apart), inside, at.count);
        },
        in, words, in_starts);
    typename E::template OutputLanes<LANES> out = {};
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane)
      E::template set<LANES>(out, lane, programs[lane].template of<FAST>(E::template element<LANES>(in, lane)));
    typename E::template OfOutputs<RowsStores<LANES>> joints;
    E::each_output(
        args,
        [&](const auto& output, auto& lanes, auto& joint, auto* to) {
          joint.store(further(to, (row + next) * output.apart), at.count, shares.follows(at, 0), shares.followed(at, 0),
                      lanes);
        },
        out, joints, out_starts);
  }
}

// A thread prepares LANES columns once and takes rows of a table, ROWS at a time, by the moves of `rows`.
template <typename P, int LANES, int ROWS>
__global__ void __launch_bounds__(ELEMENTWISE_THREADS) columns_unaligned(const __grid_constant__ RowsArgs<P> args) {
  using E = Elementwise<P>;
  const Shares& shares = args.head;
  const Shares::Position start = shares.template position<LANES>(blockIdx.x * ELEMENTWISE_THREADS + threadIdx.x);
  bool inside = true;
  typename E::InputStarts in_starts;
  typename E::OutputStarts out_starts;
  E::each_input(
      args,
      [&](const auto& input, auto& from) {
        from = input.template start<LANES>(shares, start);
        inside = inside && input.template inside<LANES>(from);
      },
      in_starts);
  E::each_output(
      args, [&](const auto& output, auto& to) { to = output.template start<LANES>(shares, start); }, out_starts);
  typename E::template OfRuns<RowsColumns<LANES>> columns;
  if (start.count > 0) {  // all loads are under way before the first is used
    E::each_run(
        args,
        [&](const auto& run, auto& own) {
          own.load(run.start(shares, start), i64(start.chunk) * LANES, shares.length, run.step);
        },
        columns);
  }
  P programs[LANES];
  bool fast = true, reads = !PICKS<P>;
#pragma unroll
  for (int lane = 0; lane < LANES; ++lane) {
    typename E::Given given;
    E::each_run(args, [&](const auto&, auto& value, const auto& own) { value = own.get(lane); }, given, columns);
    programs[lane] = E::made(args, given);
    fast = fast && programs[lane].fast();
    if constexpr (PICKS<P>) reads = reads || programs[lane].reads();
  }
  const int depth = int(shares.depth);
  if (__all_sync(~0u, fast || start.count == 0)) {
#pragma unroll 1
    for (int row = 0; row < depth; row += ROWS)
      unaligned_rows<FAST_FORM, P, LANES, ROWS>(args, start, in_starts, out_starts, programs, inside, reads, row);
  } else {
#pragma unroll 1
    for (int row = 0; row < depth; row += ROWS)
      unaligned_rows<GENERAL, P, LANES, ROWS>(args, start, in_starts, out_starts, programs, inside, reads, row);
  }
}
