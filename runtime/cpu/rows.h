// Programs that reduce rows, on the CPU: passes over some rows at a time, block by block. Sums have the order of
// model/sum_order.py.
#pragma once
#include "row_schedule.cuh"
#include "slabs.cuh"
#include "blocks.h"

constexpr int GROUPS = BLOCK / GROUP;  // of a block
constexpr i64 HELD_BYTES = 1 << 20;    // of values that passes share, of rows taken together
constexpr int TOGETHER = 16;           // rows taken together where neighbours in memory belong to different ones
constexpr int LINES_AHEAD = 32;        // of theirs, for which memory is asked before they are wanted

// Where the elements of a row lie in an operand: along up to INNER axes, the innermost of which is a Line.
template <typename E> struct RowLine {
  storage_t<E>* data;
  i64 offset;
  const Along* along;

  template <typename F> void each_line(i64 first, int count, const F& take) const {
    const i64 step = along->of[INNER - 1];
    if (along->axes <= 1) return take(Line<E>{data, offset, step}, first, 0, count);
    const i64 extent = along->extent[INNER - 1].divisor;
    for (int done = 0; done < count;) {
      const i64 at = first + done, inner = at % extent;
      const int some = int(min(i64(count - done), extent - inner));
      take(Line<E>{data, offset + along->to(at) - inner * step, step}, inner, done, some);
      done += some;
    }
  }
  // Whether the elements of TOGETHER rows lie beside each other: those of the next row one further.
  template <typename At> static bool beside(int count, const At& line) {
    const RowLine& start = line(0);
    bool found = count == TOGETHER && storage<E>::bits >= 8 && !IS_PLACE<E> && start.along->axes <= 1;
    for (int row = 1; row < count; ++row) found = found && line(row).offset == start.offset + row;
    return found;
  }
  // Elements of rows beside each other, in the order of memory: `of` gives a row's.
  template <typename Of> void each_beside(i64 first, int count, const Of& of) const {
    const i64 step = along->of[INNER - 1];
    for (int lane = 0; lane < count; ++lane) {
      storage_t<E>* const at = data + offset + (first + lane) * step;
      __builtin_prefetch(at + LINES_AHEAD * step);
      for (int row = 0; row < TOGETHER; ++row) of(at[row], row, lane);
    }
  }
  template <typename V> void load(V (&to)[BLOCK], i64 first, int count) const {
    each_line(first, count, [&](const Line<E>& line, i64 at, int done, int some) {
      load_block(&to[done], line, at, some);
    });
  }
  template <typename V> void store(const V (&values)[BLOCK], i64 first, int count) const {
    each_line(first, count, [&](const Line<E>& line, i64 at, int done, int some) {
      store_block(&values[done], line, at, some);
    });
  }
};

