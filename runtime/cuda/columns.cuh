// Tables of whole vectors whose columns have parameters of their own.
#pragma once
#include "dependent_launch.cuh"
#include "elementwise_program.cuh"
#include "shift.cuh"
#include "index_space.cuh"

// A thread takes the vectors of one position in DEPTH rows below each other.
//
// A table without gaps may be cut into rows of any number of vectors after which the columns are the same again: then
// its own rows need be no whole number of vectors. So may a stack of such tables, whose rows have the same inputs in
// each. `lead` elements come before its first vector; they and those after its last one are the edges, which one more
// block takes.
struct Columns {
  i64 units, blocks;  // threads and blocks that take vectors
  i64 rows, last;     // rows of a table; vectors in its last row
  Divide chunks;      // vectors to a row
  Divide slabs;       // threads below each other in a table
  Divide width;       // columns
  i64 lead, vectors_end, length;  // elements before the first vector, up to the end of the last one, and of the table

  // Vectors at element `first` of the rows from `row` on, before `end`; all rows before `near` (at least `end`) have
  // it.
  struct Position {
    i32 table, row, end, near, first;
  };
  template <int LANES, int DEPTH> __device__ Position position(i32 thread) const {
    const i32 unit = min(thread, i32(units) - 1), slab = chunks(unit), table = slabs(slab);
    const i32 chunk = unit - slab * i32(chunks.divisor), row = (slab - table * i32(slabs.divisor)) * DEPTH;
    const i32 near = i32(rows) - (chunk >= i32(last));
    return {table, row, thread == unit ? near : 0, near, chunk * LANES + i32(lead)};
  }

  // The first vector of all.
  __device__ Position first() const { return {0, 0, 0, 0, i32(lead)}; }

  // Where a vector's entries are. `above`: rows of the table that end before it within one of `rows`.
  struct Place {
    i32 row, near, above, column, width;
    template <int LANES> __device__ bool straddles() const { return column + LANES > width; }
  };
  __device__ Place place(const Position& at) const {
    const i32 above = width(at.first), own = i32(width.divisor);
    return {at.row, at.near, above, at.first - above * own, own};
  }

  // The element of an edge, by number.
  __device__ i32 edge(i32 number) const { return number < i32(lead) ? number : number - i32(lead) + i32(vectors_end); }
};

// `count` steps of so many bytes on, both within 32 bits. One instruction multiplies them, which the compiler does not
// see.
template <typename P> __device__ inline P* stepped(P* from, i32 count, i64 bytes) {
  i64 offset;
  asm("mul.wide.s32 %0, %1, %2;" : "=l"(offset) : "r"(count), "r"(i32(bytes)));
  return further(from, offset);
}

// What a lane's program is given of an entry. A table has fewer than 2^31 rows and columns.
template <typename E> struct EntryGiven { using type = compute_t<E>; };
template <> struct EntryGiven<Place> { using type = SharedPlace; };
template <typename E> using given_t = typename EntryGiven<E>::type;
struct ColumnGiven {
  template <typename E> using type = given_t<E>;
};

// A parameter's entries for N neighbours from a column on, the first column following the last one.
template <typename E, int N> struct Entries {
  Lanes<E, N> lanes;

  // Whether they are one vector.
  template <typename Run>
  static __device__ bool whole(const Run& run, const storage_t<E>* table, const Columns::Place& at) {
    return i32(run.step) == i32(sizeof(storage_t<E>)) && !at.template straddles<N>() &&
           (IS_PLACE<E> || (u64(table + at.column) & (alignof(Lanes<E, N>) - 1)) == 0);
  }
  template <typename Run>
  __device__ void load(bool whole, const Run& run, const storage_t<E>* table, const Columns::Place& at) {
    if (whole) {
      lanes = ::load<true, E, N>(table + at.column, 0, N);
    } else {
#pragma unroll
      for (int lane = 0; lane < N; ++lane) {
        const i32 column = at.column + lane;
        lanes.data[lane] = fetch(stepped(table, column - (column < at.width ? 0 : at.width), run.step));
      }
    }
  }
  __device__ given_t<E> at(const Columns::Place&, int, int lane) const {
    if constexpr (IS_PLACE<E>) return {lanes.get(lane), true};
    else return lanes.get(lane);
  }
};

