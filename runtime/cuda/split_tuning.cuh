// How the kernels of a split reduction use a multiprocessor: what they have under way, and what room they leave.
#pragma once
#include "split_args.cuh"

// What counts for a kernel's registers and its loads.
template <typename P, typename S> struct SplitTraitsOf;
template <typename P, int... R> struct SplitTraitsOf<P, Seq<R...>> {
  static constexpr int bits = operands_of<P>::array_bits;  // of an element of all inputs
  static constexpr bool stores = made_of<P>::stores > 0;
  static constexpr bool bytes = bits == 8 && !stores;  // neighbours of which are taken in words
  static constexpr bool once = P::STAGE == 0 && !stores;  // nothing reads inputs again
  // A value that goes on with its index takes registers.
  static constexpr bool indices =
      (!same<state_of_reduction<reduction_at<P, R>>, typename reduction_at<P, R>::Value> || ...);
  static constexpr bool extremes = P::Extremes::size > 0;
  static constexpr bool ordered = (::ordered<typename reduction_at<P, R>::How> || ...);
  static constexpr bool wide = sizeof(typename P::C) > 4;
  static constexpr bool of_words = ((sizeof(typename reduction_at<P, R>::Value) <= 4) && ...);
  static constexpr bool moments = (same<typename reduction_at<P, R>::How, SquaredDeviations> || ...);
  static constexpr bool parted = (::parted<typename reduction_at<P, R>::How> || ...);
  static constexpr bool light = made_of<P>::reductions == 1 && operands_of<P>::elements == 1 && !stores && !indices;
};
template <typename P> using SplitTraits = SplitTraitsOf<P, reductions_of<P>>;

// Groups along a row that a thread loads at once. Fewer wide ones beside outputs,
// which take registers too.
template <typename P, int MODE> __device__ constexpr int turns_along() {
  using Traits = SplitTraits<P>;
  constexpr int most = MODE == STEPPED ? ACCUMULATOR_GROUPS : SPLIT_ALONG_TURNS;  // elements come in a register each
  if (Traits::indices && !Traits::extremes) 
    return larger(2, turns_of(Traits::bits, SPLIT_ALONG_INDEX_BITS, SPLIT_ALONG_INDEX_TURNS));
  return larger(Traits::stores ? 1 : 2, turns_of(Traits::bits, SPLIT_ALONG_BITS, most));
}
// Groups of each of its rows beside each other: more where few bytes would be under way. Elements of less than a word
// that are loaded one by one take a register each, which moments leave no room for. Of slabs there are few threads.
template <typename P, int LANES, int LIE> __device__ constexpr int turns_across() {
  using Traits = SplitTraits<P>;
  if (Traits::stores || (Traits::parted && LIE == COLUMNS_APART && Traits::bits < 32)) return 1;
  constexpr int bits = LANES * Traits::bits;
  const int two = in_slabs<P> || (Traits::indices && !Traits::bytes && bits <= SPLIT_ACROSS_INDEX_BITS) ? 2 : 1;
  return larger(two, turns_of(bits, SPLIT_ACROSS_BITS, SPLIT_ACROSS_TURNS));
}
// Whether a thread across rows has its next groups brought into the L2 cache: where few bytes are under way, or much is
// computed before the next are loaded. Where many are, asking for more only takes their place.
template <typename P, int LANES, int LIE> __device__ constexpr bool asks_ahead() {
  using Traits = SplitTraits<P>;
  return LANES > 1 && (Traits::stores || turns_across<P, LANES, LIE>() * LANES * Traits::bits <= SPLIT_ASK_BITS);
}

// Blocks that a multiprocessor is to have room for. Along rows the loads of few are enough: with more, loads would
// wait for registers, of which the words around misaligned groups take twice as many. Across rows more would spill, and
// two where a thread has eight rows of several inputs; of slabs there are few blocks.
template <typename P, int MODE> __device__ constexpr int blocks_along() {
  using Traits = SplitTraits<P>;
  if (Traits::stores) return 1;
  if (MODE == WHOLE) return Traits::wide ? 1 : SPLIT_ROOM_LIGHT;
  return SPLIT_ROOM;
}
template <typename P, int LANES, bool ALIGNED> __device__ constexpr int blocks_across() {
  using Traits = SplitTraits<P>;
  if (Traits::bytes) return SPLIT_ROOM;
  if (Traits::moments && LANES == 2 && !in_slabs<P>) return !Traits::wide && ALIGNED ? SPLIT_ROOM_LIGHT : SPLIT_ROOM;
  if (Traits::wide || in_slabs<P> || (LANES >= 8 && operands_of<P>::elements > 1)) return 1;
  if (Traits::light) return ALIGNED || LANES == 1 || !Traits::of_words ? SPLIT_ROOM : SPLIT_ROOM_LIGHT;
  return Traits::indices && !Traits::parted && ALIGNED && LANES > 1 ? SPLIT_ROOM_LIGHT : SPLIT_ROOM;
}
