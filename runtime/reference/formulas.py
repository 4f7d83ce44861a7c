"""The CPU backend: generated NumPy formulas over any arrays, in the steps and to the bits of the kernels.

The functions of the formula language that NumPy lacks, or has with another rule, are here; a generated
reference is plain expressions over them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from types import ModuleType

import numpy as np

from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE, Dim, Operand, Operation, Types, count
from skuda.reference import elementary, error_functions, half_powers, half_precision
from skuda.reference.error_functions import erf as erf
from skuda.reference.reductions import Rows

where = np.where

_CHUNK = 1 << 16  # elements evaluated at a time, so that the steps of a formula stay in the cache
_INTEGER_LIMIT = float(1 << 53)


def _as_precise_as_types(function: Callable, module: ModuleType = half_precision) -> Callable:
    """A function of its arguments, or of these and the type T that it is to be as precise as, where that is of 16 bits:
    that is the function of this name in a module."""
    half = getattr(module, function.__name__)
    arity = half.__code__.co_argcount - 1

    @wraps(function)
    def called(*arguments):
        *arguments, T = arguments if len(arguments) > arity else (*arguments, "")
        return half(*arguments, T) if T in half_precision.STEPS else function(*arguments)

    return called


exp = _as_precise_as_types(elementary.exp)
log = _as_precise_as_types(elementary.log, half_powers)
sigmoid = _as_precise_as_types(elementary.sigmoid)
tanh = _as_precise_as_types(elementary.tanh)
ndtr = _as_precise_as_types(error_functions.ndtr)
erfc = _as_precise_as_types(error_functions.erfc)
gelu_slope = _as_precise_as_types(error_functions.gelu_slope)


def round_to_int(x):
    """Nearest integer, ties to even, saturating at +-2^53; NaN gives 0."""
    nearest = np.clip(np.rint(x), -_INTEGER_LIMIT, _INTEGER_LIMIT)
    return np.where(nearest == nearest, nearest, 0).astype(np.int64)


def to_real(i, C):
    """An integer in the compute type, rounded to nearest even once."""
    return np.asarray(i).astype(C)


def minimum(a, b):
    """The smaller; NaN if either is NaN; the second of equals."""
    return np.where((a < b) | (a != a), a, b)


def maximum(a, b):
    """The larger; NaN if either is NaN; the second of equals."""
    return np.where((a > b) | (a != a), a, b)


def minimum_number(a, b):
    """The smaller; the other one if one is NaN; the second of equals."""
    return np.where((a < b) | (b != b), a, b)


def maximum_number(a, b):
    """The larger; the other one if one is NaN; the second of equals."""
    return np.where((a > b) | (b != b), a, b)


def clamp(x, low, high):
    """min(max(x, low), high); NaN if any is NaN."""
    return minimum(maximum(x, low), high)


def weighted(x, weight):
    """x * weight; 0 where the weight is 0, also of an infinity or NaN."""
    return np.where(weight == 0, np.zeros_like(weight), x * weight)


def sign(x):
    """1, -1, or x itself where it is a zero or NaN."""
    return np.where(x > 0, np.ones_like(x), np.where(x < 0, -np.ones_like(x), x))


def remainder(a, b):
    """a - floor(a / b) * b, with the sign of the divisor, exact where `fmod` is."""
    r = np.fmod(a, b)
    return np.where(r != 0, np.where((r < 0) != (b < 0), r + b, r), np.copysign(r, b))


def ldexp(x, i):
    """x * 2^i, rounded once."""
    return np.ldexp(x, np.clip(i, -5000, 5000).astype(np.int32))


# Functions by their module, which is imported when a formula asks for one.
_FAMILIES = {
    "powers": ("cbrt", "exp2", "expm1", "hypot", "log10", "log1p", "log2", "pow", "rsqrt"),
    "hyperbolic": ("acosh", "asinh", "atanh", "cosh", "sinh"),
    "log1pexp": ("log1pexp",),
    "logit": ("logit",),
    "turns": ("cospi", "sinpi"),
    "integers": (
        "bits_and", "bits_not", "bits_or", "bits_xor", "floor_quotient", "modulo", "shifted_left", "shifted_right",
    ),
    "fused": ("fma",),
    "gamma": ("digamma", "lgamma"),
    "inverse_erf": ("erfinv",),
    "random": ("random_bits", "random_normal", "random_uniform"),
    "trigonometric": ("acos", "asin", "atan", "atan2", "cos", "sin", "tan"),
}
_MODULE_OF = {name: module for module, names in _FAMILIES.items() for name in names}
# Of these, which have forms as precise as types of 16 bits, by the module of those.
_HALVED = {
    "half_powers": ("exp2", "pow"),
    "half_hyperbolic": (
        "acosh", "asinh", "atanh", "cosh", "expm1", "log10", "log1p", "log1pexp", "log2", "logit", "sinh",
    ),
    "half_inverse_erf": ("erfinv",),
    "half_angles": ("acos", "asin", "atan", "atan2", "cos", "cospi", "sin", "sinpi", "tan"),
}
_HALF_MODULE_OF = {name: module for module, names in _HALVED.items() for name in names}

# What generated references import by one line.
FORMULA_NAMES = (
    "clamp", "erf", "erfc", "exp", "gelu_slope", "ldexp", "log", "maximum", "maximum_number", "minimum",
    "minimum_number", "ndtr", "remainder", "round_to_int", "sigmoid", "sign", "tanh", "to_real", "weighted", "where",
    *_MODULE_OF,
)  # fmt: skip


def __getattr__(name: str):
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function = getattr(import_module(f"skuda.reference.{_MODULE_OF[name]}"), name)
    if name not in _HALF_MODULE_OF:
        return function
    return _as_precise_as_types(function, import_module(f"skuda.reference.{_HALF_MODULE_OF[name]}"))


def unpack(packed: np.ndarray, shape: tuple[int, ...], word: str) -> np.ndarray:
    """The elements of a packed 4-bit array.

    Args:
        packed: uint8, the last axis half as long as the shape's, rounded up; element 2i in the low nibble.
        shape: the logical shape.
        word: of a packed type.

    Returns:
        An array of the logical shape: int64, of a float its own elements.
    """
    dtype = DTYPES[word]
    low, high = packed & 15, packed >> 4
    codes = np.stack([low, high], axis=-1).reshape(*packed.shape[:-1], -1).astype(np.int64)
    codes = codes[..., : shape[-1]] if shape else codes[0]
    if dtype.kind == "float":
        return codes.astype(np.uint8).view(dtype.element)
    return np.where(codes > 7, codes - 16, codes) if dtype.signed else codes


def pack(codes: np.ndarray) -> np.ndarray:
    """4-bit codes two to a byte, low nibble first; the nibble that pads an odd last axis is 0."""
    flat = codes if codes.ndim else codes[None]
    nibbles = (flat & 15).astype(np.uint8)
    if nibbles.shape[-1] % 2:
        nibbles = np.concatenate([nibbles, np.zeros((*nibbles.shape[:-1], 1), np.uint8)], axis=-1)
    packed = nibbles[..., 0::2] | nibbles[..., 1::2] << 4
    return packed if codes.ndim else packed[0]


def narrow(values: np.ndarray, word: str) -> np.ndarray:
    """Values as stored: rounded once, every NaN the canonical one (sign clear, all other bits set)."""
    dtype = DTYPES[word]
    if dtype.kind != "float":
        return pack(values) if dtype.packed else np.asarray(values).astype(dtype.storage)
    stored = dtype.rounded(values)
    nan = np.isnan(stored)
    if nan.any():
        stored = np.array(stored)
        stored.view(f"u{stored.itemsize}")[nan] = dtype.canonical_nan
    return pack(stored.view(np.uint8)) if dtype.packed else stored


def run(
    operation: Operation,
    formula: Callable[..., Mapping[str, np.ndarray]],
    types: Types,
    sizes: Mapping[str, int | tuple[int, ...]],
    inputs: Mapping[str, np.ndarray | int | float],
    attributes: Mapping[str, int | float],
    outputs: Mapping[str, np.ndarray],
) -> None:
    """Evaluates an operation's generated reference.

    Args:
        operation: what to evaluate.
        formula: its generated reference.
        types: element types.
        sizes: lengths of dimensions and blocks.
        inputs: arrays as they travel (packed ones as uint8), or numbers.
        attributes: values of the attributes that formulas use.
        outputs: arrays that are written; they may be inputs too.
    """
    C = DTYPES[types[COMPUTE]].storage.type
    space = tuple(length for dim in operation.space for length in _lengths(sizes[dim.name]))
    typed = {float: C, bool: np.bool_, int: int}
    values = {name: typed[type(value)](value) for name, value in attributes.items()}
    axes = _axes(operation.space, sizes)
    along, block, slabs = operation.along, operation.block, operation.analysis.slabs
    with np.errstate(all="ignore"):
        operands = []
        for operand in operation.positions:
            shape = operation.shape_of(operand, sizes)
            operands.append((operand, np.arange(count(shape), dtype=np.int64).reshape(shape)))
        for operand in operation.inputs:
            word = operation.word(operand, types)
            operands.append((operand, _widened(operand, word, operation, sizes, inputs[operand.name], C)))
        rows_along = tuple(axis for dim in along for axis in axes[dim])
        cut = [operand for operand in operation.outputs if _order(operand, axes)[-1:] == [0] and len(space) > 1]
        packed = any(DTYPES[operation.word(operand, types)].packed for operand in cut)
        whole = 0 in rows_along or packed  # the first axis is not cut then
        for rows in _chunks(space, whole):
            arguments = {o.name: _part(o, value, axes, sizes, rows, len(space), C) for o, value in operands}
            chunk = (rows.stop - rows.start, *space[1:]) if space else ()
            if operation.takes_row:
                arguments["row"] = Rows(chunk, rows_along, sizes[block] if block else None, types, C, slabs)
            results = formula(C=C, **arguments, **values)
            for operand in operation.outputs:
                word = operation.word(operand, types)
                part = _of(operand, results[operand.name], chunk, axes, sizes)
                index = ... if whole else _stored(rows, _order(operand, axes), word)
                outputs[operand.name][index] = narrow(part, word)


def _lengths(size: int | tuple[int, ...]) -> tuple[int, ...]:
    return size if isinstance(size, tuple) else (size,)


def _of(operand: Operand, values, chunk: tuple[int, ...], axes: Mapping[str, range], sizes) -> np.ndarray:
    """An output's elements out of values that broadcast over a chunk of the index space."""
    blocks = {dim.name: sizes[dim.block] if dim.block else 1 for dim in operand.dims}
    shape, index = list(chunk), [slice(None)] * len(chunk)
    for name, spanned in axes.items():
        for axis in spanned:
            if name in blocks:
                index[axis] = slice(None, None, blocks[name])
            else:  # the values are the same all along it
                shape[axis], index[axis] = 1, 0
    part, order = np.broadcast_to(values, shape)[tuple(index)], _order(operand, axes)
    return part if order == sorted(order) else part.transpose([sorted(order).index(axis) for axis in order])