// Those of an input that rows have one of, for ROWS rows. A vector may end in the next row.
template <typename E, int N, int ROWS> struct EntriesOfRows {
  storage_t<E> first[ROWS], last[ROWS];

  template <typename Run> static __device__ bool whole(const Run&, const storage_t<E>*, const Columns::Place&) {
    return true;
  }
  template <typename Run>
  __device__ void load(bool, const Run& run, const storage_t<E>* table, const Columns::Place& at) {
#pragma unroll
    for (int next = 0; next < ROWS; ++next) {
      const auto* from = stepped(table, ::min(at.row + next, at.near - 1), run.row);
      const i32 above = run.in_table(at.above);
      first[next] = fetch(stepped(from, above, run.step));
      last[next] = at.template straddles<N>() ? fetch(stepped(from, run.after(above), run.step)) : first[next];
    }
  }
  __device__ compute_t<E> at(const Columns::Place& at, int row, int lane) const {
    return widen(at.column + lane < at.width ? first[row] : last[row]);
  }
};
// Places may differ between columns too: of a transposed array the columns are what its rows were.
template <int N, int ROWS> struct EntriesOfRows<Place, N, ROWS> {
  i64 first[ROWS], step, across;

  template <typename Run> static __device__ bool whole(const Run&, const Place*, const Columns::Place&) { return true; }
  template <typename Run> __device__ void load(bool, const Run& run, const Place* table, const Columns::Place& at) {
    const i32 above = run.in_table(at.above);
#pragma unroll
    for (int next = 0; next < ROWS; ++next) {
      const Place* row = stepped(table, ::min(at.row + next, at.near - 1), run.row);
      first[next] = fetch(stepped(stepped(row, above, run.step), at.column, run.across)).index;
    }
    across = run.across / i64(sizeof(Place));
    step = (run.after(above) - above) * (run.step / i64(sizeof(Place))) - across * at.width;
  }
  __device__ SharedPlace at(const Columns::Place& at, int row, int lane) const {
    return {first[row] + lane * across + (at.column + lane < at.width ? 0 : step), true};
  }
};

// The schedule columns: inputs that differ between the columns of tables of whole vectors. Steps are in bytes.
template <typename R, int LANES, int ROWS> struct EntriesOf { using type = Entries<typename R::element, LANES>; };
template <typename E, int LANES, int ROWS> struct EntriesOf<PerRow<E>, LANES, ROWS> {
  using type = EntriesOfRows<E, LANES, ROWS>;
};
template <int LANES, int ROWS> struct ColumnEntries {
  template <typename R> using type = typename EntriesOf<R, LANES, ROWS>::type;
};
struct ColumnMoves {
  template <typename E> struct Input {
    const storage_t<E>* data;
    i64 apart, row;
    __device__ const storage_t<E>* start(const Columns::Position& at) const {
      return ::at<E>(stepped(data, at.table, apart), at.first);
    }
    template <int N> __device__ void load(Lanes<E, N>& lanes, const storage_t<E>* from, i32 number) const {
      lanes = ::load<true, E, N>(stepped(from, number, row), 0, N);
    }
    __device__ compute_t<E> read(i32 at) const { return ::read<E>(data, at); }
  };
  template <typename R> struct Run {
    using E = typename R::element;
    const storage_t<E>* data;
    i64 apart, step;
    __device__ storage_t<E> entry(i32 column, i32) const { return fetch(stepped(data, column, step)); }
  };
  // step: to the next row of the table; across: to the next column; period: rows of each of the tables of a stack.
  template <typename E> struct Run<PerRow<E>> {
    const storage_t<E>* data;
    i64 apart, step, row, across;
    Divide period;
    __device__ i32 in_table(i32 above) const {
      return period.divisor == 0 ? above : above - period(above) * i32(period.divisor);
    }
    __device__ i32 after(i32 row) const { return row + 1 == i32(period.divisor) ? 0 : row + 1; }
    __device__ storage_t<E> entry(i32 column, i32 above) const {
      return fetch(stepped(stepped(data, in_table(above), step), column, across));
    }
  };
  template <typename E> struct Output {
    storage_t<E>* data;
    i64 apart, row;
    __device__ storage_t<E>* start(const Columns::Position& at) const {
      return ::at<E>(stepped(data, at.table, apart), at.first);
    }
    template <typename V> __device__ void write(V value, i32 at, bool last) const { ::write<E>(data, at, last, value); }
  };
};
template <typename P> using ColumnsArgs = typename Elementwise<P>::template Arguments<Columns, ColumnMoves>;

