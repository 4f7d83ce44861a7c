// Moves and signals of a cluster of blocks that hold a row in shared memory together.
//
// A row is divided as its sums are (reduce.cuh): a share is GROUP neighbours, a chunk one share for each of
// ACCUMULATORS threads, a segment SEGMENT elements. Each block holds the shares of TEAM of these threads.
#pragma once
#include "copies.cuh"
#include "row_args.cuh"

constexpr int SEGMENT_CHUNKS = SEGMENT / (ACCUMULATORS * GROUP);
constexpr int CLUSTER_SEGMENTS = 32;   // of a row, at most
constexpr int WARPS = ACCUMULATORS / 32;      // of their threads
constexpr int STATE_BYTES = 32;        // of a partial result, at most

// Waits for all groups but the latest ones.
__device__ inline void wait_for_copies(i32 later) {
  switch (later) {
    case 0: wait_for_all_but<0>(); break;
    case 1: wait_for_all_but<1>(); break;
    case 2: wait_for_all_but<2>(); break;
    case 3: wait_for_all_but<3>(); break;
    case 4: wait_for_all_but<4>(); break;
    case 5: wait_for_all_but<5>(); break;
    case 6: wait_for_all_but<6>(); break;
    default: wait_for_all_but<7>();
  }
  __syncwarp();  // lanes copy for each other
}

// The same variable of another block of the cluster.
__device__ inline u32 in_block(const void* own, u32 block) {
  u32 there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(u32(__cvta_generic_to_shared(own))), "r"(block));
  return there;
}
// Sends a value to another block, where a signal counts its bytes: no barrier, and no fence, which would wait for all
// that this block has under way.
__device__ inline void send(u32 there, u32 value, u32 signal) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(there), "r"(value),
               "r"(signal) : "memory");
}
__device__ inline void send(u32 there, i64 value, u32 signal) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(there), "l"(value),
               "r"(signal) : "memory");
}
__device__ inline void send(u32 there, f32 value, u32 signal) { send(there, __float_as_uint(value), signal); }
__device__ inline void send(u32 there, f64 value, u32 signal) {
  send(there, i64(__double_as_longlong(value)), signal);
}
template <typename V> __device__ inline void send(u32 there, const ValueAndIndex<V>& found, u32 signal) {
  send(there, found.value, signal);
  send(there + u32(sizeof(ValueAndIndex<V>) - sizeof(i64)), found.index, signal);
}
template <typename V> __device__ inline void send(u32 there, const Moments<V>& found, u32 signal) {
  const V values[] = {found.count, found.pivot, found.offset, found.squares};
#pragma unroll
  for (int i = 0; i < 4; ++i) send(there + u32(i * sizeof(V)), values[i], signal);
}
template <typename V> __device__ inline void send(u32 there, const Exponentials<V>& found, u32 signal) {
  send(there, found.largest, signal);
  send(there + u32(sizeof(V)), found.sum, signal);
}
// What a value is sent as, and how many bytes are counted.
template <typename V> struct sent {
  using type = V;
  static constexpr int bytes = int(sizeof(V));
};
template <> struct sent<bool> : sent<u32> {};
template <typename V> struct sent<ValueAndIndex<V>> {
  using type = ValueAndIndex<V>;
  static constexpr int bytes = int(sizeof(V) + sizeof(i64));
};

// Tells a block's threads that all that other blocks send for a pass has come. It is used once.
struct Signal {
  const u8* memory;
  u32 at;

  Signal() = default;
  __device__ explicit Signal(const u8* memory) : memory(memory), at(u32(__cvta_generic_to_shared(memory))) {}
  __device__ void begin() const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(1) : "memory");
  }
  // After all have begun.
  static __device__ void begun() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
  // Before the cluster's barrier.
  __device__ void expect(i32 bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
  }
  __device__ void wait() const {
    asm volatile("{ .reg .pred come; again: mbarrier.try_wait.parity.shared::cta.b64 come, [%0], 0;"
                 " @!come bra again; }" ::"r"(at) : "memory");
  }
};

