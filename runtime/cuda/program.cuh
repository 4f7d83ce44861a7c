// What schedules know of a program, the struct that is generated for an operation: lists of types, tuples of values,
// and the roles that operands have.
#pragma once
#include "lanes.cuh"

template <int... I> struct Seq {};
template <int N, int... I> struct MakeSeq : MakeSeq<N - 1, N - 1, I...> {};
template <int... I> struct MakeSeq<0, I...> { using type = Seq<I...>; };
template <int N> using make_seq = typename MakeSeq<N>::type;

template <typename... E> struct List {
  static constexpr int size = sizeof...(E);
  using Index = make_seq<size>;
};

// One value of each type, in order and without gaps that C++ would not leave in a struct.
template <int I, typename V> struct Slot { V value; };
template <typename S, typename... V> struct TupleOf;
template <int... I, typename... V> struct TupleOf<Seq<I...>, V...> : Slot<I, V>... {
  static constexpr int size = sizeof...(V);
};
template <typename... V> using Tuple = TupleOf<make_seq<sizeof...(V)>, V...>;
template <int I, typename V> __device__ __forceinline__ V& get(Slot<I, V>& slot) { return slot.value; }
template <int I, typename V> __device__ __forceinline__ const V& get(const Slot<I, V>& slot) { return slot.value; }

// Calls a function with 0, 1 .. N - 1, each a constant that can stand in template arguments.
template <int I> struct Constant {
  __device__ constexpr operator int() const { return I; }
};
template <int... I, typename F> __device__ inline void each(Seq<I...>, const F& function) {
  (function(Constant<I>()), ...);
}
template <int N, typename F> __device__ inline void each(const F& function) { each(make_seq<N>(), function); }

// What a formula takes of an element: its compute type C where it is a float, else an integer or a bool.
template <bool REAL, typename C, typename E> struct in_formula { using type = compute_t<E>; };
template <typename C, typename E> struct in_formula<true, C, E> { using type = C; };
template <typename C, typename E> using formula_t = typename in_formula<Format<E>::real, C, E>::type;

// The type at an index of a list.
template <typename E> struct Type { using type = E; };
template <int I, typename E> struct Indexed {};
template <typename S, typename... E> struct IndexedOf;
template <int... I, typename... E> struct IndexedOf<Seq<I...>, List<E...>> : Indexed<I, E>... {};
template <int I, typename E> __device__ Type<E> indexed(const Indexed<I, E>&);
template <typename L, int I>
using type_at = typename decltype(indexed<I>(IndexedOf<typename L::Index, L>()))::type;

// The roles of operands. PerElement: one for each element of the output. PerRun: shared by the elements of a run; of
// programs that reduce, by neighbours in a row. PerColumn and PerRow (of programs that reduce): one for each position
// along a row, shared by rows; one for each row. Elementwise programs have PerRow where their PerRun may be one for
// each column. Scalar: one value. E: the element type.
template <typename E> struct PerElement { using element = E; };
template <typename E> struct PerRun { using element = E; };
template <typename E> struct PerBlock { using element = E; };  // PerRun whose runs are blocks along an axis
template <typename E> struct PerColumn { using element = E; };
template <typename E, auto Member = nullptr> struct PerRow { using element = E; };  // Member: of Shared, of an output
template <typename E> struct ScalarOf { using element = E; };

// What a pass over a row makes of each element, in the order of its values. Reduce: a reduction. How: its class of
// reductions.cuh; V: the type of an element's value; Member: of Shared, the result; Finite: of Shared, whether all
// values of a thread were finite (nullptr: not asked); Raw: the index in Inputs of the input that is reduced as it
// stands (-1: none). Store: an output that has an element for each of a row's; Output: its index in Outputs.
template <typename How_, typename V, auto Member, auto Finite = nullptr, int Raw = -1> struct Reduce {
  using How = How_;
  using Value = V;
  static constexpr bool reduces = true;
  static constexpr auto member = Member;
  static constexpr auto finite = Finite;
  static constexpr int raw = Raw, output = -1;
};
template <int Output> struct Store {
  static constexpr bool reduces = false, scans = false;
  static constexpr int output = Output;
};

