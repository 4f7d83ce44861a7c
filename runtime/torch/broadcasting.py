"""Inputs of several shapes, and numbers in their place, as tensors of one shape, and of one type under autocast.

Torch expands them, so its own gradient of that reduces what an operation makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from skuda.arrays.libraries import CPU, torch_dtypes, torch_storages, type_name
from skuda.arrays.views import View
from skuda.errors import ElementMismatch, NotAnArray
from skuda.model.descriptor import as_element, is_element
from skuda.model.dtypes import DTYPES, WORD_OF_STORAGE
from skuda.model.operation import COMPUTE, Operation
from skuda.model.shapes import same_shape
from skuda.plans import functions
from skuda.plans.broadcasting import shape_of_all
from skuda.plans.functions import Call
from skuda.plans.plan import Plan
from skuda.plans.selection import checked_words, plain, types_of

if TYPE_CHECKING:
    from skuda.torch.operators import Operator

_NUMBERS = {"bool": True, "int": 1, "float": 1.0}  # of each kind one
_BY_WIDTH = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def expanded(operator: Operator, call: Call) -> Call:
    """The call with tensors of one shape as inputs that broadcast; the call itself where they are that.

    Raises:
        SkudaError: two shapes do not fit each other, or a number is none of the type that the tensors have.
    """
    operation, name = call.plan_class.operation, call.plan_class.__name__
    if not _differ([call.inputs[index] for index in operator.broadcast]):
        return call
    inputs = list(call.inputs)
    numbers = [index for index in operator.broadcast if not isinstance(inputs[index], torch.Tensor)]
    shapes = [value.shape if isinstance(value, torch.Tensor) else None for value in inputs]
    shape = shape_of_all(operation, shapes, name)
    if numbers:
        dtypes = _dtypes(call.plan_class, _said(call), call.dtypes, call.input_dtype)
        array = next(inputs[index] for index in operator.broadcast if index not in numbers)
        for index in numbers:
            called = f"{name}: {operation.inputs[index].name}"
            inputs[index] = _element(array, inputs[index], dtypes[index], called)
    for index in operator.broadcast:
        if not same_shape(inputs[index].shape, shape):
            inputs[index] = inputs[index].expand(shape)
    return _with_inputs(call, inputs)


def aligned(operator: Operator, values: list, dims: list, size: int) -> tuple[list, list]:
    """An operator's arguments under vmap, and their batch axes, with tensors of one shape as inputs that broadcast.

    Args:
        values: of the operator's schema, some with an axis more than they are called with.
        dims: of each value that axis; None of others.
        size: of the batch.
    """
    places = [operator.inputs[index] for index in operator.broadcast]
    shapes = [_without(values[place].shape, dims[place]) for place in places]
    if all([same_shape(shape, shapes[0]) for shape in shapes]):
        return values, dims
    values, dims = list(values), list(dims)
    of_inputs: list = [None] * len(operator.inputs)
    for index, shape in zip(operator.broadcast, shapes, strict=True):
        of_inputs[index] = shape
    target = shape_of_all(operator.operation, of_inputs, operator.plan_class.__name__)
    for place, shape in zip(places, shapes, strict=True):
        value = values[place]
        if dims[place] is not None:
            value = value.movedim(dims[place], 0).reshape(size, *(1,) * (len(target) - len(shape)), *shape)
            values[place], dims[place] = value.expand(size, *target), 0
        else:
            values[place] = value.expand(target)
    return values, dims


def _without(shape: torch.Size, axis: int | None) -> tuple:
    """A shape without one of its axes."""
    if axis is None:
        return tuple(shape)
    axis %= len(shape)
    return (*shape[:axis], *shape[axis + 1 :])


def _differ(values: list) -> bool:
    """`Shapes.differ` of inputs that broadcast. A symbol that is asked for a shape would become a number."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return len(tensors) < len(values) or not all(
        [same_shape(tensor.shape, tensors[0].shape) for tensor in tensors]
    )


