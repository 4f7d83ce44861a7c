"""The function form: arrays in, arrays out; the plan is found by the arrays' types and shapes, and cached.

Every generated function is one line that calls `call`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from skuda.arrays.libraries import (
    PLAIN,
    device_of,
    framework_of,
    library_of,
    library_of_plain,
    mark_written,
)
from skuda.arrays.views import CPU, View, view_of
from skuda.errors import ElementMismatch, InvalidProblem, NotAnArray, SkudaError, Unsupported, shown
from skuda.launch.prepared import FastPath, Ready, Repeated, refuse
from skuda.model.descriptor import block_length, checked_word, is_integer, is_number
from skuda.model.dtypes import DTYPES, WORD_OF_STORAGE
from skuda.model.operation import COMPUTE, Operation, count, packed_shape
from skuda.model.records import Record, told_apart
from skuda.model.sku import BackendKind
from skuda.plans.plan import Plan

if TYPE_CHECKING:
    from skuda.plans.axis_views import AxisViewPlan, ChosenAxes

_PLANS: dict[tuple, Plan] = {}
_MOST_PLANS = 4096
# A plan and its fast path, by what an array says cheaply: the first input's element type and shape, and what else the
# caller chose. The fast path compares all the others, so it launches only what this plan was selected for.
_FAST_PATHS: dict[tuple, tuple[Plan, FastPath, Ready | None]] = {}
# Of each operation, what serves a call that repeats the last one: it needs no key.
_READY: dict[type[Plan], Ready] = {}
# What `call_without` knows of an operation whose inputs are of some types, NoneType among them.
_FORMS: dict[tuple, tuple] = {}
_FORM_PLANS: dict[tuple[type[Plan], str], tuple] = {}  # what `form_of` has found
# Of a framework that has transforms, gradients or a compiler of its own: what carries a call through them. It takes a
# `Call` and returns its result; NotImplemented where the arrays are plain ones, which kernels can take as they are.
# `skuda.torch` and `skuda.jax` set theirs when they are imported: when a first array of theirs comes.
CARRIERS: dict[str, Callable[[Call], Any]] = {}
RECORDERS: dict[str, Callable[..., Any]] = {}  # what records the gradient of a call that nothing else follows

_SHAPE = 3  # where the options of a call have `shape`
_named = tuple.__new__  # of several outputs; faster than a call of their class


class Call:
    """A call of a function form, for what carries it through a framework.

    A plain class: torch.compile traces where one is made.

    Attributes: as of `call`; `dtypes` are `dtype` and `output_dtypes`, `inputs` and `out` its values.
    """

    _fields = "plan_class inputs out attributes stream dtypes input_dtype shape keepdims".split()

    def __init__(self, plan_class, inputs, out, attributes, stream, dtypes, input_dtype, shape, keepdims):
        self.plan_class: type[Plan] = plan_class
        self.inputs: tuple[Any, ...] = inputs
        self.out = out
        self.attributes: tuple[Any, ...] = attributes
        self.stream = stream
        self.dtypes: tuple[str | None, ...] = dtypes
        self.input_dtype: str | None = input_dtype
        self.shape: tuple[int, ...] | None = shape
        self.keepdims: bool = keepdims

    @property
    def options(self) -> tuple:
        """`dtype`, `output_dtypes`, `input_dtype`, `shape` and `keepdims` of `call`."""
        first, *others = self.dtypes or (None,)
        return first, tuple(others), self.input_dtype, self.shape, self.keepdims

    def run(self):
        """The call on the arrays themselves, whatever their framework follows."""
        return run(self.plan_class, (*self.inputs, self.out), self.attributes, self.options, self.stream)


def tracing() -> bool:
    """Whether torch.compile traces this call, and so no array is there. `skuda.torch` puts torch's own in its place."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_dynamo_compiling()


def _traced(call: Call):
    """A call that torch.compile traces."""
    import skuda.torch  # noqa: F401  (torch.compile traces this statement, and no import_module)

    if call.plan_class.operation.optional:
        left_out = _without_numbers(call.plan_class, call.inputs)
        if left_out is not None:
            options = {"dtype": call.dtypes[0], "output_dtypes": call.dtypes[1:], "input_dtype": call.input_dtype}
            options |= {"shape": call.shape, "keepdims": call.keepdims}
            return call_without(call.plan_class, (*left_out, call.out), call.attributes, call.stream, **options)
    return CARRIERS["torch"](call)


