// What the kernel of slabs makes of a row: a signal that it has come to shared memory, and its reductions.
#pragma once
#include "row_args.cuh"

constexpr int SLAB_KEEPS = 72;  // registers of a thread for sums, columns and what passes use of a row's elements
constexpr int SLAB_KEEPS_WIDE = 64;  // the same of elements of 4 bytes in whole words
constexpr int SLAB_LINE = 128;  // bytes
constexpr int SLAB_WARP = 32 * GROUP;  // elements of a row that a warp takes at once

// The order in which a thread holds a share of two words of 16 bytes: every other four lanes hold their second word
// first, or they would meet the others in banks of shared memory. Groups are added as trees of neighbours, so no bit
// changes.
template <bool CROSSED> struct ShareOrder {
  i32 first;  // the first word

  // From this order to that of the elements, or back.
  template <typename V> __device__ void change(V (&values)[GROUP]) const {
    if constexpr (CROSSED)
#pragma unroll
      for (int i = 0; i < GROUP / 2; ++i) {
        const V one = values[i], other = values[i + GROUP / 2];
        values[i] = first ? other : one;
        values[i + GROUP / 2] = first ? one : other;
      }
  }
  // Which word is in place i.
  __device__ i32 operator()(int i) const { return CROSSED ? i ^ first : i; }
};

// A reduction of a pass over a row of THREADS threads, and its room in shared memory: rows take turns.
template <
    typename P, typename Pass, int I, int THREADS, bool WANTED,
    bool REDUCES = WANTED && type_at<typename Pass::Makes, I>::reduces>
struct SlabReducer {
  using Make = type_at<typename Pass::Makes, I>;
  using How = typename Make::How;
  using V = state_t<How, typename Make::Value>;
  using Shared = typename P::Shared;
  static constexpr int WARPS = THREADS / 32;
  struct alignas(16) Scratch { V of[2][WARPS]; };
  Partial<How, V, THREADS> partial;
  V group[GROUP];

  static __device__ void begin(Shared& shared) {
    if constexpr (Make::finite != nullptr) shared.*Make::finite = true;
  }
  __device__ void set(int lane, typename Make::Value value, i32 first) {
    group[lane] = state_of<How>(value, first + lane);
  }
  template <bool WHOLE_ROWS, bool CROSSED> __device__ void add(i32 left, const ShareOrder<CROSSED>& order) {
    if constexpr (WHOLE_ROWS) partial.add(group);
    else partial.add_cut(group, 0, left, [&](V(&some)[GROUP], i32 count) {
      order.change(some);
      cut<How>(some, count);
    });
  }
  // What a warp found, which one of its lanes tells the others.
  __device__ V of_warp(Shared& shared) const {
    if constexpr (Make::finite != nullptr) shared.*Make::finite &= partial.finite;
    return partial.template of_lanes<32>();
  }
  static __device__ void tell(const V& value, Scratch& scratch, int turn) {
    scratch.of[turn][threadIdx.x % THREADS / 32] = value;
  }
  // The result of a warp that has added all of a row.
  __device__ void take(Shared& shared) const {
    shared.*Make::member = result_of(partial.template of_lanes<32>());
  }
  static __device__ void receive(Shared& shared, const Scratch& scratch, int turn) {
    V value;
    if constexpr (WARPS <= 8 && sizeof(V) <= 8) {
      V each[WARPS];
#pragma unroll
      for (int i = 0; i < WARPS; ++i) each[i] = scratch.of[turn][i];
#pragma unroll
      for (int apart = 1; apart < WARPS; apart *= 2)
#pragma unroll
        for (int i = 0; i < WARPS; i += 2 * apart) each[i] = How::of(each[i], each[i + apart]);
      value = each[0];
    } else {
      using All = Partial<How, V, THREADS>;
      value = All::template across<direction<How> != 0 ? 32 : WARPS>(scratch.of[turn][threadIdx.x % WARPS]);
    }
    shared.*Make::member = result_of(value);
  }
};
// An output that an earlier pass knows too, which the last one stores; or what is not wanted.
template <typename P, typename Pass, int I, int THREADS, bool WANTED>
struct SlabReducer<P, Pass, I, THREADS, WANTED, false> {
  struct Scratch {};
  static __device__ void begin(typename P::Shared&) {}
  template <typename V> __device__ void set(int, V, i32) {}
  template <bool WHOLE_ROWS, bool CROSSED> __device__ void add(i32, const ShareOrder<CROSSED>&) {}
  __device__ int of_warp(typename P::Shared&) const { return 0; }
  static __device__ void tell(int, Scratch&, int) {}
  __device__ void take(typename P::Shared&) const {}
  static __device__ void receive(typename P::Shared&, const Scratch&, int) {}
};

