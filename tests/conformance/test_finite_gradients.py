"""No gradient is NaN where the derivative is a number: every gradient of the catalog, over every finite value.

Of an element, the derivative is no number where the operation has no value, or where a gradient of 1 gives an
infinity.

The list of gradients is the catalog's own. One operand at a time takes all finite values of f16 and bf16, and of f32
and f64 some with each exponent, of both signs: in rows of neighbours, and alone among ordinary elements or zeros. The
other operands are ordinary, 0, the least positive value or a large one: every two of them in every two of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest

from oracles.floats import FORMATS
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind

from .support import floats

CATALOG = registry.catalogs()[0]
PLANS = {plan.operation.function: plan for name in CATALOG.modules for plan in CATALOG.plans(name)}
# Of a loss, the elements: their mean multiplies a gradient by a constant.
ROWS = [f"{name}_as_none" if f"{name}_as_none" in PLANS else name for name in CATALOG.modules]
GRADIENTS = [f"{name}_backward" for name in ROWS if f"{name}_backward" in PLANS]
ROW = 8  # elements
LABEL = 3  # one of as many classes: others have no value
MANY = 20_000  # values of one operand: with so many, the others are all alike
POSITIVE = ("scale", "running_var")
ORDINARY, ZERO, SMALL, LARGE = "ordinary", "zero", "small", "large"

# Where a step on the way leaves the range of C: the operands of these, unless they are f16, are less than 2^(e/n - 8),
# with 2^e the end of the range. n is how many factors, or quotients, make the largest step.
EXCEPTIONS = {
    "learnable_fake_quantize_per_tensor": (2, "a sum of terms of d_output with both signs"),
    "learnable_fake_quantize_per_channel": (2, "a sum of terms of d_output with both signs"),
    "log_softmax": (2, "the sum of d_output"),
    "sparsemax": (2, "the sum of d_output"),
    "prelu": (3, "a sum of terms of d_output with both signs"),
    "affine_per_channel": (3, "a sum of terms of d_output with both signs"),
    "rms_norm": (3, "the sum of d_output * weight * input"),
    "rms_normalize": (3, "the sum of d_output * input, and that of input * input"),
    "add_rms_norm": (3, "the sum of d_output * weight * total"),
    "layer_norm": (3, "the sum of d_output * weight * input, and that of input * input"),
    "standardize": (3, "the sum of d_output * input, and that of input * input"),
    "instance_norm": (3, "the sum of d_output * input, and that of input * input"),
    "group_norm": (3, "the sum of d_output * input, and that of input * input"),
    "batch_norm": (3, "the sum of d_output * input, and that of d_output"),
    "batch_norm_training": (3, "the sum of d_output * input, and that of input * input"),
    "cross_entropy": (3, "the mean of weights, and d_output times weights of both signs"),
    "var": (2, "the sum of inputs of both signs"),
    "l2_normalize": (3, "the sum of d_output * input, and that of input * input"),
    "norm2": (3, "d_output / output, of which a zero is a multiple"),
    "std": (3, "d_output / output, of which a deviation of 0 is a multiple"),
    "prod": (ROW + 1, "the product of a row"),
    "cumprod": (ROW + 1, "products of a row, times d_output"),
    "linear_recurrence": (ROW + 1, "products of a row, times d_output"),
    "logcumsumexp": (2, "the sum of d_output"),
    "outer": (2, "the sum of products of d_output"),
    "add_outer": (2, "the sum of d_output"),
    "mse_loss": (2, "twice d_output, of which a difference of 0 is a multiple"),
    "binary_cross_entropy": (4, "d_output * weight, which a quotient of 0 multiplies"),
    "binary_cross_entropy_with_logits": (4, "a difference of products with weights"),
    "cross_entropy_of_probabilities": (3, "the sum of targets"),
    "multilabel_soft_margin_loss": (3, "a difference of products with targets"),
    "cosine_embedding_loss": (5, "the product of the sums of squares"),
    "triplet_margin_loss": (3, "the sum of squares"),
}
# Where the gradient of an operand is no number, though the operation has a value.
WITHOUT = {
    ("pow", "d_b"): lambda given: given["a"] < 0,  # no power of another exponent
    ("xlogy", "d_b"): lambda given: given["b"] == 0,
}


POLES = ("lgamma", "poisson_nll_loss_as_none")  # infinite at numbers at which no derivative is


def most_of(name: str, element: str) -> float:
    """The magnitude that operands stay below."""
    factors = EXCEPTIONS.get(name.removesuffix("_backward").removesuffix("_as_none"), (1, ""))[0]
    if element == "f16":  # what is computed in f32 has room enough, but not a total that is stored
        return 2.0**14 if name == "add_rms_norm_backward" else np.inf
    return 2.0 ** ((1024 if element == "f64" else 128) // factors - 8) if factors > 1 else np.inf


def every(element: str, most: float) -> np.ndarray:
    """All finite values below `most`, or of wide types some with each exponent."""
    form = FORMATS[element]
    bits = np.arange(form.infinity, dtype=np.uint64) if form.bits == 16 else None
    if bits is None:
        ones = (1 << form.fraction_bits) - 1
        fractions = np.array((0, 1, ones // 3, ones) if element == "f32" else (0, ones // 5), np.uint64)
        exponents = np.arange(form.infinity >> form.fraction_bits, dtype=np.uint64) << np.uint64(form.fraction_bits)
        bits = (exponents[:, None] | fractions).reshape(-1)
    values = floats(bits, element)
    values = values[values.astype(np.float64) < most]
    return np.concatenate([-values[::-1], values])


def filled(operand, word: str, shape, setting: str, most: float) -> np.ndarray:
    """An operand that is not swept."""
    dtype = DTYPES[word]
    if dtype.kind != "float":
        large = (1 << 31) - 1 if setting == LARGE else 3
        return np.full(shape, LABEL if operand.name == "target" else large, dtype.storage)
    rng = np.random.default_rng(12)
    if setting == ORDINARY or (setting == ZERO and operand.name == "scale"):  # a scale of 0 is the caller's error
        ordinary = rng.uniform(0.1, 1, shape) if operand.name in POSITIVE else rng.normal(0, 2, shape)
        return np.asarray(ordinary).astype(dtype.storage)
    large = min(most, 2.0 ** FORMATS[word].bias) / 2  # a slope of up to 1.13 takes it no further
    return np.full(shape, {ZERO: 0.0, SMALL: dtype.smallest, LARGE: large}[setting]).astype(dtype.storage)


def operands_of(name: str) -> list:
    """What the caller of a gradient has: the gradients of the outputs, and the operation's inputs."""
    forward, backward = PLANS[name.removesuffix("_backward")].operation, PLANS[name].operation
    outputs = {operand.name for operand in forward.outputs}
    own = [operand for operand in backward.inputs if operand.name not in outputs]
    if len(own) < len(backward.inputs):
        own += [operand for operand in forward.inputs if operand.name not in {each.name for each in own}]
    return own


