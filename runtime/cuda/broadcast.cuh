// The schedule broadcast: outputs in one row without gaps, inputs with any strides.
#pragma once
#include "dependent_launch.cuh"
#include "elementwise_program.cuh"
#include "flat.cuh"

constexpr int BROADCAST_AXES = 4;

struct Broadcast {
  i64 length;
  Divide extent[BROADCAST_AXES - 1];  // of the axes but the outermost

  // An element: its number and its coordinates.
  struct Position {
    i32 first, of[BROADCAST_AXES];
  };
  __device__ Position position(i32 element) const {
    Position at;
    at.first = element;
#pragma unroll
    for (int axis = BROADCAST_AXES - 1; axis > 0; --axis) {
      const i32 above = extent[axis - 1](element);
      at.of[axis] = element - above * i32(extent[axis - 1].divisor);
      element = above;
    }
    at.of[0] = element;
    return at;
  }
};

// An input's strides; whether it lies as the outputs do.
struct BroadcastSteps {
  i64 of[BROADCAST_AXES], flat;

  __device__ i32 offset(const Broadcast::Position& at) const {
    i32 sum = 0;
#pragma unroll
    for (int axis = 0; axis < BROADCAST_AXES; ++axis) sum += at.of[axis] * i32(of[axis]);
    return sum;
  }
  // Where the last axis ends: how much further the next element is than one more along it. It begins at `at` then.
  __device__ i32 jump(const Broadcast& space, Broadcast::Position& at) const {
    i32 further = 0;
#pragma unroll
    for (int axis = BROADCAST_AXES - 1; axis > 0; --axis) {
      at.of[axis] = 0;
      further += i32(of[axis - 1]) - i32(space.extent[axis - 1].divisor) * i32(of[axis]);
      if (axis == 1 || ++at.of[axis - 1] < i32(space.extent[axis - 2].divisor)) break;
    }
    return further;
  }
};

template <typename E> struct BroadcastOperand {
  const storage_t<E>* data;
  BroadcastSteps steps;

  template <int N> __device__ Lanes<E, N> load(const Broadcast& space, Broadcast::Position at) const {
    const bool aligned = IS_PLACE<E> || (u64(data + at.first) & (alignof(Lanes<E, N>) - 1)) == 0;
    if (i32(steps.flat) && aligned) return ::load<true, E, N>(data, at.first, 0);
    constexpr int LAST = BROADCAST_AXES - 1;
    const i32 width = i32(space.extent[LAST - 1].divisor), step = i32(steps.of[LAST]);
    Lanes<E, N> lanes;
    i32 offset = steps.offset(at);
    if (N <= 4 || width < N) {  // few, or the axis may end several times
#pragma unroll
      for (int lane = 0; lane < N; ++lane) {
        lanes.data[lane] = fetch(data + offset);
        offset += step;
        if (++at.of[LAST] == width) offset += steps.jump(space, at);
      }
      return lanes;
    }
    const i32 left = width - at.of[LAST];
    const storage_t<E>* const here = data + offset;
    const storage_t<E>* const next = here + (left < N ? steps.jump(space, at) : 0);
    if (step == 0) {
      const storage_t<E> first = fetch(here), second = fetch(next);
#pragma unroll
      for (int lane = 0; lane < N; ++lane) lanes.data[lane] = lane < left ? first : second;
    } else if (step == 1) {
#pragma unroll
      for (int lane = 0; lane < N; ++lane) lanes.data[lane] = fetch((lane < left ? here : next) + lane);
    } else {
#pragma unroll
      for (int lane = 0; lane < N; ++lane) lanes.data[lane] = fetch((lane < left ? here : next) + lane * step);
    }
    return lanes;
  }
  __device__ compute_t<E> read(const Broadcast::Position& at) const { return ::read<E>(data, steps.offset(at)); }
};
struct BroadcastMoves {
  template <typename E> using Input = BroadcastOperand<E>;
  template <typename R> using Run = BroadcastOperand<typename R::element>;
  template <typename E> struct Output {
    storage_t<E>* data;
    template <int N, bool PAIRS> __device__ i32 lead() const { return ::lead<N, PAIRS, E>(data); }
    template <typename V> __device__ void write(V value, i32 element) const { ::write<E>(data, element, false, value); }
  };
};
template <typename P> using BroadcastArgs = typename Elementwise<P>::template Arguments<Broadcast, BroadcastMoves>;

template <int N> struct BroadcastLanes {
  template <typename E> using type = Lanes<E, N>;
};

// A thread takes LANES neighbours, which start at a boundary of a vector of the first output. It finds the first by
// divisions, and steps from each to the next.
template <typename P, int LANES>
__global__ void __launch_bounds__(ELEMENTWISE_THREADS) broadcast(const __grid_constant__ BroadcastArgs<P> args) {
  using E = Elementwise<P>;
  const Broadcast& space = args.head;
  const i32 length = i32(space.length), lead = E::first_output(args).template lead<LANES, false>();
  const i32 first = i32(blockIdx.x * ELEMENTWISE_THREADS + threadIdx.x) * LANES - lead;
  wait_for_earlier();
  const auto scalars = E::scalars(args);
  if (first >= 0 && first + LANES <= length) {
    const Broadcast::Position at = space.position(first);
    typename E::template InputLanes<LANES> in;
    E::template load<LANES>(in, args, space, at);
    typename E::template OfRuns<BroadcastLanes<LANES>> runs;
    E::each_run(args, [&](const auto& run, auto& own) { own = run.template load<LANES>(space, at); }, runs);
    if (gridDim.x <= SOON_BLOCKS) let_next_begin();
    typename E::template OutputLanes<LANES> out;
    bool fast = true;
    if constexpr (E::HAS_RUNS) {
      P programs[LANES];
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane) {
        typename E::Given given;
        E::each_run(args, [&](const auto&, auto& value, const auto& own) { value = own.get(lane); }, given, runs);
        programs[lane] = E::made(args, given, scalars);
        fast = fast && programs[lane].fast();
      }
      if (fast) {
        typename E::template LaneValues<LANES> values;
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) E::template compute<FAST_FORM, LANES>(values, lane, programs[lane], in);
        E::template pack<LANES>(out, values);
      }
    } else {
      const P program = E::made_once(args, scalars);
      fast = program.fast();
      if (fast) E::template compute<FAST_FORM, LANES>(out, program, in);
    }
    if (fast) {
      E::each_output_and_first(
          args, [&](const auto& output, auto is_first, const auto& lanes) {
            store<is_first != 0>(output.data, first, lanes);
          }, out);
      return;
    }
  }
  // The ends of the row, and unusual shared values.
#pragma unroll 1
  for (i32 element = ::max(first, 0); element < ::min(first + LANES, length); ++element) {
    const Broadcast::Position at = space.position(element);
    const P program = E::made(args, E::read_runs(args, at), scalars);
    E::write(args, E::value(program, E::read(args, at)), element);
  }
}
