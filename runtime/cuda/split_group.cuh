// A group of neighbouring elements of a row: what a program's pass makes of each, joined to an accumulator.
#pragma once
#include "slabs.cuh"
#include "split_tuning.cuh"

// Of a group's elements, what a reduction takes.
template <typename V> struct GroupValues { V of[GROUP]; };

// A group is told by a struct G: `element(i)` is an element as formulas take it, `set<S>(i, value)` keeps what is
// stored of it. FAST: by quick forms, which tell in `usual` whether they held for all elements.
template <int FAST, typename P, typename G, typename Values, int... R, int... S>
__device__ inline void make_values(
    Values& values, const typename P::SplitPass& pass, G& group, bool& usual, Seq<R...>, Seq<S...>) {
#pragma unroll
  for (int i = 0; i < GROUP; ++i) {
    typename P::Held held;
    const auto made = pass.template of<FAST, 0>(group.element(i), held, usual);
    ((get<R>(values).of[i] = get<R>(made)), ...);
    (group.template set<S>(i, get<sizeof...(R) + S>(made)), ...);
  }
}

// The element type of what a reduction takes as it is stored; else that of its values.
template <typename P, typename R, bool STORED = (R::raw >= 0)> struct reduced_element { using type = typename R::Value; };
template <typename P, typename R> struct reduced_element<P, R, true> { using type = element_in<P, R::raw>; };

template <typename How, bool LEAVE_OUT, bool IN_SLABS, typename E, typename State, typename V>
__device__ inline void take_values(State& state, V (&values)[GROUP], bool whole, i32 exist, i64 first) {
  if constexpr (LEAVE_OUT)
    if (__builtin_expect(!whole, 0)) leave_out<How>(values, exist);
  if constexpr (IN_SLABS) {
#pragma unroll
    for (int i = 0; i < GROUP; ++i) state = How::of(state, values[i]);
  } else {
    take<How, E>(state, values, first);
  }
}

// Sums of exponentials that need no anchors go on with one branch for all rows beside each other, but those of f64,
// which take too many registers.
template <typename P, int R>
constexpr bool adds_near = same<typename reduction_at<P, R>::How, LogSumExp> && !SplitTraits<P>::wide;

// Of any elements. Out of line where there are several rows: it is taken for odd ones only, and would fill the kernels.
template <typename V> __device__ inline Moments<V> moments_of_any(const GroupValues<V>& values, bool whole, i32 exist) {
  Moments<V> group[GROUP];
#pragma unroll
  for (int i = 0; i < GROUP; ++i) group[i] = SquaredDeviations::of_one(values.of[i]);
  if (!whole) cut<SquaredDeviations>(group, exist);
  return joined<SquaredDeviations>(group);
}
template <typename V>
__device__ __noinline__ Moments<V> moments_out_of_line(GroupValues<V> values, bool whole, i32 exist) {
  return moments_of_any(values, whole, exist);
}
// The moments of the first `exist` elements of each row's group, which are among its first N: whether all are usual.
template <int R, int N, int LANES, typename V, typename Values>
__device__ inline bool find_some(Moments<V> (&found)[LANES], Values (&values)[LANES], i32 exist) {
  const DivisorFromOne<V> count{V(exist)};
  bool usual = true;
#pragma unroll
  for (int lane = 0; lane < LANES; ++lane) {
    found[lane] = moments_of_first<N>(get<R>(values[lane]).of, exist, count);
    usual = usual & sure_moments(found[lane], exist);
  }
  return usual;
}
// Takes these; false, and nothing, where a function for unusual elements is to take them.
template <typename P, int R, int LANES, typename Values>
__device__ inline bool take_some_moments(Accumulator<P>* totals, Values (&values)[LANES], i32 exist) {
  using V = typename reduction_at<P, R>::Value;
  Moments<V> found[LANES];
  const bool usual =
      exist <= GROUP / 2 ? find_some<R, GROUP / 2>(found, values, exist) : find_some<R, GROUP>(found, values, exist);
  if (__builtin_expect(!usual, 0)) return false;
  const V before = totals[0].StateSlot<P, R>::value.count;
#pragma unroll
  for (int lane = 0; lane < LANES; ++lane) {
    auto& state = totals[lane].StateSlot<P, R>::value;
    state.count = before;
    state = before == V(0) ? found[lane] : SquaredDeviations::of(state, found[lane]);
  }
  return true;
}

