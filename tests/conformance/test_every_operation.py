"""Every operation of the catalog and every gradient beside its oracle, which is found by its name and run.

Nothing here lists operations: what is compared follows from the catalog, what with from tests/oracles (binding.py).
Operands are drawn from their declarations, for each choice of element types: ordinary ones first, of which the oracle
has to say something, then rows of what is unusual, and any bit patterns; more of these while there is time.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from math import isinf, prod

import numpy as np
import pytest

from oracles import binding, patterns
from oracles.binding import Problem
from oracles.floats import FORMATS, FP8, Value, decode, encode, encode_fraction
from oracles.spans import ANY
from skuda.errors import InvalidProblem
from skuda.launch import registry
from skuda.model.operation import REDUCTIONS
from skuda.model.sku import BackendKind, Direction

from .support import I32_MAX, I32_MIN, RANGE, STORAGE, UINT, floats, stored_codes, unpack
from .test_rows import unusual_rows

SECONDS = 0.1  # for more problems of an operation than one of each kind, which every choice of types has
KINDS = ("ordinary", "hard", "any bits")
ROW = 20  # elements of each of `unusual_rows`
WIDE = {"i16": np.int16, "i32": np.int32, "i64": np.int64, "u32": np.uint32}  # integers beside those of RANGE
MANY, SINGLE, BLOCK = ((), (2,), (3, 2)), (5, 1, 9), (3, 1, 4, 20)


def plans(catalog) -> list:
    """A plan class for each operation and direction: none of stages."""
    found = [plan for name in catalog.modules for plan in catalog.plans(name) if plan.operation.is_whole]
    return list({plan.__name__: plan for plan in found}.values())


def catalog():
    return registry.catalogs()[0]


@pytest.mark.turns(18)
@pytest.mark.parametrize("plan", plans(catalog()), ids=lambda plan: plan.operation.function)
def test_against_the_oracle_of_its_name(backend, plan):
    compare(backend, plan)


def compare(backend, plan, found=binding.find) -> None:
    """Raises AssertionError where a result is not what the oracle allows, LookupError where there is no oracle."""
    asked = found(plan.operation.function)
    forward = next(each for each in plans(catalog()) if each.operation.name == plan.operation.name)
    start, turn = time.perf_counter(), 0
    rows: dict[str, int] = {}  # how many of what is unusual have been tried, by element type
    while turn < len(KINDS) or time.perf_counter() < start + SECONDS:
        kind, said, total = KINDS[turn % len(KINDS)], 0, 0
        for index, types in enumerate(plan.operation.combinations):
            while turn < len(KINDS) or time.perf_counter() < start + SECONDS:
                drawn = Drawn(plan, forward, types, asked, kind, turn, index, rows)
                compared = drawn.compare(backend)
                said, total = said + sum(compared), total + len(compared)
                if kind != "hard" or not drawn.unusual or rows[drawn.unusual] >= len(unusual_rows(drawn.unusual)):
                    break
        assert turn or said > 0.8 * total > 0, f"the oracle says something of {said} of {total} ordinary results"
        turn += 1


def reduction_of(operation) -> tuple[str, tuple]:
    """How a form of a row reduces its output, and the dimensions of that where it does not."""
    row = next(each for each in plans(catalog()) if each.operation.function == operation.row)
    choice = row.operation.choice
    if choice is None or choice.words != REDUCTIONS:
        return "", ()
    how = next((word for word, form in choice.forms if form == operation.name.partition("_without_")[0]), "")
    (output,) = row.chosen("none").operation.outputs
    return how, tuple((dim.name, dim.block) for dim in output.dims)


class Drawn:
    """One problem: sizes, attributes and operands, drawn from the declarations of an operation.

    Gradients may need what the forward pass stored, so that is computed first.
    """

    def __init__(self, plan, forward, types, asked, kind: str, turn: int, index: int, rows: dict[str, int]):
        self.plan, self.types, self.asked, self.kind = plan, types, asked, kind
        self.operation, self.forward = plan.operation, forward
        self.rng = np.random.default_rng([turn, index])
        self.turn, self.index, self.rows = turn, index, rows
        self.unusual = ""  # the element type of which rows of what is unusual were drawn
        self.words = {o.name: self.operation.word(o, types) for o in self.operation.operands}
        self.words |= {o.name: forward.operation.word(o, types) for o in forward.operation.operands}
        self.sizes = self._sizes()
        self.attributes = self._attributes()

    # ---- sizes ----

    def _sizes(self) -> dict:
        """Extents by dimension, and lengths of blocks; of hard rows one call of the oracle has ROW elements."""
        dims = {dim.name: dim for each in (self.forward.operation, self.operation) for dim in each.dims}
        names = [*dims, *(a.name for a in self.operation.attributes if a.type == "size")]
        sizes = {}
        for position, name in enumerate(names):
            choice = MANY if name in dims and dims[name].many else SINGLE if name in dims else BLOCK
            sizes[name] = choice[(self.turn + self.index + position) % len(choice)]
        if self.kind == "hard":
            sizes |= {name: (4,) if dim.many else 4 for name, dim in dims.items()}
            row = [name for name in self._row_dims() if name in dims]
            for position, name in enumerate(row):
                size = (ROW if len(row) == 1 else 4 if position else 5) if position < 2 else 1
                sizes[name] = (size,) if dims[name].many else size
            sizes |= {name: ROW for name in names if name not in dims}
        return sizes

    def _row_dims(self) -> list[str]:
        """The dimensions of what one call of the oracle takes: of several lists the inner ones."""
        if self.asked.over or not self.asked.sharing:
            return list(self.asked.over[-1:])
        owner = next(o for o in self.operation.operands if o.name == self.asked.sharing)
        shared = {dim.name: dim.block for dim in owner.dims}
        return [dim.name for dim in self.operation.space if shared.get(dim.name, "") != dim.block]

    # ---- attributes ----

    def _attributes(self) -> dict[str, int | float]:
        """Those that a call gives: none at first, so that defaults are tried."""
        given: dict[str, int | float] = {}
        for attribute in self.operation.attributes:
            if attribute.names_axes or attribute.type == "size" or (self.turn == 0 and attribute.default is not None):
                continue
            given[attribute.name] = self._drawn_attribute(attribute)
        return given

    def _drawn_attribute(self, attribute):
        word = self.types.get(attribute.type, attribute.type)
        if word == "bool":
            return bool(self.rng.integers(2))
        if word in RANGE:
            low, high = RANGE[word]
            highest = attribute.default == f"highest({attribute.type})"
            return int(self.rng.integers(1, high + 1) if highest else self.rng.integers(low, 1))
        if word in WIDE:
            return int(self.rng.integers(-3, 4))
        if word in FP8:
            return float(decode(int(self.rng.integers(0x30, 0x78)), FP8[word]).signed)
        size = float(self.rng.uniform(0.01, 1.5))
        return size if word == "f64" else float(np.float32(size))

    def _default(self, attribute) -> int | float:
        if not isinstance(attribute.default, str):
            return attribute.default
        limit, _, letter = attribute.default.removesuffix(")").partition("(")
        word = self.types.get(letter, letter)
        if word == "i32":
            return (I32_MIN, I32_MAX)[limit == "highest"]
        if word in RANGE:
            return RANGE[word][limit == "highest"]
        form = (FORMATS | FP8)[word]
        return (1 if limit == "highest" else -1) * float(decode(form.largest, form).signed)

    def _as_oracles_take_it(self, attribute) -> int:
        value = self.attributes.get(attribute.name, self._default(attribute))
        word = self.types.get(attribute.type, attribute.type)
        form = (FORMATS | FP8).get(word)
        if form is None:
            return value
        return encode(Value("inf", value < 0), form) if isinf(value) else int(encode_fraction(value, form))

    # ---- operands ----

    def _plan(self, plan_class, preference):
        operation = plan_class.operation
        fields = {field: self.types[each] for each, field in operation.element_fields.items() if each in self.types}
        names = {dim.name for dim in operation.dims} | {a.name for a in operation.attributes if not a.names_axes}
        given = {name: value for name, value in (self.sizes | self.attributes).items() if name in names}
        descriptor = plan_class.descriptor_type(**fields, **given)
        return plan_class.select(descriptor, preference=preference)

    def _elements(self, operand, shape, space) -> np.ndarray:
        """An operand's elements as it stores them, unpacked."""
        word, count = self.words[operand.name], prod(shape)
        if word in FORMATS | FP8:
            return floats(self._float_bits(operand, word, count, shape, space), word).reshape(shape)
        low, high = RANGE.get(word) or (-20 * (word != "u32"), 20)
        if word == "bool":
            return np.asarray(self.rng.random(shape) < 0.5)
        if word in WIDE and (length := self.operation.classes(operand, self.sizes)):  # one in ten is none
            known = self.rng.integers(0, length, count)
            none = self.rng.choice([-100, -1, length], count)
            return np.where(self.rng.random(count) < 0.1, none, known).reshape(shape)
        if self.kind == "any bits" and word in WIDE:  # of every magnitude, and the ends
            bits = self.rng.integers(0, 256, count * WIDE[word]().itemsize, np.uint8).view(WIDE[word])
            bits = bits >> self.rng.integers(0, 8 * bits.itemsize, count).astype(bits.dtype)
            ends = np.array([np.iinfo(bits.dtype).min, np.iinfo(bits.dtype).max, 0])
            return np.where(self.rng.random(count) < 0.2, self.rng.choice(ends, count), bits).reshape(shape)
        found = self.rng.integers(low, high + 1, count)
        if word == "i32" and self.kind != "ordinary":
            found = np.where(self.rng.random(count) < 0.2, self.rng.choice([I32_MIN, I32_MAX, 2**24 + 3], count), found)
        return found.reshape(shape)

    def _float_bits(self, operand, word, count, shape, space) -> np.ndarray:
        form = (FORMATS | FP8)[word]
        if word in FP8:
            bits = self.rng.integers(0, 256, count)
            return np.where((bits & 0x7F) < 0x7C, bits, 0x30) if self.kind == "ordinary" else bits
        full = operand.dims == space
        if self.kind == "any bits" and not (operand.name.startswith("d_") and self.rng.random() < 0.5):
            return patterns.sample(self.rng, form, count)
        if self.kind == "hard" and full and not operand.name.startswith("d_"):
            return self._hard(word, count)
        if full:
            values = self.rng.normal(0, 3, count) * 2.0 ** self.rng.integers(-3, 3)
        else:  # a parameter: scales and weights are positive
            values = self.rng.uniform(0.03, 2, count)
        return np.asarray(values.astype(STORAGE[word])).view(UINT[word])

    def _hard(self, word: str, count: int) -> np.ndarray:
        """What is unusual: a row of it for each call of the oracle, or all of it for one that takes elements."""
        rows = list(unusual_rows(word).values())
        if not self._row_dims():
            return np.resize(np.roll(np.array(rows, np.uint64), self.turn * ROW), count)
        bits, first = np.zeros(count, np.uint64), self.rows.get(word, 0)
        calls = [inner for positions in self._calls() for inner in positions.reshape(-1, positions.shape[-1])]
        for number, positions in enumerate(calls):
            bits[positions] = np.resize(np.array(rows[(first + number) % len(rows)], np.uint64), len(positions))
        if not self.unusual:
            self.unusual, self.rows[word] = word, first + len(calls)
        return bits

    def _calls(self):
        return binding.calls(self.asked, self._problem())

    def _problem(self) -> Problem:
        space = {dim.name: dim for dim in self.operation.space} | {dim.name: dim for dim in self.operation.dims}
        how, elements = reduction_of(self.operation)
        dims = lambda operands: {o.name: tuple((dim.name, dim.block) for dim in o.dims) for o in operands}  # noqa: E731
        return Problem(
            {name: int(np.prod(self.sizes[name], dtype=np.int64)) for name in space},
            {name: self.sizes[name] for name in self.sizes if name not in space},
            dims(self.operation.inputs),
            dims(self.operation.outputs),
            how=how,
            elements=elements,
        )

    # ---- the comparison ----

    def compare(self, backend) -> list[bool]:
        """Runs it; of which results the oracle says something."""
        preference = BackendKind.REFERENCE if backend.name == "reference" else BackendKind.CUDA
        try:
            plan = self._plan(self.plan, preference)
        except InvalidProblem:  # attributes that the operation's `requires` refuses: those that it has by itself
            self.attributes = {}
            plan = self._plan(self.plan, preference)
        arrays = self._drawn_arrays(backend, plan, preference)
        made = self._run(backend, plan, [arrays[operand.name] for operand in self.operation.inputs])
        problem = self._problem()
        for operand in self.operation.inputs:
            problem.values[operand.name] = self._numbers(arrays[operand.name], operand.name)
        for attribute in self.operation.attributes:
            aside = attribute.type == "size" or attribute.names_axes or self.operation.hands_on(attribute)
            if not aside:
                problem.values[attribute.name] = self._as_oracles_take_it(attribute)
        problem.types = dict(self.types)
        problem.stored = {name: self._numbers(array, name) for name, array in made.items()}
        said = []
        for name, results in binding.expected(self.asked, problem).items():
            for position, (result, stored) in enumerate(zip(results, problem.stored[name], strict=True)):
                said.append(binding.says_something(result))
                if not binding.allowed(result, stored, self.words[name]):
                    self._fail(problem, name, position, stored, result)
        return said

    def _drawn_arrays(self, backend, plan, preference) -> dict[str, np.ndarray]:
        """Every input by its name, unpacked; what the forward pass gave is computed."""
        forward, own = self.forward.operation, self.operation
        given = {operand.name: operand for operand in own.inputs}
        arrays = {}
        needed = [] if own.direction is Direction.FORWARD else [o.name for o in forward.outputs if o.name in given]
        wanted = {o.name: o for o in forward.inputs if needed} | given
        for name, operand in wanted.items():
            if name not in needed:
                shape = own.shape_of(operand, self.sizes)
                space = own.space if name in given else forward.space
                arrays[name] = self._elements(operand, shape, space)
        if needed:
            made = self._run(backend, self._plan(self.forward, preference), [arrays[o.name] for o in forward.inputs])
            arrays |= {name: made[name] for name in needed}
        return arrays

    def _run(self, backend, plan, arrays) -> dict[str, np.ndarray]:
        """The outputs by name, unpacked."""
        operation = plan.operation
        given = [self._stored(each, o.name) for o, each in zip(operation.inputs, arrays, strict=True)]
        made = [backend.array(np.zeros(shape, storage)) for shape, storage in plan.made]
        plan.execute((*map(backend.array, given), *made))
        found = {}
        for operand, array in zip(operation.outputs, map(backend.numpy, made), strict=True):
            word, shape = self.words[operand.name], operation.shape_of(operand, self.sizes)
            if word in ("s4", "u4"):
                codes = unpack(array if shape else array.reshape(1), shape[-1] if shape else 1, word == "s4")
                array = codes.reshape(shape)
            found[operand.name] = array
        return found

    def _stored(self, array: np.ndarray, name: str) -> np.ndarray:
        """Elements as the array that holds them."""
        word = self.words[name]
        if word in RANGE:
            return stored_codes(array, word) if array.ndim else stored_codes(array.reshape(1), word).reshape(())
        return array.astype(WIDE.get(word) or {"bool": np.bool_}.get(word, array.dtype))

    def _numbers(self, array: np.ndarray, name: str) -> list[int]:
        """Elements as oracles take them."""
        word = self.words[name]
        if word in UINT:
            array = np.ascontiguousarray(array).view(UINT[word])
        return [int(each) for each in array.reshape(-1).tolist()]

    def _fail(self, problem, name: str, position: int, stored: int, result) -> None:
        sizes = ", ".join(f"{size}={value}" for size, value in self.sizes.items())
        types = " ".join(f"{letter}={word}" for letter, word in self.types.items())
        at = np.flatnonzero(problem.entries(name) == position)[0]
        near = {each: hex(problem.values[each][problem.entries(each)[at]]) for each in problem.inputs}
        raise AssertionError(
            f"{self.operation.function} {types} ({self.kind}; {sizes}; {self.attributes}): "
            f"{name}[{position}] is {stored:#x}, the oracle gives {result}; beside it stand {near}"
        )


