"""Which plan serves a call: its element types, the sizes of its dimensions and its axes, from views of its arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from skuda.arrays.views import CPU, View
from skuda.errors import ElementMismatch, InvalidProblem, NotAnArray, SkudaError, Unsupported, shown
from skuda.model.descriptor import block_length, checked_word, is_integer
from skuda.model.dtypes import DTYPES, WORD_OF_STORAGE
from skuda.model.operation import COMPUTE, Operation, count, packed_shape
from skuda.model.records import Record, told_apart
from skuda.model.sku import BackendKind
from skuda.plans.plan import Plan

if TYPE_CHECKING:
    from skuda.model.operation import Operand
    from skuda.plans.axis_views import AxisViewPlan, ChosenAxes

_PLANS: dict[tuple, Plan] = {}
OF_PLANS: list[dict] = [_PLANS]  # the caches that hold plans
MOST = 4096  # entries of a cache of calls
LAUNCH = 3e-5  # seconds that a kernel of the CPU takes where there is little to do
PATIENCE = 1.0  # seconds, about as many as a compiler takes
_WAITED: dict[tuple, float] = {}  # by plan class and element types: seconds that NumPy took of calls beyond LAUNCH


def plan_for(
    plan_class: type[Plan], values: Sequence[View | int | float], attributes, dtypes, input_dtype, shape, keepdims,
    device: int | None = None,
) -> Plan | AxisViewPlan:
    """The plan of a call, found in the cache or selected.

    Args:
        plan_class, attributes, input_dtype, shape, keepdims: as of `call`.
        values: the inputs as views and numbers.
        dtypes: the element types that the call names, in the order of `Operation.asked`.
        device: where the output is, of an operation that creates: no array shows it.
    """
    shape = checked_shape(plan_class, shape)
    keepdims = checked_flag(plan_class, keepdims)
    dtypes, input_dtype = checked_words(plan_class, dtypes, input_dtype)
    attributes = tuple(map(plain, attributes))
    first = next((value for value in values if isinstance(value, View)), None)
    if first is None and device is None:
        raise NotAnArray(f"{plan_class.__name__}: expected an array among the inputs, got numbers only")
    device = first.device if device is None else device
    key = (
        plan_class,
        tuple((v.storage, v.shape) if isinstance(v, View) else type(v) for v in values),
        tuple(map(_in_key, attributes)),
        dtypes,
        input_dtype,
        shape,
        keepdims,
        device == CPU,
    )
    try:
        plan = _PLANS.get(key)
    except Exception:  # an attribute that has no hash: no number, so it is refused by its name
        plan = None
    if plan is None:
        plan = _select(plan_class, values, device, attributes, dtypes, input_dtype, shape, keepdims)
        if len(_PLANS) >= MOST:
            _PLANS.clear()
        _PLANS[key] = plan
    return plan


def forget() -> None:
    """Drops the plans that are kept, and what serves calls by them: the next calls select theirs anew."""
    for cache in OF_PLANS:
        cache.clear()


def _in_key(value) -> tuple:
    """An attribute as a part of a key: of what is equal, numbers of several types and signed zeros differ."""
    return type(value), tuple(map(_in_key, value)) if isinstance(value, tuple) else told_apart(value)


def plain(value):
    """An attribute with Python's own numbers in place of NumPy's, and a tuple in place of a list."""
    if isinstance(value, (tuple, list)):
        return tuple([int(each) if isinstance(each, np.integer) else each for each in value])
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.bool_):
        return bool(value)
    return float(value) if isinstance(value, np.floating) else value


def _select(
    plan_class, values, device: int, attributes, dtypes, input_dtype, shape, keepdims
) -> Plan | AxisViewPlan:
    operation = plan_class.operation
    found = resolve(plan_class, values, attributes, dtypes, input_dtype, shape)
    descriptor = plan_class.descriptor_type(
        **{dim.name: found.sizes[dim.name] for dim in operation.dims},
        **found.attributes,
        **{field: found.types[letter] for letter, field in operation.element_fields.items()},
    )
    backend = plan_class.on_cpu(descriptor) if device == CPU else BackendKind.CUDA
    kind = plan_class, *found.types.values()
    if backend is BackendKind.REFERENCE and _is_worth_a_kernel(kind):
        backend = BackendKind.CPU
    plan = plan_class.select(descriptor, preference=backend)
    if backend is BackendKind.REFERENCE:
        plan.waits = partial(_wait, kind)
    if found.axes is None:
        return plan
    from skuda.plans.axis_views import with_axis_views

    return with_axis_views(plan, found.axes, keepdims)


def _wait(kind: tuple, seconds: float) -> None:
    """Counts what NumPy took of a call. Once it has taken as long as a compiler would, a kernel serves such calls."""
    before = _WAITED.get(kind, 0.0)
    _WAITED[kind] = before + max(0.0, seconds - LAUNCH)
    if before < PATIENCE and _is_worth_a_kernel(kind):
        forget()


def _is_worth_a_kernel(kind: tuple) -> bool:
    """Whether NumPy has taken so long for calls of a plan class with some element types, and there is a compiler."""
    if _WAITED.get(kind, 0.0) < PATIENCE:
        return False
    from skuda.cpu.library import compiler  # of which most calls need not know

    return compiler() is not None


class Resolved(Record):
    """What a call means: what its plan is selected by.

    Attributes:
        types: the word of each type letter, and of C.
        sizes: the extent of each dimension, or extents of a `*name`; the length of each kind of block.
        blocks: the names of those lengths.
        attributes: the values of the others, as the call gives them.
        axes: the axes that the call names, where it names any number of them.
    """

    types: Mapping[str, str]
    sizes: Mapping[str, int | tuple[int, ...]]
    blocks: Mapping[str, int]
    attributes: Mapping[str, Any]
    axes: ChosenAxes | None


def resolve(plan_class: type[Plan], values, attributes, dtypes, input_dtype, shape) -> Resolved:
    """What a call means, from the shapes and elements of its inputs.

    Raises:
        SkudaError: they do not fit together.
    """
    operation = plan_class.operation
    name = plan_class.__name__
    attributes = {attribute.name: value for attribute, value in zip(operation.attributes, attributes, strict=True)}
    placing, axis = operation.axis, None
    if placing is not None:
        axis = attributes.pop(placing.name)
        if placing.type == "axis" and not is_integer(axis):
            raise InvalidProblem(f"{name}: {placing.name} is {shown(axis)}, expected an integer")
    sized = [attribute.name for attribute in operation.attributes if attribute.type == "size"]
    blocks = {each: block_length(attributes[each], f"{name}: {each}") for each in sized}
    if input_dtype is None:
        input_dtype = _word_of_bytes(operation, values, dtypes, shape, axis, blocks, name)
    types = types_of(operation, values, dtypes, input_dtype, name)
    sizes, axes = _bound(operation, values, types, shape, axis, name)
    _check_lengths(operation, sizes | blocks, axes)
    return Resolved(types, sizes | blocks, blocks, attributes, axes)


def _bound(operation: Operation, values, types, shape, axis, name: str) -> tuple[dict, ChosenAxes | None]:
    """The sizes of dimensions, and the axes that the call names where it names any number of them."""
    axes = None
    if operation.chooses_axes:
        from skuda.plans.axis_views import chosen  # a first call of others does not wait for it

    sizes: dict[str, int | tuple[int, ...]] = {**operation.fixed}
    ranks: dict[str, int] = {}
    known = [pair for pair in zip(operation.inputs, values, strict=True) if isinstance(pair[1], View)]
    if operation.shaped is not None:
        known.append((operation.shaped, shape))
    for operand, value in sorted(known, key=lambda pair: operation.binds_after(pair[0])):
        if not operand.scalar and any(dim.name not in sizes for dim in operand.dims):
            logical = shape
            if operand is not operation.shaped:
                said = shape if operation.shaped is None and operand.dims == operation.space else None
                logical = _logical_shape(operand, value, operation.word(operand, types), said, name)
            if operation.chooses_axes and axes is None:  # the first is one that has them all
                axes = chosen(axis, logical, f"{name}: {operation.axis.name}", operand.name)
                logical = tuple(logical[each] for each in axes.order)
                ranks[operation.axis.axis_of] = len(axes.reduced)
            bound = operation.bind(operand, logical, axis, name, ranks)
            ranks = {key: len(size) for key, size in bound.items() if isinstance(size, tuple)} | ranks
            sizes = {**sizes, **bound} if operand.dims == operation.space else {**bound, **sizes}
    return sizes, axes


def _check_lengths(operation: Operation, sizes, axes: ChosenAxes | None) -> None:
    """Refuses an extreme of no elements, in terms of the axes of the caller's array."""
    if not operation.analysis.of_some or not any(count(operation.shape_of(o, sizes)) for o in operation.outputs):
        return
    array = next((o for o in (*operation.inputs, *operation.outputs) if o.dims == operation.space), None)
    if array is None:  # the plan says which dimension is empty
        return
    position = 0
    for dim in operation.space:
        for extent in sizes[dim.name] if dim.many else (sizes[dim.name],):
            if extent == 0 and dim.name in operation.along:
                axis = axes.order[position] if axes else position
                raise InvalidProblem(
                    f"{operation.function}: axis {axis} of {array.name} has length 0; there is no "
                    f"{operation.analysis.of_some} of no elements"
                )
            position += 1


