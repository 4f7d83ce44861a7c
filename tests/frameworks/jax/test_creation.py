"""Calls without arrays in JAX programs: beside an array that JAX traces, or of a number that it does."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import skuda
from skuda.errors import Unsupported


def test_a_program_creates_beside_its_arrays():
    def program(x):
        return x + skuda.arange(3, 0.5, like=x) + skuda.full(3, 2.0, like=x) + skuda.eye((1, 3), like=x)[0]

    expected = np.ones(3) + [0.5, 1.5, 2.5] + 2 + [1, 0, 0]
    assert np.array_equal(jax.jit(program)(jnp.ones(3)), expected)
    assert isinstance(skuda.arange(3, like=jnp.ones(1)), jax.Array)


def test_a_seed_may_be_traced():
    made = jax.jit(lambda seed: skuda.randn((2, 2), seed))(3)
    assert np.array_equal(made, skuda.randn((2, 2), 3))
    made = jax.vmap(lambda value: skuda.full(2, value) + value)(jnp.arange(3.0))
    assert np.array_equal(made, np.array([[0, 0], [2, 2], [4, 4]]))


def test_there_is_no_gradient_of_a_value():
    with pytest.raises(Unsupported, match="has no declared gradient"):
        jax.grad(lambda value: skuda.full(2, value).sum())(1.0)
