"""Every (intrinsic, target, compute type) cell of codegen/intrinsics.py: it compiles, runs, and is right.

One row an intrinsic is generated into a package and called through the public functions, on the NumPy
reference and, where there is a GPU, on CUDA. Exact intrinsics must have the bits of the oracle; the others
are measured against mpmath in units in the last place, and against PyTorch where an argument or result is not
an ordinary number.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
import torch
from catalogs import catalog_fixture
from conformance.support import STORAGE, bits_of, floats, pattern
from quick_compiler import compile_quickly

from oracles import philox
from oracles.floats import FORMATS, Format
from skuda.codegen.intrinsics import INTRINSICS, Intrinsic
from skuda.codegen.nodes import BOOL, INT, REAL, Node
from skuda.codegen.printers import LatexPrinter
from skuda.launch import registry
from skuda.reference import formulas
from skuda.schedules import table as schedules
from skuda.schedules.variant import STRIDED

ELEMENTS = ("f32", "f64")
NAMES = "abc"
# The kinds that the letter n or x of a row may be.
VARIANTS = {"n": ("r", "i"), "x": ("r", "i", "b")}
INPUT = {"r": "T", "i": "i32", "b": "bool"}
OUTPUT = {"r": "T", "i": "i64", "b": "bool"}


def cells() -> list[tuple[str, str]]:
    """(intrinsic, the kind that its letter n or x stands for, or "" if it has none)."""
    found = []
    for name, row in INTRINSICS.items():
        letter = next((letter for letter in row.arguments if letter in VARIANTS), "")
        found += [(name, kind) for kind in VARIANTS.get(letter, ("",))]
    return found


def kinds(row: Intrinsic, kind: str) -> tuple[str, str]:
    """Argument letters and result letter with n and x resolved."""
    resolved = {"n": kind, "x": kind}
    return "".join(resolved.get(each, each) for each in row.arguments), resolved.get(row.result, row.result)


def operation(name: str, kind: str) -> str:
    return f"try_{name}" + (f"_{kind}" if kind else "")


def row_text(name: str, kind: str) -> str:
    """The row of one cell; one without a real of its own gets one that changes nothing, for every row has a
    T.
    """
    arguments, result = kinds(INTRINSICS[name], kind)
    inputs = "".join(
        f"      {each}: {INPUT[letter]}[*shape]\n" for each, letter in zip(NAMES, arguments, strict=False)
    )
    types = "{T: [f32, f64]}" if "r" in arguments + result else "{T: [f32]}"
    call = f"{name}({', '.join(NAMES[: len(arguments)])})"
    if "r" not in arguments + result:
        inputs += "      real: T[*shape]\n"
        neutral = {"i": "where(real == real, {0}, 0)", "b": "real == real and {0}"}[result]
        call = neutral.format(call)
    return (
        f"  {operation(name, kind)}:\n    types: {types}\n    inputs:\n{inputs}"
        f"    outputs:\n      y: {OUTPUT[result]}[*shape] = {call}\n    backward: none\n"
    )


SPEC = "ops:\n" + "".join(row_text(*cell) for cell in cells())

catalog = catalog_fixture("skuda_intrinsics_under_test", SPEC)


# ---- oracles of the exact ones: floats that are exact in the compute type, results rounded by `form` where
# needed ----


def same_sign_zero(value: float, like: float) -> float:
    return math.copysign(value, like) if value == 0 else value


def smaller(a, b):
    return math.nan if a != a or b != b else (a if a < b else b)


def larger(a, b):
    return math.nan if a != a or b != b else (a if a > b else b)


def integral(rounding):
    return lambda x: x if not math.isfinite(x) else same_sign_zero(float(rounding(Fraction(x))), x)


def to_int(x: float) -> int:
    if x != x:
        return 0
    return int(math.copysign(2**53, x)) if math.isinf(x) else max(-(2**53), min(2**53, round(Fraction(x))))


def dividend_sign(a: float, b: float) -> float:
    if a != a or b != b or math.isinf(a) or b == 0:
        return math.nan
    if math.isinf(b):
        return a
    rest = abs(Fraction(a)) - abs(Fraction(a)) // abs(Fraction(b)) * abs(Fraction(b))
    return math.copysign(float(rest), a)


def divisor_sign(a: float, b: float) -> float | Fraction:
    rest = dividend_sign(a, b)
    if rest != rest:
        return rest
    if rest == 0:
        return math.copysign(0.0, b)
    if (rest < 0) == (b < 0):
        return rest
    return b if math.isinf(b) else Fraction(rest) + Fraction(b)


def root(x: float) -> float | mpmath.mpf:
    if x != x or x < 0:
        return math.nan
    with mpmath.workprec(200):
        return x if x == 0 or math.isinf(x) else mpmath.sqrt(x)


def weighted(x: float, weight: float) -> float | Fraction:
    if weight == 0 or x != x or weight != weight:
        return 0.0 if weight == 0 else math.nan
    if math.isinf(x) or math.isinf(weight) or x == 0:
        return x * weight
    return Fraction(x) * Fraction(weight)


def times_power(x: float, i: int) -> float | Fraction:
    return x if not math.isfinite(x) or x == 0 else Fraction(x) * Fraction(2) ** max(min(i, 3000), -3000)


def next_after(a: float, b: float, word: str) -> float:
    if a != a or b != b or a == b:
        return b if a == b else math.nan
    form = FORMATS[word]
    if a == 0:
        return math.copysign(float(Fraction(2) ** form.unit), b)
    size = pattern(Fraction(abs(a)), word) if math.isfinite(a) else form.infinity
    size += 1 if (a < b) == (a > 0) else -1
    return math.copysign(float(floats([size], word)[0]), a)


def fused(a: float, b: float, c: float) -> float | Fraction:
    if not (math.isfinite(a) and math.isfinite(b)) or a == 0 or b == 0:
        return a * b + c
    if not math.isfinite(c):
        return c
    total = Fraction(a) * Fraction(b) + Fraction(c)
    return total if total else 0.0


EXACT = {
    "fma": fused,
    "where": lambda condition, a, b: a if condition else b,
    "min": smaller,
    "max": larger,
    "clamp": lambda x, low, high: smaller(larger(x, low), high),
    "fmin": lambda a, b: b if a != a else a if b != b or a < b else b,
    "fmax": lambda a, b: b if a != a else a if b != b or a > b else b,
    "abs": abs,
    "sign": lambda x: 1.0 if x > 0 else -1.0 if x < 0 else x,
    "copysign": lambda a, b: math.copysign(a, b),
    "round_even": integral(round),
    "floor": integral(math.floor),
    "ceil": integral(math.ceil),
    "trunc": integral(math.trunc),
    "round_to_int": to_int,
    "to_real": Fraction,
    "isnan": lambda x: x != x,
    "isinf": lambda x: abs(x) == math.inf,
    "isfinite": lambda x: abs(x) < math.inf,
    "weighted": weighted,
    "sqrt": root,
    "fmod": dividend_sign,
    "remainder": divisor_sign,
    "nextafter": next_after,
    "ldexp": times_power,
    "random_bits": philox.random_bits,
    "random_uniform": philox.random_uniform,
}

# ---- oracles of the others: mpmath for ordinary numbers, torch for the rest; the most ulp that they may be off ----



MEASURED = {
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), torch.rsqrt, 1),
    "cbrt": (
        lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
        lambda x: x,
        1,
    ),  # zeros and infinities to themselves
    "exp": (mpmath.exp, torch.exp, 1),
    "exp2": (lambda x: mpmath.power(2, x), torch.exp2, 1),
    "expm1": (mpmath.expm1, torch.expm1, 1),
    "log": (mpmath.log, torch.log, 1),
    "erf": (mpmath.erf, torch.erf, 1),
    "erfc": (lambda x: mpmath.erfc(max(min(x, 100), -100)), torch.erfc, 1),
    "sigmoid": (lambda x: 1 / (1 + mpmath.exp(-max(min(x, 2000), -2000))), torch.sigmoid, 1),
    "ndtr": (lambda x: mpmath.ncdf(max(min(x, 200), -200)), torch.special.ndtr, 1),
    "gelu_slope": (
        lambda x: mpmath.ncdf(max(min(x, 200), -200)) + max(min(x, 200), -200) * mpmath.npdf(max(min(x, 200), -200)),
        lambda x: torch.where(x < 0, -0.0, torch.special.ndtr(x)),  # far from 0, where it comes from below
        1,
    ),
    "log2": (lambda x: mpmath.log(x, 2), torch.log2, 1),
    "log10": (mpmath.log10, torch.log10, 1),
    "log1p": (mpmath.log1p, torch.log1p, 1),
    "log1pexp": (
        lambda x: mpmath.log1p(mpmath.exp(max(min(x, 2000), -2000))) if x < 2000 else x,
        lambda x: torch.logaddexp(x, torch.zeros_like(x)),
        1,
    ),
    "logit": (lambda x: mpmath.log(x / (1 - x)) if 0 < x < 1 else mpmath.nan, torch.logit, 1),
    "sinpi": (mpmath.sinpi, lambda x: torch.where(x % 2 == 1, -0.0, (x * 0).abs()), 1),
    "cospi": (mpmath.cospi, lambda x: torch.where(x == 0, 1.0, (x * 0).abs()), 1),
    "sin": (mpmath.sin, torch.sin, 1),
    "cos": (mpmath.cos, torch.cos, 1),
    "tan": (mpmath.tan, torch.tan, 1),
    "asin": (mpmath.asin, torch.asin, 1),
    "acos": (mpmath.acos, torch.acos, 1),
    "atan": (mpmath.atan, torch.atan, 1),
    "atan2": (mpmath.atan2, torch.atan2, 1),
    "sinh": (mpmath.sinh, torch.sinh, 1),
    "cosh": (mpmath.cosh, torch.cosh, 1),
    "tanh": (mpmath.tanh, torch.tanh, 1),
    "asinh": (mpmath.asinh, torch.asinh, 1),
    "acosh": (mpmath.acosh, torch.acosh, 1),
    "atanh": (mpmath.atanh, torch.atanh, 1),
    "pow": (mpmath.power, torch.pow, 1),
    "hypot": (mpmath.hypot, torch.hypot, 1),
    "erfinv": (mpmath.erfinv, torch.erfinv, 1),
    "lgamma": (lambda x: mpmath.re(mpmath.loggamma(x)), torch.lgamma, 2),
    "digamma": (mpmath.digamma, torch.digamma, 2),
    "random_normal": (philox.random_normal, None, 4),
}
OF_TYPE = ("nextafter", "random_uniform", "random_normal")  # the oracles of these take the element type too


def test_each_intrinsic_has_one_oracle():
    assert {name for name, row in INTRINSICS.items() if row.exact} == EXACT.keys()
    assert {name for name, row in INTRINSICS.items() if not row.exact} == MEASURED.keys()


def test_no_function_is_a_library_s_own():
    assert {name for name, row in INTRINSICS.items() if not row.exact and not row.common} == set()


def encoded(value, form: Format) -> int:
    """The bit pattern nearest to a float, a Fraction or an mpf."""
    if isinstance(value, mpmath.mpf):
        if value != 0 and mpmath.isfinite(value):
            sign, mantissa, exponent, bits = value._mpf_
            if exponent + bits > form.bias + 2:
                value = -math.inf if sign else math.inf
            elif exponent + bits < form.unit - 2:
                value = -0.0 if sign else 0.0
            else:
                value = (-1) ** sign * mantissa * Fraction(2) ** exponent
        else:
            value = float(value)
    if isinstance(value, float):
        if value != value:
            return form.nan
        if math.isinf(value) or value == 0:
            sign = form.sign if math.copysign(1, value) < 0 else 0
            return sign | (form.infinity if value else 0)
    return pattern(Fraction(value), form.word)


def special_numbers(form: Format) -> list[float]:
    size = [0, 1, form.smallest_normal - 1, form.smallest_normal, form.largest, form.infinity, form.nan]
    bits = [sign | each for each in size for sign in (0, form.sign)]
    plain = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 0.75, 1e-3, 2.0**23 + 1, 2.0**24 + 2, 1e10, 3e18]
    numbers = [float(x) for x in floats(bits, form.word)] + [sign * x for x in plain for sign in (1, -1)]
    return [float(STORAGE[form.word](x)) for x in numbers]


def reals(form: Format, count: int, seed: int) -> np.ndarray:
    """Random reals of every size that functions have something to do at."""
    rng = np.random.default_rng(seed)
    magnitude = np.exp2(rng.uniform(-20, 9, count))
    spread = np.where(
        rng.random(count) < 0.5,
        rng.uniform(-2, 2, count),
        np.where(rng.random(count) < 0.5, 1, -1) * magnitude,
    )
    return spread.astype(STORAGE[form.word])


def arguments_of(letters: str, form: Format) -> list[np.ndarray]:
    """Columns of arguments: every combination of special ones, then random ones."""
    specials = special_numbers(form)
    few = [0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan, 0.5]
    integers = [0, 1, -1, 2, 2**24 + 1, -(2**24) - 3, 2**31 - 1, -(2**31)]
    choice = {
        "r": specials if len(letters) < 3 else few,
        "i": integers,
        "b": [False, True],
    }
    table = list(product(*(choice[letter] for letter in letters)))
    storage = {"r": STORAGE[form.word], "i": np.int32, "b": np.bool_}
    columns = [
        np.array(column, storage[letter])
        for column, letter in zip(zip(*table, strict=True), letters, strict=True)
    ]
    rng = np.random.default_rng(len(table))
    more = {
        "r": lambda index: reals(form, 400, seed=index),
        "i": lambda index: rng.integers(-(2**31), 2**31, 400).astype(np.int32),
        "b": lambda index: rng.random(400) < 0.5,
    }
    return [
        np.concatenate([column, more[letter](index)])
        for index, (column, letter) in enumerate(zip(columns, letters, strict=True))
    ]


def call(catalog, backend, name: str, kind: str, columns: list[np.ndarray], form: Format):
    """The cell's result, through the public function."""
    arguments, result = kinds(INTRINSICS[name], kind)
    options = {}
    if "r" not in arguments + result:
        columns = [*columns, np.ones(columns[0].shape, STORAGE[form.word])]
    elif "r" not in arguments:
        options["dtype"] = form.word
    return backend.numpy(getattr(catalog, operation(name, kind))(*map(backend.array, columns), **options))


