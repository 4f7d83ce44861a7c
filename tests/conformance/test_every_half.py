"""Every f16 and bf16 input of every operation of one element: the nearest value, but for counted exceptions.

A row is computed in f32 and rounded once more to its type, so that a result next to the middle of two values may be the
other one. The nearest value is that of the f64 row, which the oracles hold against mpmath, rounded to the half type.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from domains import bounds

from skuda.launch import registry
from skuda.model.operation import Direction
from skuda.model.sku import BackendKind

CATALOG = registry.catalogs()[0]
ALL = {"f16": np.arange(1 << 16, dtype=np.uint16).view(np.float16)}
ALL["bf16"] = ALL["f16"].view(ml_dtypes.bfloat16)


def of_one_element(operation) -> bool:
    """Whether a forward operation takes one float and gives one, or a boolean."""
    one = len(operation.inputs) == len(operation.outputs) == 1 and operation.direction is Direction.FORWARD
    one = one and operation.inputs[0].element == "T" and operation.outputs[0].element in ("T", "bool")
    same = one and operation.inputs[0].dims == operation.outputs[0].dims == operation.space[:1]
    return same and floats_of(operation) >= {"f16", "f64"}


def floats_of(operation) -> set[str]:
    return {types["T"] for types in operation.combinations if set(types) <= {"T", "C"}}


PLANS = {
    plan.operation.name: plan
    for name in CATALOG.modules
    for plan in CATALOG.plans(name)
    if of_one_element(plan.operation) and not plan.operation.analysis.reductions
}


def run(name: str, backend, x: np.ndarray, element: str, limits: str | None = None) -> np.ndarray:
    """Attributes have their defaults, of an element type that may be another."""
    plan_class = PLANS[name]
    attributes = plan_class.operation.attributes
    given = {each.name: each.default_for({"T": limits or element}) for each in attributes}
    given |= bounds(plan_class.operation)
    fields = {field: element for field in plan_class.operation.element_fields.values()}
    preference = BackendKind.REFERENCE if backend.name == "reference" else BackendKind.CUDA
    descriptor = plan_class.descriptor_type(**fields, **given, shape=x.shape)
    plan = plan_class.select(descriptor, preference=preference)
    made = [backend.array(np.zeros(shape, storage)) for shape, storage in plan.made]
    plan.execute((backend.array(x), *made))
    return backend.numpy(made[0])


def missed(name: str, element: str, backend) -> np.ndarray:
    """By how many steps between neighbours each result is beside the nearest value."""
    x = ALL[element]
    found = run(name, backend, x, element)
    with np.errstate(all="ignore"):
        exact = run(name, backend, x.astype(np.float64), "f64", element)
        nearest = exact.astype(found.dtype)
    assert found.dtype in (x.dtype, np.bool_)
    if found.dtype == np.bool_:
        return np.abs(found.astype(int) - nearest)
    assert np.array_equal(np.isnan(found), np.isnan(nearest))
    numbers = ~np.isnan(found)
    return np.abs(ordinal(found) - ordinal(nearest))[numbers]


def ordinal(values: np.ndarray) -> np.ndarray:
    """The place of each value among all: neighbours differ by 1, zeros of both signs by none."""
    bits = values.view(np.int16).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFF), bits)


# Of 65,536 results, how many may be the value beside the nearest one. bf16 has so few digits that f32 decides all.
MOST = {"f16": 20, "bf16": 0}
# Of functions that have shorter polynomials where a half type is stored.
SHORTER = {
    "exp": {"f16": 46, "bf16": 29},
    "exp2": {"f16": 51, "bf16": 6},
    "log": {"f16": 22, "bf16": 6},
    "tanh": {"f16": 138, "bf16": 26},
    "sigmoid": {"f16": 23, "bf16": 23},
    "silu": {"f16": 47, "bf16": 21},
    "mish": {"f16": 63, "bf16": 27},
    "gelu": {"f16": 443, "bf16": 48},
    "gelu_tanh": {"f16": 43, "bf16": 16},
    "asin": {"f16": 14, "bf16": 6},
    "acos": {"f16": 75, "bf16": 21},
    "atan": {"f16": 80, "bf16": 28},
    "sin": {"f16": 42, "bf16": 0},
    "cos": {"f16": 70, "bf16": 0},
    "tan": {"f16": 158, "bf16": 26},
    "sinc": {"f16": 46, "bf16": 0},
    "log2": {"f16": 16, "bf16": 2},
    "log10": {"f16": 16, "bf16": 2},
    "log1p": {"f16": 177, "bf16": 22},
    "expm1": {"f16": 4, "bf16": 6},
    "elu": {"f16": 1, "bf16": 3},
    "celu": {"f16": 1, "bf16": 3},
    "selu": {"f16": 4, "bf16": 5},
    "sinh": {"f16": 220, "bf16": 30},
    "cosh": {"f16": 160, "bf16": 30},
    "asinh": {"f16": 72, "bf16": 6},
    "acosh": {"f16": 10, "bf16": 0},
    "atanh": {"f16": 100, "bf16": 2},
    "softplus": {"f16": 171, "bf16": 30},
    "log_sigmoid": {"f16": 171, "bf16": 30},
    "logit": {"f16": 10, "bf16": 0},
    "erfc": {"f16": 457, "bf16": 62},
    "erfinv": {"f16": 106, "bf16": 12},
}


@pytest.mark.parametrize("element", ALL)
@pytest.mark.parametrize("name", PLANS)
def test_every_input_gives_the_nearest_value(backend, name, element):
    steps = missed(name, element, backend)
    assert steps.max() <= 1
    assert np.count_nonzero(steps) <= SHORTER.get(name, MOST)[element]


@pytest.mark.parametrize("name", ["cbrt", *SHORTER])
def test_the_exceptions_are_counted(backend, name):
    for element in ALL:
        assert np.count_nonzero(missed(name, element, backend)) == SHORTER.get(name, MOST)[element]


def test_operations_are_found():
    assert len(PLANS) > 60
