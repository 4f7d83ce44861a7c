"""Operations in JAX programs: under jit, grad, vmap and shard_map, on the CPU and on GPUs.

Nothing has to be called here: `skuda.softmax(x)` of an array that JAX traces imports this package.
"""

from __future__ import annotations
