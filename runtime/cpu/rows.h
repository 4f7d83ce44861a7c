// Programs that reduce rows, on the CPU: passes over some rows at a time, block by block.
#pragma once
#include "makers.h"
#include "down.h"

constexpr i64 HELD_BYTES = 1 << 20;  // of values that passes share, of rows taken together

// Whether what a pass makes are reductions of inputs as they stand: it computes nothing.
template <typename P, typename Pass, int I, bool REDUCES = type_at<typename Pass::Makes, I>::reduces>
constexpr bool reduces_raw = false;
template <typename P, typename Pass, int I>
constexpr bool reduces_raw<P, Pass, I, true> = !Maker<P, Pass, I>::asks &&
    std::is_arithmetic_v<typename Maker<P, Pass, I>::Element> && type_at<typename Pass::Makes, I>::raw >= 0;

// A pass over some rows.
template <typename P, typename Pass, typename S> struct RunPass;
template <typename P, typename Pass, int... I> struct RunPass<P, Pass, Seq<I...>> {
  static constexpr bool HOLD = P::COSTLY > 0, RAW = !in_slabs<P> && (reduces_raw<P, Pass, I> && ...);
  using Lines = RowLines<P>;
  using Makers = Tuple<Maker<P, Pass, I>...>;
  using Values = Tuple<typename Maker<P, Pass, I>::Element[BLOCK]...>;

  template <bool FAST>
  static bool compute(
      const Pass& pass, const typename Lines::Values& in, typename P::Held* held, int count, i64 first,
      Values& values) {
    int usual = 1;
    for (int lane = 0; lane < count; ++lane) {
      bool own_usual = true;
      typename P::Held own;
      if constexpr (HOLD && Pass::HELD_TAKEN != 0) own = held[lane];
      const auto found = pass.template of<FAST, HOLD ? HOLDS_EARLIER : 0>(
          Lines::template element<Pass::READS>(in, lane), own, own_usual);
      if constexpr (HOLD && Pass::HELD_FRESH != 0) held[lane] = own;
      (put<type_at<typename Pass::Makes, I>>(get<I>(values)[lane], get<I>(found), first + lane), ...);
      usual &= own_usual;
    }
    return usual;
  }

  // What the rows have of a block, and of the pass.
  struct Room {
    typename Lines::Values in[TOGETHER];
    Values values[TOGETHER];
    Makers makers[TOGETHER];
  };
  template <int K> static void store(Room& room, const RowState<P>* rows, int count, i64 first, int some) {
    if constexpr (!type_at<typename Pass::Makes, K>::reduces)
      if constexpr (Maker<P, Pass, K>::stores) {
        const auto values = [&](int row) -> const auto& { return get<K>(room.values[row]); };
        Maker<P, Pass, K>::store(rows, count, first, some, values);
      }
  }

  // Takes an input's elements, in memory where they lie there as a block does.
  template <int K> static void take_raw(Makers& makers, const RowState<P>& row, i64 first, int some, int accumulators) {
    constexpr int N = type_at<typename Pass::Makes, K>::raw;
    using V = typename Maker<P, Pass, K>::Element;
    const auto& line = get<N>(row.lines.in);
    auto& maker = get<K>(makers);
    if constexpr (same<storage_t<element_in<P, N>>, V>)
      if (some == BLOCK && line.along->axes <= 1 && line.along->of[INNER - 1] == 1) {
        const V* const from = line.data + line.offset + first;
        ask_ahead(from, BLOCK);
        return maker.add_whole(from, first, accumulators);
      }
    V values[BLOCK];
    line.load(values, first, some);
    maker.add(values, first, some, accumulators);
  }

  static void run_block(
      Room& room, const Pass* passes, RowState<P>* rows, int begin, int count, i64 first, int some, int accumulators) {
    if constexpr (RAW) {
      if (count == 1) return (take_raw<I>(room.makers[begin], rows[begin], first, some, accumulators), ...);
    }
    Lines::template load<Pass::READS>(room.in, rows + begin, count, first, some);
    for (int row = 0; row < count; ++row) {
      const Pass& pass = passes[begin + row];
      const bool usual = pass.fast() && compute<true>(pass, room.in[row], rows[begin + row].held + first, some, first,
                                                      room.values[row]);
      if (!usual)
        compute<!Pass::CAREFUL>(pass, room.in[row], rows[begin + row].held + first, some, first, room.values[row]);
      (get<I>(room.makers[begin + row]).add(get<I>(room.values[row]), first, some, accumulators), ...);
    }
    (store<I>(room, rows + begin, count, first, some), ...);
  }

  static Room& own_room() {
    static thread_local const std::unique_ptr<Room> room(new Room);
    return *room;
  }
  // Some segments of a row: what its makers have then.
  static const Makers& run_part(RowState<P>& row, i64 begin, i64 end, int accumulators) {
    Room& room = own_room();
    Makers& makers = room.makers[0];
    const Pass pass = pass_for<Pass>(row.shared);
    (get<I>(makers).begin(row.shared, row.length), ...);
    for (i64 start = begin; start < end; start += SEGMENT) {
      (get<I>(makers).begin_segment(accumulators), ...);
      for (i64 first = start; first < min(end, start + SEGMENT); first += BLOCK)
        run_block(room, &pass, &row, 0, 1, first, int(min(i64(BLOCK), end - first)), accumulators);
      (get<I>(makers).end_segment(accumulators), ...);
    }
    return makers;
  }

  static void run(RowState<P>* rows, int count, int accumulators) {
    Room* const room = &own_room();
    Makers* const makers = room->makers;
    Pass passes[TOGETHER];
    i64 longest = 0;
    if (in_slabs<P>) accumulators = 1;
    for (int row = 0; row < count; ++row) {
      passes[row] = pass_for<Pass>(rows[row].shared);
      longest = max(longest, rows[row].length);
      (get<I>(makers[row]).begin(rows[row].shared, rows[row].length), ...);
    }
    const i64 segment = in_slabs<P> ? longest : SEGMENT;  // slabs are counted by makers
    i64 start = 0;
    do {
      for (int row = 0; row < count; ++row) (get<I>(makers[row]).begin_segment(accumulators), ...);
      for (i64 first = start; first < min(longest, start + segment); first += BLOCK) {
        for (int row = 0; row < count;) {  // those of one length together
          const int some = int(min(i64(BLOCK), rows[row].length - first));
          int alike = 1;
          while (row + alike < count && rows[row + alike].length == rows[row].length) ++alike;
          if (some > 0) run_block(*room, passes, rows, row, alike, first, some, accumulators);
          row += alike;
        }
      }
      for (int row = 0; row < count; ++row)
        if (start == 0 || start < rows[row].length) (get<I>(makers[row]).end_segment(accumulators), ...);
      start += segment;
    } while (start < longest);
    for (int row = 0; row < count; ++row) (get<I>(makers[row]).end(rows[row].shared, rows[row].length == 0), ...);
  }
};
template <typename P, typename Pass> inline void run_pass(RowState<P>* rows, int count, int accumulators) {
  if constexpr (Pass::Makes::size > 0) {
    using Index = typename Pass::Makes::Index;
    if (!Pass::wanted(rows[0].shared)) return;
    if constexpr (Pass::REPEATS) {
      for (int row = 0; row < count; ++row) {
        auto& value = Pass::rising(rows[row].shared);
        value = Pass::first();
        for (bool rises = true; rises;) {
          RunPass<P, Pass, Index>::run(rows + row, 1, accumulators);
          const auto next = Pass::next(rows[row].shared);
          rises = next > value;
          value = next;
        }
      }
      return;
    }
    for (int begin = 0, some = 0; begin < count; begin += some) {
      if constexpr (goes_down<P, Pass>) {
        using Down = RunDown<P, Pass, Index, make_seq<operands_of<P>::elements>>;
        some = Down::beside(rows + begin, count - begin);
        if (some >= FEWEST_DOWN) {
          Down::run(rows + begin, some, accumulators);
          continue;
        }
      }
      some = min(TOGETHER, count - begin);
      RunPass<P, Pass, Index>::run(rows + begin, some, accumulators);
    }
  }
}

