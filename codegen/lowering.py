"""The rules that turn parts of a formula into something the GPU does faster with the same bits.

A rule is a pattern in the formula language, where it holds, and the C++ that such a part becomes. The NumPy reference
prints the formula as it stands, so every comparison of the two checks these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from math import copysign, frexp

from skuda.codegen.expr import parse_alone
from skuda.codegen.intrinsics import HALVED, TRANSCENDENTAL
from skuda.codegen.nodes import DIM, INT, REAL, Node, Scope
from skuda.codegen.ranges import ends_of


class Site(Enum):
    """What a formula is computed for. A rule holds at some of these sites."""

    ELEMENTWISE = auto()  # an element of a program without reductions
    ROW = auto()  # an element of a row
    STORE = auto()  # all that an output of 8-bit floats stores
    REDUCTION = auto()  # a value that a pass over a row makes: the rule says the class of reductions.cuh, and of what
    EXTREME = auto()  # the same, of inputs as they are stored


ELEMENTS = (Site.ELEMENTWISE, Site.ROW)
ROW = (Site.ROW,)


@dataclass(frozen=True)
class Lowering:
    """One rule.

    Attributes:
        pattern: in the formula language. It names x, y, u: values; s, low, high, ...: see `once`; d: a dimension.
        becomes: in C++. `{x}` is the value of a name, `{x_type}` its element type, `{object}` the object of `holder`.
            `FAST` is the form that is wanted; `usual`, of a row, the flag that becomes false where that does not hold.
            `{precision}` is the type letter that the pattern's function is as precise as, after a comma, and
            `{precise}` is `_as`, if it names one.
        sites: where it holds.
        once: the names that the elements of a run (of a row) must share.
        each: the names that must differ between them.
        holder: a class of runtime/cuda, in C++, whose object is made once from `once`: `{output}` is an output's
            element, `{small}` whether `low` and `high` have few bits.
        within: the condition under which the fast form holds for an element, in C++; empty where it always does. It is
            asked before the values in it are computed, so these may call no elementary functions: they would be
            computed twice.
        grouped: the condition, of the first of some neighbours, under which FAST_GROUP holds for all, in C++.
        ranged: the name of which reductions must know the range: the object is made from that range too.
        placed: the name that must be a position along the row: the object is made from the row's length too.
        finite_with: two names: of the first, an operand's element, it must be known that it is finite where the second
            is.
        when: what else must hold of what names stand for.
        halved: whether it holds only where the pattern's function may be less precise than C.
    """

    pattern: str
    becomes: str
    sites: tuple[Site, ...]
    once: tuple[str, ...] = ()
    each: tuple[str, ...] = ()
    holder: str = ""
    within: str = ""
    grouped: str = ""
    ranged: str = ""
    placed: str = ""
    finite_with: tuple[str, str] | None = None
    when: Mapping[str, Callable[[Node], bool]] = field(default_factory=dict)
    halved: bool = False

    @property
    def kind(self) -> str:
        """The class of its object, without arguments."""
        return self.holder.partition("<")[0]


def _is_usual(node: Node) -> bool:
    """Whether it is proven that nothing on the way of its quotient leaves the range of normal numbers, but for NaN."""
    low, high = ends_of(node)
    return low >= 2.0**-60 and high <= 2.0**60


def is_sure(quotient: Node) -> bool:
    """Whether a quotient of what elements make has the few steps of `sure_inverse` or `sure_quotient`."""
    found = lowered(quotient, Site.ELEMENTWISE)
    return found is not None and found[0].becomes.startswith("sure_")


def _falls(node: Node) -> bool:
    """Whether it is proven that a value is at most 0, unless it is NaN."""
    return ends_of(node)[1] <= 0


def _is_never_minus_zero(node: Node) -> bool:
    """Whether it is a logarithm of 1 or more, so that either zero may be added to it."""
    return node.op == "log1pexp"


def _is_no_power_of_two(node: Node) -> bool:
    """By a literal power of two C++ divides as it multiplies by the inverse."""
    return node.op != "number" or abs(frexp(float(node.text))[0]) != 0.5


def _is_no_zero(node: Node) -> bool:
    return node.op != "number" or float(node.text) != 0


def _is_literal(node: Node) -> bool:
    return node.op == "number" and _is_no_zero(node)


def _is_from_one(node: Node) -> bool:
    """Whether a value is at least 1, or rounded to less, unless it is NaN."""
    return ends_of(node)[0] >= 0.5


def _is_rounded(node: Node) -> bool:
    return node.op == "round_even"


_UNEVEN = {"s": _is_no_power_of_two}
_UNEVEN_FROM_ONE = {"s": lambda node: _is_no_power_of_two(node) and _is_from_one(node)}
_LITERAL_BOUNDS = {"least": _is_literal, "most": _is_literal}
_BOUNDS_BUT_ZEROS = {"least": _is_no_zero, "most": _is_no_zero}
PRECISION = "precision"  # the key of the function in a pattern that names what it is as precise as
_STEPS = "clamp(round_to_int(x / s), low, high)"
_BOUNDS = ("s", "low", "high")
_IN_RANGE = "RowSteps<C, {x_type}, {small}>"
_WORD = "random_bits(h, low, place)"
_SIZE = "clamp(high, 0, 2147483647)"
LOWERINGS = (
    # Steps of a value whose range a row knows.
    Lowering(f"to_real({_STEPS})", "{object}.template real<FAST>({x}, usual)", ROW, _BOUNDS, ("x",), _IN_RANGE,
             ranged="x"),
    Lowering(_STEPS, "{object}.template value<FAST>({x}, usual)", ROW, _BOUNDS, ("x",), _IN_RANGE, ranged="x"),
    # Steps of any value.
    Lowering(f"to_real({_STEPS})", "{object}.template real<FAST>({x})", ELEMENTS, _BOUNDS, ("x",), "Steps<C>"),
    Lowering(_STEPS, "{object}.template value<FAST>({x})", ELEMENTS, _BOUNDS, ("x",), "Steps<C>"),
    Lowering("low <= round_to_int(x / s) <= high", "{object}.template inside<FAST>({x})", ELEMENTS, _BOUNDS, ("x",),
             "Steps<C>"),
    # Quotients by what elements share.
    Lowering("abs(x / s) <= bound", "{object}.template inside<FAST>({x})", ELEMENTS, ("s", "bound"), ("x",),
             "Magnitude<C>"),
    Lowering("clamp(x / s, least, most)", "{object}.template value<FAST>({x})", (Site.STORE,),
             ("s", "least", "most"), ("x",), "Saturated<C, {output}>"),
    Lowering("round_even(x / s)", "{object}.template rounded<FAST>({x})", (Site.ELEMENTWISE,), ("s",), ("x",),
             "DivisorFromOne<C>", when=_UNEVEN_FROM_ONE),
    Lowering("x / s", "{object}.template quotient<FAST>({x})", (Site.ELEMENTWISE,), ("s",), ("x",),
             "DivisorFromOne<C>", when=_UNEVEN_FROM_ONE | {"x": _is_rounded}),
    Lowering("x / s", "{object}.template quotient<FAST, {x_type}>({x})", (Site.ELEMENTWISE,), ("s",), ("x",),
             "Divisor<C>", within="{object}.template within<{x_type}>({x})", when=_UNEVEN),
    Lowering("x / s", "{object}.template quotient<FAST>({x})", (Site.ELEMENTWISE,), ("s",), ("x",), "PowerDivisor<C>",
             within="{object}.within", when=_UNEVEN),
    Lowering("x / s", "quotient_of<FAST, {x_type}>({x}, {object}, usual)", ROW, ("s",), ("x",), "Divisor<C>",
             when=_UNEVEN),
    # Bounds by the hardware's extremes, which differ from comparisons of zeros alone.
    Lowering("clamp(x, least, most)", "bounded({x}, {least}, {most})", ELEMENTS, when=_LITERAL_BOUNDS),
    Lowering("max(x, least)", "at_least({x}, {least})", ELEMENTS, when={"least": _is_literal}),
    Lowering("min(x, most)", "at_most({x}, {most})", ELEMENTS, when={"most": _is_literal}),
    Lowering("where(x > y, x, y) + u", "at_least({x}, {y}) + {u}", ELEMENTS, when={"u": _is_never_minus_zero}),
    Lowering("fma(s, u, where(x > y, x, y))", "::fused({s}, {u}, at_least({x}, {y}))", ELEMENTS,
             when={"u": _is_never_minus_zero}),
    Lowering("clamp(x, least, most)", "{object}.template value<FAST>({x})", (Site.ELEMENTWISE,), ("least", "most"),
             ("x",), "Bounds<C>", within="{object}.within", when=_BOUNDS_BUT_ZEROS),
    # Arguments that are not far from 0, or not near the ends of their range, have no branch.
    *(Lowering(f"{name}(x)", f"{becomes}_in{{precise}}<FAST{{precision}}>({{x}})", (Site.ELEMENTWISE,), each=("x",),
               within=f"{within}({{x}})")
      for name, becomes, within in (
          ("sin", "sine", "is_near_angle"), ("cos", "cosine", "is_near_angle"), ("tan", "tangent", "is_near_angle"),
          ("logit", "log_odds", "are_usual_odds{precise}<C{precision}>"))),
    # Random numbers are shares of so many: these are compared as integers.
    Lowering("random_uniform(h, low, place) >= s", "{object}.reached_by({h}, {low}, {place})", ELEMENTS, ("s",),
             ("place",), "LeastShare<C>"),
    # A random word times a size, in units of 2^32.
    Lowering(f"({_WORD} >> 16) * {_SIZE} + (({_WORD} & 65535) * {_SIZE} >> 16) >> 16",
             "{object}.of({h}, {low}, {place})", ELEMENTS, ("high",), ("place",), "Portion"),
    Lowering("to_real(code - h)", "{object}.template difference<FAST>({code})", ELEMENTS, ("h",), ("code",),
             "Offset<C>"),
    # Positions along a row that is not too long are told apart by 32 bits.
    Lowering("place == h", "{object}.template at<FAST>({place})", ROW, ("h",), ("place",), "PlaceOf<C>",
             grouped="{object}.template apart<GROUP>({place})", placed="place"),
    # Powers of e up to 1 need no upper bound, and one factor of two in place of two.
    Lowering("exp(x)", "falling_exponential{precise}<C{precision}>({x})", (Site.ELEMENTWISE,), when={"x": _falls}),
    Lowering("log1pexp(x)", "falling_logarithm{precise}<C{precision}>({x})", (Site.ELEMENTWISE,), when={"x": _falls}),
    # What is computed in a quick form first.
    Lowering("x / (1 + exp(-x))", "logistic_product{precise}<FAST{precision}>({x}, usual)", ROW, each=("x",)),
    Lowering("x / (1 + exp(u))", "logistic_quotient{precise}<FAST, {x_type}{precision}>({x}, {u}, usual)", ROW,
             each=("x", "u"), finite_with=("x", "u")),
    Lowering("1 / y", "sure_inverse({y})", ELEMENTS, each=("y",), when={"y": _is_usual}),
    Lowering("x / y", "sure_quotient({x}, {y})", ELEMENTS, each=("y",), when={"x": _is_usual, "y": _is_usual}),
    Lowering("sigmoid(x)", "row_logistic_as<FAST{precision}>({x}, usual)", ROW, each=("x",), halved=True),
    Lowering("exp(x)", "row_exponential{precise}<FAST{precision}>({x}, usual)", ROW, each=("x",)),
    Lowering("x / y", "row_quotient<FAST>({x}, {y}, usual)", ROW),
    # Extremes of what is finite: whether elements are is asked of a group of them.
    Lowering("max(where(isfinite(x), abs(x), 0), over=d)", "LargestMagnitude", (Site.REDUCTION, Site.EXTREME)),
    Lowering("max(where(isfinite(x), x, 0), over=d)", "LargestFinite", (Site.REDUCTION,)),
    Lowering("min(where(isfinite(x), x, 0), over=d)", "SmallestFinite", (Site.REDUCTION,)),
    # Where all of a group are finite, it does not matter what stands for those that are not.
    Lowering("max(where(isfinite(x), x, y), over=d)", "LargestFinite", (Site.EXTREME,)),
    Lowering("min(where(isfinite(x), x, y), over=d)", "SmallestFinite", (Site.EXTREME,)),
)  # fmt: skip

_D = frozenset({"d"})
_PATTERN_NAMES = {
    **{name: Node("name", (), REAL, _D, text=name) for name in ("x", "y", "u", "s", "least", "most", "bound")},
    **{name: Node("name", (), INT, _D, 33, name) for name in ("low", "high", "h", "place")},
    "code": Node("name", (), INT, _D, 9, "code"),
    "d": Node("name", (), DIM, _D, text="d"),
}


_SCOPE = Scope(_PATTERN_NAMES, {})
_PATTERNS = {rule.pattern: parse_alone(rule.pattern, _SCOPE, "lowering.py") for rule in LOWERINGS}
_COMPILED = {site: tuple((rule, _PATTERNS[rule.pattern]) for rule in LOWERINGS if site in rule.sites) for site in Site}


def lowered(
    node: Node,
    site: Site,
    varies: Callable[[Node], bool] = lambda node: True,
    ranged: Callable[[Node], bool] = lambda node: False,
    placed: Callable[[Node], bool] = lambda node: False,
) -> tuple[Lowering, dict[str, Node]] | None:
    """The first rule that a value fits at a site, with what its names stand for.

    Args:
        node: the value.
        site: what it is computed for.
        varies: whether a value differs between the elements of a run.
        ranged: whether its range is known.
        placed: whether it is a position along the row.
    """
    for rule, pattern in _COMPILED[site]:
        found: dict[str, Node] = {}
        if (
            _fits(pattern, node, found)
            and all(not varies(found[name]) for name in rule.once)
            and all(varies(found[name]) for name in rule.each)
            and (not rule.ranged or ranged(found[rule.ranged]))
            and (not rule.placed or placed(found[rule.placed]))
            and all(_is_quick(found[name], varies) for name in rule.each if f"{{{name}}}" in rule.within)
            and all(holds(found[name]) for name, holds in rule.when.items())
            and (not rule.halved or found[PRECISION].precise_as)
            and (rule.finite_with is None or _finite_with(*(found[name] for name in rule.finite_with)))
        ):
            return rule, found
    return None


def _fits(pattern: Node, node: Node, found: dict[str, Node]) -> bool:
    if pattern.op == "name":
        if pattern.kind != node.kind or (pattern.text == "code" and node.bits > pattern.bits):
            return False
        return found.setdefault(pattern.text, node) == node
    if pattern.op == "number":
        return node.op == "number" and _signed(pattern) == _signed(node)
    if pattern.op == node.op and node.op in HALVED:
        found[PRECISION] = node
    return (
        pattern.op == node.op
        and len(pattern.args) == len(node.args)
        and all(_fits(part, argument, found) for part, argument in zip(pattern.args, node.args, strict=True))
    )


def _is_quick(node: Node, varies: Callable[[Node], bool]) -> bool:
    """Whether a value needs no elementary function of what varies."""
    if not varies(node):
        return True
    return node.op not in TRANSCENDENTAL and all(_is_quick(part, varies) for part in node.args)


def _signed(number: Node) -> tuple[float, float]:
    value = float(number.text)
    return value, copysign(1.0, value)


def _finite_with(x: Node, u: Node) -> bool:
    """Whether x, an operand's element, is finite where u is: sums and products with what is not finite are not."""

    def keeps(part: Node) -> bool:
        if part.op == "name":
            return part.kind == REAL
        return part.op in ("number", "+", "-", "*", "neg") and all(map(keeps, part.args))

    return x.op == "name" and keeps(u) and x.text in u.names()
