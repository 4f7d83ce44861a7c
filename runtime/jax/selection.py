"""Which plan a call of traced arrays is: selected and checked while JAX traces, as types and shapes are known then."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from skuda.arrays.libraries import READABLE, type_name
from skuda.arrays.views import CPU, View, contiguous_strides, view_of
from skuda.errors import NotAnArray, Unsupported
from skuda.jax.program import Program
from skuda.launch.arguments import check
from skuda.model.descriptor import is_element, is_number
from skuda.plans.axis_views import AxisViewPlan
from skuda.plans.broadcasting import broadcast, element_of
from skuda.plans.plan import Plan
from skuda.plans.selection import plain, plan_for

_APART = 1 << 64  # bytes between arrays, none of which has an address yet


def select(
    plan_class: type[Plan],
    values: Sequence,
    attributes: Sequence,
    dtypes: Sequence[str | None] = (),
    input_dtype: str | None = None,
    shape: tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> tuple[Program, list]:
    """The program of a call in the function form, and its inputs as arrays of the shapes that it wants.

    Args:
        plan_class: of the operation.
        values: its inputs: arrays of JAX or NumPy, or numbers where one value is expected or inputs broadcast.
        attributes, input_dtype, shape, keepdims: as of `skuda.plans.functions.call`.
        dtypes: the element types that the call names, in the order of `Operation.asked`.

    Raises:
        SkudaError: what the function form raises.
    """
    operation, name = plan_class.operation, plan_class.__name__
    views = [
        _stand_in(value, operand.scalar, index in operation.broadcast or operation.creates, index,
                  f"{name}: {operand.name}")
        for index, (operand, value) in enumerate(zip(operation.inputs, values, strict=True))
    ]
    differ = operation.differ(views)
    if differ:
        views = broadcast(operation, views, name)
    device = CPU if operation.creates else None  # where no array shows one
    target = plan_for(plan_class, views, attributes, dtypes, input_dtype, shape, keepdims, device)
    program = Program.of(target)
    operands = [*views, *program.unplaced()[len(views) :]]
    if differ:
        values = list(values)
        for index in operation.broadcast:
            called = f"{name}: {operation.inputs[index].name}"
            values[index] = _broadcast(values[index], program, index, views[index], called)
            operands[index] = program.unplaced()[index]
    if isinstance(target, AxisViewPlan):
        operands = target.operands(operands)
    checked = check(program.plan, operands)
    return program, [_array(*each) for each in zip(values, checked, program.shapes, program.storages)]


def _stand_in(value, is_scalar: bool, broadcasts: bool, index: int, called: str) -> View | int | float:
    """A value as far as it is known: as a view without memory, or as a number.

    A scalar of JAX with a weak type is a Python number that JAX traces: its element is what the plan wants.
    """
    if is_scalar and is_number(value) and not broadcasts:
        return value
    if broadcasts and is_element(value):
        return plain(value)
    if isinstance(value, np.ndarray):
        view = view_of(value, called)
        return View(_APART * (index + 1), view.shape, view.strides, view.storage, CPU, view.contiguous, True, value)
    if not isinstance(value, jax.Array):
        raise NotAnArray(f"{called} is a {type_name(value)}, expected an array of JAX or NumPy, or a number")
    aval = jax.typeof(value)
    if (is_scalar or broadcasts) and aval.weak_type and not aval.shape:
        return 0.0 if jnp.issubdtype(aval.dtype, jnp.floating) else 0
    if not READABLE[aval.dtype]:
        raise NotAnArray(f"{called} has {aval.dtype} elements, which no kernel reads")
    if not all(isinstance(extent, int) for extent in aval.shape):
        raise Unsupported(f"{called} has shape {aval.shape}, expected one that is known while JAX traces")
    strides = contiguous_strides(aval.shape)
    return View(_APART * (index + 1), tuple(aval.shape), strides, np.dtype(aval.dtype), CPU, True, True, value)


def _broadcast(value, program: Program, index: int, view: View | int | float, called: str):
    """An input that broadcasts as an array of the shape and the type that the program has, by JAX, which reduces its
    gradient.

    Args:
        value: an array, or a number.
        index: of the input.
        view: of the value, once it is broadcast; a number where it is one.
        called: the plan and the input.
    """
    shape, storage = program.shapes[index], program.storages[index]
    if not isinstance(view, View):
        is_traced = isinstance(value, jax.Array)  # then the view is a number of its kind
        called += ", a number that JAX traces," if is_traced else ""
        element = element_of(view, program.plan.words[index], called)
        value = value.astype(storage) if is_traced else element
    return value if value.shape == shape else jnp.broadcast_to(value, shape)


def _array(value, checked: View | int | float, shape: tuple[int, ...], storage: np.dtype):
    """A value as an array that the program takes."""
    if not isinstance(checked, View) and not isinstance(value, jax.Array):
        return np.asarray(checked, storage)
    known = storage, jax.dtypes.canonicalize_dtype(storage)
    array = value if value.dtype in known else _converted(value, storage)
    return array if array.shape == shape else jnp.reshape(array, shape)


def _converted(value, storage: np.dtype):
    """The same elements where bytes hold floats of 8 bits; a number of JAX's as an element of another type."""
    if value.dtype == np.uint8 and storage.itemsize == 1:
        return jax.lax.bitcast_convert_type(jnp.asarray(value), storage)
    return jnp.asarray(value).astype(storage)
