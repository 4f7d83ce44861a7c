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
  static constexpr int inputs = sizeof...(N), all = inputs + int(sizeof...(I));
  Tuple<const storage_t<element_in<P, N>>*..., storage_t<element_out<P, I>>*...> of;

  __device__ void set(const RowArgs<P>& args, const i64 (&starts)[all]) {
    ((get<N>(of) = ::at<element_in<P, N>>(args.template elements<N>().array, starts[N])), ...);
    ((get<inputs + I>(of) = ::at<element_out<P, I>>(args.template output<I>().array, starts[inputs + I])), ...);
  }
  template <int J> __device__ auto input() const { return get<J>(of); }
  template <int J> __device__ auto output() const { return get<inputs + J>(of); }
};
template <typename P>
using RowStarts = RowStartsOf<P, make_seq<operands_of<P>::elements>, make_seq<operands_of<P>::outputs>>;

// The row of a thread.
template <typename S> struct ThreadRow {
  using P = typename S::Program;
  using Index = typename S::Index;
  using Starts = RowStarts<P>;
  static constexpr int ROWS = S::ROWS, THREADS = S::THREADS;
  i64 before;             // rows before this block's
  u32 last, wanted, own;  // of the block's rows: the last one, the thread's, and one that exists
  bool live;              // threads of no row take part in reductions
  bool plain;             // asked once for all
  RowSpace::Place place;  // of a row that exists
  int thread;             // of those that have the row
  Index length;
  Starts starts;

  __device__ explicit ThreadRow(const RowArgs<P>& args)
      : before(i64(blockIdx.x) * ROWS),
        last(ROWS > 1 ? u32(min(args.rows.rows - before, i64(ROWS))) - 1 : 0),
        wanted(u32(threadIdx.x) / THREADS),
        own(ROWS > 1 ? min(wanted, last) : 0),
        live(ROWS == 1 || wanted <= last),
        plain(args.rows.plain()),
        place(plain ? RowSpace::Place{before + own, false, 0, 0} : args.rows.place(before + own)),
        thread(ROWS > 1 ? threadIdx.x % THREADS : threadIdx.x) {
    const RowSpace& rows = args.rows;
    Index elements;
    i64 start[Starts::all];
    if (__builtin_expect(plain, 1)) {
      elements = Index(rows.length);
      each_strides(args, [&](int i, const Strides& strides) {
        start[i] = before * strides.of[AXES - 1] + own * strides.of[AXES - 1];
      });
    } else {
      elements = Index(rows.length_of(place));
      each_strides(args, [&](int i, const Strides& strides) { start[i] = rows.offset(place, strides); });
    }
    length = live ? elements : 0;
    starts.set(args, start);
  }
  __device__ Index left() const { return length - thread * GROUP; }  // elements from this thread's first on

 private:
  template <typename F> __device__ static void each_strides(const RowArgs<P>& args, const F& function) {
    each<Starts::inputs>([&](auto n) { function(n, args.template elements<n>().strides); });
    each<Starts::all - Starts::inputs>([&](auto i) { function(Starts::inputs + i, args.template output<i>().strides); });
  }
};

// What a thread has of a row in registers: its shares of an input, on their way from memory from `load` to `arrive`.
template <typename S, int N, bool COLUMN> struct HoldingOf {
  using type = Own<S::MODE, element_in<typename S::Program, N>, S::THREADS, S::KEEP ? S::CHUNKS : 1>;
};
template <typename S, int N> struct HoldingOf<S, N, true> {
  using type = Shared<
      S::MODE, element_in<typename S::Program, N>, S::THREADS, S::EARLY ? S::CHUNKS : 1, S::EARLY ? S::FULL : 0>;
};
template <typename S, typename N> struct HoldingsOf;
template <typename S, int... N> struct HoldingsOf<S, Seq<N...>> {
  using Program = typename S::Program;
  using Shares = Tuple<Lanes<element_in<Program, N>, GROUP>...>;  // of one chunk
  using Words = Tuple<ShareWords<element_in<Program, N>>...>;
  using type = Tuple<typename HoldingOf<S, N, (N >= S::Operands::arrays)>::type...>;
};
template <typename S> using AllElements = make_seq<S::Operands::elements>;
template <typename S> using Holdings = typename HoldingsOf<S, AllElements<S>>::type;
template <typename S> using ChunkShares = typename HoldingsOf<S, AllElements<S>>::Shares;
template <typename S> using ChunkWords = typename HoldingsOf<S, AllElements<S>>::Words;

