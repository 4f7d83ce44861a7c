"""How an oracle is found by the name of its operation, and called for the whole of an operation's operands.

An oracle is a function under `@oracle` that has the name of an operation, `_backward` after it for its gradients, in
any file of this folder. Granularities share one: `quantize` is the oracle of `quantize_per_token` too, where that has
none of its own, and of `quantize_per_token_without_zero_point`, what a row is without an optional input. Its
parameters are operands and attributes by their names, then keywords for the type letters that it asks for:

    @oracle(over="d")
    def softmax(input, *, T): ...

Floats are given as bit patterns of their type, other numbers as integers, types as words. How much a call is about:

    @oracle                     one element
    @oracle(over="d")           a row along a dimension: operands that have it are lists, the others single values
    @oracle(over=("n", "d"))    lists along n of lists along d; what has d alone is a list along d
    @oracle(sharing="scale")    all elements that share an entry of an operand, in row-major order

It gives one result, or a tuple in the order of the outputs: lists where the output has the elements of the call. A
result is what is stored (an integer: of a float its bit pattern), a `Span` before it is stored, or a pair: codes from
the one to the other. A parameter with the name of an output is given what was stored there. One that an operation does
not have needs a default: that of an operand which may be absent.

Of a row with `reduction = mean`, the oracle gives what `none` has, as spans: means and sums are made of these here. The
oracle of its gradient takes `share` in place of `d_output`: a span, what of that an element has, in the compute type.
Where means divide by weights, `weights=` is a function of operands and attributes that gives each element's, a span.

tests/conformance/test_every_operation.py finds and runs them.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from . import spans
from .floats import FORMATS, FP8, compute_format, decode, integer
from .spans import ANY, Span, admits

_REGISTERED: dict[str, Oracle] = {}
Dims = tuple[tuple[str, str | None], ...]  # of each: its name, and the attribute that says how long its blocks are


@dataclass(frozen=True)
class Oracle:
    """A function and what one call of it is about."""

    function: Callable
    over: tuple[str, ...] = ()
    sharing: str = ""
    weights: Callable | None = None

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters


def oracle(function=None, /, *, over: str | tuple[str, ...] = (), sharing: str = "", name: str = "", weights=None):
    """Makes a function the oracle of the operation that it has the name of, or of another one's."""
    if function is None:
        return lambda function: oracle(function, over=over, sharing=sharing, name=name, weights=weights)
    function.__name__ = name = name or function.__name__
    if name in _REGISTERED and _REGISTERED[name].function.__module__ != function.__module__:
        raise ValueError(f"two oracles are called {name}")
    _REGISTERED[name] = Oracle(function, (over,) if isinstance(over, str) else over, sharing, weights)
    return function


@cache
def _load() -> None:
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if not path.stem.startswith(("_", "test_")):
            importlib.import_module(f"{__package__}.{path.stem}")


def find(function: str) -> Oracle:
    """The oracle of an operation by the name of its function.

    Raises:
        LookupError: there is none; says what to write.
    """
    _load()
    function = re.sub(r"_as_[a-z]+(?=_without_|_backward$|$)", "", function)
    whole = re.sub(r"_without_\w+?(_backward)?$", r"\1", function)
    shared = [re.sub(r"_per_[a-z]+(?=_without_|_backward$|$)", "", name) for name in (function, whole)]
    names = [*dict.fromkeys((function, shared[0], whole, shared[1]))]
    for name in names:
        if name in _REGISTERED:
            return _REGISTERED[name]
    names = " or ".join(f"`{name}`" for name in names)
    raise LookupError(f"{function} has no oracle: write {names} under @oracle in a file of {Path(__file__).parent}")