template <typename P, int O> inline void store_shared(const RowArgs<P>& args, const RowState<P>& row) {
  if constexpr (RowRole<type_at<typename P::Outputs, O>>::per_row) {
    const auto& output = args.template output<O>();
    store_per_row<P, O>(output.array + args.rows.offset(row.at, output.strides), row.shared);
  }
}

template <typename P, int... I, int... O>
inline void run_rows(const RowArgs<P>& args, RowState<P>* rows, int count, int accumulators, Seq<I...>, Seq<O...>) {
  (run_pass<P, type_at<passes_of<P>, I>>(rows, count, accumulators), ...);
  for (int row = 0; row < count; ++row) {
    P::finish(rows[row].shared);
    (store_shared<P, O>(args, rows[row]), ...);
  }
  run_pass<P, last_pass<P>>(rows, count, accumulators);
}

// Whether elements beside each other in memory belong to different rows.
template <typename P, int N> inline bool lies_apart(const RowArgs<P>& args) {
  const auto& input = args.template elements<N>();
  return input.steps.of[INNER - 1] != 1 && input.strides.of[AXES - 1] == 1;
}
template <typename P, int... N> inline bool lie_apart(const RowArgs<P>& args, Seq<N...>) {
  return (lies_apart<P, N>(args) || ... || false);
}

// A row before its first pass.
template <typename P> inline void begin_row(const RowArgs<P>& args, RowState<P>& state, i64 row) {
  state.at = args.rows.position(row);
  state.length = args.rows.length_of(state.at);
  state.lines.set(args, state.at);
  state.shared = shared_at_start<P>(args, state.at, typename P::C(state.length));
  pick_all<P>(args, state.shared, state.length, [&](auto n) {
    const auto& line = get<n>(state.lines.in);
    return at<element_in<P, n>>(line.data, line.offset);
  });
}

// Rows `begin` to `end`.
template <typename P> void run_whole_rows(const RowArgs<P>& args, i64 begin, i64 end) {
  using Held = typename P::Held;
  const int accumulators = accumulators_of(args.rows.length);
  const bool hold = P::COSTLY > 0, apart = lie_apart(args, make_seq<operands_of<P>::elements>());
  const i64 of_row = hold ? args.rows.length : 0;  // values that passes share
  const i64 most = of_row > 0 ? max(i64(1), HELD_BYTES / i64(of_row * sizeof(Held))) : MOST_DOWN;
  const int together = apart ? int(min(i64(only_down<P>(passes_of<P>()) ? MOST_DOWN : TOGETHER), most)) : 1;
  const std::unique_ptr<Held[]> held(new Held[together * of_row]);
  const std::unique_ptr<RowState<P>[]> states(new RowState<P>[together]);
  for (i64 first = begin; first < end; first += together) {
    const int count = int(min(i64(together), end - first));
    for (int row = 0; row < count; ++row) {
      begin_row(args, states[row], first + row);
      states[row].held = held.get() + row * of_row;
    }
    using First = make_seq<passes_of<P>::size - 1>;
    using Outputs = make_seq<operands_of<P>::outputs>;
    run_rows<P>(args, states.get(), count, accumulators, First(), Outputs());
  }
}
