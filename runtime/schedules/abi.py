"""The argument of each kernel, declared once.

A kernel takes one struct of 8-byte slots. The head of its schedule comes first, then operands and attributes in the
order of `Order`; strides and the like follow the pointer of each operand. The generator writes programs in that order,
and the host packs it. tests/host/test_arguments.py compares the offsets with those that a C++ compiler gives the
structs of runtime/cuda, for every program.
"""

from __future__ import annotations

from functools import cached_property

from skuda.model.operation import COUNTED, Operand, Operation
from skuda.model.records import Record

AXES = 8  # of a kernel's index space
INNER = 4  # axes that the elements of a row may lie along
BROADCAST_AXES = 4  # of the index space of `broadcast`


class Member(Record):
    """One member of a struct: 8 bytes, or another struct; `count` of them.

    Attributes:
        struct: None for a number or a pointer of 8 bytes.
    """

    name: str
    struct: Struct | None = None
    count: int = 1

    @property
    def slots(self) -> int:
        """How many slots of 8 bytes it takes."""
        return self.count * (self.struct.slots if self.struct else 1)


class Struct(Record):
    """A struct of runtime/cuda that the host fills."""

    name: str
    members: tuple[Member, ...]

    @cached_property
    def slots(self) -> int:
        """How many slots of 8 bytes it takes."""
        return sum([member.slots for member in self.members])

    def pack(self, **values: int | tuple[int, ...]) -> tuple[int, ...]:
        """The slots, in the order of the members.

        Args:
            values: of each member by its name: a number, or the slots of a struct or of an array.
        """
        slots: list[int] = []
        for member in self.members:
            value = values.pop(member.name)
            found = value if isinstance(value, tuple) else (value,)
            assert len(found) == member.slots, (self.name, member.name, len(found), member.slots)
            slots += found
        assert not values, (self.name, *values)
        return tuple(slots)


def _struct(name: str, *members: str | Member) -> Struct:
    found = (each if isinstance(each, Member) else Member(each) for each in members)
    return Struct(name, tuple(found))


DIVIDE = _struct("Divide", "divisor", "wide", "narrow", "shift")
STRIDES = _struct("Strides", Member("of", None, AXES))
OUTER = _struct("Outer", "first_axis", Member("extent", DIVIDE, AXES))
SPAN = _struct("Span", "low", "size")
ALONG = _struct("Along", "axes", Member("of", None, INNER), Member("extent", DIVIDE, INNER))
PLANE_STEPS = _struct("PlaneSteps", "along", "across", "turned")
REACH = _struct("Reach", Member("kept", STRIDES), Member("along", STRIDES), "low", "high")

TABLED = _struct("Tabled", "length")
FLAT = _struct("Flat", "length", *[Member(each, DIVIDE) for each in ("run", "period", "line")])
GROUPS = _struct("Groups", "length", Member("line", DIVIDE), Member("run", DIVIDE), "runs", "elements")
COLUMNS = _struct(
    "Columns", "units", "blocks", "rows", "last", *[Member(each, DIVIDE) for each in ("chunks", "slabs", "width")],
    "lead", "vectors_end", "length",
)  # fmt: skip
SHARES = _struct(
    "Shares", "units", "length", "chunks", "rows", "depth", "below",
    *[Member(each, DIVIDE) for each in ("across", "slabs", "run", "run_chunks", "period")], Member("outer", OUTER),
)  # fmt: skip
TILES = _struct(
    "Tiles", "along", "across",
    *[Member(each, DIVIDE) for each in ("tiles_along", "tiles_across", "run_along", "run_across")],
    Member("outer", OUTER),
)  # fmt: skip
BROADCAST = _struct("Broadcast", "length", Member("extent", DIVIDE, BROADCAST_AXES - 1))
BROADCAST_STEPS = _struct("BroadcastSteps", Member("of", None, BROADCAST_AXES), "flat")
SPACE = _struct(
    "Space", "units", "first_axis", "last", "block_axis", Member("block", DIVIDE), Member("extent", DIVIDE, AXES)
)
APART = _struct("Apart", "of")
ROWS_APART = _struct("RowsApart", "rows", "length")
ROW_SPACE = _struct("RowSpace", "rows", "length", "block_axis", "last_length", Member("outer", OUTER))
REDUCTION = _struct(
    "Reduction", "rows", "length", "columns", "segment", "accumulators", "turns", "cut", "each", "wide",
    "team",
    Member("splits", DIVIDE), Member("tiles", DIVIDE), "finish_wide", "finish_each",
    Member("kept", OUTER), Member("along", OUTER),
)  # fmt: skip


