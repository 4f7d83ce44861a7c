// The schedule rows: rows with any strides outside and any alignment, in shares of neighbours. Its operands are those
// of the schedule columns_unaligned too.
#pragma once
#include "elementwise_program.cuh"
#include "shift.cuh"
#include "index_space.cuh"

struct ShareMoves {
  template <typename E> struct Input {
    const storage_t<E>* data;
    Strides strides;
    i64 row, apart;
    Span span;
    template <int LANES> __device__ const storage_t<E>* start(const Shares& shares, const Shares::Position& at) const {
      return further(shares.template row_of<E>(data, at, strides, row), shares.template bytes_before<E, LANES>(at));
    }
    // Whether a thread's shares can be read in words.
    template <int LANES> __device__ bool inside(const storage_t<E>* from) const {
      return Around<E, LANES>::inside(from, data, span);
    }
    // A share that is under way, or else is read element by element.
    template <int N>
    __device__ void lanes(Lanes<E, N>& lanes, const Around<E, N>& around, const storage_t<E>* at, bool inside,
                          i32 count) const {
      lanes = inside ? around.lanes(at) : gather<E, N>(at, count);
    }
  };
  template <typename R> struct Run {
    using E = typename R::element;
    const storage_t<E>* data;
    Strides strides;
    i64 row, apart, step;
    __device__ const storage_t<E>* start(const Shares& shares, const Shares::Position& at) const {
      return shares.template row_of<E>(data, at, strides, row);
    }
    __device__ storage_t<E> entry(const Shares& shares, const Shares::Position& at, i64 index) const {
      return fetch(start(shares, at) + index * step);
    }
  };
  template <typename E> struct Output {
    storage_t<E>* data;
    Strides strides;
    i64 row, apart;
    template <int LANES> __device__ storage_t<E>* start(const Shares& shares, const Shares::Position& at) const {
      return further(shares.template row_of<E>(data, at, strides, row), shares.template bytes_before<E, LANES>(at));
    }
  };
};
template <typename P> using RowsArgs = typename Elementwise<P>::template Arguments<Shares, ShareMoves>;

template <int LANES, int DEPTH> struct RowsWords {
  template <typename E> struct type {
    Around<E, LANES> of[DEPTH];
  };
};
template <int LANES> struct RowsStores {
  template <typename E> using type = Joint<E, LANES>;
};
template <int DEPTH> struct RowsEntries {
  template <typename E> struct type {
    storage_t<E> of[DEPTH];
  };
};

template <typename P, int LANES> struct RowsShare {
  typename Elementwise<P>::template InputLanes<LANES> in;
  typename Elementwise<P>::template OutputLanes<LANES> out;
};

// A share that straddles runs, or has unusual shared values: one element at a time.
template <typename P, int LANES>
__device__ __noinline__ void rows_general(
    const RowsArgs<P>& args, const Shares::Position at, RowsShare<P, LANES>& share) {
  using E = Elementwise<P>;
  const Shares& shares = args.head;
  P program = E::made_once(args);
  int end = 0;
#pragma unroll 1
  for (int lane = 0; lane < at.count; ++lane) {
    if constexpr (E::HAS_RUNS) {
      if (lane == end) {
        const Shares::Run run = shares.template run_at<LANES>(at, lane);
        program = E::made(args, E::read_entries(args, shares, at, run.index));
        end = run.end;
      }
    }
    E::template set<LANES>(share.out, lane, E::value(program, E::template element<LANES>(share.in, lane)));
  }
}

// A thread takes LANES neighbours several times, with GROUPS loads under way.
template <typename P, int LANES, int GROUPS>
__global__ void __launch_bounds__(ELEMENTWISE_THREADS) rows(const __grid_constant__ RowsArgs<P> args) {
  using E = Elementwise<P>;
  const Shares& shares = args.head;
  const Shares::Position start = shares.template position<LANES>(blockIdx.x * ELEMENTWISE_THREADS + threadIdx.x);
  bool inside = true;
  typename E::InputStarts in_starts;
  typename E::RunStarts run_starts;
  typename E::OutputStarts out_starts;
  typename E::template OfOutputs<RowsStores<LANES>> joints;
  E::each_input(
      args,
      [&](const auto& input, auto& from) {
        from = input.template start<LANES>(shares, start);
        inside = inside && input.template inside<LANES>(from);
      },
      in_starts);
  E::each_run(args, [&](const auto& run, auto& from) { from = run.start(shares, start); }, run_starts);
  E::each_output(
      args, [&](const auto& output, auto& to) { to = output.template start<LANES>(shares, start); }, out_starts);
  wait_for_earlier();
  P program = E::made_once(args);
  i64 before = -1;
#pragma unroll 1
  for (int base = 0; base < i32(shares.depth); base += GROUPS) {
    // Loads of what runs share and of elements are all under way before the first is used.
    typename E::template OfInputs<RowsWords<LANES, GROUPS>> words;
    typename E::template OfRuns<RowsEntries<GROUPS>> entries = {};
    int fresh = 0, straddling = 0;
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
      const Shares::Position at = shares.template step<LANES>(start, base + group);
      if (at.count == 0) continue;
      if constexpr (E::HAS_RUNS) {
        const Shares::Run run = shares.template run_at<LANES>(at, 0);
        straddling |= run.end < at.count ? 1 << group : 0;
        if (run.index != before || i32(shares.below)) {
          fresh |= 1 << group;
          before = run.index;
          E::each_run(
              args,
              [&](const auto& shared, auto& own, const auto* from) {
                own.of[group] = fetch(further(from, (base + group) * shared.apart) + run.index * shared.step);
              },
              entries, run_starts);
        }
      }
      if (inside) {
        E::each_input(
            args,
            [&](const auto& input, auto& own, const auto* from) {
              own.of[group].load(further(from, (base + group) * input.apart), at.count);
            },
            words, in_starts);
      }
    }
    if (gridDim.x <= SOON_BLOCKS && base + GROUPS >= i32(shares.depth)) let_next_begin();

#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
      if (base + group >= i32(shares.depth)) break;
      const Shares::Position at = shares.template step<LANES>(start, base + group);
      if constexpr (E::HAS_RUNS) {
        if (fresh >> group & 1) {
          typename E::Given given;
          E::each_run(
              args, [&](const auto&, auto& value, const auto& own) { value = widen(own.of[group]); }, given, entries);
          program = E::made(args, given);
        }
      }
      typename E::template InputLanes<LANES> in;
      E::each_input(
          args,
          [&](const auto& input, auto& lanes, const auto& own, const auto* from) {
            input.template lanes<LANES>(
                lanes, own.of[group], further(from, (base + group) * input.apart), inside, at.count);
          },
          in, words, in_starts);
      typename E::template OutputLanes<LANES> out = {};
      if (program.fast() && (straddling >> group & 1) == 0) {
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane)
          E::template set<LANES>(out, lane, program.template of<FAST_FORM>(E::template element<LANES>(in, lane)));
      } else if (at.count > 0) {
        RowsShare<P, LANES> share = {};
        share.in = in;
        rows_general<P, LANES>(args, at, share);
        out = share.out;
      }
      E::each_output(
          args,
          [&](const auto& output, auto& lanes, auto& joint, auto* to) {
            joint.store(further(to, (base + group) * output.apart), at.count, shares.follows(at, base + group),
                        shares.followed(at, base + group), lanes);
          },
          out, joints, out_starts);
    }
  }
}
