// Dependent launches: kernels that may begin when all blocks of the kernel before have begun or ended, and wait for its
// end by themselves.
#pragma once

// Blocks of a map, up to which the next kernel may begin early: more of them would write in between the blocks of this
// one.
constexpr unsigned SOON_BLOCKS = 512;

__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
// Waits until the kernel before has ended and what it wrote is there.
__device__ inline void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
