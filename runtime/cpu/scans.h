// Programs that scan rows, on the CPU: tile by tile, in the order of model/scan_order.py.
#pragma once
#include "scans.cuh"
#include "rows.h"

constexpr int TILE_GROUPS = SCAN_WARP * SCAN_TILE, TILE = TILE_GROUPS * GROUP;

// One scan of a row. Places count groups of a tile from the end at which the scan begins.
template <typename Make> struct Scanner {
  using How = typename Make::How;
  using V = scan_state<Make>;
  ScanGroup<Make> groups[TILE_GROUPS];
  V totals[TILE_GROUPS], before[TILE_GROUPS];
  ScanCarry<How, V> carry;

  // Totals become their scans, as a tree.
  template <int COUNT> static void scan(V* of) {
    for (int half = 1; half < COUNT; half *= 2)
      for (int i = 0; i < COUNT; ++i)
        if (i & half) of[i] = How::of(of[(i & -2 * half) + half - 1], of[i]);
  }
  // What comes before each group. Places from `count` on have none.
  void join(int count) {
    for (int place = count; place < TILE_GROUPS; ++place) totals[place] = How::template nothing<V>();
    V warps[SCAN_TILE];
    for (int warp = 0; warp < SCAN_TILE; ++warp) {
      scan<SCAN_WARP>(totals + warp * SCAN_WARP);
      warps[warp] = totals[(warp + 1) * SCAN_WARP - 1];
    }
    scan<SCAN_TILE>(warps);
    for (int place = 0; place < count; ++place) {
      const int warp = place / SCAN_WARP;
      const V of_warps = How::of(carry.before(), warp > 0 ? warps[warp - 1] : How::template nothing<V>());
      before[place] = How::of(of_warps, place % SCAN_WARP > 0 ? totals[place - 1] : How::template nothing<V>());
    }
    carry.add(warps[SCAN_TILE - 1]);
  }
};

template <typename P, typename S, typename O> struct RunScans;
template <typename P, int... I, int... O> struct RunScans<P, Seq<I...>, Seq<O...>> {
  using Passes = ScanPasses<P>;
  using First = typename Passes::First;
  using Last = typename Passes::Last;
  using Lines = RowLines<P>;
  static constexpr bool REVERSE = Passes::reverse;

  Tuple<Scanner<typename Passes::template scan<I>>...> of;
  typename P::Held held[TILE];
  typename Lines::Values in[1];
  Tuple<typename Maker<P, Last, O>::V[BLOCK]...> values;

  void run(RowState<P>& row) {
    ((get<I>(of).carry = {}), ...);
    const i64 groups = (row.length + GROUP - 1) / GROUP;
    const First first(row.shared);
    const Last last(row.shared);
    for (i64 begin = 0; begin < groups; begin += TILE_GROUPS) {
      const int count = int(min(i64(TILE_GROUPS), groups - begin));
      const i64 from = (REVERSE ? groups - begin - count : begin) * GROUP;
      const int elements = int(min(i64(count) * GROUP, row.length - from));
      each_block(elements, [&](int at, int some) { scanned(first, row, from, at, some); });
      (scan<I>(row, from, count), ...);
      each_block(elements, [&](int at, int some) { stored(last, row, from, at, some); });
    }
  }

 private:
  template <typename F> static void each_block(int elements, const F& take) {
    for (int at = 0; at < elements; at += BLOCK) take(at, min(BLOCK, elements - at));
  }

  void scanned(const First& pass, RowState<P>& row, i64 from, int at, int some) {
    Lines::template load<First::READS>(in, &row, 1, from + at, some);
    const auto take = [&](int lane, const auto& found) {
      const int place = at + lane;
      ((get<I>(of).groups[place / GROUP].of[place % GROUP] = get<I>(found)), ...);
    };
    if (!compute<true, 0>(pass, at, some, take) && First::CAREFUL) compute<false, 0>(pass, at, some, take);
  }
  template <int K> void scan(RowState<P>& row, i64 from, int count) {
    auto& scanner = get<K>(of);
    const auto place = [&](int group) { return REVERSE ? count - 1 - group : group; };
    for (int group = 0; group < count; ++group)
      scanner.totals[place(group)] = scanner.groups[group].scan(row.length - from - group * GROUP);
    scanner.join(count);
    for (int group = 0; group < count; ++group) {
      const i64 first = from + group * GROUP, start = REVERSE ? row.length - 1 : 0;  // the row's first element
      for (int lane = 0; lane < GROUP; ++lane)
        held[group * GROUP + lane].*Passes::template scan<K>::member =
            scanner.groups[group].value(lane, scanner.before[place(group)], first + lane == start);
    }
  }
  void stored(const Last& pass, RowState<P>& row, i64 from, int at, int some) {
    Lines::template load<Last::READS>(in, &row, 1, from + at, some);
    const auto take = [&](int lane, const auto& found) {
      (put<type_at<typename Last::Makes, O>>(get<O>(values)[lane], get<O>(found), 0), ...);
    };
    if (!compute<true, HOLDS_EARLIER>(pass, at, some, take) && Last::CAREFUL)
      compute<false, HOLDS_EARLIER>(pass, at, some, take);
    (Maker<P, Last, O>::store(&row, 1, from + at, some, [&](int) -> const auto& { return get<O>(values); }), ...);
  }
  // Computes a pass for a block; false if a quick form did not hold.
  template <bool FAST, int KNOWN, typename Pass, typename Take>
  bool compute(const Pass& pass, int at, int some, const Take& take) {
    if (FAST && Pass::CAREFUL && !pass.fast()) return false;
    int usual = 1;
    for (int lane = 0; lane < some; ++lane) {
      bool own_usual = true;
      take(lane, pass.template of<FAST, KNOWN>(
                     Lines::template element<Pass::READS>(in[0], lane), held[at + lane], own_usual));
      usual &= own_usual;
    }
    return usual;
  }
};

// Rows `begin` to `end`.
template <typename P, int... O> inline void store_of_rows(const RowArgs<P>& args, const RowState<P>& row, Seq<O...>) {
  (store_shared<P, O>(args, row), ...);
}
template <typename P> void cpu_scans(const void* arguments, i64 begin, i64 end) {
  using Run = RunScans<P, make_seq<ScanPasses<P>::scans>, typename ScanPasses<P>::Last::Makes::Index>;
  const auto& args = *static_cast<const RowArgs<P>*>(arguments);
  const std::unique_ptr<Run> run(new Run);
  for (i64 index = begin; index < end; ++index) {
    RowState<P> row;
    row.at = args.rows.position(index);
    row.length = args.rows.length_of(row.at);
    row.lines.set(args, row.at);
    row.shared = shared_at_start<P>(args, row.at, typename P::C(row.length));
    P::finish(row.shared);
    store_of_rows(args, row, make_seq<operands_of<P>::outputs>());
    run->run(row);
  }
}
