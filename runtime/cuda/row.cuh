// The kernel of rows that threads of one block hold or read: passes over a row, each of which makes reductions, and a
// last one that makes the outputs. What passes compute is the program's.
#pragma once
#include "dependent_launch.cuh"
#include "row_inputs.cuh"

// A value that a pass makes, of the elements of a thread's share: what a reduction goes on with, or what is stored.
template <typename P, typename Make, typename V> struct GroupType { using type = state_t<typename Make::How, V>; };
template <typename P, int O, typename V> struct GroupType<P, Store<O>, V> { using type = V; };
template <typename P, int O> struct GroupType<P, Store<O>, i64> { using type = code_t<element_out<P, O>>; };
template <typename... V> __device__ List<V...> types_of(const Tuple<V...>&);
template <typename P, typename Pass, int I> struct ValueGroup {
  using Make = type_at<typename Pass::Makes, I>;
  using Values = decltype(types_of(static_cast<const Pass*>(nullptr)->template of<true, 0>(
      *static_cast<const typename P::Element*>(nullptr), *static_cast<typename P::Held*>(nullptr),
      *static_cast<bool*>(nullptr))));
  using Type = typename GroupType<P, Make, type_at<Values, I>>::type;
  Type of[GROUP];

  template <typename V, typename Index> __device__ void set(int lane, V value, Index first) {
    if constexpr (Make::reduces) of[lane] = state_of<typename Make::How>(value, first + lane);
    else of[lane] = Type(value);
  }
};

// What a pass makes of an element. Random numbers take many instructions: out of line where few calls, or few numbers,
// ask.
template <typename Values, typename Held> struct MadeApart {
  Values values;
  Held held;
  bool usual;
};
template <typename P, int FAST, int KNOWN, typename Values, typename Pass, typename Inputs, typename Held>
__device__ __noinline__ MadeApart<Values, Held> made_apart(const Pass pass, const Inputs inputs, Held held) {
  bool usual = true;
  const Values values = pass.template of<FAST, KNOWN>(element_of<P>(inputs), held, usual);
  return {values, held, usual};
}
// BESIDE: as of `element_in_lane`.
template <typename P, int FAST, int KNOWN, bool BESIDE, typename Pass, typename Shares, typename Held>
__device__ inline auto made_in_lane(const Pass& pass, const Shares& shares, int lane, Held& held, bool& usual) {
  const auto made_of = [&](const auto& element) { return pass.template of<FAST, KNOWN>(element, held, usual); };
  if constexpr (Pass::RANDOM && (Pass::SOMETIMES || !FAST)) {
    const auto inputs = inputs_in_lane<P, Pass::READS>(shares, lane);
    const auto made = made_apart<P, FAST, KNOWN, decltype(made_of(element_of<P>(inputs)))>(pass, inputs, held);
    held = made.held;
    usual &= made.usual;
    return made.values;
  } else {
    return made_of(element_in_lane<P, Pass::READS, BESIDE>(shares, lane));
  }
}

// Computes the values of a chunk. AGAIN: once more, where the values that several passes use are known.
template <typename S, typename Pass, int FAST, bool AGAIN, typename Chunk, typename Held, typename Groups, int... I>
__device__ inline void compute_chunk(
    const Pass& pass, const Chunk& shares, Held* held, int chunk, typename S::Index first, bool& usual, Groups& groups,
    Seq<I...>) {
  using P = typename S::Program;
  constexpr int KNOWN = !S::HOLD ? 0 : AGAIN ? HOLDS_ALL : HOLDS_EARLIER;
  constexpr bool KNOWS = Pass::HELD_TAKEN != 0 || AGAIN;
#pragma unroll
  for (int lane = 0; lane < GROUP; ++lane) {
    Held own;
    if constexpr (S::HOLD && KNOWS) own = held[chunk * GROUP + lane];
    constexpr bool BESIDE = S::MODE != STEPPED && Pass::HELD_FRESH != 0;  // others may draw few numbers, or none
    const auto values = made_in_lane<P, FAST, KNOWN, BESIDE>(pass, shares, lane, own, usual);
    if constexpr (S::HOLD && Pass::HELD_FRESH != 0 && !AGAIN) held[chunk * GROUP + lane] = own;
    (get<I>(groups).set(lane, get<I>(values), first), ...);
  }
}

