"""Functions as precise as f16 and bf16: how far off they are, what they do at the ends, that they never fall where they
should rise; which rows take them. tests/host compares the bits of CUDA's text."""

from __future__ import annotations

import math

import numpy as np
import pytest

import skuda
import skuda.generated
from skuda.codegen.intrinsics import HALF_BOUNDS, HALVED
from skuda.model.dtypes import DTYPES
from skuda.reference import formulas, half_angles, half_hyperbolic, half_inverse_erf, half_powers, half_precision

INF, NAN = np.inf, np.nan
BOUND = {word: 2.0**power for word, power in HALF_BOUNDS.items()}
# What f16 cannot store may be off by this.
LEFT = {("f16", "ndtr"): 2.0**-39, ("f16", "gelu_slope"): 2.0**-39, ("f16", "erfc"): 2.0**-38}
LEAST = 2.0**-149
OF_TWO = ("atan2", "pow")
CASES = [(name, word) for name in sorted(HALVED.difference(OF_TWO)) for word in BOUND]
RISING = HALVED.difference(OF_TWO, ("gelu_slope", "acos", "erfc", "cosh", "sin", "cos", "tan", "sinpi", "cospi"))
FALLING = {"acos", "erfc"}
CASES_OF_TWO = [(name, word) for name in OF_TWO for word in BOUND]
LN2 = float.fromhex("0x1.62e43p-1")
# At inf, -inf, 0 and -0.
ENDS = {
    "exp": (INF, 0, 1, 1), "exp2": (INF, 0, 1, 1), "sigmoid": (1, 0, 0.5, 0.5), "tanh": (1, -1, 0, -0.0),
    "ndtr": (1, 0, 0.5, 0.5),
    "gelu_slope": (1, -0.0, 0.5, 0.5), "log": (INF, NAN, -INF, -INF), "asin": (NAN, NAN, 0, -0.0),
    "acos": (NAN, NAN, math.pi / 2, math.pi / 2), "atan": (math.pi / 2, -math.pi / 2, 0, -0.0),
    "sin": (NAN, NAN, 0, -0.0), "cos": (NAN, NAN, 1, 1), "tan": (NAN, NAN, 0, -0.0), "sinpi": (NAN, NAN, 0, 0),
    "cospi": (NAN, NAN, 1, 1), "log1p": (INF, NAN, 0, -0.0), "expm1": (INF, -1, 0, -0.0),
    "log1pexp": (INF, 0, LN2, LN2), "sinh": (INF, -INF, 0, -0.0), "cosh": (INF, INF, 1, 1),
    "asinh": (INF, -INF, 0, -0.0), "acosh": (INF, NAN, NAN, NAN), "atanh": (NAN, NAN, 0, -0.0),
    "logit": (NAN, NAN, -INF, -INF), "log2": (INF, NAN, -INF, -INF), "log10": (INF, NAN, -INF, -INF),
    "erfc": (0, 2, 1, 1), "erfinv": (NAN, NAN, 0, -0.0),
}  # fmt: skip


def numbers(word: str) -> np.ndarray:
    """Every finite number of a type, rising."""
    every = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[word].storage).astype(np.float32)
    return np.unique(every[np.isfinite(every)])


def density(x: float) -> float:
    return math.exp(-0.5 * min(x * x, 4000)) / math.sqrt(2 * math.pi)


def exact(name: str, x: np.ndarray) -> np.ndarray:
    """Another way to the values, in f64; next to the zero of gelu's slope from the zero on."""
    if name == "erfinv":
        return formulas.erfinv(x)
    if name == "erfc":
        return np.array([math.erfc(value) for value in x.tolist()])
    below = np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in x.tolist()])
    if name == "gelu_slope":
        return below + np.clip(x, -1e6, 1e6) * np.array([density(value) for value in x.tolist()])
    if name == "ndtr":
        return below
    if name in ("sinpi", "cospi"):
        return of_turns(name, x)
    if name == "logit":
        return np.log(x) - np.log1p(-x)
    if name == "log1pexp":
        return np.logaddexp(0, x)
    return 1 / (1 + np.exp(-x)) if name == "sigmoid" else getattr(np, name)(x)


def of_turns(name: str, x: np.ndarray) -> np.ndarray:
    """By what 2 leaves of |x|, exact, or of |x| + 1/2, exact where it matters."""
    rest = np.fmod(np.fmod(np.abs(x), 2) + 0.5 * (name == "cospi"), 2)
    sign, rest = np.where(rest > 1, -1, 1), rest - (rest > 1)
    value = sign * np.sin(np.pi * np.minimum(rest, 1 - rest))
    return value if name == "cospi" else np.copysign(1, x) * value