// A row's inputs with elements and its outputs.
template <typename P, typename N, typename I> struct RowLinesOf;
template <typename P, int... N, int... I> struct RowLinesOf<P, Seq<N...>, Seq<I...>> {
  using C = typename P::C;
  using Values = Tuple<formula_t<C, element_in<P, N>>[BLOCK]...>;
  Tuple<RowLine<element_in<P, N>>...> in;
  Tuple<RowLine<element_out<P, I>>...> out;

  void set(const RowArgs<P>& args, const RowSpace::Position& at) {
    (set_input<N>(args, at), ...);
    (set_output<I>(args, at), ...);
  }
  // The elements of a block of some rows, as far as a pass reads them.
  template <u32 READS, typename Rows>
  static void load(Values* values, const Rows& rows, int count, i64 first, int some) {
    (load_one<READS, N>(values, rows, count, first, some), ...);
  }
  template <u32 READS> static typename P::Element element(const Values& values, int lane) {
    return {one<READS, N>(values, lane)...};
  }

 private:
  template <int K> void set_input(const RowArgs<P>& args, const RowSpace::Position& at) {
    const auto& input = args.template elements<K>();
    get<K>(in) = {
        const_cast<storage_t<element_in<P, K>>*>(input.array), args.rows.offset(at, input.strides), &input.steps};
  }
  template <int K> void set_output(const RowArgs<P>& args, const RowSpace::Position& at) {
    if constexpr (RowRole<type_at<typename P::Outputs, K>>::elements) {
      const auto& output = args.template output<K>();
      get<K>(out) = {output.array, args.rows.offset(at, output.strides), &output.steps};
    }
  }
  template <u32 READS, int K, typename Rows>
  static void load_one(Values* values, const Rows& rows, int count, i64 first, int some) {
    if constexpr ((READS >> K & 1) != 0) {
      using E = element_in<P, K>;
      const auto line = [&](int row) -> const auto& { return get<K>(rows[row].lines.in); };
      if (RowLine<E>::beside(count, line))
        line(0).each_beside(first, some, [&](const storage_t<E>& from, int row, int lane) {
          get<K>(values[row])[lane] = formula_t<C, E>(widen(from));
        });
      else
        for (int row = 0; row < count; ++row) line(row).load(get<K>(values[row]), first, some);
    }
  }
  template <u32 READS, int K> static auto one(const Values& values, int lane) {
    using V = formula_t<C, element_in<P, K>>;
    if constexpr ((READS >> K & 1) != 0) return get<K>(values)[lane];
    else return V();
  }
};
template <typename P>
using RowLines = RowLinesOf<P, make_seq<operands_of<P>::elements>, make_seq<operands_of<P>::outputs>>;

// The passes of a program. A stage of several kernels has one.
template <typename P, int N> struct PassesOf { using type = typename P::Passes; };
template <typename P> struct PassesOf<P, 0> { using type = List<typename P::SplitPass, EmptyPass>; };
template <typename P> using passes_of = typename PassesOf<P, P::Passes::size>::type;
template <typename P> using last_pass = type_at<passes_of<P>, passes_of<P>::size - 1>;
template <typename... Make> constexpr bool makes_output(int output, List<Make...>) {
  return ((Make::output == output) || ... || false);
}

inline int accumulators_of(i64 length) {
  i64 wanted = 1;
  while (wanted < ACCUMULATORS && wanted * GROUP * 4 < length) wanted *= 2;
  return int(max(wanted, i64(FEWEST)));
}

// The type of a value that a pass makes.
template <typename... V> List<V...> types_in(const Tuple<V...>&);
template <typename P, typename Pass, int I>
using value_of = type_at<
    decltype(types_in(static_cast<const Pass*>(nullptr)->template of<true, 0>(
        *static_cast<const typename P::Element*>(nullptr), *static_cast<typename P::Held*>(nullptr),
        *static_cast<bool*>(nullptr)))),
    I>;

