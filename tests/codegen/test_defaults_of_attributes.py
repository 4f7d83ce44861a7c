"""Defaults that are infinite, or that depend on the element types: what a call without the attribute computes."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
import torch

import skuda
from skuda.errors import InvalidProblem
from skuda.model import documentation

# The largest finite numbers, from the definitions of the formats.
HIGHEST = {
    "f64": (2 - 2.0**-52) * 2.0**1023,
    "f32": (2 - 2.0**-23) * 2.0**127,
    "f16": 65504.0,
    "bf16": (2 - 2.0**-7) * 2.0**127,
}
ELEMENTS = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
SPECIAL = [-math.inf, -3.0, -0.5, 0.0, 0.5, 2.0, math.inf, math.nan]


@pytest.fixture(scope="module")
def limited():
    """The element, cut to bounds that are infinite, and the limits of its type."""
    return skuda.define(
        name="limited_by_default",
        inputs={"x": "T[*n]"},
        attrs={"low": "C = -inf", "high": "C = inf", "most": "C = highest(T)", "least": "C = lowest(T)"},
        outputs={"y": "T[*n] = clamp(x, low, high)", "ends": "T[*n] = where(x > 0, most, least)"},
    )


@pytest.mark.parametrize("word", HIGHEST)
def test_a_call_without_the_attributes(limited, word):
    x = np.array(SPECIAL).astype(ELEMENTS[word])
    y, ends = limited(x)
    np.testing.assert_array_equal(y.astype(np.float64), SPECIAL)
    expected = [HIGHEST[word] if each > 0 else -HIGHEST[word] for each in SPECIAL]
    assert ends.astype(np.float64).tolist() == expected
    assert limited(x, low=0, most=7)[0].astype(np.float64)[:3].tolist() == [0, 0, 0]
    assert limited(x, most=7).ends.astype(np.float64)[4] == 7


def test_how_they_are_told(limited):
    assert "low=-inf, high=inf, most=highest(T), least=lowest(T)" in repr(limited)
    operation = limited.plan_class.operation
    told = [documentation.of_attribute(operation, each).split("; ")[1] for each in operation.attributes]
    assert told == [
        "-inf if not given", "inf if not given", "the highest finite number of T if not given",
        "the lowest finite number of T if not given",
    ]  # fmt: skip


def test_limits_of_integers():
    codes = skuda.define(
        name="limits_by_default",
        types={"T": ["i32", "s8", "u8"]},
        inputs={"x": "T[*n]"},
        attrs={"low": "T = lowest(T)", "high": "T = highest(T)", "window": "i32 = highest(i32)"},
        outputs={"y": "T[*n] = clamp(x, low, high)", "w": "i32[*n] = clamp(x, window, window)"},
    )
    for element in (np.int32, np.int8, np.uint8):
        limits = np.iinfo(element)
        x = np.array([limits.min, 0, 5, limits.max], element)
        assert codes(x).y.tolist() == x.tolist() and codes(x, high=3).y.tolist()[2:] == [3, 3]
        assert set(codes(x).w.tolist()) == {2**31 - 1}
    with pytest.raises(InvalidProblem, match=r"high is inf, expected an integer \(i32\)"):
        codes(np.zeros(3, np.int32), high=math.inf)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_catalog_has_the_defaults_of_torch(dtype):
    x = torch.tensor(SPECIAL, dtype=dtype)
    torch.testing.assert_close(skuda.nan_to_num(x), torch.nan_to_num(x), rtol=0, atol=0)
    torch.testing.assert_close(skuda.nan_to_num(x, posinf=1), torch.nan_to_num(x, posinf=1), rtol=0, atol=0)
    for bounds in ({"low": -0.25}, {"high": 0.25}, {"low": -0.25, "high": 0.25}):
        named = {{"low": "min", "high": "max"}[name]: value for name, value in bounds.items()}
        theirs, ours = x.clone().requires_grad_(), x.clone().requires_grad_()
        expected, found = torch.clamp(theirs, **named), skuda.clamp(ours, **bounds)
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        expected.sum().backward()
        found.sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=0)
    for unbounded in (skuda.clamp, skuda.clamp_min, skuda.clamp_max):
        torch.testing.assert_close(unbounded(x), x, rtol=0, atol=0, equal_nan=True)


def test_traced_by_torch(limited):
    """The operator's schema leaves the number to the plan, and a compiled program has the same."""
    for name in ("clamp", "nan_to_num"):
        schema = str(getattr(torch.ops.skuda, name).default._schema)
        assert "inf" not in schema.replace("posinf", "").replace("neginf", "") and "=None" in schema
    x = torch.tensor(SPECIAL, requires_grad=True)
    compiled = torch.compile(lambda x: skuda.clamp(x, low=-1) + skuda.nan_to_num(x), backend="aot_eager")
    torch.testing.assert_close(
        compiled(x), skuda.clamp(x, low=-1) + skuda.nan_to_num(x), rtol=0, atol=0, equal_nan=True
    )