class Arguments(Record):
    """What the argument of a kind of kernels is made of.

    Attributes:
        head: what it begins with.
        element, shared, output: what follows the pointer of an input that has an element for each of the output's, of
            one that elements share, and of an output.
        per_row: what follows that of an operand that a row has one element of, where that is something else.
        workspace: whether a pointer to scratch memory comes last.
    """

    head: Struct
    element: tuple[Member, ...]
    shared: tuple[Member, ...]
    output: tuple[Member, ...]
    per_row: tuple[Member, ...] | None = None
    workspace: bool = False

    def operand(self, operation: Operation, operand: Operand) -> tuple[Member, ...]:
        """What follows the pointer of an operand."""
        if operand in operation.in_kernels.inputs and is_full(operation, operand):
            return self.element
        if self.per_row is not None and is_of_row(operation, operand):
            return self.per_row
        return self.output if operand in operation.outputs else self.shared

    def slots(self, operation: Operation, operand: Operand) -> int:
        """How many slots follow the pointer of an operand."""
        return sum([member.slots for member in self.operand(operation, operand)])


_STRIDED = (Member("strides", STRIDES),)
_SHARE = (*_STRIDED, Member("row"), Member("apart"))
_ROW = (*_STRIDED, Member("steps", ALONG))
_REACH = (Member("reach", REACH),)

VEC_ARGUMENTS = Arguments(FLAT, (Member("gap"),), (Member("step"),), (Member("gap"),))
TABLED_ARGUMENTS = Arguments(TABLED, (), (), (), workspace=True)
GROUPS_ARGUMENTS = Arguments(GROUPS, (Member("gap"),), (Member("step"),), ())
COLUMNS_ARGUMENTS = Arguments(
    COLUMNS, (Member("apart"), Member("row")), (Member("apart"), Member("step")), (Member("apart"), Member("row")),
    (Member("apart"), Member("step"), Member("row"), Member("across"), Member("period", DIVIDE)),
)  # fmt: skip
ROWS_ARGUMENTS = Arguments(SHARES, (*_SHARE, Member("span", SPAN)), (*_SHARE, Member("step")), _SHARE)
TILE_ARGUMENTS = Arguments(TILES, *[(*_STRIDED, Member("steps", PLANE_STEPS))] * 3)
BROADCAST_ARGUMENTS = Arguments(BROADCAST, *[(Member("steps", BROADCAST_STEPS),)] * 2, ())
STRIDED_ARGUMENTS = Arguments(SPACE, *[_STRIDED] * 3)
ROW_ARGUMENTS = Arguments(ROW_SPACE, *[(*_ROW, Member("span", SPAN))] * 2, _ROW, per_row=_STRIDED)
FEW_ROWS_ARGUMENTS = Arguments(ROWS_APART, *[(Member("strides", APART),)] * 3)
PARTS_ARGUMENTS = ROW_ARGUMENTS.but(workspace=True)
SPLIT_ARGUMENTS = Arguments(REDUCTION, *[_REACH] * 3, workspace=True)

SCALAR = {"array": int, "real": float, "integer": int}  # a pointer, or null and the number, as either type


class Order(Record):
    """The operands of an operation by their roles, each in call order, and the names of its attributes.

    In the argument of a kernel they follow each other in the order of the members here.

    Attributes:
        elements: inputs that have an element for each of the index space.
        shared: the other inputs that are arrays.
        scalars: inputs that are one value.
        attributes: those that formulas use, then the number of elements that they count.
        outputs: what is written.
    """

    elements: tuple[Operand, ...]
    shared: tuple[Operand, ...]
    scalars: tuple[Operand, ...]
    attributes: tuple[str, ...]
    outputs: tuple[Operand, ...]


def is_full(operation: Operation, operand: Operand) -> bool:
    """Whether kernels take an operand as one with an element for each of the index space; rows share positions."""
    return operand.dims == operation.space and not (operand in operation.positions and operation.analysis.over)


def is_of_row(operation: Operation, operand: Operand) -> bool:
    """Whether a row has one element of an operand: a row that is reduced, or one of a table whose columns have other
    operands."""
    return not operation.runs_along(operand) if operation.along else operand in operation.of_rows


def is_parameter(operation: Operation, operand: Operand) -> bool:
    """Whether several elements of the index space share each of an operand's elements, and it has more than one."""
    return operand.dims != operation.space and not operand.scalar


def order(operation: Operation) -> Order:
    """In which order kernels take what an operation has."""
    inputs = operation.in_kernels.inputs
    elements = tuple([each for each in inputs if is_full(operation, each)])
    others = [each for each in inputs if each not in elements]
    shared, scalars = (tuple([each for each in others if each.scalar is wanted]) for wanted in (False, True))
    counted = (COUNTED,) if operation.analysis.counted else ()
    return Order(elements, shared, scalars, (*operation.analysis.attributes, *counted), operation.outputs)
