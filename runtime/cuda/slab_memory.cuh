// What a thread of a block that goes down a slab reads: rows, copied to shared memory some rows ahead, and columns.
#pragma once
#include "slab_parts.cuh"
#include "split_group.cuh"

// P: the program of the rows. The rest as in slab.cuh.
template <typename P, int THREADS, int TEAMS, int CHUNKS, int MODE, bool HOLDS, bool SAMPLES, typename N>
struct SlabMemoryOf;
template <typename P, int THREADS, int TEAMS, int CHUNKS, int MODE, bool HOLDS, bool SAMPLES, int... N>
struct SlabMemoryOf<P, THREADS, TEAMS, CHUNKS, MODE, HOLDS, SAMPLES, Seq<N...>> {
  using Operands = operands_of<P>;
  using Shares = Tuple<Lanes<element_in<P, N>, GROUP>...>;
  static constexpr int ARRAYS = Operands::arrays;
  // Chunks of which every row has all shares: of shorter ones, fewer threads are a team.
  static constexpr int FULL = CHUNKS - 1;
  static constexpr int ALL = THREADS * TEAMS, OWN = (CHUNKS + TEAMS - 1) / TEAMS;  // threads; shares that each makes
  template <typename E> struct Columns { Lanes<E, GROUP> of[HOLDS ? CHUNKS : 1]; };
  // Bytes of a share of an input, and of the inputs before one.
  template <int K> static constexpr int share_bytes = int(sizeof(Lanes<element_in<P, K>, GROUP>));
  template <int K> static constexpr int bytes_before = ((N < K ? share_bytes<N> : 0) + ... + 0);
  // Shares of two words of 16 bytes: lanes would meet in banks of shared memory.
  static constexpr bool CROSSED = ((N >= ARRAYS || share_bytes<N> == 32) && ...);
  static constexpr int AROUND = MODE == UNIT ? 16 : 0;  // bytes that the words around a row take besides

  const RowArgs<P>& args;
  u8* const memory;
  const i32 length, shares_of_row, thread, lane;
  Tuple<Columns<element_in<P, N>>...> columns;
  Tuple<formula_t<typename P::C, element_in<P, N>>...> sample;  // of columns, for a lane
  u8* memory_of_columns;
  const ShareOrder<CROSSED> order;

