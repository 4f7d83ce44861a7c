"""What a checked spec is: rows, their programs, and the spec's functions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from skuda.codegen.element_types import APART
from skuda.codegen.intrinsics import COMMON_HEADER, HALF_HEADERS, RANDOM
from skuda.codegen.nodes import CPP, REAL, REDUCE, Function, Node
from skuda.codegen.operators import FUNCTIONS, HEADER, WRAPS
from skuda.codegen.picks import picked, picks_of
from skuda.codegen.reductions import REDUCTIONS, Repeated
from skuda.model.operation import COMPUTE, Choice, Operand, Operation, Over, Reduced


@dataclass(frozen=True)
class Program:
    """One direction of a row, checked.

    Attributes:
        operation: what it does, as data.
        formulas: of each output, in the row's order; one may name outputs above it, which are meant as they are
            stored.
        formula_texts: as the row spells them, after those of `let:` that they use; none of what stages hand on.
        requirements: conditions on attributes.
        called: values in the formulas, with the names that `let:` or functions of the spec give them.
    """

    operation: Operation
    formulas: Mapping[str, Node]
    formula_texts: Mapping[str, str]
    requirements: tuple[tuple[str, Node], ...]
    called: Mapping[Node, str] = field(default_factory=dict)

    @property
    def reduced(self) -> dict[Node, str]:
        """Names of the values of its reductions, in an order in which they can be computed."""
        nodes = dict.fromkeys(r for node in self.formulas.values() for r in node.reductions())
        return {node: f"reduced_{index}_" for index, node in enumerate(nodes)}

    @cached_property
    def written_out(self) -> dict[str, Node]:
        """The formulas without names of outputs: what these name, as it is stored."""
        return {name: node.args[0] if node.op == "stored" else node for name, node in self._stored.items()}

    @property
    def called_written_out(self) -> dict[Node, str]:
        """`called`, of values without names of outputs."""
        return {value.with_names(self._stored): name for value, name in self.called.items()}

    @cached_property
    def _stored(self) -> dict[str, Node]:
        """What outputs hold, without names of other outputs."""
        elements = {operand.name: operand.element for operand in self.operation.outputs}
        done: dict[str, Node] = {}
        for name, node in self.formulas.items():
            done[name] = node.with_names(done)
            if node.kind == REAL:
                done[name] = Node("stored", (done[name],), REAL, node.dims, text=elements[name])
        return done

    @cached_property
    def reductions(self) -> tuple[Node, ...]:
        """The values that a row is reduced to, each once."""
        return tuple(dict.fromkeys(r for node in self.written_out.values() for r in node.reductions()))

    @property
    def scans(self) -> tuple[Node, ...]:
        """The scans among these."""
        return tuple(each for each in self.reductions if each.is_scan)

    @property
    def repeats(self) -> bool:
        """Whether kernels repeat a pass for one of these."""
        return any(map(is_repeated, self.reductions))

    @property
    def draws(self) -> bool:
        """Whether it makes random numbers."""
        return any(node.intrinsics() & RANDOM for node in self.formulas.values())

    @property
    def exponentials(self) -> bool:
        """Whether rows are reduced to sums of exponentials."""
        return any(reduction.op == f"{REDUCE}logsumexp" for reduction in self.reductions)

    @property
    def split_reductions(self) -> tuple[Reduced, ...]:
        """What the reductions are, if parts of a row can be reduced apart: no reduction is inside another,
        and outputs with an element for each of a row's know nothing of them. Their type is that of what is reduced.
        Rows along the last axes of which single elements are picked are not worth it, nor rows of which no operand has
        an element for each."""
        op = self.operation
        formulas, reductions = self.written_out, self.reductions
        if (
            len({r.text for r in reductions}) != 1
            or self.scans
            or self.repeats
            or op.block
            or not any(operand.dims == op.space for operand in op.operands)
            or any(argument.reductions() for reduction in reductions for argument in reduction.args)
            or any(formulas[o.name].reductions() for o in op.outputs if o.dims == op.space)
            or (any(map(picked, reductions)) and _along_last(op, reductions[0]))
        ):
            return ()
        return tuple(Reduced(r.op.removeprefix(REDUCE), CPP.get(r.args[0].kind, COMPUTE)) for r in reductions)

    @property
    def passed_over(self) -> int:
        """How many reductions passes over rows make, once `split` is known."""
        return len(self.reductions) - len(picks_of(self.operation, self.reductions))

    @property
    def of_some(self) -> str:
        """What there is none of where a row has no elements, though an output has: "largest", "smallest" or both.

        An extreme that comes after `where(count(over=d) == 0, value, ...)` is not asked for there.
        """
        found: dict[str, None] = {}
        for output in self.operation.outputs:
            own = {dim.name for dim in output.dims}
            for extreme in _unguarded(self.formulas[output.name], frozenset()):
                if not own >= set(Over.of(extreme.text).dims):
                    found[REDUCTIONS[extreme.op.removeprefix(REDUCE)].of_some] = None
        return " or ".join(sorted(found))

    @property
    def updated(self) -> tuple[str, ...]:
        """The inputs with the dimensions of an output that rows have one of, which no reduction and no output with an
        element for each of a row's is made of."""
        op = self.operation
        formulas = self.written_out
        each = {name for node in formulas.values() for r in node.reductions() for name in r.names()}
        each |= {name for o in op.outputs if o.dims == op.space for name in formulas[o.name].names()}
        made = [o.dims for o in op.outputs if o.dims != op.space] if op.analysis.over else []
        return tuple(o.name for o in op.inputs if o.dims in made and o.name not in each)

    @property
    def headers(self) -> set[str]:
        """What its source includes for the functions that it calls."""
        called = set().union(*(node.intrinsics() for node in self.formulas.values()))
        rows = [FUNCTIONS[name] for name in called]
        headers = {row.name: row.header or COMMON_HEADER for row in rows if row.header or row.common}
        found = set(headers.values())
        if self.operation.analysis.precise_as or not self.operation.analysis.exact:
            found = {HALF_HEADERS.get(name, HALF_HEADERS.get(header, header)) for name, header in headers.items()}
        wraps = any(part.text == WRAPS for node in self.formulas.values() for part in node.parts())
        op = self.operation
        words = {op.word(operand, types) for types in op.combinations for operand in op.operands}
        apart = bool(words & {*APART}) or any(loaded(op, operand.element) != operand.element for operand in op.operands)
        reductions = {part.op.removeprefix(REDUCE) for node in self.formulas.values() for part in node.reductions()}
        found |= {REDUCTIONS[name].header for name in reductions} - {""}
        return found | ({HEADER} if wraps or apart else set())

    @property
    def named(self) -> set[str]:
        """The outputs that formulas of other outputs name."""
        return self.formulas.keys() & set().union(*(node.names() for node in self.formulas.values()))


