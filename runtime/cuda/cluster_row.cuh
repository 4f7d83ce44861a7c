// The kernel of long rows: the blocks of a cluster hold a row in shared memory, so that it is read once, however many
// passes follow. Blocks are small, so that several rows share a multiprocessor: one's loads run beside another's
// arithmetic. Rows are copied there without waiting. Elements of one or two bytes that do not lie in whole words come
// as the words around them, and are moved there once these have come.
#pragma once
#include "cluster.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Where an entry of a program's Stack lies among the 16-byte words of a share.
template <typename Entry> struct StackWords;
template <typename E, typename... Below> struct StackWords<Saved<E, Below...>> {
  using element = E;
  static constexpr int first = (share_words<Below> + ... + 0), end = first + share_words<E>;
};
template <typename... Entry> __device__ constexpr int stack_bytes(List<Entry...>) {
  int words = 0;
  ((words = larger(words, StackWords<Entry>::end)), ...);
  return 16 * words;
}

template <typename... N> __device__ constexpr int larger_of(N... each) {
  int most = 0;
  ((most = larger(most, each)), ...);
  return most;
}

// The shares of an input, or of a held value, that a thread takes at once: whole words, as those of a column.
template <typename V, int TURNS> struct Batch {
  u32 words[TURNS][sizeof(V) / 4];

  template <typename Buffer> __device__ void bring(const Buffer& buffer, i32 chunk, int turn) {
    buffer.words_of(chunk, turn, words[turn]);
  }
  __device__ V share(int turn) const {
    V lanes;
    set_words(lanes, words[turn]);
    return lanes;
  }
};

// What a pass makes of a share's elements: values as a reduction takes them; or as an output has them, and that output.
template <typename Make> struct ReducedShare {
  state_t<typename Make::How, typename Make::Value> values[GROUP];

  __device__ void set(int lane, typename Make::Value value, i32 element) {
    values[lane] = state_of<typename Make::How>(value, element);
  }
};
template <typename E, typename V> struct StoredShare {
  using Code = typename code_or<E, V>::type;
  Code values[GROUP];
  Lanes<E, GROUP> lanes = {};

  __device__ void set(int lane, V value) { values[lane] = Code(value); }
};
template <int I, typename V> __device__ Type<V> slot_of(const Slot<I, V>&);
template <int I, typename T> using value_at = typename decltype(slot_of<I>(T()))::type;

// What a thread has found of a reduction in a segment. Element: of an input that is reduced as it is stored, two
// elements at once, where they have such instructions.
template <int MODE, typename Make, typename Element> struct SegmentResult {
  using How = typename Make::How;
  Partial<How, state_t<How, typename Make::Value>, ACCUMULATORS> partial;
  Packed<How, Element> packed;
  static constexpr bool PACKED = Packed<How, Element>::can && !parted<How>;

  // A share, of which the row has `count` elements.
  template <typename Inputs> __device__ void add(const Inputs& inputs, ReducedShare<Make>& made, i32 count) {
    if constexpr (!PACKED) add_group<MODE, How>(partial, made.values, count);
    else if (!in_whole_shares(MODE) && count < GROUP) packed.add(get<Make::raw>(inputs), count);
    else packed.add(get<Make::raw>(inputs));
  }
  // Where the packed result of a segment is not what is wanted, its shares are added once more.
  template <typename Row> __device__ void end_segment(const Row& row, i32 segment, i32 chunks) {
    if constexpr (PACKED) {
      if (__builtin_expect(packed.known(), 1)) {
        partial.accumulator = packed.value();
      } else {
#pragma unroll 1
        for (i32 chunk = segment * SEGMENT_CHUNKS; chunk < chunks; ++chunk)
          add_share<MODE, How>(partial, get<Make::raw>(row.buffers).share(chunk), row.length - row.thread.first(chunk));
      }
    }
  }

  // Tells all blocks what a warp has found, and itself whether all elements of a thread were finite.
  template <typename Results, typename Shared, int BLOCKS>
  __device__ void send(
      const Results& results, Shared& shared, i32 segment, const ClusterThread<BLOCKS>& thread) const {
    if constexpr (Make::finite != nullptr) shared.*Make::finite &= partial.finite;
    results.send(partial, segment, thread);
  }
};
template <typename Make, typename Shared> __device__ inline void begin_finite(Shared& shared) {
  if constexpr (Make::finite != nullptr) shared.*Make::finite = true;
}
// The type of elements that a reduction takes as they are stored: none where the pass makes what it reduces, or holds
// values from then on, which may lie where the elements did.
template <typename P, typename Pass, typename Make, bool RAW = (Make::raw >= 0 && Pass::HELD_FRESH == 0)>
struct reduced_as_stored { using type = void; };
template <typename P, typename Pass, typename Make> struct reduced_as_stored<P, Pass, Make, true> {
  using type = typename type_at<typename P::Inputs, Make::raw>::element;
};

