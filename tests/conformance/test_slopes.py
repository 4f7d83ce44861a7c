"""Every declared gradient is the slope of its operation: against central differences of the definition, in 60 digits.

Each definition is held against the operation's own forward pass, too. Where there is none here, it is the operation's
oracle (differences.py). Rounding to codes has no slope: codes and what is made of them are derived straight through,
with the rounding errors, and which codes are cut, held as they are.
"""

from __future__ import annotations

import domains
import mpmath
import numpy as np
import pytest

from oracles import functions, philox
from oracles.floats import F128, FORMATS
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.operation import Direction
from skuda.model.sku import BackendKind

from .differences import OfOracle
from .test_every_operation import reduction_of

STEP = mpmath.mpf("1e-20")
DIRECTIONS = 3
Q_MIN, Q_MAX = -5, 4
CATALOG = registry.catalogs()[0]
PLANS = {
    (plan.operation.name, plan.operation.direction): plan
    for name in CATALOG.modules
    for plan in CATALOG.plans(name)
    if plan.operation.name in CATALOG.modules
}
GRADIENTS = {name: plan for (name, direction), plan in PLANS.items() if direction is Direction.BACKWARD}

_exp, _log, _sqrt, _ncdf, _tanh, _truncated = (
    np.vectorize(function, otypes=[object])
    for function in (mpmath.exp, mpmath.log, mpmath.sqrt, mpmath.ncdf, mpmath.tanh, int)
)


_erfinv, _lgamma = (np.vectorize(function, otypes=[object]) for function in (mpmath.erfinv, mpmath.loggamma))


def _uniform(input, seed, offset):
    """The random number of each element, by its position."""
    one = [philox.random_uniform(int(seed.item()), int(offset.item()), index, "f64") for index in range(input.size)]
    return np.array([mpmath.mpf(x.numerator) / x.denominator for x in one], object).reshape(input.shape)


def _sum(x):
    return x.sum(-1, keepdims=True)


def _mean(x):
    return _sum(x) / x.shape[-1]


def _rms_normalize(input, eps=1e-6):
    return input / _sqrt(_mean(input**2) + mpmath.mpf(eps))


def _standardize(input, eps=1e-5):
    return _rms_normalize(input - _mean(input), eps)


def _softmax(input):
    return _exp(input) / _sum(_exp(input))


def _variance(input):
    return _sum((input - _mean(input)) ** 2)[..., 0] / (input.shape[-1] - 1)


def _gelu_tanh(input):
    inner = mpmath.sqrt(2 / mpmath.pi) * (input + mpmath.mpf("0.044715") * input**3)
    return input * (1 + _tanh(inner)) / 2


def _add_rms_norm(input, residual, weight):
    total = input + residual
    return total, _rms_normalize(total) * weight