@dataclass
class Problem:
    """Operands of one call of an operation.

    Attributes:
        extents: elements along each dimension, in the order of the operand that has all of them.
        blocks: how long blocks are, by attribute.
        inputs, outputs: the dimensions of each operand.
        values: of each input its elements in row-major order, of each attribute its number.
        types: words by type letter.
        stored: of each output what was stored, in row-major order.
        how: of a form of a row with a reduction, "none", "mean" or "sum"; `elements`: the dimensions of the output or
            gradient whose elements are reduced.
    """

    extents: dict[str, int]
    blocks: dict[str, int]
    inputs: dict[str, Dims]
    outputs: dict[str, Dims]
    values: dict[str, Any] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    stored: dict[str, list[int]] = field(default_factory=dict)
    how: str = ""
    elements: Dims = ()

    @property
    def size(self) -> int:
        return prod(self.extents.values())

    def dims_of(self, name: str) -> Dims:
        return self.inputs[name] if name in self.inputs else self.outputs[name]

    def entries(self, name: str) -> np.ndarray:
        """Which element of an operand belongs to each position of the space, in row-major order."""
        along = []
        for dim, block in self.dims_of(name):
            position = np.arange(self.extents[dim]) // (self.blocks[block] if block else 1)
            along.append((dim, position, int(position[-1]) + 1))
        found = np.zeros(tuple(self.extents.values()), np.int64)
        names = list(self.extents)
        for dim, position, count in along:
            shape = [1] * len(names)
            shape[names.index(dim)] = -1
            found = found * count + position.reshape(shape)
        return found.reshape(-1)

    def count(self, name: str) -> int:
        """How many elements an operand has."""
        return prod(-(-self.extents[dim] // (self.blocks[block] if block else 1)) for dim, block in self.dims_of(name))


def calls(asked: Oracle, problem: Problem) -> Iterator[np.ndarray]:
    """Of each call the positions of the space that it is about: none, one or several axes, as `over` says."""
    positions = np.arange(problem.size).reshape(tuple(problem.extents.values()))
    if asked.sharing:
        entries = problem.entries(asked.sharing)
        order = np.argsort(entries, kind="stable")
        yield from np.split(order, np.flatnonzero(np.diff(entries[order])) + 1)
        return
    names = list(problem.extents)
    axes = [names.index(name) for name in asked.over]
    moved = np.moveaxis(positions, axes, range(-len(axes), 0)) if axes else positions
    yield from moved.reshape(-1, *(positions.shape[axis] for axis in axes))


def _levels(asked: Oracle, problem: Problem, name: str) -> tuple[bool, ...]:
    """Along which of the axes of a call an operand has elements of its own."""
    dims = problem.dims_of(name)
    if asked.sharing:
        return (not set(dims) <= set(problem.dims_of(asked.sharing)),)
    return tuple(level in {dim for dim, _ in dims} for level in asked.over)


def _own(positions: np.ndarray, levels: Sequence[bool]) -> np.ndarray:
    return positions[tuple(slice(None) if own else 0 for own in levels)]


def expected(asked: Oracle, problem: Problem) -> dict[str, list]:
    """What each output may hold, element by element.

    Raises:
        TypeError: the oracle's parameters, or what it gives, are not those of the operation.
    """
    name, parameters = asked.function.__name__, asked.parameters
    if problem.how in ("mean", "sum") and "share" not in parameters:
        ((output, _),) = problem.outputs.items()
        whole = replace(problem, how="none", outputs={output: problem.elements})
        return {output: [_reduced(expected(asked, whole)[output], problem, _divisor(asked, problem))]}
    if "share" in parameters:
        problem = _with_share(problem, _divisor(asked, problem) if problem.how == "mean" else None)
    operands = [*problem.inputs, *(each for each in problem.outputs if each in parameters)]
    missing = [each for each in (*problem.inputs, *problem.values) if each not in parameters]
    if missing:
        raise TypeError(f"the oracle {name} has no parameter `{missing[0]}`")
    entries = {each: problem.entries(each) for each in (*operands, *problem.outputs)}
    given = {**problem.values, **problem.stored}
    options = {letter: word for letter, word in problem.types.items() if letter in parameters}
    options |= {each: given[each] for each in problem.values if each not in problem.inputs}
    found: dict[str, list] = {output: [None] * problem.count(output) for output in problem.outputs}
    for positions in calls(asked, problem):
        arguments = {}
        for each in operands:
            own = entries[each][_own(positions, _levels(asked, problem, each))]
            arguments[each] = _taken(given[each], own.tolist())
        results = asked.function(**arguments, **options)
        results = results if isinstance(results, tuple) and len(found) > 1 else (results,)
        if len(results) != len(found):
            raise TypeError(f"the oracle {name} gives {len(results)} results, expected {', '.join(found)}")
        for output, result in zip(found, results):
            levels = _levels(asked, problem, output)
            own = entries[output][_own(positions, levels)]
            _put(found[output], own.tolist(), result, f"the oracle {name} gives for {output}")
    return found


def _reduced(results: Sequence[Span], problem: Problem, divisor: Span) -> Span:
    """The sum of what an oracle gives for each element, or their mean."""
    form = compute_format(problem.types["T"])
    total = spans.total(results, form)
    return total if problem.how == "sum" else spans.divide(total, divisor, form)


def _divisor(asked: Oracle, problem: Problem) -> Span:
    """What the mean of an output's elements divides by: their number, or the sum of their weights."""
    form = compute_format(problem.types["T"])
    if asked.weights is None:
        return spans.point(integer(prod(problem.extents[dim] for dim, _ in problem.elements), form))
    weighing = replace(asked, function=asked.weights, weights=None)
    names = [name for name in problem.inputs if name in weighing.parameters]
    values = {name: each for name, each in problem.values.items() if name in weighing.parameters}
    inputs = {name: problem.inputs[name] for name in names}
    whole = replace(problem, how="none", inputs=inputs, values=values, outputs={"weights": problem.elements}, stored={})
    return spans.total(expected(weighing, whole)["weights"], form)


def _with_share(problem: Problem, divisor: Span | None) -> Problem:
    """What of the gradient each element has, in place of the gradient."""
    element = problem.types["T"]
    form = compute_format(element)
    shares = [spans.point(decode(bits, FORMATS[element])) for bits in problem.values["d_output"]]
    if divisor is not None:
        shares = [spans.divide(share, divisor, form) for share in shares]
    inputs = {"share" if name == "d_output" else name: dims for name, dims in problem.inputs.items()}
    values = {name: each for name, each in problem.values.items() if name != "d_output"}
    return replace(problem, inputs=inputs, values=values | {"share": shares})


def _taken(values: Sequence[int], own):
    return [_taken(values, each) for each in own] if isinstance(own, list) else values[own]


def _put(into: list, own, result, what: str) -> None:
    if not isinstance(own, list):
        pair = isinstance(result, tuple) and len(result) == 2 and all(isinstance(end, int) for end in result)
        if not (pair or isinstance(result, int | Span)):
            raise TypeError(f"{what} {result!r}, expected an integer, a span or a pair of integers")
        into[own] = result
        return
    if not isinstance(result, list) or len(result) != len(own):
        raise TypeError(f"{what} {result!r}, expected a list of {len(own)}")
    for each, part in zip(own, result, strict=True):
        _put(into, each, part, what)


def allowed(result, stored: int, word: str) -> bool:
    """Whether what was stored is what an oracle gives."""
    if isinstance(result, Span):
        return admits(result, stored, (FORMATS | FP8)[word])
    low, high = result if isinstance(result, tuple) else (result, result)
    return low <= stored <= high


def says_something(result) -> bool:
    """Whether an oracle gives more than that anything may be."""
    return result is not ANY
