"""The fast path from plain arrays to a launch: checks and parameters in one function without a loop.

Most calls have contiguous, aligned CuPy arrays or torch tensors on one GPU, each in memory of its own. For these a
plan has a function that compares each operand with what is expected, writes the pointers into a parameter block and
launches. It refuses whatever is different and never says why: then the plan checks in full.

The function's text is put together from the numbers of operands and their kinds alone (no name, type or value of a
caller is in it) and compiled once for each such pattern; what a plan expects are the variables of its closure.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from skuda.arrays.libraries import (
    cupy_dtype,
    device_of,
    library_of_plain,
    plain_library,
    stream_handle,
    torch_dtypes,
)
from skuda.arrays.views import View, contiguous_strides, with_axes
from skuda.launch.arguments import may_coincide
from skuda.launch.prepared import FastPath, refuse
from skuda.model.dtypes import DTYPES

if TYPE_CHECKING:
    from skuda.launch.prepared import Launch
    from skuda.plans.axis_views import AxisView
    from skuda.plans.multi_kernel import Stages
    from skuda.plans.plan import Plan

# Kinds of operands: an array in the output's shape, another array, a number for an integer or for a float.
_FULL, _ARRAY, _INTEGER, _REAL = "full", "array", "integer", "real"


def fast_path_of(
    plan: Plan, types: tuple[type, ...], device: int, axis_views: tuple[AxisView, ...] = ()
) -> FastPath:
    """The fast path of a plan for operands of these types on this device; `refuse` where there is none.

    Args:
        plan: a plan of the CUDA backend whose output has elements.
        types: of each operand, inputs first.
        device: CUDA ordinal.
        axis_views: of each operand in the array that is given for it; none where that is the operand.

    Returns:
        What takes the operands and a stream (None: the plan's, else the library's current) and returns whether it
        has launched. It may be called by several threads at once.
    """
    library = plain_library(types[-1])
    kinds = tuple([_kind(plan, index, cls, library) for index, cls in enumerate(types)])
    if library is None or None in kinds or plan.operation.analysis.stages:
        return refuse
    launch = _launch_of(plan, kinds, axis_views)
    return refuse if launch.workspace else _Maker(plan, launch, types, library, kinds, axis_views).on(device)


def _launch_of(plan: Plan, kinds: tuple[str, ...], axis_views: tuple[AxisView, ...]) -> Launch | Stages:
    """What serves contiguous, aligned arrays."""
    views = [
        View(0, shape, contiguous_strides(shape), DTYPES[word].storage, 0, True, False, None)
        if kind in (_FULL, _ARRAY)
        else 0
        for kind, shape, word in zip(kinds, [each.shape for each in axis_views] or plan.stored, plan.words, strict=True)
    ]
    if axis_views:
        views = [with_axes(view, each.axes) if view else 0 for view, each in zip(views, axis_views, strict=True)]
    return plan.launch_for(views)


def _kind(plan: Plan, index: int, cls: type, library: str | None) -> str | None:
    """What an operand is if it has this type; None for what only the full check understands."""
    if plain_library(cls) == library:
        return _FULL if plan.vectors[index] else _ARRAY
    operand = plan.operation.operands[index]
    if plan.full[index] or not operand.scalar or index >= len(plan.operation.inputs):
        return None
    kind = DTYPES[plan.words[index]].kind
    if kind == "int":
        return _INTEGER if cls is int else None
    return _REAL if kind == "float" and (cls is float or cls is int) else None


class _Maker:
    """Makes the function for one pattern of operands of one plan, on each device that is wanted."""

    def __init__(
        self,
        plan: Plan,
        launch: Launch,
        types: tuple[type, ...],
        library: str,
        kinds: tuple[str, ...],
        axis_views: tuple[AxisView, ...],
    ):
        self._made: dict[int, FastPath] = {}
        self._device_of = device_of[library]
        operation = plan.operation
        inputs = len(operation.inputs)
        storages = [DTYPES[word].storage for word in plan.words]
        shapes = [axis_view.shape for axis_view in axis_views] or plan.stored
        sizes = [prod(shape) * storage.itemsize for shape, storage in zip(shapes, storages)]
        self.launch = launch
        operands = plan.operation.operands
        pairs = tuple(
            (
                other,
                output,
                other < inputs and operands[other].dims == operands[output].dims and may_coincide(plan, other, output),
            )
            for output in range(inputs, len(kinds))
            for other in range(output)
            if kinds[other] in (_FULL, _ARRAY)
        )
        private = hasattr(types[-1], "_c_contiguous")
        contiguous = {"cupy": "_c_contiguous" if private else "flags.c_contiguous", "torch": "is_contiguous()"}
        handle = _STREAMS[library] if plan.stream is None else "current"
        self._factory = _factory(library, kinds, inputs, pairs, contiguous[library], handle)
        blank = launch.blank.copy()
        for position in launch.slots.positions:
            blank[position] = 0

        def block() -> tuple:
            """A parameter block: its words as integers and as reals, and its address for the driver."""
            memory, parameters = launch.slots.pack(blank.copy())
            return memory, (ctypes.c_double * len(memory)).from_buffer(memory), parameters

        self._expected: dict[str, Any] = {
            "block": block,
            "pool": [],  # blocks that no call uses now: the driver reads one without holding the interpreter's lock
            "stream_handle": stream_handle,
            "current": library_of_plain(types[-1]).current if plan.stream is None else plan.stream,
            "grid": launch.grid,
            "threads": launch.block,
            "shared": launch.shared,
            "elsewhere": self._elsewhere,
        }
        for index, kind in enumerate(kinds):
            word, storage = DTYPES[plan.words[index]], storages[index]
            expected = {
                "type": types[index],
                "word": launch.slots.words[launch.positions[index]],  # of a number: its first word, a pointer's
            }
            if kind in (_FULL, _ARRAY):
                expected |= {
                    "element": cupy_dtype(storage) if library == "cupy" else torch_dtypes()[storage],
                    "shape": shapes[index],
                    "spread": shapes[index] if axis_views else _spread(plan, index),
                    "below": -sizes[index],
                    "above": sizes[index],
                    "mask": storage.itemsize - 1,
                }
            elif kind == _INTEGER:
                expected |= {"lowest": word.lowest, "highest": word.highest}
            else:
                expected |= {"narrow": storage.type, "last": (None, None)}
            if kind in (_INTEGER, _REAL):
                expected |= {"real": expected["word"] + 1, "integer": expected["word"] + 2}
            self._expected |= {f"{name}{index}": value for name, value in expected.items()}

    def on(self, device: int) -> FastPath:
        """The function for a device; raises what `Kernel.on` does."""
        made = self._made.get(device)
        if made is None:
            loaded = self.launch.on(device)
            made = self._made[device] = self._factory(
                **self._expected,
                home=device,
                function=loaded.function,
                context=loaded.context,
                current_context=loaded.current_context,
                launch_kernel=loaded.launch_kernel,
                launch_there=loaded.launch,
            )
        return made

    def _elsewhere(self, values: Sequence, stream) -> bool:
        """For operands of which the last is not on the device that a function was made for."""
        return self.on(self._device_of(values[-1]))(values, stream)


def _spread(plan: Plan, index: int) -> tuple[int, ...]:
    """The other shape that an operand's array may have, with axes of one element for those that it lacks."""
    spread = plan.operation.spread(plan.operation.operands[index], plan.sizes)
    return plan.stored[index] if spread is None else spread[0]


