// Rows that the blocks of a cluster hold together: each its places' shares, in shared memory, so that a row is read once
// whatever passes follow. Blocks are small, so that several rows share a multiprocessor: one's loads run beside
// another's arithmetic.
#pragma once
#include "reduce.cuh"

constexpr int PLACES = 1024;           // to which the groups of a long row are dealt: skuda.rows
constexpr int SEGMENT_CHUNKS = SEGMENT / (PLACES * GROUP);
constexpr int BATCH = SEGMENT_CHUNKS / 2;  // chunks that are copied as a group
constexpr int CLUSTER_SEGMENTS = 32;   // of a row, at most
constexpr int WARPS = PLACES / 32;      // of these places
constexpr int STATE_BYTES = 16;        // of a partial result, at most
constexpr int CLUSTER_THREADS = 512;   // of a block, at most

// Copies WIDTH bytes into shared memory without waiting for them.
template <int WIDTH> __device__ inline void copy_ahead(u8* to, const u8* from) {
  const u32 there = u32(__cvta_generic_to_shared(to));
  if constexpr (WIDTH == 16)  // past the first cache: nothing reads these bytes again
    asm volatile("cp.async.cg.shared.global [%0], [%1], %2;" ::"r"(there), "l"(from), "n"(WIDTH) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(there), "l"(from), "n"(WIDTH) : "memory");
}
// Those since the last such call are a group.
__device__ inline void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LATER> __device__ inline void all_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
}
// Waits for all groups but the latest ones.
__device__ inline void copies_arrive(i32 later) {
  switch (later) {
    case 0: all_but<0>(); break;
    case 1: all_but<1>(); break;
    case 2: all_but<2>(); break;
    case 3: all_but<3>(); break;
    case 4: all_but<4>(); break;
    case 5: all_but<5>(); break;
    case 6: all_but<6>(); break;
    default: all_but<7>();
  }
  __syncwarp();  // lanes copy for each other
}

// The same variable of another block of the cluster.
__device__ inline u32 in_block(const void* own, u32 block) {
  u32 there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(u32(__cvta_generic_to_shared(own))), "r"(block));
  return there;
}
__device__ inline void give(u32 there, u32 value) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there), "r"(value) : "memory");
}
__device__ inline void give(u32 there, i64 value) {
  asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(there), "l"(value) : "memory");
}
__device__ inline void give(u32 there, f32 value) { give(there, __float_as_uint(value)); }
__device__ inline void give(u32 there, f64 value) { give(there, i64(__double_as_longlong(value))); }
__device__ inline void give(u32 there, bool value) {
  asm volatile("st.shared::cluster.u8 [%0], %1;" ::"r"(there), "r"(u32(value)) : "memory");
}
template <typename V> __device__ inline void give(u32 there, const Placed<V>& found) {
  give(there, found.value);
  give(there + u32(sizeof(Placed<V>) - sizeof(i64)), found.place);
}

// All threads of all blocks of a cluster: what they gave before `arrive` is seen after `wait`.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

__device__ inline i32 chunks_of(i64 length) { return i32((length + PLACES * GROUP - 1) / (PLACES * GROUP)); }
__device__ inline i32 segments_of(i64 length) { return i32((length + SEGMENT - 1) / SEGMENT); }