// The indices of the bits that are set.
template <u32 BITS, int BIT, int... I> struct SetBits;
template <bool SET, u32 BITS, int BIT, int... I> struct SetBit : SetBits<(BITS >> 1), BIT + 1, I..., BIT> {};
template <u32 BITS, int BIT, int... I> struct SetBit<false, BITS, BIT, I...> : SetBits<(BITS >> 1), BIT + 1, I...> {};
template <u32 BITS, int BIT, int... I> struct SetBits : SetBit<(BITS & 1) != 0, BITS, BIT, I...> {};
template <int BIT, int... I> struct SetBits<0, BIT, I...> { using type = Seq<I...>; };
template <u32 BITS> using set_bits = typename SetBits<BITS, 0>::type;

// Which of what a pass makes are reductions; which are outputs that it stores: the last pass leaves out those that an
// earlier one has stored.
template <typename... Make> __device__ constexpr u32 reduced_bits(List<Make...>) {
  u32 bits = 0;
  int m = 0;
  ((bits |= u32(Make::reduces) << m++), ...);
  return bits;
}
template <typename Output, typename... Make> __device__ constexpr int makes(List<Make...>) {
  return (int(same<Make, Output>) + ... + 0);
}
template <typename Output, typename... Pass> __device__ constexpr int passes_that_make(List<Pass...>) {
  return (makes<Output>(typename Pass::Makes()) + ... + 0);
}
template <typename Passes, typename... Make> __device__ constexpr u32 stored_bits(bool last, List<Make...>) {
  u32 bits = 0;
  int m = 0;
  ((bits |= u32(!Make::reduces && (!last || passes_that_make<Make>(Passes()) == 1)) << m++), ...);
  return bits;
}

// What a pass takes and makes, by index: inputs and columns of P::Element, values of P::Held that earlier passes hold
// and that it is the first to make, reductions and outputs of its Makes.
template <typename P, int I> struct PassSets {
  using Pass = type_at<typename P::Passes, I>;
  using Makes = typename Pass::Makes;
  static constexpr u32 INPUTS = (1u << operands_of<P>::arrays) - 1;
  using Inputs = set_bits<Pass::TAKES & INPUTS>;
  using Columns = set_bits<Pass::TAKES & ~INPUTS>;
  using Held = set_bits<Pass::HELD_TAKEN>;
  using Fresh = set_bits<Pass::HELD_FRESH>;
  using Reduced = set_bits<reduced_bits(Makes())>;
  using Stored = set_bits<stored_bits<typename P::Passes>(I + 1 == P::Passes::size, Makes())>;
};

// What the warps of a cluster find in a pass. Each reduction has a signal of its own that all of it has come.
template <typename Makes, typename Reduced> struct PassResults;
template <typename Makes, int... R> struct PassResults<Makes, Seq<R...>> {
  template <int M> using Make = type_at<Makes, M>;
  template <int M>
  using Results = WarpResults<typename Make<M>::How, state_t<typename Make<M>::How, typename Make<M>::Value>>;
  TupleOf<Seq<R...>, Results<R>...> of;

  // Takes memory from `free` on.
  __device__ void reserve(u8*& free, i32 segments) {
    ((get<R>(of) = Results<R>(free), free += STATE_BYTES + segments * WARPS * STATE_BYTES), ...);
  }
  __device__ void begin() const { (get<R>(of).signal.begin(), ...); }
  __device__ void expect(i32 segments) const { (get<R>(of).signal.expect(segments * Results<R>::bytes), ...); }
  // ends: whether logarithms of sums of exponentials are wanted.
  template <typename Shared> __device__ void receive(Shared& shared, i32 segments, bool ends) const {
    (get<R>(of).signal.wait(), ...);
    (set<R>(shared, get<R>(of).total_for_all(segments), ends), ...);
  }

 private:
  template <int M, typename Shared, typename V> static __device__ void set(Shared& shared, const V& total, bool ends) {
    if (ends || !same<typename Make<M>::How, LogSumExp>) shared.*Make<M>::member = result_of(total);
  }
};

