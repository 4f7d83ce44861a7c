"""Operations in JAX programs: under jit, grad, vmap and shard_map, on the CPU and on GPUs.

Nothing has to be called here: `skuda.softmax(x)` of an array that JAX traces imports this package. Whoever runs a
program that was exported or compiled by another process imports it first, so that XLA knows the handler.

Raises:
    MissingDependency: JAX is not installed.
    Unsupported: the installed jaxlib has a foreign function interface that is not known; see `xla_ffi`.
"""

from __future__ import annotations

from skuda.errors import MissingDependency

try:
    import jax as _jax  # noqa: F401
except ImportError as cause:
    raise MissingDependency("skuda.jax needs JAX: pip install 'skuda[jax]'") from cause

from skuda.jax.calls import call  # noqa: F401
