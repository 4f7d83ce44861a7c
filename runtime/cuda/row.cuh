// The kernel of rows that threads of one block hold or read: passes over a row, each of which makes reductions, and a
// last one that makes the outputs. What passes compute is the program's.
#pragma once
#include "row_args.cuh"

constexpr int ROW_BLOCK = 128;        // threads of a block, at least: short rows share one
constexpr int NEAR_REGISTERS = 48;    // of a thread for its row and several columns: with more, columns are not held
constexpr int OTHER_REGISTERS = 24;   // of a thread beside its row, where spills begin ..
constexpr int VALUE_REGISTERS = 2;    // .. and for each value that a pass makes
constexpr int HELD_CHUNKS = 4;        // whose values a thread holds for each of its accumulators, at most
constexpr int REREAD_UNROLLED = 2;    // chunks that are under way together where rows are read again

// What a schedule of rows is for a program. THREADS hold a row, GROUP neighbours each, CHUNKS times. KEEP: all of it at
// once, so that it is read once; otherwise each pass reads it again. MODE: how its elements lie.
template <typename P, int THREADS_, int CHUNKS_, bool KEEP_, int MODE_> struct RowSchedule {
  using Program = P;
  using C = typename P::C;
  using Index = typename index<KEEP_>::type;
  using Operands = operands_of<P>;
  using Passes = typename P::Passes;
  static constexpr int THREADS = THREADS_, CHUNKS = CHUNKS_, MODE = MODE_;
  static constexpr bool KEEP = KEEP_;
  static constexpr int BLOCK = THREADS < ROW_BLOCK ? ROW_BLOCK : THREADS, ROWS = BLOCK / THREADS;  // rows of a block
  static constexpr int EACH = KEEP ? places_each(THREADS, CHUNKS) : 1;  // accumulators of a thread
  static constexpr int LAST = Passes::size - 1;
  // Chunks in which every row has an element for each thread: shorter rows have fewer threads.
  static constexpr int FULL = !P::BLOCKS && KEEP && THREADS * EACH > FEWEST ? CHUNKS / 2 : 0;
  // Columns are read with the row, where registers allow: few rows would wait for them.
  static constexpr bool WANTED =
      KEEP && Operands::columns > 0 &&
      read_early(THREADS, CHUNKS, Operands::columns, Operands::column_bits, MODE == WHOLE);
  // Several columns beside what is held leave too few rows under way. They are brought near instead, if rows are few.
  static constexpr bool NEAR = WANTED && Operands::columns > 1 && MODE == WHOLE &&
      CHUNKS * GROUP * (Operands::column_bits + P::LIVE_BITS) / 32 > NEAR_REGISTERS;
  static constexpr bool EARLY = WANTED && !NEAR;
  // Whether to ask for later rows: where computing takes its time, or as much is written as read; else reading alone
  // keeps memory busy.
  static constexpr bool LATER = Operands::result_bits > 0 && !P::BLOCKS && KEEP &&
      (MODE == WHOLE || (MODE == UNIT && THREADS >= 32)) &&
      (P::COSTLY > 0 || Operands::result_bits >= Operands::array_bits);
  // Whether columns are loaded where they are used, each share at once.
  static constexpr bool APART = KEEP && MODE == UNIT && !EARLY;
  // Whether values that several passes use are held from one pass to the next.
  static constexpr bool HOLD = KEEP && CHUNKS <= HELD_CHUNKS * EACH;
  static constexpr int UNROLLED = KEEP ? CHUNKS : MODE == UNIT || sizeof(C) > 4 ? 1 : REREAD_UNROLLED;

  // The most values that a pass makes, outputs that a pass before the last one stores aside.
  template <typename... Make> static __device__ constexpr int values_of(List<Make...>, bool last) {
    return ((last || Make::reduces ? 1 : 0) + ... + 0);
  }
  template <typename... Pass> static __device__ constexpr int most_values(List<Pass...>) {
    int most = 0, pass = 0;
    ((most = larger(most, values_of(typename Pass::Makes(), pass++ == LAST))), ...);
    return most;
  }
  // Blocks that a multiprocessor is to have room for.
  static __device__ constexpr int blocks() {
    if (!KEEP || MODE == STEPPED) return 1;
    if (MODE == WHOLE)
      return blocks_of(THREADS, CHUNKS, P::LIVE_BITS, OTHER_REGISTERS + VALUE_REGISTERS * most_values(Passes()));
    return blocks_unaligned(
        BLOCK, CHUNKS, Operands::arrays, Operands::array_bits, P::COSTLY * storage<C>::bits, Operands::columns,
        Operands::column_bits);
  }

  // Whether a pass before the last one stores an output: where a thread's own share is what a store wants.
  template <typename... Make> static __device__ constexpr bool makes(int output, List<Make...>) {
    return ((Make::output == output) || ... || false);
  }
  template <typename... Pass> static __device__ constexpr bool known_early(int output, List<Pass...>) {
    int pass = 0;
    return ((pass++ < LAST && makes(output, typename Pass::Makes())) || ... || false);
  }
  template <int I> static constexpr bool stored_early =
      KEEP && MODE == WHOLE && sizeof(Lanes<element_out<P, I>, GROUP>) <= 16 && known_early(I, Passes());
};

