// The threads of a cluster of blocks as fibers, one cluster after the other: each runs until it waits for others.
#include <algorithm>
#include <cfenv>
#include <csetjmp>
#include <map>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

#include "device.h"

Dim threadIdx, blockIdx, blockDim, gridDim;
unsigned long long* exchanged;

float __fmaf_rd(float a, float b, float c) {
  volatile float x = a, y = b, z = c;
  fesetround(FE_DOWNWARD);
  const volatile float result = std::fma(float(x), float(y), float(z));
  fesetround(FE_TONEAREST);
  return result;
}
double __fma_rd(double a, double b, double c) {
  volatile double x = a, y = b, z = c;
  fesetround(FE_DOWNWARD);
  const volatile double result = std::fma(double(x), double(y), double(z));
  fesetround(FE_TONEAREST);
  return result;
}

namespace {

constexpr size_t STACK = 128 << 10, PAGE = 4096;
constexpr int BLOCKS = 16;  // of a cluster, at most

struct Barrier {
  int come = 0, turn = 0;
};
struct Copy {
  void* to;
  const void* from;
  size_t size;
};
struct Fiber {
  jmp_buf resume;                 // where it goes on
  bool started, done;
  int cluster_turn;          // of the cluster's barrier, which it arrived at
  std::vector<Copy> copies;  // on their way, in groups
  std::vector<size_t> groups;  // where each begins, and the next one
};
struct Block {
  Barrier barrier, warps[32];
  unsigned long long exchanged[1024];
};

// Pages that are there when they are touched.
char* reserved(size_t size) {
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? (abort(), nullptr) : static_cast<char*>(memory);
}

jmp_buf scheduler;
std::vector<Fiber> fibers;
Block cluster[BLOCKS];
Barrier together;
char *stacks, *shared;
const std::function<void()>* body;
bool moved;
int current, rank, size, dynamic_bytes;
unsigned declared;  // bytes of shared memory that have a variable

void come(Barrier& barrier, int wanted) {
  moved = true;
  if (++barrier.come < wanted) return;
  barrier.come = 0;
  ++barrier.turn;
}

// Unlike swapcontext, jumps ask the system nothing.
void leave() {
  if (!_setjmp(fibers[current].resume)) _longjmp(scheduler, 1);
}

void wait_beyond(const Barrier& barrier, int turn) {
  while (barrier.turn == turn) leave();
}

void wait(Barrier& barrier, int wanted) {
  const int turn = barrier.turn;
  come(barrier, wanted);
  wait_beyond(barrier, turn);
}

// A fiber is a thread of one block after another.
void start() {
  for (;;) {
    (*body)();
    fibers[current].done = moved = true;
    leave();
  }
}

// Goes on with the current fiber until it leaves.
void enter() {
  Fiber& fiber = fibers[current];
  if (_setjmp(scheduler)) return;
  if (fiber.started) _longjmp(fiber.resume, 1);
  fiber.started = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = stacks + STACK * current;
  context.uc_stack.ss_size = STACK;
  makecontext(&context, start, 0);
  setcontext(&context);
}

struct Waited {
  int threads, bytes;  // that have yet to come
  int of, phase;       // threads of a phase, and how many phases are over
};
std::map<unsigned, Waited> signals;  // of a cluster, by address

char* block_memory() { return shared + size_t(rank) * SHARED_BYTES; }

}  // namespace

void __syncwarp() { wait(cluster[rank].warps[threadIdx.x / 32], 32); }
void __syncthreads() { wait(cluster[rank].barrier, blockDim.x); }
void barrier_cluster_arrive_relaxed_aligned() {
  fibers[current].cluster_turn = together.turn;
  come(together, size * blockDim.x);
}
void barrier_cluster_arrive_release_aligned() { barrier_cluster_arrive_relaxed_aligned(); }
void barrier_cluster_wait_acquire_aligned() { wait_beyond(together, fibers[current].cluster_turn); }

unsigned reserve_shared(size_t bytes) {
  const unsigned offset = declared;
  declared += unsigned(bytes + 15) / 16 * 16;
  if (declared > SHARED_BYTES / 2) abort();
  return offset;
}
void* shared_memory(unsigned offset) { return block_memory() + offset; }
// It ends where a block's memory does: the page after it must not be touched.
void* dynamic_shared_memory() { return block_memory() + SHARED_BYTES - PAGE - (dynamic_bytes + 15) / 16 * 16; }
unsigned __cvta_generic_to_shared(const void* at) { return unsigned(static_cast<const char*>(at) - shared); }
unsigned mapa_shared__cluster_u32(unsigned at, unsigned block) { return at % SHARED_BYTES + block * SHARED_BYTES; }
void mbarrier_init_shared__cta_b64(unsigned at, int threads) { signals[at] = {threads, 0, threads, 0}; }
void mbarrier_arrive_expect_tx_shared__cta_b64(unsigned at, int bytes) {
  --signals.at(at).threads;
  signals.at(at).bytes += bytes;
}
void st_shared__cluster_u32(unsigned at, unsigned value) { memcpy(shared + at, &value, 4); }
void st_async(unsigned at, const void* value, int bytes, unsigned signal) {
  memcpy(shared + at, value, bytes);
  if ((signals.at(signal).bytes -= bytes) < 0) abort();
  moved = true;
}
void mbarrier_try_wait_parity_shared__cta_b64(unsigned at) {
  while (signals.at(at).threads > 0 || signals.at(at).bytes > 0) leave();
}
void mbarrier_try_wait_parity_shared__cta_b64(unsigned at, unsigned parity) {
  while ((signals.at(at).phase & 1) == int(parity)) leave();
}
void cp_async_commit_group() { fibers[current].groups.push_back(fibers[current].copies.size()); }
void cp_async_wait_group(int later) {
  std::vector<size_t>& groups = fibers[current].groups;
  const size_t end = groups[std::max(0, int(groups.size()) - 1 - later)];
  for (size_t index = 0; index < end; ++index) {
    const Copy& copy = fibers[current].copies[index];
    if (copy.to) memcpy(copy.to, copy.from, copy.size);
    fibers[current].copies[index].to = nullptr;
  }
}