// What the elements of a group go into the sums as. `groups`: for each sum, R, has room `of` its values.
template <typename J, u32 INPUTS, typename Groups, typename Shares, int... R>
__device__ inline void summands(
    Groups& groups, const typename J::Sums::SplitPass& across, const Shares& own, const typename J::Rows::Shared& shared,
    Seq<R...>) {
  auto make = [&](auto fast, bool& usual) {
#pragma unroll
    for (int i = 0; i < GROUP; ++i) {
      typename J::Sums::Held held;
      const auto made = across.template of<int(fast), 0>(
          J::element(element_in_lane<typename J::Rows, INPUTS>(own, i), shared), held, usual);
      ((get<R>(groups).of[i] = get<R>(made)), ...);
    }
  };
  bool usual = across.fast();
  make(Constant<1>(), usual);
  if constexpr (J::Sums::SplitPass::CAREFUL)
    if (__builtin_expect(!usual, 0)) make(Constant<0>(), usual);
}

// The reductions of the first pass that only bound a value of the row, as bits: a program has a member BOUNDS.
template <typename J, typename V = void> constexpr u32 bounds_of = 0;
template <typename J> constexpr u32 bounds_of<J, decltype(void(J::BOUNDS))> = J::BOUNDS;
// Whether a value surely lies between the extremes of elements, for some elements lie below and above it. Each of a
// warp's lanes has one. Then the value stands for the extremes, which cut it no more than they would.
template <typename C> __device__ inline bool lies_between(C& smallest, C& largest, C value, C element) {
  smallest = largest = value;
  return __any_sync(0xffffffffu, element < value) && __any_sync(0xffffffffu, element > value);
}

// Tells a block's threads that a row has come, time and again; `parity` is that of how often it has before.
struct RowSignal {
  u32 at;

  __device__ explicit RowSignal(const u64* memory) : at(u32(__cvta_generic_to_shared(memory))) {}
  __device__ void begin(int threads) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(threads) : "memory");
  }
  static __device__ void begun() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
  __device__ void expect(i32 bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
  }
  // Copies whole words, of 16 bytes.
  __device__ void copy(u8* to, const u8* from, i32 bytes) const {
    const u32 there = u32(__cvta_generic_to_shared(to));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(there),
                 "l"(from), "r"(bytes), "r"(at) : "memory");
  }
  __device__ void wait(u32 parity) const {
    asm volatile("{ .reg .pred come; again: mbarrier.try_wait.parity.shared::cta.b64 come, [%0], %1;"
                 " @!come bra again; }" ::"r"(at), "r"(parity) : "memory");
  }
};
// What threads have written is there before copies that begin behind a barrier.
__device__ inline void written_before_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }


// Copies elements that do not lie in whole words, before others are copied to where they go.
template <typename S> __device__ __noinline__ void copy_units(u8* to, const u8* from, const u8* end) {
#pragma unroll 1
  for (; from < end; from += sizeof(S), to += sizeof(S)) *reinterpret_cast<S*>(to) = *reinterpret_cast<const S*>(from);
  written_before_copies();
}
