// The threads of a block as fibers, one block after the other: each runs until it waits for others.
#include <cfenv>
#include <ucontext.h>
#include <vector>

#include "device.h"

Dim threadIdx, blockIdx, blockDim;
unsigned long long exchanged[1024];

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

constexpr size_t STACK = 128 << 10;

struct Barrier {
  int come = 0, turn = 0;
};

ucontext_t scheduler, fibers[1024];
std::vector<char> stacks;
const std::function<void()>* body;
bool done[1024], moved;
int current;
Barrier block, warps[32];

void wait(Barrier& barrier, int size) {
  const int turn = barrier.turn, self = current;
  moved = true;
  if (++barrier.come == size) {
    barrier.come = 0;
    ++barrier.turn;
    return;
  }
  while (barrier.turn == turn) swapcontext(&fibers[self], &scheduler);
}

void start() {
  (*body)();
  done[current] = moved = true;
  swapcontext(&fibers[current], &scheduler);
}

}  // namespace

void __syncwarp() { wait(warps[threadIdx.x / 32], 32); }
void __syncthreads() { wait(block, blockDim.x); }

bool run_blocks(long long blocks, int threads, const std::function<void()>& kernel) {
  body = &kernel;
  stacks.resize(STACK * threads);
  blockDim.x = threads;
  for (long long number = 0; number < blocks; ++number) {
    blockIdx.x = int(number);
    block = Barrier();
    for (Barrier& warp : warps) warp = Barrier();
    for (int thread = 0; thread < threads; ++thread) {
      done[thread] = false;
      getcontext(&fibers[thread]);
      fibers[thread].uc_stack.ss_sp = &stacks[STACK * thread];
      fibers[thread].uc_stack.ss_size = STACK;
      makecontext(&fibers[thread], start, 0);
    }
    for (int left = threads; left > 0;) {
      left = 0;
      moved = false;
      for (int thread = 0; thread < threads; ++thread) {
        if (done[thread]) continue;
        current = threadIdx.x = thread;
        swapcontext(&scheduler, &fibers[thread]);
        left += !done[thread];
      }
      if (left > 0 && !moved) return false;
    }
  }
  return true;
}
