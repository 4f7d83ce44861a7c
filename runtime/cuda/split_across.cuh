// A split reduction by threads across rows: each takes LANES rows, and one accumulator or a few of each. LIE: how these
// lie beside each other (split_moves.cuh).
#pragma once
#include "split_group.cuh"
#include "split_tuning.cuh"

// The split of a tile of rows that a team of threads has, and what a thread takes of it. A block has several teams
// where splits are small.
template <int LANES, bool NEIGHBOURS> struct SplitAcross {
  i32 wide, team;          // threads beside each other, and those of a team, as powers of two
  i64 table, tile;         // rows lie beside each other in tables; a tile of one is a team's
  i64 number, begin, end;  // the split, and its segment
  i32 accumulator;         // the thread's, or the first of them
  Beside<LANES, NEIGHBOURS> columns;
  i64 row;                 // the first of the thread's
  TableColumn at;          // the same

  // Elements between an operand's start and that of this row.
  __device__ i64 offset(const Reduction& rows, const Strides& strides) const {
    if constexpr (LANES > 1) return rows.row_offset(at, strides);
    else return rows.row_offset(row, strides);
  }
};
// There are fewer than 2^31 teams.
template <int LANES, bool NEIGHBOURS>
__device__ inline SplitAcross<LANES, NEIGHBOURS> split_across(const Reduction& rows) {
  const i32 wide = i32(rows.wide), team = i32(rows.team);
  const i32 block = i32(gridDim.x - 1 - blockIdx.x);  // the last splits first: the kernel before wrote them last
  const i32 number = block * i32(blockDim.x >> team) + i32(threadIdx.x >> team);
  const i32 line = rows.tiles(number);
  const u32 tile = u32(number - line * i32(rows.tiles.divisor)), table = u32(rows.splits(line));
  const auto at = rows.split(line - i32(table) * i32(rows.splits.divisor), 1 << (team - wide));
  const i32 place = at.accumulator + i32((threadIdx.x & ((1 << team) - 1)) >> wide);
  const bool exists = table * rows.columns < rows.rows;
  const Beside<LANES, NEIGHBOURS> columns(rows, tile, wide, exists);
  const TableColumn first = {exists ? table : 0, columns.first};
  return {wide, team, table, tile, at.number, at.begin, at.end, place << i32(rows.each), columns, rows.row_at(first),
          first};
}

// An input with elements for each row, as a thread loads a group of it for all of its rows.
template <typename P, int N, int LANES, int LIE, bool COLUMN> struct InputAcross {
  using E = element_in<P, N>;
  using Split = SplitAcross<LANES, LIE != COLUMNS_APART>;
  struct Groups {
    Lanes<E, LANES> of[GROUP];
    __device__ auto get(int i, int lane) const { return of[i].get(lane); }
  };
  const storage_t<E>* row;

  __device__ InputAcross(const ReduceArgs<P>& args, const Split& split) {
    const auto& input = args.template elements<N>();
    row = input.array + split.offset(args.rows, input.reach.kept);
  }
  __device__ void load(Groups& groups, const ReduceArgs<P>& args, const Split& split, i64 first) const {
    const auto& input = args.template elements<N>();
    if constexpr (LIE == COLUMNS_SHIFTED)
      load_shifted_columns<E>(
          groups.of, row, first, split.end, args.rows, input.reach, input.array, split.columns);
    else
      load_columns<E, SplitTraits<P>::once>(
          groups.of, row, first, split.end, args.rows, input.reach, split.columns);
  }
  __device__ void ask(const ReduceArgs<P>& args, const Split& split, i64 start) const {
    ask_for_columns<E>(row, start, split.end, args.rows, args.template elements<N>().reach, split.columns);
  }
};
// One that rows share, or of which they have a few: the same elements serve all rows of a thread, unless those beside
// each other differ in it.
template <typename P, int N, int LANES, int LIE> struct InputAcross<P, N, LANES, LIE, true> {
  using E = element_in<P, N>;
  static constexpr int ROWS = P::BESIDE >> N & 1 ? LANES : 1;
  using Split = SplitAcross<LANES, LIE != COLUMNS_APART>;
  struct Groups {
    Lanes<E, GROUP> of[ROWS];
    __device__ auto get(int i, int lane) const { return of[ROWS > 1 ? lane : 0].get(i); }
  };

  __device__ InputAcross(const ReduceArgs<P>&, const Split&) {}
  __device__ void load(Groups& groups, const ReduceArgs<P>& args, const Split& split, i64 first) const {
    const auto& input = args.template elements<N>();
    load_elements<E>(
        groups.of, input.array, split.row, first, split.end, args.rows, input.reach, split.columns);
  }
  __device__ void ask(const ReduceArgs<P>&, const Split&, i64) const {}
};

