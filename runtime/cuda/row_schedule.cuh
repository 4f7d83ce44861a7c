// Schedules of rows that threads of one block hold or read: what they are for a program, and which row a thread has.
#pragma once
#include "row_args.cuh"

constexpr int RANDOM_REGISTERS = 128;  // of a thread that makes random numbers

// What a schedule of rows is for a program. THREADS hold a row, GROUP neighbours each, CHUNKS times. KEEP: all of it at
// once, so that it is read once; otherwise each pass reads it again. MODE: how its elements lie.
template <typename P, int THREADS_, int CHUNKS_, bool KEEP_, int MODE_> struct RowSchedule {
  using Program = P;
  using Args = RowArgs<P>;
  using C = typename P::C;
  using Index = typename index<KEEP_>::type;
  using Operands = operands_of<P>;
  using Passes = typename P::Passes;
  static constexpr int THREADS = THREADS_, CHUNKS = CHUNKS_, MODE = MODE_;
  static constexpr bool KEEP = KEEP_;
  static constexpr int BLOCK = THREADS < ROW_THREADS ? ROW_THREADS : THREADS, ROWS = BLOCK / THREADS;  // rows of a block
  static constexpr int SPREAD = 1;  // threads that have groups of one accumulator
  static constexpr int EACH = KEEP ? accumulators_each(THREADS, CHUNKS) : 1;  // accumulators of a thread
  static constexpr int LAST = Passes::size - 1;
  // Chunks in which every row has an element for each thread: shorter rows have fewer threads.
  static constexpr int FULL = !P::BLOCKS && KEEP && THREADS * EACH > FEWEST ? CHUNKS / 2 : 0;
  // Whether values that several passes use are held from one pass to the next.
  static constexpr bool HOLD = KEEP && CHUNKS <= HELD_CHUNKS * EACH;
  // Columns are read with the row, where registers allow: few rows would wait for them. What is held later may leave
  // room for them.
  static constexpr bool WANTED =
      KEEP && Operands::columns_read > 0 && !P::LATE_COLUMNS &&
      (read_early(THREADS, CHUNKS, Operands::columns_read, Operands::column_bits, MODE == WHOLE) ||
       (HOLD && P::COSTLY > 0 && MODE != STEPPED && Operands::array_bits + Operands::column_bits <= P::LIVE_BITS));
  // Several columns beside what is held leave too few rows under way. They are brought near instead, if rows are few.
  static constexpr bool NEAR = WANTED && Operands::columns_read > 1 && MODE == WHOLE &&
      CHUNKS * GROUP * (Operands::column_bits + P::LIVE_BITS) / 32 > NEAR_REGISTERS;
  static constexpr bool EARLY = WANTED && !NEAR;
  // Whether nothing reads inputs again: no later stage, and who wants results only does not want them in the cache.
  static constexpr bool ONCE = KEEP && P::STAGE == 0 && Operands::result_bits == 0;
  // Whether to ask for later rows: where computing takes its time, or as much is written as read; else reading alone
  // keeps memory busy.
  static constexpr bool LATER = Operands::result_bits > 0 && !P::BLOCKS && KEEP &&
      (MODE == WHOLE || (MODE == UNIT && THREADS >= 32)) &&
      (P::COSTLY > 0 || Operands::result_bits >= Operands::array_bits);
  // Whether columns are loaded where they are used, each share at once.
  static constexpr bool APART = KEEP && MODE == UNIT && !EARLY;
  // Whether rows that start at any element come by way of shared memory: those that were faster so when measured.
  // Columns that few calls read do not count where no values are held.
  static constexpr int STAGED_NEED = BLOCK * CHUNKS * Operands::array_bits;  // bytes
  template <int... N> static __device__ constexpr bool in_units(Seq<N...>) {
    return ((storage<element_in<P, N>>::bits >= 32) && ...);
  }
  static constexpr bool STAGED = KEEP && MODE == UNIT && sizeof(C) <= 4 && Operands::arrays == 1 &&
      THREADS >= 32 && STAGED_NEED <= STAGED_BYTES && in_units(make_seq<Operands::arrays>()) &&
      ((P::LATE_COLUMNS && P::COSTLY == 0) || (Operands::columns_read > 0) == (THREADS <= STAGED_THREADS));
  // Bytes of shared memory for outputs, at most: a kernel may declare 48 kB.
  static constexpr int STRETCH = STAGED ? smaller(STRETCH_BYTES, (46 << 10) - STAGED_NEED) : STRETCH_BYTES;
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
  // Blocks that a multiprocessor is to have room for. Random numbers are made, not waited for.
  static __device__ constexpr int blocks() {
    if (!KEEP || MODE == STEPPED) return 1;
    if (makes_random(Passes())) return smaller(waiting(), larger(2, (1 << 16) / (BLOCK * RANDOM_REGISTERS)));
    return waiting();
  }
  // Whether elements are picked, which would take registers in all passes. It takes less time to spill these than to
  // have fewer blocks, if inputs need not be there again to compute values of f32 once more.
  static constexpr bool PICKS = P::Picks::size > 0 && MODE == WHOLE && CHUNKS > 1 && THREADS < BOUND_THREADS &&
      sizeof(C) <= 4 && (P::COSTLY == 0 || Operands::array_bits < 32);
  // Narrow elements are widened a group at a time. Where its row is takes a thread registers, if a block has several.
  static constexpr int PICKS_REGISTERS = CHUNKS * GROUP * P::LIVE_BITS / 32 + ROW_REGISTERS +
      (P::LIVE_BITS < 32 || ROWS == 1 ? GROUP : 0) + (ROWS > 1 ? 16 : 0);
  // `live` of `blocks_unaligned`: of larger blocks there would be half as many, and of several rows a warp little
  // spills.
  static constexpr int LIVE = THREADS >= 32 && BLOCK == ROW_THREADS ? P::LIVE_BITS : 0;
  // The same for a row that is held while its reductions wait.
  static __device__ constexpr int waiting() {
    if (PICKS) return REGISTERS / (BLOCK * PICKS_REGISTERS);
    constexpr bool singly = MODE == PIECES_UNALIGNED || MODE == BESIDE;  // elements come in a register each
    constexpr int apart = singly ? 32 * Operands::arrays : 0;
    if (in_whole_shares(MODE) || singly || STAGED)
      return blocks_of(
          THREADS, CHUNKS, larger(P::LIVE_BITS, apart), ROW_REGISTERS + ROW_VALUE_REGISTERS * most_values(Passes()));
    return blocks_unaligned(
        BLOCK, CHUNKS, THREADS < 32 && Operands::per_row > 0, LIVE, Operands::arrays, Operands::array_bits,
        P::COSTLY * storage<C>::bits, Operands::columns_read, Operands::column_bits);
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
  template <typename Args, typename Row> __device__ i64 set(const Args& args, const Row& row) {
    i64 length;
    i64 from[inputs + sizeof...(I)];
    if (__builtin_expect(row.plain, 1)) {
      length = args.rows.length;
      ((from[N] = row.plain_offset(args.template elements<N>().strides)), ...);
      ((from[inputs + I] = row.plain_offset(args.template output<I>().strides)), ...);
    } else {
      length = args.rows.length_of(row.position);
      ((from[N] = args.rows.offset(row.position, args.template elements<N>().strides)), ...);
      ((from[inputs + I] = args.rows.offset(row.position, args.template output<I>().strides)), ...);
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
  RowSpace::Position position;
  int thread;             // of those that have the row
  Index length;
  RowStarts<P> starts;

  __device__ explicit ThreadRow(const typename S::Args& args)
      : before(i64(blockIdx.x) * ROWS),
        last(ROWS > 1 ? u32(min(args.rows.rows - before, i64(ROWS))) - 1 : 0),
        wanted(u32(threadIdx.x) / THREADS),
        own(ROWS > 1 ? min(wanted, last) : 0),
        live(ROWS == 1 || wanted <= last),
        plain(args.rows.plain()),
        position(plain ? RowSpace::Position{before + own, false, 0, 0} : args.rows.position(before + own)),
        thread(ROWS > 1 ? threadIdx.x % THREADS : threadIdx.x) {
    const Index elements = Index(starts.set(args, *this));
    length = live ? elements : 0;
  }
  template <typename Strides> __device__ i64 plain_offset(const Strides& strides) const {
    return before * strides.of[AXES - 1] + own * strides.of[AXES - 1];
  }
  __device__ Index left() const { return length - thread * GROUP; }  // elements from this thread's first on
  template <int N> __device__ auto input() const { return get<N>(starts.at); }
  template <int I> __device__ auto output() const { return get<RowStarts<P>::inputs + I>(starts.at); }
};