// A row that BLOCKS blocks hold, as one of their threads sees it. N: inputs with elements along the row; O: outputs; S:
// entries of the Stack; I: passes before the last.
template <typename P, int BLOCKS, int MODE, typename N, typename O, typename S, typename I> struct ClusterRowOf;
template <typename P, int BLOCKS, int MODE, int... N, int... O, int... S, int... I>
struct ClusterRowOf<P, BLOCKS, MODE, Seq<N...>, Seq<O...>, Seq<S...>, Seq<I...>> {
  using Operands = operands_of<P>;
  static constexpr int ARRAYS = Operands::arrays;
  // What is picked, and compared with positions, leaves less room for values that are held.
  static constexpr int HELD_BITS = P::Picks::size > 0 && P::COSTLY > 0 ? storage<typename P::C>::bits : 0;
  static constexpr int TURNS =
      turns_at_once(larger(HELD_BITS, larger(Operands::array_bits, Operands::column_bits)));
  static constexpr int SHARE_BYTES = stack_bytes(typename P::Stack());
  static constexpr int MOVED = 2;                        // chunks whose words around are moved at once
  static constexpr int WARPS_OF_BLOCK = WARPS / BLOCKS;  // that have shares of a chunk
  // Chunks that are copied as a group: twice as many where the first pass stores outputs while others are on their way.
  static constexpr bool STORES_FIRST =
      sizeof...(I) > 0 && stored_bits<typename P::Passes>(false, typename type_at<typename P::Passes, 0>::Makes()) != 0;
  static constexpr int BATCH = STORES_FIRST ? 2 * CLUSTER_BATCH : CLUSTER_BATCH;
  template <int K> using Entry = StackWords<type_at<typename P::Stack, K>>;
  template <int K> using Buffer = ShareBuffer<typename Entry<K>::element, Entry<K>::first, SHARE_BYTES, BLOCKS>;
  template <int K> using Results = PassResults<typename PassSets<P, K>::Makes, typename PassSets<P, K>::Reduced>;

  const RowArgs<P>& args;
  const RowSpace::Position position;
  const i32 length;
  const ClusterThread<BLOCKS> thread;
  const RowMemory<SHARE_BYTES, BLOCKS> memory;
  Tuple<const storage_t<element_in<P, N>>*...> inputs;  // where the row begins in operands
  Tuple<storage_t<element_out<P, O>>*...> outputs;
  Tuple<Buffer<S>...> buffers;
  Tuple<Results<I>...> results;
  Tuple<Prefetched<MODE, element_in<P, N>, TURNS>...> columns;  // those of inputs that are no columns stay unused
  i32 copies = 0;  // groups of them that have not been waited for
  u8* stretches;   // where each warp puts shares of outputs in order, which are not stored in whole words
  u8* words_beyond;  // of each input, chunk and warp

  __device__ ClusterRowOf(const RowArgs<P>& args, u8* shared)
      : args(args), position(args.rows.position(i64(blockIdx.x / BLOCKS))), length(i32(args.rows.length_of(position))),
        thread(length), memory(shared, thread),
        inputs{row_of<element_in<P, N>>(
            args.template elements<N>().array, args.rows, position, args.template elements<N>().strides)...},
        outputs{row_of<element_out<P, O>>(
            args.template output<O>().array, args.rows, position, args.template output<O>().strides)...},
        buffers{Buffer<S>(shared, thread)...} {
    u8* free = shared + chunks_of(args.rows.length) * memory.chunk_bytes;
    (get<I>(results).reserve(free, segments_of(args.rows.length)), ...);
    stretches = free;
    words_beyond = free + blockDim.x / 32 * larger_of(Stretch<element_out<P, O>, 32, 1>::bytes...);
  }

