"""What the operands of a call hold, and what the reference makes of it: the same whatever the layout and the schedule.

Values that spread (NaN, infinities, extremes) are kept to single elements of elementwise operations, and to every third
row of what reduces, so that most of what is expected is a finite number that tells right from wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from zlib import crc32

import ml_dtypes
import numpy as np
from domains import ALIKE, domain, turned
from problems import Call, calls, plan_class_of

from skuda.launch import registry
from skuda.model.dtypes import DTYPES, DType
from skuda.model.operation import Operand, Operation
from skuda.model.sku import BackendKind, Direction, KernelSku
from skuda.model.sum_order import GROUP
from skuda.plans.plan import Plan

UNTOUCHED = 0xA5  # what output memory holds before
POISON = 0xFF  # what lies between the elements of an input: NaN in every float type
USUAL = 0.3  # of what is expected, at least, on an average of a kernel's calls
USUAL_UNSIGNED = 0.2  # of codes without a sign: without a zero point half of them are 0, which is a limit
_POOL = (1 << 20) + 7  # random numbers that are drawn once
_SIZES = (1.0, 1.0, 6.0, 1.0, 0.25)  # of the values of a row, or of each element of a map
_FEW = 2  # rows
_ANCHORS = 64  # are so far apart: LogSumExp of log_sum_exp.cuh, but for f64
_RARE = 8  # of 256 elements, so many are unusual
_SOME = 16  # elements: of fewer, which others share, none is unusual
_TIES = 77  # of 256 elements, so many lie on a grid, where quotients end in one half and elements are equal
# What happens to a row: to two of three nothing.
_KINDS = ("nan", "infinite", "extreme", "zeros", "any", "constant", "cancelling")
_ROWS = tuple(kind for each in _KINDS for kind in ("", "", each))


# ---- what is expected ----


@dataclass(frozen=True)
class Problem:
    """One plan's operands as contiguous arrays of stored elements.

    Attributes:
        inputs, expected: by name.
        words: the element types of the operands.
        usual: of each float or code output, which part of it is usual: finite, not at a limit, not all equal.
        finite: float elements of the outputs that are finite.
    """

    inputs: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]
    words: dict[str, str]
    usual: dict[str, float]
    finite: int


def cases(sku: KernelSku, most: int = 3) -> list[Case]:
    """The calls that reach a kernel with what their operands hold.

    Where there are one or two rows, or operands of one element, these are usual; one more case has unusual ones. One
    more has other attributes, where formulas have any.
    """
    found = [Case(call) for call in calls(sku, most)]
    few = [case.call for case in found if case.few]
    others = [replace(case.call, turned=True) for case in found[-1:] if turned(case.call.plan_class.operation)]
    return found + [Case(call, unusual=True) for call in few[-1:]] + [Case(call) for call in others]


@dataclass(frozen=True)
class Case:
    """A call, and whether the one row is unusual where there is one."""

    call: Call
    unusual: bool = False

    @property
    def few(self) -> bool:
        """Whether there are so few rows that all may be unusual."""
        operation, sizes = self.call.plan_class.operation, dict(self.call.sizes)
        if not operation.reduces:
            return any(operand.scalar and operation.is_float(operand.element) for operand in operation.inputs)
        kept = [dim for dim in operation.space if dim.name not in operation.along and not dim.block]
        rows = np.prod([np.prod(sizes[dim.name]) for dim in kept]) if operation.analysis.over else 1
        if operation.block:
            rows *= -(-np.prod(sizes[operation.along[0]]) // sizes[operation.block])
        return rows <= _FEW

    @property
    def single(self) -> bool:
        """Whether rows have one element each, of which dynamic quantization makes one code, a limit, and norms 0; or
        whether every input has one element, which may be unusual, and of which all outputs are made."""
        operation, sizes = self.call.plan_class.operation, dict(self.call.sizes)
        counts = {operand.name: np.prod(operation.shape_of(operand, sizes)) for operand in operation.inputs}
        if all(count == 1 for count in counts.values()):
            return True
        of_rows = [count for name, count in counts.items() if name.startswith("row_value_")]
        if not operation.reduces and of_rows:
            return max(of_rows) == max(counts.values())
        along = [sizes[operation.block]] if operation.block else [np.prod(sizes[name]) for name in operation.along]
        return bool(operation.analysis.over) and np.prod(along) == 1

    def problem(self) -> Problem:
        """What the operands hold."""
        read = {operand.name for operand in self.call.plan_class.operation.inputs}
        along = [(name, np.flatnonzero(np.array(at.strides) == 0)) for name, at in self.call.layouts if name in read]
        repeated = tuple([(name, tuple(axes.tolist())) for name, axes in along if axes.size])
        fields = tuple(self.call.fields.items())
        return _problem(self.call.plan_class, fields, self.unusual, repeated)


@lru_cache(maxsize=48)  # kernels of the same types follow each other
def _problem(plan_class: type[Plan], fields: tuple, unusual: bool, repeated: tuple = ()) -> Problem:
    """`repeated`: the axes along which inputs lie so that they have one element."""
    plan = plan_class.select(plan_class.descriptor_type(**dict(fields)), preference=BackendKind.REFERENCE)
    known: dict[str, np.ndarray] = {}
    made = makers(plan)
    operations = [each.operation for each in (plan, *made) if each.operation.reduces]
    over = {(each.analysis.over, each.analysis.stages and not each.analysis.over) for each in operations}
    reducing = operations[0] if len(over) == 1 else None
    for maker in made:
        _fill(maker, _Rows(plan, reducing, bool(over)), known, unusual)
        known |= run(maker, known)
    _fill(plan, _Rows(plan, reducing, bool(over)), known, unusual)
    operation = plan.operation
    for name, axes in repeated:
        first = tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(known[name].ndim))
        known[name] = np.ascontiguousarray(np.broadcast_to(known[name][first], known[name].shape))
    inputs = {operand.name: known[operand.name] for operand in operation.inputs}
    expected = run(plan, inputs)
    words = dict(zip([operand.name for operand in operation.operands], plan.words, strict=True))
    alike = bool(operation.positions) and (operation.shaped is not None or of_integers(plan))  # most of it is 0
    alike = alike or (operation.row in ALIKE and (operation.direction is Direction.BACKWARD or of_integers(plan)))
    floats = {name: array for name, array in expected.items() if DTYPES[words[name]].kind == "float"}
    return Problem(
        inputs,
        expected,
        words,
        {name: usual(array, words[name], name.startswith("row_value_") or alike, of_integers(plan))
         for name, array in expected.items() if words[name] not in ("i64", "bool")},
        sum(int(_finite(array, words[name]).sum()) for name, array in floats.items()),
    )


def run(plan: Plan, known: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the reference makes of contiguous inputs."""
    operation = plan.operation
    outputs = {
        operand.name: np.full(shape, 0, storage)
        for operand, (shape, storage) in zip(operation.outputs, plan.made, strict=True)
    }
    inputs = {operand.name: known[operand.name] for operand in operation.inputs}
    plan.run(plan.args_type(**inputs, **outputs))
    return outputs


