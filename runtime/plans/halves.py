"""Calls that give two inputs as one array, which holds one behind the other along its last axis: `Operation.halves`
says which two. Nothing is copied: a kernel reads the halves where they lie, and writes both gradients into one array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from skuda.arrays.libraries import CPU, device_of, framework_of, library_of, plain_library, stream_handle
from skuda.arrays.views import halves_of, view_of
from skuda.errors import InvalidProblem
from skuda.launch.prepared import Ready, Repeated, refuse
from skuda.model.operation import Operation
from skuda.model.sku import Direction
from skuda.plans import functions
from skuda.plans.axis_views import AxisView
from skuda.plans.plan import Plan
from skuda.plans.selection import OF_PLANS


class Parts(NamedTuple):
    """What a framework does with an array of two halves in a call that it follows.

    Attributes:
        split: makes both halves of an array of its own.
        join: makes an array of two halves.
        follows: whether it follows a call with these inputs and this `out`.
    """

    split: Callable[[Any], tuple]
    join: Callable[[Any, Any], Any]
    follows: Callable[[Sequence, Any], bool]


PARTS: dict[str, Parts] = {}  # by the name of the framework
# Of an operation and the input that the array is given for, what serves a call that repeats the last one.
_READY: dict[tuple[type[Plan], int], Ready] = {}
OF_PLANS.append(_READY)


def call_of_halves(
    plan_class: type[Plan],
    values: tuple[Any, ...],
    attributes: tuple[Any, ...],
    stream,
    *,
    dtype=None,
    input_dtype=None,
    shape=None,
    output_dtypes: tuple = (),
    keepdims=False,
):
    """`call` of an operation, two inputs of which come as one array.

    Args:
        plan_class, attributes, stream, and the options: as of `functions.call`.
        values: as of it; of the two inputs one is None, and the other the array. Its first half is the input that it
            is given for. Of a backward pass the array to write is one too.

    Returns:
        What `call` does; of a backward pass the gradient of the array.

    Raises:
        InvalidProblem: both are None, or the last axis of the array has no halves.
    """
    *inputs, out = values
    operation = plan_class.operation
    places = [index for index, each in enumerate(operation.inputs) if each.name in operation.halves]
    first, second = places if inputs[places[0]] is not None else places[::-1]
    if inputs[first] is None:
        names, expected = " and ".join(operation.halves), "expected both, or one array with both along its last axis"
        raise InvalidProblem(f"{plan_class.__name__}: {names} are missing, {expected}")
    whole, joins = inputs[first], operation.direction is Direction.BACKWARD
    asked = (dtype, *output_dtypes), input_dtype, shape, keepdims
    if functions.tracing():
        import skuda.torch  # noqa: F401  (torch.compile traces this statement, and no import_module)

        return _followed(plan_class, inputs, out, attributes, stream, asked, "torch", first, second)
    options, plain = (dtype, output_dtypes, input_dtype, shape, keepdims), plain_library(type(whole))
    ready = _READY.get((plan_class, first))
    if ready is not None and plain:
        given = _empty_like(whole, plain) if joins and out is None else out
        doubled = (*inputs[:second], whole, *inputs[second + 1 :])
        made = ready((*doubled, (given, given) if joins else given), attributes, options, stream)
        if made is not None and type(made) is not Repeated:
            return given if joins else made
    arrays = [value for value in (*inputs, out) if value is not None]
    framework = next(filter(None, (framework_of(each, out is None and stream is None) for each in arrays)), None)
    if framework is not None:
        import_module(f"skuda.{framework}")
        if PARTS[framework].follows(inputs, out):
            return _followed(plan_class, inputs, out, attributes, stream, asked, framework, first, second)
    parts, name = list(inputs), operation.inputs[first].name
    parts[first], parts[second] = split(whole, None, plan_class, name, operation)
    view, given, joined = view_of(whole, f"{plan_class.__name__}: {name}"), out, out
    library = library_of(view.owner)
    if joins:
        joined = library.empty(view.shape, view.storage, view.device) if out is None else out
        given = split(joined, None, plan_class, "out", operation)[:: 1 if first < second else -1]

    def ran(plan: Plan, outputs: Sequence) -> None:
        if plain and isinstance(plan, Plan):
            doubled = (*inputs[:second], whole, *inputs[second + 1 :], *outputs)
            _learn(plan, doubled, (first, second), tuple(view.shape), attributes, options)

    made = functions._run(plan_class, parts, given, attributes, stream, *asked, ran=ran)
    if not joins or out is not None:
        return out if joins else made
    current = library.current_stream(view.device) if stream is None else stream_handle(stream)
    return library.hand_back(joined, 0 if view.device == CPU else current)


def _followed(
    plan_class: type[Plan], inputs: list, out, attributes, stream, asked: tuple, framework: str, first: int, second: int
):
    """A call that a framework follows: it has halves of its own.

    Args:
        plan_class, inputs, out, attributes, stream: as of `call_of_halves`.
        asked: element types and options, as a `Call` has them.
        first, second: where the input is whose array it is, and the other one.
    """
    operation, dtypes = plan_class.operation, asked[0]
    one, other = split(inputs[first], framework, plan_class, operation.inputs[first].name, operation)
    # A list of its own: torch.compile takes no item assignment of one that is unpacked.
    inputs = [one if place == first else other if place == second else each for place, each in enumerate(inputs)]
    joins = operation.direction is Direction.BACKWARD
    given = out
    if joins and out is not None:
        given = split(out, framework, plan_class, "out", operation)
        given = given if first < second else given[::-1]
    made = functions.call(
        plan_class, (*inputs, given), attributes, stream, dtype=dtypes[0], output_dtypes=dtypes[1:],
        input_dtype=asked[1], shape=asked[2], keepdims=asked[3],
    )  # fmt: skip
    if not joins:
        return made
    return PARTS[framework].join(*(made if first < second else made[::-1])) if out is None else out


def _empty_like(whole: Any, library: str) -> Any:
    """An uninitialised contiguous array of the same shape, type and device."""
    if library == "torch":
        return whole.new_empty(whole.shape)
    return library_of(whole).empty(whole.shape, whole.dtype, device_of[library](whole))


def _learn(plan: Plan, values: tuple, places: Sequence[int], shape: tuple, attributes: tuple, options: tuple) -> None:
    """Prepares for a call that repeats one: the second time, as most are made once.

    Args:
        plan: what served the call.
        values: its inputs, the array in place of both halves, and its outputs, of which types and devices count.
        places: of the inputs that are its first half and its second.
        shape: of the array.
        attributes, options: as the call said them.
    """
    operation = plan.operation
    own = {operation.inputs[place].name: half for half, place in enumerate(places)}
    own |= {f"d_{name}": half for name, half in own.items()} if operation.direction is Direction.BACKWARD else {}
    axis_views = []
    for operand, stored in zip(operation.operands, plan.stored, strict=True):
        half = own.get(operand.name)
        extents = stored if half is None else shape
        axis_views.append(AxisView(extents, tuple(range(len(extents))), half))
    learned = plan.learn(values, tuple(axis_views))
    if learned is None or learned is refuse or any(value != value for value in attributes):  # NaN
        return
    ready = plan.ready(values, (attributes, options), tuple(axis_views))
    if ready is not None:
        _READY[type(plan), places[0]] = ready


def split(whole: Any, framework: str | None, plan_class: type[Plan] | str, name: str, operation: Operation) -> tuple:
    """The halves of an array, as its library's views or as views of ours.

    Args:
        whole: the array.
        framework: that follows the call; None where it is viewed.
        plan_class, name, operation: what an error calls the call and the array, and whose halves it has.

    Raises:
        InvalidProblem: its last axis has no halves.
    """
    array = whole if framework is not None else view_of(whole, f"{_called(plan_class)}: {name}")
    shape = getattr(array, "shape", None)
    if shape is None or not len(shape) or shape[-1] % 2:
        found = f"has shape {tuple(shape)}" if shape is not None else f"is {type(whole).__name__}"
        names = " and ".join(operation.halves)
        expected = f"{names} side by side along a last axis of even length"
        raise InvalidProblem(f"{_called(plan_class)}: {name} {found}, expected {expected}")
    if framework is not None:
        return PARTS[framework].split(array)
    if plain_library(type(whole)) is not None:
        middle = shape[-1] // 2
        return whole[..., :middle], whole[..., middle:]
    return halves_of(array)


def _called(plan_class: type[Plan] | str) -> str:
    return plan_class if isinstance(plan_class, str) else plan_class.__name__
