"""What follows from the formulas of an operation, as data."""

from __future__ import annotations

from functools import cache

from skuda.model.records import Record

COUNTED = "Count"  # what kernels and references call a number of elements; no operand or attribute is spelled so


class Over(Record):
    """What the reductions of an operation are over.

    Attributes:
        dims: the dimensions, as the row names them.
        block: the attribute that is the length of the blocks along the one dimension, where they are over blocks.
    """

    dims: tuple[str, ...]
    block: str = ""

    @staticmethod
    @cache
    def of(text: str) -> Over:
        """From its spelling in a formula: `d`, `n, d` or `d/group_size`."""
        names, _, block = text.partition("/")
        return Over(tuple(name.strip() for name in names.split(",")), block)

    def __str__(self) -> str:
        return ", ".join(self.dims) + (f"/{self.block}" if self.block else "")


class Reduced(Record):
    """One reduction: its name in a formula (`sum`), and the type in C++ of what it reduces (`C`, `i64`, `bool`)."""

    how: str
    element: str


class Analysis(Record):
    """What follows from the formulas of an operation, for plans and schedules. The generator computes it once.

    Attributes:
        exact: whether every intrinsic is correctly rounded, or made of such steps on CPU and GPU alike.
        attributes: names of the attributes that the formulas use, which kernels and references take.
        over: what the reductions are over; None where there are none, or several things.
        whole: the dimensions that a part of an operation's index space has to have all elements of, for the same
            elements of its outputs: those of reductions and counts, `d/group_size` where all of a block is enough.
        partial: the dimensions among these along which parts can be computed apart nevertheless, each with how every
            output follows from the parts' results: by a reduction (`sum`, up to its order), or, where the text is
            empty, as their elements side by side. Of an operation, none of its stages.
        counted: of an elementwise operation, the dimensions whose elements its formulas count. Kernels and references
            take that number after the attributes, as `COUNTED`.
        keeps: the operands that keep the axes which a call names, with one element each, where it says `keepdims`.
        chained: whether some formula names another output.
        asks_of: the type letters whose smallest values the formulas ask for, C among them.
        converts: whether some formula converts to the type of its output.
        precise_as: the type letter that its elementary functions are as precise as, also where that is of 16 bits;
            empty where they are as precise as C.
        long: whether it has one operand and a formula for whose instructions of f32 a GPU's memory waits.
        tabled: 0, or where it has one operand and so long a formula that results for elements of 16 bits may be looked
            up, how many times fewer elements make that pay than of the shortest of such formulas.
        copies: outputs that are an input of the same type as it stands, with the name of that input.
        of_some: what a call needs elements for: "largest", "smallest", "largest or smallest"; else empty.
        split: the reductions, where parts of a row can be reduced apart; else empty.
        reductions: how many values a row is reduced to by passes over it; 0 where there are none.
        scans: how many scans along `over` it makes; it has no other reductions then.
        repeats: whether passes over a row are repeated until they find what they seek.
        draws: whether it makes random numbers, which takes many instructions, and fewer for four of them together.
        exponentials: whether it reduces rows to sums of exponentials, whose ends take many instructions.
        stack: what a cluster keeps of an element between its passes: of each thing the types of what lies below it in
            memory, and its own. Empty where that is the inputs alone.
        updated: inputs of which the thread that makes a row's own values alone reads that row's entry: an output with
            the same dimensions may be the very array of one.
        stages: how many operations it is made of, which run one after the other; 0 where it is a kernel's itself.
        stage: which one of such it is, from 1 on; else 0.
        slabs: not 0 where its sums are across rows that an earlier stage writes, in the order of `sum_order.slab`. Of
            an operation in stages, how many values these rows are reduced to, where one kernel may do both.
        stripes: how many values of C a pass over a row reduces it to, at most, where one kernel may hold rows that lie
            beside each other in memory, in place of the kernels of its stages; else 0.
        pieces: whether one kernel may hold rows that lie in pieces, in place of the kernels of its stages.
        alternative: the number of stages of its multi-kernel form, beside its own kernel: for rows that lie apart, or
            are few and long; or, where neighbours in a row share operands, for all that blocks do not hold. A stage of
            the former has the same number, of the latter 0, as it takes all schedules. It is 1 where an elementwise
            operation may have to pack codes of 4 bits, and of that operation; 0 where there is none.
        of_one: of the form of an operation that reduces across rows: the dimensions of these, which have one element;
            of others empty.
    """

    exact: bool = True
    attributes: tuple[str, ...] = ()
    over: Over | None = None
    whole: tuple[str, ...] = ()
    partial: tuple[tuple[str, tuple[str, ...]], ...] = ()
    counted: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    chained: bool = False
    asks_of: tuple[str, ...] = ()
    converts: bool = False
    precise_as: str = ""
    long: bool = False
    tabled: int = 0
    copies: tuple[tuple[str, str], ...] = ()
    of_some: str = ""
    split: tuple[Reduced, ...] = ()
    reductions: int = 0
    scans: int = 0
    repeats: bool = False
    draws: bool = False
    exponentials: bool = False
    stack: tuple[tuple[str, ...], ...] = ()
    updated: tuple[str, ...] = ()
    stages: int = 0
    stage: int = 0
    slabs: int = 0
    stripes: int = 0
    pieces: bool = False
    alternative: int = 0
    of_one: tuple[str, ...] = ()
