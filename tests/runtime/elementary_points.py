"""Where the functions of `powers`, `log1pexp`, `hyperbolic`, `logit`, `trigonometric`, `turns`, `gamma` and
`inverse_erf` are hard, and how far off they are.

    python tests/runtime/elementary_points.py COUNT [NAME...]

prints the largest distances from mpmath's values over COUNT points of each kind, in units in the last place.
"""

from __future__ import annotations

import sys

import mpmath
import numpy as np
from mpmath import mpf

from skuda.reference import gamma, hyperbolic, inverse_erf, log1pexp, logit, powers, trigonometric, turns

MODULE = {name: module for module, names in (
    (powers, "exp2 expm1 log2 log10 log1p pow rsqrt cbrt hypot"), (hyperbolic, "sinh cosh asinh acosh atanh"),
    (trigonometric, "sin cos tan asin acos atan atan2"), (gamma, "lgamma digamma"), (inverse_erf, "erfinv"),
    (log1pexp, "log1pexp"), (logit, "logit"), (turns, "sinpi cospi"),
) for name in names.split()}  # fmt: skip

EXACT = {name: getattr(mpmath, name) for name in MODULE if hasattr(mpmath, name)} | {
    "exp2": lambda x: mpmath.power(2, x), "log2": lambda x: mpmath.log(x) / mpmath.log(2), "pow": mpmath.power,
    "lgamma": lambda x: mpmath.re(mpmath.loggamma(x)),
    "log1pexp": lambda x: mpmath.log1p(mpmath.exp(x)) if x < 2000 else x,
    "logit": lambda x: mpmath.log(x / (1 - x)) if 0 < x < 1 else mpmath.nan,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x), "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
}  # fmt: skip
PAIRS = ("pow", "hypot", "atan2")
BITS = {np.float32: (24, -149, 128), np.float64: (53, -1074, 1024)}  # precision, least and greatest exponent


def every_exponent(C, count: int, rng: np.random.Generator) -> np.ndarray:
    """Finite values of both signs, spread over all bit patterns."""
    kind = np.uint32 if C is np.float32 else np.uint64
    values = rng.integers(0, np.iinfo(kind).max, count, dtype=kind).view(C)
    return np.where(np.isfinite(values), values, C(1))