// A reduction of a pass, as a thread has it of a segment.
struct NoPairs {
  static constexpr bool can = false;
};
template <bool FIRST, typename A, typename B> struct chosen_type { using type = A; };
template <typename A, typename B> struct chosen_type<false, A, B> { using type = B; };
template <typename P, typename R, bool RAW> struct PairsOf { using type = NoPairs; };
template <typename P, typename R> struct PairsOf<P, R, true> {
  using E = element_in<P, R::raw>;
  using type = typename chosen_type<ordered<typename R::How> && same<typename R::Value, i64>,
                                    PackedIntegers<typename R::How, E>, Packed<typename R::How, E>>::type;
};
template <typename S, typename Pass, int I, bool REDUCES = type_at<typename Pass::Makes, I>::reduces> struct Reducer {
  using Make = type_at<typename Pass::Makes, I>;
  using How = typename Make::How;
  using V = state_t<How, typename Make::Value>;
  using Pairs = typename PairsOf<typename S::Program, Make, (Make::raw >= 0)>::type;
  using Row = ThreadRow<S>;
  using Shared = typename S::Program::Shared;
  static constexpr bool pairs_can = Pairs::can, packs = S::KEEP && pairs_can;
  static constexpr bool asks = !same<const decltype(nullptr), decltype(Make::finite)>;  // whether values are finite
  static constexpr int TURNS = S::KEEP ? 1 : 2;  // scratch of one segment is read while the next one's is written
  using Total = Segments<How, V, !S::KEEP>;
  using Own = Partial<How, V, S::THREADS, S::EACH, S::SPREAD>;
  struct alignas(16) Scratch { V of[TURNS][Own::scratch_of(S::ROWS)]; };
  Own partial;
  Pairs pairs;  // of narrow elements that are reduced as they stand: several at once

  static __device__ void begin(Shared& shared) {
    if constexpr (asks) shared.*Make::finite = true;
  }
  // A group; of the last one of a row, as many elements as the row has. UNASKED: whether values are finite is asked
  // later.
  template <bool UNASKED>
  __device__ void add(
      const typename S::Args&, const Row& row, const typename RowInputs<S>::Chunk& shares,
      V (&group)[GROUP], int chunk, typename S::Index first, bool whole) {
    constexpr bool ASKED = !(asks && UNASKED);
    if constexpr (packs) {
      if (whole) pairs.add(get<Make::raw>(shares));
      else pairs.add(get<Make::raw>(shares), i32(row.length - first));
    } else {
      if (whole) partial.template add<ASKED>(group, chunk);
      else partial.template add<ASKED>(group, chunk, i32(row.length - first));
    }
  }
  // Whether what was not asked makes no difference; else the reduction is made again.
  __device__ bool sure() const { return !asks || pairs_can || partial.sure(); }
  __device__ void begin_again() {
    if constexpr (asks) partial = {};
  }
  __device__ void add_again(const Row& row, V (&group)[GROUP], int chunk, typename S::Index first, bool full) {
    if constexpr (asks) {
      if (!in_whole_shares(S::MODE) && !full) cut<How>(group, i32(row.length - first));
      partial.add(group, chunk);
    }
  }
  // Ends with what pairs found, or where they do not tell, with what elements are.
  __device__ void unpack(const RowInputs<S>& inputs, const Row& row) {
    if constexpr (packs) {
      if (__builtin_expect(pairs.known(), 1)) {
        if constexpr (same<How, LogSumExp>)
          partial.template add_near<!in_whole_shares(S::MODE)>(
              get<Make::raw>(inputs.of).own.lanes, row.thread, row.length, pairs.value());
        else partial.accumulator = pairs.value();
      } else {
        partial.template add_all<!in_whole_shares(S::MODE)>(get<Make::raw>(inputs.of).own.lanes, row.thread, row.length);
      }
    }
  }
  // Adds the value of the whole segment.
  __device__ void end(
      const RowInputs<S>& inputs, const Row& row, Shared& shared, Scratch& scratch, int turn, Total& total) const {
    if constexpr (asks) shared.*Make::finite &= partial.finite;
    if constexpr (S::KEEP && Make::raw >= 0 && !same<V, typename Make::Value>) {
      if constexpr (sought_in_row<How, element_in<typename S::Program, Make::raw>>) {
        total.add(seek<How, S::THREADS, !in_whole_shares(S::MODE)>(
            get<Make::raw>(inputs.of).own.lanes, row.thread, row.length, scratch.of[0]));
        return;
      }
    }
    total.add(partial.total(scratch.of[turn % TURNS]));
  }
  static __device__ void set(const Row& row, const Total& total, Shared& shared) {
    if (S::Program::LONE_ENDS && same<How, LogSumExp> && row.thread != 0) return;
    shared.*Make::member = result_of(row.length == 0 ? How::template empty<V>() : total.total());
  }
};

