"""The fast path from plain arrays to a launch: checks and parameters in one function without a loop.

Most calls have contiguous, aligned arrays of CuPy, NumPy or torch on one device, each in memory of its own. For these a
plan has a function that compares each operand with what is expected, writes the pointers into a parameter block and
launches. It refuses whatever is different and never says why: then the plan checks in full.

A function form has one more step: `ready_of` makes of a plan what takes a call's values, allocates where there is no
`out` and returns what the call returns. It serves the calls that repeat the last one of an operation.

What a plan expects are the variables of a closure, which is made here; its text is `fast_path_text`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from skuda.arrays.libraries import (
    device_of,
    dtype_of,
    library_of_plain,
    plain_library,
    pointer_of,
    stream_handle,
)
from skuda.arrays.views import View, contiguous_strides
from skuda.launch.arguments import may_coincide
from skuda.launch.fast_path_text import ARRAY, FULL, INTEGER, REAL, SHAPE, Text, factory
from skuda.launch.prepared import FastPath, Launch, Ready, Repeated, refuse
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind

if TYPE_CHECKING:
    from skuda.plans.axis_views import AxisView
    from skuda.plans.plan import Plan

_BYTE = np.dtype(np.uint8)


def fast_path_of(plan: Plan, types: tuple[type, ...], device: int, axis_views: tuple[AxisView, ...] = ()) -> FastPath:
    """The fast path of a plan for operands of these types on this device; `refuse` where there is none.

    Args:
        plan: a plan whose output has elements, of the backend CUDA or CPU.
        types: of each operand, inputs first.
        device: CUDA ordinal, or the CPU.
        axis_views: of each operand in the array that is given for it; none where that is the operand.

    Returns:
        What takes the operands, a stream (None: the plan's, else the library's current) and whether it may allocate a
        workspace, and returns whether it has launched. It may be called by several threads at once.
    """
    library = _library(plan, types)
    kinds = tuple([_kind(plan, index, cls, library) for index, cls in enumerate(types)])
    if library is None or None in kinds:
        return refuse
    return _Maker(plan, types, library, kinds, axis_views).on(device)


def ready_of(
    plan: Plan, types: tuple[type, ...], device: int, axis_views: tuple[AxisView, ...], call: tuple
) -> Ready | None:
    """What serves the calls of a function form that repeat one: as `fast_path_of`, for one device.

    Args:
        call: the attributes of the call, the very objects, and its options as one tuple.

    Returns:
        What takes the values, the attributes, the options and a stream, and returns what the call returns; None where
        it does not serve the call, a `Repeated` where a gradient has to be recorded. None if there is none.
    """
    library = _library(plan, types)
    kinds = tuple([_kind(plan, index, cls, library) for index, cls in enumerate(types)])
    if library is None or None in kinds:
        return None
    return _Maker(plan, types, library, kinds, axis_views).ready(device, call)


_APART = 1 << 40  # bytes from one operand to the next, where only which is which counts


def _launches_of(plan: Plan, kinds: tuple[str, ...], axis_views: tuple[AxisView, ...]) -> tuple[list, int]:
    """What serves contiguous, aligned arrays: each launch with what its `slots` pack, and the bytes of the workspace.

    Operand n, an array, begins at n + 1 times _APART; the workspace does behind the last; a number is n + 1.
    """
    shapes = [each.shape for each in axis_views] or plan.stored
    checked: list = []
    for index, (kind, shape, word) in enumerate(zip(kinds, shapes, plan.words, strict=True)):
        if kind in (FULL, ARRAY):
            start, strides, storage = (index + 1) * _APART, contiguous_strides(shape), DTYPES[word].storage
            view = View(start, shape, strides, storage, 0, True, False, None)
            checked.append(axis_views[index].within(view) if axis_views else view)
        else:
            checked.append(index + 1)
    launch = plan.launch_for(checked)
    return launch.launches(checked, (len(kinds) + 1) * _APART), launch.workspace


def _library(plan: Plan, types: tuple[type, ...]) -> str | None:
    """The library of the last operand's type, if a plan's backend can have such arrays."""
    library = plain_library(types[-1])
    return None if library == ("cupy" if plan.backend is BackendKind.CPU else "numpy") else library


def _kind(plan: Plan, index: int, cls: type, library: str | None) -> str | None:
    """What an operand is if it has this type; None for what only the full check understands."""
    if plain_library(cls) == library:
        return FULL if plan.vectors[index] else ARRAY
    operand = plan.operation.operands[index]
    if plan.full[index] or not operand.scalar or index >= len(plan.operation.inputs):
        return None
    kind = DTYPES[plan.words[index]].kind
    if kind == "int":
        return INTEGER if cls is int else None
    return REAL if kind == "float" and (cls is float or cls is int) else None


class _Maker:
    """Makes the function for one pattern of operands of one plan, on each device that is wanted."""

    def __init__(
        self,
        plan: Plan,
        types: tuple[type, ...],
        library: str,
        kinds: tuple[str, ...],
        axis_views: tuple[AxisView, ...],
    ):
        self._made: dict[int, FastPath] = {}
        self._device_of = device_of[library]
        self._results = plan.results_type
        operation = plan.operation
        inputs = len(operation.inputs)
        storages = [DTYPES[word].storage for word in plan.words]
        shapes = [axis_view.shape for axis_view in axis_views] or plan.stored
        sizes = [prod(shape) * storage.itemsize for shape, storage in zip(shapes, storages)]
        operands = plan.operation.operands
        pairs = tuple(
            (
                other,
                output,
                other < inputs
                and operands[other].dims == operands[output].dims
                and may_coincide(plan, other, output)
                and _alike(axis_views, other, output),
            )
            for output in range(inputs, len(kinds))
            for other in range(output)
            if kinds[other] in (FULL, ARRAY) and not (other >= inputs and _halves(axis_views, other, output))
        )
        private = hasattr(types[-1], "_c_contiguous")  # of CuPy
        contiguous = "is_contiguous()" if library == "torch" else "_c_contiguous" if private else "flags.c_contiguous"
        on_cpu = plan.backend is BackendKind.CPU
        self._on_cpu = plan.on_threads if on_cpu else None  # what starts launches there
        handle = "0" if on_cpu else _STREAMS[library] if plan.stream is None else "current"
        self._library, self._types = library, types
        launches, workspace = _launches_of(plan, kinds, axis_views)
        self.launches: list[Launch] = [launch for launch, _ in launches]
        own = library_of_plain(types[-1])
        blocks = []
        for launch in self.launches:
            blank = launch.blank.copy()
            for position in launch.slots.positions:
                blank[position] = 0
            blocks.append((launch.slots, blank))

        def block() -> tuple:
            """Of each launch a parameter block: its words as integers and as reals, its address for what launches."""
            found: list = []
            for slots, blank in blocks:
                memory, parameters = slots.pack(blank.copy())
                parameters = ctypes.addressof(memory) if on_cpu else parameters
                found += [memory, (ctypes.c_double * len(memory)).from_buffer(memory), parameters]
            return tuple(found)

        self._expected: dict[str, Any] = {
            "block": block,
            "pool": [],  # blocks that no call uses now: the driver reads one without holding the interpreter's lock
            "stream_handle": stream_handle,
            "current": own.current if plan.stream is None and not on_cpu else plan.stream,
            "elsewhere": self._elsewhere,
            "scratch_of": own.scratch,
            "pointer_of": pointer_of,
            "room": workspace,
            "flat": (workspace,),
            "one": (1,),
            "byte": dtype_of[library](_BYTE),
        }
        steps = tuple([self._step(which, *launch, workspace > 0) for which, launch in enumerate(launches)])
        self._pattern = library, kinds, inputs, pairs, contiguous, handle, steps, workspace > 0, on_cpu
        for index, kind in enumerate(kinds):
            word, storage = DTYPES[plan.words[index]], storages[index]
            expected = {"type": types[index]}
            if kind in (FULL, ARRAY):
                expected |= {
                    "element": dtype_of[library](storage),
                    "shape": shapes[index],
                    "spread": shapes[index] if axis_views else _spread(plan, index),
                    "below": -sizes[index],
                    "above": sizes[index],
                    "mask": storage.itemsize - 1,
                    "single": prod(shapes[index]) == 1,
                    "strides": contiguous_strides(shapes[index]),
                }
            elif kind == INTEGER:
                expected |= {"lowest": word.lowest, "highest": word.highest}
            else:
                expected |= {"narrow": storage.type, "last": (None, None)}
            self._expected |= {f"{name}{index}": value for name, value in expected.items()}

    def _step(self, which: int, launch: Launch, filled: list, has_workspace: bool) -> tuple:
        """What the text says of one launch: the operand that each of its pointers and numbers is, None for the
        workspace; of each of its kernels whether it begins before the one in front has ended; and which of these
        pointers are behind the beginning of an array."""
        sources: list[int | None] = []
        shifted: list[int] = []
        for position in launch.slots.positions:
            value, word = filled[position], launch.slots.words[position]
            if value and type(value) is float:
                sources.append(int(value) - 1)
                self._expected |= {f"real{which}_{len(sources)}": word, f"integer{which}_{len(sources)}": word + 1}
            elif value >= (len(self._types) + 1) * _APART:
                if has_workspace:
                    sources.append(None)
                    offset = value % _APART
                    self._expected |= {f"word{which}_{len(sources)}": word, f"offset{which}_{len(sources)}": offset}
            elif value >= _APART:
                sources.append(value // _APART - 1)
                self._expected[f"word{which}_{len(sources)}"] = word
                if value % _APART:
                    shifted.append(len(sources))
                    self._expected[f"offset{which}_{len(sources)}"] = value % _APART
        dependent = launch.dependent, launch.of_few
        return tuple(sources), dependent, launch.geometry.finish is not None, tuple(shifted)

    def on(self, device: int) -> FastPath:
        """The function for a device; raises what `Kernel.on` does."""
        made = self._made.get(device)
        if made is None:
            make = factory(Text.of_plan, (), *self._pattern)
            made = self._made[device] = make(**self._expected, **self._on(device))
        return made

    def ready(self, device: int, call: tuple) -> Ready:
        """The function for calls that repeat one."""
        attributes, asked = call
        library = library_of_plain(self._types[-1])
        known = {f"attribute{index}": value for index, value in enumerate(attributes)}
        known |= {"named": tuple.__new__, "results": self._results}
        empty = library.contiguous_on_cpu if self._on_cpu else library.contiguous
        known |= {"asked": asked, "empty": empty, "wrote": library.wrote}
        known |= library.followers
        known["whole"] = [int for _ in asked[SHAPE] or ()]
        known["repeated"] = repeated = Repeated(attributes, asked)
        known |= self._expected | self._on(device)
        if self._library == "torch":
            repeated.ready = factory(Text.of_recorded, (False,), *self._pattern)(**known)
            repeated.alone = factory(Text.of_recorded, (True,), *self._pattern)(**known)
        made = factory(Text.of_call, (len(attributes), asked[SHAPE] is not None), *self._pattern)(**known)
        made.repeated = repeated
        return made

    def _on(self, device: int) -> dict[str, Any]:
        """What launches on a device: of each launch, its kernels."""
        if self._on_cpu:
            return self._on_cpu(self.launches)
        found: dict[str, Any] = {"home": device}
        for which, launch in enumerate(self.launches):
            loaded = launch.on(device)
            found |= {
                "context": loaded.context,
                "current_context": loaded.current_context,
                "launch_kernel": loaded.launch_kernel,
                f"function{which}": loaded.function,
                f"shared{which}": launch.shared,
            }
            for kernel, (start, grid, threads) in enumerate(launch.kernels(device)):
                values = {"start": start, "grid": grid, "threads": threads}
                found |= {f"{name}{which}_{kernel}": value for name, value in values.items()}
        return found

    def _elsewhere(self, values: Sequence, stream) -> bool:
        """For operands of which the last is not on the device that a function was made for."""
        return self.on(self._device_of(values[-1]))(values, stream)


def _halves(axis_views: Sequence[AxisView], one: int, other: int) -> bool:
    """Whether two operands are the two halves of one array."""
    return bool(axis_views) and {axis_views[one].half, axis_views[other].half} == {0, 1}


def _alike(axis_views: Sequence[AxisView], one: int, other: int) -> bool:
    """Whether two operands are of arrays of one shape, where some are halves of arrays: no element of the one is then
    another element of the other, if these are one array."""
    halves = [axis_views[each].half for each in (one, other)] if axis_views else []
    if halves.count(None) == len(halves):
        return True
    return None not in halves and axis_views[one].shape == axis_views[other].shape


def _spread(plan: Plan, index: int) -> tuple[int, ...]:
    """The other shape that an operand's array may have, with axes of one element for those that it lacks."""
    spread = plan.operation.spread(plan.operation.operands[index], plan.sizes)
    return plan.stored[index] if spread is None else spread[0]


_STREAMS = {"cupy": "current(home).ptr", "torch": "current(home)"}  # the library's current one