def makers(plan: Plan) -> list[Plan]:
    """Plans that make inputs of one: its forward pass, the stages before it."""
    own, catalog = plan.operation, registry._CATALOGS[plan.package]
    wanted = {operand.name for operand in own.inputs}
    found = []
    for other in _same_source(plan.package, own.source):
        before = other.direction is own.direction and 0 < other.analysis.stage < own.analysis.stage
        forward = own.direction is Direction.BACKWARD is not other.direction and other.is_whole
        named = {operand.name for operand in other.outputs}
        sizes = {attribute.name for attribute in other.attributes if attribute.type == "size"}
        sizes |= {dim.name for dim in other.dims}
        if (before or (forward and named & wanted)) and sizes <= plan.sizes.keys():
            fields = {field: plan.types[letter] for letter, field in other.element_fields.items()
                      if letter in plan.types}  # fmt: skip
            of = plan_class_of(catalog.package, other.function)
            descriptor = of.descriptor_type(**{name: plan.sizes[name] for name in sizes}, **fields)
            found.append(of.select(descriptor, preference=BackendKind.REFERENCE))
    return found


@cache
def _same_source(package: str, source: str) -> list[Operation]:
    found = [each for each in registry._CATALOGS[package].operations if each.source == source]
    return sorted(found, key=lambda each: (each.direction is Direction.BACKWARD, each.analysis.stage))