// An output that a pass before the last one knows: stored there.
template <typename S, typename Pass, int N> struct Reducer<S, Pass, N, false> {
  static constexpr int I = type_at<typename Pass::Makes, N>::output;
  using Row = ThreadRow<S>;
  using Shared = typename S::Program::Shared;
  using E = element_out<typename S::Program, I>;
  static constexpr bool asks = false;
  struct Total {};
  struct Scratch {};

  static __device__ void begin(Shared&) {}
  template <bool UNASKED, typename V>
  __device__ void add(
      const typename S::Args& args, const Row& row, const typename RowInputs<S>::Chunk&, V (&group)[GROUP],
      int, typename S::Index first, bool) {
    if constexpr (S::template stored_early<I>) {
      if (!row.live) return;
      Lanes<E, GROUP> lanes = {};
      set_all(lanes, group);
      ::keep<S::MODE, E>(row.template output<I>(), first, row.length, args.template output<I>().steps, lanes);
    }
  }
  __device__ bool sure() const { return true; }
  __device__ void begin_again() {}
  template <typename V> __device__ void add_again(const Row&, V (&)[GROUP], int, typename S::Index, bool) {}
  __device__ void unpack(const RowInputs<S>&, const Row&) {}
  __device__ void end(const RowInputs<S>&, const Row&, Shared&, Scratch&, int, Total&) const {}
  static __device__ void set(const Row&, const Total&, Shared&) {}
};

