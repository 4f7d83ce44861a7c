// What passes make of rows: reductions, whose sums have the order of model/sum_order.py, and outputs.
#pragma once
#include "row_lines.h"

constexpr int GROUPS = BLOCK / GROUP;  // of a block

// The passes of a program. A stage of several kernels has one.
template <typename P, int N> struct PassesOf { using type = typename P::Passes; };
template <typename P> struct PassesOf<P, 0> { using type = List<typename P::SplitPass, EmptyPass>; };
template <typename P> using passes_of = typename PassesOf<P, P::Passes::size>::type;
template <typename P> using last_pass = type_at<passes_of<P>, passes_of<P>::size - 1>;
template <typename... Make> constexpr bool makes_output(int output, List<Make...>) {
  return ((Make::output == output) || ... || false);
}

inline int accumulators_of(i64 length) {
  i64 wanted = 1;
  while (wanted < ACCUMULATORS && wanted * GROUP * 4 < length) wanted *= 2;
  return int(max(wanted, i64(FEWEST)));
}

// The type of a value that a pass makes.
template <typename... V> List<V...> types_in(const Tuple<V...>&);
template <typename P, typename Pass, int I>
using value_of = type_at<
    decltype(types_in(static_cast<const Pass*>(nullptr)->template of<true, 0>(
        *static_cast<const typename P::Element*>(nullptr), *static_cast<typename P::Held*>(nullptr),
        *static_cast<bool*>(nullptr)))),
    I>;

// What is kept of an element until its group is joined.
template <typename How, typename V> struct gathered { using type = state_t<How, V>; };
template <typename V> struct gathered<SquaredDeviations, V> { using type = V; };
template <typename V> struct gathered<LogSumExp, V> { using type = V; };
template <typename V> struct gathered<ArgLargest, V> { using type = V; };
template <typename V> struct gathered<ArgSmallest, V> { using type = V; };

// Of each group what its neighbours make; values count for nothing up to the end of the last eight groups.
template <typename How, typename V> inline void join_neighbours(const V* values, int groups, V* joined) {
#ifdef HAS_EIGHTS
  if constexpr (same<How, Sum> && same<V, f32>) {
    for (int i = 0; i < groups; i += 8) sum_eight_groups(&values[i * GROUP], &joined[i]);
    return;
  }
#endif
  V pairs[BLOCK / 2], fours[BLOCK / 4];
  for (int i = 0; i < groups * 4; ++i) pairs[i] = How::of(values[2 * i], values[2 * i + 1]);
  for (int i = 0; i < groups * 2; ++i) fours[i] = How::of(pairs[2 * i], pairs[2 * i + 1]);
  for (int i = 0; i < groups; ++i) joined[i] = How::of(fours[2 * i], fours[2 * i + 1]);
}
// As many results as groups, of a whole block, where order makes no difference: vectors of them need no neighbours.
template <typename How, typename V> inline void join_any(const V* values, V* joined) {
  if constexpr ((same<How, Largest> || same<How, Smallest>) && std::is_floating_point_v<V>) {
    int known[GROUPS];  // neither NaN nor the sign of a zero is to be told
    for (int i = 0; i < GROUPS; ++i) joined[i] = values[i], known[i] = values[i] == values[i];
    for (int start = GROUPS; start < BLOCK; start += GROUPS)
      for (int i = 0; i < GROUPS; ++i) {
        const V a = joined[i], b = values[start + i];
        joined[i] = (same<How, Largest> ? a > b : a < b) ? a : b;
        known[i] &= b == b;
      }
    int all = 1;
    for (int i = 0; i < GROUPS; ++i) all &= known[i] & (joined[i] != 0);
    if (all) return;
  }
  V left[BLOCK / 2];
  for (int i = 0; i < BLOCK / 2; ++i) left[i] = How::of(values[i], values[BLOCK / 2 + i]);
  for (int half = BLOCK / 4; half >= GROUPS; half /= 2)
    for (int i = 0; i < half; ++i) left[i] = How::of(left[i], left[half + i]);
  for (int i = 0; i < GROUPS; ++i) joined[i] = left[i];
}
template <typename How> constexpr bool seeks = same<How, ArgLargest> || same<How, ArgSmallest>;
// The extreme of a block's values, of which `count` are there. Its index is sought where the block has a better one than
// what was found before: of few blocks.
template <typename How, typename V> inline void seek(ValueAndIndex<V>& found, const V* values, i64 first, int count) {
  using Best = typename extreme_of<How>::type;
  V joined[GROUPS], whole[BLOCK];
  if (count < BLOCK) {
    for (int i = 0; i < BLOCK; ++i) whole[i] = i < count ? values[i] : Best::template nothing<V>();
    values = whole;
  }
  join_any<Best>(values, joined);
  V best = joined[0];
  for (int i = 1; i < GROUPS; ++i) best = Best::of(best, joined[i]);
  if (How::of(found, ValueAndIndex<V>{best, first}).index != first) return;
  int lane = 0;
  while (values[lane] != best && values[lane] == values[lane]) ++lane;  // NaN is best
  found = {best, first + lane};
}
// The moments of a group, element by element.
template <typename V> inline Moments<V> moments_of_some(const V* values, int count) {
  Moments<V> group[GROUP];
  for (int i = 0; i < GROUP; ++i)
    group[i] = i < count ? Moments<V>{V(1), values[i], V(0), V(0)} : SquaredDeviations::nothing<Moments<V>>();
  return moments_of(group);
}
// The moments of each group of a block, many groups side by side.
template <typename V> inline void join_moments(const V* values, int count, Moments<V>* joined) {
  const int groups = count / GROUP, eights = (groups + 7) / 8 * 8;
  V distances[BLOCK], offsets[GROUPS], squares[GROUPS];
  for (int i = 0; i < groups; ++i)
    for (int lane = 0; lane < GROUP; ++lane) distances[i * GROUP + lane] = values[i * GROUP + lane] - values[i * GROUP];
  for (int i = groups * GROUP; i < eights * GROUP; ++i) distances[i] = V(0);
  join_neighbours<Sum>(distances, groups, offsets);
  for (int i = 0; i < eights; ++i) {
    offsets[i] = offsets[i] * V(1.0 / GROUP);
    for (int lane = 0; lane < GROUP; ++lane) {
      const V distance = distances[i * GROUP + lane] - offsets[i];
      distances[i * GROUP + lane] = distance * distance;
    }
  }
  join_neighbours<Sum>(distances, groups, squares);
  for (int i = 0; i < groups; ++i)
    joined[i] = is_finite(offsets[i]) ? Moments<V>{V(GROUP), values[i * GROUP], offsets[i], squares[i]}
                                      : moments_of_some(values + i * GROUP, GROUP);
  if (count % GROUP != 0) joined[groups] = moments_of_some(values + groups * GROUP, count % GROUP);
}