// Asks for a later row's elements.
template <typename S>
__device__ inline void ask_for_later(const RowArgs<typename S::Program>& args, const ThreadRow<S>& row) {
  const RowSpace& rows = args.rows;
  const i64 later = rows_ahead(AHEAD, rows.length * S::ROWS * S::Operands::array_bits / 8) * S::ROWS;
  if (later + S::ROWS <= rows.rows - row.before) {
    each<S::Operands::arrays>([&](auto n) {
      using E = element_in<typename S::Program, n>;
      const i64 apart = args.template elements<n>().strides.of[AXES - 1];
      if (S::ROWS == 1 || apart == rows.length)
        ask_for<E>(::at<E>(row.starts.template input<n>(), later * apart), S::ROWS * rows.length);
    });
  }
}

// Loads a row, and columns where they are read with it. All loads are under way before the first is used.
template <typename S>
__device__ inline void load_row(const RowArgs<typename S::Program>& args, const ThreadRow<S>& row, Holdings<S>& own) {
  using P = typename S::Program;
  constexpr bool KEEP = S::KEEP, EARLY = S::EARLY, AT_END = S::KEEP && S::MODE == UNIT;
  constexpr int ARRAYS = S::Operands::arrays, COLUMNS = S::Operands::columns;
  auto load = [&](auto n) {
    const auto& input = args.template elements<n>();
    get<n>(own).load(
        row.starts.template input<n>(), row.thread, row.length, input.steps, input.array, input.span);
  };
  auto each_column = [](const auto& function) {
    each<COLUMNS>([&](auto i) { function(Constant<ARRAYS + i>()); });
  };
  if constexpr (KEEP) each<ARRAYS>(load);
  if constexpr (EARLY && S::MODE != UNIT) each_column(load);
  if (S::LATER && row.plain && threadIdx.x == 0) ask_for_later<S>(args, row);
  if (S::NEAR && args.rows.rows <= FEW_ROWS)
    each_column([&](auto n) {
      bring_near<element_in<P, n>, S::THREADS, S::CHUNKS>(row.starts.template input<n>(), row.thread, row.length);
    });
  if constexpr (AT_END)
    each_column([&](auto n) {
      __shared__ alignas(16) Lanes<element_in<P, n>, GROUP> ends[S::ROWS];
      get<n>(own).end(
          row.starts.template input<n>(), row.thread, row.length, ends + (S::ROWS > 1 ? threadIdx.x / S::THREADS : 0));
    });
  auto arrive = [&](auto n) { get<n>(own).arrive(row.starts.template input<n>(), row.thread, row.length); };
  if constexpr (KEEP) each<ARRAYS>(arrive);
  if constexpr (EARLY || AT_END) each_column(arrive);
  if constexpr (EARLY && S::MODE == UNIT) each_column(load);  // late, for registers
}