// A pass that makes reductions: their results go to `shared`.
template <typename S, typename Pass, typename Held, int... I>
__device__ inline void reduce_row(
    const typename S::Args& args, const ThreadRow<S>& row, const RowInputs<S>& inputs, bool columns_aligned,
    Held* held, typename S::Program::Shared& shared, Seq<I...> indices) {
  using Index = typename S::Index;
  constexpr int CHUNKS = S::CHUNKS, THREADS = S::THREADS, MODE = S::MODE;
  constexpr bool KEEP = S::KEEP;
  // Whether values are finite is asked once a thread, where asking again computes nothing again.
  constexpr bool UNASKED = (Reducer<S, Pass, I>::asks || ...) && KEEP && (!Pass::CAREFUL || S::HOLD);
  __shared__ alignas(16) Tuple<typename Reducer<S, Pass, I>::Scratch...> scratch;
  (Reducer<S, Pass, I>::begin(shared), ...);
  const Pass pass(shared);
  Index start = 0;
  Tuple<typename Reducer<S, Pass, I>::Total...> totals;
  int turn = 0;
  do {  // a segment
    Tuple<Reducer<S, Pass, I>...> reducers;
#pragma unroll S::UNROLLED
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const bool full =
          !in_whole_shares(MODE) && (KEEP ? chunk < S::FULL : start + Index((chunk + 1) * THREADS) * GROUP <= row.length);
      if (!full && start + chunk * (THREADS * GROUP) >= row.left()) break;
      const Index first = start + Index(chunk * THREADS + row.thread) * GROUP;
      const auto shares = inputs.template chunk<Pass::READS>(args, row, chunk, first, full, columns_aligned);
      Tuple<ValueGroup<typename S::Program, Pass, I>...> groups;
      bool usual = pass.fast();
      compute_chunk<S, Pass, true, false>(pass, shares, held, chunk, first, usual, groups, indices);
      if constexpr (Pass::CAREFUL)
        if (__builtin_expect(!usual && row.live, 0))  // what threads of no row compute is nothing usual
          compute_chunk<S, Pass, false, false>(pass, shares, held, chunk, first, usual, groups, indices);
      (get<I>(reducers).template add<UNASKED>(
           args, row, shares, get<I>(groups).of, chunk, first, in_whole_shares(MODE) || full),
       ...);
    }
    if constexpr (UNASKED)
      if (__builtin_expect(!(get<I>(reducers).sure() & ...), 0)) {
        (get<I>(reducers).begin_again(), ...);
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
          const bool full = !in_whole_shares(MODE) && chunk < S::FULL;
          if (!full && chunk * (THREADS * GROUP) >= row.left()) break;
          const Index first = Index(chunk * THREADS + row.thread) * GROUP;
          const auto shares = inputs.template chunk<Pass::READS>(args, row, chunk, first, full, columns_aligned);
          Tuple<ValueGroup<typename S::Program, Pass, I>...> groups;
          bool usual = pass.fast();
          compute_chunk<S, Pass, true, true>(pass, shares, held, chunk, first, usual, groups, indices);
          (get<I>(reducers).add_again(row, get<I>(groups).of, chunk, first, full), ...);
        }
      }
    (get<I>(reducers).unpack(inputs, row), ...);
    (get<I>(reducers).end(inputs, row, shared, get<I>(scratch), turn, get<I>(totals)), ...);
    start += SEGMENT;
    ++turn;
  } while (!KEEP && start < row.length);
  (Reducer<S, Pass, I>::set(row, get<I>(totals), shared), ...);
}

// Whether some row wants a pass again. What threads of one warp hold is known to it, else the block asks.
template <typename S> __device__ inline bool again(bool rises) {
  return S::THREADS > 32 ? __syncthreads_or(rises) : __any_sync(~0u, rises);
}
// Such a pass; or, where it REPEATS, all of the block's rows again until none of their values rises.
template <typename S, typename Pass, typename Held>
__device__ inline void reduce_pass(
    const typename S::Args& args, const ThreadRow<S>& row, const RowInputs<S>& inputs, bool columns_aligned,
    Held* held, typename S::Program::Shared& shared) {
  const typename Pass::Makes::Index indices;
  if constexpr (Pass::REPEATS) {
    auto& value = Pass::rising(shared);
    value = Pass::first();
    bool rises = row.live;
    do {
      reduce_row<S, Pass>(args, row, inputs, columns_aligned, held, shared, indices);
      const auto next = Pass::next(shared);
      const bool rose = next > value;
      if (rises) value = next;
      rises &= rose;
    } while (again<S>(rises));
  } else {
    reduce_row<S, Pass>(args, row, inputs, columns_aligned, held, shared, indices);
  }
}