def is_repeated(reduction: Node) -> bool:
    """Whether kernels repeat a pass for a reduction."""
    return isinstance(REDUCTIONS[reduction.op.removeprefix(REDUCE)], Repeated)


HANDED_ON = "row_value_"  # what the names begin with of values that stages hand on


def loaded(operation: Operation, element: str) -> str:
    """The type in C++ that kernels load and store elements of a letter or word as. A byte that is read as a boolean may
    be any, unless an earlier stage has written it; u32 is no struct."""
    words = {types.get(element, element) for types in operation.combinations}
    read = any(o.element == element and not o.name.startswith(HANDED_ON) for o in operation.inputs)
    return f"element_t<{element}>" if "u32" in words or ("bool" in words and read) else element


def copies(
    inputs: Sequence[Operand], outputs: Sequence[Operand], formulas: Mapping[str, Node]
) -> tuple[tuple[str, str], ...]:
    """The outputs that are an input of the same type as it stands, with its name."""
    elements = {operand.name: operand.element for operand in inputs}
    named = [(output, formulas[output.name]) for output in outputs if formulas[output.name].op == "name"]
    return tuple((output.name, node.text) for output, node in named if elements.get(node.text) == output.element)


def _along_last(op: Operation, reduction: Node) -> bool:
    """Whether it is over some of the last dimensions, but not over all."""
    dims = Over.of(reduction.text).dims
    return len(dims) < len(op.space) and {dim.name for dim in op.space[-len(dims) :]} == {*dims}


def analysed(operation: Operation, **found) -> Operation:
    """An operation of whose analysis more is known."""
    return operation.but(analysis=operation.analysis.but(**found))


def whole_dims(formulas: Collection[Node]) -> tuple[str, ...]:
    """The dimensions that formulas reduce or count, as they name them (`d`, or `d/group_size` for blocks), and those
    along which they ask for positions, which a part of an array does not know."""
    found = [each.text for node in formulas for each in (*node.reductions(), *node.counts())]
    placed = [dim for node in formulas for each in node.positions() for dim in each.dims]
    return tuple(sorted({*placed, *[name for text in found for name in text.split(", ")]}))