// A thread's shares of one chunk, of the inputs that a pass reads. full: the row has all elements of the chunk.
template <typename S, typename Pass>
__device__ inline ChunkShares<S> shares_of_chunk(
    const RowArgs<typename S::Program>& args, const ThreadRow<S>& row, const Holdings<S>& own, int chunk,
    typename S::Index first, bool full, bool columns_aligned) {
  using P = typename S::Program;
  constexpr int ARRAYS = S::Operands::arrays, ELEMENTS = S::Operands::elements;
  constexpr bool APART = S::KEEP && S::MODE == UNIT && !S::EARLY;  // columns are loaded here, each share at once
  ChunkWords<S> words;
  auto each_column = [](const auto& function) {
    each<ELEMENTS - ARRAYS>([&](auto i) {
      constexpr int N = ARRAYS + i;
      if constexpr ((Pass::READS >> N & 1) != 0) function(Constant<N>());
    });
  };
  if constexpr (APART && Pass::READS >> ARRAYS != 0) {
    if (__builtin_expect(columns_aligned, 1)) {
      const bool whole = full || first + GROUP <= row.length;
      each_column([&](auto n) {
        get<n>(words) = get<n>(own).at_once(row.starts.template input<n>(), first, whole);
      });
    } else {
      each_column([&](auto n) {
        const auto& input = args.template elements<n>();
        get<n>(words) = share_apart<element_in<P, n>>(
            row.starts.template input<n>(), first, row.length, input.array, input.span);
      });
    }
  }
  ChunkShares<S> shares;
  each<ELEMENTS>([&](auto n) {
    constexpr bool COLUMN = n >= ARRAYS;
    using E = element_in<P, n>;
    if constexpr ((Pass::READS >> n & 1) != 0) {
      if constexpr (COLUMN ? S::EARLY : S::KEEP) {
        get<n>(shares) = get<n>(own).lanes[chunk];
      } else if constexpr (COLUMN && APART) {
        get<n>(shares) = reinterpret_cast<const Lanes<E, GROUP>&>(get<n>(words));
      } else {
        const auto& input = args.template elements<n>();
        get<n>(shares) = ::share<S::MODE, E>(
            row.starts.template input<n>(), first, row.length, input.steps, input.array, input.span);
      }
    }
  });
  return shares;
}

// What a pass makes of the elements of a chunk: for each value of its Makes, of each element of a thread's share.
template <typename V> struct ValuesOf;
template <typename... V> struct ValuesOf<Tuple<V...>> { using type = List<V...>; };
template <typename P, typename Pass>
using values_of = typename ValuesOf<decltype(static_cast<const Pass*>(nullptr)->template of<true, 0>(
    *static_cast<const typename P::Element*>(nullptr), *static_cast<typename P::Held*>(nullptr),
    *static_cast<bool*>(nullptr)))>::type;
template <bool REDUCES, typename P, typename V, typename Make> struct InGroup {
  using type = state_t<typename Make::How, V>;
};
template <typename P, typename V, typename Make> struct InGroup<false, P, V, Make> { using type = V; };
template <typename P, typename Make> struct InGroup<false, P, i64, Make> {
  using type = code_t<element_out<P, Make::output>>;
};
template <typename V> struct ValueGroup { V of[GROUP]; };
template <typename P, typename Pass, typename I> struct ValuesInGroups;
template <typename P, typename Pass, int... I> struct ValuesInGroups<P, Pass, Seq<I...>> {
  template <int J> using Make = type_at<typename Pass::Makes, J>;
  using type = Tuple<ValueGroup<
      typename InGroup<Make<I>::reduces, P, type_at<values_of<P, Pass>, I>, Make<I>>::type>...>;
};
template <typename P, typename Pass> using ChunkValues = typename ValuesInGroups<P, Pass, typename Pass::Makes::Index>::type;

// What a group has of one value of an element.
template <typename P, typename Make, typename V, typename Index>
__device__ inline auto in_group(V value, Index element) {
  if constexpr (Make::reduces) return state_of<typename Make::How>(value, element);
  else return typename InGroup<false, P, V, Make>::type(value);
}