def sweeps(name: str, element: str, most: float) -> Iterator[tuple]:
    """(types, extents, the swept operand, its values) of each sweep of a gradient."""
    backward, forward = PLANS[name].operation, PLANS[name.removesuffix("_backward")].operation
    first, *inner = backward.space
    kinds = {tuple(types[each] for each in "TSC" if each in types): types for types in forward.combinations[::-1]}
    for types in (each for each in kinds.values() if each["T"] == element):
        for operand in (each for each in operands_of(name) if each.dims and forward.word(each, types) == element):
            values = every(element, most)
            values = values[values > 0] if operand.name in POSITIVE else values
            along = bool({dim.name for dim in inner} & {dim.name for dim in operand.dims})
            extents = {
                dim.name: (() if index else (ROW,)) if dim.many else ROW for index, dim in enumerate(inner)
            }

            def rows(count, extents=extents):
                return {**extents, first.name: (count,) if first.many else count}

            yield types, rows(-(-len(values) // ROW) if along else len(values)), operand, values
            for beside in (ORDINARY, ZERO) if along and len(values) < MANY else ():
                spread = np.resize(filled(operand, element, ROW, beside, np.inf), (len(values), ROW))
                spread[:, 3] = values
                yield types, rows(len(values)), operand, spread


def plan_of(function: str, backend, types, extents):
    plan_class = PLANS[function]
    operation = plan_class.operation
    fields = {field: types[letter] for letter, field in operation.element_fields.items()}
    fields |= {dim.name: extents[dim.name] for dim in operation.dims}
    fields |= {attribute.name: 4 for attribute in operation.attributes if attribute.type == "size"}
    preference = BackendKind.REFERENCE if backend.name == "reference" else BackendKind.CUDA
    return plan_class.select(plan_class.descriptor_type(**fields), preference=preference)


def run(plan, backend, arrays) -> dict[str, np.ndarray]:
    given = [backend.array(arrays[operand.name]) for operand in plan.operation.inputs]
    made = [backend.array(np.zeros(shape, storage)) for shape, storage in plan.made]
    plan.execute((*given, *made))
    return {o.name: backend.numpy(each) for o, each in zip(plan.operation.outputs, made, strict=True)}


@cache
def settings_of(many: int) -> list[tuple[str, ...]]:
    """Settings of operands in which every two of them are in every two settings: a NaN comes of two values that meet,
    as 0 * inf does and inf - inf."""
    every = [*product((ORDINARY, ZERO, SMALL, LARGE), repeat=many)]
    having = {each: {*combinations(enumerate(each), min(many, 2))} for each in every}
    missing, chosen = set().union(*having.values()), []
    while missing:
        chosen.append(max(every, key=lambda each: len(having[each] & missing)))
        missing -= having[chosen[-1]]
    return chosen


def nans(name: str, element: str, backend, most: float) -> Iterator[str]:
    """Where a gradient is NaN, in words; each sweep begins with an empty text."""
    forward = PLANS[name.removesuffix("_backward")].operation
    made = {operand.name for operand in forward.outputs} & {operand.name for operand in PLANS[name].operation.inputs}
    for types, extents, operand, values in sweeps(name, element, most):
        plans = [plan_of(each, backend, types, extents) for each in ([forward.function] if made else []) + [name]]
        shapes = {o.name: shape for plan in plans for o, shape in zip(plan.operation.inputs, plan.shapes)}
        others = [each for each in operands_of(name) if each is not operand]
        settings = [(each,) * len(others) for each in (ORDINARY, ZERO, SMALL, LARGE)]
        if len(values) < MANY:
            settings = settings_of(len(others))
        yield ""
        for setting in settings:
            arrays = {operand.name: np.resize(values, shapes[operand.name])}
            for other, how in zip(others, setting, strict=True):
                arrays[other.name] = filled(other, forward.word(other, types), shapes[other.name], how, most)
            for plan in plans:  # forward for what the gradient takes of it
                arrays |= run(plan, backend, arrays)
            for output in PLANS[name].operation.outputs:
                wrong = np.isnan(arrays[output.name].astype(np.float64))
                if wrong.any() and elementwise(name):
                    wrong &= ~without_derivative(name, backend, types, extents, arrays)[output.name]
                found = np.argwhere(wrong)
                if len(found):
                    where = {other.name: how for other, how in zip(others, setting, strict=True)}
                    here = {key: _at(value, tuple(found[0])) for key, value in arrays.items()}
                    yield f"{output.name} of {name} {types}, {operand.name} swept, {where}: {here}"


def elementwise(name: str) -> bool:
    """Whether every gradient is of one element, and so is every output."""
    forward, backward = PLANS[name.removesuffix("_backward")].operation, PLANS[name].operation
    return all(operand.dims == forward.space for operand in (*forward.outputs, *backward.outputs))


def without_derivative(name: str, backend, types, extents, arrays) -> dict[str, np.ndarray]:
    """Of each gradient, where the operation has no value or the derivative is infinite."""
    forward, backward = (plan_of(each, backend, types, extents) for each in (name.removesuffix("_backward"), name))
    shapes = dict(zip((o.name for o in forward.operation.inputs), zip(forward.shapes, forward.words)))
    ones = {each: np.ones(shape, DTYPES[word].storage) for each, (shape, word) in shapes.items()}
    values = run(forward, backend, ones | arrays)  # an input that no gradient takes is 1
    none = np.isnan if forward.operation.name not in POLES else lambda x: ~np.isfinite(x)
    missing = np.logical_or.reduce([none(each.astype(np.float64)) for each in values.values()])
    ones = {f"d_{each}": np.ones_like(value) for each, value in values.items()}
    slopes = run(backward, backend, arrays | values | ones)
    own = {
        each: WITHOUT.get((name.removesuffix("_backward"), each), lambda given: missing)(arrays) for each in slopes
    }
    return {each: missing | own[each] | np.isinf(slope.astype(np.float64)) for each, slope in slopes.items()}


def _at(array: np.ndarray, index):
    return array[index] if array.ndim == len(index) and array.shape > index else array.reshape(-1)[:4]


@pytest.mark.turns(12)
@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("name", GRADIENTS)
def test_finite_operands_give_no_nan(backend, name, element):
    found = [*nans(name, element, backend, most_of(name, element))]
    assert [each for each in found if each] == []
    assert found or not any(operand.dims for operand in operands_of(name) if operand.element == "T")


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", EXCEPTIONS)
def test_an_exception_is_one(backend, name):
    name = next(each for each in (f"{name}_as_none_backward", f"{name}_backward") if each in PLANS)
    found = (each for element in ("f32", "f64", "bf16") for each in nans(name, element, backend, np.inf))
    assert any(found), EXCEPTIONS[name.removesuffix("_backward").removesuffix("_as_none")][1]