// How an output goes to memory. Where a thread's shares are not words beside its neighbours', a row's threads write
// stretches of it together, as long as shared memory allows; those of rows that are read again, warps by themselves.
template <typename S> struct StretchesOf {
  static constexpr bool TOGETHER = S::KEEP && S::MODE == UNIT;
  static constexpr int LANES = TOGETHER || S::THREADS < 32 ? S::THREADS : 32, BITS = S::Operands::result_bits;
  static constexpr int SHARES =
      S::THREADS < 32 ? S::CHUNKS : TOGETHER ? shares_of(S::CHUNKS, S::BLOCK, BITS, S::STRETCH) : 1;
};
template <typename S, typename Pass, int N> struct Storer : StretchesOf<S> {
  using Base = StretchesOf<S>;
  using Row = ThreadRow<S>;
  static constexpr int I = type_at<typename Pass::Makes, N>::output;
  using E = element_out<typename S::Program, I>;
  using Part = Stretch<E, Base::LANES, Base::SHARES>;
  static constexpr bool joined = Part::wanted(S::MODE) && S::BLOCK * Base::SHARES * Base::BITS <= S::STRETCH;
  struct alignas(16) Memory { u8 of[joined ? S::BLOCK / Base::LANES * Part::bytes : 16]; };
  Part part;
  ShareWords<E> words;  // of a chunk

  __device__ void begin(Memory& memory) {
    part.memory = memory.of + (joined ? threadIdx.x / Base::LANES * Part::bytes : 0);
  }
  template <typename V> __device__ void take(const V (&group)[GROUP]) {
    Lanes<E, GROUP> lanes = {};
    set_all(lanes, group);
    words = reinterpret_cast<const ShareWords<E>&>(lanes);
  }
  __device__ void store(
      const typename S::Args& args, const Row& row, int lane, int chunk, typename S::Index first) const {
    if constexpr (joined)
      part.put(lane, chunk % Base::SHARES, words, i32(min(row.length - first, typename S::Index(GROUP))));
    else if constexpr (!S::template stored_early<I>)
      ::keep<S::MODE, E>(
          row.template output<I>(), first, row.length, args.template output<I>().steps,
          reinterpret_cast<const Lanes<E, GROUP>&>(words));
  }
  __device__ void store_stretch(
      const typename S::Args& args, const Row& row, typename S::Index begin, i32 count, int lane) const {
    if constexpr (joined && (in_whole_pieces(S::MODE) || S::MODE == PIECES_UNALIGNED))
      part.template store_pieces<in_whole_pieces(S::MODE)>(
          row.template output<I>(), begin, count, args.template output<I>().steps, lane);
    else if constexpr (joined) part.template store<S::MODE == WHOLE>(::at<E>(row.template output<I>(), begin), count, lane);
  }
  static __device__ void wait() {
    if constexpr (joined) Part::wait();
  }
};

// The last pass: makes the outputs that have an element for each of a row's.
template <typename S, typename Pass, typename Held, int... I>
__device__ inline void store_row(
    const typename S::Args& args, const ThreadRow<S>& row, const RowInputs<S>& inputs, bool columns_aligned,
    Held* held, const typename S::Program::Shared& shared, Seq<I...> indices) {
  using Index = typename S::Index;
  using Stretches = StretchesOf<S>;
  constexpr int CHUNKS = S::CHUNKS, THREADS = S::THREADS, MODE = S::MODE;
  constexpr int LANES = Stretches::LANES, SHARES = Stretches::SHARES;
  constexpr bool KEEP = S::KEEP, TOGETHER = Stretches::TOGETHER, JOINED = (Storer<S, Pass, I>::joined || ...);
  const Pass pass(shared);
  __shared__ alignas(16) Tuple<typename Storer<S, Pass, I>::Memory...> memory;
  Tuple<Storer<S, Pass, I>...> storers;
  (get<I>(storers).begin(get<I>(memory)), ...);
  const int lane = threadIdx.x % LANES;
  const int chunks = int((row.length + THREADS * GROUP - 1) / (THREADS * GROUP));
#pragma unroll KEEP ? CHUNKS : 1
  for (int chunk = 0; chunk < (KEEP ? CHUNKS : chunks); ++chunk) {
    const Index first = Index(chunk * THREADS + row.thread) * GROUP;
    const bool full =
        !in_whole_shares(MODE) && (KEEP ? chunk < S::FULL : Index((chunk + 1) * THREADS) * GROUP <= row.length);
    const bool mine = full ? row.live : chunk * (THREADS * GROUP) < row.left();
    if (JOINED ? !TOGETHER && THREADS >= 32 && first - lane * GROUP >= row.length : !mine) break;
    if (mine) {
      const auto shares =
          inputs.template chunk<Pass::READS>(args, row, chunk, first, full, columns_aligned, pass.takes_columns());
      Tuple<ValueGroup<typename S::Program, Pass, I>...> groups;
      bool usual = pass.fast();
      compute_chunk<S, Pass, true, false>(pass, shares, held, chunk, first, usual, groups, indices);
      (get<I>(storers).take(get<I>(groups).of), ...);
      if constexpr (Pass::CAREFUL)
        if (__builtin_expect(!usual, 0)) {
          compute_chunk<S, Pass, false, false>(pass, shares, held, chunk, first, usual, groups, indices);
          (get<I>(storers).take(get<I>(groups).of), ...);
        }
      (get<I>(storers).store(args, row, lane, chunk, first), ...);
    }
    if (JOINED && chunk % SHARES == SHARES - 1) {
      const Index begin = first - Index((SHARES - 1) * THREADS + lane) * GROUP;
      const i32 count = i32(max(Index(0), min(row.length - begin, Index(LANES * SHARES * GROUP))));
      (get<I>(storers).store_stretch(args, row, begin, count, lane), ...);
      if (!TOGETHER || chunk + 1 < CHUNKS) (Storer<S, Pass, I>::wait(), ...);
    }
  }
}