_STREAMS = {"cupy": "current(device).ptr", "torch": "current(device)"}  # the library's current one


# ---- the text ----


@cache
def _factory(*pattern) -> Callable[..., FastPath]:
    """What makes the fast path of a plan from what `_Maker` collects, for a pattern as `_text` takes it."""
    space: dict[str, Any] = {}
    exec(compile(_text(*pattern), "<a fast path>", "exec"), space)
    return space["make"]


def _text(
    library: str,
    kinds: tuple[str, ...],
    inputs: int,
    pairs: tuple[tuple[int, int, bool], ...],
    contiguous: str,
    handle: str,
) -> str:
    everything = range(len(kinds))
    arrays = [index for index in everything if kinds[index] in (_FULL, _ARRAY)]
    full = [index for index in arrays if kinds[index] == _FULL]
    others = [index for index in arrays if kinds[index] == _ARRAY]
    reals = [index for index in everything if kinds[index] == _REAL]
    integers = [index for index in everything if kinds[index] == _INTEGER]
    last = arrays[-1]  # an output

    names = "block pool stream_handle current grid threads shared elsewhere home function context".split()
    names += "current_context launch_kernel launch_there".split()
    for index in everything:
        names += [f"type{index}", f"word{index}"]
        if index not in arrays:
            names += [f"real{index}", f"integer{index}"]
    for index in arrays:
        names += [f"{name}{index}" for name in ("element", "shape", "below", "above", "mask")]
    names += [f"spread{index}" for index in arrays]
    names += [f"{name}{index}" for index in integers for name in ("lowest", "highest")]
    names += [f"{name}{index}" for index in reals for name in ("narrow", "last")]

    read = [f"v{index}.dtype is not element{index}" for index in arrays]
    read += [f"v{index}.shape != shape{index}" for index in full]
    read += [f"v{index}.shape != shape{index} and v{index}.shape != spread{index}" for index in others]
    read += [f"not v{index}.{contiguous}" for index in arrays]
    if library == "cupy":
        pointers = [f"m{index} = v{index}.data" for index in arrays]
        pointers += [f"p{index} = m{index}.ptr" for index in arrays]
        device = "m{}.device_id"
    else:
        pointers = [f"p{index} = v{index}.data_ptr()" for index in arrays]
        device = "v{}.get_device()"
        read += [f"not v{index}.is_cuda" for index in arrays]
        read += [f"v{index}.is_neg()" for index in arrays]
        read += [f"not p{index}" for index in arrays]
        read += [f"v{index}.requires_grad" for index in arrays if index >= inputs]
    pointers.append(f"device = {device.format(last)}")
    read += [f"{device.format(index)} != device" for index in arrays if index != last]
    if full:
        read.append(f"({' | '.join(f'p{index}' for index in full)}) & 15")
    read += [f"p{index} & mask{index}" for index in others]
    checks = [*pointers, f"if {' or '.join(read)}:", "    return False"]
    if library == "torch":  # sparse, nested, or inside a function transform
        checks = ["try:", *[f"    {line}" for line in checks], "except RuntimeError:", "    return False"]
    for other, output, same in pairs:
        apart = f"below{other} < p{other} - p{output} < above{output}"
        checks += [f"if {apart}{f' and p{other} != p{output}' if same else ''}:", "    return False"]

    numbers, writes = [], [f"words[word{index}] = p{index}" for index in arrays]
    for index in integers:
        numbers += [f"if not lowest{index} <= v{index} <= highest{index}:", "    return False"]
        writes += [f"reals[real{index}] = v{index}", f"words[integer{index}] = v{index}"]
    for index in reals:  # most calls have the number of the call before: the same object, so not -0.0 for 0.0
        numbers += [
            f"before, r{index} = last{index}",
            f"if v{index} is not before:",
            "    try:",
            f"        r{index} = float(narrow{index}(v{index}))",
            "    except OverflowError:",
            "        return False",
            f"    if type(v{index}) is int and r{index} - r{index} != 0:",  # beyond the largest value
            "        return False",
            f"    last{index} = v{index}, r{index}",
        ]
        writes.append(f"reals[real{index}] = r{index}")

    body = [
        *([f"nonlocal {', '.join(f'last{index}' for index in reals)}"] if reals else []),
        f"{', '.join(f'v{index}' for index in everything)}, = values",
        f"if {' or '.join(f'type(v{index}) is not type{index}' for index in everything)}:",
        "    return False",
        *checks,
        *numbers,
        "if device != home:",
        "    return elsewhere(values, stream)",
        f"handle = {handle} if stream is None else stream_handle(stream)",
        "try:",
        "    used = pool.pop()",
        "except IndexError:",
        "    used = block()",
        "words, reals, parameters = used",
        *writes,
        "if current_context() == context:",
        "    launch_kernel(function, grid, 1, 1, threads, 1, 1, shared, handle, parameters, 0)",
        "else:",
        "    launch_there(grid, threads, handle, parameters, shared)",
        "pool.append(used)",
        "return True",
    ]
    lines = ["    def fast_path(values, stream):", *[f"        {line}" for line in body], "    return fast_path"]
    return "\n".join([f"def make({', '.join(names)}):", *lines, ""])