// Computes the groups of a chunk. AGAIN: once more, where the values that several passes use are known.
template <typename S, typename Pass, int FAST, bool AGAIN, typename Held, int... I>
__device__ inline void compute_groups(
    const Pass& pass, const ChunkShares<S>& shares, Held* held, int chunk, typename S::Index first, bool& usual,
    ChunkValues<typename S::Program, Pass>& groups, Seq<I...>) {
  using P = typename S::Program;
  constexpr int KNOWN = !S::HOLD ? 0 : AGAIN ? 2 : 1;
  constexpr bool KNOWS = Pass::HELD_TAKEN != 0 || AGAIN;
#pragma unroll
  for (int lane = 0; lane < GROUP; ++lane) {
    Held own;
    if constexpr (S::HOLD && KNOWS) own = held[chunk * GROUP + lane];
    const auto values = pass.template of<FAST, KNOWN>(element_in_lane<P, Pass::READS>(shares, lane), own, usual);
    if constexpr (S::HOLD && Pass::HELD_FRESH != 0 && !AGAIN) held[chunk * GROUP + lane] = own;
    ((get<I>(groups).of[lane] = in_group<P, type_at<typename Pass::Makes, I>>(get<I>(values), first + lane)), ...);
  }
}

// A reduction of a pass, as a thread has it of a segment. Elements of 16 bits that are reduced as they stand are
// reduced two at once.
struct Nothing {
  static constexpr bool can = false;
};
template <typename P, typename R, bool RAW> struct PackedFor { using type = Nothing; };
template <typename P, typename R> struct PackedFor<P, R, true> {
  using type = Packed<typename R::How, element_in<P, R::raw>>;
};
template <typename S, typename R> struct Reducer {
  using How = typename R::How;
  using V = state_t<How, typename R::Value>;
  using Pairs = typename PackedFor<typename S::Program, R, (R::raw >= 0)>::type;
  static constexpr bool pairs_can = Pairs::can, packs = S::KEEP && pairs_can;
  static constexpr bool asks = !same<const decltype(nullptr), decltype(R::finite)>;  // whether values are finite
  static constexpr int TURNS = S::KEEP ? 1 : 2;  // scratch of one segment is read while the next one's is written
  using Scratch = V[TURNS][S::THREADS > 32 ? S::ROWS * S::THREADS / 32 * S::EACH : 1];
  Partial<How, V, S::THREADS, S::EACH> partial;
  Pairs pairs;

  // A group, or its first `count` elements. UNASKED: whether values are finite is asked later.
  template <bool UNASKED> __device__ void add(const ChunkShares<S>& shares, V (&group)[GROUP], int chunk, bool whole, i32 count) {
    constexpr bool ASKED = !(asks && UNASKED);
    if constexpr (packs) {
      if (whole) pairs.add(get<R::raw>(shares));
      else pairs.add(get<R::raw>(shares), count);
    } else {
      if (whole) partial.template add<ASKED>(group, chunk);
      else partial.template add<ASKED>(group, chunk, count);
    }
  }
  __device__ bool sure() const { return pairs_can || partial.sure(); }
  // Ends with the extremes of pairs, or where these do not tell, with those of elements.
  __device__ void unpack(const Holdings<S>& own, const ThreadRow<S>& row) {
    if constexpr (packs) {
      if (__builtin_expect(pairs.known(), 1)) {
        partial.place = pairs.value();
      } else {
        partial.template add_all<S::MODE != WHOLE>(get<R::raw>(own).lanes, row.thread, row.length);
      }
    }
  }
  // The value of the whole segment, in every thread of the row.
  __device__ V total(const Holdings<S>& own, const ThreadRow<S>& row, Scratch& scratch, int turn) const {
    if constexpr (S::KEEP && R::raw >= 0 && !same<V, typename R::Value>) {
      if constexpr (sought<How, element_in<typename S::Program, R::raw>>)
        return seek<How, S::THREADS, S::MODE != WHOLE>(get<R::raw>(own).lanes, row.thread, row.length, scratch[0]);
    }
    return partial.total(scratch[turn % TURNS]);
  }
};