def call(
    plan_class: type[Plan],
    values: tuple[Any, ...],
    attributes: tuple[Any, ...],
    stream,
    *,
    dtype: str | None = None,
    input_dtype: str | None = None,
    shape: tuple[int, ...] | None = None,
    output_dtypes: tuple[str | None, ...] = (),
    keepdims: bool = False,
):
    """Runs an operation on arrays.

    Args:
        plan_class: the operation's plan.
        values: its inputs in call order: arrays, or numbers where one value is expected. Then the array (or tuple of
            arrays) to write; None to allocate it in the first input array's library.
        attributes: its attributes in call order, `axis` among them; None takes the default, or all axes.
        stream: what to launch on; the current stream of that library if None.
        dtype: element type that no input shows, however it is named (see `dtypes.word_of`).
        output_dtypes: those of outputs beside it, in the order of `Operation.asked`; None takes the preferred one.
        input_dtype: element type of packed inputs, which travel as uint8, or of 8-bit floats that do.
        shape: logical shape of packed inputs; needed where the last axis is odd. Or that of an output which has
            dimensions that no input shows.
        keepdims: whether outputs keep the axes that are reduced, with one element each.

    Returns:
        The output, or a named tuple of outputs in the row's order; what the caller gave as the array to write.
    """
    if tracing():
        asked = (dtype, *output_dtypes), input_dtype, shape, keepdims
        return _traced(Call(plan_class, values[:-1], values[-1], attributes, stream, *asked))
    options = dtype, output_dtypes, input_dtype, shape, keepdims
    ready = _READY.get(plan_class)
    if ready is not None:
        made = ready(values, attributes, options, stream)
        if made is not None:
            return RECORDERS["torch"](plan_class, values, made) if type(made) is Repeated else made
    key, known = _known(plan_class, values, attributes, options)
    if known is not None:
        made = _repeat(plan_class, known, values, attributes, options, stream)
        if made is not None:
            return RECORDERS["torch"](plan_class, values, made) if type(made) is Repeated else made
    dtypes = (dtype, *output_dtypes)
    return _call_anew(plan_class, values, attributes, stream, dtypes, input_dtype, shape, keepdims, key)


def ready_for(plan_class: type[Plan]) -> Ready | None:
    """What serves a call that repeats the last one of an operation."""
    return _READY.get(plan_class)


def run(plan_class: type[Plan], values: tuple, attributes: tuple, options: tuple, stream=None):
    """A call on the arrays themselves, whatever their framework follows.

    Args:
        plan_class, values, attributes, stream: as of `call`.
        options: as of `Call`.
    """
    ready = _READY.get(plan_class)
    if ready is not None:
        made = ready(values, attributes, options, stream)
        if made is not None and type(made) is not Repeated:
            return made
    key, known = _known(plan_class, values, attributes, options)
    if known is not None:
        made = _repeat(plan_class, known, values, attributes, options, stream, below=True)
        if made is not None:
            return made
    first, others, *rest = options
    return _run(plan_class, values[:-1], values[-1], attributes, stream, (first, *others), *rest, key)


def _known(plan_class: type[Plan], values: tuple, attributes: tuple, options: tuple) -> tuple:
    """The key of a call among `_FAST_PATHS`, and what is found there; None for each where there is none."""
    if type(values[0]) not in PLAIN:
        return None, None
    try:
        key = plan_class, values[0].dtype, values[0].shape, attributes, options
        if attributes:
            types = (*map(type, attributes),)
            key += types  # 1.0 == 1, but is no integer
            if 0 in attributes or tuple in types:  # -0.0 == 0.0, and (True,) == (1,)
                key += (repr(attributes),)
        if options[_SHAPE] is not None:
            key += (*map(type, options[_SHAPE]),)
        return key, _FAST_PATHS.get(key)
    except Exception:  # a nested tensor; what has no hash, or an array, among the attributes
        return None, None


def _repeat(plan_class: type[Plan], known: tuple, values, attributes, options, stream, below: bool = False):
    """What a call returns that repeats a known one with arrays of its own; None where it does not, a `Repeated` where
    its gradient has to be recorded.

    Args:
        plan_class, values, attributes, options, stream: as of `run`.
        known: what `_FAST_PATHS` has.
        below: whether nothing of the framework has to know of the call, whatever it follows.
    """
    plan, fast_path, ready = known
    if ready is not None:
        _READY[plan_class] = ready
        made = ready(values, attributes, options, stream)
        if made is not None and not (below and type(made) is Repeated):
            return made
    library, out = library_of_plain(type(values[0])), values[-1]
    if not below and library.follows(values):  # as a carrier understands it
        return None
    if out is not None:
        if not fast_path(values, stream):
            return None
        if library.name == "torch":
            library.wrote(out if isinstance(out, tuple) else (out,))
        return out
    device = device_of[library.name](values[0])
    if device == CPU:
        return None
    outputs = _outputs(plan, library, device, None)
    try:
        plan.execute((*values[:-1], *outputs), stream)
    except SkudaError:  # the other inputs are not those of this plan: another one, or the same error
        return None
    return _named(plan_class.results_type, outputs) if len(outputs) > 1 else outputs[0]