// Where a row begins in each input with elements, and in each output.
template <typename P, typename N, typename I> struct RowStartsOf;
template <typename P, int... N, int... I> struct RowStartsOf<P, Seq<N...>, Seq<I...>> {
  static constexpr int inputs = sizeof...(N);
  Tuple<const storage_t<element_in<P, N>>*..., storage_t<element_out<P, I>>*...> at;

  // Finds where the row begins, and returns its length.
  template <typename Row> __device__ i64 set(const RowArgs<P>& args, const Row& row) {
    i64 length;
    i64 from[inputs + sizeof...(I)];
    if (__builtin_expect(row.plain, 1)) {
      length = args.rows.length;
      ((from[N] = row.plain_offset(args.template elements<N>().strides)), ...);
      ((from[inputs + I] = row.plain_offset(args.template output<I>().strides)), ...);
    } else {
      length = args.rows.length_of(row.place);
      ((from[N] = args.rows.offset(row.place, args.template elements<N>().strides)), ...);
      ((from[inputs + I] = args.rows.offset(row.place, args.template output<I>().strides)), ...);
    }
    ((get<N>(at) = ::at<element_in<P, N>>(args.template elements<N>().array, from[N])), ...);
    ((get<inputs + I>(at) = ::at<element_out<P, I>>(args.template output<I>().array, from[inputs + I])), ...);
    return length;
  }
};
template <typename P>
using RowStarts = RowStartsOf<P, make_seq<operands_of<P>::elements>, make_seq<operands_of<P>::outputs>>;

// The row of a thread.
template <typename S> struct ThreadRow {
  using P = typename S::Program;
  using Index = typename S::Index;
  static constexpr int ROWS = S::ROWS, THREADS = S::THREADS;
  i64 before;             // rows before this block's
  u32 last, wanted, own;  // of the block's rows: the last one, the thread's, and one that exists
  bool live;              // threads of no row take part in reductions
  bool plain;             // asked once for all
  RowSpace::Place place;
  int thread;             // of those that have the row
  Index length;
  RowStarts<P> starts;

  __device__ explicit ThreadRow(const RowArgs<P>& args)
      : before(i64(blockIdx.x) * ROWS),
        last(ROWS > 1 ? u32(min(args.rows.rows - before, i64(ROWS))) - 1 : 0),
        wanted(u32(threadIdx.x) / THREADS),
        own(ROWS > 1 ? min(wanted, last) : 0),
        live(ROWS == 1 || wanted <= last),
        plain(args.rows.plain()),
        place(plain ? RowSpace::Place{before + own, false, 0, 0} : args.rows.place(before + own)),
        thread(ROWS > 1 ? threadIdx.x % THREADS : threadIdx.x) {
    const Index elements = Index(starts.set(args, *this));
    length = live ? elements : 0;
  }
  __device__ i64 plain_offset(const Strides& strides) const {
    return before * strides.of[AXES - 1] + own * strides.of[AXES - 1];
  }
  __device__ Index left() const { return length - thread * GROUP; }  // elements from this thread's first on
  template <int N> __device__ auto input() const { return get<N>(starts.at); }
  template <int I> __device__ auto output() const { return get<RowStarts<P>::inputs + I>(starts.at); }
};

