// The kernel of few rows, which begin equally far apart: launches and loads take the time, not bytes. Its argument is
// small, columns are read with the row up to more registers than elsewhere, and it is a dependent launch.
#pragma once
#include "dependent_launch.cuh"
#include "row.cuh"

// As Strides, of rows alone: whatever axis is asked for, it is theirs.
struct Apart {
  struct Step {
    i64 elements;
    __device__ i64 operator[](int) const { return elements; }
  } of;
};

// As RowSpace.
struct RowsApart {
  i64 rows, length;
  __device__ bool plain() const { return true; }
  __device__ RowSpace::Position position(i64 row) const { return {row, false, 0, 0}; }
  __device__ i64 length_of(const RowSpace::Position&) const { return length; }
  __device__ i64 offset(const RowSpace::Position& at, const Apart& strides) const { return at.row * strides.of[0]; }
};

// As ElementsArgs, ResultsArgs and PerRowArgs: an operand with elements along a row, which are neighbours, or with one
// of each row.
template <typename A> struct ApartArgs {
  A* array;
  Apart strides;
  static constexpr Along steps = {1, {0, 0, 0, 1}, {}};
  static constexpr Span span = {};
};
template <typename Role> struct FewRole {
  using E = typename Role::element;
  using Input = ApartArgs<const storage_t<E>>;
  using Output = ApartArgs<storage_t<E>>;
};
template <typename E> struct FewRole<ScalarOf<E>> { using Input = Scalar<E>; };

template <typename Inputs, typename Attributes, typename Outputs> struct FewOperands;
template <typename... I, typename... A, typename... O> struct FewOperands<List<I...>, List<A...>, List<O...>> {
  using Args = Tuple<typename FewRole<I>::Input..., A..., typename FewRole<O>::Output...>;
};
template <typename P>
using FewRowsArgs =
    RowArgsOf<P, RowsApart, typename FewOperands<typename P::Inputs, typename P::Attributes, typename P::Outputs>::Args>;

// Where threads hold one chunk each, several share an accumulator: a thread has fewer instructions to fetch.
template <typename P, int THREADS, int CHUNKS> struct FewRowsSchedule : RowSchedule<P, THREADS, CHUNKS, true, WHOLE> {
  using Base = RowSchedule<P, THREADS, CHUNKS, true, WHOLE>;
  using Operands = typename Base::Operands;
  using Args = FewRowsArgs<P>;
  static constexpr int SPREAD = CHUNKS == 1 ? ACCUMULATOR_GROUPS : 1;
  static constexpr int REGISTERS_OF_COLUMNS = CHUNKS * GROUP * (Operands::column_bits + P::LIVE_BITS) / 32;
  static constexpr bool EARLY =
      Operands::columns_read > 0 && !P::LATE_COLUMNS && REGISTERS_OF_COLUMNS <= FEW_ROWS_REGISTERS;
  static constexpr bool NEAR = false, LATER = false;
};

template <typename P, int THREADS, int CHUNKS>
__global__ void __launch_bounds__(FewRowsSchedule<P, THREADS, CHUNKS>::BLOCK)
    few_rows(const __grid_constant__ FewRowsArgs<P> args) {
  using S = FewRowsSchedule<P, THREADS, CHUNKS>;
  const ThreadRow<S> at(args);
  RowInputs<S> inputs;
  wait_for_earlier();
  inputs.load(args, at);
  let_next_begin();
  run_passes<S>(args, at, inputs, make_seq<S::LAST>());
}