// All threads of all blocks of a cluster: each block has begun, and has its signals.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

__device__ inline i32 chunks_of(i64 length) {
  return i32((length + ACCUMULATORS * GROUP - 1) / (ACCUMULATORS * GROUP));
}
__device__ inline i32 segments_of(i64 length) { return i32((length + SEGMENT - 1) / SEGMENT); }

// A thread of a cluster: which shares of the row are its own. It has one share of each chunk, in the segments of its
// team: as many threads of a block as take its shares of one chunk.
template <int BLOCKS> struct ClusterThread {
  static constexpr int TEAM = ACCUMULATORS / BLOCKS;
  i32 lane, warp, index;       // in its warp; of the row's warps; of the threads that a chunk has shares for
  i32 team, teams, segments;
  i32 chunks, warp_chunks;     // of the row, up to the last in which this thread (its warp) has elements
  i32 warp_share;              // this warp's first share of a chunk, among those of its block

  __device__ explicit ClusterThread(i32 length) {
    const i32 rank = i32(blockIdx.x % BLOCKS), thread = i32(threadIdx.x) % TEAM;
    lane = thread % 32;
    index = rank * TEAM + thread;
    warp = index / 32;
    warp_share = thread - lane;
    team = i32(threadIdx.x) / TEAM;
    teams = i32(blockDim.x) / TEAM;
    const i32 shares = (length + GROUP - 1) / GROUP;
    segments = segments_of(length);
    chunks = (shares - index + ACCUMULATORS - 1) / ACCUMULATORS;
    warp_chunks = (shares - index + lane + ACCUMULATORS - 1) / ACCUMULATORS;
  }
  // Where the chunks of a segment end, of so many.
  __device__ i32 end(i32 segment, i32 chunks) const { return min(chunks, (segment + 1) * SEGMENT_CHUNKS); }
  // The first element of its share of a chunk.
  __device__ i32 first(i32 chunk) const { return (chunk * ACCUMULATORS + index) * GROUP; }
  // The chunk of this thread's turn, counted from its first segment on.
  __device__ i32 at_turn(i32 turn) const {
    return (team + turn / SEGMENT_CHUNKS * teams) * SEGMENT_CHUNKS + turn % SEGMENT_CHUNKS;
  }
  // The chunk that comes so many turns after one of a segment, at most as many as a segment has.
  __device__ i32 after(i32 segment, i32 chunk, i32 turns) const {
    const i32 next = chunk + turns;
    return next < (segment + 1) * SEGMENT_CHUNKS ? next : next + (teams - 1) * SEGMENT_CHUNKS;
  }
};

// A warp's shares of a row in shared memory: BYTES for each, divided among inputs and values that passes hold. A value
// may take the bytes of an input that the warp has read.
template <int BYTES, int BLOCKS> struct RowMemory {
  static constexpr int chunk_bytes = ClusterThread<BLOCKS>::TEAM * BYTES;
  u8* memory;
  i32 lane;

  RowMemory() = default;
  __device__ RowMemory(u8* block, const ClusterThread<BLOCKS>& thread)
      : memory(block + thread.warp_share * BYTES), lane(thread.lane) {}
  __device__ u8* chunk_at(i32 chunk) const { return memory + chunk * chunk_bytes; }
};

// The same number, of which the compiler does not know how it came about: it holds it. Otherwise it makes an address
// from the thread's number again in each turn of a loop, and in branches where predicates would do.
__device__ inline i32 kept(i32 value) {
  asm("" : "+r"(value));
  return value;
}

// 16-byte words that a share takes.
template <typename E> constexpr int share_words = (int(sizeof(Lanes<E, GROUP>)) + 15) / 16;

