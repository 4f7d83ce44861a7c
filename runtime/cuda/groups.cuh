// Lines of neighbouring elements in which parameters change every few vectors, at any element of one.
#pragma once
#include "elementwise_program.cuh"
#include "flat.cuh"

// Elements are counted as the outputs hold them, from line to line, with the nibbles that pad packed lines; a line is
// at least as long as what a warp takes. Each line has its own `runs` runs of parameters, the last of which may be
// shorter, but not than a vector; the parameters of all lines follow each other.
struct Groups {
  i64 length;
  Divide line, run;
  i64 runs;
  i64 elements;  // of a line that are no padding

  // Elements that share parameters: their line, the position of the parameters, where they end.
  struct Run {
    i32 line, index, end;
  };
  __device__ Run run_at(i32 element) const {
    const i32 above = line(element), start = above * i32(line.divisor), piece = run(element - start);
    return {above, above * i32(runs) + piece, start + min((piece + 1) * i32(run.divisor), i32(line.divisor))};
  }
};

// N neighbours that begin at any element, a nibble included: the aligned words around them on their way from memory,
// until `lanes` asks for them. The words may reach MARGIN elements beyond them.
template <typename E, int N> struct Words {
  static constexpr int bits = storage<E>::bits, bytes = N * bits < 32 ? 4 : N * bits / 8;
  static constexpr int width = bytes < 16 ? bytes : 16, words = bytes / width + 1, registers = words * width / 4;
  alignas(16) u32 w[registers];
  u32 skip;  // bits before the first

  __device__ void load(const storage_t<E>* array, i32 first) {
    using W = typename word<width>::type;
    const u8* const from = reinterpret_cast<const u8*>(at<E>(array, first));
    const u32 before = u32(u64(from)) & (width - 1);
    skip = before * 8 + (bits < 8 ? (first & 1) * 4 : 0);
    const W* const around = reinterpret_cast<const W*>(from - before);
#pragma unroll
    for (int i = 0; i < words; ++i)
      if (i + 1 < words || skip != 0) reinterpret_cast<W&>(w[i * (width / 4)]) = around[i];
    asm("" : "+r"(skip));  // kept: the compiler would rather find it again, for longer than a shift takes
  }

  __device__ Lanes<E, N> lanes() const {
    u32 v[registers];
#pragma unroll
    for (int i = 0; i < registers; ++i) v[i] = w[i];
    if (width == 4) {
      v[0] = __funnelshift_r(v[0], v[1], skip);
    } else if (skip != 0) {
      if (width > 8) {
#pragma unroll
        for (int i = 0; i + 2 < registers; ++i) v[i] = skip & 64 ? v[i + 2] : v[i];
      }
      if (width > 4 && bits <= 32) {
#pragma unroll
        for (int i = 0; i + 1 < registers; ++i) v[i] = skip & 32 ? v[i + 1] : v[i];
      }
      if (bits < 32) {
#pragma unroll
        for (int i = 0; i < bytes / 4; ++i) v[i] = __funnelshift_r(v[i], v[i + 1], skip & 31);
      }
    }
    Lanes<E, N> lanes;
    if constexpr (N * bits < 32) {
      using W = typename word<int(sizeof(lanes))>::type;
      reinterpret_cast<W&>(lanes.data) = W(v[0]);
    } else {
#pragma unroll
      for (int i = 0; i < bytes / 4; ++i) reinterpret_cast<u32*>(lanes.data)[i] = v[i];
    }
    return lanes;
  }
};

template <int N> struct Words<Place, N> {
  Lanes<Place, N> own;

  __device__ void load(const Place* array, i32 first) { own = ::load<true, Place, N>(array, first, 0); }
  __device__ Lanes<Place, N> lanes() const { return own; }
};

// A vector of which the lanes from `split` on lie in the next line, which is `gap` elements further away.
template <typename E, int N>
__device__ __noinline__ Lanes<E, N> across(const storage_t<E>* array, i32 first, i32 gap, i32 split) {
  Words<E, N> here, next;
  here.load(array, first);
  next.load(array, first + gap);
  Lanes<E, N> lanes = here.lanes();
  take_from(lanes, next.lanes(), split);
  return lanes;
}

// The nibble `lane` becomes 0, if it is one of these.
template <typename E, int N> __device__ inline void clear(Lanes<E, N>& lanes, i32 lane) {
  if constexpr (storage<E>::bits < 8) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
      if (lane >> 1 == i) lanes.data[i] &= 15;
  }
}