def test_an_oracle_has_the_name_of_an_operation():
    """One that has not is one that no test runs."""
    used = {binding.find(plan.operation.function).function.__name__ for plan in plans(catalog())}
    assert used == set(binding._REGISTERED)


@pytest.mark.parametrize(
    "name", ["softmax", "rms_norm_backward", "dynamic_quantize_per_group", "observe_absmax_per_tensor"]
)
def test_rows_of_what_is_unusual_reach_the_oracle(backend, name):
    """All of them, in each element type, as the rows that it is called with."""
    plan = next(each for each in plans(catalog()) if each.operation.function == name)
    asked = binding.find(name)
    seen: dict[str, set[tuple]] = {element: set() for element in FORMATS}

    @functools.wraps(asked.function)
    def watched(*, input, T, **others):
        for row in input if isinstance(input[0], list) else [input]:
            seen[T].add(tuple(row))
        return asked.function(input=input, T=T, **others)

    compare(backend, plan, lambda _: dataclasses.replace(asked, function=watched))
    for element, rows in seen.items():
        assert {tuple(row) for row in unusual_rows(element).values()} <= rows


@pytest.mark.parametrize("wrong", [None, 0, 1.5, [1, 2], ANY, SystemExit])
def test_an_oracle_that_gives_anything_else_is_noticed(backend, wrong):
    plan = next(each for each in plans(catalog()) if each.operation.function == "softmax")

    def softmax(input, *, T):
        if wrong is SystemExit:
            raise SystemExit(0)
        return [wrong] * len(input)

    with pytest.raises((AssertionError, TypeError, SystemExit)):
        compare(backend, plan, lambda _: binding.Oracle(softmax, ("d",)))