// What a pass makes of a row: a reduction.
template <typename P, typename Pass, int I, bool REDUCES = type_at<typename Pass::Makes, I>::reduces> struct Maker {
  using Make = type_at<typename Pass::Makes, I>;
  using How = typename Make::How;
  using V = state_t<How, typename Make::Value>;
  using Shared = typename P::Shared;
  static constexpr bool asks = !same<const decltype(nullptr), decltype(Make::finite)>;  // whether values are finite
  V of[ACCUMULATORS];
  Segments<How, V, true> total;
  bool finite;
  i64 slab, missing;  // elements of a slab, and those that the one which was begun lacks

  void begin(Shared&, i64 length) {
    slab = slab_of(length);
    total.count = 0;
    finite = true;
  }
  void begin_segment(int accumulators) {
    missing = slab;
    for (int i = 0; i < accumulators; ++i) of[i] = How::template nothing<V>();
  }
  void add(V (&values)[BLOCK], i64 first, int count, int accumulators) {
    if constexpr (in_slabs<P>) return add_to_slabs(values, count);
    for (int i = count; i % GROUP != 0; ++i) values[i] = How::template nothing<V>();
    const int groups = (count + GROUP - 1) / GROUP, start = int(first / GROUP) & (accumulators - 1);
    int made = groups;
    V joined[GROUPS];
#ifdef HAS_EIGHTS
    if constexpr (same<How, Sum> && same<V, f32>) {
      for (int i = groups * GROUP; i < (groups + 7) / 8 * 8 * GROUP; ++i) values[i] = 0;
      for (int i = 0; i < groups; i += 8) sum_eight_groups(&values[i * GROUP], &joined[i]);
    } else
#endif
    if (!ordered<How> && joins(values, groups * GROUP)) {  // vectors of them need no neighbours
      for (int i = groups * GROUP; i < BLOCK; ++i) values[i] = How::template nothing<V>();
      for (int left = BLOCK / 2; left >= GROUPS; left /= 2)
        for (int i = 0; i < left; ++i) values[i] = How::of(values[i], values[left + i]);
      for (int i = 0; i < GROUPS; ++i) joined[i] = values[i];
      made = GROUPS;
    } else if (ordered<How> && joins(values, groups * GROUP)) {
      V pairs[BLOCK / 2], fours[BLOCK / 4];
      for (int i = 0; i < groups * 4; ++i) pairs[i] = How::of(values[2 * i], values[2 * i + 1]);
      for (int i = 0; i < groups * 2; ++i) fours[i] = How::of(pairs[2 * i], pairs[2 * i + 1]);
      for (int i = 0; i < groups; ++i) joined[i] = How::of(fours[2 * i], fours[2 * i + 1]);
    } else {
      for (int i = 0; i < groups; ++i)
        joined[i] = Group<How, V>::of(reinterpret_cast<V(&)[GROUP]>(values[i * GROUP]), finite);
    }
    for (int done = 0; done < made; done += accumulators) {
      const int some = min(accumulators, made - done);
      for (int i = 0; i < some; ++i) of[start + i] = How::of(of[start + i], joined[done + i]);
    }
  }
  void end_segment(int accumulators) {
    if (in_slabs<P> && missing == slab) return;
    for (int left = accumulators / 2; left > 0; left /= 2)
      for (int i = 0; i < left; ++i) of[i] = How::of(of[2 * i], of[2 * i + 1]);
    total.add(of[0]);
  }
  void end(Shared& shared, bool empty) {
    if constexpr (asks) shared.*Make::finite = finite;
    shared.*Make::member = result_of(empty ? How::template empty<V>() : total.total());
  }

 private:
  void add_to_slabs(const V (&values)[BLOCK], int count) {
    for (int i = 0; i < count;) {
      const int end = int(min(i64(count), i + missing));
      V sum = of[0];
      missing -= end - i;
      for (; i < end; ++i) sum = How::of(sum, values[i]);
      of[0] = sum;
      if (missing > 0) continue;
      total.add(sum);
      begin_segment(1);
    }
  }
  // Whether groups are joined as they stand: they are where values that count for nothing would have to be finite, and
  // all are.
  static bool joins(V (&values)[BLOCK], int count) {
    if constexpr (same<How, LargestMagnitude> || same<How, LargestFinite> || same<How, SmallestFinite>) {
      int finite = 1;
      for (int i = 0; i < count; ++i) finite &= is_finite(values[i]);
      if (!finite) return false;
      if constexpr (same<How, LargestMagnitude>)
        for (int i = 0; i < count; ++i) values[i] = absolute(values[i]);
    }
    return true;
  }
};