  __device__ void begin_signals() const {
    if (threadIdx.x == 0) {
      (get<I>(results).begin(), ...);
      Signal::begun();
    }
    __syncwarp();
    if (threadIdx.x == 0) (get<I>(results).expect(thread.segments), ...);
    __syncwarp();
  }

  // Brings the row to shared memory. What is copied is under way before anything else is waited for.
  template <int... A> __device__ void bring(Seq<A...>) {
    if constexpr (sizeof...(A) > 0) {
      const TupleOf<Seq<A...>, around_of<A>...> around = {words_around<A>()...};
      if (__builtin_expect((get<A>(around).whole && ...), 1)) bring_words<true, A...>(around);
      else bring_words<false, A...>(around);
    }
  }
  template <bool WHOLE_WORDS, int... A, typename Around> __device__ void bring_words(const Around& around) {
    constexpr bool UNITS = !in_whole_shares(MODE) && (Buffer<A>::in_units || ...);
#pragma unroll 1
    for (i32 segment = thread.team; segment < thread.segments; segment += thread.teams) {
      const i32 end = thread.end(segment, thread.warp_chunks);
#pragma unroll 1
      for (i32 batch = segment * SEGMENT_CHUNKS; batch < end; batch += BATCH, ++copies) {
#pragma unroll UNITS || !WHOLE_WORDS ? 1 : BATCH
        for (int turn = 0; turn < BATCH; ++turn) {
          if (UNITS && batch + turn >= end) break;  // words ask where the row ends
          (copy<WHOLE_WORDS, A>(get<A>(around), batch, turn), ...);
        }
        commit_copies();
      }
    }
  }
  template <int> using around_of = WordsAround;
  template <int A> __device__ WordsAround words_around() const {
    if constexpr (in_whole_shares(MODE) || Buffer<A>::in_units) return {nullptr, 0, 0, 0, true};
    const auto& input = args.template elements<A>();
    return WordsAround::of<element_in<P, A>>(get<A>(inputs), length, input.array, input.span);
  }
  template <bool WHOLE_WORDS, int A> __device__ void copy(const WordsAround& around, i32 batch, int turn) const {
    if constexpr (MODE == WHOLE) get<A>(buffers).load(get<A>(inputs), length, thread, batch, turn);
    else if constexpr (in_whole_pieces(MODE))
      get<A>(buffers).template load_pieces<MODE == PIECES_OF_HALVES>(
          get<A>(inputs), length, thread, batch + turn, args.template elements<A>().steps);
    else if constexpr (Buffer<A>::in_units) get<A>(buffers).load_units(get<A>(inputs), length, thread, batch + turn);
    else get<A>(buffers).template load_around<WHOLE_WORDS>(around, thread, batch + turn, beyond<A>(batch + turn));
  }
  // Where the last word around a warp's shares of a chunk is copied, if there is no room beside the others.
  template <int A> __device__ u8* beyond(i32 chunk) const {
    return words_beyond + ((A * chunks_of(args.rows.length) + chunk) * WARPS_OF_BLOCK + thread.warp_share / 32) * 16;
  }
  // Moves elements of some chunks, which have come as the words around them, to where shares lie in whole words.
  template <int A> __device__ void align(i32 batch, i32 end) const {
    if constexpr (!in_whole_shares(MODE) && Buffer<A>::around)
#pragma unroll
      for (int turn = 0; turn < BATCH; turn += MOVED)
        get<A>(buffers).template align<MOVED>(
            get<A>(inputs), thread, batch + turn, end, beyond<A>(batch + turn), WARPS_OF_BLOCK * 16);
  }
  template <int... A> __device__ void align_all(i32 batch, i32 end, Seq<A...>) const {
    (align<A>(batch, end), ...);
    if constexpr (!in_whole_shares(MODE) && (Buffer<A>::around || ...)) __syncwarp();
  }