# By the name without a granularity: of arrays of mpf that broadcast to the shape of the operation's space;
# what is reduced over is the last axis.
DEFINITIONS = {
    "lerp": lambda a, b, weight: a + weight * (b - a),
    "lerp_tensor": lambda a, b, weight: a + weight * (b - a),
    "gelu": lambda input: input * _ncdf(input),
    "gelu_tanh": _gelu_tanh,
    "silu_mul": lambda gate, up: gate / (1 + _exp(-gate)) * up,
    "rms_norm": lambda input, weight: _rms_normalize(input) * weight,
    "rms_normalize": _rms_normalize,
    "add_rms_norm": _add_rms_norm,
    "layer_norm": lambda input, weight, bias: _standardize(input) * weight + bias,
    "standardize": _standardize,
    "softmax": _softmax,
    "log_softmax": lambda input: _log(_softmax(input)),
    "l2_normalize": lambda input: input / _sqrt(_sum(input**2)),
    "sum": lambda input: input.sum(-1),
    "mean": lambda input: _mean(input)[..., 0],
    "prod": lambda input: input.prod(-1),
    "amax": lambda input: input.max(-1),
    "amin": lambda input: input.min(-1),
    "norm1": lambda input: abs(input).sum(-1),
    "norm2": lambda input: _sqrt((input**2).sum(-1)),
    "logsumexp": lambda input: _log(_exp(input).sum(-1)),
    "var": _variance,
    "std": lambda input: _sqrt(_variance(input)),
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "minimum": lambda a, b: np.minimum(a, b),
    "maximum": lambda a, b: np.maximum(a, b),
    "neg": lambda input: -input,
    "dropout": lambda input, seed, offset: input * (_uniform(input, seed, offset) >= 0.5) * 2,
    "erfinv": lambda input: _erfinv(input),
    "lgamma": lambda input: _lgamma(input),
    "ldexp": lambda input, exponent: input * 2**exponent,
    "powi": lambda input: input**2,
    "div": lambda a, b: a / b,
    "fmod": lambda a, b: a - b * _truncated(a / b),
    "copysign": lambda a, b: abs(a) * np.where(b < 0, -1, 1),
    "fmin": lambda a, b: np.minimum(a, b),
    "fmax": lambda a, b: np.maximum(a, b),
    "clamp": lambda input: np.minimum(np.maximum(input, -0.5), 0.5),
    "clamp_min": lambda input: np.maximum(input, -0.5),
    "clamp_max": lambda input: np.minimum(input, 0.5),
    "clamp_tensor": lambda input, low, high: np.minimum(np.maximum(input, low), high),
    "addcmul": lambda input, a, b: input + a * b,
    "addcdiv": lambda input, a, b: input + a / b,
    "affine": lambda input, scale=1, shift=0: input * scale + shift,
    "glu": lambda gate, up: up / (1 + _exp(-gate)),
    "reglu": lambda gate, up: np.maximum(gate, 0) * up,
    "geglu": lambda gate, up: gate * _ncdf(gate) * up,
    "geglu_tanh": lambda gate, up: _gelu_tanh(gate) * up,
    "cast": lambda input: input,
    "abs": lambda input: abs(input),
    "where": lambda condition, a, b: np.where(condition != 0, a, b),
    "dequantize": lambda input, scale, zero_point: (input - zero_point) * scale,
    "dequantize_fp8": lambda input, scale: input * scale,
}


class FastPath:
    """Definitions with rounding, derived straight through: the first call finds the errors that later ones keep."""

    def __init__(self):
        self.errors = self.cut = None

    def code(self, steps, low, high):
        """Steps rounded and cut to the codes."""
        if self.cut is None:
            nearest = np.vectorize(mpmath.nint, otypes=[object])(steps)
            self.errors = nearest - steps
            self.cut = np.where(nearest < low, -1, np.where(nearest > high, 1, 0))
        return np.where(self.cut < 0, low, np.where(self.cut > 0, high, steps + self.errors))

    def quantize(self, input, scale, zero_point):
        return self.code(input / scale, Q_MIN - zero_point, Q_MAX - zero_point) + zero_point

    def quantize_fp8(self, input, scale):
        """Only which codes are cut matters to the slope, so the codes are not rounded."""
        if self.cut is None:
            self.cut = np.where(abs(input / scale) > Q_MAX, np.where(input > 0, 1, -1), 0)
        return np.where(self.cut, self.cut * Q_MAX, input / scale)

    def fake_quantize(self, input, scale, zero_point):
        return (self.quantize(input, scale, zero_point) - zero_point) * scale

    learnable_fake_quantize = fake_quantize

    def gelu_quantize(self, input, scale, zero_point):
        return self.quantize(DEFINITIONS["gelu"](input), scale, zero_point)

    def gelu_tanh_quantize(self, input, scale, zero_point):
        return self.quantize(DEFINITIONS["gelu_tanh"](input), scale, zero_point)