template <typename S, int... I>
__device__ inline void store_per_row(
    const ThreadRow<S>& row, const typename S::Program::Shared& shared, Seq<I...>) {
  (store_per_row<typename S::Program, I>(row.template output<I>(), shared), ...);
}

// All passes over a row, and what it has one of.
template <typename S, int... I>
__device__ inline void run_passes(
    const typename S::Args& args, const ThreadRow<S>& row, const RowInputs<S>& inputs, Seq<I...>) {
  using P = typename S::Program;
  using Last = type_at<typename P::Passes, S::LAST>;
  const bool columns_aligned = inputs.columns_aligned(row);
  typename P::Held held[S::HOLD ? S::CHUNKS * GROUP : 1];
  constexpr bool PICKS_ALONE = S::LAST == 0 && Last::Makes::size == 0;  // of rows of any length
  i64 length = row.length;
  if constexpr (PICKS_ALONE) length = row.live ? args.rows.length_of(row.position) : 0;
  typename P::Shared shared = shared_at_start<P>(args, row.position, typename P::C(length));
  const Picked<P> picked = read_picked<P>(args, shared, length, [&](auto n) { return row.template input<n>(); });
  ((take_picked<I, P>(picked, shared), type_at<typename P::Passes, I>::wanted(shared)
        ? reduce_pass<S, type_at<typename P::Passes, I>>(args, row, inputs, columns_aligned, held, shared)
        : void()),
   ...);
  take_picked<S::LAST, P>(picked, shared);
  if constexpr (!P::LONE_FINISH) P::finish(shared);
  if (row.thread == 0 && row.live) {
    if constexpr (P::LONE_FINISH) P::finish(shared);
    store_per_row(row, shared, make_seq<S::Operands::outputs>());
  }
  if constexpr (Last::Makes::size > 0)
    store_row<S, Last>(
        args, row, inputs, columns_aligned, held, shared, typename Last::Makes::Index());
}

// Rows, several to a block where they are short.
template <typename P, int THREADS, int CHUNKS, bool KEEP, int MODE>
__global__ void __launch_bounds__(
    RowSchedule<P, THREADS, CHUNKS, KEEP, MODE>::BLOCK, RowSchedule<P, THREADS, CHUNKS, KEEP, MODE>::blocks())
    row(const __grid_constant__ RowArgs<P> args) {
  using S = RowSchedule<P, THREADS, CHUNKS, KEEP, MODE>;
  const ThreadRow<S> at(args);
  RowInputs<S> inputs;
  wait_for_earlier();
  inputs.load(args, at);
  let_next_begin();
  run_passes<S>(args, at, inputs, make_seq<S::LAST>());
}