// The sums of exponentials of each group of a block. LOG: LogSumExp, which only programs that take it have.
template <typename LOG, typename V> inline void join_exponentials(const V* values, int count, Exponentials<V>* joined) {
  const int groups = (count + GROUP - 1) / GROUP, eights = (groups + 7) / 8 * 8;
  V all[BLOCK], largest[GROUPS], anchors[GROUPS], sums[GROUPS];
  for (int i = 0; i < eights * GROUP; ++i) all[i] = i < count ? values[i] : Largest::nothing<V>();
  join_neighbours<Largest>(all, eights, largest);
  for (int i = 0; i < eights; ++i) anchors[i] = LOG::anchor(largest[i]);
  for (int i = 0; i < eights; ++i)
    for (int lane = 0; lane < GROUP; ++lane) all[i * GROUP + lane] = LOG::power(all[i * GROUP + lane] - anchors[i]);
  join_neighbours<Sum>(all, eights, sums);
  for (int i = 0; i < groups; ++i) joined[i] = {largest[i], is_finite(largest[i]) ? sums[i] : V(0)};
}

// What a pass makes of a row: a reduction.
template <typename P, typename Pass, int I, bool REDUCES = type_at<typename Pass::Makes, I>::reduces> struct Maker {
  using Make = type_at<typename Pass::Makes, I>;
  using How = typename Make::How;
  using V = state_t<How, typename Make::Value>;
  using Element = typename gathered<How, typename Make::Value>::type;
  using Shared = typename P::Shared;
  static constexpr bool asks = !same<const decltype(nullptr), decltype(Make::finite)>;  // whether values are finite
  V of[ACCUMULATORS];
  Segments<How, V, true> total;
  bool finite;
  i64 slab, missing;  // elements of a slab, and those that the one which was begun lacks

  void begin(Shared&, i64 length) {
    slab = slab_of(length);
    total.count = 0;
    finite = true;
  }
  // How many of a row's accumulators are told apart: where order makes no difference, as many as a block has results for.
  static int told(int accumulators) { return ordered<How> ? accumulators : min(accumulators, GROUPS); }
  void begin_segment(int accumulators) {
    missing = slab;
    for (int i = 0; i < told(accumulators); ++i) of[i] = How::template nothing<V>();
  }
  void add(Element (&values)[BLOCK], i64 first, int count, int accumulators) {
    if constexpr (parted<How>) return add_some(values, first, count, accumulators);
    else if constexpr (seeks<How>) return seek<How>(of[0], values, first, count);
    else if constexpr (in_slabs<P>) return add_to_slabs(values, count);
    else return add_values(values, first, count, accumulators);
  }
  // A whole block of values that stay as they are.
  void add_whole(const Element* values, i64 first, int accumulators) {
    V joined[GROUPS];
    if constexpr (seeks<How>) return seek<How>(of[0], values, first, BLOCK);
    else if constexpr (parted<How>) join_parted(values, BLOCK, joined);
    else if constexpr (ordered<How>) join_neighbours<How>(values, GROUPS, joined);
    else join_any<How>(values, joined);
    take(joined, GROUPS, first, accumulators);
  }
  static void join_parted(const Element* values, int count, V* joined) {
    if constexpr (same<How, LogSumExp>) join_exponentials<How>(values, count, joined);
    else join_moments(values, count, joined);
  }
  void add_some(const Element* values, i64 first, int count, int accumulators) {
    V joined[GROUPS];
    join_parted(values, count, joined);
    take(joined, (count + GROUP - 1) / GROUP, first, accumulators);
  }
  void add_values(V (&values)[BLOCK], i64 first, int count, int accumulators) {
    for (int i = count; i % GROUP != 0; ++i) values[i] = How::template nothing<V>();
    const int groups = (count + GROUP - 1) / GROUP;
    int made = groups;
    V joined[GROUPS];
    if (!ordered<How> && joins(values, groups * GROUP)) {
      for (int i = groups * GROUP; i < BLOCK; ++i) values[i] = How::template nothing<V>();
      join_any<How>(values, joined);
      made = GROUPS;
    } else if (ordered<How> && joins(values, groups * GROUP)) {
      for (int i = groups * GROUP; i < (groups + 7) / 8 * 8 * GROUP; ++i) values[i] = How::template nothing<V>();
      join_neighbours<How>(values, groups, joined);
    } else {
      for (int i = 0; i < groups; ++i)
        joined[i] = Group<How, V>::of(reinterpret_cast<V(&)[GROUP]>(values[i * GROUP]), finite);
    }
    take(joined, made, first, accumulators);
  }
  void end_segment(int accumulators) {
    if (in_slabs<P> && missing == slab) return;
    for (int left = told(accumulators) / 2; left > 0; left /= 2)
      for (int i = 0; i < left; ++i) of[i] = How::of(of[2 * i], of[2 * i + 1]);
    total.add(of[0]);
  }
  void end(Shared& shared, bool empty) {
    if constexpr (asks) shared.*Make::finite = finite;
    give(shared, total, empty);
  }
  static void give(Shared& shared, const Segments<How, V, true>& total, bool empty) {
    shared.*Make::member = result_of(empty ? How::template empty<V>() : total.total());
  }

 private:
  void take(const V* joined, int made, i64 first, int accumulators) {
    accumulators = told(accumulators);
    const int start = int(first / GROUP) & (accumulators - 1);
    for (int done = 0; done < made; done += accumulators) {
      const int some = min(accumulators, made - done);
      for (int i = 0; i < some; ++i) of[start + i] = How::of(of[start + i], joined[done + i]);
    }
  }
  void add_to_slabs(const V (&values)[BLOCK], int count) {
    for (int i = 0; i < count;) {
      const int end = int(min(i64(count), i + missing));
      V sum = of[0];
      missing -= end - i;
      for (; i < end; ++i) sum = How::of(sum, values[i]);
      of[0] = sum;
      if (missing > 0) continue;
      total.add(sum);
      begin_segment(1);
    }
  }
  // Whether groups are joined as they stand: they are where values that count for nothing would have to be finite, and
  // all are.
  static bool joins(V (&values)[BLOCK], int count) {
    if constexpr (same<How, LargestMagnitude> || same<How, LargestFinite> || same<How, SmallestFinite>) {
      int finite = 1;
      for (int i = 0; i < count; ++i) finite &= is_finite(values[i]);
      if (!finite) return false;
      if constexpr (same<How, LargestMagnitude>)
        for (int i = 0; i < count; ++i) values[i] = absolute(values[i]);
    }
    return true;
  }
};