def _word_of_bytes(operation: Operation, values, dtypes, shape, axis, blocks, name: str) -> str | None:
    """What the letter that `input_dtype=` tells is, where an input of it is an array of uint8 and nobody says it: u8
    where the shapes of the other inputs and `shape` allow that, else the only type with which they agree. None where
    there is no such array.

    Raises:
        Unsupported: they agree with several types.
    """
    found = (
        (operand, value)
        for operand, value in zip(operation.inputs, values, strict=True)
        if operand.element == operation.told and isinstance(value, View) and value.storage == np.uint8
    )
    operand, value = next(found, (None, None))
    if operand is None:
        return None
    words = [word for word in operation.words_of(operand.element) if DTYPES[word].travels_as(value.storage)]
    words.sort(key=lambda word: word != "u8")
    fitting = []
    for word in words:
        try:
            types = types_of(operation, values, dtypes, word, name)
            sizes, _ = _bound(operation, values, types, shape, axis, name)
        except SkudaError:
            continue
        if _agree(operation, values, types, sizes | blocks):
            if word == "u8":
                return word
            fitting.append(word)
    if len(fitting) > 1:
        raise Unsupported(
            f"{name}: {operand.name} has elements uint8 and shape {value.shape}, which may be {' or '.join(fitting)}; "
            f"say which by input_dtype="
        )
    return next(iter(fitting or words))  # where none fits, the error is that of the likeliest