def partial_results(
    outputs: Sequence[Operand], formulas: Mapping[str, Node]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Of each dimension that is reduced and along which parts can be computed apart nevertheless, how each output
    follows from theirs: by which reduction, or, where the text is empty, as their elements side by side.

    Args:
        outputs: the operands.
        formulas: of each; one may name outputs above it.
    """
    written: dict[str, Node] = {}
    for name, node in formulas.items():
        written[name] = node.with_names(written)
    found = {}
    placed = {dim for node in formulas.values() for each in node.positions() for dim in each.dims}
    for dim in (text for text in whole_dims(formulas.values()) if "/" not in text and text not in placed):
        found[dim] = [_of_parts(operand, written[operand.name], dim) for operand in outputs]
    return tuple((dim, tuple(hows)) for dim, hows in found.items() if None not in hows)


def _of_parts(operand: Operand, node: Node, dim: str) -> str | None:
    """How an output follows from its parts along a dimension; None where it does not."""
    if any(each.name == dim for each in operand.dims):
        return None if _knows_all(node, dim) else ""
    return _joined(node, dim)


def _knows_all(node: Node, dim: str) -> bool:
    """Whether a value is made of a reduction or a count over a dimension."""
    return any(dim in Over.of(each.text).dims for each in (*node.reductions(), *node.counts()))


def _joined(node: Node, dim: str) -> str | None:
    """The reduction that makes a value of those of parts along a dimension; None where none does. A sum may be
    multiplied or divided by what is the same for all parts."""
    name = node.op.removeprefix(REDUCE)
    if node.op.startswith(REDUCE):
        over, row = Over.of(node.text), REDUCTIONS[name]
        apart = row.of_parts and not row.gives_index and not isinstance(row, Repeated)
        plain = dim in over.dims and not over.block and apart and not _knows_all(node.args[0], dim)
        return name if plain else None
    if node.op == "neg":
        return _sum_of(node.args[0], dim)
    if node.op in ("*", "/"):
        for part, other in (node.args, node.args[::-1]) if node.op == "*" else (node.args,):
            if dim not in other.dims and not _knows_all(other, dim) and _sum_of(part, dim):
                return "sum"
    return None


def _sum_of(node: Node, dim: str) -> str | None:
    return "sum" if node.kind == REAL and _joined(node, dim) == "sum" else None


def _unguarded(node: Node, guarded: frozenset[str]) -> Iterator[Node]:
    """The extremes in a value that are asked for even where what they are over has no elements, but for `guarded`."""
    if node.op.startswith(REDUCE) and REDUCTIONS[node.op.removeprefix(REDUCE)].of_some and node.text not in guarded:
        yield node
    for index, argument in enumerate(node.args):
        counted = {node.guard.text} if node.guard is not None and index == 2 else set()
        yield from _unguarded(argument, guarded | counted)


@dataclass(frozen=True)
class Row:
    """One operation of the spec, or a form of one.

    Attributes:
        optional: inputs that may be left out, and the number that each then is.
        forms: the operations of its own that it is without one of them and those after it.
        choice: the attribute by whose word a call selects a form; `chosen`: the forms for the words beside the default.
        by_default: whether its gradients are derived because it says nothing of them.
    """

    name: str
    kind: str
    doc: str
    forward: Program
    backward: Program | None
    line: int
    source: str = ""
    optional: Mapping[str, int | float] = field(default_factory=dict)
    forms: Mapping[str, Row] = field(default_factory=dict)
    choice: Choice | None = None
    chosen: Mapping[str, Row] = field(default_factory=dict)
    by_default: bool = False

    @property
    def every(self) -> tuple[Row, ...]:
        """The row and its forms."""
        return (self, *self.forms.values(), *(each for form in self.chosen.values() for each in form.every))

    @property
    def programs(self) -> tuple[Program, ...]:
        """Forward, and backward where there is one."""
        return (self.forward,) if self.backward is None else (self.forward, self.backward)


@dataclass(frozen=True)
class Spec:
    """A whole spec file.

    Attributes:
        file_name: its name.
        rows: its operations.
        functions: its own, and those of the catalog.
        shadowed: its own that the catalog has too, and has otherwise.
    """

    file_name: str
    rows: tuple[Row, ...]
    functions: Mapping[str, Function]
    shadowed: tuple[Function, ...] = ()

    @property
    def notes(self) -> list[str]:
        """What is no mistake, and its author may not know."""
        ends = "is a function of this spec, which its formulas call in place of the catalog's"
        return [f"note: `{function.signature}` {ends}" for function in self.shadowed]