// What a thread has in registers of an input with elements: its shares of a row, on their way from `load` to `arrive`.
template <typename S, int N> struct ArrayShares {
  using E = element_in<typename S::Program, N>;
  using Args = RowArgs<typename S::Program>;
  using Row = ThreadRow<S>;
  Own<S::MODE, E, S::THREADS, S::KEEP ? S::CHUNKS : 1> own;

  __device__ void load(const Args& args, const Row& row) {
    if constexpr (S::KEEP) {
      const auto& input = args.template elements<N>();
      own.load(row.template input<N>(), row.thread, row.length, input.steps, input.array, input.span);
    }
  }
  __device__ void load_late(const Args&, const Row&) {}
  __device__ void bring_near(const Row&) const {}
  __device__ void end(const Row&) {}
  __device__ void arrive(const Row& row) {
    if constexpr (S::KEEP) own.arrive(row.template input<N>(), row.thread, row.length);
  }
  // Asks for a later row, where rows of a block are neighbours.
  __device__ void ask_for(const Args& args, const Row& row, i64 later) const {
    const i64 apart = args.template elements<N>().strides.of[AXES - 1];
    if (S::ROWS == 1 || apart == args.rows.length)
      ::ask_for<E>(::at<E>(row.template input<N>(), later * apart), S::ROWS * args.rows.length);
  }
  __device__ bool aligned(const Row&) const { return true; }
  template <bool READ> __device__ void words(const Args&, const Row&, i32, bool, bool, ShareWords<E>&) const {}
  __device__ Lanes<E, GROUP> share(
      const Args& args, const Row& row, int chunk, typename S::Index first, const ShareWords<E>&) const {
    if constexpr (S::KEEP) {
      return own.lanes[chunk];
    } else {
      const auto& input = args.template elements<N>();
      return ::share<S::MODE, E>(
          row.template input<N>(), first, row.length, input.steps, input.array, input.span);
    }
  }
};

// The same of a column.
template <typename S, int N> struct ColumnShares {
  using E = element_in<typename S::Program, N>;
  using Args = RowArgs<typename S::Program>;
  using Row = ThreadRow<S>;
  static constexpr bool AT_END = S::KEEP && S::MODE == UNIT;
  Shared<S::MODE, E, S::THREADS, S::EARLY ? S::CHUNKS : 1, S::EARLY ? S::FULL : 0> own;

  __device__ void load_now(const Args& args, const Row& row) {
    const auto& input = args.template elements<N>();
    own.load(row.template input<N>(), row.thread, row.length, input.steps, input.array, input.span);
  }
  __device__ void load(const Args& args, const Row& row) {
    if constexpr (S::EARLY && S::MODE != UNIT) load_now(args, row);
  }
  __device__ void load_late(const Args& args, const Row& row) {  // for registers
    if constexpr (S::EARLY && S::MODE == UNIT) load_now(args, row);
  }
  __device__ void bring_near(const Row& row) const {
    ::bring_near<E, S::THREADS, S::CHUNKS>(row.template input<N>(), row.thread, row.length);
  }
  __device__ void end(const Row& row) {
    if constexpr (AT_END) {
      __shared__ alignas(16) Lanes<E, GROUP> ends[S::ROWS];
      own.end(row.template input<N>(), row.thread, row.length, ends + (S::ROWS > 1 ? threadIdx.x / S::THREADS : 0));
    }
  }
  __device__ void arrive(const Row& row) {
    if constexpr (S::EARLY || AT_END) own.arrive(row.template input<N>(), row.thread, row.length);
  }
  __device__ void ask_for(const Args&, const Row&, i64) const {}
  __device__ bool aligned(const Row& row) const { return starts_aligned<E>(row.template input<N>()); }
  // The words of a share where columns are loaded where they are used. whole: it is not the one at the row's end.
  template <bool READ>
  __device__ void words(
      const Args& args, const Row& row, i32 first, bool whole, bool aligned, ShareWords<E>& to) const {
    if constexpr (READ) {
      const auto& input = args.template elements<N>();
      if (aligned) to = own.at_once(row.template input<N>(), first, whole);
      else to = share_apart<E>(row.template input<N>(), first, row.length, input.array, input.span);
    }
  }
  __device__ Lanes<E, GROUP> share(
      const Args& args, const Row& row, int chunk, typename S::Index first, const ShareWords<E>& words) const {
    if constexpr (S::EARLY) {
      return own.lanes[chunk];
    } else if constexpr (S::APART) {
      return reinterpret_cast<const Lanes<E, GROUP>&>(words);
    } else {
      const auto& input = args.template elements<N>();
      return ::share<S::MODE, E>(
          row.template input<N>(), first, row.length, input.steps, input.array, input.span);
    }
  }
};