EXACT_CELLS = [cell for cell in cells() if INTRINSICS[cell[0]].exact]


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("name, kind", EXACT_CELLS)
def test_exact(catalog, backend, name, kind, element):
    arguments, result = kinds(INTRINSICS[name], kind)
    if "r" not in arguments + result and element == "f64":
        element = "f32"  # the cell has no compute type
    form = FORMATS[element]
    columns = arguments_of(arguments, form)
    actual = call(catalog, backend, name, kind, columns, form)
    of_type = [[element] * len(columns[0])] if name in OF_TYPE else []
    rows = zip(*(column.tolist() for column in columns), *of_type, strict=True)
    expected = [EXACT[name](*values) for values in rows]
    if result == "r":
        wanted = np.array([encoded(value, form) for value in expected], np.uint64)
        got = bits_of(actual, element).astype(np.uint64)
    else:
        assert actual.dtype == {"i": np.int64, "b": np.bool_}[result]
        wanted, got = np.array(expected), actual
    wrong = np.flatnonzero(wanted != got)
    shown = [([column[i] for column in columns], got[i], wanted[i]) for i in wrong[:5]]
    assert not len(wrong), f"{len(wrong)} differ; (arguments, got, expected): {shown}"


def ordered(bits: np.ndarray, form: Format) -> np.ndarray:
    """Bit patterns as integers in the order of the values they stand for; zeros are neighbours, both at 0."""
    size = (bits & ~np.uint64(form.sign)).astype(np.int64)
    return np.where(bits >> np.uint64(form.bits - 1) == 1, -size, size)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("name", MEASURED)