def _order(operand: Operand, axes: Mapping[str, range]) -> list[int]:
    """The axis of the index space that each axis of an operand is."""
    return [axis for dim in operand.dims for axis in axes[dim.name]]


def _axes(space: tuple[Dim, ...], sizes) -> dict[str, range]:
    """The axes of the index space that each dimension takes."""
    axes, start = {}, 0
    for dim in space:
        count = len(sizes[dim.name]) if dim.many else 1
        axes[dim.name] = range(start, start + count)
        start += count
    return axes


def _stored(rows: slice, order: list[int], word: str):
    """The chunk within an output as it travels, whose axes have this order: where the one that is cut is packed, two
    elements are one byte."""
    if 0 not in order:
        return ...
    if len(order) == 1 and DTYPES[word].packed:
        rows = slice(rows.start // 2, -(-rows.stop // 2))  # chunks start at even elements
    return (slice(None),) * order.index(0) + (rows,)


def _chunks(space: tuple[int, ...], whole: bool):
    """Slices of the first axis, each about a chunk of elements; one of all where it is to stay whole."""
    if not space or whole:
        yield slice(0, space[0] if space else 0)
        return
    inner = 1
    for extent in space[1:]:
        inner *= extent
    step = max(1, _CHUNK // max(inner, 1))
    for start in range(0, space[0], step):
        yield slice(start, min(start + step, space[0]))


def _widened(operand: Operand, word: str, operation: Operation, sizes, value, C):
    """The operand in the compute type or as int64; arrays of floats stay so until their chunk's turn."""
    dtype = DTYPES[word]
    if not isinstance(value, np.ndarray):
        return C(dtype.number(value)) if dtype.kind == "float" else np.int64(value)
    if operand.scalar:
        value = value.reshape(())
    if dtype.packed:
        return unpack(value, operation.shape_of(operand, sizes), word)
    return value


def _part(operand: Operand, value, axes, sizes, rows: slice, rank: int, C):
    """The chunk of an operand, widened and shaped so that it broadcasts over the index space."""
    if not isinstance(value, np.ndarray):
        return value
    shape = [1] * rank
    source = 0
    for dim in operand.dims:
        for axis in axes[dim.name]:
            taken: slice | np.ndarray = slice(None)
            if dim.block is not None:
                span = range(rows.start, rows.stop) if axis == 0 else range(sizes[dim.name])
                taken = np.arange(span.start, span.stop) // sizes[dim.block]
            elif axis == 0:
                taken = rows
            value = value[(slice(None),) * source + (taken,)]
            shape[axis] = value.shape[source]
            source += 1
    order = _order(operand, axes)
    if order != sorted(order):
        value = value.transpose(sorted(range(source), key=order.__getitem__))
    value = value.reshape(shape)
    if value.dtype.kind in "iu":
        return value.astype(np.int64)
    return value.view(np.uint8) != 0 if value.dtype == np.bool_ else value.astype(C)