// An output that has an element for each of a row's. The last pass stores it, unless only an earlier one makes it.
template <typename P, typename Pass, int N> struct Maker<P, Pass, N, false> {
  static constexpr int O = type_at<typename Pass::Makes, N>::output;
  static constexpr bool stores = same<Pass, last_pass<P>> || !makes_output(O, typename last_pass<P>::Makes());
  using V = kept_t<element_out<P, O>, value_of<P, Pass, N>>;
  using Shared = typename P::Shared;
  void begin(Shared&, i64) {}
  void begin_segment(int) {}
  void add(V (&)[BLOCK], i64, int, int) {}
  // `of` gives a row's values.
  template <typename Rows, typename Of>
  static void store(const Rows& rows, int count, i64 first, int some, const Of& of) {
    using E = element_out<P, O>;
    const auto line = [&](int row) -> const auto& { return get<O>(rows[row].lines.out); };
    if (RowLine<E>::beside(count, line))
      line(0).each_beside(first, some, [&](storage_t<E>& to, int row, int lane) {
        if constexpr (storage<E>::bits >= 8) to = narrow_to<E>::from(of(row)[lane]);
      });
    else
      for (int row = 0; row < count; ++row) line(row).store(of(row), first, some);
  }
  void end_segment(int) {}
  void end(Shared&, bool) {}
};

// A row on its way through a program.
template <typename P> struct RowState {
  RowLines<P> lines;
  RowSpace::Position at;
  typename P::Shared shared;
  i64 length;
  typename P::Held* held;
};

template <typename Make, typename To, typename V> inline void put(To& to, V value, i64 index) {
  if constexpr (Make::reduces) to = state_of<typename Make::How>(value, index);
  else to = To(value);
}
// A pass over some rows.
template <typename P, typename Pass, typename S> struct RunPass;
template <typename P, typename Pass, int... I> struct RunPass<P, Pass, Seq<I...>> {
  static constexpr bool HOLD = P::COSTLY > 0;
  using Lines = RowLines<P>;
  using Makers = Tuple<Maker<P, Pass, I>...>;
  using Values = Tuple<typename Maker<P, Pass, I>::V[BLOCK]...>;

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

  static void run_block(
      Room& room, const Pass* passes, RowState<P>* rows, int begin, int count, i64 first, int some, int accumulators) {
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

  static void run(RowState<P>* rows, int count, int accumulators) {
    static thread_local const std::unique_ptr<Room> room(new Room);
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
  if constexpr (Pass::Makes::size > 0)
    if (Pass::wanted(rows[0].shared)) RunPass<P, Pass, typename Pass::Makes::Index>::run(rows, count, accumulators);
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

// Rows `begin` to `end`.
template <typename P> void cpu_rows(const void* arguments, i64 begin, i64 end) {
  const auto& args = *static_cast<const RowArgs<P>*>(arguments);
  using Held = typename P::Held;
  const int accumulators = accumulators_of(args.rows.length);
  const bool hold = P::COSTLY > 0, apart = lie_apart(args, make_seq<operands_of<P>::elements>());
  const i64 of_row = hold ? args.rows.length : 0;  // values that passes share
  const i64 most = of_row > 0 ? max(i64(1), HELD_BYTES / i64(of_row * sizeof(Held))) : TOGETHER;
  const int together = apart ? int(min(i64(TOGETHER), most)) : 1;
  const std::unique_ptr<Held[]> held(new Held[together * of_row]);
  const std::unique_ptr<RowState<P>[]> states(new RowState<P>[together]);
  for (i64 first = begin; first < end; first += together) {
    const int count = int(min(i64(together), end - first));
    for (int row = 0; row < count; ++row) {
      RowState<P>& state = states[row];
      state.at = args.rows.position(first + row);
      state.length = args.rows.length_of(state.at);
      state.lines.set(args, state.at);
      state.shared = shared_at_start<P>(args, state.at, typename P::C(state.length));
      pick_all<P>(args, state.shared, state.length, [&](auto n) {
        const auto& line = get<n>(state.lines.in);
        return at<element_in<P, n>>(line.data, line.offset);
      });
      state.held = held.get() + row * of_row;
    }
    using First = make_seq<passes_of<P>::size - 1>;
    using Outputs = make_seq<operands_of<P>::outputs>;
    run_rows<P>(args, states.get(), count, accumulators, First(), Outputs());
  }
}