def _bits(array: np.ndarray, dtype: DType) -> np.ndarray:
    """The bits of each element; of packed ones first those in the low halves."""
    if dtype.packed:
        return np.concatenate([array.reshape(-1) & 15, array.reshape(-1) >> 4])
    return array.view(f"u{array.itemsize}")


def _finite(array: np.ndarray, word: str) -> np.ndarray:
    dtype = DTYPES[word]
    bits = _bits(array, dtype)
    if dtype.kind != "float":
        return np.ones(bits.shape, bool)
    largest = np.array(dtype.highest).astype(dtype.element).view(bits.dtype)
    return bits & bits.dtype.type(dtype.canonical_nan) <= largest


def of_integers(plan: Plan) -> bool:
    """Whether its integers are numbers as they stand, and no codes of others."""
    return all(DTYPES[word].kind != "float" and not DTYPES[word].packed for word in plan.words)


def usual(array: np.ndarray, word: str, alike: bool = False, numbers: bool = False) -> float:
    """Which part of the elements is finite and, of codes, not at a limit; 0 where all of those are equal, unless they
    may be `alike`, as what a stage counts for another. Of integers that are `numbers`, which part is not the one that
    most are.
    """
    dtype = DTYPES[word]
    if numbers and dtype.kind == "int" and array.size > 4:
        return 1.0 if alike else float(1 - np.unique(array, return_counts=True)[1].max() / array.size)
    if array.size <= 4:  # few may be alike, or at a limit, by chance
        return float(_finite(array, word).mean()) if array.size else 1.0
    bits, wanted = _bits(array, dtype), _finite(array, word)
    if dtype.code:
        limits = np.array([dtype.lowest, dtype.highest]).astype(dtype.element)
        wanted &= ~np.isin(bits, limits.view(bits.dtype) & bits.dtype.type((1 << dtype.bits) - 1))
    values = (bits if dtype.packed else array)[wanted]
    if not len(values) or (not alike and (values == values[0]).all()):
        return 0.0
    return float(wanted.mean())


def lacking(cases: list[Case]) -> list[str]:
    """What is not usual enough of the cases of one kernel to tell a right result from a wrong one."""
    found = [case.problem().usual for case in cases if not (case.unusual or case.single or case.call.turned)]
    parts = {name: float(np.mean([each[name] for each in found])) for each in found[:1] for name in each}
    few = {name: part for name, part in parts.items() if part < _wanted(cases[0].problem().words[name])}
    return [f"{part:.0%} of {name} is usual, too few to tell by" for name, part in few.items()]


def _wanted(word: str) -> float:
    """Which part of elements of a type is to be usual."""
    return USUAL_UNSIGNED if DTYPES[word].code and DTYPES[word].lowest == 0 else USUAL


def cancelling(array: np.ndarray, along: tuple[int, ...]) -> np.ndarray:
    """Values of many magnitudes whose sum along some axes is 0: what is left of it is what rounding in one order
    leaves, which a half type shows too. The second half of an axis is the negative of the first, in another order.
    """
    axis = max(along, key=lambda each: array.shape[each], default=None)
    if axis is None or array.shape[axis] < 2:
        return array
    found = np.moveaxis(array, axis, -1).astype(np.float64)
    half = found.shape[-1] // 2
    with np.errstate(all="ignore"):  # of rows that are something else
        first = (found[..., :half] * 2.0 ** (7 * np.arange(half) % 9)).astype(array.dtype)
    whole = np.zeros(found.shape, array.dtype)
    whole[..., :half], whole[..., half : 2 * half] = first, -np.roll(first, 3, axis=-1)
    return np.moveaxis(whole, -1, axis)


# ---- operands in memory ----