// All inputs with elements.
template <bool COLUMN, typename S, int N> struct SharesOfInput { using type = ArrayShares<S, N>; };
template <typename S, int N> struct SharesOfInput<true, S, N> { using type = ColumnShares<S, N>; };
template <typename S, typename N> struct RowInputsOf;
template <typename S, int... N> struct RowInputsOf<S, Seq<N...>> {
  using P = typename S::Program;
  using Row = ThreadRow<S>;
  using Chunk = Tuple<Lanes<element_in<P, N>, GROUP>...>;  // a thread's shares of one chunk
  Tuple<typename SharesOfInput<(N >= S::Operands::arrays), S, N>::type...> of;

  // All loads are under way before the first is used.
  __device__ void load(const RowArgs<P>& args, const Row& row) {
    (get<N>(of).load(args, row), ...);
    if (S::LATER && row.plain && threadIdx.x == 0) {
      const i64 later = rows_ahead(AHEAD, args.rows.length * S::ROWS * S::Operands::array_bits / 8) * S::ROWS;
      if (later + S::ROWS <= args.rows.rows - row.before) (get<N>(of).ask_for(args, row, later), ...);
    }
    if (S::NEAR && args.rows.rows <= FEW_ROWS) (get<N>(of).bring_near(row), ...);
    (get<N>(of).end(row), ...);
    (get<N>(of).arrive(row), ...);
    (get<N>(of).load_late(args, row), ...);
  }
  __device__ bool columns_aligned(const Row& row) const { return (get<N>(of).aligned(row) && ... && true); }

  // Shares of one chunk, of the inputs that a pass reads. full: the row has all elements of the chunk.
  template <u32 READS>
  __device__ Chunk chunk(
      const RowArgs<P>& args, const Row& row, int chunk, typename S::Index first, bool full,
      bool columns_aligned) const {
    Tuple<ShareWords<element_in<P, N>>...> words;
    if constexpr (S::APART && READS >> S::Operands::arrays != 0) {
      if (__builtin_expect(columns_aligned, 1)) {
        const bool whole = full || first + GROUP <= row.length;
        (get<N>(of).template words<(READS >> N & 1) != 0>(args, row, first, whole, true, get<N>(words)), ...);
      } else {
        (get<N>(of).template words<(READS >> N & 1) != 0>(args, row, first, true, false, get<N>(words)), ...);
      }
    }
    Chunk shares;
    (((READS >> N & 1) != 0 ? void(get<N>(shares) = get<N>(of).share(args, row, chunk, first, get<N>(words))) : void()),
     ...);
    return shares;
  }
};
template <typename S> using RowInputs = RowInputsOf<S, make_seq<S::Operands::elements>>;

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
    const auto values = pass.template of<FAST, KNOWN>(element_in_lane<P, Pass::READS>(shares, lane), own, usual);
    if constexpr (S::HOLD && Pass::HELD_FRESH != 0 && !AGAIN) held[chunk * GROUP + lane] = own;
    (get<I>(groups).set(lane, get<I>(values), first), ...);
  }
}