  // Each block asks for a part of a later row.
  __device__ void ask_for_later_row() const {
    if constexpr (Operands::result_bits > 0 && ARRAYS == 1) {
      using E = element_in<P, 0>;
      const RowSpace& rows = args.rows;
      if (rows.plain() && threadIdx.x == 0) {
        const i64 later = rows_ahead(CLUSTER_BYTES_AHEAD, rows.length * storage<E>::bits / 8);
        const i64 elements = rows.length / BLOCKS, first = blockIdx.x % BLOCKS * elements;
        if (position.row + later < rows.rows)
          ask_for<E>(
              at<E>(get<0>(inputs), later * args.template elements<0>().strides.of[AXES - 1] + first), elements);
      }
    }
  }

  // Loads the first shares of some columns.
  template <int... K> __device__ void begin(Seq<K...>) {
    ((is_run<P, K> ? void() : get<K>(columns).begin(get<K>(inputs), length, thread)), ...);
  }

  // Stores outputs that a row has one of.
  __device__ void store_per_row(typename P::Shared& shared) const {
    if (thread.index == 0 && thread.team == 0) {
      if constexpr (P::LONE_FINISH) P::finish(shared);
      (::store_per_row<P, O>(get<O>(outputs), shared), ...);
    }
  }

  // Whether lanes' own shares would leave gaps in a warp's store: then they go through the warp's memory of the chunk,
  // which has been taken, and lanes write neighbouring words.
  template <int OUTPUT, typename V = Lanes<element_out<P, OUTPUT>, GROUP>>
  static constexpr bool together =
      !in_whole_shares(MODE) || (Stretch<element_out<P, OUTPUT>, 32, 1>::wanted(WHOLE) && sizeof(V) <= SHARE_BYTES);

  // Stores a share of a chunk that the row has. Of those that are stored together all lanes of a warp come here.
  template <int OUTPUT>
  __device__ void store(const Lanes<element_out<P, OUTPUT>, GROUP>& lanes, i32 batch, int turn) const {
    using E = element_out<P, OUTPUT>;
    if constexpr (together<OUTPUT>) {
      constexpr int apart = larger_of(Stretch<element_out<P, O>, 32, 1>::bytes...);
      const i32 chunk = batch + turn, first = thread.first(chunk), begin = first - thread.lane * GROUP;
      __syncwarp();
      constexpr bool OWN = in_whole_shares(MODE);  // the warp's memory of the chunk
      const Stretch<E, 32, 1> stretch{OWN ? memory.chunk_at(chunk) : stretches + threadIdx.x / 32 * apart};
      stretch.put(thread.lane, 0, lanes, OWN ? GROUP : length - first);
      auto* const to = at<E>(get<OUTPUT>(outputs), begin);
      const i32 count = min(length - begin, 32 * GROUP);
      if constexpr (MODE == WHOLE) stretch.template store<true>(to, count, thread.lane);
      else if constexpr (in_whole_pieces(MODE))
        stretch.template store_pieces<true>(
            get<OUTPUT>(outputs), begin, count, args.template output<OUTPUT>().steps, thread.lane);
      else stretch.store_narrow(to, count, thread.lane);
    } else if constexpr (in_whole_pieces(MODE)) {
      keep<MODE, E>(
          get<OUTPUT>(outputs), thread.first(batch + turn), length, args.template output<OUTPUT>().steps, lanes);
    } else {
      keep<WHOLE, E>(
          at<E>(get<OUTPUT>(outputs), thread.first(batch)), turn * (ACCUMULATORS * GROUP), length,
          args.template output<OUTPUT>().steps, lanes);
    }
  }
};
template <typename P, int BLOCKS, int MODE>
using ClusterRow = ClusterRowOf<
    P, BLOCKS, MODE, make_seq<operands_of<P>::elements>, make_seq<operands_of<P>::outputs>, make_seq<P::Stack::size>,
    make_seq<P::Passes::size - 1>>;

// A pass over such a row: what it takes of a share comes from shared memory, and what later passes take of it goes
// there. N, K, H, F, R, O: the sets of PassSets.
template <
    typename P, int BLOCKS, int MODE, int I, typename N, typename K, typename H, typename F, typename R, typename O>