// ---- what kernels touch ----

namespace {

constexpr unsigned char READ = 1, WRITE = 2;
uintptr_t arena;  // where the operands lie
size_t arena_bytes;
const unsigned char* allowed;  // of each of its bytes
long long faults, first_fault[3];

// A GPU's loads and stores lie on multiples of their sizes; those of structs, of any number of bytes, are several.
inline void touch(uintptr_t at, size_t bytes, unsigned char wanted, size_t alignment = 1) {
  const size_t offset = at - arena;
  if (offset >= arena_bytes) return;
  for (size_t i = 0; i < bytes; ++i) {
    if (offset + i < arena_bytes && allowed[offset + i] & wanted && at % alignment == 0) continue;
    if (!faults++) {
      first_fault[0] = (long long)offset;
      first_fault[1] = (long long)bytes;
      first_fault[2] = wanted == WRITE;
    }
    return;
  }
}

}  // namespace

extern "C" {
void allow(uintptr_t begin, size_t bytes, const unsigned char* which) {
  arena = begin, arena_bytes = bytes, allowed = which, faults = 0;
}
// How often something was touched that is not allowed since it was last asked, and what first: see emulator.py.
long long touched(long long* first) {
  const long long count = faults;
  std::copy(first_fault, first_fault + 3, first);
  faults = 0;
  return count;
}
#define TOUCH(BYTES) \
  void __asan_load##BYTES##_noabort(uintptr_t at) { touch(at, BYTES, READ, BYTES); } \
  void __asan_store##BYTES##_noabort(uintptr_t at) { touch(at, BYTES, WRITE, BYTES); }
TOUCH(1)
TOUCH(2)
TOUCH(4)
TOUCH(8)
TOUCH(16)
void __asan_loadN_noabort(uintptr_t at, size_t bytes) { touch(at, bytes, READ); }
void __asan_storeN_noabort(uintptr_t at, size_t bytes) { touch(at, bytes, WRITE); }
void __asan_handle_no_return() {}
}

void cp_async(unsigned to, const void* from, int bytes) {
  if ((to | unsigned(uintptr_t(from))) % bytes) abort();
  touch(uintptr_t(from), bytes, READ);
  fibers[current].copies.push_back({shared + to, from, size_t(bytes)});
}

void cp_async_bulk_shared__cluster_global_mbarrier__complete_tx__bytes(
    unsigned to, const void* from, int bytes, unsigned signal) {
  if ((to | unsigned(uintptr_t(from)) | unsigned(bytes)) % 16) abort();
  touch(uintptr_t(from), bytes, READ);
  memcpy(shared + to, from, bytes);
  Waited& waited = signals.at(signal);
  if ((waited.bytes -= bytes) < 0) abort();
  if (waited.bytes == 0 && waited.threads == 0) waited.threads = waited.of, ++waited.phase, moved = true;
}

bool run_blocks(
    long long blocks, int threads, int blocks_of_cluster, int shared_bytes, const std::function<void()>& kernel) {
  body = &kernel;
  size = blocks_of_cluster;
  dynamic_bytes = shared_bytes;
  blockDim.x = threads;
  gridDim.x = int(blocks);
  if (!shared) {
    shared = reserved(size_t(BLOCKS) * SHARED_BYTES);
    stacks = reserved(STACK * BLOCKS * 1024);
    for (rank = 0; rank < BLOCKS; ++rank) mprotect(block_memory() + SHARED_BYTES - PAGE, PAGE, PROT_NONE);
  }
  const int all = threads * size;
  if (int(fibers.size()) < all) fibers = std::vector<Fiber>(all);
  for (long long number = 0; number < blocks; number += size) {
    together = Barrier();
    signals.clear();
    for (rank = 0; rank < size; ++rank) {
      cluster[rank] = Block();
      memset(dynamic_shared_memory(), 0xa5, dynamic_bytes);
    }
    for (int fiber = 0; fiber < all; ++fiber) {
      Fiber& each = fibers[fiber];
      each.done = false;
      each.copies.clear();
      each.groups.assign(1, 0);
    }
    for (int left = all; left > 0;) {
      left = 0;
      moved = false;
      for (int fiber = 0; fiber < all; ++fiber) {
        if (fibers[fiber].done) continue;
        current = fiber;
        rank = fiber / threads;
        threadIdx.x = fiber % threads;
        blockIdx.x = int(number) + rank;
        exchanged = cluster[rank].exchanged;
        enter();
        left += !fibers[fiber].done;
      }
      if (left > 0 && !moved) {
        fibers.clear();  // these go on nowhere
        return false;
      }
    }
  }
  return true;
}
