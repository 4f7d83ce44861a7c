// Passes that only reduce, down rows that lie beside each other in memory, as columns do: a vector has an element of
// each, and no element changes places.
#pragma once
#include "makers.h"

constexpr int MOST_DOWN = 128, FEWEST_DOWN = 4;  // rows together: whole cache lines of a page
constexpr int ACCUMULATORS_DOWN = 1 << 16;       // of all rows together, so that they stay in a cache

template <typename P, typename Pass, int I, bool REDUCES = type_at<typename Pass::Makes, I>::reduces>
constexpr bool reduces_down = false;
template <typename P, typename Pass, int I>
constexpr bool reduces_down<P, Pass, I, true> =
    !Maker<P, Pass, I>::asks && std::is_arithmetic_v<typename Maker<P, Pass, I>::V>;

template <typename P, typename Pass, int... I> constexpr bool reduce_down(Seq<I...>) {
  return Pass::HELD_FRESH == 0 && Pass::HELD_TAKEN == 0 && !in_slabs<P> && (reduces_down<P, Pass, I> && ...);
}
template <typename P, typename Pass>
constexpr bool goes_down = reduce_down<P, Pass>(typename Pass::Makes::Index());
template <typename P, typename... Pass> constexpr bool only_down(List<Pass...>) {
  return (goes_down<P, Pass> && ...);
}

