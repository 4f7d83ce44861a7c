"""The function form: arrays in, arrays out; the plan is found by the arrays' types and shapes, and cached.

Every generated function is one line that calls `call`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from skuda.arrays.libraries import (
    PLAIN,
    device_of,
    framework_of,
    library_named,
    library_of,
    library_of_plain,
    mark_written,
)
from skuda.arrays.views import CPU, View, view_of
from skuda.errors import InvalidProblem, SkudaError, shown
from skuda.launch.prepared import FastPath, Ready, Repeated, refuse
from skuda.model.descriptor import is_element, is_number
from skuda.plans.plan import Plan
from skuda.plans.selection import MOST, OF_PLANS, checked_flag, checked_shape, checked_words, plain, plan_for

if TYPE_CHECKING:
    from skuda.plans.axis_views import AxisViewPlan

# A plan and its fast path, by what an array says cheaply: the first input's element type and shape, and what else the
# caller chose. The fast path compares all the others, so it launches only what this plan was selected for.
_FAST_PATHS: dict[tuple, tuple[Plan, FastPath, Ready | None]] = {}
# Of each operation, what serves a call that repeats the last one: it needs no key.
_READY: dict[type[Plan], Ready] = {}
OF_PLANS += [_FAST_PATHS, _READY]
# What `call_without` knows of an operation whose inputs are of some types, NoneType among them.
_FORMS: dict[tuple, tuple] = {}
_FORM_PLANS: dict[tuple[type[Plan], str], tuple] = {}  # what `form_of` has found
_CHOSEN: dict[tuple[type[Plan], str], type[Plan]] = {}  # what `chosen` has found
# Of a framework that has transforms, gradients or a compiler of its own: what carries a call through them. It takes a
# `Call` and returns its result; NotImplemented where the arrays are plain ones, which kernels can take as they are.
# `skuda.torch` and `skuda.jax` set theirs when they are imported: when a first array of theirs comes.
CARRIERS: dict[str, Callable[[Call], Any]] = {}
RECORDERS: dict[str, Callable[..., Any]] = {}  # what records the gradient of a call that nothing else follows

SHAPE, KEEPDIMS = 3, 4  # where the options of a call have `shape` and `keepdims`
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
            asked = call.dtypes, call.input_dtype, call.shape, call.keepdims
            return _without(call.plan_class, left_out, call.out, call.attributes, call.stream, *asked)
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
        values: its inputs in call order: arrays, or numbers where one value is expected or inputs broadcast. Then the
            array (or tuple of arrays) to write; None to allocate it in the first input array's library.
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


def repeated(plan_class: type[Plan], values: tuple, attributes: tuple, options: tuple):
    """What `run` returns of a call on a GPU that repeats a known one; None of another one."""
    return _repeated(plan_class, values, attributes, options, None)[0]


def run(plan_class: type[Plan], values: tuple, attributes: tuple, options: tuple, stream=None):
    """A call on the arrays themselves, whatever their framework follows.

    Args:
        plan_class, values, attributes, stream: as of `call`.
        options: as of `Call`.
    """
    made, key = _repeated(plan_class, values, attributes, options, stream)
    if made is not None:
        return made
    first, others, *rest = options
    return _run(plan_class, values[:-1], values[-1], attributes, stream, (first, *others), *rest, key)


def _repeated(plan_class: type[Plan], values: tuple, attributes: tuple, options: tuple, stream) -> tuple:
    """What `run` returns where a call repeats a known one, else None; and the call's key, where that was looked for."""
    ready = _READY.get(plan_class)
    if ready is not None:
        made = ready(values, attributes, options, stream)
        if made is not None and type(made) is not Repeated:
            return made, None
    key, known = _known(plan_class, values, attributes, options)
    if known is None:
        return None, key
    return _repeat(plan_class, known, values, attributes, options, stream, below=True), key


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
        if options[SHAPE] is not None:
            key += (*map(type, options[SHAPE]),)
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
    try:
        contiguous = not plan.deciding or (plan.deciding[0] == 0 and library.is_contiguous(values[0]))
        outputs = _outputs(plan, library, device, None, () if contiguous else _values(plan_class, values[:-1]))
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
            if len(_FORMS) >= MOST:
                _FORMS.clear()
            _FORMS[key] = found
    form, kept, chosen = found
    if chosen is not None:
        attributes = tuple([attributes[each] if type(each) is int else each.default for each in chosen])
    return call(form, (*[values[each] for each in kept], values[-1]), attributes, stream, **options)


def _without(plan_class: type[Plan], inputs, out, attributes, stream, dtypes, input_dtype, shape, keepdims):
    """`call_without` with options as a `Call` has them."""
    options = {"dtype": dtypes[0], "output_dtypes": dtypes[1:], "input_dtype": input_dtype}
    return call_without(plan_class, (*inputs, out), attributes, stream, shape=shape, keepdims=keepdims, **options)


