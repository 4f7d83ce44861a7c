"""A call of any operation, drawn from its declaration, and the same call in ONNX Runtime."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
from domains import bounds

import skuda
from skuda.codegen.intrinsics import HALF_BOUNDS
from skuda.frameworks.programs import plans, program_of
from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE
from skuda.model.sku import Direction
from skuda.onnx import model
from skuda.plans.plan import Plan

BOUND = 2.0**-17  # of the largest element of an output, where the compute type is f32
ROUNDS_OTHERWISE = "DivMulFusion"  # makes x / y of x * (1 / y)
KINDS = ("usual", "any bits", "zeros")
# What ONNX has in f64, and ONNX Runtime has no kernel for on the CPU; logit is said by Atanh.
NOT_IN_F64 = {"asinh", "acosh", "atanh", "sinh", "cosh", "asin", "acos", "atan", "tan", "logit"}
NoKernel = onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented
MANY, SINGLE, BLOCK = ((2,), (3, 2), ()), (9, 5, 8), (4, 3, 20)


@dataclass
class Drawn:
    """A call.

    Attributes:
        function: the operation's function.
        inputs: as arrays travel.
        options: attributes and options.
        types: element types by letter.
    """

    function: str
    inputs: list
    options: dict
    types: dict = field(default_factory=dict)

    def ours(self) -> tuple:
        """What skuda computes, on the CPU."""
        operation = plans()[self.function].operation
        named = dict(zip([operand.name for operand in operation.inputs], self.inputs)) if operation.creates else {}
        made = getattr(skuda, self.function)(*([] if named else self.inputs), **named, **self.options)
        return made if isinstance(made, tuple) else (made,)

    def theirs(self) -> tuple:
        """What ONNX Runtime computes of our model."""
        made = model(self.function, *self.inputs, **self.options)
        onnx.checker.check_model(made)
        names = [operand.name for operand in plans()[self.function].operation.inputs]
        named = dict(zip(names, self.inputs, strict=True))
        return run(made, [named.get(info.name) for info in made.graph.input])


def has_kernels(plan: type[Plan], types: Mapping[str, str]) -> bool:
    """Whether ONNX Runtime runs all that an operation of some types calls."""
    formulas = program_of(plan, None).written_out.values()
    return types[COMPUTE] != "f64" or not any(node.intrinsics() & NOT_IN_F64 for node in formulas)


def run(made, inputs) -> tuple:
    """The outputs of a model, with the types of NumPy that skuda uses."""
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"], disabled_optimizers=[ROUNDS_OTHERWISE]
    )
    given = {}
    for info, value in zip(made.graph.input, (each for each in inputs if each is not None), strict=True):
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        kind = info.type.tensor_type.elem_type
        given[info.name] = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(_plain(array), kind)
    names = [each.name for each in made.graph.output]
    values = session.run_with_ort_values(names, given)
    kinds = [onnx.helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type) for each in made.graph.output]
    return tuple(_array(value, kind) for value, kind in zip(values, kinds, strict=True))


def _plain(array: np.ndarray) -> np.ndarray:
    """An array whose elements ONNX Runtime's Python knows, of the same bits."""
    return array if array.dtype.isbuiltin == 1 else array.view({1: np.uint8, 2: np.uint16}[array.itemsize])


def _array(value, dtype: np.dtype) -> np.ndarray:
    if dtype.isbuiltin == 1:
        return value.numpy()
    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    held = (ctypes.c_char * count).from_address(value.data_ptr()) if count else b""
    return np.frombuffer(bytes(held), dtype).reshape(shape)


def draw(plan: type[Plan], types: dict, seed: int, kind: str = KINDS[0]) -> Drawn:
    """A call of an operation.

    Args:
        plan: its plan class.
        types: element types by letter.
        seed: of sizes and values.
        kind: of values, one of KINDS.
    """
    operation, random = plan.operation, np.random.default_rng(seed)
    forward = next(p for p in plans().values() if p.package == plan.package and p.operation.name == operation.name
                   and p.operation.direction is Direction.FORWARD)  # fmt: skip
    sizes = {}
    dims = {dim.name: dim for dim in (*forward.operation.dims, *operation.dims)}
    for position, dim in enumerate(dims.values()):
        choice = MANY if dim.many else SINGLE
        sizes[dim.name] = choice[(seed + position) % len(choice)]
    if operation.chooses_axes and not sizes[operation.axis.axis_of]:
        sizes[operation.axis.axis_of] = (4,)
    sizes |= {a.name: BLOCK[seed % len(BLOCK)] for a in operation.attributes if a.type == "size"}

    known: dict[str, np.ndarray] = {}
    if operation.direction is Direction.BACKWARD:
        fits = (each for each in forward.operation.combinations if each.items() >= types.items())
        before = _call(forward, next(fits), sizes, random, kind, {}, seed)
        known = dict(zip((o.name for o in forward.operation.inputs), before.inputs, strict=True))
        known |= dict(zip((o.name for o in forward.operation.outputs), before.ours(), strict=True))
    return _call(plan, types, sizes, random, kind, known, seed)