def memory_of(at, array: np.ndarray | None, storage: np.dtype, around: int) -> np.ndarray:
    """All bytes of an operand's memory, `around` where no element is; without an array everywhere."""
    size = 1 if at is None else max(at.size, 1)
    memory = np.full(size * storage.itemsize, around, np.uint8)
    if array is not None:
        view(memory, storage, at)[...] = array
    return memory


def differing(found: np.ndarray, expected: np.ndarray, name: str) -> str:
    """Which bytes of an operand's memory are not as expected; empty where all are."""
    wrong = np.flatnonzero(found != expected)
    first = wrong[:5]
    return (
        f"{len(wrong)} of {len(found)} bytes of {name} differ, first at {first.tolist()}: {found[first].tolist()}, "
        f"expected {expected[first].tolist()}"
        if len(wrong)
        else ""
    )


def view(memory: np.ndarray, storage: np.dtype, at) -> np.ndarray:
    """The operand within the bytes of its memory."""
    if at is None:
        return memory.view(storage).reshape(())
    strides = tuple(step * storage.itemsize for step in at.strides)
    return np.ndarray(at.shape, storage, memory.data, at.start * storage.itemsize, strides)


# ---- inputs ----


def special_floats(word: str) -> dict[str, np.ndarray]:
    """Unusual values of a float type: NaN, infinities, and the ends of its range."""
    info = ml_dtypes.finfo(DTYPES[word].storage)
    ends = [float(info.max), -float(info.max), float(info.smallest_subnormal), float(info.tiny), 0.0, -0.0]
    found = {"nan": [np.nan], "infinite": [np.inf, -np.inf], "extreme": ends, "zeros": [0.0, -0.0]}
    found["any"] = [each for values in found.values() for each in values]
    return {what: np.array(values).astype(DTYPES[word].storage) for what, values in found.items()}


@dataclass(frozen=True)
class _Rows:
    """What the rows of a plan's operands are.

    Attributes:
        plan: whose inputs are made.
        operation: it, or what makes inputs of it: what says which elements are a row; None where that is not one thing.
        some: whether there are rows.
    """

    plan: Plan
    operation: Operation | None
    some: bool

    @property
    def full(self) -> list[str]:
        """The inputs that have elements of their own in each row."""
        space = self.plan.operation.space
        return [operand.name for operand in self.plan.operation.inputs if operand.dims == space]

    def numbers(self, operand: Operand, shape: tuple[int, ...]) -> np.ndarray | None:
        """The number of the row as an array that broadcasts to an operand's shape: 0 where there is one row, or several
        kinds of them. None where elements belong to no row or to all.
        """
        numbers = np.zeros((1,) * len(shape), np.int64)
        if not self.some:
            return None
        if self.operation is None or not self.operation.analysis.over:
            return numbers
        sizes, along = self.plan.sizes, self.operation.along
        axis, axes = 0, {}
        for dim in operand.dims:
            count = len(sizes[dim.name]) if dim.many else 1
            axes[dim.name] = (axis, count, dim.block)
            axis += count
        weight = 1
        for dim in reversed(self.operation.space):
            cut = dim.name in along and self.operation.block
            if dim.name in along and not cut:
                continue
            if dim.name not in axes:
                return None
            first, rank, blocks = axes[dim.name]
            for axis in reversed(range(first, first + rank)):
                positions = np.arange(shape[axis], dtype=np.int64)
                if cut and not blocks:
                    positions //= sizes[self.operation.block]
                numbers = numbers + weight * positions.reshape([-1 if axis == i else 1 for i in range(len(shape))])
                weight *= int(positions[-1]) + 1 if len(positions) else 1
        return numbers


def _fill(maker: Plan, rows: _Rows, known: dict[str, np.ndarray], unusual: bool) -> None:
    """Adds the inputs of a plan that are not known yet."""
    for operand, word, stored in zip(maker.operation.operands, maker.words, maker.stored, strict=True):
        if operand in maker.operation.inputs and operand.name not in known:
            known[operand.name] = _Filling(rows, operand, word, stored, unusual).array()


