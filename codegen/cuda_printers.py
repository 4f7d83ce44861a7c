"""Formulas as C++: what each element of a run computes, and what is computed once for the run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from skuda.codegen.intrinsics import HALVED, INTRINSICS, QUICK, RANDOM, TRANSCENDENTAL
from skuda.codegen.lowering import PRECISION, Lowering, Site, lowered
from skuda.codegen.nodes import CPP, INT, PLACED, Node
from skuda.codegen.operators import WRAPPING, WRAPS
from skuda.codegen.printers import Printer
from skuda.codegen.row_passes import LENGTH, Range
from skuda.codegen.value_names import UniqueNames, default_name

_SMALL = 16  # bits of an integer, its sign among them, that is small for RowSteps


@dataclass(frozen=True)
class Member:
    """A value that a run of elements shares: made once, used by each."""

    type: str
    name: str
    value: str
    prepared: bool


def is_costly(*nodes: Node) -> bool:
    """Whether values are made of functions that take many instructions."""
    return any(part.op in TRANSCENDENTAL for node in nodes for part in node.parts())


def makes_random(node: Node) -> bool:
    """Whether a value is made of random numbers."""
    return bool(node.intrinsics() & RANDOM)


def _branches(node: Node, chosen: Collection[str]) -> bool:
    """Whether a value is one of two that a call chooses between, and computing both would take long."""
    return node.op == "where" and node.args[0].names() <= chosen and is_costly(*node.args[1:])


class CppPrinter(Printer):
    """C++ as a formula stands, no rule applies: what is computed once a run.

    Args:
        chosen: names of what a call chooses, once for all runs.
    """

    target = "cuda"
    constants = {
        "inf": "__longlong_as_double(0x7ff0000000000000ll)", "-inf": "-__longlong_as_double(0x7ff0000000000000ll)",
        "nan": "__longlong_as_double(0x7fffffffffffffffll)", "-nan": "-__longlong_as_double(0x7fffffffffffffffll)",
    }  # fmt: skip
    spelled = {"and": "&&", "or": "||", "not": "!", "neg": "-"}
    pair = "Linear<C>{{{0}, {1}}}"
    precedence = {**Printer.precedence, "not": 7}

    def __init__(self, chosen: Collection[str] = ()):
        self.chosen = frozenset(chosen)

    def number(self, node: Node) -> str:
        return f"{node.text}ll" if node.kind == INT else super().number(node)

    def smallest(self, node: Node) -> str:
        return f"C(::smallest<{node.text}>)"

    def spelling(self, node: Node) -> str:
        return INTRINSICS[node.op].spelled("cuda", node.precise_as) if node.op in HALVED else super().spelling(node)

    def text(self, node: Node, outer: int = 0) -> str:
        return super().text(node, 0 if node.text == WRAPS else outer)  # a call needs no parentheses around it

    def written(self, node: Node, own: int) -> str:
        if _branches(node, self.chosen):
            return "({} ? {} : {})".format(*map(self.text, node.args))
        if node.op == "stored":
            return f"::stored<{node.text}>({self.text(node.args[0])})"
        if node.text == WRAPS:
            return f"{WRAPPING[node.op]}({', '.join(map(self.text, node.args))})"
        return super().written(node, own)


class OncePrinter(CppPrinter):
    """C++ of what is computed once for a run, from members of `shared` and those that have been made.

    Args:
        made: names of members, by their values.
        chosen: names of what a call chooses, once for all runs.
    """

    def __init__(self, made: Mapping[Node, str], chosen: Collection[str] = ()):
        super().__init__(chosen)
        self.made = made

    def text(self, node: Node, outer: int = 0) -> str:
        return self.made[node] if node.args and node in self.made else super().text(node, outer)


class ElementPrinter(CppPrinter):
    """C++ of what is computed for each element of a run: inputs are members of `element`, what several passes use is a
    member of `held`, and what a run shares becomes a member of the program, or of the pass.

    Args:
        site: what formulas are computed for.
        each: the names that differ between the elements of a run, with their types. Others begin with `shared.`.
        taken: names that no member may have.
        ranges: what earlier passes tell of values of an element.
        called: names of values.
        along: the dimensions that rows lie along whole.
        spine: choices whose conditions a run shares, with which of both values the fast form takes: that in which
            elements differ, or where a call chooses, the other one.
        chosen: names of what a call chooses, once for all runs.
        quick: whether steps next to a tie may be either of two integers, for functions are instructions of the GPU.

    Attributes:
        members: what a run shares, made once.
        within: conditions on values of an element under which the fast forms hold.
        grouped: conditions on a group's first element under which those of a group do.
        conditions: those on what a run shares.
    """

    def __init__(
        self,
        site: Site,
        each: Mapping[str, str],
        taken: Iterable[str],
        ranges: Mapping[Node, Range] = {},
        called: Mapping[Node, str] = {},
        along: Collection[str] = (),
        spine: Mapping[Node, int] = {},
        chosen: Collection[str] = (),
        quick: bool = False,
    ):
        super().__init__(chosen)
        self.site = site
        self.quick = quick
        self.along = along
        self.spine = spine
        self.each = each
        self.ranges = ranges
        self.called = called
        self.within: dict[str, None] = {}
        self.grouped: dict[str, None] = {}
        self._members: dict[tuple, Member] = {}
        self._made: dict[Node, str] = {}  # members that formulas may name
        self._once = OncePrinter(self._made, chosen)
        self._names = UniqueNames(taken)

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(self._members.values())

    def varies(self, node: Node) -> bool:
        """Whether a value differs between the elements of a run."""
        return bool(node.names() & self.each.keys())

    def is_place(self, node: Node) -> bool:
        """Whether a value is the index of the element along the row, or part of it."""
        return node.op == "name" and node.text.startswith(PLACED) and node.dims <= {*self.along}

    def name(self, node: Node) -> str:
        return node.text if "." in node.text else f"element.{node.text}"

    def text(self, node: Node, outer: int = 0) -> str:
        if node.op != "number" and not self.varies(node):
            return self.shared(node)
        if node in self.spine:
            return f"({self.lazily(node)})"
        rule = lowered(node, self.site, self.varies, self.ranges.__contains__, self.is_place)
        return super().text(node, outer) if rule is None else self.prepared(*rule)

    @property
    def conditions(self) -> list[str]:
        return [self.condition(node) for node in self.spine]

    def condition(self, node: Node) -> str:
        """That a choice on the spine is of the value in which elements differ."""
        return ("" if self.spine[node] == 1 else "!") + self.text(node.args[0], self.precedence["not"])

    def lazily(self, node: Node) -> str:
        """A choice on the spine."""
        varying = self.spine[node]
        return f"FAST || {self.condition(node)} ? {self.text(node.args[varying])} : {self.text(node.args[3 - varying])}"

    def stored(self, node: Node, narrow: str | None) -> str:
        """The text of what an output stores; `narrow`: its element, where that is a float of 8 bits."""
        rule = lowered(node, Site.STORE, self.varies) if narrow else None
        return self.text(node) if rule is None else self.prepared(*rule, narrow)

    def shared(self, node: Node) -> str:
        """The member that holds a value which is the same for the whole run."""
        stem = node.text.partition(".")[2] if node.op == "name" else self.called.get(node, "shared_value")
        value = self._once.text(node)
        self._made[node] = self.member((node,), CPP.get(node.kind, "C"), stem, value, prepared=False)
        return self._made[node]

    def prepared(self, rule: Lowering, found: dict[str, Node], output: str = "") -> str:
        """What a lowering rule makes of a value; `output`: the element of the output that stores it."""
        precise_as = found.pop(PRECISION).precise_as if PRECISION in found else ""
        words = {f"{name}_type": self.type_of(node) for name, node in found.items()}
        words |= {PRECISION: f", {precise_as}", "precise": "_as"} if precise_as else {PRECISION: "", "precise": ""}
        if rule.ranged and self.quick:
            words[f"{rule.ranged}_type"] = f"{QUICK}<C>"
        if rule.holder:
            words["object"] = self.object(rule, found, words | {"output": output})
        words |= {name: self.text(node) for name, node in found.items() if f"{{{name}}}" in rule.becomes}
        if rule.within:
            self.within[rule.within.format(**words)] = None
        if rule.grouped and len(self.along) == 1:  # neighbours have neighbouring positions
            self.grouped[rule.grouped.format(**words)] = None
        return rule.becomes.format(**words)

    def object(self, rule: Lowering, found: dict[str, Node], words: Mapping[str, str]) -> str:
        """The member that a rule wants to be made once."""
        small = all(found[name].bits <= _SMALL for name in rule.once if found[name].kind == INT)
        type = rule.holder.format(**words, small=str(small).lower())
        known = self.ranges[found[rule.ranged]].parts if rule.ranged else (LENGTH,) if rule.placed else ()
        made_of = (*(found[name] for name in rule.once), *known)
        stem = "steps_in_range" if rule.ranged else default_name(rule.kind)
        arguments = ", ".join(self._once.text(node) for node in made_of)
        return self.member((type, *made_of), type, stem, arguments, prepared=True)

    def type_of(self, node: Node) -> str:
        """The element type of an operand; C of what is computed."""
        return self.each.get(node.text, "C") if node.op == "name" else "C"

    def member(self, key: tuple, type: str, stem: str, value: str, prepared: bool) -> str:
        """The name of a member, which is made if there is none of this key."""
        if key not in self._members:
            self._members[key] = Member(type, self._names.new(stem), value, prepared)
        return self._members[key].name
