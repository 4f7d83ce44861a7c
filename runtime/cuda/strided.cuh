// The schedule strided: operands with any strides.
#pragma once
#include "elementwise_program.cuh"
#include "index_space.cuh"

struct StridedMoves {
  template <typename E> struct Input {
    const storage_t<E>* data;
    Strides strides;
    __device__ compute_t<E> read(const Space& space, const Coordinates& at) const {
      return ::read<E>(data, at.template offset<E, false>(space, strides));
    }
  };
  template <typename R> struct Run {
    using E = typename R::element;
    const storage_t<E>* data;
    Strides strides;
    __device__ compute_t<E> read(const Space& space, const Coordinates& at) const {
      return ::read<E>(data, at.template offset<E, IS_BLOCK<R>>(space, strides));
    }
  };
  template <typename E> struct Output {
    storage_t<E>* data;
    Strides strides;
    template <int N>
    __device__ void store(const Lanes<E, N>& lanes, const Space& space, const Coordinates& at, i64 left) const {
      store_at<E, N>(data, at.template offset<E, false>(space, strides), strides.of[AXES - 1], left, lanes);
    }
  };
};
template <typename P> using StridedArgs = typename Elementwise<P>::template Arguments<Space, StridedMoves>;

// A thread takes LANES neighbours of the last axis (2 where an output is packed).
template <typename P, int LANES>
__global__ void __launch_bounds__(ELEMENTWISE_THREADS) strided(const __grid_constant__ StridedArgs<P> args) {
  using E = Elementwise<P>;
  const i64 thread = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  const Space& space = args.head;
  if (thread >= space.units) return;
  Coordinates at(space, thread);
  const i64 begin = at.of[AXES - 1] * LANES;
  typename E::template OutputLanes<LANES> out = {};
#pragma unroll
  for (int lane = 0; lane < LANES; ++lane) {
    if (begin + lane >= space.last) break;
    at.of[AXES - 1] = begin + lane;
    const auto element = E::read(args, space, at);
    const P program = E::made(args, E::read_runs(args, space, at));
    E::template set<LANES>(out, lane, program.template of<GENERAL>(element));
  }
  at.of[AXES - 1] = begin;
  E::template store<LANES>(args, out, space, at, space.last - begin);
}