@cache
def _pools() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(12)
    return rng.standard_normal(_POOL), rng.integers(0, 256, _POOL, np.uint8)


def _taken(pool: np.ndarray, start: int, count: int) -> np.ndarray:
    start %= _POOL
    if start + count <= _POOL:
        return pool[start : start + count]
    return np.concatenate([pool[start:], *[pool] * (count // _POOL + 1)])[:count]


def _mixed(numbers: np.ndarray | int, seed: int) -> np.ndarray:
    """Numbers that look random, the same for the same row."""
    with np.errstate(over="ignore"):
        mixed = (np.asarray(numbers).astype(np.uint64) + np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        return (mixed * np.uint64(0xBF58476D1CE4E5B9)) >> np.uint64(33)


class _Filling:
    """Values for one operand of a plan, which may be an operand of what makes that plan's inputs."""

    def __init__(self, rows: _Rows, operand: Operand, word: str, stored: tuple[int, ...], unusual: bool):
        self.plan = plan = rows.plan
        self.operand, self.dtype, self.shape, self.unusual = operand, DTYPES[word], stored, unusual
        self.rows, self.full, self.numbers = rows.some, rows.full, rows.numbers(operand, stored)
        self._along = () if self.numbers is None else tuple(np.flatnonzero(np.array(self.numbers.shape) == 1))
        self.count = int(np.prod(stored, dtype=np.int64))
        what = repr((plan.operation.function, sorted(plan.sizes.items()), plan.words)).encode()
        self.seed, self.start = crc32(what), crc32(operand.name.encode(), crc32(what))

    def array(self) -> np.ndarray:
        if self.dtype.kind == "bool":
            found = np.where(self._bytes(0) < 128, self._bytes(1) | 1, np.uint8(0))  # any byte but 0 is true
            return found.view(np.bool_).reshape(self.shape)
        if self.dtype.kind == "int" or self.dtype.narrow_float:
            found = self._zero_points() if self.operand.name == "zero_point" else self._codes()
            return found.reshape(self.shape)
        values = self._reals().reshape(self.shape)
        with np.errstate(over="ignore"):
            values = values.astype(self.dtype.storage)
        return self._with_unusual(values)

    def _normal(self) -> np.ndarray:
        return _taken(_pools()[0], self.start, self.count)

    def _bytes(self, what: int) -> np.ndarray:
        return _taken(_pools()[1], self.start + 7919 * what, self.count)

    def _range(self) -> tuple[float, float]:
        """Of the codes; e5m2's is cut, so that scales do not get too small for half types."""
        codes = [DTYPES[word] for word in self.plan.words if DTYPES[word].code and word not in ("i32", "i64", "bool")]
        limits = self.plan.attributes
        low = limits.get("q_min", codes[0].lowest if codes else -128)
        high = limits.get("q_max", codes[0].highest if codes else 127)
        return max(float(low), -448.0), min(float(high), 448.0)

    def _step(self) -> float:
        """What a scale is about, so that most quotients are codes: a power of two."""
        low, high = self._range()
        if "q_max" not in self.plan.attributes and not any(DTYPES[word].code for word in self.plan.words):
            return 0.5
        return 2.0 ** round(np.log2((6 if high - low > 15 else 12) / max(high - low, 1)))

    def _labels(self, length: int) -> np.ndarray:
        """Positions along a row; a few are beyond it."""
        known = sum(self._bytes(byte).astype(np.int64) << 8 * byte for byte in range(3)) % length
        limits = np.iinfo(self.dtype.storage)
        hostile = np.array([-100, -1, length, limits.min, limits.max])[self._bytes(3) % 5]
        some = self.count > _SOME and all(output.dims for output in self.plan.operation.outputs)  # else all are one NaN
        which = self._bytes(4) < _RARE if some else np.full(self.count, self.unusual)
        return np.where(which, hostile, known).astype(self.dtype.storage)

    def _codes(self) -> np.ndarray:
        if self.dtype.bits > 8 and (length := self.plan.operation.classes(self.operand, self.plan.sizes)):
            return self._labels(length)
        raw = _taken(_pools()[1], self.start, self.count * self.dtype.storage.itemsize)
        found = raw.copy().view(self.dtype.storage)
        if of_integers(self.plan):
            return self._numbers(found)
        if self.dtype.bits > 8 and self.dtype.kind == "int":  # of every magnitude: products with scales stay in range
            found >>= self._magnitudes().astype(found.dtype)
        if self.operand.name == "exponent":  # of two: results stay in range, but for some
            found = np.where(self._bytes(4) < 200, found % 12, found)
        return found

    def _magnitudes(self) -> np.ndarray:
        """By how many bits random integers are shifted."""
        if self.plan.operation.category != "cast":
            return self._bytes(3) % 28
        return self._bytes(3) % 28 + 33 if self.dtype.bits == 64 else self._bytes(3) % (self.dtype.bits - 4)

    def _numbers(self, found: np.ndarray) -> np.ndarray:
        """Integers of every magnitude. Some inputs have many zeros, whose signs differ; others are counts of bits in
        every second place; and rows have extremes of their own."""
        bits, inputs = self.dtype.bits, self.plan.operation.inputs
        if bits > 8:
            found >>= self._magnitudes().astype(found.dtype)
        elif self.rows and self.numbers is not None:
            of_row = _mixed(self.numbers, self.seed).astype(np.int64)
            least = 0 if self.dtype.signed else of_row // 80 % 16
            found = (found.reshape(self.shape) * (40 + of_row % 80) // 128 + least).astype(found.dtype).ravel()
        if "prod" in self.plan.operation.name:
            found |= found.dtype.type(1)  # or all products would soon be 0
        if len(inputs) == 1 and not self.rows and not self.plan.operation.positions:  # which make zeros
            found[self._bytes(4) < (8 if self.plan.operation.category == "cast" else 128)] = 0
        elif self.operand is not inputs[0]:
            found = np.where(self._bytes(4) < 160, found & (bits - 1), found).astype(found.dtype)
        return found

    def _zero_points(self) -> np.ndarray:
        low, high = self._range()
        near = low + (high - low) * (0.25 + self._bytes(1) / 512)
        array = np.rint(near).astype(np.int64)
        which = self._bytes(2)
        if self.count == 1:
            which = np.where(self.unusual, which // 12, 255)
        array = np.where(which < 24, self._bytes(3).astype(np.int64) * 2 - 140, array)
        ends = np.array([-(2**31), 2**31 - 1, 2**24 + 3, -(2**25) - 5])
        return np.where(which < 10, ends[self._bytes(3) % 4], array).astype(self.dtype.storage)

    def _reals(self) -> np.ndarray:
        own, name = self.plan.operation, self.operand.name
        ends = domain(own.row, name)
        if ends and own.row != "cross_entropy_of_probabilities":  # whose sums over long rows leave f16
            return ends[0] + (ends[1] - ends[0]) * (self._bytes(2) / 255)
        low, high = self._range()
        on_grid = self._bytes(1) < _TIES
        if name == "zero_point":
            around = np.where(on_grid, np.rint(self._normal() * 8) / 2, self._normal() * (high - low) / 8)
            return around + (high + low) / 2
        if name == "scale":
            plain = self._step() * 2 ** (self._normal().clip(-2, 2) / 2)
            if self.count == 1:
                return self._step() * (0.75 + self._bytes(2) / 400)
            return np.where(on_grid, self._step() * 2.0 ** (self._bytes(2) % 3 - 1.0), plain)
        if name == "weight" or self.count == 1:
            return np.where(on_grid & (self.count > 1), 1.0, 0.5 + 1.5 * self._bytes(2) / 257)
        if "prod" in own.name:  # products of many stay in range
            near = 1 + 0.005 * self._normal()
            return np.where(on_grid, 1.0, near) * np.where(self._bytes(2) < 128, -1, 1)
        values = self._values()
        if own.row == "cross_entropy_of_probabilities" and name == "target" and self.shape:  # or sums would leave f16
            values = values / max(1, self.shape[-1] // 8192)
        if self._above_zero():
            values = np.abs(values)
        grid = self._step() / 2
        return np.where(on_grid, np.rint(values / grid) * grid, values)

    def _above_zero(self) -> bool:
        """Whether codes begin at 0 and no zero point moves them: what is below would all be cut to 0."""
        letters = {letter for letter, word in self.plan.types.items() if DTYPES[word].code and not DTYPES[word].signed}
        names = {operand.name for operand in self.plan.operation.operands}
        return bool(letters) and "zero_point" not in names and not self.operand.name.startswith("d_")

    def _values(self) -> np.ndarray:
        """Of a normal distribution whose ends are cut, so that some elements are equal."""
        numbers = np.arange(self.count) if self.numbers is None else self.numbers
        mixed = _mixed(numbers, self.seed + 1)
        sizes = np.array(_SIZES)[mixed % len(_SIZES)]
        low, high = (1.25 + (mixed >> np.uint64(shift)) % 64 / 64 for shift in (8, 16))
        values = self._normal() if self.numbers is None else self._normal().reshape(self.shape)
        far = self._anchored() if self._is_anchored() else 0
        return (np.clip(values, -low, high) * sizes + far * ((mixed >> np.uint64(24)) % 3 == 0)).reshape(-1)

    def _is_anchored(self) -> bool:
        """Whether sums of exponentials of elements have anchors: some of those of some rows have another one."""
        own = self.plan.operation
        return self.rows and own.row in ("logsumexp", "cross_entropy", "logcumsumexp") and self.operand.name == "input"

    def _anchored(self) -> np.ndarray:
        """What moves every fourth group of neighbours of every second warp beyond the place where two anchors meet, and
        others close to it."""
        axis = max(self._along, key=lambda each: self.shape[each], default=None)
        groups = np.indices(self.shape, sparse=True)[axis] // GROUP if axis is not None else 0
        return np.where(np.equal(groups % 4 + groups // 32 % 2, 0), _ANCHORS / 2 + 4, _ANCHORS / 2 - 4)

    def _with_unusual(self, array: np.ndarray) -> np.ndarray:
        special = special_floats(self.dtype.word)
        bits, which = self._bytes(4).reshape(self.shape), self._bytes(5).reshape(self.shape)
        numbers = self.numbers
        if not self.rows:
            rare = bits < (_RARE if self.count > _SOME else 128 if self.unusual and self.count == 1 else 0)
            return np.where(rare, special["any"][which % len(special["any"])], array)
        if numbers is None or not self.count:
            return array
        if numbers.max() >= _FEW:
            kinds = (numbers + self.seed) % len(_ROWS)
        else:
            kinds = (3 * (numbers + self.seed) + 2) % len(_ROWS) if self.unusual else np.zeros_like(numbers)
        # Of several operands one is unusual, so that its NaN does not hide another's.
        mine = self.full.index(self.operand.name) if self.operand.name in self.full else 0
        kinds = np.where((_mixed(numbers, self.seed) + mine) % max(len(self.full), 1) == 0, kinds, 0)
        for kind in sorted(set(kinds.reshape(-1).tolist())):
            if what := _ROWS[kind]:
                here = np.broadcast_to(kinds == kind, self.shape)
                array = self._unusual(what, here, array, special, bits, which)
        return array.astype(self.dtype.storage, copy=False)

    def _unusual(self, what: str, here: np.ndarray, array: np.ndarray, special, bits, which) -> np.ndarray:
        """An array with unusual values `here`, in some rows."""
        if what == "constant":
            return np.where(here, array.reshape(-1)[0], array)
        if what == "cancelling":
            return np.where(here, cancelling(array, self._along), array)
        if what == "infinite":  # or the whole row is -inf, as masks are
            whole = here & (_mixed(self.numbers, self.seed + 2) % 2 == 0)
            array = np.where(whole, special[what][1], array)
        rare = here & (bits >= _RARE if what == "zeros" else bits < _RARE)
        if not rare.any():
            rare = here & (np.cumsum(here.reshape(-1)) == 1).reshape(self.shape)
        return np.where(rare, special[what][which % len(special[what])], array)