  __device__ SlabMemoryOf(const RowArgs<P>& args, u8* memory)
      : args(args), memory(memory), length(i32(args.rows.length)), shares_of_row((length + GROUP - 1) / GROUP),
        thread(TEAMS == 1 ? threadIdx.x : threadIdx.x % THREADS), lane(threadIdx.x % 32),
        order{lane / 4 % 2} {}
  // Bytes of a slot for an input: it begins a line, which copies are quicker for.
  template <int K> __device__ i32 part_bytes() const {
    return (shares_of_row * share_bytes<K> + AROUND + SLAB_LINE - 1) / SLAB_LINE * SLAB_LINE;
  }
  __device__ i32 slot_bytes() const { return ((N < ARRAYS ? part_bytes<N>() : 0) + ... + 0); }
  // The share of its team's row that a thread reduces, and those that it makes, of every row.
  __device__ i32 share(int chunk) const { return chunk * THREADS + thread; }
  __device__ i32 own_share(int chunk) const { return chunk * ALL + i32(threadIdx.x); }
  // A share of a column, read once.
  template <int K> __device__ Lanes<element_in<P, K>, GROUP> column(i32 share) const {
    using E = element_in<P, K>;
    const auto& input = args.template elements<K>();
    if constexpr (MODE == WHOLE) return ::load<true, E, GROUP>(input.array, share * GROUP, length);
    const ShareWords<E> words = share_apart<E>(input.array, share * GROUP, length, input.array, input.span);
    return reinterpret_cast<const Lanes<E, GROUP>&>(words);
  }
  template <int K> __device__ void keep_column(int chunk) {
    if constexpr (K < ARRAYS) {
    } else {
      const i32 share = own_share(chunk);
      Lanes<element_in<P, K>, GROUP> lanes = column<K>(share);
      if constexpr (CROSSED) order.change(lanes.data);
      if constexpr (HOLDS) {
        get<K>(columns).of[chunk] = lanes;
      } else {
#pragma unroll
        for (int i = 0; i < share_bytes<K> / 16; ++i)
          *column_at<K>(share, i) = reinterpret_cast<const uint4*>(lanes.data)[i];
      }
    }
  }
  // Where one of its words lies in shared memory: beside the same one of the next share.
  template <int K> __device__ uint4* column_at(i32 share, int word) const {
    u8* const start = memory_of_columns + shares_of_row * (bytes_before<K> - bytes_before<ARRAYS>);
    return reinterpret_cast<uint4*>(start) + word * shares_of_row + share;
  }
  __device__ i32 column_bytes() const {
    return HOLDS ? 0 : shares_of_row * (bytes_before<Operands::elements> - bytes_before<ARRAYS>);
  }
  __device__ void keep_columns() {
#pragma unroll
    for (int chunk = 0; chunk < OWN; ++chunk)
      if (own_share(chunk) < shares_of_row) (keep_column<N>(chunk), ...);
    if constexpr (SAMPLES) (keep_sample<N>(), ...);
  }
  template <int K> __device__ void keep_sample() {
    using V = formula_t<typename P::C, element_in<P, K>>;
    if constexpr (K >= ARRAYS) get<K>(sample) = V(::widen(fetch(args.template elements<K>().array + lane * GROUP)));
  }
  // An input's part of a slot, and where in it a share lies.
  template <int K> __device__ u8* part(i32 slot) const {
    return memory + slot + ((N < K ? part_bytes<N>() : 0) + ... + 0);
  }
  template <int K> __device__ u8* place(i32 slot, i32 share) const {
    return part<K>(slot) + share * share_bytes<K>;
  }

  // One thread begins to copy a row into a slot. `skips` gets what its aligned words have before it.
  __device__ void copy(i64 row, i32 slot, const RowSignal& signal, u32* skips) const {
    const RowSpace::Position position = args.rows.position(row);
    if constexpr (MODE == WHOLE) {
      signal.expect(length / GROUP * bytes_before<ARRAYS>);
      (copy_whole<N>(position, slot, signal), ...);
    } else {
      Tuple<Words<N>...> words = {words_of<N>(position, slot, skips)...};
      signal.expect(((N < ARRAYS ? get<N>(words).bytes : 0) + ... + 0));
      ((N < ARRAYS ? signal.copy(get<N>(words).to, get<N>(words).from, get<N>(words).bytes) : void()), ...);
    }
  }
  template <int K> __device__ const u8* start_of(const RowSpace::Position& position) const {
    const auto& input = args.template elements<K>();
    return reinterpret_cast<const u8*>(row_of<element_in<P, K>>(input.array, args.rows, position, input.strides));
  }
  template <int K>
  __device__ void copy_whole(const RowSpace::Position& position, i32 slot, const RowSignal& signal) const {
    if constexpr (K < ARRAYS) signal.copy(part<K>(slot), start_of<K>(position), length / GROUP * share_bytes<K>);
  }
  // The aligned words around a row that lie in the operand's bytes; of others the row's own elements are copied here.
  template <int> struct Words {
    u8* to;
    const u8* from;
    i32 bytes;
  };
  template <int K> __device__ Words<K> words_of(const RowSpace::Position& position, i32 slot, u32* skips) const {
    if constexpr (K < ARRAYS) {
      using S = storage_t<element_in<P, K>>;
      const auto& input = args.template elements<K>();
      const u8* const row = start_of<K>(position);
      const u8* const row_end = row + length * int(sizeof(S));
      const u8* const low = reinterpret_cast<const u8*>(input.array) + input.span.low;
      const u8* const high = low + input.span.size - 1 + share_bytes<K> + min(16, share_bytes<K>);
      const i32 skip = i32(u64(row)) & 15;
      const u8* begin = row - skip;
      const u8* end = row_end + (-u64(row_end) & 15);
      u8* to = part<K>(slot);
      skips[K] = skip;
      if (begin < low) {
        copy_units<S>(to + skip, row, begin + 16);  // of a row of more elements than that
        begin += 16, to += 16;
      }
      if (end > high) {
        end -= 16;
        copy_units<S>(to + (end - begin), end, row_end);
      }
      return {to, begin, i32(end - begin)};
    } else {
      return {};
    }
  }