// What a thread has of a row that BLOCKS blocks hold: a place, and of the row's segments those of its team. A team is as
// many threads of a block as it has places.
template <int BLOCKS> struct Part {
  static constexpr int TEAM = PLACES / BLOCKS;
  i32 lane, warp, place;       // of its warp; of the row's warps; of the places
  i32 team, teams, segments;
  i32 chunks, warp_chunks;     // of the row, up to the last in which this thread's place (its warp's) has elements
  i32 own;                     // this warp's first share among its block's of a chunk

  __device__ explicit Part(i32 length) {
    const i32 rank = i32(blockIdx.x % BLOCKS), thread = i32(threadIdx.x) % TEAM;
    lane = thread % 32;
    place = rank * TEAM + thread;
    warp = place / 32;
    own = thread - lane;
    team = i32(threadIdx.x) / TEAM;
    teams = i32(blockDim.x) / TEAM;
    const i32 shares = (length + GROUP - 1) / GROUP;
    segments = segments_of(length);
    chunks = (shares - place + PLACES - 1) / PLACES;
    warp_chunks = (shares - place + lane + PLACES - 1) / PLACES;
  }
  // The chunks of a segment end here.
  __device__ i32 end(i32 segment, i32 of) const { return min(of, (segment + 1) * SEGMENT_CHUNKS); }
  __device__ i32 first(i32 chunk) const { return (chunk * PLACES + place) * GROUP; }
  // Where this thread's next share begins, after the last one its first again; of a thread that has none, somewhere.
  __device__ i32 next(i32 segment, i32 chunk, i32 end, i32 length) const {
    i32 after = chunk + 1 < end ? chunk + 1 : (segment + teams) * SEGMENT_CHUNKS;
    if (after >= chunks) after = team * SEGMENT_CHUNKS;
    return min(first(after), length - GROUP);
  }
};

// An operand's shares that a warp holds. Words lie so that lanes which read their own shares meet in no bank.
template <typename E, int BLOCKS> struct Held {
  using V = Lanes<E, GROUP>;
  using W = typename word<sizeof(V) < 16 ? int(sizeof(V)) : 16>::type;
  static constexpr int width = int(sizeof(W)), words = int(sizeof(V)) / width;
  static constexpr int bytes = Part<BLOCKS>::TEAM * int(sizeof(V));  // of a chunk
  u8* memory;
  i32 lane;

  __device__ Held(u8* block, const Part<BLOCKS>& part) : memory(block + part.own * int(sizeof(V))), lane(part.lane) {}
  static __device__ i32 word_at(i32 word) { return (word ^ (word >> 3 & (words - 1))) * width; }
  __device__ u8* chunk_at(i32 chunk) const { return memory + chunk * bytes; }

  // Lanes copy neighbouring words.
  __device__ void load(const storage_t<E>* row, i32 length, const Part<BLOCKS>& part, i32 chunk) const {
    const i32 first = part.first(chunk) - lane * GROUP;
    const u8* const from = reinterpret_cast<const u8*>(at<E>(row, first));
#pragma unroll
    for (int i = 0; i < words; ++i) {
      const i32 word = i * 32 + lane;
      if (first + word / words * GROUP < length)
        copy_ahead<width>(chunk_at(chunk) + word_at(word), from + word * width);
    }
  }

  __device__ V share(i32 chunk) const {
    V lanes;
#pragma unroll
    for (int i = 0; i < words; ++i)
      reinterpret_cast<W*>(lanes.data)[i] = *reinterpret_cast<const W*>(chunk_at(chunk) + word_at(lane * words + i));
    return lanes;
  }
};

// Partial results of a row's warps, by segment: in the shared memory of each block of its cluster.
template <typename How, typename V> struct Gathered {
  using P = Partial<How, V, PLACES>;
  static_assert(sizeof(V) <= STATE_BYTES && CLUSTER_SEGMENTS == 32);
  V* values;

  __device__ explicit Gathered(u8* memory) : values(reinterpret_cast<V*>(memory)) {}

  // Of the places of a warp's lanes, to every block.
  template <int BLOCKS> __device__ void add(const P& partial, i32 segment, const Part<BLOCKS>& part) const {
    const V value = P::template across<32>(partial.place);
    if (part.lane < BLOCKS) give(in_block(&values[segment * WARPS + part.warp], part.lane), value);
  }
  // The value of the row, once all have given: trees of neighbours, of warps and then of segments.
  __device__ V total(i32 segments) const {
    const i32 lane = i32(threadIdx.x) % 32;
    const V first = P::template across<32>(values[lane]);
    if (segments == 1) return first;
    V own = lane == 0 ? first : How::template nothing<V>();
#pragma unroll 1
    for (i32 segment = 1; segment < segments; ++segment) {
      const V value = P::template across<32>(values[segment * WARPS + lane]);
      if (lane == segment) own = value;
    }
    return P::template across<CLUSTER_SEGMENTS>(own);
  }
};