// What a pass has of each of its reductions; nothing of what it stores.
template <bool REDUCES, typename S, typename Make> struct OfReduction {
  using Reducing = Reducer<S, Make>;
  using Summing = Segments<typename Make::How, typename Reducing::V, !S::KEEP>;
  struct alignas(16) Scratch { typename Reducing::Scratch of; };
  static constexpr bool asks = Reducing::asks;
};
template <typename S, typename Make> struct OfReduction<false, S, Make> {
  using Reducing = Nothing;
  using Summing = Nothing;
  using Scratch = Nothing;
  static constexpr bool asks = false;
};
template <typename S, typename Makes> struct OfReductions;
template <typename S, typename... Make> struct OfReductions<S, List<Make...>> {
  using Reducing = Tuple<typename OfReduction<Make::reduces, S, Make>::Reducing...>;
  using Summing = Tuple<typename OfReduction<Make::reduces, S, Make>::Summing...>;
  using Scratch = Tuple<typename OfReduction<Make::reduces, S, Make>::Scratch...>;
  static constexpr bool asks = (OfReduction<Make::reduces, S, Make>::asks || ... || false);
};
// Calls a function with the index of each reduction of a pass.
template <typename Pass, typename F> __device__ inline void each_reduction(const F& function) {
  each<Pass::Makes::size>([&](auto i) {
    if constexpr (type_at<typename Pass::Makes, i>::reduces) function(i);
  });
}

// Makes the reductions of one segment that ask whether values are finite again, where some are not.
template <typename S, typename Pass, typename Held>
__device__ inline void reduce_again(
    const RowArgs<typename S::Program>& args, const ThreadRow<S>& row, const Holdings<S>& own, bool columns_aligned,
    const Pass& pass, Held* held, typename OfReductions<S, typename Pass::Makes>::Reducing& reducers) {
  using Index = typename S::Index;
  using Values = typename Pass::Makes::Index;
  auto each_asking = [](const auto& function) {
    each_reduction<Pass>([&](auto i) {
      if constexpr (OfReduction<true, S, type_at<typename Pass::Makes, i>>::asks) function(i);
    });
  };
  each_asking([&](auto i) { get<i>(reducers).partial = {}; });
#pragma unroll
  for (int chunk = 0; chunk < S::CHUNKS; ++chunk) {
    const bool full = S::MODE != WHOLE && chunk < S::FULL;
    if (!full && chunk * (S::THREADS * GROUP) >= row.left()) break;
    const Index first = Index(chunk * S::THREADS + row.thread) * GROUP;
    const ChunkShares<S> shares = shares_of_chunk<S, Pass>(args, row, own, chunk, first, full, columns_aligned);
    ChunkValues<typename S::Program, Pass> groups;
    bool usual = pass.fast();
    compute_groups<S, Pass, true, true>(pass, shares, held, chunk, first, usual, groups, Values());
    each_asking([&](auto i) {
      using How = typename type_at<typename Pass::Makes, i>::How;
      auto& group = get<i>(groups).of;
      if (S::MODE != WHOLE && !full) cut<How>(group, i32(row.length - first));
      get<i>(reducers).partial.add(group, chunk);
    });
  }
}

// Stores what a pass before the last one knows of the outputs.
template <typename S, typename Pass>
__device__ inline void store_early(
    const RowArgs<typename S::Program>& args, const ThreadRow<S>& row, typename S::Index first,
    const ChunkValues<typename S::Program, Pass>& groups) {
  each<Pass::Makes::size>([&](auto i) {
    constexpr int I = type_at<typename Pass::Makes, i>::output;
    if constexpr (I >= 0) {
      if constexpr (S::template stored_early<I>) {
        using E = element_out<typename S::Program, I>;
        if (!row.live) return;
        Lanes<E, GROUP> lanes = {};
        set_all(lanes, get<i>(groups).of);
        ::keep<S::MODE, E>(
            row.starts.template output<I>(), first, row.length, args.template output<I>().steps, lanes);
      }
    }
  });
}

