"""The fast path from plain arrays to a launch: checks and parameters in one function without a loop.

Most calls have contiguous, aligned CuPy arrays or torch tensors on one GPU, each in memory of its own. For these a
plan has a function that compares each operand with what is expected, writes the pointers into a parameter block and
launches. It refuses whatever is different and never says why: then the plan checks in full.

A function form has one more step: `ready_of` makes of a plan what takes a call's values, allocates where there is no
`out` and returns what the call returns. It serves the calls that repeat the last one of an operation.

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
    WATCHERS,
    cupy_dtype,
    device_of,
    library_of_plain,
    plain_library,
    stream_handle,
    torch_dtypes,
)
from skuda.arrays.views import View, contiguous_strides, with_axes
from skuda.launch.arguments import may_coincide
from skuda.launch.prepared import FOLLOWED, FastPath, Ready, refuse
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


def ready_of(
    plan: Plan, types: tuple[type, ...], device: int, axis_views: tuple[AxisView, ...], call: tuple
) -> Ready | None:
    """What serves the calls of a function form that repeat one: as `fast_path_of`, for one device.

    Args:
        call: the attributes of the call, the very objects, and its options as one tuple.

    Returns:
        What takes the values, the attributes, the options and a stream, and returns what the call returns; None where
        it does not serve the call, `FOLLOWED` where it would if no gradient had to be recorded. None if there is none.
    """
    library = plain_library(types[-1])
    kinds = tuple([_kind(plan, index, cls, library) for index, cls in enumerate(types)])
    if library is None or None in kinds or plan.operation.analysis.stages:
        return None
    launch = _launch_of(plan, kinds, axis_views)
    if launch.workspace:
        return None
    return _Maker(plan, launch, types, library, kinds, axis_views).ready(device, call)


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
        self._results = plan.results_type
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
        self._library, self._types = library, types
        self._pattern = library, kinds, inputs, pairs, contiguous[library], handle
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
                    "single": prod(shapes[index]) == 1,
                    "strides": contiguous_strides(shapes[index]),
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
            make = _factory(*self._pattern)
            made = self._made[device] = make(**self._expected, **self._on(device))
        return made

    def ready(self, device: int, call: tuple) -> Ready:
        """The function for calls that repeat one."""
        attributes, asked = call
        library = library_of_plain(self._types[-1])
        known = {f"attribute{index}": value for index, value in enumerate(attributes)}
        known |= {"named": tuple.__new__, "results": self._results}
        known |= {"asked": asked, "FOLLOWED": FOLLOWED, "empty": library.contiguous, "wrote": library.wrote}
        known |= library.followers
        make = _factory(*self._pattern, len(attributes))
        return make(**self._expected, **self._on(device), **known)

    def _on(self, device: int) -> dict[str, Any]:
        """What launches on a device."""
        loaded = self.launch.on(device)
        return {
            "home": device,
            "function": loaded.function,
            "context": loaded.context,
            "current_context": loaded.current_context,
            "launch_kernel": loaded.launch_kernel,
            "launch_there": loaded.launch,
        }

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
def _factory(*pattern) -> Callable[..., Callable]:
    """What makes a function from what `_Maker` collects, for a pattern as `_Text` takes it; with a number of attributes
    at its end, the function of a call."""
    space: dict[str, Any] = {}
    text = _Text(*pattern[:6])
    exec(compile(text.of_call(*pattern[6:]) if pattern[6:] else text.of_plan(), "<a fast path>", "exec"), space)
    return space["make"]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


class _Text:
    """The text of functions for one pattern of operands."""

    def __init__(
        self,
        library: str,
        kinds: tuple[str, ...],
        inputs: int,
        pairs: tuple[tuple[int, int, bool], ...],
        contiguous: str,
        handle: str,
    ):
        self.is_torch = library == "torch"
        self.inputs, self.all = range(inputs), range(len(kinds))
        self.outputs = self.all[inputs:]
        self.pairs, self.contiguous, self.handle = pairs, contiguous, handle
        self.arrays = [index for index in self.all if kinds[index] in (_FULL, _ARRAY)]
        self.full = [index for index in self.arrays if kinds[index] == _FULL]
        self.reals = [index for index in self.all if kinds[index] == _REAL]
        self.integers = [index for index in self.all if kinds[index] == _INTEGER]

    def of_plan(self) -> str:
        """A function of a plan's operands: whether it has launched."""
        everything = ", ".join(f"v{index}" for index in self.all)
        body = [
            f"{everything}, = values",
            *self._refused(self._types(self.all), "False"),
            *self._read(self.arrays, self.arrays[-1], "False"),
            *self._apart("False"),
            *self._numbers("False"),
            "if device != home:",
            "    return elsewhere(values, stream)",
            *self._launch(),
            "return True",
        ]
        return self._made("def made(values, stream):", body, ["elsewhere"])

    def of_call(self, attributes: int) -> str:
        """A function of a call that repeats one: what the call returns, None or FOLLOWED."""
        outputs = ", ".join(f"v{index}" for index in self.outputs)
        several = len(self.outputs) > 1
        inputs = [index for index in self.arrays if index in self.inputs]
        other = []
        for index in range(attributes):  # the same object, or the same float: -0.0 == 0.0, 1 == 1.0, (True,) == (1,)
            given, known = f"attributes[{index}]", f"attribute{index}"
            differs = f"type({given}) is not float or type({known}) is not float or {given} != {known} or not {known}"
            other.append(f"{given} is not {known} and ({differs})")
        gradients = " or ".join(f"v{index}.requires_grad" for index in inputs)
        given = [f"{outputs} = out"]
        if several:
            is_tuple = "type(out) is tuple or type(out) is results"
            given = [*self._refused([f"not ({is_tuple})", f"len(out) != {len(self.outputs)}"]), *given]
        given += self._refused(self._types(self.outputs))
        given += [*self._read([*self.outputs], None, recorded="recorded and "), *self._apart()]
        new = []
        for index in self.outputs:
            new += [f"v{index} = empty(shape{index}, strides{index}, element{index})", *self._pointer(index)]
        followed = []
        watched = " or ".join([f"{name}()" for name in WATCHERS])
        if self.is_torch:
            followed = ["recorded = gradients()", f"followed = recorded and ({gradients})", *self._refused([watched])]
            given = [*self._refused(["followed"]), *given]
            new = ["if followed:", "    return FOLLOWED if stream is None else None", *new]
        body = [
            f"{''.join(f'v{index}, ' for index in self.inputs)}out = values",
            *self._refused(self._types(self.inputs)),
            "try:",  # an option may be anything
            *_indented(self._refused([*other, "options != asked"])),
            "except Exception:",
            "    return None",
            *self._read(inputs, inputs[0]),
            *followed,
            *self._refused(["device != home", "current_context() != context"]),
            *self._numbers(),
            "if out is None:",
            *_indented(new),
            "else:",
            *_indented(given),
            *self._launch(there=True),
            "if out is not None:",
            *([f"    wrote(({outputs},))"] if self.is_torch else []),
            "    return out",
            f"return {f'named(results, ({outputs}))' if several else outputs}",
        ]
        names = ["asked", "FOLLOWED", "named", "results", "empty", "wrote"]
        names += [f"attribute{index}" for index in range(attributes)]
        names += [f"strides{index}" for index in self.outputs]
        return self._made("def made(values, attributes, options, stream):", body,
                          [*names, *(["gradients", *WATCHERS] if self.is_torch else [])])  # fmt: skip

    def _made(self, head: str, body: list[str], more: list[str]) -> str:
        names = "block pool stream_handle current grid threads shared home function context".split()
        names += ["current_context", "launch_kernel", "launch_there", *more]
        for index in self.all:
            names += [f"type{index}", f"word{index}"]
            if index not in self.arrays:
                names += [f"real{index}", f"integer{index}"]
        for index in self.arrays:
            names += [f"{name}{index}" for name in ("element", "shape", "below", "above", "mask", "single", "spread")]
        names += [f"{name}{index}" for index in self.integers for name in ("lowest", "highest")]
        names += [f"{name}{index}" for index in self.reals for name in ("narrow", "last")]
        lasting = [f"nonlocal {', '.join(f'last{index}' for index in self.reals)}"] if self.reals else []
        lines = [head, *_indented([*lasting, *body]), "return made"]
        return "\n".join([f"def make({', '.join(names)}, **_):", *_indented(lines), ""])

    def _refused(self, conditions: Sequence[str], result: str = "None") -> list[str]:
        return [f"if {' or '.join(conditions)}:", f"    return {result}"]

    def _types(self, indices: Sequence[int]) -> list[str]:
        return [f"type(v{index}) is not type{index}" for index in indices]

    def _pointer(self, index: int) -> list[str]:
        if self.is_torch:
            return [f"p{index} = v{index}.data_ptr()"]
        return [f"m{index} = v{index}.data", f"p{index} = m{index}.ptr"]

    def _read(
        self, indices: Sequence[int], first: int | None, result: str = "None", recorded: str = ""
    ) -> list[str]:
        """Their pointers, after checks of what they are; `device` is that of one of them, or is known already."""
        device = "v{}.get_device()" if self.is_torch else "m{}.device_id"
        lines = [line for index in indices for line in self._pointer(index)]
        if first is not None:
            lines.append(f"device = {device.format(first)}")
        read = [f"v{index}.dtype is not element{index}" for index in indices]
        for index in indices:
            spread = "" if index in self.full else f" and v{index}.shape != spread{index}"
            read.append(f"v{index}.shape != shape{index}{spread}")
        read += [f"not v{index}.{self.contiguous}" for index in indices]
        if self.is_torch:
            # What is lazily negated is every second number of a complex tensor: contiguous if it is one element alone.
            read += [f"not v{index}.is_cuda" for index in indices]
            read += [f"single{index} and v{index}.is_neg()" for index in indices]
            read += [f"not p{index}" for index in indices]
            read += [f"{recorded}v{index}.requires_grad" for index in indices if index in self.outputs]
        read += [f"{device.format(index)} != device" for index in indices if index != first]
        full = [f"p{index}" for index in indices if index in self.full]
        if full:
            read.append(f"({' | '.join(full)}) & 15")
        read += [f"p{index} & mask{index}" for index in indices if index not in self.full]
        lines += self._refused(read, result)
        if self.is_torch:  # sparse, nested, or inside a function transform
            return ["try:", *_indented(lines), "except RuntimeError:", f"    return {result}"]
        return lines

    def _apart(self, result: str = "None") -> list[str]:
        lines = []
        for other, output, same in self.pairs:
            apart = f"below{other} < p{other} - p{output} < above{output}"
            lines += self._refused([f"{apart}{f' and p{other} != p{output}' if same else ''}"], result)
        return lines

    def _numbers(self, result: str = "None") -> list[str]:
        lines = []
        for index in self.integers:
            lines += self._refused([f"not lowest{index} <= v{index} <= highest{index}"], result)
        for index in self.reals:  # most calls have the number of the call before: the same object, so not -0.0 for 0.0
            lines += [
                f"before, r{index} = last{index}",
                f"if v{index} is not before:",
                "    try:",
                f"        r{index} = float(narrow{index}(v{index}))",
                "    except OverflowError:",
                f"        return {result}",
                f"    if type(v{index}) is int and r{index} - r{index} != 0:",  # beyond the largest value
                f"        return {result}",
                f"    last{index} = v{index}, r{index}",
            ]
        return lines

    def _launch(self, there: bool = False) -> list[str]:
        """What launches; `there` where the context is known to be the current one."""
        writes = [f"words[word{index}] = p{index}" for index in self.arrays]
        for index in self.integers:
            writes += [f"reals[real{index}] = v{index}", f"words[integer{index}] = v{index}"]
        writes += [f"reals[real{index}] = r{index}" for index in self.reals]
        launch = ["launch_kernel(function, grid, 1, 1, threads, 1, 1, shared, handle, parameters, 0)"]
        if not there:
            other = "    launch_there(grid, threads, handle, parameters, shared)"
            launch = ["if current_context() == context:", *_indented(launch), "else:", other]
        return [
            f"handle = {self.handle} if stream is None else stream_handle(stream)",
            "try:",
            "    used = pool.pop()",
            "except IndexError:",
            "    used = block()",
            "words, reals, parameters = used",
            *writes,
            *launch,
            "pool.append(used)",
        ]
