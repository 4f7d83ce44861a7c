"""The intrinsics: ONE table of what a formula may call, with the rule and the spelling for every target.

To add an intrinsic, add a row: name, arguments and result as kinds, the CUDA, NumPy and LaTeX spellings with
`{0}`, `{1}`, ... for the arguments, the rule for NaN and ties in words, and whether it is exact or common.
An operation that calls what is neither has no bits that hold everywhere. A generated test compiles and runs each
(intrinsic, target, compute type) cell, so a spelling that does not exist cannot land.

Kinds: `r` a real in the compute type C, `i` an exact integer, `b` a boolean, `n` the same number kind (real
or integer) in all places where it stands, `x` the same kind of any sort.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from skuda.model.operation import COMPUTE

QUICK = "Quick"  # of quick.cuh: `Quick<T>` asks for instructions of the GPU that are as precise as T


@dataclass(frozen=True)
class Intrinsic:
    """One function that formulas may call.

    Attributes:
        name: how a formula calls it.
        arguments: one kind letter for each argument.
        result: kind letter of the result.
        cuda: spelling over the functions of runtime/cuda/*.cuh and CUDA's own overloads for float and double.
        numpy: spelling over skuda.reference.formulas and numpy.
        latex: spelling in documentation.
        rule: what it does with NaN, ties, signs and limits.
        exact: correctly rounded in the compute type on every target, so CPU and GPU bits are equal.
        bits: for an integer result, how many bits hold it (sign included).
        common: computed in the same steps on every target, so CPU and GPU bits are equal though not correctly rounded.
        header: what a source that calls it includes beside the headers that all include.
        ulp: how far a common function may be off in f32 and in f64, in units in the last place (of a subnormal result
            in units of the least one).
        halved: whether it has forms for f16 and bf16 too, which rows that store no more precise values take: they are
            within 2^-14 and 2^-11 of the value. The calls then name the type.
        quick: whether a GPU has instructions for it, which a form of a row may take (`precision="fast"`).
        gives: for an integer result, the integer type that holds it, where `bits` alone would say less.
    """

    name: str
    arguments: str
    result: str
    cuda: str
    numpy: str
    latex: str
    rule: str
    exact: bool = False
    bits: int = 0
    common: bool = False
    header: str = ""
    ulp: tuple[float, float] | None = None
    halved: bool = False
    gives: str = ""
    quick: bool = False

    def spelled(self, target: str, letter: str) -> str:
        """Its spelling for a target; `letter`: the type letter that it is as precise as, empty where that is C. In CUDA
        it may be `Quick` of that. Then it is an instruction of the GPU."""
        spelling = getattr(self, target)
        if target != "cuda" and letter.startswith(QUICK):
            letter = letter.removeprefix(QUICK).strip("<>").removeprefix(COMPUTE)
        if letter and target == "cuda":
            return spelling.replace("(", f"_as<{letter}>(", 1)
        return f'{spelling[:-1]}, row.word("{letter}"))' if letter and target == "numpy" else spelling


def _table(*rows: Intrinsic) -> dict[str, Intrinsic]:
    return {row.name: row for row in rows}


def _real(
    name: str, cuda: str, numpy: str, latex: str, rule: str, exact: bool = False, arity: int = 1, common: bool = False,
    header: str = "", ulp: tuple[float, float] | None = None, halved: bool = False, quick: bool = False,
) -> Intrinsic:  # fmt: skip
    """An intrinsic from reals to a real whose spellings are plain calls; its bound comes before its rule."""
    arguments = ", ".join(f"{{{index}}}" for index in range(arity))
    cuda, numpy = f"{cuda}({arguments})", f"{numpy}({arguments})"
    rule = f"{_bound(ulp)}, the same bits everywhere; {rule}" if ulp else rule
    said = exact, 0, common, header, ulp, halved
    return Intrinsic(name, "r" * arity, "r", cuda, numpy, latex, rule, *said, quick=quick)


def _bound(ulp: tuple[float, float]) -> str:
    single, double = ulp
    unit = f"within {single:g} unit{'s' * (single != 1)} in the last place"
    return unit if single == double else f"{unit} in f32 and {double:g} in f64"


def _random(name: str, result: str, latex: str, rule: str, cuda: str = "", c: str = "", **said) -> Intrinsic:
    """A function of a seed, an offset and an index, whose bits follow from these alone."""
    arguments = "{0}, {1}, {2}"
    cuda, numpy = f"::{name}{cuda}({arguments})", f"{name}({arguments}{c})"
    latex = rf"\operatorname{{{{{latex}}}}}_{{{{{{0}},\,{{1}}}}}}({{2}})"
    return Intrinsic(name, "iii", result, cuda, numpy, latex, rule, header="random.cuh", **said)


def _elementary(
    module: str, name: str, cuda: str, latex: str, limits: str, arity: int = 1, ulp: tuple[float, float] = (1, 1),
    halved: bool = False,
) -> Intrinsic:  # fmt: skip
    """An elementary function of a module of the runtime, whose header of that name is the same text in C++."""
    header = f"{module}.cuh"
    return _real(name, cuda, name, latex, limits, arity=arity, common=True, header=header, ulp=ulp, halved=halved)


COMMON_HEADER = "elementary.cuh"  # has the functions in common steps that name no header of their own
# What sources include in place of a header whose functions are to be as precise as f16 and bf16, or for a function.
HALF_HEADERS = {
    COMMON_HEADER: "half_precision.cuh", "log": "half_logarithm.cuh", "erf.cuh": "half_erf.cuh",
    "powers.cuh": "half_powers.cuh", "trigonometric.cuh": "half_angles.cuh",
    **dict.fromkeys(
        ("hyperbolic.cuh", "log1pexp.cuh", "logit.cuh", "expm1", "log1p", "log2", "log10"), "half_hyperbolic.cuh"
    ),
    "turns.cuh": "half_turns.cuh", "inverse_erf.cuh": "half_inverse_erf.cuh",
}  # fmt: skip
INTRINSICS: dict[str, Intrinsic] = _table(
    # Selection and order. The plain names propagate NaN, as NumPy and PyTorch do; fmax and fmin ignore it.
    Intrinsic("where", "bxx", "x", "::chosen({0}, {1}, {2})", "where({0}, {1}, {2})",
              r"\begin{{cases}}{1} & {0}\\{2} & \text{{otherwise}}\end{{cases}}",
              "the second where the first holds, else the third; the other one is not looked at", exact=True),
    Intrinsic("min", "nn", "n", "minimum({0}, {1})", "minimum({0}, {1})", r"\min({0}, {1})",
              "NaN if either is NaN; the second of equals (0 and -0)", exact=True),
    Intrinsic("max", "nn", "n", "maximum({0}, {1})", "maximum({0}, {1})", r"\max({0}, {1})",
              "NaN if either is NaN; the second of equals (0 and -0)", exact=True),
    Intrinsic("clamp", "nnn", "n", "clamp({0}, {1}, {2})", "clamp({0}, {1}, {2})",
              r"\operatorname{{clamp}}({0},\, {1},\, {2})",
              "min(max(x, low), high): high wins where low > high; NaN if any is NaN", exact=True),
    _real("fmin", "minimum_number", "minimum_number", r"\operatorname{{fmin}}({0}, {1})",
          "the other one if one is NaN; the second of equals", True, 2),
    _real("fmax", "maximum_number", "maximum_number", r"\operatorname{{fmax}}({0}, {1})",
          "the other one if one is NaN; the second of equals", True, 2),
    _real("fma", "::fused", "fma", r"\operatorname{{fma}}({0}, {1}, {2})",
          "the first times the second plus the third, rounded once", True, 3),
    _real("weighted", "weighted", "weighted", r"\operatorname{{weighted}}({0}, {1})",
          "the product; 0 where the second is 0, also of an infinity or NaN", True, 2),
    # Signs.
    Intrinsic("abs", "n", "n", "absolute({0})", "np.abs({0})", r"\left|{0}\right|",
              "NaN gives NaN", exact=True),
    _real("sign", "sign", "sign", r"\operatorname{{sign}}({0})",
          "0 gives 0 and keeps its sign; NaN gives NaN", True),
    _real("copysign", "copysign", "np.copysign", r"\operatorname{{copysign}}({0}, {1})",
          "the first with the sign bit of the second, NaN and zero included", True, 2),
    # Rounding.
    _real("round_even", "rint", "np.rint", r"\operatorname{{round}}({0})",
          "ties to even; NaN gives NaN", True),
    _real("floor", "floor", "np.floor", r"\left\lfloor {0} \right\rfloor", "NaN gives NaN", True),
    _real("ceil", "ceil", "np.ceil", r"\left\lceil {0} \right\rceil", "NaN gives NaN", True),
    _real("trunc", "trunc", "np.trunc", r"\operatorname{{trunc}}({0})", "toward zero; NaN gives NaN", True),
    Intrinsic("round_to_int", "r", "i", "round_to_int({0})", "round_to_int({0})",
              r"\operatorname{{round}}({0})",
              "nearest integer, ties to even, saturating at +-2^53; NaN gives 0", exact=True, bits=55),
    Intrinsic("to_real", "i", "r", "to_real<C>({0})", "to_real({0}, C)", "{0}",
              "rounded to nearest even once, where the integer has more bits than C", exact=True),
    # Tests.
    Intrinsic("isnan", "r", "b", "is_nan({0})", "np.isnan({0})",
              r"\operatorname{{isnan}}({0})", "", exact=True),
    Intrinsic("isinf", "r", "b", "is_inf({0})", "np.isinf({0})",
              r"\operatorname{{isinf}}({0})", "", exact=True),
    Intrinsic("isfinite", "r", "b", "is_finite({0})", "np.isfinite({0})",
              r"\operatorname{{isfinite}}({0})", "", exact=True),
    # Arithmetic that is correctly rounded everywhere.
    _real("sqrt", "sqrt", "np.sqrt", r"\sqrt{{{0}}}", "correctly rounded; negative gives NaN", True),
    _real("fmod", "remainder_toward_zero", "np.fmod", r"\operatorname{{fmod}}({0}, {1})",
          "exact; sign of the dividend", True, 2, header="remainders.cuh"),
    _real("remainder", "remainder_floor", "remainder", r"\operatorname{{remainder}}({0}, {1})",
          "sign of the divisor, as NumPy and PyTorch", True, 2, header="remainders.cuh"),
    # In the same steps on CPU and GPU (runtime/reference/elementary.py, runtime/reference/error_functions.py).
    _real("exp", "exponential", "exp", r"e^{{{0}}}", "NaN gives NaN", common=True, ulp=(1, 1), halved=True,
          quick=True),
    _real("log", "logarithm", "log", r"\ln({0})", "0 gives -inf, negative gives NaN", common=True, ulp=(1, 1),
          halved=True),
    _real("erf", "error_function", "erf", r"\operatorname{{erf}}({0})", "NaN gives NaN", common=True,
          header="erf.cuh", ulp=(1, 1)),
    _real("erfc", "complementary_error", "erfc", r"\operatorname{{erfc}}({0})",
          "1 - erf, where it is small too; NaN gives NaN", common=True, header="erf.cuh", ulp=(1, 1), halved=True),
    _real("ndtr", "normal_below", "ndtr", r"\Phi({0})", "the normal distribution below x; NaN gives NaN", common=True,
          header="erf.cuh", ulp=(1.5, 1.5), halved=True, quick=True),
    _real("gelu_slope", "gelu_slope", "gelu_slope", r"\operatorname{{gelu}}'({0})",
          "the derivative of x ndtr(x), next to its zero too; NaN gives NaN", common=True, header="erf.cuh",
          ulp=(1.5, 1.5), halved=True),
    _real("sigmoid", "logistic", "sigmoid", r"\sigma({0})", "1 / (1 + e^-x); NaN gives NaN", common=True,
          header="erf.cuh", ulp=(1.5, 1.5), halved=True, quick=True),
    _real("tanh", "hyperbolic_tangent", "tanh", r"\tanh({0})", "NaN gives NaN", common=True, header="erf.cuh",
          ulp=(1.5, 1.5), halved=True),
    # The same, a header each: powers.cuh, trigonometric.cuh, hyperbolic.cuh and the modules of those names.
    _elementary("powers", "exp2", "exponential2", r"2^{{{0}}}", "NaN gives NaN", halved=True),
    _elementary("powers", "expm1", "exponential_less_one", r"\left(e^{{{0}}} - 1\right)", "zeros keep their sign",
                halved=True),
    _elementary("powers", "log2", "logarithm2", r"\log_2({0})", "0 gives -inf, negative gives NaN", halved=True),
    _elementary("powers", "log10", "logarithm10", r"\log_{{10}}({0})", "0 gives -inf, negative gives NaN", halved=True),
    _elementary("powers", "log1p", "logarithm_one_plus", r"\ln(1 + {0})", "-1 gives -inf, below gives NaN",
                halved=True),
    _elementary("log1pexp", "log1pexp", "logarithm_one_plus_exponential", r"\ln\left(1 + e^{{{0}}}\right)",
                "NaN gives NaN", ulp=(1.5, 1.5), halved=True),
    _elementary("logit", "logit", "log_odds", r"\operatorname{{logit}}({0})",
                "0 gives -inf, 1 gives inf, outside [0, 1] gives NaN", halved=True),
    _elementary("powers", "pow", "power", r"{{{0}}}^{{{1}}}",
            "special values as C's pow; negative to a fraction gives NaN", 2, halved=True),
    _elementary("powers", "rsqrt", "inverse_root", r"\frac{{1}}{{\sqrt{{{0}}}}}",
            "0 gives the infinity of its sign, negative gives NaN"),
    _elementary("powers", "cbrt", "cube_root", r"\sqrt[3]{{{0}}}", "zeros keep their sign; NaN gives NaN"),
    _elementary("powers", "hypot", "hypotenuse", r"\sqrt{{{0}^2 + {1}^2}}", "infinite if either is infinite", 2),
    _elementary("hyperbolic", "sinh", "hyperbolic_sine", r"\sinh({0})", "zeros keep their sign", halved=True),
    _elementary("hyperbolic", "cosh", "hyperbolic_cosine", r"\cosh({0})", "NaN gives NaN", halved=True),
    _elementary("hyperbolic", "asinh", "inverse_hyperbolic_sine", r"\operatorname{{arsinh}}({0})",
                "zeros keep their sign", halved=True),
    _elementary("hyperbolic", "acosh", "inverse_hyperbolic_cosine", r"\operatorname{{arcosh}}({0})",
                "below 1 gives NaN", halved=True),
    _elementary("hyperbolic", "atanh", "inverse_hyperbolic_tangent", r"\operatorname{{artanh}}({0})",
            "outside [-1, 1] gives NaN; zeros keep their sign", halved=True),
    _elementary("trigonometric", "sin", "sine", r"\sin({0})", "infinite gives NaN; zeros keep their sign", halved=True),
    _elementary("trigonometric", "cos", "cosine", r"\cos({0})", "infinite gives NaN", halved=True),
    _elementary("trigonometric", "tan", "tangent", r"\tan({0})",
                "infinite gives NaN; zeros keep their sign", halved=True),
    _elementary("turns", "sinpi", "sine_of_turns", r"\sin(\pi {0})",
                "infinite gives NaN; even integers give 0, odd ones -0", halved=True),
    _elementary("turns", "cospi", "cosine_of_turns", r"\cos(\pi {0})",
                "infinite gives NaN; odd multiples of 1/2 give 0", halved=True),
    _elementary("trigonometric", "asin", "arcsine", r"\arcsin({0})",
                "outside [-1, 1] gives NaN; zeros keep their sign", halved=True),
    _elementary("trigonometric", "acos", "arccosine", r"\arccos({0})", "outside [-1, 1] gives NaN", halved=True),
    _elementary("trigonometric", "atan", "arctangent", r"\arctan({0})", "zeros keep their sign", halved=True),
    _elementary("trigonometric", "atan2", "arctangent2", r"\operatorname{{atan2}}({0}, {1})",
            "special values as C's atan2", 2, halved=True),
    _elementary("inverse_erf", "erfinv", "inverse_error", r"\operatorname{{erf}}^{{-1}}({0})",
                "1 and -1 give infinities, beyond them NaN; zeros keep their sign", halved=True),
    _elementary("gamma", "lgamma", "gamma_logarithm", r"\ln\left|\Gamma({0})\right|",
                "0, negative integers and infinities give inf", ulp=(2, 2)),
    _elementary("gamma", "digamma", "gamma_derivative", r"\psi({0})",
                "0 gives the infinity of the other sign, negative integers and -inf NaN", ulp=(2, 2)),
    Intrinsic("nextafter", "rr", "r", "next_after({0}, {1})", "np.nextafter({0}, {1})",
              r"\operatorname{{nextafter}}({0}, {1})",
              "the next value of C after the first in the direction of the second; the second of equals; NaN if either "
              "is", exact=True, header="floats.cuh"),
    Intrinsic("ldexp", "ri", "r", "scaled_by({0}, {1})", "ldexp({0}, {1})", r"{0} \cdot 2^{{{1}}}",
              "rounded once where it is subnormal; zeros keep their sign", exact=True, header="floats.cuh"),
    # Random numbers, of a seed, an offset and an index (docs/numerics.md): random.cuh and reference.random.
    _random("random_bits", "i", "bits", "an integer from 0 on, below 2^32: a word of Philox 4x32-10", exact=True,
            bits=33, gives="u32"),
    _random("random_uniform", "r", "uniform", "from 0 on, below 1, in steps of 2^-24 in f32 and 2^-53 in f64",
            "<C>", ", C", exact=True),
    _random("random_normal", "r", "normal", f"{_bound((4, 4))}, the same bits everywhere; of the normal distribution, "
            "by Box and Muller", "<C>", ", C", common=True, ulp=(4, 4)),
)

# Functions that have forms for f16 and bf16 too; how far these may be off, as powers of 2 relative to the value.
HALVED = frozenset(name for name, row in INTRINSICS.items() if row.halved)
RANDOM = frozenset(name for name, row in INTRINSICS.items() if row.header == "random.cuh" and row.arguments == "iii")
QUICKENED = frozenset(name for name, row in INTRINSICS.items() if row.quick)
HALF_BOUNDS = {"f16": -14, "bf16": -11}
HALF_RULE = ", ".join(f"within 2^{power} of the value where T is {word}" for word, power in HALF_BOUNDS.items())
# The names of arguments, where letters would not say enough.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "where": ("condition", "a", "b"), "clamp": ("x", "low", "high"),
    **dict.fromkeys(RANDOM, ("seed", "offset", "index")),
    "stochastic": ("x", "bits"), "ldexp": ("x", "i"),
}  # fmt: skip

# What the gradient of each argument of a function that gives reals is, in the formula language: `g` is the gradient of
# the value, `a b c` are the arguments, `y` is the value. An empty text is a derivative of 0. At a kink or a step, the
# rule is PyTorch's.
DERIVATIVES: dict[str, tuple[str, ...]] = {
    "where": ("", "where(a, g, 0)", "where(a, 0, g)"),
    # Two equal values share the gradient. `LIMITED` has the rule beside what has no gradient.
    "min": ("where(a == b, 0.5 * g, where(a > b, 0, g))", "where(a == b, 0.5 * g, where(b > a, 0, g))"),
    "max": ("where(a == b, 0.5 * g, where(a < b, 0, g))", "where(a == b, 0.5 * g, where(b < a, 0, g))"),
    "clamp": ("where(b <= a and a <= c, g, 0)", "where(a < b and b < c, g, 0)", "where(a > c or c < b, g, 0)"),
    "fmin": ("where(a <= b or isnan(b), g, 0)", "where(a <= b or isnan(b), 0, g)"),
    "fmax": ("where(a >= b or isnan(b), g, 0)", "where(a >= b or isnan(b), 0, g)"),
    "weighted": ("weighted(g, b)", "weighted(g, a)"),
    "fma": ("g * b", "g * a", "g"),
    "abs": ("g * sign(a)",),
    "sign": ("",),
    "copysign": ("g * (sign(a) * copysign(1, b))", ""),
    **dict.fromkeys(("round_even", "floor", "ceil", "trunc"), ("",)),
    "sqrt": ("0.5 * g / y",),
    "fmod": ("g", "-g * trunc(a / b)"),
    "remainder": ("g", "-g * floor(a / b)"),
    "exp": ("g * y",),
    "log": ("g / a",),
    "erf": ("g * (1.1283791670955126 * exp(-(a * a)))",),
    "erfc": ("-g * (1.1283791670955126 * exp(-(a * a)))",),
    "ndtr": ("g * (0.3989422804014327 * exp(-0.5 * (a * a)))",),
    "gelu_slope": ("g * (0.3989422804014327 * (2 - a * a) * exp(-0.5 * (a * a)))",),
    "sigmoid": ("g * y * (1 - y)",),
    "tanh": ("g * (1 - y * y)",),
    "exp2": ("0.6931471805599453 * g * y",),
    "expm1": ("g * (y + 1)",),
    "log2": ("g / (0.6931471805599453 * a)",),
    "log10": ("g / (2.302585092994046 * a)",),
    "log1p": ("g / (1 + a)",),
    "log1pexp": ("g * sigmoid(a)",),
    "logit": ("g / a / (1 - a)",),
    "pow": ("where(b == 0, 0, g * (b * pow(a, b - 1)))", "where(a == 0 and b >= 0, 0, g * (y * log(a)))"),
    "rsqrt": ("-0.5 * g * (y * y * y)",),
    "cbrt": ("g / (3 * (y * y))",),
    "hypot": ("g * (a / y)", "g * (b / y)"),
    "sinh": ("g * cosh(a)",),
    "cosh": ("g * sinh(a)",),
    "asinh": ("g / hypot(a, 1)",),
    "acosh": ("g / (sqrt(a - 1) * sqrt(a + 1))",),
    "atanh": ("g / ((1 - a) * (1 + a))",),
    "sin": ("g * cos(a)",),
    "cos": ("-g * sin(a)",),
    "tan": ("g * (1 + y * y)",),
    "sinpi": ("3.141592653589793 * g * cospi(a)",),
    "cospi": ("-3.141592653589793 * g * sinpi(a)",),
    "asin": ("g / sqrt((1 - a) * (1 + a))",),
    "acos": ("-g / sqrt((1 - a) * (1 + a))",),
    "atan": ("g / (1 + a * a)",),
    "atan2": ("g * (b / (a * a + b * b))", "-g * (a / (a * a + b * b))"),
    "erfinv": ("g * (0.886226925452758 * exp(y * y))",),
    "lgamma": ("g * digamma(a)",),
    "nextafter": ("g", ""),
    "ldexp": ("ldexp(g, b)", ""),
}
# Functions of reals without a rule, and why.
UNDERIVED: dict[str, str] = {"digamma": "the language has no trigamma"}
# `min` and `max` beside what has no gradient, a number or an attribute: 0 where both are equal, as that of relu.
LIMITED: dict[str, tuple[str, str]] = {
    "min": ("where(a < b, g, 0)", "where(b < a, g, 0)"),
    "max": ("where(a > b, g, 0)", "where(b > a, g, 0)"),
}
# Of operators, and of reductions over `d`.
OF_OPERATORS: dict[str, tuple[str, ...]] = {
    "+": ("g", "g"), "-": ("g", "-g"), "*": ("g * b", "g * a"), "/": ("g / b", "-g * a / (b * b)"), "neg": ("-g",),
}  # fmt: skip
OF_REDUCTIONS: dict[str, tuple[str, ...]] = {
    "sum": ("g",),
    "prod": ("g * product_of_others(a, y, d)",),
    "max": ("shared_among(a == y, g, d)",),
    "min": ("shared_among(a == y, g, d)",),
    "squared_deviations": ("2 * g * centered(a, d)",),
    "logsumexp": ("g * exp(a - y)",),
    "sparsemax_threshold": ("where(a > y, g / sum(where(a > y, 1.0, 0.0), over=d), 0)",),
}
# Of scans along `d`, by their names with options; of a recurrence, of its factors and of its terms. EARLIER and LATER
# stand for options: of those before an element in the scan's order, and of those after it; AHEAD and BACK: of these and
# itself. What a rule scans of the gradients is what comes to an element from those after it.
_LATER = "linear_recurrence({}, {}, along=d, LATER)"
_HIT = "a == y or a != a"  # where a row's extreme is found, the last of equals, and after a NaN nothing
_SHARE = "where(a == y, 0.0, -expm1(a - y))"  # of what is before an element in the sum with it
_WITH = "logcumsumexp(a, along=d, AHEAD)"  # that sum, where the scan is without the element
_OF_SCANS: dict[str, tuple[str, ...]] = {
    "cumsum": ("cumsum(g, along=d, BACK)",),
    "cumsum exclusive": ("cumsum(g, along=d, LATER)",),
    "cumprod": (f"(g + {_LATER.format('a', 'where(a == 0, 0, a * g)')}) * cumprod(a, along=d, EARLIER)",),
    "cumprod exclusive": (f"{_LATER.format('a', 'g')} * y",),
    **dict.fromkeys(("cummax", "cummin"), (
        f"where({_HIT}, g + {_LATER.format(f'where({_HIT}, 0.0, 1.0)', f'where({_HIT}, 0, g)')}, 0)",
    )),
    **{f"{name} exclusive": (
        f"where({hit}, {_LATER.format(f'where({hit}, 0.0, 1.0)', 'g')}, 0)",
    ) for name, hit in (("cummax", "a >= y or a != a"), ("cummin", "a <= y or a != a"))},
    "logcumsumexp exclusive": (
        f"where(a == -inf, 0, {_LATER.format(_SHARE.replace('y', _WITH), 'g')} * exp(a - {_WITH}))",
    ),
    "logcumsumexp": (
        f"where(a == -inf, 0, (g + {_LATER.format(_SHARE, f'{_SHARE} * g')}) * exp(a - y))",
    ),
    "linear_recurrence": (
        f"(g + {_LATER.format('a', 'where(a == 0, 0, a * g)')}) * linear_recurrence(a, b, along=d, EARLIER)",
        f"g + {_LATER.format('a', 'where(a == 0, 0, a * g)')}",
    ),
    "linear_recurrence exclusive": (f"{_LATER.format('a', 'g')} * y", _LATER.format("a", "g")),
}  # fmt: skip


def _of_scans() -> dict[str, tuple[str, ...]]:
    """The rules, of scans from either end."""
    found = {}
    for name, rules in _OF_SCANS.items():
        for reverse in (False, True):
            ahead, back = ["reverse=True"] * reverse, ["reverse=True"] * (not reverse)
            words = {"EARLIER": ["exclusive=True", *ahead], "LATER": ["exclusive=True", *back]}
            words |= {"AHEAD": ahead, "BACK": back}
            made = rules
            for word, options in words.items():
                made = tuple(rule.replace(f", {word}", "".join(f", {each}" for each in options)) for rule in made)
            found[f"scan {name}{' reverse' * reverse}"] = made
    return found


OF_SCANS = _of_scans()
# Of `a / (1 + exp(b))`, with `c` = -b, and no quotient of two infinities.
OF_LOGISTIC_QUOTIENT = ("g * sigmoid(c)", "-g * a * sigmoid(c) * (1 - sigmoid(c))")
# What gives integers of reals: a gradient that passes through it has to be declared.
STEPS = frozenset(("round_to_int", "argmax", "argmin"))
# What the rules do where the derivative is not one number, for the documentation.
KINKS: dict[str, str] = {
    "abs": "0 at 0",
    "sign": "0",
    **dict.fromkeys(("round_even", "floor", "ceil", "trunc"), "0"),
    **dict.fromkeys(("min", "max"), "equal values get half each; 0 where a value is equal to what has no gradient"),
    "clamp": "within the bounds and at them",
    **dict.fromkeys(("fmin", "fmax"), "to the first of equals; to the other one if one is NaN"),
    "copysign": "0 at 0",
    "sqrt": "infinite at 0",
    "pow": "0 for an exponent of 0; of the exponent 0 at a base of 0",
    "where": "of the value that is chosen, never of the condition",
}

# What depends on the type that an output stores, spelled behind the arguments: outermost in the formula of that output.
CONVERSIONS: dict[str, Intrinsic] = _table(
    Intrinsic("saturate", "i", "i", "::saturated<{1}>({0})", 'row.saturated({0}, "{1}")',
              r"\operatorname{{saturate}}_{{{1}}}({0})",
              "the integer of the output's type that is nearest", exact=True, header="integers.cuh"),
    Intrinsic("wrap", "i", "i", "::wrapped<{1}>({0})", 'row.wrapped({0}, "{1}")',
              r"\operatorname{{wrap}}_{{{1}}}({0})",
              "the integer of the output's type with the same lowest bits: two's complement",
              exact=True, header="integers.cuh"),
    Intrinsic("popcount", "i", "i", "::popcount<{1}>({0})", 'row.popcount({0}, "{1}")',
              r"\operatorname{{popcount}}({0})",
              "how many of the bits are 1 that the output's type has, in two's complement", exact=True,
              header="data.cuh"),
    Intrinsic("clz", "i", "i", "::clz<{1}>({0})", 'row.clz({0}, "{1}")', r"\operatorname{{clz}}({0})",
              "how many of the bits that the output's type has are 0 above the first that is 1: all of 0", exact=True,
              header="data.cuh"),
    Intrinsic("stochastic", "ri", "r", "::stochastic<{2}>({0}, {1})", 'row.stochastic({0}, {1}, "{2}")',
              r"\operatorname{{stochastic}}_{{{2}}}({0},\, {1})",
              "a neighbour in the output's float type: the one away from 0 where the 32 random bits, times 2^-32, are "
              "below the share of the way that x has gone to it; NaN gives NaN", exact=True, header="random.cuh"),
)

TRANSCENDENTAL = frozenset(name for name, row in INTRINSICS.items() if not row.exact)

# Names for numbers: 1 / 0 and the like have other bits on other targets.
CONSTANTS: dict[str, float] = {"pi": math.pi, "inf": math.inf, "nan": math.nan}

# What an author may try first, and what to write instead: only used for the help of an error.
INSTEAD: dict[str, str] = {
    "round": "`round_even(x)` for a real, `round_to_int(x)` for an exact integer",
    "maximum": "`max(a, b)`, which propagates NaN, or `fmax(a, b)`, which ignores it",
    "minimum": "`min(a, b)`, which propagates NaN, or `fmin(a, b)`, which ignores it",
    "clip": "`clamp(x, low, high)`",
    "float": "`to_real(i)`",
    "int": "`round_to_int(x)`",
    "ln": "`log(x)`",
    "power": "`pow(a, b)`",
    "mod": "`fmod`, with the sign of the dividend, or `remainder`, with that of the divisor",
    "select": "`where(condition, a, b)`",
    "if_else": "`where(condition, a, b)`",
    "fabs": "`abs(x)`",
    "arctan": "`atan(x)`",
    "logistic": "`sigmoid(x)`",
    "expit": "`sigmoid(x)`",
    "average": "`mean(x, over=d)`",
    "amax": "`max(x, over=d)`",
    "amin": "`min(x, over=d)`",
    "std": "`sqrt(variance(x, 1, d))`",
    "var": "`variance(x, 1, d)`",
    "norm": "`euclidean(x, d)`, or `sum(abs(x), over=d)`",
    "softmax": "`exp(x - max(x, over=d)) / sum(exp(x - max(x, over=d)), over=d)`",
    "relu": "`max(x, 0)`",
    "relu6": "`clamp(x, 0, 6)`",
    "leaky_relu": "`where(x > 0, x, alpha * x)`",
    "swish": "`silu(x)`",
    "softplus": "`log1pexp(x)`",
    "logaddexp": "`where(a > b, a, b) + log1pexp(-abs(a - b))`",
    "square": "`x * x`",
    "reciprocal": "`1 / x`",
    "sgn": "`sign(x)`",
    "rint": "`round_even(x)`",
    "truncate": "`trunc(x)`",
    "fix": "`trunc(x)`",
    "neg": "`-x`",
    "add": "`a + b`",
    "sub": "`a - b`",
    "mul": "`a * b`",
    "div": "`a / b`",
    **dict.fromkeys(("scan", "prefix_sum", "accumulate"), "`cumsum(x, along=d)`"),
    "cumlogsumexp": "`logcumsumexp(x, along=d)`",
    "len": "`count(over=d)`",
    "numel": "`count(over=d)`",
    "size": "`count(over=d)`",
    "bool": "`x != 0`",
    "logical_and": "`a and b`",
    "logical_or": "`a or b`",
    "logical_not": "`not a`",
    "nan_to_num": "`where(isfinite(x), x, 0)`",
    **dict.fromkeys(("arange", "iota", "index", "range"), "`position(d)`, the index along a dimension"),
    "tril": "`where(position(c) <= position(r), x, 0)`",
    "triu": "`where(position(c) >= position(r), x, 0)`",
    "one_hot": "`where(position(c) == label, 1, 0)`",
    "eye": "`where(position(r) == position(c), 1, 0)`",
    "e": "`exp(1)`",
    "infinity": "`inf`",
}

# What is not in the language at all, and why: the help of an error.
ABSENT: dict[str, str] = {
    "diff": "nothing in the language moves elements: a formula is written for one element",
    **dict.fromkeys(
        ("sort", "argsort", "topk", "median", "quantile", "mode", "unique", "roll", "flip", "gather", "take", "shift"),
        "nothing in the language sorts or moves elements: a formula is written for one element",
    ),
    **dict.fromkeys(
        ("rand", "random", "dropout", "bernoulli"),
        "a random number follows from a seed, an offset and an index: `random_uniform(seed, offset, index)`",
    ),
    "randn": "a random number follows from a seed, an offset and an index: `random_normal(seed, offset, index)`",
    **dict.fromkeys(
        ("matmul", "dot", "einsum", "conv", "transpose", "reshape", "broadcast", "expand"),
        "a formula is written for one element; the dimensions of operands say how it spreads over arrays",
    ),
    **dict.fromkeys(
        ("lowest", "highest"), "limits of a type are defaults of attributes: `attrs: {q_max: Q = highest(Q)}`"
    ),
    **dict.fromkeys(
        ("cast", "astype", "to", "convert", "float16", "float32", "float64", "bfloat16", "half", "double"),
        "reals are computed in C, and rounded once where an output stores them: say its type there",
    ),
    **dict.fromkeys(("true", "false", "null", "none"), "a formula has numbers and comparisons"),
}