// A pass that makes reductions: their results go to `shared`.
template <typename S, typename Pass, typename Held>
__device__ inline void reduce_row(
    const RowArgs<typename S::Program>& args, const ThreadRow<S>& row, const Holdings<S>& own, bool columns_aligned,
    Held* held, typename S::Program::Shared& shared) {
  using Index = typename S::Index;
  using Makes = typename Pass::Makes;
  using Values = typename Makes::Index;
  using Reductions = OfReductions<S, Makes>;
  constexpr int CHUNKS = S::CHUNKS, THREADS = S::THREADS, MODE = S::MODE;
  constexpr bool KEEP = S::KEEP;
  // Whether values are finite is asked once a thread, where asking again computes nothing again.
  constexpr bool UNASKED = Reductions::asks && KEEP && (!Pass::CAREFUL || S::HOLD);
  __shared__ alignas(16) typename Reductions::Scratch scratch;
  each_reduction<Pass>([&](auto i) {
    if constexpr (OfReduction<true, S, type_at<Makes, i>>::asks) shared.*type_at<Makes, i>::finite = true;
  });
  const Pass pass = pass_for<Pass>(shared);
  Index start = 0;
  typename Reductions::Summing segments;
  int turn = 0;
  do {  // a segment
    typename Reductions::Reducing reducers;
#pragma unroll S::UNROLLED
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const bool full =
          MODE != WHOLE && (KEEP ? chunk < S::FULL : start + Index((chunk + 1) * THREADS) * GROUP <= row.length);
      if (!full && start + chunk * (THREADS * GROUP) >= row.left()) break;
      const Index first = start + Index(chunk * THREADS + row.thread) * GROUP;
      const ChunkShares<S> shares = shares_of_chunk<S, Pass>(args, row, own, chunk, first, full, columns_aligned);
      ChunkValues<typename S::Program, Pass> groups;
      bool usual = pass.fast();
      compute_groups<S, Pass, true, false>(pass, shares, held, chunk, first, usual, groups, Values());
      if constexpr (Pass::CAREFUL)
        if (__builtin_expect(!usual, 0))
          compute_groups<S, Pass, false, false>(pass, shares, held, chunk, first, usual, groups, Values());
      each_reduction<Pass>([&](auto i) {
        get<i>(reducers).template add<UNASKED>(
            shares, get<i>(groups).of, chunk, MODE == WHOLE || full, i32(row.length - first));
      });
      store_early<S, Pass>(args, row, first, groups);
    }
    if constexpr (UNASKED) {
      bool sure = true;
      each_reduction<Pass>([&](auto i) {
        if constexpr (OfReduction<true, S, type_at<Makes, i>>::asks) sure &= get<i>(reducers).sure();
      });
      if (__builtin_expect(!sure, 0)) reduce_again<S, Pass>(args, row, own, columns_aligned, pass, held, reducers);
    }
    each_reduction<Pass>([&](auto i) { get<i>(reducers).unpack(own, row); });
    each_reduction<Pass>([&](auto i) {
      if constexpr (OfReduction<true, S, type_at<Makes, i>>::asks)
        shared.*type_at<Makes, i>::finite &= get<i>(reducers).partial.finite;
      get<i>(segments).add(get<i>(reducers).total(own, row, get<i>(scratch).of, turn));
    });
    start += SEGMENT;
    ++turn;
  } while (!KEEP && start < row.length);
  each_reduction<Pass>([&](auto i) {
    using R = type_at<Makes, i>;
    using V = state_t<typename R::How, typename R::Value>;
    shared.*R::member = result_of(row.length == 0 ? R::How::template empty<V>() : get<i>(segments).total());
  });
}

