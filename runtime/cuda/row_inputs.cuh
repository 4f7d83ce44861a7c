// What threads have in registers of a row's inputs.
#pragma once
#include "row_schedule.cuh"

// Pieces of neighbours from any element on: lanes side by side load elements side by side, one by one, and hand each
// other their shares by way of shared memory.
template <typename E, int THREADS, int CHUNKS> struct Own<PIECES_UNALIGNED, E, THREADS, CHUNKS> {
  using V = Lanes<E, GROUP>;
  static constexpr int LANES = smaller(THREADS, 32), BLOCK = larger(THREADS, ROW_THREADS);
  V lanes[CHUNKS];
  storage_t<E> apart[CHUNKS][GROUP];

  static __device__ i32 first_of(i32 thread, int chunk) {  // that this lane loads
    return (chunk * THREADS + thread - thread % LANES) * GROUP + thread % LANES;
  }
  template <bool ONCE = false>
  __device__ void load(
      const storage_t<E>* row, i32 thread, i32 length, const Along& steps, const storage_t<E>*, const Span&) {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk)
#pragma unroll
      for (int i = 0; i < GROUP; ++i) {
        const i32 element = first_of(thread, chunk) + i * LANES;
        if (element < length) apart[chunk][i] = row[steps.in_pieces(element)];
      }
  }
  __device__ void arrive(const storage_t<E>*, i32 thread, i32) {
    __shared__ alignas(16) V memory[BLOCK];
    const i32 lane = thread % LANES;
    V* const shares = memory + threadIdx.x / LANES * LANES;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) lanes[chunk] = share_of_apart<LANES>(shares, lane, apart[chunk]);
  }
};