struct ClusterPassOf;
template <typename P, int BLOCKS, int MODE, int I, int... N, int... K, int... H, int... F, int... R, int... O>
struct ClusterPassOf<P, BLOCKS, MODE, I, Seq<N...>, Seq<K...>, Seq<H...>, Seq<F...>, Seq<R...>, Seq<O...>> {
  using C = typename P::C;
  using Row = ClusterRow<P, BLOCKS, MODE>;
  using Pass = type_at<typename P::Passes, I>;
  using Values = decltype(Pass().template of<true, HOLDS_EARLIER>(
      typename P::Element(), *static_cast<typename P::Held*>(nullptr), *static_cast<bool*>(nullptr)));
  static constexpr int TURNS = Row::TURNS, ARRAYS = Row::ARRAYS;
  static constexpr bool LAST = I + 1 == P::Passes::size;

  template <int M> using Make = type_at<typename Pass::Makes, M>;
  template <int M> using Stored = StoredShare<element_out<P, Make<M>::output>, value_at<M, Values>>;
  using Found =
      TupleOf<Seq<R...>, SegmentResult<MODE, Make<R>, typename reduced_as_stored<P, Pass, Make<R>>::type>...>;
  // Of a thread's share of a chunk: elements, values that are held from now on, what the pass makes of them.
  using Shares = TupleOf<Seq<N..., K...>, Lanes<element_in<P, N>, GROUP>..., Lanes<element_in<P, K>, GROUP>...>;
  using HeldShares = TupleOf<Seq<F...>, Lanes<C, (GROUP + 0 * F)>...>;
  using ReducedShares = TupleOf<Seq<R...>, ReducedShare<Make<R>>...>;
  using StoredShares = TupleOf<Seq<O...>, Stored<O>...>;
  // What the pass takes of some chunks at once, by its index in the Stack.
  using Batches = TupleOf<
      Seq<N..., (ARRAYS + H)...>, Batch<Lanes<element_in<P, N>, GROUP>, TURNS>...,
      Batch<Lanes<C, (GROUP + 0 * H)>, TURNS>...>;

  Row& row;
  const Pass pass;

  __device__ ClusterPassOf(Row& row, const typename P::Shared& shared) : row(row), pass(pass_for<Pass>(shared)) {}

  // Few calls read late columns: what they take is not in the way of others.
  __device__ void run(typename P::Shared& shared) {
    if constexpr (P::LATE_COLUMNS && sizeof...(K) > 0) {
      if (!pass.takes_columns()) return over_row<false>(shared);
      row.begin(Seq<K...>());
    }
    over_row<true>(shared);
  }
  template <bool TAKES> __device__ void over_row(typename P::Shared& shared) {
    const ClusterThread<BLOCKS>& thread = row.thread;
    (begin_finite<Make<R>>(shared), ...);
#pragma unroll 1
    for (i32 segment = thread.team; segment < thread.segments; segment += thread.teams) {
      Found found;
      const i32 end = thread.end(segment, thread.warp_chunks), chunks = thread.end(segment, thread.chunks);
#pragma unroll 1
      for (i32 batch = segment * SEGMENT_CHUNKS; batch < end; batch += TURNS) {
        if (I == 0 && ARRAYS > 0 && batch % Row::BATCH == 0) {
          wait_for_copies(--row.copies);
          row.align_all(batch, end, make_seq<ARRAYS>());
        }
        take<TAKES>(found, segment, batch, end, chunks);
      }
      (get<R>(found).end_segment(row, segment, chunks), ...);
      (get<R>(found).send(get<R>(get<LAST ? 0 : I>(row.results).of), shared, segment, thread), ...);
    }
  }