def called(name: str, *arguments: np.ndarray | str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return getattr(formulas, name)(*arguments)


def pairs(word: str) -> tuple[np.ndarray, np.ndarray]:
    """Every number of a type, infinities and NaN too, with each of some: special ones, and of all magnitudes."""
    every = np.concatenate([numbers(word), np.array([-0.0, INF, -INF, NAN], np.float32)])
    few = np.array([0, 1, 2, 3, 0.5, 1.5, 0.1, 1000, INF], np.float32)
    few = np.concatenate([few, -few, [NAN], every[:: len(every) // 60]]).astype(np.float32)
    return np.repeat(every, few.size), np.tile(few, every.size)


@pytest.mark.parametrize("name, word", CASES)
def test_every_number_is_within_the_bound(name, word):
    x = numbers(word)
    got = called(name, x, word)
    with np.errstate(all="ignore"):
        expected = exact(name, x.astype(np.float64))
    assert got.dtype == np.float32
    over = np.abs(expected) >= 2.0**128 * (1 - BOUND[word])
    beyond = np.abs(expected) >= 2.0**128 * (1 + BOUND[word])
    assert (got[beyond] == np.copysign(INF, expected[beyond])).all()
    allowed = np.maximum(np.abs(expected) * BOUND[word], LEFT.get((word, name), 0)) + LEAST
    assert (np.isnan(got) == np.isnan(expected)).all()
    known = ~over & np.isfinite(expected)
    off = np.abs(got[known].astype(np.float64) - expected[known]) / allowed[known]
    assert off.max() <= 1 and off.max() > 0.001, x[known][off.argmax()]


@pytest.mark.turns(3)
@pytest.mark.parametrize("name, word", CASES_OF_TWO)
@pytest.mark.parametrize("turned", [False, True])
def test_pairs_of_numbers_are_within_the_bound(name, word, turned):
    """Signs and special values are those of C's functions, which NumPy calls in f64."""
    x, y = pairs(word)[::-1] if turned else pairs(word)
    got = called(name, x, y, word)
    with np.errstate(all="ignore"):
        expected = {"pow": np.power, "atan2": np.arctan2}[name](x.astype(np.float64), y.astype(np.float64))
    assert got.dtype == np.float32 and (np.isnan(got) == np.isnan(expected)).all()
    x, y, got, expected = (each[~np.isnan(expected)] for each in (x, y, got, expected))
    assert (np.signbit(got) == np.signbit(expected)).all() and (got[expected == 0] == 0).all()
    largest = 2.0**128
    near, size = np.minimum(np.abs(got.astype(np.float64)), largest), np.minimum(np.abs(expected), largest)
    off = np.abs(near - size) / (size * BOUND[word] + 2 * LEAST)
    assert 0.01 < off.max() <= 1, (x[off.argmax()], y[off.argmax()])


@pytest.mark.parametrize("name, word", [case for case in CASES if case[0] in RISING | FALLING])
def test_what_is_stored_never_falls(name, word):
    """Those of `FALLING` never rise."""
    x = numbers(word)[:: -1 if name in FALLING else 1]
    with np.errstate(over="ignore"):
        stored = formulas.narrow(called(name, x, word), word).astype(np.float32)
    assert not (stored[1:] < stored[:-1]).any()  # a logarithm below 0 is NaN


@pytest.mark.parametrize("word", BOUND)
def test_stored_hyperbolic_cosines_never_fall_above_0(word):
    x = numbers(word)
    x = x[x >= 0]
    with np.errstate(over="ignore"):
        stored = formulas.narrow(called("cosh", x, word), word).astype(np.float32)
    assert not (stored[1:] < stored[:-1]).any()
    assert called("cosh", -x, word).tobytes() == called("cosh", x, word).tobytes()


@pytest.mark.parametrize("name, word", CASES)
def test_ends(name, word):
    x = np.array([INF, -INF, 0, -0.0, NAN], np.float32)
    got, expected = called(name, x, word), np.array([*ENDS[name], NAN], np.float32)
    assert formulas.narrow(got, "f32").tobytes() == formulas.narrow(expected, "f32").tobytes()


@pytest.mark.parametrize("name", sorted(HALVED))
def test_other_types_take_the_steps_of_c(name):
    x = np.linspace(-3, 3, 100)
    for word in ("f32", "f64"):
        each = (x.astype(word.replace("f", "float")),) * (1 + (name in OF_TWO))
        assert called(name, *each, word).tobytes() == called(name, *each).tobytes()
    each = (x.astype(np.float32), x[::-1].astype(np.float32))[: 1 + (name in OF_TWO)]
    assert called(name, *each, "f16").tobytes() != called(name, *each, "").tobytes()
    tables = half_precision.STEPS, half_powers.SERIES, half_angles.ANGLES, half_hyperbolic.SUMS
    tables += half_inverse_erf.SHARES, half_inverse_erf.RESTS
    assert all(table.keys() == BOUND.keys() for table in tables)


def test_rows_of_the_catalog():
    """What a logarithm of a sum follows is as precise as C; the others store T, or codes and their scale."""
    taken = {op.row for op in skuda.generated.CATALOG.operations if op.analysis.precise_as}
    assert {"log", "pow", "powi", "atan2", "xlogy"} <= taken
    assert {"gelu", "gelu_tanh", "silu_mul", "softmax", "gelu_quantize_per_tensor", "softmax_dynamic_quantize"} <= taken
    assert not taken & {"log_softmax", "logsumexp", "kl_div"}  # what one choice sums may cancel


X = "x: T[*n, d]"
TAKEN = (
    "y: T[*n, d] = exp(x)",
    "y: T[*n, d] = x * tanh(x)",
    "y: T[*n, d] = x / (1 + exp(-x))",
    "y: T[*n, d] = exp(x) / sum(exp(x), over=d)",
    "y: T[*n, d] = max(sigmoid(x), 0.1) + abs(x)",
    "y: T[*n, d] = where(x > 0, x, ndtr(x))",
    "y: u8[*n, d] = clamp(round_to_int(exp(x) / 3), 0, 255)",
    "y: bool[*n, d] = sigmoid(x) > 0.3",
    "y: T[*n, d] = x * log(x)",
    "y: T[*n, d] = sum(1 + pow(abs(x), 2.5), over=d) * x",
    "y: T[*n, d] = atan2(x, x - 1) / 3",
    "y: T[*n, d] = pow(x, 2.5)",
    "y: T[*n, d] = where(x > 0, x, 0.5 * expm1(x))",
    "y: T[*n, d] = 1 + cosh(x) + log1pexp(x) + log1p(abs(x))",
    "y: T[*n, d] = 1 + acos(x)",
    "y: T[*n, d] = tan(x) / cos(x)",
    "y: T[*n, d] = sum(1 + atan(abs(x)), over=d) * sinpi(x)",
)
NOT_TAKEN = (
    "y: T[*n, d] = exp(x) - 1",
    "y: T[*n, d] = 1 - sigmoid(x)",
    "y: T[*n, d] = x + exp(x)",
    "y: T[*n, d] = log(exp(x))",
    "y: T[*n, d] = 1 + log(x)",
    "y: T[*n, d] = 1 + log1p(x)",
    "y: T[*n, d] = x + log1pexp(x)",
    "y: T[*n, d] = expm1(log1p(x) / 2)",
    "y: T[*n, d] = 1 + atan2(x * x, x)",
    "y: T[*n, d] = 1 + sin(x)",
    "y: T[*n, d] = 1 + asin(x)",
    "y: T[*n, d] = acos(cos(x))",
    "y: T[*n, d] = sum(1 + pow(x, 2.5), over=d) * x",
    "y: T[*n, d] = x * pow(sum(exp(x), over=d), 2.5)",
    "y: T[*n, d] = x * log(pow(sum(x, over=d), 2.5))",
    "y: T[*n, d] = exp(sigmoid(x))",
    "y: T[*n, d] = sum(x * exp(x), over=d) * x",
    "y: C[*n, d] = exp(x)",
    "y: i32[*n, d] = clamp(round_to_int(exp(x)), 0, 100000)",
    "y: T[*n, d] = sqrt(abs(x))",
)


@pytest.mark.parametrize("formula, taken", [*((f, True) for f in TAKEN), *((f, False) for f in NOT_TAKEN)])
def test_a_row_takes_them_where_its_error_stays_relative(formula, taken):
    signature, _, text = formula.partition(" = ")
    name, _, of = signature.partition(": ")
    op = skuda.define(name="tried_half", inputs={"x": "T[*n, d]"}, outputs={name: f"{of} = {text}"}, backward="none")
    assert (op.plan_class.operation.analysis.precise_as == "T") == taken
