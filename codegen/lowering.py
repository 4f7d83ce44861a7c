"""Rules that turn parts of a formula into something the GPU does faster with the same bits.

Each rule is a pattern in the formula language. Where the names under `once` are shared by a run of elements
and those under `each` are not, the part becomes a call of a method of a class in runtime/cuda/quotient.cuh,
whose object is made once a run. The NumPy reference prints the formula as it stands, so every comparison of
the two checks these rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from skuda.codegen.diagnostics import Diagnostics, Place
from skuda.codegen.expr import parse
from skuda.codegen.nodes import INT, REAL, Node, Scope
from skuda.codegen.yaml_tree import Text


@dataclass(frozen=True)
class Lowering:
    """One rule: `pattern` becomes `holder(once...).method(each...)`.

    `ranged`: the fast form also wants `each` in a range, which `holder::within` tells; both are told its type.
    """

    pattern: str
    once: tuple[str, ...]
    each: str
    holder: str
    method: str
    ranged: bool = False


LOWERINGS = (
    Lowering("to_real(clamp(round_to_int(x / s), low, high))", ("s", "low", "high"), "x", "Steps", "real"),
    Lowering("clamp(round_to_int(x / s), low, high)", ("s", "low", "high"), "x", "Steps", "value"),
    Lowering("low <= round_to_int(x / s) <= high", ("s", "low", "high"), "x", "Steps", "inside"),
    Lowering("abs(x / s) <= bound", ("s", "bound"), "x", "Magnitude", "inside"),
    Lowering("x / s", ("s",), "x", "Divisor", "quotient", ranged=True),
    Lowering("to_real(code - h)", ("h",), "code", "Offset", "difference"),
)

# For what an output of 8-bit floats stores: the holder knows the output's element type too.
STORED = (Lowering("clamp(x / s, least, most)", ("s", "least", "most"), "x", "Saturated", "value"),)

_PATTERN_NAMES = {
    "x": Node("name", (), REAL, text="x"),
    "s": Node("name", (), REAL, text="s"),
    "low": Node("name", (), INT, bits=33, text="low"),
    "high": Node("name", (), INT, bits=33, text="high"),
    "least": Node("name", (), REAL, text="least"),
    "most": Node("name", (), REAL, text="most"),
    "bound": Node("name", (), REAL, text="bound"),
    "code": Node("name", (), INT, bits=9, text="code"),
    "h": Node("name", (), INT, bits=33, text="h"),
}


def _compiled(rule: Lowering) -> Node:
    diagnostics = Diagnostics("lowering.py", rule.pattern)
    tree = parse(Text(rule.pattern, Place(1, 1)), Scope(_PATTERN_NAMES, {}), diagnostics)
    diagnostics.raise_if_any()
    return tree


_COMPILED = {rules: tuple((rule, _compiled(rule)) for rule in rules) for rules in (LOWERINGS, STORED)}


def lowered(
    node: Node, varies: Callable[[Node], bool], rules: tuple[Lowering, ...] = LOWERINGS
) -> tuple[Lowering, dict[str, Node]] | None:
    """The first rule that a value fits, with what its names stand for."""
    for rule, pattern in _COMPILED[rules]:
        found: dict[str, Node] = {}
        if (
            _fits(pattern, node, found)
            and all(not varies(found[name]) for name in rule.once)
            and varies(found[rule.each])
        ):
            return rule, found
    return None


def _fits(pattern: Node, node: Node, found: dict[str, Node]) -> bool:
    if pattern.op == "name":
        if pattern.kind != node.kind or (pattern.text == "code" and node.bits > pattern.bits):
            return False
        return found.setdefault(pattern.text, node) == node
    return (
        pattern.op == node.op
        and len(pattern.args) == len(node.args)
        and all(_fits(part, argument, found) for part, argument in zip(pattern.args, node.args, strict=True))
    )