def chosen(plan_class: type[Plan], word: str | None) -> type[Plan]:
    """The plan that runs for a word of an operation's choice; None is the default.

    Raises:
        InvalidProblem: the word is none of the choice.
    """
    if word is None:
        return plan_class
    found = _CHOSEN.get((plan_class, word)) if isinstance(word, str) else None  # what is no text may have no hash
    if found is None:
        found = plan_class.chosen(word)
        _CHOSEN[plan_class, word] = found
    return found


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
        return _without(plan_class, left_out, out, attributes, stream, dtypes, input_dtype, shape, keepdims)
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


def _run(
    plan_class, inputs, out, attributes, stream, dtypes, input_dtype, shape, keepdims, key=None, place=None, ran=None
):
    """A call on plain arrays, or on tensors that nothing follows; `place` is the library and the device of outputs,
    which the first array shows if it is None. `ran` is told which plan has served it, and what it has written."""
    views = _values(plan_class, inputs)
    differ = plan_class.operation.differ(views)
    if differ:
        from skuda.plans.broadcasting import broadcast, with_elements  # which most calls do without

        views, key = broadcast(plan_class.operation, views, plan_class.__name__), None
    first = next((value for value in views if isinstance(value, View)), None)
    if place is None and first is not None:
        place = library_of(first.owner), first.device
    elif place is None and plan_class.operation.creates:
        place = library_named("numpy"), CPU
    library, device = place or (None, None)
    plan = plan_for(plan_class, views, attributes, dtypes, input_dtype, shape, keepdims, device)
    if differ:
        views = with_elements(plan, views, first, stream)
    outputs = _outputs(plan, library, device, out, views)
    plan.execute((*views, *outputs), stream)
    if ran is not None:
        ran(plan, outputs)
    if key is not None:
        fast_path = plan.learn((*inputs, *outputs))
        if fast_path is not None and fast_path is not refuse and all(value == value for value in attributes):  # no NaN
            if len(_FAST_PATHS) >= MOST:
                _FAST_PATHS.clear()
            *_, given, options = key[:5]
            ready = plan.ready((*inputs, *outputs), (given, options))
            _FAST_PATHS[key] = plan, fast_path if len(outputs) == 1 else _of_many(fast_path, len(outputs)), ready
    if out is not None:
        mark_written(outputs)
        return out
    handle = 0 if device == CPU else plan.stream_of(view_of(outputs[0], "output") if first is None else first, stream)
    outputs = [library.hand_back(output, handle) for output in outputs]
    return _named(plan_class.results_type, outputs) if len(outputs) > 1 else outputs[0]


def normalized(call: Call) -> Call:
    """A call whose options are checked: element types as words, numbers as Python's, `shape` as a tuple.

    Raises:
        SkudaError: an option is none of what it may be.
    """
    plan_class = call.plan_class
    dtypes, input_dtype = checked_words(plan_class, call.dtypes, call.input_dtype)
    shape, keepdims = checked_shape(plan_class, call.shape), checked_flag(plan_class, call.keepdims)
    attributes = tuple(map(plain, call.attributes))
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
    operation, name = plan_class.operation, plan_class.__name__
    views: list[View | int | float] = []
    for index, (operand, value) in enumerate(zip(operation.inputs, inputs, strict=True)):
        if operand.scalar and is_number(value) and not operation.creates:
            views.append(value)
        elif (index in operation.broadcast or (operation.creates and operand.scalar)) and is_element(value):
            views.append(plain(value))
        else:
            views.append(view_of(value, f"{name}: {operand.name}"))
    return views


def each_of(out) -> Sequence:
    """The arrays to write, of one array or several as a call gives them."""
    return out if isinstance(out, (tuple, list)) else (out,)


def _outputs(plan: Plan | AxisViewPlan, library, device: int, out, views: Sequence) -> list:
    """The arrays to write: the caller's, or new ones, which lie as the inputs do (see `plans.layout`).

    Args:
        plan, out: of the call.
        library, device: of new ones.
        views: the inputs as views and numbers; () where they are known to lie in C order.
    """
    if out is None:
        if any([isinstance(view, View) and not view.contiguous for view in views]) and plan.deciding:
            return _permuted(plan, library, device, [views[index] for index in plan.deciding])
        return [library.empty(shape, storage, device) for shape, storage in plan.made]
    operation = plan.operation
    outputs = list(each_of(out))
    if len(outputs) != len(operation.outputs):
        expected = ", ".join(operand.name for operand in operation.outputs)
        raise InvalidProblem(f"{operation.function}: out has {len(outputs)} arrays, expected ({expected})")
    return outputs


def _permuted(plan: Plan, library, device: int, views: list) -> list:
    """New outputs for inputs of which some do not lie in C order."""
    from skuda.plans.layout import strides_of

    strides = strides_of(plan.operation, plan.words, [shape for shape, _ in plan.made], views)
    return [
        library.empty(shape, storage, device) if steps is None else library.permuted(shape, steps, storage, device)
        for (shape, storage), steps in zip(plan.made, strides, strict=True)
    ]