// How outputs go to memory. Where a thread's shares are not words beside its neighbours', a row's threads write
// stretches of it together, as long as shared memory allows; those of rows that are read again, warps by themselves.
template <typename S> struct Stretches {
  static constexpr bool TOGETHER = S::KEEP && S::MODE == UNIT;
  static constexpr int LANES = TOGETHER || S::THREADS < 32 ? S::THREADS : 32, BITS = S::Operands::result_bits;
  static constexpr int SHARES = S::THREADS < 32 ? S::CHUNKS : TOGETHER ? shares_of(S::CHUNKS, S::BLOCK, BITS) : 1;
  template <int I> using Part = Stretch<element_out<typename S::Program, I>, LANES, SHARES>;
  template <int I>
  static constexpr bool joined = Part<I>::wanted(S::MODE) && S::BLOCK * SHARES * BITS <= STRETCHES;
  template <int I> struct alignas(16) Memory { u8 of[joined<I> ? S::BLOCK / LANES * Part<I>::bytes : 16]; };
};
template <typename S, typename Makes> struct StretchesOf;
template <typename S, typename... Make> struct StretchesOf<S, List<Make...>> : Stretches<S> {
  using Base = Stretches<S>;
  using Parts = Tuple<typename Base::template Part<Make::output>...>;
  using Memory = Tuple<typename Base::template Memory<Make::output>...>;
  using Words = Tuple<ShareWords<element_out<typename S::Program, Make::output>>...>;
  static constexpr bool any = (Base::template joined<Make::output> || ... || false);
};

// Stores a thread's shares of one chunk, or puts them into stretches.
template <typename S, typename Pass>
__device__ inline void store_chunk(
    const RowArgs<typename S::Program>& args, const ThreadRow<S>& row, typename S::Index first, int lane, int chunk,
    const typename StretchesOf<S, typename Pass::Makes>::Words& words,
    const typename StretchesOf<S, typename Pass::Makes>::Parts& parts) {
  using Index = typename S::Index;
  each<Pass::Makes::size>([&](auto i) {
    constexpr int I = type_at<typename Pass::Makes, i>::output;
    using E = element_out<typename S::Program, I>;
    if constexpr (Stretches<S>::template joined<I>)
      get<i>(parts).put(
          lane, chunk % Stretches<S>::SHARES, get<i>(words), i32(min(row.length - first, Index(GROUP))));
    else if constexpr (!S::template stored_early<I>)
      ::keep<S::MODE, E>(
          row.starts.template output<I>(), first, row.length, args.template output<I>().steps,
          reinterpret_cast<const Lanes<E, GROUP>&>(get<i>(words)));
  });
}

