// What schedules know of a program, the struct that is generated for an operation: lists of types, tuples of values, and
// the roles that operands have.
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
template <int I, typename V> __device__ inline V& get(Slot<I, V>& slot) { return slot.value; }
template <int I, typename V> __device__ inline const V& get(const Slot<I, V>& slot) { return slot.value; }

// The roles of operands. PerElement: one for each element of the output. PerRun (of elementwise programs): shared by the
// elements of a run. PerColumn and PerRow (of programs that reduce): one for each place along a row, shared by rows; one
// for each row. Scalar: one value. E: the element type.
template <typename E> struct PerElement { using element = E; };
template <typename E> struct PerRun { using element = E; };
template <typename E> struct PerBlock { using element = E; };  // PerRun whose runs are blocks along an axis
template <typename E> struct PerColumn { using element = E; };
template <typename E, auto Member = nullptr> struct PerRow { using element = E; };  // Member: of Shared, of an output
template <typename E> struct ScalarOf { using element = E; };
