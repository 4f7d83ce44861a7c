// A plane of two axes, tile by tile through shared memory: each operand is read or written in lines along the axis that
// it runs along; a thread computes neighbours along one axis, and the lanes of a warp lie along the other.
#pragma once
#include "elementwise_program.cuh"
#include "index_space.cuh"


struct Tiles {
  i64 along, across;               // extents of the axis that a thread's share runs along, and of the other: < 2^31
  Divide tiles_along, tiles_across;
  Divide run_along, run_across;    // neighbours that share parameters
  Outer outer;                     // of the planes

  struct Position {
    i32 plane, along, across;      // of the tile's first element
    i32 length, width;             // elements that the tile has along and across
  };
  template <int ALONG, int ACROSS> __device__ Position position(i32 tile) const {
    const i32 band = tiles_along(tile), plane = tiles_across(band);
    const i32 first = (tile - band * i32(tiles_along.divisor)) * ALONG;
    const i32 lane = (band - plane * i32(tiles_across.divisor)) * ACROSS;
    return {plane, first, lane, min(ALONG, i32(along) - first), min(ACROSS, i32(across) - lane)};
  }

  // Outer::offset of a plane; a launch has fewer than 2^31 blocks.
  __device__ i64 offset(i32 plane, const Strides& strides) const {
    i64 sum = 0;
#pragma unroll 1
    for (int axis = AXES - 1; axis >= outer.first_axis; --axis) {
      const i32 above = outer.extent[axis](plane);
      sum += (plane - above * i32(outer.extent[axis].divisor)) * strides.of[axis];
      plane = above;
    }
    return sum;
  }
};

// An operand's steps in the plane: elements; of a packed one bytes along, nibbles across. Turned: its lines run across.
struct PlaneSteps {
  i64 along, across, turned;
};

// One operand's part of a tile. Lines are padded by 16 bytes, so that 8 vectors of 16 bytes which lie below each other
// are in different banks, as neighbouring elements of one line are anyway.
template <typename E, int ALONG, int ACROSS> struct Tile {
  using W = storage_t<E>;
  static constexpr int pair = storage<E>::bits < 8 ? 2 : 1, units = ALONG / pair;  // packed bytes hold pairs
  static constexpr int pitch_along = units * int(sizeof(W)) + 16, pitch_across = ACROSS * int(sizeof(W)) + 16;
  static constexpr int bytes = units * ACROSS * int(sizeof(W)) + 16 * (units > ACROSS ? units : ACROSS);

  // The unit that holds an element.
  __device__ static int at(bool turned, int along, int across) {
    return turned ? along / pair * pitch_across + across * int(sizeof(W))
                  : across * pitch_along + along / pair * int(sizeof(W));
  }
};

// Where a tile of an operand starts.
template <typename E, typename P>
__device__ inline P* corner(P* array, const Tiles& tiles, const Tiles::Position& position, const Strides& outer,
                            const PlaneSteps& steps) {
  constexpr int pair = storage<E>::bits < 8 ? 2 : 1;
  return at<E>(array, tiles.offset(position.plane, outer) + position.across * steps.across) +
         position.along / pair * steps.along;
}