template <typename V, int COUNT> __device__ inline void set_words(V& lanes, const u32 (&words)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) reinterpret_cast<u32*>(lanes.data)[i] = words[i];
}

// A row that starts at any element, as the words of 16 bytes around it, and the bytes between which the operand lies:
// counted from the first word on.
struct WordsAround {
  const u8* first;
  i32 end, low, high;
  bool whole;  // no word has bytes of others

  template <typename E>
  static __device__ WordsAround of(const storage_t<E>* row, i32 length, const storage_t<E>* array, const Span& span) {
    constexpr int share = int(sizeof(Lanes<E, GROUP>));  // as Span counts
    const i32 skip = i32(u64(row)) & 15;
    const u8* const first = reinterpret_cast<const u8*>(row) - skip;
    const i32 end = skip + length * int(sizeof(storage_t<E>));
    const i64 low = i64(array) + span.low - i64(first), high = low + span.size - 1 + share + (share < 16 ? share : 16);
    return {first, end, i32(max(low, i64(0))), i32(min(high, i64(end))), low <= 0 && high >= (end + 15) / 16 * 16};
  }
  // Copies a word, if the row has bytes of it.
  template <bool WHOLE_WORDS, int UNIT> __device__ void copy(u8* to, i32 from) const {
    if (from >= end) return;
    if (WHOLE_WORDS || (from >= low && from + 16 <= high)) copy_async<16>(to, first + from);
    else copy_some<UNIT>(to, first, from, low, high);
  }
  // Unit by unit.
  template <int UNIT>
  static __device__ __noinline__ void copy_some(u8* to, const u8* first, i32 from, i32 low, i32 high) {
    using S = typename word<UNIT>::type;
#pragma unroll 1
    for (int i = 0; i < 16; i += UNIT)
      if (from + i >= low && from + i < high)
        *reinterpret_cast<S*>(to + i) = *reinterpret_cast<const S*>(first + from + i);
  }
};