// A reduction of a pass, as a thread has it of a segment.
struct NoPairs {
  static constexpr bool can = false;
};
template <typename P, typename R, bool RAW> struct PairsOf { using type = NoPairs; };
template <typename P, typename R> struct PairsOf<P, R, true> {
  using type = Packed<typename R::How, element_in<P, R::raw>>;
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
  struct alignas(16) Scratch { V of[TURNS][S::THREADS > 32 ? S::ROWS * S::THREADS / 32 * S::EACH : 1]; };
  Partial<How, V, S::THREADS, S::EACH> partial;
  Pairs pairs;  // of elements of 16 bits that are reduced as they stand: two at once

  static __device__ void begin(Shared& shared) {
    if constexpr (asks) shared.*Make::finite = true;
  }
  // A group; of the last one of a row, as many elements as the row has. UNASKED: whether values are finite is asked
  // later.
  template <bool UNASKED>
  __device__ void add(
      const RowArgs<typename S::Program>&, const Row& row, const typename RowInputs<S>::Chunk& shares, V (&group)[GROUP],
      int chunk, typename S::Index first, bool whole) {
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
      if (S::MODE != WHOLE && !full) cut<How>(group, i32(row.length - first));
      partial.add(group, chunk);
    }
  }
  // Ends with what pairs found, or where they do not tell, with what elements are.
  __device__ void unpack(const RowInputs<S>& inputs, const Row& row) {
    if constexpr (packs) {
      if (__builtin_expect(pairs.known(), 1)) {
        partial.place = pairs.value();
      } else {
        partial.template add_all<S::MODE != WHOLE>(get<Make::raw>(inputs.of).own.lanes, row.thread, row.length);
      }
    }
  }
  // Adds the value of the whole segment.
  __device__ void end(
      const RowInputs<S>& inputs, const Row& row, Shared& shared, Scratch& scratch, int turn, Total& total) const {
    if constexpr (asks) shared.*Make::finite &= partial.finite;
    if constexpr (S::KEEP && Make::raw >= 0 && !same<V, typename Make::Value>) {
      if constexpr (sought<How, element_in<typename S::Program, Make::raw>>) {
        total.add(seek<How, S::THREADS, S::MODE != WHOLE>(
            get<Make::raw>(inputs.of).own.lanes, row.thread, row.length, scratch.of[0]));
        return;
      }
    }
    total.add(partial.total(scratch.of[turn % TURNS]));
  }
  static __device__ void set(const Row& row, const Total& total, Shared& shared) {
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
      const RowArgs<typename S::Program>& args, const Row& row, const typename RowInputs<S>::Chunk&, V (&group)[GROUP],
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
    const RowArgs<typename S::Program>& args, const ThreadRow<S>& row, const RowInputs<S>& inputs, bool columns_aligned,
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
          MODE != WHOLE && (KEEP ? chunk < S::FULL : start + Index((chunk + 1) * THREADS) * GROUP <= row.length);
      if (!full && start + chunk * (THREADS * GROUP) >= row.left()) break;
      const Index first = start + Index(chunk * THREADS + row.thread) * GROUP;
      const auto shares = inputs.template chunk<Pass::READS>(args, row, chunk, first, full, columns_aligned);
      Tuple<ValueGroup<typename S::Program, Pass, I>...> groups;
      bool usual = pass.fast();
      compute_chunk<S, Pass, true, false>(pass, shares, held, chunk, first, usual, groups, indices);
      if constexpr (Pass::CAREFUL)
        if (__builtin_expect(!usual, 0))
          compute_chunk<S, Pass, false, false>(pass, shares, held, chunk, first, usual, groups, indices);
      (get<I>(reducers).template add<UNASKED>(
           args, row, shares, get<I>(groups).of, chunk, first, MODE == WHOLE || full),
       ...);
    }
    if constexpr (UNASKED)
      if (__builtin_expect(!(get<I>(reducers).sure() & ...), 0)) {
        (get<I>(reducers).begin_again(), ...);
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
          const bool full = MODE != WHOLE && chunk < S::FULL;
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

// How an output goes to memory. Where a thread's shares are not words beside its neighbours', a row's threads write
// stretches of it together, as long as shared memory allows; those of rows that are read again, warps by themselves.
template <typename S> struct StretchesOf {
  static constexpr bool TOGETHER = S::KEEP && S::MODE == UNIT;
  static constexpr int LANES = TOGETHER || S::THREADS < 32 ? S::THREADS : 32, BITS = S::Operands::result_bits;
  static constexpr int SHARES = S::THREADS < 32 ? S::CHUNKS : TOGETHER ? shares_of(S::CHUNKS, S::BLOCK, BITS) : 1;
};
template <typename S, typename Pass, int N> struct Storer : StretchesOf<S> {
  using Base = StretchesOf<S>;
  using Row = ThreadRow<S>;
  static constexpr int I = type_at<typename Pass::Makes, N>::output;
  using E = element_out<typename S::Program, I>;
  using Part = Stretch<E, Base::LANES, Base::SHARES>;
  static constexpr bool joined = Part::wanted(S::MODE) && S::BLOCK * Base::SHARES * Base::BITS <= STRETCHES;
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
      const RowArgs<typename S::Program>& args, const Row& row, int lane, int chunk, typename S::Index first) const {
    if constexpr (joined)
      part.put(lane, chunk % Base::SHARES, words, i32(min(row.length - first, typename S::Index(GROUP))));
    else if constexpr (!S::template stored_early<I>)
      ::keep<S::MODE, E>(
          row.template output<I>(), first, row.length, args.template output<I>().steps,
          reinterpret_cast<const Lanes<E, GROUP>&>(words));
  }
  __device__ void store_stretch(const Row& row, typename S::Index begin, i32 count, int lane) const {
    if constexpr (joined) part.template store<S::MODE == WHOLE>(::at<E>(row.template output<I>(), begin), count, lane);
  }
  static __device__ void wait() {
    if constexpr (joined) Part::wait();
  }
};