def call_without(plan_class: type[Plan], values, attributes, stream, without: str | None = None, **options):
    """`call` of an operation without some of its optional inputs: the first that is None, and those after it.

    Args:
        plan_class, values, attributes, stream: as of `call`.
        without: of a backward pass, the first optional input that it is without, where it reads none of these.
        options: as of `call`.

    Raises:
        InvalidProblem: one after the first that is left out is given, or `without` names no optional input.
    """
    key = plan_class, without, *map(type, values[:-1])
    try:
        found = None if tracing() else _FORMS.get(key)
    except TypeError:  # `without` has no hash
        found = None
    if found is None:
        *inputs, out = values
        if (left_out := _without_numbers(plan_class, inputs)) is not None:  # beside one that is None
            return call_without(plan_class, (*left_out, out), attributes, stream, without, **options)
        found = form_of(plan_class, _first_left_out(plan_class, inputs, without))
        if not tracing():
            if len(_FORMS) >= _MOST_PLANS:
                _FORMS.clear()
            _FORMS[key] = found
    form, kept, chosen = found
    if chosen is not None:
        attributes = tuple([attributes[each] if type(each) is int else each.default for each in chosen])
    return call(form, (*[values[each] for each in kept], values[-1]), attributes, stream, **options)


def _first_left_out(plan_class: type[Plan], inputs, without: str | None) -> str:
    """The first optional input that a call leaves out.

    Raises:
        InvalidProblem: one after it is given, or `without` names no optional input.
    """
    operation, name = plan_class.operation, plan_class.__name__
    numbers = [*operation.numbers]
    if without is not None and not isinstance(without, str):
        raise InvalidProblem(f"{name}: without is {shown(without)}, expected {', '.join(map(repr, numbers))} or None")
    given = {operand.name: value is not None for operand, value in zip(operation.inputs, inputs, strict=True)}
    first = next((each for each in numbers if not given.get(each, True) or each == without), without)
    if first not in numbers:
        return first  # which `form_of` refuses
    there = next((each for each in numbers[numbers.index(first) :] if given.get(each)), None)
    if there is not None:
        form_of(plan_class, first)  # which refuses an operation that does nothing without it
    if there == first:
        raise InvalidProblem(f"{name}: without is {first!r}, but {first} is given")
    if there is not None:
        later = "what comes after an input that is left out must be left out too"
        raise InvalidProblem(f"{name}: {there} is given, but {first} is not: {later}")
    return first


def form_of(plan_class: type[Plan], first: str) -> tuple[type[Plan], tuple[int, ...], tuple | None]:
    """The plan of an operation without an optional input and those after it, where its operands are among the
    operation's, and where its attributes are: one that is not there stands for its default; None where they are the
    same.

    Raises:
        InvalidProblem: there is no such plan.
    """
    found = _FORM_PLANS.get((plan_class, first))
    if found is None:
        found = _FORM_PLANS[plan_class, first] = _form(plan_class, first)
    return found


def _form(plan_class: type[Plan], first: str) -> tuple[type[Plan], tuple[int, ...], tuple | None]:
    operation = plan_class.operation
    form = plan_class.without(first)
    positions = {operand.name: index for index, operand in enumerate(operation.inputs)}
    kept = tuple([positions[operand.name] for operand in form.operation.inputs])
    own = {attribute.name: index for index, attribute in enumerate(operation.attributes)}
    chosen = tuple(own.get(attribute.name, attribute) for attribute in form.operation.attributes)
    return form, kept, None if chosen == tuple(range(len(own))) else chosen


def _without_numbers(plan_class: type[Plan], inputs) -> list | None:
    """The inputs, with None in place of each number that stands for an array which may be left out; None if there
    is no such number."""
    optional = plan_class.operation.numbers
    found = list(inputs)
    for index, operand in enumerate(plan_class.operation.inputs):
        value = inputs[index]
        if operand.name not in optional or operand.scalar or not is_number(value) or value != optional[operand.name]:
            continue
        if isinstance(value, (int, np.integer)) or plan_class.operation.is_float(operand.element):
            found[index] = None
    return found if any(new is not old for new, old in zip(found, inputs)) else None