// One input or value there: a share's words from FIRST on. They lie so that lanes which read their own shares meet in
// no bank.
template <typename E, int FIRST, int BYTES, int BLOCKS> struct ShareBuffer {
  using V = Lanes<E, GROUP>;
  using W = typename word<sizeof(V) < 16 ? int(sizeof(V)) : 16>::type;
  static constexpr int width = int(sizeof(W)), words = int(sizeof(V)) / width;
  static constexpr int chunk_bytes = RowMemory<BYTES, BLOCKS>::chunk_bytes;
  static_assert(FIRST * 16 + int(sizeof(V)) <= BYTES);
  u8* block;
  i32 own;     // bytes from there to this lane's share of chunk 0, but for those of what is below
  i32 copied;  // the same, to the first word that it copies
  i32 lane;

  ShareBuffer() = default;
  __device__ ShareBuffer(u8* block, const ClusterThread<BLOCKS>& thread)
      : block(block), own(thread.warp_share * BYTES + word_at(thread.lane * words)),
        copied(thread.warp_share * BYTES + word_at(thread.lane)), lane(thread.lane) {
    if (words > 1) own = kept(own);  // that of one word takes no arithmetic
  }

  static __device__ i32 word_at(i32 word) { return word_place<words>(word) * width; }
  __device__ u8* at(i32 bytes) const { return block + bytes + FIRST * 16 * 32; }
  // A word of this lane's share: the words of a share differ in bits that are the same in all chunks.
  __device__ W& word(i32 chunk, int turn, int i) const {
    return *reinterpret_cast<W*>(at((own ^ i * width) + chunk * chunk_bytes) + turn * chunk_bytes);
  }

  // Copies the chunk that comes `turn` after another. Lanes copy neighbouring words.
  __device__ void load(
      const storage_t<E>* row, i32 length, const ClusterThread<BLOCKS>& thread, i32 chunk, int turn) const {
    constexpr int elements = ACCUMULATORS * GROUP;  // of a chunk
    const i32 first = thread.first(chunk) - lane * GROUP;
    const u8* const from = reinterpret_cast<const u8*>(::at<E>(row, first)) + lane * width;
    u8* const to = at(copied + chunk * chunk_bytes);
#pragma unroll
    for (int i = 0; i < words; ++i)
      if (first + lane / words * GROUP + turn * elements + i * (32 / words * GROUP) < length)
        copy_async<width>(
            to + turn * chunk_bytes + i * 32 * width, from + turn * (elements * storage<E>::bits / 8) + i * 32 * width);
  }

  // The same of a row in pieces. HALVES: of halves of shares.
  template <bool HALVES> __device__ void load_pieces(
      const storage_t<E>* row, i32 length, const ClusterThread<BLOCKS>& thread, i32 chunk, const Along& steps) const {
    const i32 first = thread.first(chunk) - (lane - lane / words) * GROUP;
    u8* const to = at(copied + chunk * chunk_bytes);
#pragma unroll
    for (int i = 0; i < words; ++i) {
      const i32 share = first + i * (32 / words * GROUP);
      if (share >= length) continue;
      const i32 word = share + lane % words * (GROUP / words);
      if constexpr (words > 1 || !HALVES) {
        copy_async<width>(to + i * 32 * width, reinterpret_cast<const u8*>(row + steps.in_pieces(word)));
      } else {
#pragma unroll
        for (int half = 0; half < 2; ++half)
          copy_async<width / 2>(
              to + i * 32 * width + half * (width / 2),
              reinterpret_cast<const u8*>(row + steps.in_pieces(word + half * (GROUP / 2))));
      }
    }
  }

  // Whether a row that starts at any element can be copied so, unit by unit.
  static constexpr int unit = int(sizeof(storage_t<E>));
  static constexpr bool in_units = unit == 4 || unit == 8;
  // Copies a chunk of such a row. Lanes copy neighbouring units.
  __device__ void load_units(
      const storage_t<E>* row, i32 length, const ClusterThread<BLOCKS>& thread, i32 chunk) const {
    const i32 first = thread.first(chunk) - lane * (GROUP - 1);
    copy_units<unit, words>(
        at(thread.warp_share * BYTES + chunk * chunk_bytes), first_unit_place<unit, words>(lane),
        reinterpret_cast<const u8*>(row + first), first, length);
  }

  // Narrower ones are copied as the words of 16 bytes around a warp's shares, the last of which may go to `beyond`.
  static constexpr bool around = unit < 4;
  static constexpr int around_words = around ? 32 * int(sizeof(V)) / 16 : 1;  // beside the last one
  template <bool WHOLE_WORDS>
  __device__ void load_around(
      const WordsAround& row, const ClusterThread<BLOCKS>& thread, i32 chunk, u8* beyond) const {
    const i32 from = (thread.first(chunk) - lane * GROUP) * unit + lane * 16;
    u8* const to = at(thread.warp_share * BYTES + chunk * chunk_bytes) + lane * 16;
    if (around_words == 32 || lane < around_words) row.copy<WHOLE_WORDS, unit>(to, from);
    u8* const last = around_words < 32 ? to + around_words * 16 : beyond;
    if (lane == 0) row.copy<WHOLE_WORDS, unit>(last, from + around_words * 16);
  }
  // Moves those of COUNT chunks to where their shares lie in whole words. `beyond_bytes`: from a chunk's `beyond` to
  // the next one's.
  template <int COUNT>
  __device__ void align(
      const storage_t<E>* row, const ClusterThread<BLOCKS>& thread, i32 chunk, i32 end, const u8* beyond,
      i32 beyond_bytes) const {
    constexpr int each = int(sizeof(V)) / 4;
    const u32 skip = u32(u64(row)) & 15;
    const i32 first = lane + i32(skip / 4);
    u8* const own = at(thread.warp_share * BYTES + chunk * chunk_bytes);
    // The words that may lie beyond: those of the last turn.
    const bool apart[] = {around_words == 32 && first >= 32, around_words == 32 && first + 1 >= 32};
    const u8* last[2];
    i32 apart_bytes[2];  // from a chunk's to the next one's
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      last[i] = apart[i] ? beyond + (first + i - 32) * 4 : own + (first + i + (each - 1) * 32) * 4;
      apart_bytes[i] = apart[i] ? beyond_bytes : chunk_bytes;
    }
    u32 v[COUNT][each];
#pragma unroll
    for (int turn = 0; turn < COUNT; ++turn) {
      if (chunk + turn >= end) break;
      const u32* const words = reinterpret_cast<const u32*>(own + turn * chunk_bytes) + first;
#pragma unroll
      for (int i = 0; i + 1 < each; ++i) v[turn][i] = __funnelshift_r(words[i * 32], words[i * 32 + 1], skip * 8);
      v[turn][each - 1] = __funnelshift_r(
          *reinterpret_cast<const u32*>(last[0] + turn * apart_bytes[0]),
          *reinterpret_cast<const u32*>(last[1] + turn * apart_bytes[1]), skip * 8);
    }
    __syncwarp();
#pragma unroll
    for (int turn = 0; turn < COUNT; ++turn) {
      if (chunk + turn >= end) break;
      u32* const words = reinterpret_cast<u32*>(own + turn * chunk_bytes) + lane;
#pragma unroll
      for (int i = 0; i < each; ++i) words[i * 32] = v[turn][i];
    }
  }

  // The share of the chunk that comes `turn` after another.
  __device__ void words_of(i32 chunk, int turn, u32 (&to)[sizeof(V) / 4]) const {
#pragma unroll
    for (int i = 0; i < words; ++i) reinterpret_cast<W*>(to)[i] = word(chunk, turn, i);
  }
  __device__ V share(i32 chunk) const {
    V lanes;
    words_of(chunk, 0, reinterpret_cast<u32(&)[sizeof(V) / 4]>(lanes.data));
    return lanes;
  }
  __device__ void put(i32 chunk, int turn, const V& lanes) const {
#pragma unroll
    for (int i = 0; i < words; ++i) word(chunk, turn, i) = reinterpret_cast<const W*>(lanes.data)[i];
  }
};