def definition_of(name: str):
    """What an operation gives, and whether that is said straight through."""
    stem = name.partition("_per_")[0]
    if stem in DEFINITIONS:
        return DEFINITIONS[stem], False
    if stem in functions.FORWARD:
        operation = PLANS[name, Direction.FORWARD].operation
        types = types_of(operation)
        numbers = {each.name: each.default_for(types) for each in operation.attributes if not each.names_axes}
        return functions.defined(stem, numbers | domains.bounds(operation)), False
    return getattr(FastPath(), stem, None), True


def test_operations_that_round_have_definitions():
    """Differences of results that are rounded to codes say nothing of a gradient."""
    stems = {name.partition("_per_")[0] for name in GRADIENTS if "quantize" in name}
    missing = {stem for stem in stems if stem not in DEFINITIONS and not hasattr(FastPath, stem)}
    assert not missing, f"add what these give to DEFINITIONS: {sorted(missing)}"
    assert len(GRADIENTS) > 40


def types_of(operation) -> dict[str, str]:
    """The widest types that an operation has."""
    return next(each for each in operation.combinations if set(each.values()) <= {"f64", "s8", "e4m3", "i32"})


def select(name: str, direction: Direction, backend):
    """A plan of f64: two rows of five, ragged groups of three."""
    plan_class, space = PLANS[name, direction], PLANS[name, Direction.FORWARD].operation.space
    operation = plan_class.operation
    types = types_of(operation)
    fields = {field: types[letter] for letter, field in operation.element_fields.items()}
    for dim in operation.dims:
        along = (5,) if len(space) > 1 else (2, 5)
        fields[dim.name] = 5 if not dim.many else along if dim == space[-1] else (2,)
    own = {"q_min": Q_MIN, "q_max": Q_MAX, "group_size": 3}
    fields |= {attribute.name: own[attribute.name] for attribute in operation.attributes if attribute.name in own}
    fields |= domains.bounds(operation)
    preference = BackendKind.REFERENCE if backend.name == "reference" else BackendKind.CUDA
    return plan_class.select(plan_class.descriptor_type(**fields), preference=preference)


def run(backend, plan, given: dict) -> dict[str, np.ndarray]:
    """The outputs of a plan by name."""
    inputs = [backend.array(given[operand.name]) for operand in plan.operation.inputs]
    outputs = [backend.array(np.zeros(shape, storage)) for shape, storage in plan.made]
    plan.execute((*inputs, *outputs))
    names = [operand.name for operand in plan.operation.outputs]
    return {name: backend.numpy(each) for name, each in zip(names, outputs, strict=True)}


def exactly(values: np.ndarray) -> np.ndarray:
    """The same as numbers of mpmath."""
    made = np.empty(values.shape, object)
    for position in np.ndindex(values.shape):
        made[position] = mpmath.mpf(float(values[position]))
    return made


