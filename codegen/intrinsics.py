"""The intrinsics: ONE table of what a formula may call, with the rule and the spelling for every target.

To add an intrinsic, add a row: name, arguments and result as kinds, the CUDA, NumPy and LaTeX spellings with
`{0}`, `{1}`, ... for the arguments, the rule for NaN and ties in words, and whether it is exact. A generated
test compiles and runs each (intrinsic, target, compute type) cell, so a spelling that does not exist cannot
land.

Kinds: `r` a real in the compute type C, `i` an exact integer, `b` a boolean, `n` the same number kind (real
or integer) in all places where it stands, `x` the same kind of any sort.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Intrinsic:
    """One function that formulas may call.

    Attributes:
        name: how a formula calls it.
        arguments: one kind letter for each argument.
        result: kind letter of the result.
        cuda: spelling over the functions of runtime/cuda/*.cuh and CUDA's own overloads for float and double.
        numpy: spelling over skuda.reference and numpy.
        latex: spelling in documentation.
        rule: what it does with NaN, ties, signs and limits.
        exact: correctly rounded in the compute type on every target, so CPU and GPU bits are equal.
        bits: for an integer result, how many bits hold it (sign included).
        common: computed in the same steps on every target, so CPU and GPU bits are equal though not correctly rounded.
        header: what a source that calls it includes beside the headers that all include.
        ulp: how far a common function may be off in f32 and in f64, in units in the last place (of a subnormal result
            in units of the least one).
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


def _table(*rows: Intrinsic) -> dict[str, Intrinsic]:
    return {row.name: row for row in rows}


def _real(
    name: str, cuda: str, numpy: str, latex: str, rule: str, exact: bool = False, arity: int = 1, common: bool = False,
    header: str = "", ulp: tuple[float, float] | None = None,
) -> Intrinsic:  # fmt: skip
    """An intrinsic from reals to a real whose spellings are plain calls; its bound comes before its rule."""
    arguments = ", ".join(f"{{{index}}}" for index in range(arity))
    cuda, numpy = f"{cuda}({arguments})", f"{numpy}({arguments})"
    rule = f"{_bound(ulp)}, the same bits everywhere; {rule}" if ulp else rule
    return Intrinsic(name, "r" * arity, "r", cuda, numpy, latex, rule, exact, 0, common, header, ulp)


def _bound(ulp: tuple[float, float]) -> str:
    single, double = ulp
    unit = f"within {single:g} unit{'s' * (single != 1)} in the last place"
    return unit if single == double else f"{unit} in f32 and {double:g} in f64"


COMMON_HEADER = "elementary.cuh"  # has the functions in common steps that name no header of their own
_NEAREST = "within the library's error bound; NaN gives NaN"

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
    _real("fmod", "fmod", "np.fmod", r"\operatorname{{fmod}}({0}, {1})",
          "exact; sign of the dividend", True, 2),
    _real("remainder", "remainder_floor", "remainder", r"\operatorname{{remainder}}({0}, {1})",
          "sign of the divisor, as NumPy and PyTorch", True, 2),
    # In the same steps on CPU and GPU (runtime/elementary.py, runtime/error_functions.py).
    _real("exp", "exponential", "exp", r"e^{{{0}}}", "NaN gives NaN", common=True, ulp=(1, 1)),
    _real("log", "logarithm", "log", r"\ln({0})", "0 gives -inf, negative gives NaN", common=True, ulp=(1, 1)),
    _real("erf", "error_function", "erf", r"\operatorname{{erf}}({0})", "NaN gives NaN", common=True,
          header="erf.cuh", ulp=(1, 1)),
    _real("erfc", "complementary_error", "erfc", r"\operatorname{{erfc}}({0})",
          "1 - erf, where it is small too; NaN gives NaN", common=True, header="erf.cuh", ulp=(1, 1)),
    _real("ndtr", "normal_below", "ndtr", r"\Phi({0})", "the normal distribution below x; NaN gives NaN", common=True,
          header="erf.cuh", ulp=(1.5, 1.5)),
    _real("gelu_slope", "gelu_slope", "gelu_slope", r"\operatorname{{gelu}}'({0})",
          "the derivative of x ndtr(x), next to its zero too; NaN gives NaN", common=True, header="erf.cuh",
          ulp=(1.5, 1.5)),
    _real("sigmoid", "logistic", "sigmoid", r"\sigma({0})", "1 / (1 + e^-x); NaN gives NaN", common=True,
          header="erf.cuh", ulp=(1.5, 1.5)),
    _real("tanh", "hyperbolic_tangent", "tanh", r"\tanh({0})", "NaN gives NaN", common=True, header="erf.cuh",
          ulp=(1.5, 1.5)),
    # Transcendental: CUDA's and NumPy's libraries differ in the last places, so rows with them are measured.
    _real("rsqrt", "rsqrt", "rsqrt", r"\frac{{1}}{{\sqrt{{{0}}}}}", _NEAREST),
    _real("cbrt", "cbrt", "np.cbrt", r"\sqrt[3]{{{0}}}", _NEAREST),
    _real("exp2", "exp2", "np.exp2", r"2^{{{0}}}", _NEAREST),
    _real("expm1", "expm1", "np.expm1", r"\left(e^{{{0}}} - 1\right)", _NEAREST),
    _real("log2", "log2", "np.log2", r"\log_2({0})", "0 gives -inf, negative gives NaN"),
    _real("log10", "log10", "np.log10", r"\log_{{10}}({0})", "0 gives -inf, negative gives NaN"),
    _real("log1p", "log1p", "np.log1p", r"\ln(1 + {0})", "-1 gives -inf, below gives NaN"),
    _real("sin", "sin", "np.sin", r"\sin({0})", "infinite gives NaN"),
    _real("cos", "cos", "np.cos", r"\cos({0})", "infinite gives NaN"),
    _real("tan", "tan", "np.tan", r"\tan({0})", "infinite gives NaN"),
    _real("asin", "asin", "np.arcsin", r"\arcsin({0})", "outside [-1, 1] gives NaN"),
    _real("acos", "acos", "np.arccos", r"\arccos({0})", "outside [-1, 1] gives NaN"),
    _real("atan", "atan", "np.arctan", r"\arctan({0})", _NEAREST),
    _real("atan2", "atan2", "np.arctan2", r"\operatorname{{atan2}}({0}, {1})", _NEAREST, arity=2),
    _real("sinh", "sinh", "np.sinh", r"\sinh({0})", _NEAREST),
    _real("cosh", "cosh", "np.cosh", r"\cosh({0})", _NEAREST),
    _real("asinh", "asinh", "np.arcsinh", r"\operatorname{{arsinh}}({0})", _NEAREST),
    _real("acosh", "acosh", "np.arccosh", r"\operatorname{{arcosh}}({0})", "below 1 gives NaN"),
    _real("atanh", "atanh", "np.arctanh", r"\operatorname{{artanh}}({0})", "outside [-1, 1] gives NaN"),
    _real("pow", "pow", "np.power", r"{{{0}}}^{{{1}}}",
          "as C's pow; negative to a fraction gives NaN", arity=2),
    _real("hypot", "hypot", "np.hypot", r"\sqrt{{{0}^2 + {1}^2}}",
          "infinite if either is infinite", arity=2),
)

TRANSCENDENTAL = frozenset(name for name, row in INTRINSICS.items() if not row.exact)

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
}