// Shares of a column, TURNS of them loaded ahead of their use: they come from far. They are kept as whole words: halves
// of words that a branch may leave as they are would be put together, and waited for, where they are loaded.
template <int MODE, typename E, int TURNS> struct Prefetched {
  using V = Lanes<E, GROUP>;
  static constexpr int count = int(sizeof(V)) / 4;
  u32 words[TURNS][count];

  static __device__ ShareWords<E> words_at(const storage_t<E>* row, i32 first) {
    return *reinterpret_cast<const ShareWords<E>*>(::at<E>(row, first));
  }
  // Unit by unit, and in line: registers would be saved around a call, which is seldom made.
  static __device__ ShareWords<E> some_at(const storage_t<E>* from, i32 left) {
    V lanes = {};
#pragma unroll
    for (int i = 0; i < V::units; ++i)
      if (i * (GROUP / V::units) < left) lanes.data[i] = ::fetch(from + i);
    return reinterpret_cast<const ShareWords<E>&>(lanes);
  }

  template <int BLOCKS>
  __device__ void fetch(
      const storage_t<E>* row, i32 length, const ClusterThread<BLOCKS>& thread, int turn, i32 chunk) {
    ShareWords<E> lanes;
    if constexpr (MODE == WHOLE) {
      lanes = words_at(row, min(thread.first(chunk), length - GROUP));
    } else {  // columns mostly start aligned, however rows do
      const i32 first = min(thread.first(chunk), (length - 1) / GROUP * GROUP);
      if (__builtin_expect(starts_aligned<E>(row) && first + GROUP <= length, 1)) lanes = words_at(row, first);
      else lanes = some_at(::at<E>(row, first), length - first);
    }
#pragma unroll
    for (int i = 0; i < count; ++i) words[turn][i] = lanes.w[i];
  }
  template <int BLOCKS>
  __device__ void begin(const storage_t<E>* row, i32 length, const ClusterThread<BLOCKS>& thread) {
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) fetch(row, length, thread, turn, thread.at_turn(turn));
  }
  __device__ V share(int turn) const {
    V lanes;
    set_words(lanes, words[turn]);
    return lanes;
  }
};
template <int MODE, int TURNS> struct Prefetched<MODE, Place, TURNS> {
  template <int BLOCKS> __device__ void begin(const Place*, i32, const ClusterThread<BLOCKS>&) {}
};
// Shares of a thread that are under way together, where an element of all inputs, or of all columns, has so many bits.
__device__ constexpr int turns_at_once(int bits) { return turns_of(bits, CLUSTER_TURN_BITS, CLUSTER_TURNS); }