// What one reduction takes of groups of rows beside each other. The moments of these go on side by side, with one
// branch for all, and with one count: rows of one thread have as many elements.
template <typename P, int R, bool REPEATED, int LANES, typename Values>
__device__ inline void take_reduction(
    Accumulator<P>* totals, Values (&values)[LANES], bool whole, i32 exist, i64 first) {
  using How = typename reduction_at<P, R>::How;
  if constexpr (same<How, SquaredDeviations>) {
    if constexpr (REPEATED)  // across rows, where columns may be short
      if (__builtin_expect(!whole, 0))
        if (take_some_moments<P, R>(totals, values, exist)) return;
    state_of_reduction<reduction_at<P, R>> found[LANES];
    bool usual = whole;
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) {
      found[lane] = moments_of_whole(get<R>(values[lane]).of);
      usual = usual & is_finite(found[lane].offset);
    }
    if (__builtin_expect(!usual, 0)) {
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane)
        found[lane] = LANES == 1 ? moments_of_any(get<R>(values[lane]), whole, exist)
                                 : moments_out_of_line(get<R>(values[lane]), whole, exist);
    }
    const auto count = totals[0].StateSlot<P, R>::value.count;
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) {
      auto& state = totals[lane].StateSlot<P, R>::value;
      state.count = count;
      found[lane].count = typename P::C(exist);
      state = How::of(state, found[lane]);
    }
  } else if constexpr (!adds_near<P, R>) {
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane)
      take_values<How, !REPEATED || ordered<How>, in_slabs<P>, typename reduced_element<P, reduction_at<P, R>>::type>(
          totals[lane].StateSlot<P, R>::value, get<R>(values[lane]).of, whole, exist, first);
  }
}

template <typename P, int R, typename Values>
__device__ inline void find_near(
    Accumulator<P>& found, const Accumulator<P>& total, Values& values, bool whole, i32 exist, bool& usual) {
  if constexpr (adds_near<P, R>) {
    using How = typename reduction_at<P, R>::How;
    if (__builtin_expect(!whole, 0)) leave_out<How>(get<R>(values).of, exist);
    auto& group = found.StateSlot<P, R>::value;
    group = How::near_group(get<R>(values).of);
    usual = usual & How::near_after(total.StateSlot<P, R>::value, group);
  }
}
template <typename P, int R> __device__ inline void add_near(Accumulator<P>& total, const Accumulator<P>& found) {
  if constexpr (adds_near<P, R>) {
    auto& state = total.StateSlot<P, R>::value;
    state = reduction_at<P, R>::How::added(state, found.StateSlot<P, R>::value);
  }
}
template <typename P, int R, typename Values>
__device__ inline void take_far(Accumulator<P>& total, Values& values, bool whole, i32 exist) {
  if constexpr (adds_near<P, R>) {
    using How = typename reduction_at<P, R>::How;
    if (!whole) leave_out<How>(get<R>(values).of, exist);
    auto& state = total.StateSlot<P, R>::value;
    state = How::far_after(state, get<R>(values).of);
  }
}

// Takes groups of rows beside each other, which begin at `first` in their rows, in addition to what there is of the
// groups before them; group_of(lane) tells one. `exist` of the elements do; `whole`: all of them. REPEATED: the others
// are the last one again, which changes no extreme.
template <typename P, bool REPEATED, int LANES, typename GroupOf, int... R>
__device__ inline void take_group(
    Accumulator<P> (&totals)[LANES], const typename P::SplitPass (&passes)[LANES], const GroupOf& group_of, bool whole,
    i32 exist, i64 first, Seq<R...> reductions) {
  constexpr int TOGETHER = (same<typename reduction_at<P, R>::How, SquaredDeviations> || ...) ? LANES : 1;
  constexpr bool NEAR = (adds_near<P, R> || ...);
  using Values = Tuple<GroupValues<typename reduction_at<P, R>::Value>...>;
  const auto make = [&](int lane, Values& values) {
    const auto& pass = passes[lane];
    auto group = group_of(lane);
    bool usual = pass.fast();
    make_values<true, P>(values, pass, group, usual, reductions, stores_of<P>());
    if constexpr (P::SplitPass::CAREFUL)
      if (__builtin_expect(!usual, 0))
        make_values<false, P>(values, pass, group, usual, reductions, stores_of<P>());
  };
  Accumulator<P> found[NEAR ? LANES : 1];
  bool near = true;
#pragma unroll
  for (int begin = 0; begin < LANES; begin += TOGETHER) {
    Values values[TOGETHER];
#pragma unroll
    for (int lane = 0; lane < TOGETHER; ++lane) {
      make(begin + lane, values[lane]);
      if constexpr (NEAR)
        (find_near<P, R>(found[begin + lane], totals[begin + lane], values[lane], whole, exist, near), ...);
    }
    (take_reduction<P, R, REPEATED>(totals + begin, values, whole, exist, first), ...);
  }
  if constexpr (NEAR) {
    if (__builtin_expect(near, 1)) {
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane) (add_near<P, R>(totals[lane], found[lane]), ...);
    } else {
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane) {
        Values values;
        make(lane, values);
        (take_far<P, R>(totals[lane], values, whole, exist), ...);
      }
    }
  }
}