// The last pass: makes the outputs that have an element for each of a row's.
template <typename S, typename Pass, typename Held, int... I>
__device__ inline void store_row(
    const RowArgs<typename S::Program>& args, const ThreadRow<S>& row, const RowInputs<S>& inputs, bool columns_aligned,
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
    const bool full = MODE != WHOLE && (KEEP ? chunk < S::FULL : Index((chunk + 1) * THREADS) * GROUP <= row.length);
    const bool mine = full ? row.live : chunk * (THREADS * GROUP) < row.left();
    if (JOINED ? !TOGETHER && SHARES == 1 && first - lane * GROUP >= row.length : !mine) break;
    if (mine) {
      const auto shares = inputs.template chunk<Pass::READS>(args, row, chunk, first, full, columns_aligned);
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
      (get<I>(storers).store_stretch(row, begin, count, lane), ...);
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
    const RowArgs<typename S::Program>& args, const ThreadRow<S>& row, const RowInputs<S>& inputs, Seq<I...>) {
  using P = typename S::Program;
  using Last = type_at<typename P::Passes, S::LAST>;
  const bool columns_aligned = inputs.columns_aligned(row);
  typename P::Held held[S::HOLD ? S::CHUNKS * GROUP : 1];
  typename P::Shared shared = shared_at_start<P>(args, row.place, typename P::C(row.length));
  (reduce_row<S, type_at<typename P::Passes, I>>(
       args, row, inputs, columns_aligned, held, shared, typename type_at<typename P::Passes, I>::Makes::Index()),
   ...);
  P::finish(shared);
  if (row.thread == 0 && row.live) store_per_row(row, shared, make_seq<S::Operands::outputs>());
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
  inputs.load(args, at);
  run_passes<S>(args, at, inputs, make_seq<S::LAST>());
}