// Adds what a pass made of a share, of which a row has `count` elements; whole ones have all.
template <int MODE, typename How, typename V>
__device__ inline void add_group(Partial<How, V, ACCUMULATORS>& partial, V (&group)[GROUP], i32 count) {
  if (!in_whole_shares(MODE) && count < GROUP) cut<How>(group, count);
  partial.add(group);
}
// Adds a share of elements themselves.
template <int MODE, typename How, typename V, typename E>
__device__ inline void add_share(Partial<How, V, ACCUMULATORS>& partial, const Lanes<E, GROUP>& lanes, i32 count) {
  V group[GROUP];
#pragma unroll
  for (int lane = 0; lane < GROUP; ++lane) group[lane] = lanes.get(lane);
  add_group<MODE, How>(partial, group, count);
}

// What the warps of a row found of a reduction, by segment: in the shared memory of each block of its cluster.
template <typename How, typename V> struct WarpResults {
  using P = Partial<How, V, ACCUMULATORS>;
  using S = typename sent<V>::type;
  static_assert(sizeof(S) <= STATE_BYTES && CLUSTER_SEGMENTS == 32);
  static constexpr int bytes = WARPS * sent<V>::bytes;  // that are sent for a segment
  S* values;
  Signal signal;  // stands before them

  WarpResults() = default;
  __device__ explicit WarpResults(u8* memory) : values(reinterpret_cast<S*>(memory + STATE_BYTES)), signal(memory) {}

  // Sends what the lanes of a warp found to every block.
  template <int BLOCKS>
  __device__ void send(const P& partial, i32 segment, const ClusterThread<BLOCKS>& thread) const {
    const S value = partial.template of_lanes<32>();
    if (thread.lane < BLOCKS)
      ::send(in_block(&values[segment * WARPS + thread.warp], thread.lane), value,
           in_block(signal.memory, thread.lane));
  }
  // The value of the row, once all have come: trees of neighbours, of warps and then of segments.
  __device__ V total(i32 segments) const {
    const i32 lane = i32(threadIdx.x) % 32;
    const V first = P::template in_lanes<32>(values[lane]);
    if (segments == 1) return first;
    V own = lane == 0 ? first : How::template nothing<V>();
#pragma unroll 1
    for (i32 segment = 1; segment < segments; ++segment) {
      const V value = P::template in_lanes<32>(values[segment * WARPS + lane]);
      if (lane == segment) own = value;
    }
    return P::template in_lanes<CLUSTER_SEGMENTS>(own);
  }
  // The same, by one warp for all of the block's where joining takes many instructions.
  __device__ V total_for_all(i32 segments) const {
    if constexpr (!same<How, SquaredDeviations>) return total(segments);
    if (threadIdx.x < 32) {
      const V found = total(segments);
      if (threadIdx.x == 0) values[0] = found;
    }
    __syncthreads();
    return values[0];
  }
};