def beside(value: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """Values at all distances from one."""
    return value + rng.normal(0, 1, count) * 2.0 ** -rng.integers(0, 54, count)


def quarters(C, count: int, rng: np.random.Generator) -> np.ndarray:
    """The nearest values to multiples of pi / 2, of all sizes."""
    most = 100 if C is np.float32 else 1000
    with mpmath.workprec(1200):
        multiples = [int(rng.integers(1, 2**31)) << int(rng.integers(0, most - 40)) for _ in range(count // 4)]
        far = [float(multiple * mpmath.pi / 2) for multiple in multiples]
    hardest = [6381956970095103.0 * 2.0**797, 2.0**1023] if C is np.float64 else [16367173.0 * 2.0**72]
    return np.concatenate([rng.integers(-(2**21), 2**21, count) * (np.pi / 2), far, hardest])


def zeros(name: str) -> np.ndarray:
    """The values next to the first zeros of the functions of `gamma` below 0."""
    if name == "lgamma":
        slope, most = mpmath.digamma, 17
        starts = ["-2.457", "-2.7476", "-3.1436", "-3.9553", "-4.0394"]
        starts += [-n + sign / mpmath.factorial(n) for n in range(5, most) for sign in (1, -1)]
    else:
        slope = lambda x: mpmath.polygamma(1, x)  # noqa: E731
        starts = ["-0.504", *(-n - 1 + mpmath.acot(mpmath.log(n + 1.5) / mpmath.pi) / mpmath.pi for n in range(1, 30))]
    with mpmath.workprec(150):
        found = [mpf(start) for start in starts]
        for _ in range(8):
            found = [x - EXACT[name](x) / slope(x) for x in found]
        return np.array([float(x) for x in found])


def below_zero(name: str, C, count: int, rng: np.random.Generator) -> np.ndarray:
    """Values below 0, those next to zeros too."""
    at = zeros(name).astype(C)
    nearest = at[:, None] + np.arange(-1, 2, dtype=C) * np.spacing(np.abs(at))[:, None]
    apart = rng.choice(at, count) + rng.choice([-1, 1], count) * 2.0 ** -rng.uniform(1, 50, count)
    whole = -np.floor(np.exp2(rng.uniform(0, 20, count)))
    return np.concatenate([rng.uniform(-12, 0, count), whole - rng.uniform(0, 1, count), apart, nearest.reshape(-1)])


def points(name: str, C, count: int, seed: int = 1) -> tuple[np.ndarray, ...]:
    """Arguments of a function: of every exponent, and where it is hard."""
    rng = np.random.default_rng(seed)
    top = 1075 * np.log(2) if C is np.float64 else 150 * np.log(2)
    parts = [every_exponent(C, count, rng), rng.normal(0, 1, count), beside(0, count, rng), beside(1, count, rng)]
    if name in ("exp2", "expm1", "sinh", "cosh"):
        unit = 1 if name == "exp2" else np.log(2)
        halves = (rng.integers(-1080, 1080, count) + 0.5) * unit + rng.normal(0, 0.01, count)
        parts += [rng.uniform(-top, top, 2 * count) / np.log(2) * unit, halves, np.linspace(-1.5, 1.5, 2 * count)]
    if name == "log1pexp":
        parts += [rng.uniform(-top, 40, 2 * count), rng.uniform(-3, 3, count)]
    if name == "logit":
        parts += [rng.uniform(0, 1, 3 * count), beside(0.5, count, rng), 2.0 ** rng.uniform(-1075, 0, count)]
    if name in ("sinpi", "cospi"):
        parts += [rng.integers(-9, 9, count) / 2 + beside(0, count, rng), rng.uniform(-3, 3, 2 * count)]
        parts += [2.0 ** rng.uniform(20, 53, count), rng.integers(-40, 40, count) / 4]
    if name in ("sin", "cos", "tan"):
        parts += [quarters(C, count, rng), rng.uniform(-7, 7, 2 * count), rng.uniform(-(2**21), 2**21, count)]
    if name in ("asin", "acos", "atanh", "erfinv"):
        parts += [rng.uniform(-1, 1, 2 * count), -beside(1, count, rng), rng.normal(0, 2.0**-19, count // 4)]
    if name == "asinh":
        parts += [rng.normal(0, 2.0**-12, count // 4), rng.normal(0, 2.0**-20, count // 4)]
        parts += [2.0 ** rng.uniform(29, 31, count // 4)]
    with np.errstate(all="ignore"):
        x = np.concatenate([np.asarray(part).astype(C) for part in parts])
        if name in ("log2", "log10", "rsqrt", "acosh", "pow"):
            x = np.abs(x)
        if name in ("lgamma", "digamma"):
            more = rng.uniform(0, 12, count), beside(2, count, rng), below_zero(name, C, count, rng)
            x = np.concatenate([np.abs(x), *more]).astype(C)
        if name == "logit":
            x = np.abs(x)
            x = x[x <= 1]
        if name == "acosh":
            x = np.concatenate([x[x >= 1], C(1) + x[x < 1]])
        if name == "log1p":
            x = np.concatenate([x, np.abs(x[np.abs(x) < 1]) - C(1)])
        if name not in PAIRS:
            return (x,)
        if name == "pow":  # results of every exponent
            x = x[(x > 0) & (x != 1)]
            return x, (rng.uniform(-top, top, x.size) / np.log(x.astype(np.float64))).astype(C)
        ratio = (x.astype(np.float64) * 2.0 ** rng.uniform(-70, 70, x.size)).astype(C)
        return np.concatenate([x, x]), np.concatenate([ratio, rng.permutation(x)])


def furthest(name: str, C, arguments: tuple[np.ndarray, ...], got: np.ndarray) -> tuple[float, list[float]]:
    """The largest distance from mpmath's values in units in the last place, and where; inf where what is finite or
    defined differs."""
    precision, least, greatest = BITS[C]
    worst, where = mpf(0), []
    with mpmath.workprec(150):
        limit = (1 - mpf(2) ** -(precision + 1)) * mpf(2) ** greatest  # from here on infinite
        for value, *each in zip(got.tolist(), *(argument.tolist() for argument in arguments), strict=True):
            if not all(map(np.isfinite, each)) or name == "atan2" and not each[0]:
                continue
            try:
                exact = EXACT[name](*map(mpf, each))
            except (ValueError, ZeroDivisionError):
                continue  # a pole
            if not isinstance(exact, mpf) or not mpmath.isfinite(exact):
                continue  # a pole, or beyond the domain
            if not np.isfinite(value):
                off = mpf(0) if abs(exact) >= limit * (1 - mpf(2) ** -precision) else mpf("inf")
            else:
                unit = mpmath.ldexp(1, max((mpmath.mag(exact) if exact else least) - precision, least))
                off = abs(exact - value) / unit
            if off > worst:
                worst, where = off, each
    return float(worst), where


def main(count: int, names: list[str]) -> None:
    """Prints a line for each function and type."""
    for name in names or MODULE:
        for C in BITS:
            arguments = points(name, C, count)
            off, where = furthest(name, C, arguments, getattr(MODULE[name], name)(*arguments))
            print(f"{name} {C.__name__}: {off:.4f} at {where}, {arguments[0].size} points", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