def test_measured(catalog, backend, name, element):
    form = FORMATS[element]
    function, witness, most = MEASURED[name]
    columns = arguments_of(INTRINSICS[name].arguments, form)
    got = bits_of(call(catalog, backend, name, "", columns, form), element).astype(np.uint64)
    random = witness is None  # of which every result is an ordinary number
    theirs = got if random else witness(*(torch.from_numpy(column.copy()) for column in columns)).numpy()
    wanted = np.zeros_like(got)
    ordinary = np.zeros(got.shape, bool)
    with mpmath.workprec(160):
        for i, values in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            exact = None
            if random:
                exact = function(*values, element)
            elif all(math.isfinite(value) and value != 0 for value in values):
                try:
                    exact = function(*map(mpmath.mpf, values))
                except (ValueError, ZeroDivisionError):
                    exact = None  # a pole, or outside of the domain
            ordinary[i] = isinstance(exact, mpmath.mpf) and mpmath.isfinite(exact) and exact != 0
            wanted[i] = encoded(exact if ordinary[i] else float(theirs[i]), form)
    nan = wanted == form.nan
    np.testing.assert_array_equal(got == form.nan, nan)
    away = np.where(nan, 0, np.abs(ordered(got, form) - ordered(wanted, form)))
    with np.errstate(all="ignore"):
        most = most(columns[0]) if callable(most) else np.full(away.shape, most)
    worst = int(np.argmax(away - most))
    shown = f"{[column[worst] for column in columns]}: got {got[worst]:#x}, expected {wanted[worst]:#x}"
    assert not (away > most).any(), f"{away[worst]} ulp at {shown}"
    # Beyond ordinary numbers, zeros and infinities have their signs.
    limit = ~ordinary & np.isin(wanted & ~np.uint64(form.sign), [0, form.infinity])
    wrong = np.flatnonzero(limit & (got != wanted))
    assert not len(wrong), [
        ([column[i] for column in columns], hex(got[i]), hex(wanted[i])) for i in wrong[:5]
    ]
    assert ordinary.all() if random else ordinary.sum() > 100


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("name", [name for name, row in INTRINSICS.items() if row.common and "r" in row.arguments])
def test_common(catalog, backend, name, element):
    """The bits of the NumPy function of that name, on CUDA too."""
    form = FORMATS[element]
    columns = arguments_of(INTRINSICS[name].arguments, form)
    got = bits_of(call(catalog, backend, name, "", columns, form), element)
    with np.errstate(all="ignore"):
        expected = bits_of(formulas.narrow(getattr(formulas, name)(*columns), element), element)
    wrong = np.flatnonzero(got != expected)
    assert not len(wrong), [([column[i] for column in columns], got[i], expected[i]) for i in wrong[:5]]


