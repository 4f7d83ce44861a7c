"""Operations in JAX programs: under jit, grad, vmap and shard_map, on the CPU and on GPUs.

Nothing has to be called here: `skuda.softmax(x)` of an array that JAX traces imports this package. Whoever runs a
program that was exported or compiled by another process imports it first, so that XLA knows the handler.

Raises:
    MissingDependency: JAX is not installed.
    Unsupported: it is too old, or the installed jaxlib has a foreign function interface that is not known (`xla_ffi`).
"""

from __future__ import annotations

from skuda.errors import MissingDependency, Unsupported

try:
    import jax as _jax
except ImportError as cause:
    raise MissingDependency("skuda.jax needs JAX: pip install 'skuda[jax]'") from cause
if _jax.__version_info__ < (0, 10):
    raise Unsupported(f"skuda.jax needs JAX 0.10 or newer, found {_jax.__version__}: pip install 'skuda[jax]'")

from skuda.jax.calls import carry  # noqa: F401