// The schedule groups: runs that begin at any position of a vector.
template <int LANES, int TURNS> struct GroupWords {
  template <typename E> struct type {
    Words<E, LANES> of[TURNS];
    i32 first;
  };
};
struct GroupMoves {
  template <typename E> struct Input {
    const storage_t<E>* data;
    i64 gap;  // elements that its lines are further apart than the outputs'
    __device__ compute_t<E> read(const Groups::Run& at, i32 element) const {
      return ::read<E>(data, element + i64(at.line) * gap);
    }
    // A vector that goes on in the next line from lane `end` on.
    template <int N> __device__ Lanes<E, N> load(const Groups::Run& at, i32 first, i32 end) const {
      return across<E, N>(data, first + at.line * i32(gap), i32(gap), end);
    }
  };
  template <typename R> struct Run {
    using E = typename R::element;
    const storage_t<E>* data;
    i64 step;
    __device__ storage_t<E> entry(i32 index) const { return load_entry(data, index, step); }
  };
  template <typename E> struct Output {
    storage_t<E>* data;
    template <int N, bool PAIRS> __device__ i32 lead() const { return ::lead<N, PAIRS, E>(data); }
    __device__ storage_t<E>* start(i32 first) const { return at<E>(data, first); }
    // FIRST: the first output, whose vectors the stretches are aligned to.
    template <bool FIRST, int N> __device__ void put(storage_t<E>* to, i32 first, const Lanes<E, N>& lanes) const {
      store<FIRST>(to, first, lanes);
    }
    template <typename V> __device__ void write(V value, i32 element, bool last) const {
      ::write<E>(data, element, last, value);
    }
  };
};
template <typename P> using GroupsArgs = typename Elementwise<P>::template Arguments<Groups, GroupMoves>;

// A warp takes a stretch of TURNS times 32 vectors and prepares the program of each run in it once, in shared memory; a
// vector has lanes of at most two runs.
template <typename P, int LANES, int TURNS>
__global__ void __launch_bounds__(ELEMENTWISE_THREADS) groups(const __grid_constant__ GroupsArgs<P> args) {
  using E = Elementwise<P>;
  using InputLanes = typename E::template InputLanes<LANES>;
  using OutputLanes = typename E::template OutputLanes<LANES>;
  constexpr int STRETCH = 32 * LANES * TURNS, UNIT = LANES > 4 ? 4 : LANES > 2 ? 2 : 1;
  constexpr int SLOTS = TURNS * LANES + 4;  // as many runs of 32 and more as a stretch meets
  __shared__ P programs[ELEMENTWISE_THREADS / 32][SLOTS];
  const Groups& groups = args.head;
  const i32 length = i32(groups.length), line = i32(groups.line.divisor), run = i32(groups.run.divisor);
  const i32 lead = E::first_output(args).template lead<LANES, E::WRITES_PACKED>();
  const i32 thread = threadIdx.x & 31, warp = threadIdx.x / 32;
  const i32 start = (i32(blockIdx.x) * (ELEMENTWISE_THREADS / 32) + warp) * STRETCH - lead;
  if (start >= length) return;
  // Where the stretch is loaded: where it is, or at the nearest position at which no word leaves the operands.
  const i32 load = ::max(::min(start, length - STRETCH - MARGIN), MARGIN);
  const i32 number = groups.line(load), within = load - number * line + thread * LANES;  // in the line

  // The runs of the stretch: the first, and how many follow it.
  const i32 from = groups.run_at(::max(start, 0)).index;
  const i32 runs = groups.run_at(::min(start + STRETCH, length) - 1).index - from;
  typename E::Entries entries;
  E::load_entries(entries, args, from + ::min(thread, runs));
  typename E::template OfInputs<GroupWords<LANES, TURNS>> words;
  E::each_input(
      args, [&](const auto& input, auto& own) { own.first = load + thread * LANES + number * i32(input.gap); }, words);
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
    const bool beyond = within + turn * 32 * LANES >= line;  // in the next line
    E::each_input(
        args,
        [&](const auto& input, auto& own) {
          own.of[turn].load(input.data, own.first + turn * 32 * LANES + (beyond ? i32(input.gap) : 0));
        },
        words);
  }
  __syncwarp();  // keeps the loads above from being moved after the first branch that uses them
  const auto scalars = E::scalars(args);

  P* const prepared = programs[warp];
  bool fast = true;