  // Some chunks of a segment, TURNS at most: all of them are on their way from shared memory before one is used.
  template <bool TAKES> __device__ void take(Found& found, i32 segment, i32 batch, i32 end, i32 chunks) const {
    Batches taken;
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn)
      if (batch + turn < chunks) {
        (get<N>(taken).bring(get<N>(row.buffers), batch, turn), ...);
        (get<ARRAYS + H>(taken).bring(get<ARRAYS + H>(row.buffers), batch, turn), ...);
      }
    if (sizeof...(F) > 0) __syncwarp();  // what is held from now on may lie where other lanes' elements did
    constexpr bool TOGETHER = (Row::template together<Make<O>::output> || ... || false);
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
      const i32 chunk = batch + turn;
      if (chunk >= (TOGETHER ? end : chunks)) break;
      HeldShares held;
      StoredShares stored;
      if (!TOGETHER || chunk < chunks) make<TAKES>(found, held, stored, taken, turn, segment, chunk);
      (store_share<O>(stored, batch, turn, chunk < chunks), ...);
      if (TOGETHER && !LAST) __syncwarp();
      if (sizeof...(F) > 0 && (!TOGETHER || chunk < chunks))
        (get<ARRAYS + F>(row.buffers).put(batch, turn, get<F>(held)), ...);
    }
  }
  template <int M>
  __device__ void store_share(const StoredShares& stored, i32 batch, int turn, bool has) const {
    constexpr int OUTPUT = Make<M>::output;
    if (has || Row::template together<OUTPUT>) row.template store<OUTPUT>(get<M>(stored).lanes, batch, turn);
  }

  // A share of a column: the next one is on its way from then on. Positions are computed, runs are read.
  template <bool TAKES, int COLUMN>
  __device__ Lanes<element_in<P, COLUMN>, GROUP> column(int turn, i32 segment, i32 chunk, i32 first) const {
    using E = element_in<P, COLUMN>;
    if constexpr (IS_PLACE<E>) {
      return places<MODE>(get<COLUMN>(row.inputs), first);
    } else {
      Lanes<E, GROUP> lanes = {};
      const bool takes = TAKES && (P::LATE_COLUMNS || pass.takes_columns());
      if constexpr (is_run<P, COLUMN>) {
        if (takes && first < row.length)
          lanes = share_of_runs<E>(get<COLUMN>(row.inputs), first, row.length, row.args.template elements<COLUMN>().steps);
      } else if (takes) {
        lanes = get<COLUMN>(row.columns).share(turn);
        get<COLUMN>(row.columns).fetch(
            get<COLUMN>(row.inputs), row.length, row.thread, turn, row.thread.after(segment, chunk, TURNS));
      }
      return lanes;
    }
  }

  // What the pass makes of a share: by quick forms, and again by exact ones where these do not hold.
  template <bool TAKES>
  __device__ void make(
      Found& found, HeldShares& held, StoredShares& stored, const Batches& taken, int turn, i32 segment,
      i32 chunk) const {
    Shares shares;
    ((get<N>(shares) = get<N>(taken).share(turn)), ...);
    const i32 first = row.thread.first(chunk);
    ((get<K>(shares) = column<TAKES, K>(turn, segment, chunk, first)), ...);
    ReducedShares reduced;
    bool usual = is_quick<P, Pass::TAKES>(pass, shares);
    make_all<quick_form<Pass>>(reduced, held, stored, shares, taken, turn, first, usual);
    if constexpr (Pass::CAREFUL)
      if (__builtin_expect(!usual, 0))
        make_all<GENERAL>(reduced, held, stored, shares, taken, turn, first, usual);
    (get<R>(found).add(shares, get<R>(reduced), row.length - first), ...);
    (set_all(get<O>(stored).lanes, get<O>(stored).values), ...);
  }
  template <int FAST>
  __device__ void make_all(
      ReducedShares& reduced, HeldShares& held, StoredShares& stored, const Shares& shares, const Batches& taken,
      int turn, i32 first, bool& usual) const {
#pragma unroll
    for (int lane = 0; lane < GROUP; ++lane) {
      typename P::Held own;
      C* const values = reinterpret_cast<C*>(&own);
      ((values[H] = get<ARRAYS + H>(taken).share(turn).get(lane)), ...);
      const auto made =
          pass.template of<FAST, HOLDS_EARLIER>(element_in_lane<P, Pass::TAKES>(shares, lane), own, usual);
      ((get<F>(held).data[lane] = values[F]), ...);
      (get<R>(reduced).set(lane, get<R>(made), first + lane), ...);
      (get<O>(stored).set(lane, get<O>(made)), ...);
    }
  }
};
template <typename P, int BLOCKS, int MODE, int I, typename S = PassSets<P, I>>
using ClusterPass = ClusterPassOf<
    P, BLOCKS, MODE, I, typename S::Inputs, typename S::Columns, typename S::Held, typename S::Fresh, typename S::Reduced,
    typename S::Stored>;