// Whether a program's reductions are extremes of bytes, or the indices of such. They are sought as neighbouring columns
// lie: four to a word.
template <typename How> constexpr bool seeks_largest = same<How, Largest> || same<How, ArgLargest>;
template <typename How> constexpr bool seeks_smallest = same<How, Smallest> || same<How, ArgSmallest>;
template <typename P, int... X> __device__ constexpr bool all_of_bytes(Seq<X...>) {
  return sizeof...(X) > 0 &&
         (((seeks_largest<typename type_at<typename P::Extremes, X>::How> ||
            seeks_smallest<typename type_at<typename P::Extremes, X>::How>) &&
           Format<element_in<P, type_at<typename P::Extremes, X>::raw>>::bits == 8 &&
           !Format<element_in<P, type_at<typename P::Extremes, X>::raw>>::real) && ...);
}
template <typename P> __device__ constexpr bool of_bytes() {
  return all_of_bytes<P>(typename P::Extremes::Index());
}

// Takes COUNT rows of neighbouring columns of bytes, the first of which is `first`. A byte is the high half of 16 bits
// that are compared; the low half tells the row where that is wanted, so that of equals the first is best.
template <typename P, int R, typename E, int LANES, int COUNT>
__device__ inline void take_bytes(Accumulator<P> (&totals)[LANES], const Lanes<E, LANES> (&rows)[COUNT], i64 first) {
  using How = typename reduction_at<P, R>::How;
  constexpr bool LARGEST = seeks_largest<How>, SIGNED = Format<E>::has_sign;
  constexpr bool INDEXED = same<How, ArgLargest> || same<How, ArgSmallest>;
#pragma unroll
  for (int word = 0; word < LANES / 4; ++word) {
    u32 even, odd;  // columns
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const u32 bytes = reinterpret_cast<const u32*>(rows[i].data)[word], tag = LARGEST ? GROUP - 1 - i : i;
      const u32 low = INDEXED ? __byte_perm(bytes, tag, 0x2404) : bytes << 8;
      const u32 high = INDEXED ? __byte_perm(bytes, tag, 0x3414) : bytes;
      even = i == 0 ? low : better_halves<LARGEST, SIGNED>(even, low);
      odd = i == 0 ? high : better_halves<LARGEST, SIGNED>(odd, high);
    }
#pragma unroll
    for (int byte = 0; byte < 4; ++byte) {
      const u32 pair = byte % 2 ? odd : even, half = byte < 2 ? pair << 16 : pair;  // in the upper half
      const i32 value = SIGNED ? i32(half) >> 24 : i32(half >> 24);
      auto& state = totals[word * 4 + byte].StateSlot<P, R>::value;
      if constexpr (!INDEXED) {
        state = How::of(state, i64(value));
      } else {
        const bool better = LARGEST ? value > state.value : value < state.value;
        const i32 tag = half >> 16 & 0xff;
        state.value = better ? value : state.value;
        state.index = better ? first + (LARGEST ? GROUP - 1 - tag : tag) : state.index;
      }
    }
  }
}
template <typename P, typename Groups, int LANES, int... R>
__device__ inline void take_bytes(
    Accumulator<P> (&totals)[LANES], const Groups& groups, i64 first, Seq<R...>) {
  (take_bytes<P, R>(totals, get<reduction_at<P, R>::raw>(groups).of, first), ...);
}