// An output with elements for each row.
template <typename P, int S, int LANES, int LIE> struct OutputAcross {
  using E = stored_element<P, S>;
  struct Group { Lanes<E, LANES> of[GROUP]; };
  storage_t<E>* row;

  __device__ OutputAcross(const ReduceArgs<P>& args, const SplitAcross<LANES, LIE != COLUMNS_APART>& split) {
    const auto& output = args.template output<stored_output<P, S>>();
    row = output.array + split.offset(args.rows, output.reach.kept);
  }
  __device__ void store(
      const Group& group, const ReduceArgs<P>& args, const SplitAcross<LANES, LIE != COLUMNS_APART>& split, i64 first,
      i32 exist) const {
    store_columns<E>(
        row, first, exist, args.rows, args.template output<stored_output<P, S>>().reach, split.columns, group.of);
  }
};

// All inputs and outputs of a thread, and the groups of them that it works on.
template <typename P, int LANES, int LIE, typename N, typename S> struct OperandsAcrossOf;
template <typename P, int LANES, int LIE, int... N, int... S>
struct OperandsAcrossOf<P, LANES, LIE, Seq<N...>, Seq<S...>> {
  template <int I> using Input = InputAcross<P, I, LANES, LIE, (I >= operands_of<P>::arrays)>;
  template <int I> using Output = OutputAcross<P, I, LANES, LIE>;
  using Split = SplitAcross<LANES, LIE != COLUMNS_APART>;
  using Groups = Tuple<typename Input<N>::Groups...>;
  using Stored = Tuple<typename Output<S>::Group...>;
  Tuple<Input<N>...> inputs;
  Tuple<Output<S>...> outputs;

  __device__ OperandsAcrossOf(const ReduceArgs<P>& args, const Split& split)
      : inputs{Input<N>(args, split)...}, outputs{Output<S>(args, split)...} {}

  // Groups that begin at `first`, if there are such.
  __device__ void load(Groups& groups, const ReduceArgs<P>& args, const Split& split, i64 first) const {
    if (first < split.end) (get<N>(inputs).load(get<N>(groups), args, split, first), ...);
  }
  __device__ void ask(const ReduceArgs<P>& args, const Split& split, i64 start) const {
    (get<N>(inputs).ask(args, split, start), ...);
  }
  __device__ void store(
      const Stored& stored, const ReduceArgs<P>& args, const Split& split, i64 first, i32 exist) const {
    (get<S>(outputs).store(get<S>(stored), args, split, first, exist), ...);
  }

  // One row's elements of the groups, as take_group has it.
  struct Group {
    const Groups& groups;
    Stored& stored;
    int lane;
    __device__ typename P::Element element(int i) const {
      return {formula_t<typename P::C, element_in<P, N>>(get<N>(groups).get(i, lane))...};
    }
    template <int I, typename V> __device__ void set(int i, V value) const { get<I>(stored).of[i].set(lane, value); }
  };
};
template <typename P, int LANES, int LIE>
using OperandsAcross = OperandsAcrossOf<P, LANES, LIE, make_seq<operands_of<P>::elements>, stores_of<P>>;

// Takes the groups of a thread's rows that begin at `first`.
template <typename P, int LANES, int LIE>
__device__ inline void take_groups(
    Accumulator<P> (&totals)[LANES], const ReduceArgs<P>& args, const typename P::SplitPass (&passes)[LANES],
    const OperandsAcross<P, LANES, LIE>& operands,
    const typename OperandsAcross<P, LANES, LIE>::Groups& groups,
    const SplitAcross<LANES, LIE != COLUMNS_APART>& split, i64 first) {
  using Operands = OperandsAcross<P, LANES, LIE>;
  if constexpr (LIE != COLUMNS_APART && of_bytes<P>()) {
    take_bytes<P>(totals, groups, first, reductions_of<P>());
  } else {
    const i32 exist = i32(min(split.end - first, i64(GROUP)));
    typename Operands::Stored stored = {};
    const auto group_of = [&](int lane) { return typename Operands::Group{groups, stored, lane}; };
    take_group<P, true>(totals, passes, group_of, exist == GROUP, exist, first, reductions_of<P>());
    operands.store(stored, args, split, first, exist);
  }
}

// Joins the accumulator of that number with those before it that a thread has taken, as threads join theirs: neighbours
// first. What waits for a later one is `kept`: blocks of half as many threads as there may be have room for two.
template <typename P, int LANES>
__device__ inline void join_own(Accumulator<P> (&totals)[LANES], i32 number, bool last, Accumulator<P>* kept) {
#pragma unroll 1
  for (; number & 1; number >>= 1, kept += SPLIT_THREADS / 2 * LANES)
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) totals[lane] = Accumulator<P>::of(kept[lane], totals[lane]);
  if (last) return;
#pragma unroll
  for (int lane = 0; lane < LANES; ++lane) {
    kept[lane] = totals[lane];
    totals[lane].clear();
  }
}