def _call_anew(plan_class, values, attributes, stream, dtypes, input_dtype, shape, keepdims, key):
    """`call` of what no fast path serves yet."""
    *inputs, out = values
    if plan_class.operation.optional and (left_out := _without_numbers(plan_class, inputs)) is not None:
        options = {"dtype": dtypes[0], "output_dtypes": dtypes[1:], "input_dtype": input_dtype}
        return call_without(plan_class, (*left_out, out), attributes, stream, shape=shape, keepdims=keepdims, **options)
    framework = next(filter(None, (framework_of(value, out is None and stream is None) for value in inputs)), None)
    if framework is not None:
        if framework not in CARRIERS:
            import_module(f"skuda.{framework}")
        carried = CARRIERS[framework](
            Call(plan_class, (*inputs,), out, attributes, stream, dtypes, input_dtype, shape, keepdims)
        )
        if carried is not NotImplemented:
            return carried
    return _run(plan_class, inputs, out, attributes, stream, dtypes, input_dtype, shape, keepdims, key)


def _run(plan_class, inputs, out, attributes, stream, dtypes, input_dtype, shape, keepdims, key=None):
    """A call on plain arrays, or on tensors that nothing follows."""
    views = _values(plan_class, inputs)
    plan = plan_for(plan_class, views, attributes, dtypes, input_dtype, shape, keepdims)
    first = next(value for value in views if isinstance(value, View))
    library = library_of(first.owner)
    outputs = _outputs(plan, library, first.device, out)
    plan.execute((*views, *outputs), stream)
    if key is not None:
        fast_path = plan.learn((*inputs, *outputs))
        if fast_path is not None and fast_path is not refuse and all(value == value for value in attributes):  # no NaN
            if len(_FAST_PATHS) >= _MOST_PLANS:
                _FAST_PATHS.clear()
            *_, given, options = key[:5]
            ready = plan.ready((*inputs, *outputs), (given, options))
            _FAST_PATHS[key] = plan, fast_path if len(outputs) == 1 else _of_many(fast_path, len(outputs)), ready
    if out is not None:
        mark_written(outputs)
        return out
    handle = 0 if first.device == CPU else plan.stream_of(first, stream)
    outputs = [library.hand_back(output, handle) for output in outputs]
    return _named(plan_class.results_type, outputs) if len(outputs) > 1 else outputs[0]


def normalized(call: Call) -> Call:
    """A call whose options are checked: element types as words, numbers as Python's, `shape` as a tuple.

    Raises:
        SkudaError: an option is none of what it may be.
    """
    plan_class = call.plan_class
    dtypes, input_dtype = _checked_words(plan_class, call.dtypes, call.input_dtype)
    shape, keepdims = _checked_shape(plan_class, call.shape), _checked_flag(plan_class, call.keepdims)
    attributes = tuple(map(_plain, call.attributes))
    return Call(plan_class, call.inputs, call.out, attributes, call.stream, dtypes, input_dtype, shape, keepdims)


def _of_many(fast_path: FastPath, count: int) -> FastPath:
    """A fast path that takes its outputs as one tuple."""

    def spread(values: Sequence, stream, may_allocate: bool = True) -> bool:
        *inputs, outputs = values
        fits = isinstance(outputs, tuple) and len(outputs) == count
        return fits and fast_path((*inputs, *outputs), stream, may_allocate)

    return spread


def _values(plan_class: type[Plan], inputs) -> list[View | int | float]:
    """The inputs as views and numbers."""
    return [
        value if operand.scalar and is_number(value) else view_of(value, f"{plan_class.__name__}: {operand.name}")
        for operand, value in zip(plan_class.operation.inputs, inputs, strict=True)
    ]


def plan_for(
    plan_class: type[Plan], values: Sequence[View | int | float], attributes, dtypes, input_dtype, shape, keepdims
) -> Plan | AxisViewPlan:
    """The plan of a call, found in the cache or selected.

    Args:
        plan_class, attributes, input_dtype, shape, keepdims: as of `call`.
        values: the inputs as views and numbers.
        dtypes: the element types that the call names, in the order of `Operation.asked`.
    """
    shape = _checked_shape(plan_class, shape)
    keepdims = _checked_flag(plan_class, keepdims)
    dtypes, input_dtype = _checked_words(plan_class, dtypes, input_dtype)
    attributes = tuple(map(_plain, attributes))
    first = next((value for value in values if isinstance(value, View)), None)
    if first is None:
        raise NotAnArray(f"{plan_class.__name__}: expected an array among the inputs, got numbers only")
    key = (
        plan_class,
        tuple((v.storage, v.shape) if isinstance(v, View) else None for v in values),
        tuple(map(_in_key, attributes)),
        dtypes,
        input_dtype,
        shape,
        keepdims,
        first.device == CPU,
    )
    try:
        plan = _PLANS.get(key)
    except Exception:  # an attribute that has no hash: no number, so it is refused by its name
        plan = None
    if plan is None:
        plan = _select(plan_class, values, first, attributes, dtypes, input_dtype, shape, keepdims)
        if len(_PLANS) >= _MOST_PLANS:
            _PLANS.clear()
        _PLANS[key] = plan
    return plan