  // Moves a row that has come, from the aligned words around it, to where its shares lie in whole words. A warp moves
  // shares that it reads itself, two chunks at a time: a barrier stands between what is read of these, and what others
  // write there.
  __device__ void align(i32 slot, const u32* skips) const {
    if constexpr (MODE == UNIT) (align<N>(slot, skips), ...);
  }
  template <int K> __device__ void align(i32 slot, const u32* skips) const {
    if constexpr (K < ARRAYS) {
      constexpr int each = share_bytes<K> / 4, together = 2;
      u32* const row = reinterpret_cast<u32*>(part<K>(slot));
      const u32* const from = row + skips[K] / 4;
#pragma unroll
      for (int begin = 0; begin < CHUNKS; begin += together) {
        u32 words[together * each];
        auto every = [&](const auto& move) {
#pragma unroll
          for (int i = 0; i < together * each; ++i) {
            const int chunk = begin + i / each;
            const i32 word = (share(chunk) - lane) * each + i % each * 32 + lane;
            if (chunk < FULL || (chunk < CHUNKS && word < shares_of_row * each)) move(words[i], word);
          }
        };
        every([&](u32& own, i32 word) {
          own = sizeof(storage_t<element_in<P, K>>) == 4
              ? from[word] : __funnelshift_r(from[word], from[word + 1], skips[K] * 8);
        });
        __syncthreads();
        every([&](u32& own, i32 word) { row[word] = own; });
      }
      __syncwarp();
    }
  }

  // Shares of all inputs, as far as they are read; of its columns a thread may hold that of a chunk, or none (-1).
  template <u32 READS> __device__ Shares shares(i32 slot, i32 share, int chunk) const {
    Shares found;
    (read<READS, N>(get<N>(found), slot, share, chunk), ...);
    return found;
  }
  template <u32 READS, int K>
  __device__ void read(Lanes<element_in<P, K>, GROUP>& lanes, i32 slot, i32 share, int chunk) const {
    if constexpr ((READS >> K & 1) == 0) {
    } else if constexpr (K < ARRAYS) {
      const uint4* const from = reinterpret_cast<const uint4*>(place<K>(slot, share));
#pragma unroll
      for (int i = 0; i < share_bytes<K> / 16; ++i) reinterpret_cast<uint4*>(lanes.data)[i] = from[order(i)];
    } else if constexpr (HOLDS) {
      if (chunk >= 0) {
        lanes = get<K>(columns).of[chunk];
      } else {
        lanes = column<K>(share);
        if constexpr (CROSSED) order.change(lanes.data);
      }
    } else {
#pragma unroll
      for (int i = 0; i < share_bytes<K> / 16; ++i)
        reinterpret_cast<uint4*>(lanes.data)[i] = *column_at<K>(share, i);
    }
  }
  // A row's element for each lane, the first of a share of its own.
  template <bool READ, int K> __device__ formula_t<typename P::C, element_in<P, K>> sampled(i32 slot) const {
    using V = formula_t<typename P::C, element_in<P, K>>;
    using E = element_in<P, K>;
    if constexpr (!READ) return V();
    else if constexpr (K >= ARRAYS) return get<K>(sample);
    else {
      const u8* const at = part<K>(slot) + lane * share_bytes<K>;
      return V(::widen(fetch(reinterpret_cast<const storage_t<E>*>(at))));
    }
  }
};