template <typename P, typename Pass, typename S, typename T> struct RunDown;
template <typename P, typename Pass, int... I, int... N> struct RunDown<P, Pass, Seq<I...>, Seq<N...>> {
  using Lines = RowLines<P>;
  using C = typename P::C;
  template <int K> using How = typename Maker<P, Pass, K>::How;
  template <int K> using V = typename Maker<P, Pass, K>::V;
  struct Room {
    typename Lines::template ValuesOf<GROUP * MOST_DOWN> in;
    Tuple<V<I>[GROUP * MOST_DOWN]...> values;
    Tuple<V<I>[ACCUMULATORS_DOWN]...> of;
    Tuple<Segments<How<I>, V<I>, true>[MOST_DOWN]...> total;
  };

  // How many rows, from the first on, lie beside each other in each input, or have it in common.
  static int beside(const RowState<P>* rows, int count) {
    int found = 1;
    while (found < count && rows[found].length == rows->length && (follows<N>(rows, found) && ...)) ++found;
    return found;
  }
  static void run(RowState<P>* rows, int count, int accumulators) {
    static thread_local const std::unique_ptr<Room> room(new Room);
    const int most = min(MOST_DOWN, ACCUMULATORS_DOWN / accumulators);
    for (int begin = 0; begin < count; begin += most)
      run_some(*room, rows + begin, min(most, count - begin), accumulators);
  }

 private:
  template <int K> static bool follows(const RowState<P>* rows, int row) {
    if constexpr ((Pass::READS >> K & 1) == 0) return true;
    using E = element_in<P, K>;
    const auto line = [&](int of) -> const auto& { return get<K>(rows[of].lines.in); };
    const i64 step = line(1).offset - line(0).offset;
    return storage<E>::bits >= 8 && !IS_PLACE<E> && line(0).along->axes <= 1 && (step == 0 || step == 1) &&
           line(row).offset == line(0).offset + row * step;
  }

  static void run_some(Room& room, RowState<P>* rows, int count, int accumulators) {
    Pass passes[MOST_DOWN];
    bool fast = true;
    const i64 length = rows->length;
    for (int row = 0; row < count; ++row) {
      passes[row] = pass_for<Pass>(rows[row].shared);
      fast = fast && passes[row].fast();
      ((get<I>(room.total)[row].count = 0), ...);
    }
    i64 start = 0;
    do {
      (clear<I>(room, accumulators * count), ...);
      for (i64 first = start; first < min(length, start + SEGMENT); first += GROUP) {
        const int lanes = int(min(i64(GROUP), length - first));
        (load<N>(room, rows, count, first, lanes), ...);
        if (!(fast && compute<true>(room, passes, count, lanes)))
          compute<!Pass::CAREFUL>(room, passes, count, lanes);
        const int accumulator = int(first / GROUP) & (accumulators - 1);
        (add<I>(room, count, lanes, accumulator), ...);
      }
      (end_segment<I>(room, count, accumulators), ...);
      start += SEGMENT;
    } while (start < length);
    for (int row = 0; row < count; ++row)
      (Maker<P, Pass, I>::give(rows[row].shared, get<I>(room.total)[row], length == 0), ...);
  }
  template <int K> static void clear(Room& room, int count) {
    for (int i = 0; i < count; ++i) get<K>(room.of)[i] = How<K>::template nothing<V<K>>();
  }
  // The elements of a group of each row, row beside row.
  template <int K> static void load(Room& room, const RowState<P>* rows, int count, i64 first, int lanes) {
    if constexpr ((Pass::READS >> K & 1) != 0) {
      using E = element_in<P, K>;
      using F = formula_t<C, E>;
      const RowLine<E>& line = get<K>(rows->lines.in);
      const i64 step = line.along->of[INNER - 1];
      const bool common = get<K>(rows[1].lines.in).offset == line.offset;
      for (int lane = 0; lane < lanes; ++lane) {
        const storage_t<E>* const from = line.data + line.offset + (first + lane) * step;
        F* const to = &get<K>(room.in)[lane * MOST_DOWN];
        if (common) {
          const F value = F(widen(*from));
          for (int row = 0; row < count; ++row) to[row] = value;
          continue;
        }
        const char* const later = reinterpret_cast<const char*>(from + LINES_AHEAD * step);
        for (int i = 0; i < count * int(sizeof *from); i += 64) __builtin_prefetch(later + i);
        for (int row = 0; row < count; ++row) to[row] = F(widen(from[row]));
      }
    }
  }
  template <bool FAST> static bool compute(Room& room, const Pass* passes, int count, int lanes) {
    int usual = 1;
    for (int lane = 0; lane < lanes; ++lane)
      for (int row = 0; row < count; ++row) {
        const int at = lane * MOST_DOWN + row;
        bool own_usual = true;
        typename P::Held own;
        const auto found = passes[row].template of<FAST, (P::COSTLY > 0) ? HOLDS_EARLIER : 0>(
            Lines::template element<Pass::READS>(room.in, at), own, own_usual);
        ((get<I>(room.values)[at] = get<I>(found)), ...);
        usual &= own_usual;
      }
    return usual;
  }
  template <int K> static void add(Room& room, int count, int lanes, int accumulator) {
    V<K>* const values = get<K>(room.values);
    V<K>* const of = &get<K>(room.of)[accumulator * count];
    for (int i = lanes * MOST_DOWN; i < GROUP * MOST_DOWN; ++i) values[i] = How<K>::template nothing<V<K>>();
    // Spelled out, as compilers make no vectors of a loop with loops in it.
    for (int row = 0; row < count; ++row) {
      const V<K>* const at = values + row;
      const V<K> a = How<K>::of(at[0], at[MOST_DOWN]), b = How<K>::of(at[2 * MOST_DOWN], at[3 * MOST_DOWN]);
      const V<K> c = How<K>::of(at[4 * MOST_DOWN], at[5 * MOST_DOWN]), d = How<K>::of(at[6 * MOST_DOWN], at[7 * MOST_DOWN]);
      of[row] = How<K>::of(of[row], How<K>::of(How<K>::of(a, b), How<K>::of(c, d)));
    }
  }
  template <int K> static void end_segment(Room& room, int count, int accumulators) {
    V<K>* const of = get<K>(room.of);
    for (int left = accumulators / 2; left > 0; left /= 2)
      for (int i = 0; i < left; ++i)
        for (int row = 0; row < count; ++row)
          of[i * count + row] = How<K>::of(of[2 * i * count + row], of[(2 * i + 1) * count + row]);
    for (int row = 0; row < count; ++row) get<K>(room.total)[row].add(of[row]);
  }
};