template <typename P, int LANES, int LIE>
__global__ void __launch_bounds__(SPLIT_THREADS, blocks_across<P, LANES, LIE != COLUMNS_APART>())
    across(const __grid_constant__ ReduceArgs<P> args) {
  using Operands = OperandsAcross<P, LANES, LIE>;
  constexpr int TURNS = turns_across<P, LANES, LIE>();
  constexpr bool IN_TURN = TURNS > 1 && (in_slabs<P> || SplitTraits<P>::bits >= 32);  // loads where a group was taken
  __shared__ Accumulator<P> scratch[SPLIT_THREADS * LANES];
  const Reduction& rows = args.rows;
  auto split = split_across<LANES, LIE != COLUMNS_APART>(rows);
  if constexpr (in_slabs<P>) {  // a split is of several, one for each of the threads below each other
    const i64 slab = slab_of(rows.length);
    split.begin += split.accumulator * slab;
    split.end = min(split.begin + slab, split.end);
    split.accumulator = 0;
  }
  const Operands operands(args, split);
  wait_for_earlier();
  const Given<P> given(args);
  typename P::SplitPass passes[LANES];
  Accumulator<P> totals[LANES];
#pragma unroll
  for (int lane = 0; lane < LANES; ++lane)
    passes[lane] = given.pass(args, split.row + split.columns.step(lane));
#pragma unroll
  for (int lane = 0; lane < LANES; ++lane) totals[lane].clear();
  const i64 apart = i64(rows.accumulators) * GROUP;
  typename Operands::Groups groups[TURNS];
  const auto load = [&](int turn, i64 first) {
    operands.load(groups[turn], args, split, first);
    if constexpr (asks_ahead<P, LANES, LIE>()) operands.ask(args, split, first + TURNS * apart);
  };
  const i32 several = !in_slabs<P> && SplitTraits<P>::ordered ? i32(rows.each) : 0;
  i64 begin = split.begin + i64(split.accumulator) * GROUP;
  // One of the thread's accumulators after the other: there are `1 << several`.
#pragma unroll 1
  for (i32 own = 0; own >> several == 0; ++own, begin += GROUP) {
    if constexpr (IN_TURN) {
#pragma unroll
      for (int turn = 0; turn < TURNS; ++turn) load(turn, begin + turn * apart);
    }
    i64 start = begin;
#pragma unroll 1
    for (i32 left = i32(rows.turns); left > 0 && start < split.end; left -= TURNS, start += TURNS * apart) {
      if constexpr (!IN_TURN) {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) load(turn, start + turn * apart);
      }
#pragma unroll
      for (int turn = 0; turn < TURNS; ++turn) {
        const i64 first = start + turn * apart;
        if (turn > 0 && first >= split.end) break;
        take_groups<P, LANES, LIE>(totals, args, passes, operands, groups[turn], split, first);
        if constexpr (IN_TURN) load(turn, first + TURNS * apart);
      }
    }
    if (several > 0) join_own<P>(totals, own, own + 1 >> several, scratch + threadIdx.x * LANES);
  }
  let_next_begin();
  const i32 team = 1 << split.team, width = LANES << split.wide, warps = max(team / 32, 1);
  const bool alone = split.team == split.wide;  // no threads below each other: a team is a warp's, or a part of one
  if (!alone) {
    if (several > 0) __syncthreads();  // what threads kept lies there
    join_warps<LANES>(totals, split.wide, team, scratch);
  } else if constexpr (LANES == 1) {
    if (split.columns.count > 0) keep_total<P>(args, split.row, split.number, totals[0]);
    return;
  } else {
    if constexpr (LIE != COLUMNS_SHIFTED) {
      if (rows.splits.divisor == 1) {
        const i32 step = split.columns.STEP, own = i32(threadIdx.x & (team - 1)) * LANES;
        const i64 first = split.tile * width + split.columns.column_at(own);
        if (first < rows.columns && split.table * rows.columns < rows.rows)
          finish_columns<P>(
              args, given, {split.table, first}, totals, step, i32(min((rows.columns - 1 - first) / step + 1, i64(LANES))));
        return;
      }
    }
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) scratch[threadIdx.x * LANES + lane] = totals[lane];
    __syncwarp();
  }
  const Accumulator<P>* const own = scratch + i32(threadIdx.x >> split.team) * warps * width;
  for (i32 i = threadIdx.x & (team - 1); i < width; i += team) {
    const i64 column = split.tile * width + split.columns.column_at(i), row = split.table * rows.columns + column;
    if (column >= rows.columns || row >= rows.rows) continue;
    const Accumulator<P> total = alone ? own[i] : joined<8>(own, width, i, team);
    if constexpr (LANES > 1) keep_total<P>(args, TableColumn{split.table, column}, split.number, total);
    else keep_total<P>(args, row, split.number, total);
  }
}