// The last pass: makes the outputs that have an element for each of a row's.
template <typename S, typename Pass, typename Held>
__device__ inline void store_row(
    const RowArgs<typename S::Program>& args, const ThreadRow<S>& row, const Holdings<S>& own, bool columns_aligned,
    Held* held, const typename S::Program::Shared& shared) {
  using P = typename S::Program;
  using Index = typename S::Index;
  using Makes = typename Pass::Makes;
  using Values = typename Makes::Index;
  using Joins = StretchesOf<S, Makes>;
  constexpr int CHUNKS = S::CHUNKS, THREADS = S::THREADS, MODE = S::MODE, LANES = Joins::LANES, SHARES = Joins::SHARES;
  constexpr bool KEEP = S::KEEP, JOINED = Joins::any, TOGETHER = Joins::TOGETHER;
  const Pass pass = pass_for<Pass>(shared);
  __shared__ alignas(16) typename Joins::Memory memory;
  typename Joins::Parts parts;
  each<Makes::size>([&](auto i) {
    constexpr int I = type_at<Makes, i>::output;
    get<i>(parts).memory = get<i>(memory).of +
        (Joins::template joined<I> ? threadIdx.x / LANES * Joins::template Part<I>::bytes : 0);
  });
  const int lane = threadIdx.x % LANES;
  const int chunks = int((row.length + THREADS * GROUP - 1) / (THREADS * GROUP));
#pragma unroll KEEP ? CHUNKS : 1
  for (int chunk = 0; chunk < (KEEP ? CHUNKS : chunks); ++chunk) {
    const Index first = Index(chunk * THREADS + row.thread) * GROUP;
    const bool full = MODE != WHOLE && (KEEP ? chunk < S::FULL : Index((chunk + 1) * THREADS) * GROUP <= row.length);
    const bool mine = full ? row.live : chunk * (THREADS * GROUP) < row.left();
    if (JOINED ? !TOGETHER && SHARES == 1 && first - lane * GROUP >= row.length : !mine) break;
    if (mine) {
      const ChunkShares<S> shares = shares_of_chunk<S, Pass>(args, row, own, chunk, first, full, columns_aligned);
      ChunkValues<P, Pass> groups;
      typename Joins::Words words;
      auto pack = [&] {
        each<Makes::size>([&](auto i) {
          using E = element_out<P, type_at<Makes, i>::output>;
          Lanes<E, GROUP> lanes = {};
          set_all(lanes, get<i>(groups).of);
          get<i>(words) = reinterpret_cast<const ShareWords<E>&>(lanes);
        });
      };
      bool usual = pass.fast();
      compute_groups<S, Pass, true, false>(pass, shares, held, chunk, first, usual, groups, Values());
      pack();
      if constexpr (Pass::CAREFUL)
        if (__builtin_expect(!usual, 0)) {
          compute_groups<S, Pass, false, false>(pass, shares, held, chunk, first, usual, groups, Values());
          pack();
        }
      store_chunk<S, Pass>(args, row, first, lane, chunk, words, parts);
    }
    if (JOINED && chunk % SHARES == SHARES - 1) {
      const Index begin = first - Index((SHARES - 1) * THREADS + lane) * GROUP;
      const i32 count = i32(max(Index(0), min(row.length - begin, Index(LANES * SHARES * GROUP))));
      auto each_joined = [](const auto& function) {
        each<Makes::size>([&](auto i) {
          if constexpr (Joins::template joined<type_at<Makes, i>::output>) function(i);
        });
      };
      each_joined([&](auto i) {
        constexpr int I = type_at<Makes, i>::output;
        get<i>(parts).template store<MODE == WHOLE>(
            ::at<element_out<P, I>>(row.starts.template output<I>(), begin), count, lane);
      });
      each_joined([&](auto i) {
        if (!TOGETHER || chunk + 1 < CHUNKS) get<i>(parts).wait();
      });
    }
  }
}

// Rows, several to a block where they are short.
template <typename P, int THREADS, int CHUNKS, bool KEEP, int MODE>
__global__ void __launch_bounds__(
    RowSchedule<P, THREADS, CHUNKS, KEEP, MODE>::BLOCK, RowSchedule<P, THREADS, CHUNKS, KEEP, MODE>::blocks())
    row(const __grid_constant__ RowArgs<P> args) {
  using S = RowSchedule<P, THREADS, CHUNKS, KEEP, MODE>;
  using Passes = typename P::Passes;
  const ThreadRow<S> at(args);
  Holdings<S> own;
  load_row<S>(args, at, own);
  bool columns_aligned = true;
  each<S::Operands::columns>([&](auto i) {
    constexpr int N = S::Operands::arrays + i;
    columns_aligned = columns_aligned && starts_aligned<element_in<P, N>>(at.starts.template input<N>());
  });
  typename P::Held held[S::HOLD ? CHUNKS * GROUP : 1];
  typename P::Shared shared = shared_at_start<P>(args, at.place, typename P::C(at.length));
  each<Passes::size - 1>([&](auto i) { reduce_row<S, type_at<Passes, i>>(args, at, own, columns_aligned, held, shared); });
  P::finish(shared);
  each<S::Operands::outputs>([&](auto i) {
    if (at.thread == 0 && at.live) store_per_row<P, i>(at.starts.template output<i>(), shared);
  });
  using Last = type_at<Passes, Passes::size - 1>;
  if constexpr (Last::Makes::size > 0) store_row<S, Last>(args, at, own, columns_aligned, held, shared);
}
