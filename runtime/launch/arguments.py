"""Checks of a run's arguments against its plan, before anything is launched or written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skuda.arrays.libraries import is_tracked
from skuda.arrays.views import CPU, View, view_of, with_axes
from skuda.errors import BufferTooSmall, DeviceMismatch, ElementMismatch, InvalidProblem, MisalignedOperand
from skuda.model.descriptor import as_element, is_number
from skuda.model.dtypes import DTYPES, WORD_OF_STORAGE
from skuda.model.operation import Operand, count
from skuda.model.sku import BackendKind

if TYPE_CHECKING:
    from skuda.plans.plan import Plan

_ALIGNED = 16  # bytes that a workspace starts on a multiple of


def check(plan: Plan, values: Sequence) -> list[View | int | float]:
    """Each operand of a run as a view or a number, in operand order; raises what `Plan.can_implement` does."""
    operation = plan.operation
    checked: list[View | int | float] = []
    device = None
    for index, (operand, value) in enumerate(zip(operation.operands, values, strict=True)):
        if operand.scalar and index < len(operation.inputs) and _is_value(value, plan.words[index]):
            checked.append(as_element(value, plan.words[index], f"{plan.name}: {operand.name}"))
            continue
        view = value if type(value) is View else view_of(value, f"{plan.name}: {operand.name}")
        view = _checked_view(plan, operand, index, view)
        if device is None:
            device = view.device
            _check_device(plan, operand, device)
        elif view.device != device:
            raise DeviceMismatch(
                f"{plan.name}: {operand.name} is on {_device(view.device)}, expected {_device(device)} like "
                f"{operation.operands[0].name}"
            )
        checked.append(view)
    _check_overlap(plan, checked)
    return checked


def check_workspace(plan: Plan, workspace, checked: Sequence[View | int | float]) -> int:
    """Address of a workspace for operands that have been checked; raises what `Plan.run` does."""
    expected = f"expected at least {plan.workspace_size} bytes"
    if workspace is None:
        raise BufferTooSmall(f"{plan.name}: there is no workspace, {expected}")
    view = view_of(workspace, f"{plan.name}: workspace")
    if not view.contiguous:
        raise InvalidProblem(f"{plan.name}: workspace has gaps (strides {view.strides}), expected none")
    size = count(view.shape) * view.storage.itemsize
    if size < plan.workspace_size:
        raise BufferTooSmall(f"{plan.name}: workspace has {size} bytes, {expected}")
    if view.readonly:
        raise InvalidProblem(f"{plan.name}: workspace is read-only, expected an array that can be written")
    device = next(each.device for each in checked if isinstance(each, View))
    if view.device != device:
        raise DeviceMismatch(
            f"{plan.name}: workspace is on {_device(view.device)}, expected {_device(device)} like the operands"
        )
    if view.pointer % _ALIGNED:
        raise MisalignedOperand(
            f"{plan.name}: workspace starts at {view.pointer:#x}, expected a multiple of {_ALIGNED} bytes"
        )
    for operand, each in zip(plan.operation.operands, checked, strict=True):
        if isinstance(each, View) and _overlap(view, each):
            raise InvalidProblem(f"{plan.name}: workspace overlaps {operand.name}")
    return view.pointer


def _is_value(value, word: str) -> bool:
    """Whether it is one value and no array: a number, or a boolean of those."""
    return is_number(value) or (DTYPES[word].kind == "bool" and isinstance(value, bool))


def may_coincide(plan: Plan, other: int, index: int) -> bool:
    """Whether an output may be the very array of an input (positions among the operands): each element is read before
    it is written, by the thread that writes it, and by no other."""
    operation = plan.operation
    read, written = operation.operands[other], operation.operands[index]
    apart = plan.full[other] or (read.name in operation.analysis.updated and read.dims == written.dims)
    return apart and plan.words[other] == plan.words[index]


def _checked_view(plan: Plan, operand: Operand, index: int, view: View) -> View:
    """The view without the axes that the operand lacks, where the array keeps them with one element each."""
    word = plan.words[index]
    storage = DTYPES[word].storage
    if view.storage != storage and not DTYPES[word].travels_as(view.storage):
        came = WORD_OF_STORAGE[view.storage] or str(view.storage)
        travels = f"{word} (which travels as {storage})" if DTYPES[word].packed else word
        raise ElementMismatch(f"{plan.name}: {operand.name} has elements {came}, expected {travels}")
    if operand.scalar and count(view.shape) == 1:
        view = with_axes(view, ())
    elif view.shape != plan.stored[index]:
        spread = plan.operation.spread(operand, plan.sizes)
        if spread is None or view.shape != spread[0]:
            expected = _expected(plan, index)
            raise InvalidProblem(f"{plan.name}: {operand.name} has shape {view.shape}, expected {expected}")
        view = with_axes(view, spread[1])
    if view.pointer % storage.itemsize and plan.backend is BackendKind.CUDA:
        raise MisalignedOperand(
            f"{plan.name}: {operand.name} starts at {view.pointer:#x}, expected a multiple of {storage.itemsize} bytes"
        )
    return view


def _expected(plan: Plan, index: int) -> str:
    """`(n,) = (4,)`: the dimensions of an operand and their sizes."""
    operand = plan.operation.operands[index]
    if operand.scalar:
        return "one element"
    names = []
    for dim in operand.dims:
        size = plan.sizes[dim.name]
        names.append(dim.name if isinstance(size, tuple) and len(size) == 1 else str(dim))
    symbolic = f"({', '.join(names)}{',' if len(names) == 1 else ''})"
    packed = DTYPES[plan.words[index]].packed
    logical = f"{symbolic} = {plan.shapes[index]}"
    return f"{logical} packed two to a byte, {plan.stored[index]}" if packed else logical


def _check_device(plan: Plan, operand: Operand, device: int) -> None:
    if (plan.backend is BackendKind.CUDA) != (device != CPU):
        expected = "a CUDA device" if plan.backend is BackendKind.CUDA else "the CPU"
        raise DeviceMismatch(
            f"{plan.name}: {operand.name} is on {_device(device)}, expected {expected} (backend "
            f"{plan.backend.value}; select the plan with preference= for the other)"
        )


def _device(device: int) -> str:
    return "the CPU" if device == CPU else f"CUDA device {device}"


# ---- memory ----


def _check_overlap(plan: Plan, checked: Sequence[View | int | float]) -> None:
    """Each output can be written, and shares memory with no other operand, save an input in place."""
    inputs = len(plan.operation.inputs)
    operands = plan.operation.operands
    for index in range(inputs, len(checked)):
        output = checked[index]
        name = operands[index].name
        if output.readonly:
            raise InvalidProblem(f"{plan.name}: {name} is read-only, expected an array that can be written")
        if is_tracked(output.owner):
            raise InvalidProblem(
                f"{plan.name}: {name} requires grad, and autograd would not see what is written to it; write to it "
                "under torch.no_grad(), or to another tensor"
            )
        if not output.contiguous and _overlaps_itself(output):
            raise InvalidProblem(f"{plan.name}: {name} has elements that share memory (strides {output.strides})")
        for other in range(index):
            view = checked[other]
            if not isinstance(view, View) or not _overlap(output, view):
                continue
            same_memory = (
                other < inputs
                and (view.pointer, view.shape, view.storage) == (output.pointer, output.shape, output.storage)
                and (view.strides == output.strides or (view.contiguous and output.contiguous))
                and may_coincide(plan, other, index)
            )
            if not same_memory:
                raise InvalidProblem(
                    f"{plan.name}: {name} overlaps {operands[other].name}; in place, it must be the same array"
                )


def _overlap(a: View, b: View) -> bool:
    """`aliasing.overlap`; most views are plainly apart, and a first call need not wait for it."""
    low_a, high_a = a.bounds()
    low_b, high_b = b.bounds()
    if low_a >= high_b or low_b >= high_a:
        return False
    from skuda.arrays.aliasing import overlap

    return overlap(a, b)


def _overlaps_itself(view: View) -> bool:
    from skuda.arrays.aliasing import overlaps_itself

    return overlaps_itself(view)