// An output that has an element for each of a row's. The last pass stores it, unless only an earlier one makes it.
template <typename P, typename Pass, int N> struct Maker<P, Pass, N, false> {
  static constexpr int O = type_at<typename Pass::Makes, N>::output;
  static constexpr bool stores = same<Pass, last_pass<P>> || !makes_output(O, typename last_pass<P>::Makes());
  using V = kept_t<element_out<P, O>, value_of<P, Pass, N>>;
  using Element = V;
  using Shared = typename P::Shared;
  void begin(Shared&, i64) {}
  void begin_segment(int) {}
  void add(V (&)[BLOCK], i64, int, int) {}
  // `of` gives a row's values.
  template <typename Rows, typename Of>
  static void store(const Rows& rows, int count, i64 first, int some, const Of& of) {
    using E = element_out<P, O>;
    const auto line = [&](int row) -> const auto& { return get<O>(rows[row].lines.out); };
    if (RowLine<E>::beside(count, line))
      line(0).each_beside(first, some, [&](storage_t<E>& to, int row, int lane) {
        if constexpr (storage<E>::bits >= 8) to = narrow_to<E>::from(of(row)[lane]);
      });
    else
      for (int row = 0; row < count; ++row) line(row).store(of(row), first, some);
  }
  void end_segment(int) {}
  void end(Shared&, bool) {}
};

template <typename Make, typename To, typename V> inline void put(To& to, V value, i64 index) {
  if constexpr (same<To, V>) to = value;
  else if constexpr (Make::reduces) to = state_of<typename Make::How>(value, index);
  else to = To(value);
}