def _agree(operation: Operation, values, types, sizes) -> bool:
    """Whether all inputs have the shapes that go with some sizes."""
    for operand, value in zip(operation.inputs, values, strict=True):
        if isinstance(value, View) and not operand.scalar:
            expected = packed_shape(operation.shape_of(operand, sizes), operation.word(operand, types))
            spread = operation.spread(operand, sizes)
            if value.shape != expected and (spread is None or value.shape != spread[0]):
                return False
    return True


def types_of(operation: Operation, values, dtypes, input_dtype, plan: str) -> dict[str, str]:
    """Element types from the arrays; a number in place of a scale counts as one of the compute type, and one that
    broadcasts as one of its kind where no array shows its type."""
    seen: dict[str, str] = {}
    numbers: list[Operand] = []
    kinds: dict[str, str] = {}
    for index, (operand, value) in enumerate(zip(operation.inputs, values, strict=True)):
        letter = operand.element
        if letter not in operation.types and letter != COMPUTE:
            continue  # its element is fixed; the plan checks it
        if not isinstance(value, View):
            if index in operation.broadcast or (operation.creates and letter in operation.types):
                kinds[operand.name] = "bool" if isinstance(value, bool) else "int" if is_integer(value) else "float"
            else:
                numbers.append(operand)
            continue
        word = WORD_OF_STORAGE[value.storage] or str(value.storage)
        if letter != operation.told:
            in_bytes = [each for each in operation.words_of(letter) if DTYPES[each].travels_as(value.storage)]
            word = in_bytes[0] if len(in_bytes) == 1 else word
        elif input_dtype is not None:
            word = input_dtype
            if not DTYPES[word].travels_as(value.storage):
                raise ElementMismatch(
                    f"{plan}: {operand.name} is {input_dtype}, which travels as {DTYPES[word].storage}, but has "
                    f"elements {value.storage}"
                )
        seen[operand.name] = word
    for letter, dtype in zip(operation.asked, dtypes):  # where no letter is asked for, there is no keyword either
        if dtype is not None:
            seen[letter] = dtype
    return operation.resolve(seen, plan, numbers, kinds)


def checked_shape(plan_class: type[Plan], shape) -> tuple[int, ...] | None:
    """What a call says by `shape=`; None where it says nothing and need not."""
    needed = plan_class.operation.shaped
    if shape is None and needed is None:
        return None
    if not isinstance(shape, (tuple, list)) or not all(map(_is_extent, shape)):
        expected = "a tuple of non-negative integers" + (f", the shape of {needed.name}" if needed else "")
        raise InvalidProblem(f"{plan_class.__name__}: shape is {shown(shape)}, expected {expected}")
    return tuple([int(extent) if is_integer(extent) else extent for extent in shape])


def _is_extent(value) -> bool:
    """Whether it is a number of elements along an axis; a framework that traces may have a symbol for one."""
    return is_integer(value) and value >= 0 or type(value).__name__ == "SymInt"


def checked_flag(plan_class: type[Plan], keepdims) -> bool:
    """`keepdims` as a boolean."""
    if not isinstance(keepdims, (bool, np.bool_)) and not (is_integer(keepdims) and keepdims in (0, 1)):
        raise InvalidProblem(f"{plan_class.__name__}: keepdims is {shown(keepdims)}, expected True or False")
    return bool(keepdims)


def checked_words(plan_class: type[Plan], dtypes, input_dtype) -> tuple[tuple[str | None, ...], str | None]:
    """The element types that a call names, by their words."""
    operation, name = plan_class.operation, plan_class.__name__
    words = [
        checked_word(operation, letter, element, f"{name}: {keyword}") if element is not None else None
        for (letter, keyword), element in zip(operation.asked.items(), dtypes)
    ]
    if input_dtype is not None:
        input_dtype = checked_word(operation, operation.told, input_dtype, f"{name}: input_dtype")
    return tuple(words), input_dtype


def _logical_shape(operand, view: View, word: str, shape, plan: str) -> tuple[int, ...]:
    if not DTYPES[word].packed:
        if shape is not None and shape != view.shape:
            raise InvalidProblem(f"{plan}: shape is {shape}, but {operand.name} has shape {view.shape} ({word})")
        return view.shape
    if shape is None:
        return (*view.shape[:-1], 2 * view.shape[-1]) if view.shape else ()
    if packed_shape(shape, word) != view.shape:
        raise InvalidProblem(
            f"{plan}: shape is {shape}, whose packed form does not have {operand.name}'s shape {view.shape}"
        )
    return shape