def spread(values: np.ndarray, operand, operation, sizes) -> np.ndarray:
    """A parameter's values where the elements of the space find them."""
    own = {dim.name: dim for dim in operand.dims}
    for axis, dim in enumerate(operation.space):
        if dim.name not in own:
            values = np.expand_dims(values, axis)
        elif own[dim.name].block:
            block = sizes[own[dim.name].block]
            values = np.take(values, np.arange(sizes[dim.name]) // block, axis)
    return values


def compare_with_oracle(backend, forward, backward, given: dict, rng) -> None:
    """A gradient beside slopes of the operation's oracle, along directions in which no two elements' parts cancel."""
    oracle = OfOracle(forward, reduction_of(forward.operation))
    results = run(backend, forward, given)
    for key, exact in oracle(given).items():
        np.testing.assert_allclose(results[key], exact.astype(float), rtol=1e-13, atol=1e-14)
    read = {operand.name for operand in backward.operation.inputs}  # of other outputs there is no gradient
    gradients = {key: rng.normal(0, 1, np.shape(each)) for key, each in results.items() if f"d_{key}" in read}
    got = run(backend, backward, given | results | {f"d_{key}": each for key, each in gradients.items()})
    for key, slopes in got.items():
        key = key.removeprefix("d_")
        for _ in range(DIRECTIONS):
            along = rng.integers(1, 64, slopes.shape) * rng.choice([-1, 1], slopes.shape)
            slope = float(oracle.slope(given, gradients, key, along))
            parts = slopes * along
            assert abs(slope - parts.sum()) < 1e-13 * max(1, abs(parts).sum()), f"d_{key}"
    assert any(np.any(each) for each in got.values()) or forward.operation.row in domains.ALIKE


@pytest.mark.turns(4)
@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_is_the_slope_of_its_operation(backend, name, monkeypatch):
    rng = np.random.default_rng(list(name.encode()))
    forward, backward = (select(name, each, backend) for each in (Direction.FORWARD, Direction.BACKWARD))
    operation = forward.operation
    definition, straight = definition_of(name)
    given = {}
    for operand, shape, word in zip(operation.inputs, forward.shapes, forward.words):
        if (ends := domains.domain(operation.row, operand.name)) is not None:
            given[operand.name] = rng.uniform(*ends, shape)
        elif DTYPES[word].kind == "bool":
            given[operand.name] = rng.integers(0, 2, shape).astype(DTYPES[word].storage)
        elif DTYPES[word].kind == "int" and operand.name == "target":
            given[operand.name] = rng.integers(0, 4, shape).astype(DTYPES[word].storage)
        elif DTYPES[word].kind == "int":
            given[operand.name] = rng.integers(-3, 4, shape).astype(DTYPES[word].storage)
        elif operand.name in ("scale", "zero_point"):
            scales = (0.1, 0.2) if name.startswith("gelu") else (0.3, 0.6)  # of gelu, half the values are near 0
            low, high = scales if operand.name == "scale" else (1, 1)  # a zero point is learned as an integer
            given[operand.name] = rng.uniform(low, high, shape)
        else:
            values = functions.placed(name, rng.normal(0, 2, shape))
            given[operand.name] = values.astype(DTYPES[word].storage)
    if definition is None:
        with monkeypatch.context() as patched:
            patched.setitem(FORMATS, F128.word, F128)
            compare_with_oracle(backend, forward, backward, given, rng)
        return

    def exact(values: dict) -> dict:
        found = definition(**{o.name: spread(values[o.name], o, operation, forward.sizes) for o in operation.inputs})
        found = found if isinstance(found, tuple) else (found,)
        return dict(zip((operand.name for operand in operation.outputs), found, strict=True))

    with mpmath.workdps(60):
        point = {key: exactly(each) for key, each in given.items()}
        outputs = exact(point)
        results = run(backend, forward, given)
        for key, values in () if straight else outputs.items():
            np.testing.assert_allclose(results[key], values.astype(float), rtol=1e-13, atol=1e-14)
        gradients = {key: rng.normal(0, 1, np.shape(each)) for key, each in outputs.items()}
        taken = given | results | {f"d_{key}": each for key, each in gradients.items()}
        got = run(backend, backward, taken)
        weighed = {operand.name.removeprefix("d_") for operand in backward.operation.inputs}
        weights = {key: each for key, each in gradients.items() if key in weighed}

        def loss(key, position, move):
            moved = point[key].copy()
            moved[position] += move
            found = exact(point | {key: moved})
            return mpmath.fsum(each for output, g in weights.items() for each in (found[output] * g).reshape(-1))

        for key, slopes in got.items():
            key = key.removeprefix("d_")
            for position in np.ndindex(slopes.shape):
                slope = (loss(key, position, STEP) - loss(key, position, -STEP)) / (2 * STEP)
                assert abs(slope - float(slopes[position])) < 1e-13 * max(1, abs(slope)), f"d_{key}{position}"
    if straight:
        assert 0 < np.count_nonzero(definition.__self__.cut) < definition.__self__.cut.size