// A scan. Member: of Held, its value at an element. EXCLUSIVE: without the element itself. REVERSE: from the row's end.
template <typename How_, typename V, auto Member, bool EXCLUSIVE, bool REVERSE> struct Scan {
  using How = How_;
  using Value = V;
  static constexpr bool reduces = false, scans = true, exclusive = EXCLUSIVE, reverse = REVERSE;
  static constexpr auto member = Member;
  static constexpr int output = -1;
};

// A reduction to an extreme of an input's elements as they are stored. How: finds it, where what is found is finite if
// that matters; Joined: joins it with the extremes of other elements; Raw: the input's index in Inputs.
template <typename How_, typename Joined_, int Raw> struct Extreme {
  using How = How_;
  using Joined = Joined_;
  static constexpr int raw = Raw;
};

// What a cluster keeps of each element: E, and the elements below it in memory.
template <typename E, typename... Below> struct Saved { using element = E; using below = List<Below...>; };

// Which values of `held` a pass finds made: none (0), those of earlier passes, all.
constexpr int HOLDS_EARLIER = 1, HOLDS_ALL = 2;

// A sum of zeros and of one value, of a row of so many elements: a zero that is added to a negative one makes it
// positive.
template <typename C> __device__ inline C picked_sum(C value, C count) { return count == C(1) ? value : value + C(0); }

// What a pass has unless it says otherwise. READS, TAKES: which inputs it needs where nothing is held, and where all is
// (bits; the first member of Element is the lowest one). HELD_FRESH, HELD_TAKEN: which values of `held` it is the first
// to make, and which it takes from earlier passes. CAREFUL: some of it has quick forms, which do not hold for all
// numbers. PER_ROW: of a split reduction's pass, whether it is made from operands that a row has one of.
// SOMETIMES: whether only some calls want it: those for which `wanted` is true. What it makes is 0 in the others.
// GROUPED: whether there are forms of groups of neighbours that `apart` holds for, of their first element.
// `takes_columns`: whether a call wants the columns that it reads from memory.
// RANDOM: whether it makes random numbers.
// REPEATS: whether it is made again for as long as `rising`, which is `first` and then `next`, rises.
struct PassDefaults {
  static constexpr u32 READS = 0, TAKES = 0, HELD_FRESH = 0, HELD_TAKEN = 0;
  static constexpr bool CAREFUL = false, PER_ROW = false, SOMETIMES = false, GROUPED = false, REPEATS = false,
                        RANDOM = false;
  PassDefaults() = default;
  template <typename S> __device__ explicit PassDefaults(const S&) {}
  __device__ bool fast() const { return true; }
  template <typename E> static __device__ bool apart(const E&) { return true; }
  template <typename S> static __device__ bool wanted(const S&) { return true; }
  __device__ bool takes_columns() const { return true; }
};

// The pass of a program that has nothing to make after its reductions.
struct EmptyPass : PassDefaults {
  using Makes = List<>;
  using PassDefaults::PassDefaults;
};

// What a program with reductions has unless it says otherwise. BLOCKS: its rows are blocks along an axis. STAGE: which
// stage of an operation it is, 0 if the only one. COSTLY: how many values of an element are held for what they cost.
// STRIPE: how many values a pass reduces a row to, at most, where stripes of rows are held.
// LATE_COLUMNS: whether few calls read columns. LONE_FINISH: whether one thread does better to `finish`. LONE_ENDS: and
// whether it alone takes logarithms of sums of exponentials, of which no pass knows. BESIDE: the inputs in which rows
// beside each other differ (bits, as in PassDefaults). Picks: what one element of a row tells, which is read before the
// first pass: which inputs of it (READS), the first pass that knows of it (BEFORE), its index, and what follows.
struct RowProgramDefaults {
  using Attributes = List<>;
  using Stack = List<>;
  using Extremes = List<>;
  using Passes = List<>;
  using Picks = List<>;
  struct Held {};
  static constexpr bool BLOCKS = false, LATE_COLUMNS = false, LONE_FINISH = false, LONE_ENDS = false;
  static constexpr int STAGE = 0, COSTLY = 0, STRIPE = 0;
  static constexpr u32 BESIDE = 0;
  template <typename S> static __device__ void finish(S&) {}
};