// The type of an input's shares: `Staged`, or `Own`, which is only named where it is wanted.
template <typename S, typename E> struct OwnOf { using type = Own<S::MODE, E, S::THREADS, S::KEEP ? S::CHUNKS : 1>; };
template <bool STAGED, typename S, typename E> struct OwnOrStaged : OwnOf<S, E> {};
template <typename S, typename E> struct OwnOrStaged<true, S, E> { using type = Staged<E, S::THREADS, S::CHUNKS>; };
// What a thread has in registers of an input with elements: its shares of a row, on their way from `load` to `arrive`.
template <typename S, int N> struct ArrayShares {
  using E = element_in<typename S::Program, N>;
  using Args = typename S::Args;
  using Row = ThreadRow<S>;
  typename OwnOrStaged<S::STAGED, S, E>::type own;

  static __device__ u8* memory() {
    __shared__ alignas(16) u8 of[S::BLOCK * S::CHUNKS * int(sizeof(Lanes<E, GROUP>))];
    return of;
  }
  __device__ void load(const Args& args, const Row& row) {
    if constexpr (S::STAGED) {
      own.load(memory(), row.template input<N>(), row.thread, row.length);
    } else if constexpr (S::KEEP) {
      const auto& input = args.template elements<N>();
      own.template load<S::ONCE>(
          row.template input<N>(), row.thread, row.length, input.steps, input.array, input.span);
    }
  }
  __device__ void load_late(const Args&, const Row&) {}
  __device__ void bring_near(const Row&) const {}
  __device__ void end(const Row&) {}
  __device__ void arrive(const Row& row) {
    if constexpr (S::STAGED) own.arrive(memory(), row.thread, row.length);
    else if constexpr (S::KEEP) own.arrive(row.template input<N>(), row.thread, row.length);
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
  using Args = typename S::Args;
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

// What nothing is loaded of before it is used.
template <typename S, typename E> struct LateShares {
  using Args = typename S::Args;
  using Row = ThreadRow<S>;

  __device__ void load(const Args&, const Row&) {}
  __device__ void load_late(const Args&, const Row&) {}
  __device__ void bring_near(const Row&) const {}
  __device__ void end(const Row&) {}
  __device__ void arrive(const Row&) {}
  __device__ void ask_for(const Args&, const Row&, i64) const {}
  __device__ bool aligned(const Row&) const { return true; }
  template <bool READ> __device__ void words(const Args&, const Row&, i32, bool, bool, ShareWords<E>&) const {}
};

// Positions, which threads compute where they are used.
template <typename S, int N> struct PlaceShares : LateShares<S, Place> {
  __device__ Lanes<Place, GROUP> share(
      const typename S::Args& args, const ThreadRow<S>& row, int, typename S::Index first,
      const ShareWords<Place>&) const {
    const Place* const start = row.template input<N>();
    if constexpr (S::MODE != STEPPED) {
      return places<S::MODE>(start, first);
    } else {
      Lanes<Place, GROUP> lanes;
#pragma unroll
      for (int i = 0; i < GROUP; ++i) lanes.data[i] = fetch(start + args.template elements<N>().steps.to(first + i));
      return lanes;
    }
  }
};

// What neighbours in a row share: few elements, which rows of other threads read too.
template <typename S, int N, typename E = element_in<typename S::Program, N>> struct RunShares : LateShares<S, E> {
  __device__ Lanes<E, GROUP> share(
      const typename S::Args& args, const ThreadRow<S>& row, int, typename S::Index first, const ShareWords<E>&) const {
    const storage_t<E>* const start = row.template input<N>();
    const Along& steps = args.template elements<N>().steps;
    if constexpr (S::MODE == STEPPED) return ::share<STEPPED, E>(start, first, row.length, steps, start, Span());
    else return share_of_runs<E>(start, first, row.length, steps);
  }
};

// All inputs with elements.
enum { OF_ARRAY, OF_COLUMN, OF_RUN };
template <int KIND, typename E, typename S, int N> struct SharesOfInput { using type = ArrayShares<S, N>; };
template <typename E, typename S, int N> struct SharesOfInput<OF_COLUMN, E, S, N> { using type = ColumnShares<S, N>; };
template <typename S, int N> struct SharesOfInput<OF_COLUMN, Place, S, N> { using type = PlaceShares<S, N>; };
template <typename E, typename S, int N> struct SharesOfInput<OF_RUN, E, S, N> { using type = RunShares<S, N>; };
template <typename S, int N>
constexpr int kind_of = N < S::Operands::arrays ? OF_ARRAY : is_run<typename S::Program, N> ? OF_RUN : OF_COLUMN;
template <typename S, typename N> struct RowInputsOf;
template <typename S, int... N> struct RowInputsOf<S, Seq<N...>> {
  using P = typename S::Program;
  using Args = typename S::Args;
  using Row = ThreadRow<S>;
  using Chunk = Tuple<Lanes<element_in<P, N>, GROUP>...>;  // a thread's shares of one chunk
  Tuple<typename SharesOfInput<kind_of<S, N>, element_in<P, N>, S, N>::type...> of;

  // All loads are under way before the first is used.
  __device__ void load(const Args& args, const Row& row) {
    (get<N>(of).load(args, row), ...);
    if (S::LATER && row.plain && threadIdx.x == 0) {
      const i64 later = rows_ahead(ROW_BYTES_AHEAD, args.rows.length * S::ROWS * S::Operands::array_bits / 8) * S::ROWS;
      if (later + S::ROWS <= args.rows.rows - row.before) (get<N>(of).ask_for(args, row, later), ...);
    }
    if (S::NEAR && args.rows.rows <= NEAR_ROWS) (get<N>(of).bring_near(row), ...);
    (get<N>(of).end(row), ...);
    (get<N>(of).arrive(row), ...);
    (get<N>(of).load_late(args, row), ...);
  }
  __device__ bool columns_aligned(const Row& row) const { return (get<N>(of).aligned(row) && ... && true); }

  // Shares of one chunk, of the inputs that a pass reads. full: the row has all elements of the chunk. columns:
  // whether those in memory are wanted.
  template <u32 READS>
  __device__ Chunk chunk(
      const Args& args, const Row& row, int chunk, typename S::Index first, bool full, bool columns_aligned,
      bool columns = true) const {
    Tuple<ShareWords<element_in<P, N>>...> words;
    if constexpr (S::APART && READS >> S::Operands::arrays != 0) {
      if (!columns) {
      } else if (__builtin_expect(columns_aligned, 1)) {
        const bool whole = full || first + GROUP <= row.length;
        (get<N>(of).template words<(READS >> N & 1) != 0>(args, row, first, whole, true, get<N>(words)), ...);
      } else {
        (get<N>(of).template words<(READS >> N & 1) != 0>(args, row, first, true, false, get<N>(words)), ...);
      }
    }
    Chunk shares;
    ((read<(READS >> N & 1) != 0, N>(get<N>(shares), args, row, chunk, first, get<N>(words), columns)), ...);
    return shares;
  }

 private:
  template <bool READ, int I, typename Share, typename Words>
  __device__ void read(
      Share& share, const Args& args, const Row& row, int chunk, typename S::Index first, const Words& words,
      bool columns) const {
    constexpr bool COLUMN = I >= S::Operands::arrays && !IS_PLACE<element_in<P, I>>;
    if constexpr (READ) {
      if (!COLUMN || columns) share = get<I>(of).share(args, row, chunk, first, words);
      else share = {};
    }
  }
};
template <typename S> using RowInputs = RowInputsOf<S, make_seq<S::Operands::elements>>;