// Copies 16 bytes into shared memory without waiting for them; `again`: which a block reads more than once.
__device__ inline void copy_async(u8* to, const void* from, bool again) {
  const u32 at = u32(__cvta_generic_to_shared(to));
  if (again) asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
  else asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Lines between memory and a tile: `lines` of at most LINES, each `length` of at most LENGTH units.
template <typename W, int LENGTH>
__device__ inline bool whole_vectors(const W* array, i64 line_step, i64 step, i32 length) {
  return step == 1 && length == LENGTH && ((u32(u64(array)) | u32(line_step) * u32(sizeof(W))) & 15) == 0;
}
template <typename W, int LINES, int LENGTH>
__device__ inline void read_lines(u8* tile, const W* from, i64 line_step, i64 step, i32 lines, i32 length) {
  constexpr int pitch = LENGTH * int(sizeof(W)) + 16;
  if (!IS_PLACE<W> && whole_vectors<W, LENGTH>(from, line_step, step, length)) {
    constexpr int vectors = LENGTH * int(sizeof(W)) / 16, below = ELEMENTWISE_THREADS / vectors;
    const i32 position = i32(threadIdx.x) % vectors, line = i32(threadIdx.x) / vectors;
    from += line * line_step + position * (16 / int(sizeof(W)));
    tile += line * pitch + position * 16;
#pragma unroll
    for (int i = 0; i < LINES; i += below, from += below * line_step)
      if (line + i < lines) copy_async(tile + i * pitch, from, line_step == 0);
    return;
  }
  constexpr int below = ELEMENTWISE_THREADS / LENGTH;
  const i32 position = i32(threadIdx.x) % LENGTH;
  if (position >= length) return;
  i32 line = i32(threadIdx.x) / LENGTH;
  from += line * line_step + position * step;
  tile += line * pitch + position * int(sizeof(W));
#pragma unroll 1
  for (; line < lines; line += TILE_BATCH * below, tile += TILE_BATCH * below * pitch) {
    W units[TILE_BATCH];
#pragma unroll
    for (int i = 0; i < TILE_BATCH; ++i, from += below * line_step)
      if (line + i * below < lines) units[i] = fetch(from);
#pragma unroll
    for (int i = 0; i < TILE_BATCH; ++i)
      if (line + i * below < lines) *reinterpret_cast<W*>(tile + i * below * pitch) = units[i];
  }
}
template <typename W, int LINES, int LENGTH>
__device__ inline void write_lines(const u8* tile, W* to, i64 line_step, i64 step, i32 lines, i32 length) {
  constexpr int pitch = LENGTH * int(sizeof(W)) + 16;
  if (whole_vectors<W, LENGTH>(to, line_step, step, length)) {
    constexpr int vectors = LENGTH * int(sizeof(W)) / 16, below = ELEMENTWISE_THREADS / vectors;
    const i32 position = i32(threadIdx.x) % vectors, line = i32(threadIdx.x) / vectors;
    to += line * line_step + position * (16 / int(sizeof(W)));
    tile += line * pitch + position * 16;
#pragma unroll
    for (int i = 0; i < LINES; i += below, to += below * line_step)
      if (line + i < lines) *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(tile + i * pitch);
    return;
  }
  constexpr int below = ELEMENTWISE_THREADS / LENGTH;
  const i32 position = i32(threadIdx.x) % LENGTH;
  if (position >= length) return;
  i32 line = i32(threadIdx.x) / LENGTH;
  to += line * line_step + position * step;
  tile += line * pitch + position * int(sizeof(W));
#pragma unroll TILE_STORES_UNROLLED
  for (; line < lines; line += below, to += below * line_step, tile += below * pitch)
    *to = *reinterpret_cast<const W*>(tile);
}

// A whole tile of an operand.
template <typename E, int ALONG, int ACROSS>
__device__ inline void read_tile(u8* tile, const storage_t<E>* array, const Tiles& tiles,
                                 const Tiles::Position& position, const Strides& outer, const PlaneSteps& steps) {
  using T = Tile<E, ALONG, ACROSS>;
  const auto from = corner<E>(array, tiles, position, outer, steps);
  const i32 units = (position.length + T::pair - 1) / T::pair;
  if (steps.turned)
    read_lines<typename T::W, T::units, ACROSS>(tile, from, steps.along, steps.across / T::pair, units, position.width);
  else
    read_lines<typename T::W, ACROSS, T::units>(tile, from, steps.across / T::pair, steps.along, position.width, units);
}
template <typename E, int ALONG, int ACROSS>
__device__ inline void write_tile(const u8* tile, storage_t<E>* array, const Tiles& tiles,
                                  const Tiles::Position& position, const Strides& outer, const PlaneSteps& steps) {
  using T = Tile<E, ALONG, ACROSS>;
  const auto to = corner<E>(array, tiles, position, outer, steps);
  const i32 units = (position.length + T::pair - 1) / T::pair;
  if (steps.turned)
    write_lines<typename T::W, T::units, ACROSS>(tile, to, steps.along, steps.across / T::pair, units, position.width);
  else
    write_lines<typename T::W, ACROSS, T::units>(tile, to, steps.across / T::pair, steps.along, position.width, units);
}

// LANES neighbours along, from an even one on, out of a tile and into it.
template <typename E, int LANES, int ALONG, int ACROSS>
__device__ inline Lanes<E, LANES> from_tile(const u8* tile, bool turned, i32 along, i32 across) {
  using T = Tile<E, ALONG, ACROSS>;
  using V = Lanes<E, LANES>;
  using W = typename word<alignof(V)>::type;
  V lanes;
  const u8* from = tile + T::at(turned, along, across);
  if (turned) {
#pragma unroll
    for (int i = 0; i < V::units; ++i)
      lanes.data[i] = *reinterpret_cast<const typename T::W*>(from + i * T::pitch_across);
  } else {
#pragma unroll
    for (int i = 0; i < int(sizeof(V) / sizeof(W)); ++i)
      reinterpret_cast<W*>(lanes.data)[i] = reinterpret_cast<const W*>(from)[i];
  }
  return lanes;
}
template <typename E, int LANES, int ALONG, int ACROSS>
__device__ inline void to_tile(u8* tile, bool turned, i32 along, i32 across, const Lanes<E, LANES>& lanes) {
  using T = Tile<E, ALONG, ACROSS>;
  using V = Lanes<E, LANES>;
  using W = typename word<alignof(V)>::type;
  u8* to = tile + T::at(turned, along, across);
  if (turned) {
#pragma unroll
    for (int i = 0; i < V::units; ++i) *reinterpret_cast<typename T::W*>(to + i * T::pitch_across) = lanes.data[i];
  } else {
#pragma unroll
    for (int i = 0; i < int(sizeof(V) / sizeof(W)); ++i)
      reinterpret_cast<W*>(to)[i] = reinterpret_cast<const W*>(lanes.data)[i];
  }
}

// One element; of a packed output the low nibble comes first, and clears the high one.
template <typename E, int ALONG, int ACROSS>
__device__ inline compute_t<E> one_from_tile(const u8* tile, bool turned, i32 along, i32 across) {
  using T = Tile<E, ALONG, ACROSS>;
  const auto unit = reinterpret_cast<const typename T::W*>(tile + T::at(turned, along, across));
  if constexpr (IS_PLACE<E>) return unit->index;
  else return read<E>(unit, storage<E>::bits < 8 ? along & 1 : 0);
}
template <typename E, int ALONG, int ACROSS, typename V>
__device__ inline void one_to_tile(u8* tile, bool turned, i32 along, i32 across, V value) {
  using T = Tile<E, ALONG, ACROSS>;
  const auto unit = reinterpret_cast<typename T::W*>(tile + T::at(turned, along, across));
  write<E>(unit, storage<E>::bits < 8 ? along & 1 : 0, (along & 1) == 0, value);
}

// The schedule tile: operands that run along different axes.
// The shared memory of an operand, by its number.
template <int ALONG, int ACROSS> struct TileMemory {
  template <typename E, int NUMBER> __device__ static u8* at() {
    __shared__ alignas(16) u8 memory[Tile<E, ALONG, ACROSS>::bytes];
    return memory;
  }
};
struct TileMoves {
  template <typename E> struct Input {
    const storage_t<E>* data;
    Strides strides;
    PlaneSteps steps;
    template <int ALONG, int ACROSS>
    __device__ void fill(u8* tile, const Tiles& tiles, const Tiles::Position& at) const {
      read_tile<E, ALONG, ACROSS>(tile, data, tiles, at, strides, steps);
    }
    template <int ALONG, int ACROSS, int N>
    __device__ void take(Lanes<E, N>& lanes, const u8* tile, i32 along, i32 across) const {
      lanes = from_tile<E, N, ALONG, ACROSS>(tile, steps.turned, along, across);
    }
    template <int ALONG, int ACROSS> __device__ compute_t<E> take(const u8* tile, i32 along, i32 across) const {
      return one_from_tile<E, ALONG, ACROSS>(tile, steps.turned, along, across);
    }
  };
  template <typename R> struct Run {
    using E = typename R::element;
    const storage_t<E>* data;
    Strides strides;
    PlaneSteps steps;
    __device__ const storage_t<E>* start(const Tiles& tiles, const Tiles::Position& at, i32 column) const {
      return data + tiles.offset(at.plane, strides) + column * steps.across;
    }
  };
  template <typename E> struct Output {
    storage_t<E>* data;
    Strides strides;
    PlaneSteps steps;
    template <int ALONG, int ACROSS, int N>
    __device__ void put(u8* tile, i32 along, i32 across, const Lanes<E, N>& lanes) const {
      to_tile<E, N, ALONG, ACROSS>(tile, steps.turned, along, across, lanes);
    }
    template <int ALONG, int ACROSS, typename V> __device__ void put(u8* tile, i32 along, i32 across, V value) const {
      one_to_tile<E, ALONG, ACROSS>(tile, steps.turned, along, across, value);
    }
    template <int ALONG, int ACROSS>
    __device__ void flush(const u8* tile, const Tiles& tiles, const Tiles::Position& at) const {
      write_tile<E, ALONG, ACROSS>(tile, data, tiles, at, strides, steps);
    }
  };
};
template <typename P> using TileArgs = typename Elementwise<P>::template Arguments<Tiles, TileMoves>;

// A block takes a tile through shared memory, a thread LANES neighbours of it.
template <typename P, int ALONG, int ACROSS, int LANES>
__global__ void __launch_bounds__(ELEMENTWISE_THREADS) tile(const __grid_constant__ TileArgs<P> args) {
  using E = Elementwise<P>;
  using Memory = TileMemory<ALONG, ACROSS>;
  static_assert(ALONG * ACROSS % (ELEMENTWISE_THREADS * LANES) == 0);
  const Tiles& tiles = args.head;
  const Tiles::Position at = tiles.template position<ALONG, ACROSS>(i32(blockIdx.x));
  const auto in_tiles = E::template input_memory<Memory>();
  const auto out_tiles = E::template output_memory<Memory>();
  // A thread's elements lie at one position across. Threads without any read what runs of others share.
  constexpr int SHARE = ALONG * ACROSS / ELEMENTWISE_THREADS;
  const i32 across = i32(threadIdx.x) % ACROSS;
  i32 first = i32(threadIdx.x) / ACROSS * SHARE;
  const i32 last = ::min(first + SHARE, at.length);
  typename E::RunStarts starts;
  typename E::Given given;
  i32 end = 0;
  if constexpr (E::HAS_RUNS) {
    const i32 column = tiles.run_across(at.across + ::min(across, at.width - 1));
    E::each_run(args, [&](const auto& run, auto& start) { start = run.start(tiles, at, column); }, starts);
  }
  const auto load = [&](i32 element) {
    const u32 index = u32(tiles.run_along(at.along + element));
    end = i32(::min((index + 1) * u32(tiles.run_along.divisor) - u32(at.along), u32(ALONG)));
    E::each_run(
        args,
        [&](const auto& run, auto& value, const auto& start) {
          value = widen(fetch(start + i64(index) * run.steps.along));
        },
        given, starts);
  };
  if constexpr (E::HAS_RUNS) load(::min(first, at.length - 1));  // under way before the elements are

  E::each_input(
      args, [&](const auto& input, u8* tile) { input.template fill<ALONG, ACROSS>(tile, tiles, at); }, in_tiles);
  P program = E::made(args, given);
  wait_for_copies();
  __syncthreads();

  for (; across < at.width && first < last; first += LANES) {
    if constexpr (E::HAS_RUNS) {
      if (first >= end) {
        load(first);
        program = E::made(args, given);
      }
    }
    if (first + LANES <= (E::HAS_RUNS ? ::min(end, last) : last) && program.fast()) {
      typename E::template InputLanes<LANES> in;
      E::each_input(
          args,
          [&](const auto& input, auto& lanes, u8* tile) {
            input.template take<ALONG, ACROSS>(lanes, tile, first, across);
          },
          in, in_tiles);
      typename E::template OutputLanes<LANES> out = {};
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane)
        E::template set<LANES>(out, lane, program.template of<FAST_FORM>(E::template element<LANES>(in, lane)));
      E::each_output(
          args,
          [&](const auto& output, const auto& lanes, u8* tile) {
            output.template put<ALONG, ACROSS>(tile, first, across, lanes);
          },
          out, out_tiles);
      continue;
    }
    // Ends of tiles, neighbours in several runs, unusual shared values: one element at a time.
    const i32 limit = ::min(first + LANES, last);
#pragma unroll 1
    for (i32 element = first; element < limit; ++element) {
      if constexpr (E::HAS_RUNS) {
        if (element >= end) {
          load(element);
          program = E::made(args, given);
        }
      }
      typename E::Read read;
      E::each_input(
          args,
          [&](const auto& input, auto& value, u8* tile) {
            value = input.template take<ALONG, ACROSS>(tile, element, across);
          },
          read, in_tiles);
      const auto values = E::value(program, E::element_of(read));
      E::each_output(
          args,
          [&](const auto& output, const auto& value, u8* tile) {
            output.template put<ALONG, ACROSS>(tile, element, across, value);
          },
          values, out_tiles);
    }
  }
  __syncthreads();
  E::each_output(
      args, [&](const auto& output, u8* tile) { output.template flush<ALONG, ACROSS>(tile, tiles, at); },
      out_tiles);
}