// The passes that all calls want.
template <typename... Pass> __device__ constexpr int usual_passes(List<Pass...>) {
  return (int(!Pass::SOMETIMES) + ... + 0);
}

// Blocks that a multiprocessor is to have room for: fewer could not load while others compute. One input that takes
// much computing, alone, is as a narrow one; what is held beside columns or positions, random numbers, and rows that
// start at any element need registers.
template <typename P, int MODE> __device__ constexpr int room_of_cluster() {
  using Of = operands_of<P>;
  const bool costly = P::COSTLY > 0, alone = Of::elements == 1 && Of::result_bits >= Of::array_bits;
  const bool narrow = Of::array_bits <= CLUSTER_NARROW_BITS ? !costly || Of::elements == Of::arrays : costly && alone;
  if (sizeof(typename P::C) > 4) return 1;
  if (makes_random(typename P::Passes())) return 2;
  const bool few = usual_passes(typename P::Passes()) <= CLUSTER_FEW_PASSES;
  return in_whole_shares(MODE) && narrow && few ? CLUSTER_BLOCKS_NARROW : CLUSTER_BLOCKS;
}

// A pass before the last.
template <int I, typename P, int BLOCKS, int MODE>
__device__ inline void reduce(ClusterRow<P, BLOCKS, MODE>& row, typename P::Shared& shared) {
  const bool wanted = type_at<typename P::Passes, I>::wanted(shared);
  if (wanted) ClusterPass<P, BLOCKS, MODE, I>(row, shared).run(shared);
  if (!P::LATE_COLUMNS) row.begin(typename PassSets<P, I + 1>::Columns());
  if (wanted) get<I>(row.results).receive(shared, row.thread.segments, !P::LONE_ENDS || row.thread.index == 0);
}
template <typename P, int BLOCKS, int MODE, int... I>
__device__ inline void reduce_all(ClusterRow<P, BLOCKS, MODE>& row, typename P::Shared& shared, Seq<I...>) {
  (reduce<I, P, BLOCKS, MODE>(row, shared), ...);
}

template <typename P, int BLOCKS, int MODE>
__global__ void __cluster_dims__(BLOCKS) __launch_bounds__(CLUSTER_THREADS, room_of_cluster<P, MODE>())
    cluster(const __grid_constant__ RowArgs<P> args) {
  using Row = ClusterRow<P, BLOCKS, MODE>;
  constexpr int LAST = P::Passes::size - 1;
  extern __shared__ uint4 memory[];
  Row row(args, reinterpret_cast<u8*>(memory));
  row.begin_signals();
  cluster_arrive();  // no block sends another anything before that has begun
  typename P::Shared shared;
  const auto begin = [&] { shared = shared_at_start<P>(args, row.position, typename P::C(row.length)); };
  if constexpr (P::Picks::size > 0) begin();  // what is picked waits for it
  if constexpr (MODE == UNIT) row.ask_for_later_row();  // before this row is waited for
  row.bring(make_seq<Row::ARRAYS>());
  if constexpr (MODE == WHOLE) row.ask_for_later_row();
  if constexpr (P::Picks::size == 0) begin();
  pick_all<P>(args, shared, row.length, [&](auto n) { return get<n>(row.inputs); });
  if (!P::LATE_COLUMNS) row.begin(typename PassSets<P, 0>::Columns());
  cluster_wait();
  reduce_all<P, BLOCKS, MODE>(row, shared, make_seq<LAST>());
  if constexpr (!P::LONE_FINISH) P::finish(shared);
  row.store_per_row(shared);
  if constexpr (type_at<typename P::Passes, LAST>::Makes::size > 0)
    ClusterPass<P, BLOCKS, MODE, LAST>(row, shared).run(shared);
}
#endif