template <typename P, int LANES, typename Starts>
__device__ inline void store_row(const ColumnsArgs<P>& args, const Starts& starts, i32 row,
                                 const typename Elementwise<P>::template LaneValues<LANES>& values) {
  using E = Elementwise<P>;
  typename E::template OutputLanes<LANES> out = {};
  E::each_output(
      args,
      [&](const auto& output, auto& lanes, const auto& own, auto* to) {
        set_all(lanes, own);
        store<true>(stepped(to, row, output.row), 0, lanes);
      },
      out, values, starts);
}

// The entries of a vector in ROWS rows, all loads in one branch, so that no load in it waits for another.
template <typename P, int LANES, int ROWS>
using ColumnRuns = typename Elementwise<P>::template OfRoles<ColumnEntries<LANES, ROWS>>;
template <typename P, int LANES, int ROWS, typename Starts>
__device__ inline void load_entries(ColumnRuns<P, LANES, ROWS>& entries, const ColumnsArgs<P>& args,
                                    const Starts& starts, const Columns::Place& place) {
  using E = Elementwise<P>;
  bool whole = true;
  E::each_run(
      args, [&](const auto& run, auto& own, const auto* from) { whole = whole && own.whole(run, from, place); },
      entries, starts);
  const auto load = [&](bool whole) {
    E::each_run(
        args, [&](const auto& run, auto& own, const auto* from) { own.load(whole, run, from, place); }, entries,
        starts);
  };
  if (whole) load(true);
  else load(false);
}

// The program of a lane, in a row.
template <typename P, typename Runs>
__device__ inline P program_of(const ColumnsArgs<P>& args, const typename Elementwise<P>::Scalars& scalars,
                               const Runs& entries, const Columns::Place& place, int row, int lane) {
  using E = Elementwise<P>;
  typename E::template OfRuns<ColumnGiven> given;
  E::each_run(
      args, [&](const auto&, auto& value, const auto& own) { value = own.at(place, row, lane); }, given, entries);
  return E::made(args, given, scalars);
}

// Rows of a thread, up to which its block soon ends. While longer ones run, blocks of the next kernel would crowd on
// the multiprocessors that have room.
constexpr int SOON = 2;