def is_number(value: Any) -> bool:
    """Whether it is a number, a boolean, or a symbol for one."""
    return is_element(value) or isinstance(value, (torch.SymInt, torch.SymFloat))


def _said(call: Call) -> tuple:
    """Of each input the element type of its tensor, or what kind of number it is."""
    return tuple([value.dtype if isinstance(value, torch.Tensor) else _kind(value) for value in call.inputs])


def _kind(value: Any) -> str:
    return "bool" if isinstance(value, bool) else "int" if isinstance(value, (int, torch.SymInt)) else "float"


@torch.compiler.assume_constant_result  # torch.compile cannot follow what compares types of NumPy
def _dtypes(plan_class: type[Plan], said: tuple, asked: tuple, input_dtype: str | None) -> tuple:
    """The element type of each input of a call, once autocast has made types fit.

    Args:
        plan_class: of the operation.
        said: of each input its element type; of a number its kind.
        asked, input_dtype: of the call.
    """
    operation = plan_class.operation
    values: list[Any] = []
    for each in _widened(operation, said):
        number = _NUMBERS.get(each)
        values.append(View(0, (), (), torch_storages()[each], CPU, True, True, None) if number is None else number)
    types = types_of(operation, values, *checked_words(plan_class, asked, input_dtype), plan_class.__name__)
    return tuple([torch_dtypes()[DTYPES[operation.word(operand, types)].storage] for operand in operation.inputs])


def _element(array: torch.Tensor, value: Any, dtype: torch.dtype, called: str) -> torch.Tensor:
    """A number as a tensor without axes, of the class and on the device of another one."""
    if not is_number(value):
        raise NotAnArray(f"{called} is a {type_name(value)}, expected a tensor or a number")
    if functions.tracing() or not is_element(value):  # it may be a symbol: torch rounds it, for half types twice
        kinds = ("float", "int", "bool") if dtype.is_floating_point else ("int", "bool")
        if _kind(value) not in (kinds if dtype != torch.bool else ("bool",)):
            raise ElementMismatch(f"{called} is of type {_kind(value)}, expected {kinds[0]} ({dtype})")
    else:
        value = as_element(plain(value), WORD_OF_STORAGE[torch_storages()[dtype]], called)
    return array.new_full((), value, dtype=dtype)


def _with_inputs(call: Call, inputs: list) -> Call:
    options = call.stream, call.dtypes, call.input_dtype, call.shape, call.keepdims
    return Call(call.plan_class, tuple(inputs), call.out, call.attributes, *options)


def promoted(operator: Operator, values: tuple) -> list:
    """An operator's arguments under autocast: inputs of one type letter have the widest type that one of them had."""
    values = list(values)
    tensors = [values[position] if isinstance(values[position], torch.Tensor) else None for position in operator.inputs]
    dtypes = [None if tensor is None else tensor.dtype for tensor in tensors]
    for position, tensor, dtype in zip(operator.inputs, tensors, _widened(operator.operation, dtypes)):
        if tensor is not None:
            values[position] = tensor.to(dtype)
    return values


def _widened(operation: Operation, dtypes: Sequence) -> list:
    """The element types of inputs, each of those of one type letter the widest of them; what is no type stays."""
    found = list(dtypes)
    letters = [operand.element for operand in operation.inputs]
    for letter in dict.fromkeys(letters):
        if letter not in operation.types and letter != COMPUTE:
            continue
        places = [place for place, each in enumerate(letters) if each == letter]
        places = [place for place in places if isinstance(dtypes[place], torch.dtype)]
        types = {dtypes[place] for place in places}
        if len(types) > 1 and types <= {*_BY_WIDTH}:
            halves = {torch.bfloat16, torch.float16} <= types
            widest = torch.float32 if halves else next(dtype for dtype in _BY_WIDTH if dtype in types)
            for place in places:
                found[place] = widest
    return found
