"""Launches that are ready to go, and the short way to one.

`Launch` is what calls whose operands lie alike have in common; `Ready` is one of them with its arguments,
checked and packed. Most calls have contiguous, aligned arrays of one library, each in memory of its own: a
`Common` recognises these without making a `View` of each. It refuses whatever is different and never says
why: then the plan checks in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from skuda import dispatch, mapping, schedules
from skuda.dtypes import DTYPES
from skuda.family import family_of, torch_dtypes
from skuda.kernel import Slots
from skuda.tensor import View

if TYPE_CHECKING:
    from skuda.family import Family
    from skuda.kernel import Loaded
    from skuda.plan import Plan


class Launch:
    """The kernel, the grid and the parameters of calls whose operands lie alike, but for pointers and numbers.

    Attributes:
        geometry: what runs.
        grid: blocks.
        slots: the kernel's argument.
        blank: `slots.blank`, with nothing in the places of numbers.
        places: where in it each operand's pointer goes; those of a number follow.
        loaded: the kernel by device, as far as it was wanted.
    """

    def __init__(self, plan: Plan, geometry: mapping.Geometry):
        operation, full = plan.operation, plan.full
        self.geometry = geometry
        self.grid = geometry.grid
        self._entry = schedules.entry(operation, plan.types, geometry.variant)
        self._source = plan.package, operation.source
        self.loaded: dict[int, Loaded] = {}
        inputs = range(len(operation.inputs))
        self._single = tuple(
            index in inputs and not full[index] and o.scalar for index, o in enumerate(operation.operands)
        )
        arrays = [index for index in inputs if full[index]]
        parameters = [index for index in inputs if not full[index] and not self._single[index]]
        scalars = [index for index in inputs if self._single[index]]
        outputs = range(len(inputs), len(operation.operands))

        def pointers(indices) -> list[Any]:
            """Each operand's pointer and what belongs to it."""
            found: list[Any] = []
            for index in indices:
                found += [int, *geometry.strides.get(operation.operands[index].name, ())]
            return found

        self.slots = slots = Slots(
            [
                *geometry.head,
                *pointers(arrays),
                *pointers(parameters),
                *[int, float, int] * len(scalars),
                *plan.values.values(),
                *pointers(outputs),
            ]
        )
        self.blank = slots.blank.copy()
        free = iter(slots.places)
        places: dict[int, int] = {}
        for index in (*arrays, *parameters, *scalars, *outputs):
            places[index] = next(free)
            if self._single[index]:
                self.blank[next(free)], self.blank[next(free)] = 0.0, 0
        self.places = tuple(places[index] for index in range(len(places)))

    def on(self, device: int) -> Loaded:
        """The kernel ready to launch on a device; raises what `Kernel.on` does."""
        loaded = self.loaded.get(device)
        if loaded is None:
            loaded = self.loaded[device] = dispatch.kernel(*self._source, self._entry).on(device)
        return loaded

    def filled(self, checked: Sequence[View | int | float]) -> list:
        """What `Slots.pack` takes, for operands that have been checked."""
        filled = self.blank.copy()
        for value, place, single in zip(checked, self.places, self._single, strict=True):
            if single and not isinstance(value, View):
                filled[place : place + 3] = 0, float(value), value if isinstance(value, int) else 0
            else:
                filled[place] = value.pointer
        return filled


class Ready:
    """A launch whose arguments have been checked and packed. The arguments hold it, and keep the arrays alive.

    CuPy's arrays cannot get other memory. Torch's can (`set_`, `resize_`, a storage that is freed): their
    addresses are asked again at each launch. Not noticed is an array that keeps its address but gets another
    shape, or a smaller storage at the same place: whoever does that to arrays of arguments makes new ones.

    Attributes:
        plan: whose it is.
        launch: the kernel's, to be given the grid and the parameters.
        grid: blocks.
        block: threads of one.
        parameters: address of the driver's parameters.
        device: CUDA ordinal.
        current_stream: of the first array's library.
        addresses: the data_ptr methods of torch tensors, which can get other memory behind our back.
        pointers: what these said.
        lasting: whether nothing else about the arrays can change what was checked.
    """

    __slots__ = (
        "_memory",
        "addresses",
        "block",
        "current_stream",
        "device",
        "grid",
        "lasting",
        "launch",
        "parameters",
        "plan",
        "pointers",
    )

    def __init__(
        self,
        plan: Plan,
        launch: Launch,
        loaded: Loaded,
        filled: list,
        family: Family,
        addresses: list | None,
        lasting: bool,
    ):
        self.plan = plan
        self.launch = loaded.launch
        self.grid = launch.grid
        self.block = launch.geometry.block
        self._memory, self.parameters = launch.slots.pack(filled)
        self.device = loaded.device
        self.current_stream = family.current_stream
        self.lasting = lasting
        self.addresses = addresses
        if addresses is not None:
            self.pointers = [data_ptr() for data_ptr in addresses]

    def __reduce__(self):
        """A copy of the arguments may have arrays of its own, so it is checked anew."""
        return type(None), ()


def ready_of_views(
    plan: Plan, launch: Launch, values: Sequence, checked: Sequence[View | int | float]
) -> Ready:
    """The launch of operands that were checked in full, `checked` being the views and numbers of `values`."""
    arrays = [(value, view) for value, view in zip(values, checked, strict=True) if isinstance(view, View)]
    first = arrays[0][1]
    lasting = all([plain_library(type(value)) is not None for value, _ in arrays])
    addresses = _addresses(values)
    return Ready(
        plan,
        launch,
        launch.on(first.device),
        launch.filled(checked),
        family_of(first.owner),
        addresses,
        lasting,
    )


# ---- the short way ----