def _in_key(value) -> tuple:
    """An attribute as a part of a key: of what is equal, numbers of several types and signed zeros differ."""
    return type(value), tuple(map(_in_key, value)) if isinstance(value, tuple) else told_apart(value)


def _plain(value):
    """An attribute with Python's own numbers in place of NumPy's, and a tuple in place of a list."""
    if isinstance(value, (tuple, list)):
        return tuple([int(each) if isinstance(each, np.integer) else each for each in value])
    if isinstance(value, np.integer):
        return int(value)
    return float(value) if isinstance(value, np.floating) else value


def _outputs(plan: Plan | AxisViewPlan, library, device: int, out) -> list:
    if out is None:
        return [library.empty(shape, storage, device) for shape, storage in plan.made]
    operation = plan.operation
    outputs = list(out) if isinstance(out, (tuple, list)) else [out]
    if len(outputs) != len(operation.outputs):
        expected = ", ".join(operand.name for operand in operation.outputs)
        raise InvalidProblem(f"{operation.function}: out has {len(outputs)} arrays, expected ({expected})")
    return outputs


def _select(
    plan_class, values, first: View, attributes, dtypes, input_dtype, shape, keepdims
) -> Plan | AxisViewPlan:
    operation = plan_class.operation
    found = resolve(plan_class, values, attributes, dtypes, input_dtype, shape)
    descriptor = plan_class.descriptor_type(
        **{name: size for name, size in found.sizes.items() if name not in found.blocks},
        **found.attributes,
        **{field: found.types[letter] for letter, field in operation.element_fields.items()},
    )
    backend = BackendKind.REFERENCE if first.device == CPU else BackendKind.CUDA
    plan = plan_class.select(descriptor, preference=backend)
    if found.axes is None:
        return plan
    from skuda.plans.axis_views import with_axis_views

    return with_axis_views(plan, found.axes, keepdims)


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
    types = _types(operation, values, dtypes, input_dtype, name)
    sizes, axes = _bound(operation, values, types, shape, axis, name)
    _check_lengths(operation, sizes | blocks, axes)
    return Resolved(types, sizes | blocks, blocks, attributes, axes)


def _bound(operation: Operation, values, types, shape, axis, name: str) -> tuple[dict, ChosenAxes | None]:
    """The sizes of dimensions, and the axes that the call names where it names any number of them."""
    axes = None
    if operation.chooses_axes:
        from skuda.plans.axis_views import chosen  # a first call of others does not wait for it

    sizes: dict[str, int | tuple[int, ...]] = {}
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
    array = next(o for o in (*operation.inputs, *operation.outputs) if o.dims == operation.space)
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
            types = _types(operation, values, dtypes, word, name)
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


def _types(operation: Operation, values, dtypes, input_dtype, plan: str) -> dict[str, str]:
    """Element types from the arrays; a number in place of a scale counts as one of the compute type."""
    seen: dict[str, str] = {}
    numbers = []
    for operand, value in zip(operation.inputs, values, strict=True):
        letter = operand.element
        if letter not in operation.types and letter != COMPUTE:
            continue  # its element is fixed; the plan checks it
        if not isinstance(value, View):
            numbers.append(operand)
            continue
        word = WORD_OF_STORAGE.get(value.storage, str(value.storage))
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
    return operation.resolve(seen, plan, numbers)


def _checked_shape(plan_class: type[Plan], shape) -> tuple[int, ...] | None:
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


def _checked_flag(plan_class: type[Plan], keepdims) -> bool:
    """`keepdims` as a boolean."""
    if not isinstance(keepdims, (bool, np.bool_)) and not (is_integer(keepdims) and keepdims in (0, 1)):
        raise InvalidProblem(f"{plan_class.__name__}: keepdims is {shown(keepdims)}, expected True or False")
    return bool(keepdims)


def _checked_words(plan_class: type[Plan], dtypes, input_dtype) -> tuple[tuple[str | None, ...], str | None]:
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