// A thread prepares LANES columns and takes their vectors in ROWS rows; where rows have inputs too, each of its
// elements has a program.
template <typename P, int LANES, int ROWS>
__global__ void __launch_bounds__(ELEMENTWISE_THREADS) columns(const __grid_constant__ ColumnsArgs<P> args) {
  using E = Elementwise<P>;
  using Values = typename E::template LaneValues<LANES>;
  const Columns& columns = args.head;
  const Columns::Position at = columns.template position<LANES, ROWS>(blockIdx.x * ELEMENTWISE_THREADS + threadIdx.x);
  wait_for_earlier();
  if (i32(blockIdx.x) >= i32(columns.blocks)) {  // the edges, one element at a time
    constexpr int PER = E::PACKED ? 2 : 1;       // packed: a thread keeps to a byte
#pragma unroll 1
    for (int nibble = 0; nibble < PER; ++nibble) {
      const i32 edge = columns.edge(threadIdx.x * PER) + nibble, above = columns.width(edge);
      if (edge >= i32(columns.length)) break;
      const P program = E::made(args, E::read_entries(args, edge - above * i32(columns.width.divisor), above));
      E::write(args, E::value(program, E::read(args, edge)), edge, edge + 1 == columns.length);
    }
    return;
  }

  // All loads are under way before the first is used, those of the rows under no condition: threads without a row read
  // another. Where a program picks, so do those whose row it does not read: all the same vector, which stays in L1.
  typename E::InputStarts in_starts;
  E::each_input(args, [&](const auto& input, auto& from) { from = input.start(at); }, in_starts);
  typename E::template InputLanes<LANES> in[ROWS];
  const auto load_row = [&](int next, bool reads) {
    const i32 row = reads ? ::min(at.row + next, at.near - 1) : 0;
    E::each_input(
        args,
        [&](const auto& input, auto& lanes, const auto* from) {
          input.template load<LANES>(lanes, reads ? from : input.start(columns.first()), row);
        },
        in[next], in_starts);
  };
  if constexpr (!PICKS<P>) {
#pragma unroll
    for (int next = 0; next < ROWS; ++next) load_row(next, true);
  }
  const auto scalars = E::scalars(args);
  const Columns::Place place = columns.place(at);
  typename E::RunStarts run_starts;
  E::each_run(args, [&](const auto& run, auto& from) { from = stepped(run.data, at.table, run.apart); }, run_starts);
  ColumnRuns<P, LANES, ROWS> entries;
  load_entries<P, LANES, ROWS>(entries, args, run_starts, place);
  if constexpr (ROWS <= SOON) let_next_begin();
  typename E::OutputStarts out_starts;
  E::each_output(args, [&](const auto& output, auto& to) { to = output.start(at); }, out_starts);

  P programs[LANES];
  bool fast = true;
#pragma unroll
  for (int lane = 0; lane < LANES; ++lane) {
    if constexpr (!E::HAS_ROWS) {
      programs[lane] = program_of<P>(args, scalars, entries, place, 0, lane);
      fast = fast && programs[lane].fast();
    }
  }
  const auto of = [&](int row, int lane, const Columns::Place& place) {
    if constexpr (E::HAS_ROWS) return program_of<P>(args, scalars, entries, place, row, lane);
    else return programs[lane];
  };
  if constexpr (PICKS<P>) {
#pragma unroll
    for (int next = 0; next < ROWS; ++next) {
      bool reads = false;
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane) reads = reads | of(next, lane, place).reads();
      load_row(next, reads);
    }
  }
  if constexpr (RANGED<P> || E::HAS_ROWS) {
#pragma unroll
    for (int next = 0; next < ROWS; ++next) {
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane) {
        const P& program = of(next, lane, place);
        if constexpr (E::HAS_ROWS) fast = fast & program.fast();
        if constexpr (RANGED<P>) fast = fast & program.within(E::template element<LANES>(in[next], lane));
      }
    }
  }
  const auto store_rows = [&](const Columns::Place& place) {
#pragma unroll
    for (int next = 0; next < ROWS; ++next) {
      Values values;
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane)
        E::template compute<RANGED<P> ? FAST_WITHIN : FAST_FORM, LANES>(values, lane, of(next, lane, place), in[next]);
      if (at.row + next >= at.end) break;
      store_row<P, LANES>(args, out_starts, at.row + next, values);
    }
  };
  // Where no vector of a warp straddles rows, what is asked of a row's label alone is asked once.
  const bool inside = E::HAS_LABELS && __all_sync(~0u, !place.straddles<LANES>());
  if (fast) {
    if (inside) store_rows({place.row, place.near, place.above, 0, LANES});
    else store_rows(place);
  } else {  // unusual shared values or elements
    const i32 end = ::min(at.row + ROWS, at.end);
#pragma unroll 1
    for (i32 row = at.row; row < end; ++row) {
      typename E::template InputLanes<LANES> own;
      E::each_input(
          args, [&](const auto& input, auto& lanes, const auto* from) { input.template load<LANES>(lanes, from, row); },
          own, in_starts);
      Columns::Place here = place;
      here.row = row;
      ColumnRuns<P, LANES, 1> again;
      if constexpr (E::HAS_ROWS) load_entries<P, LANES, 1>(again, args, run_starts, here);
      Values values;
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane) {
        if constexpr (E::HAS_ROWS)
          E::template compute<GENERAL, LANES>(values, lane, program_of<P>(args, scalars, again, here, 0, lane), own);
        else
          E::template compute<GENERAL, LANES>(values, lane, program_of<P>(args, scalars, entries, place, 0, lane), own);
      }
      store_row<P, LANES>(args, out_starts, row, values);
    }
  }
}