def _call(plan, types, sizes, random, kind, known, seed) -> Drawn:
    operation = plan.operation
    options = {a.name: sizes[a.name] for a in operation.attributes if a.type == "size"}
    options |= bounds(operation) if seed % 2 else {}
    rank = sum(len(sizes[d.name]) if d.many else 1 for d in operation.space)
    order = list(range(rank))
    if operation.chooses_axes:
        named = len(sizes[operation.axis.axis_of])
        first = min(seed % 2, rank - named)  # the axes that are named lie last, or one before
        axes = list(range(rank - named - first, rank - first))
        order = [axis for axis in range(rank) if axis not in axes] + axes
        options[operation.axis.name] = tuple(axes)
    elif operation.axis is not None:
        before = operation.space[: [d.name for d in operation.space].index(operation.axis.axis_of)]
        options[operation.axis.name] = sum(len(sizes[d.name]) if d.many else 1 for d in before)
    for letter, keyword in operation.asked.items():
        options[keyword] = types[letter]
    inputs = []
    for operand in operation.inputs:
        word = operation.word(operand, types)
        shape = operation.shape_of(operand, sizes)
        if operand.name in known:
            array = known[operand.name]
        else:
            array = _elements(operand, word, shape, operand.dims == operation.space, random, kind)
            if operand.dims == operation.space:
                array = np.transpose(array, np.argsort(order))
            array = _packed(array, word)
        inputs.append(array)
        if DTYPES[word].packed:
            options["input_dtype"] = word
            options["shape"] = tuple(np.array(shape)[np.argsort(order)].tolist()) if shape else ()
        elif operation.told == operand.element and DTYPES[word].narrow_float:
            options["input_dtype"] = word
    if operation.shaped is not None:
        options["shape"] = tuple(np.array(operation.shape_of(operation.shaped, sizes))[np.argsort(order)].tolist())
    return Drawn(operation.function, inputs, options, types)


def _elements(operand, word, shape, full, random, kind) -> np.ndarray:
    dtype = DTYPES[word]
    if dtype.kind != "float":
        low, high = (dtype.lowest, dtype.highest) if dtype.storage.itemsize == 1 else (-20, 20)
        if word == "i32" and kind == "any bits":
            low, high = -(2**31), 2**31 - 1
        return random.integers(low, int(high) + 1, shape).astype(np.int64 if dtype.packed else dtype.storage)
    bits = np.dtype(f"u{dtype.storage.itemsize}")
    if kind == "zeros" and full:
        return np.where(random.random(shape) < 0.5, 0.0, -0.0).astype(dtype.storage)
    if kind == "any bits":
        drawn = random.integers(0, 2 ** (8 * bits.itemsize) - 1, shape, dtype=np.uint64, endpoint=True).astype(bits)
        values = drawn.view(dtype.storage) if shape else np.array(drawn).view(dtype.storage).reshape(())
        usual = random.normal(0, 3, shape).astype(dtype.storage)
        return np.where(random.random(shape) < 0.5, values, usual).astype(dtype.storage)
    values = random.normal(0, 3, shape) if full else random.uniform(0.05, 2, shape)
    return np.asarray(values).astype(dtype.storage)


def _packed(array: np.ndarray, word: str) -> np.ndarray:
    """Codes of 4 bits two to a byte, from their numbers."""
    if not DTYPES[word].packed:
        return array
    rows = array if array.ndim else array.reshape(1)
    padded = np.concatenate([rows, np.zeros((*rows.shape[:-1], rows.shape[-1] % 2), rows.dtype)], axis=-1) & 15
    joined = (padded[..., ::2] | padded[..., 1::2] << 4).astype(np.uint8)
    return joined if array.ndim else joined.reshape(())


def same(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Where elements are the same, zeros by their signs; a NaN is one whatever its bits."""
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    x, y = ours.astype(np.float64), theirs.astype(np.float64)
    return ((x == y) & (np.signbit(x) == np.signbit(y))) | (np.isnan(x) & np.isnan(y))


def part_of(plan: type[Plan], types: Mapping[str, str]) -> float:
    """How far off an operation is whose functions are as precise as a half type, which ONNX Runtime's are not."""
    letter = plan.operation.analysis.precise_as
    power = HALF_BOUNDS.get(types[letter]) if letter else None
    return 0 if power is None else 2.0 ** (power + 1)


def near(ours: np.ndarray, theirs: np.ndarray, wide: bool, part: float = 0) -> np.ndarray:
    """Where elements are as near as functions of ONNX Runtime and sums in another order come.

    Args:
        wide: whether the compute type is f64.
        part: how far off each of ours may be, relative to it.
    """
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    if ours.dtype.kind in "iub":  # codes beside a tie
        unlike = ours.astype(np.int64) - theirs.astype(np.int64)
        return np.abs(unlike) <= 1
    x, y = ours.astype(np.float64), theirs.astype(np.float64)
    step = {"float64": 0.0, "float32": 0.0}.get(ours.dtype.name, 2.0**-7 if ours.dtype.name == "bfloat16" else 2.0**-10)
    step, largest = max(step, part), np.abs(x[np.isfinite(x)]).max(initial=0)
    with np.errstate(invalid="ignore"):  # of infinities, which are the same or far off
        off = np.abs(x - y)
    return (off <= (2.0**-45 if wide else BOUND) * largest + step * np.abs(x)) | (x == y) | (np.isnan(x) & np.isnan(y))