_CLASSES = {
    ("cupy", "ndarray"): "cupy",
    ("torch", "Tensor"): "torch",
    ("torch.nn.parameter", "Parameter"): "torch",
}
_LIBRARIES: dict[type, str | None] = {}


def plain_library(cls: type) -> str | None:
    """ "cupy" or "torch" for their own array classes, whose behaviour is known; None for others, derived ones too."""
    library = _LIBRARIES.get(cls, "")
    if library == "":
        library = _LIBRARIES[cls] = _CLASSES.get((cls.__module__, cls.__name__))
    return library


class Common:
    """The common case of one plan's calls with the arrays of one library.

    Args:
        plan: a plan of the CUDA backend whose output has elements.
        library: "cupy" or "torch".
        family: that library.

    Attributes:
        launch: what serves it.
    """

    def __init__(self, plan: Plan, library: str, family: Family):
        operation = plan.operation
        inputs = len(operation.inputs)
        storages = [DTYPES[word].storage for word in plan.words]
        strides = [contiguous_strides(shape) for shape in plan.stored]
        dense = [
            View(0, shape, steps, storage, 0, True, False, None)
            for shape, steps, storage in zip(plan.stored, strides, storages, strict=True)
        ]
        self.launch = launch = plan.launch_for(dense)
        self._plan = plan
        self._blank = launch.blank
        self._loaded = launch.loaded
        self._family = family
        self._moves = library == "torch"
        self._fill = _fill_cupy if library == "cupy" else _fill_torch
        # Of each operand: dtype, shape, strides, the bits of its pointer that must be 0, the pointer's place,
        # and what takes in a number.
        self._expected = []
        for index, (operand, word, storage) in enumerate(
            zip(operation.operands, plan.words, storages, strict=True)
        ):
            if library == "cupy":
                element, steps = storage, tuple([step * storage.itemsize for step in strides[index]])
            else:
                element, steps = torch_dtypes()[storage], strides[index]
            misaligned = 15 if plan.vectors[index] else storage.itemsize - 1
            takes_number = operand.scalar and index < inputs and not plan.full[index]
            number = _number_of(word) if takes_number else None
            self._expected.append(
                (element, plan.stored[index], steps, misaligned, launch.places[index], number)
            )
        # Of each output and each operand before it: the places of their pointers; how far the operand must
        # be below and above the output, in bytes; whether they may be the same array.
        sizes = [prod(shape) * storage.itemsize for shape, storage in zip(plan.stored, storages, strict=True)]
        self._pairs = [
            (
                launch.places[output],
                launch.places[other],
                -sizes[other],
                sizes[output],
                other < inputs and plan.full[other] and plan.words[other] == plan.words[output],
            )
            for output in range(inputs, len(sizes))
            for other in range(output)
        ]

    def ready(self, values: Sequence) -> Ready | None:
        """The operands' launch; None where they are not of the common case."""
        filled = self._blank.copy()
        device = self._fill(values, self._expected, filled)
        if device is None:
            return None
        for place, other, low, high, same in self._pairs:
            distance = filled[other] - filled[place]
            if low < distance < high and (distance or not same):
                return None
        loaded = self._loaded.get(device) or self.launch.on(device)
        addresses = _addresses(values) if self._moves else None
        return Ready(self._plan, self.launch, loaded, filled, self._family, addresses, True)


def _addresses(values: Sequence) -> list | None:
    """The data_ptr methods of the torch tensors among some operands."""
    return [value.data_ptr for value in values if _LIBRARIES.get(type(value)) == "torch"] or None


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Distances in elements along the axes of a C-contiguous array."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _number_of(word: str):
    """A function that gives a number's slots; None for what has to be refused or looked at more closely."""
    dtype = DTYPES[word]
    if dtype.kind == "int":
        lowest, highest = dtype.lowest, dtype.highest
        return lambda value: (
            (0, float(value), value) if type(value) is int and lowest <= value <= highest else None
        )
    narrow = dtype.storage.type
    last = None, None  # most calls have the number of the call before: the same object, so not -0.0 for 0.0

    def number(value):
        nonlocal last
        before, slots = last
        if value is not before or slots is None:
            if type(value) is not float:
                return None
            slots = 0, float(narrow(value)), 0
            last = value, slots
        return slots

    return number


def _fill_cupy(values: Sequence, expected: list[tuple], filled: list) -> int | None:
    """Fills in pointers and numbers; the device, or None."""
    cls = type(values[-1])
    device = values[-1].data.device_id
    for value, (element, shape, strides, misaligned, place, number) in zip(values, expected):
        if type(value) is not cls:
            slots = number and number(value)
            if slots is None:
                return None
            filled[place : place + 3] = slots
            continue
        memory = value.data
        filled[place] = pointer = memory.ptr
        if (
            value.dtype is not element
            or value.shape != shape
            or value.strides != strides
            or pointer & misaligned
            or memory.device_id != device
        ):
            return None
    return device


def _fill_torch(values: Sequence, expected: list[tuple], filled: list) -> int | None:
    """Fills in pointers and numbers; the device, or None."""
    device = values[-1].get_device()
    for value, (element, shape, strides, misaligned, place, number) in zip(values, expected):
        if _LIBRARIES.get(type(value)) != "torch":
            slots = number and number(value)
            if slots is None:
                return None
            filled[place : place + 3] = slots
            continue
        try:
            filled[place] = pointer = value.data_ptr()
            if (
                value.dtype is not element
                or value.shape != shape
                or value.stride() != strides
                or pointer & misaligned
                or not pointer
                or not value.is_cuda
                or value.get_device() != device
                or value.is_neg()
            ):
                return None
        except RuntimeError:  # sparse, nested, or inside a function transform
            return None
    return device