@pytest.mark.turns(3)
def test_every_cell_compiles_for_cuda(catalog):
    """All strided kernels in one module; each generated source includes the same headers once."""
    found = registry._CATALOGS[catalog.__name__]
    texts = [found.source(operation.source) for operation in found.operations]
    entries = [
        schedules.entry(operation, types, STRIDED)
        for operation in found.operations
        for types in operation.kernel_combinations()
    ]
    assert len(entries) > len(cells())
    compiled = compile_quickly("\n".join(texts), "intrinsics.cu", entries, "sm_90")
    assert compiled.log == ""
    assert compiled.lowered.keys() == set(entries)


@pytest.mark.parametrize("name", INTRINSICS)
def test_latex(name):
    """The spelling formats, keeps its arguments, and its braces are balanced."""
    row = INTRINSICS[name]
    kind = {"r": REAL, "i": INT, "b": BOOL, "n": REAL, "x": REAL}
    arguments = tuple(
        Node("name", (), kind[letter], text=f"operand{i}") for i, letter in enumerate(row.arguments)
    )
    text = LatexPrinter().text(Node(name, arguments, kind[row.result]))
    assert all(f"operand{i}" in text for i in range(len(arguments)))
    depth = 0
    for character in text.replace(r"\{", "").replace(r"\}", ""):
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    assert text.count(r"\left") == text.count(r"\right")


@pytest.mark.parametrize("name", INTRINSICS)
def test_every_spelling_uses_each_argument(name):
    row = INTRINSICS[name]
    for spelling in (row.cuda, row.numpy, row.latex):
        marks = [f"<{i}>" for i in range(len(row.arguments))]
        assert all(mark in spelling.format(*marks) for mark in marks)