#pragma unroll 1
  for (i32 at = thread;;) {
    const P program = E::made(args, E::widened(entries), scalars);
    fast = fast && program.fast();
    if (at <= runs) prepared[at] = program;
    at += 32;
    if (at - thread > runs) break;
    E::load_entries(entries, args, from + ::min(at, runs));
  }
  fast = __all_sync(~0u, fast);
  __syncwarp();

  u32 rest = (1u << TURNS) - 1;
  if (fast && load == start) {
    rest = 0;
    const i32 slots = number * i32(groups.runs) - from;
    typename E::OutputStarts out_starts;
    E::each_output(
        args, [&](const auto& output, auto& to) { to = output.start(start + thread * LANES); }, out_starts);
    bool gaps = false;  // an input's lines are not as far apart as the outputs'
    E::each_input(args, [&](const auto& input) { gaps = gaps || i32(input.gap) != 0; });
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
      const bool beyond = within + turn * 32 * LANES >= line;
      const i32 position = within + turn * 32 * LANES - (beyond ? line : 0), piece = groups.run(position);
      const i32 split = ::min((piece + 1) * run, line) - position;
      const P* const found = prepared + (piece + (beyond ? slots + i32(groups.runs) : slots));
      P here = *found;
      const P& next = found[split < LANES ? 1 : 0];
      InputLanes in;
      E::each_input(args, [&](const auto&, auto& lanes, const auto& own) { lanes = own.of[turn].lanes(); }, in, words);
      typename E::template LaneValues<LANES> values;
      // Neighbours in which no thread's vector goes on in another run need not look for it.
#pragma unroll
      for (int unit = 0; unit < LANES; unit += UNIT) {
        if (__any_sync(~0u, (split & -UNIT) == unit)) {
#pragma unroll
          for (int lane = unit; lane < unit + UNIT; ++lane) {
            if (lane == split) here = next;
            E::template compute<FAST_FORM, LANES>(values, lane, here, in);
          }
        } else {
#pragma unroll
          for (int lane = unit; lane < unit + UNIT; ++lane) E::template compute<FAST_FORM, LANES>(values, lane, here, in);
        }
      }
      if (gaps && position + LANES > line) {
        rest |= 1u << turn;
      } else {
        OutputLanes out;
        E::each_output_and_first(
            args,
            [&](const auto& output, auto first_one, auto& lanes, const auto& own, auto* to) {
              set_all(lanes, own);
              if (groups.elements < groups.line.divisor && position + LANES == line) clear(lanes, LANES - 1);
              output.template put<first_one>(to, turn * 32 * LANES, lanes);
            },
            out, values, out_starts);
      }
    }
  }

  // Vectors that go on in the next line, the ends, and unusual shared values.
#pragma unroll 1
  for (int turn = 0; rest != 0; ++turn, rest >>= 1) {
    const i32 first = start + (turn * 32 + thread) * LANES, limit = ::min(first + LANES, length);
    if ((rest & 1) == 0 || limit <= ::max(first, 0)) continue;
    if (first >= MARGIN && first + LANES + MARGIN <= length) {
      const auto at = groups.run_at(first);
      const i32 split = at.end - first, end = (at.line + 1) * line - first;
      P here = prepared[at.index - from];
      const P& next = prepared[at.index - from + (split < LANES ? 1 : 0)];
      if (here.fast() && next.fast()) {
        InputLanes in;
        E::template load<LANES>(in, args, at, first, end);
        typename E::template LaneValues<LANES> values;
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) {
          if (lane == split) here = next;
          E::template compute<FAST_FORM, LANES>(values, lane, here, in);
        }
        OutputLanes out;
        E::each_output_and_first(
            args,
            [&](const auto& output, auto first_one, auto& lanes, const auto& own) {
              set_all(lanes, own);
              if (groups.elements < groups.line.divisor) clear(lanes, end - 1);
              output.template put<first_one>(output.data, first, lanes);
            },
            out, values);
        continue;
      }
    }
#pragma unroll 1
    for (i32 element = ::max(first, 0); element < limit; ++element) {  // one at a time
      const auto at = groups.run_at(element);
      const i32 left = at.line * line + i32(groups.elements) - element;  // of the line
      if (left <= 0) continue;
      const P& program = prepared[at.index - from];
      E::write(args, E::value(program, E::read(args, at, element)), element, left == 1);
    }
  }
}
