"""The function form of operations that no array goes into: a call says the shape of what is made, its element type and
where it is to be.

Every generated function of such an operation is one line that calls `create`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from skuda.arrays.libraries import CPU, Library, framework_of, import_cupy, library_named, library_of
from skuda.arrays.views import view_of
from skuda.errors import InvalidProblem, Unsupported, shown
from skuda.model.descriptor import is_element, is_integer
from skuda.plans import functions
from skuda.plans.functions import Call
from skuda.plans.plan import Plan

# As `functions.CARRIERS`, of calls that create: takes a `Call` and the device that it says, and returns the result.
CREATORS: dict[str, Callable[[Call, Any], Any]] = {}


def create(
    plan_class: type[Plan],
    shape,
    values: tuple[Any, ...],
    attributes: tuple[Any, ...],
    stream,
    *,
    dtype=None,
    output_dtypes: tuple = (),
    like=None,
    device=None,
):
    """Runs an operation none of whose inputs is an array of several elements.

    Args:
        plan_class: the operation's plan.
        shape: of the output: a tuple, or the extent of its one axis; None for that of the array to write.
        values: the inputs in call order, numbers or arrays of one element; None for one that is left out. Then the
            array (or tuple of arrays) to write; None to allocate it.
        attributes: its attributes in call order.
        stream: what to launch on; the current stream of the library if None.
        dtype, output_dtypes: the element types that the call names, as of `functions.call`.
        like: an array in whose library and on whose device the output is made.
        device: where it is made: a torch.device or its text for a tensor of torch, the ordinal of a GPU or a
            cupy.cuda.Device for an array of CuPy. None of these three: beside the first array among the inputs, else a
            NumPy array.

    Returns:
        The output, or a named tuple of outputs in the row's order; what the caller gave as the array to write.

    Raises:
        SkudaError: arguments that do not fit, as of `functions.call`; several say where the output is to be.
    """
    name = plan_class.__name__
    *inputs, out = values
    plan_class, inputs = _form(plan_class, inputs)
    outs = functions.each_of(out)
    said = [each for each, value in (("out=", out), ("like=", like), ("device=", device)) if value is not None]
    if len(said) > 1:
        raise InvalidProblem(f"{name}: {' and '.join(said)} are given, expected one of them to say where")
    shape = getattr(next(iter(outs), None), "shape", None) if shape is None else shape
    if shape is None:
        raise InvalidProblem(f"{name}: shape is missing, expected an integer or a tuple of them")
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    call = Call(plan_class, tuple(inputs), out, attributes, stream, (dtype, *output_dtypes), None, shape, False)
    if is_element(like):
        view_of(like, f"{name}: like")  # which refuses it
    beside = next((each for each in (*outs, like, *inputs) if each is not None and not is_element(each)), None)
    if functions.tracing():
        import skuda.torch  # noqa: F401  (torch.compile traces this statement, and no import_module)

        return CREATORS["torch"](call, device if beside is None else beside.device)
    if out is not None and all(each is None for each in call.dtypes):
        call.dtypes = _of_outputs(call, outs)
    if beside is None:
        if device is None:
            return made(call, library_named("numpy"), CPU)
        if is_integer(device) or type(device).__module__.partition(".")[0] == "cupy":
            return made(call, library_named("cupy"), _ordinal(device, name))
        framework = "torch"
    else:
        framework = framework_of(beside, out is None and stream is None)
    if framework is not None:
        import_module(f"skuda.{framework}")
        return CREATORS[framework](call, device if beside is None else getattr(beside, "device", None))
    view = view_of(beside, f"{name}: {said[0][:-1] if said else 'an input'}")
    return made(call, library_of(view.owner), view.device)


def made(call: Call, library: Library, device: int):
    """What a call of `create` makes in a library, on a CUDA ordinal or the CPU."""
    values = call.plan_class, call.inputs, call.out, call.attributes, call.stream, call.dtypes
    return functions._run(*values, None, call.shape, False, place=(library, device))


def _form(plan_class: type[Plan], inputs: list) -> tuple[type[Plan], list]:
    """The plan of a call with some of its inputs, and these.

    Raises:
        InvalidProblem: one that must be there is not, or one behind one that is left out is.
    """
    operation = plan_class.operation
    lacking = [operand.name for operand, value in zip(operation.inputs, inputs, strict=True) if value is None]
    if not lacking:
        return plan_class, inputs
    missing = next((name for name in lacking if name not in operation.numbers), None)
    if missing is not None:
        expected = "expected a number or an array of one element"
        raise InvalidProblem(f"{plan_class.__name__}: {missing} is missing, {expected}")
    form, kept, _ = functions.form_of(plan_class, functions._first_left_out(plan_class, inputs, None))
    return form, [inputs[each] for each in kept]


def _of_outputs(call: Call, outs: list) -> tuple:
    """The element types that arrays to write have, of those which a call names."""
    operation = call.plan_class.operation
    elements = {operand.element: array for operand, array in zip(operation.outputs, outs)}
    found = [getattr(elements.get(letter), "dtype", None) for letter in operation.asked]
    return tuple(found) or (None,)


def _ordinal(device, name: str) -> int:
    """The ordinal of a GPU that CuPy makes arrays on."""
    from skuda.launch.kernel import cuda_available

    if not cuda_available():
        raise Unsupported(f"{name}: device is {shown(device)}, but no CUDA device is here; `skuda doctor` says why")
    ordinal = int(device) if is_integer(device) else device.id
    count = import_cupy().cuda.runtime.getDeviceCount()
    if not 0 <= ordinal < count:
        raise InvalidProblem(f"{name}: device is {shown(device)}, expected an ordinal below {count}")
    return ordinal
