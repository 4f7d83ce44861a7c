"""Launches that are ready to go.

`Launch` is what calls whose operands lie alike have in common; `PreparedLaunch` is one of them with its arguments,
checked and packed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from skuda.arrays.libraries import library_of, plain_library
from skuda.arrays.views import View, contiguous_strides
from skuda.launch import registry
from skuda.launch.kernel import Slots
from skuda.model.dtypes import DTYPES
from skuda.schedules import abi, table
from skuda.schedules.geometry import Geometry, Layouts
from skuda.schedules.variant import TUNED

if TYPE_CHECKING:
    from skuda.arrays.libraries import Library
    from skuda.launch.kernel import Loaded
    from skuda.model.operation import Operand
    from skuda.plans.plan import Plan


# What checks and launches plain operands on a stream, and returns whether it has: see `launch.fast_path`. Where it has
# to make a workspace it asks whether it may.
FastPath = Callable[..., bool]


# What serves a call of a function form that repeats an earlier one: see `launch.fast_path.ready_of`. It has that call
# as `repeated`.
Ready = Callable[[Sequence, tuple, tuple, Any], Any]


class Repeated:
    """A call that autograd has to record and nothing else has to know of; it repeats one that was served before.

    Attributes:
        attributes, options: of the call, as `plans.functions.call` has them.
        ready: takes the inputs, and returns what the call returns, or None; None where there is none.
        alone: `ready` for inputs that nobody has looked at; None too where gradients are recorded.
        kept: what a framework keeps of it from one call to the next.
    """

    __slots__ = ("alone", "attributes", "kept", "options", "ready")

    def __init__(self, attributes: tuple, options: tuple):
        self.attributes, self.options = attributes, options
        self.ready: Callable[..., Any] | None = None
        self.alone: Callable[..., Any] | None = None
        self.kept: Any = None


def refuse(values: Sequence, stream, may_allocate: bool = True) -> bool:
    """The function of a plan that has no fast path."""
    return False


class Launches:
    """What serves calls whose operands lie alike: a launch, or several one after the other.

    Attributes:
        workspace: bytes of scratch memory that it needs.
    """

    workspace: int

    def launches(self, checked: Sequence[View | int | float], workspace: int) -> list[tuple[Launch, list]]:
        """Each launch, in order, and what its `slots` pack.

        Args:
            checked: the operands, as views and numbers.
            workspace: address of scratch memory.
        """
        raise NotImplementedError


class Launch(Launches):
    """The kernel, the grid and the parameters of calls whose operands lie alike, but for pointers and numbers.

    Attributes:
        geometry: what runs.
        grid: blocks.
        block: threads of one.
        shared: bytes of shared memory of one, beside what the kernel declares.
        slots: the kernel's argument.
        blank: `slots.blank`, with nothing at the positions of numbers.
        positions: where in it each operand's pointer goes; those of a number follow.
        source: the package of a catalog, and the name of a source in it.
        entries: the NVRTC name expressions of the kernels, in order.
        dependent: whether its first kernel waits by itself for the one in front of it, and may begin before that ends.
        of_few: whether it is such a launch only on streams that graphs can capture: there the time between kernels
            counts, and on the default stream the host's.
        loaded: the kernel by device, as far as it was wanted.
    """

    def __init__(self, plan: Plan, geometry: Geometry, entries: tuple[str, ...] = ()):
        operation = plan.operation.in_kernels
        self.geometry = geometry
        self.grid = geometry.grid
        self.block = geometry.block
        self.shared = geometry.shared
        self.workspace = geometry.workspace
        entries = entries or table.entries(operation, plan.types, geometry.variant)
        self.entries = entries if geometry.finish is not None else entries[:1]
        schedule = table.schedule_of(geometry.variant)
        later = operation.analysis.stage > 1 and schedule.geometry == "split_reduction"
        few = schedule.waits and geometry.grid * geometry.block <= TUNED.few_threads
        self.of_few = geometry.variant.of_few or (few and not later)
        self.dependent = self.of_few or later
        self.source = plan.package, operation.source
        self.loaded: dict[int, Loaded] = {}
        self._kernels: dict[int, list] = {}
        order = abi.order(operation)
        self._single = tuple([operand in order.scalars for operand in plan.operation.operands])
        arguments = schedule.argument

        def pointers(operands: Sequence[Operand]) -> list[Any]:
            """Each operand's pointer and what follows it."""
            found: list[Any] = []
            for operand in operands:
                strides = geometry.strides.get(operand.name, ())
                assert len(strides) == arguments.slots(operation, operand), (self.entries, operand, strides)
                found += [int, *strides]
            return found

        self.slots = slots = Slots(
            [
                *geometry.head,
                *pointers(order.elements),
                *pointers(order.shared),
                *[*abi.SCALAR.values()] * len(order.scalars),
                *[plan.values[name] for name in order.attributes],
                *pointers(order.outputs),
                *([int] if arguments.workspace else []),
            ]
        )
        self.blank = slots.blank.copy()
        free = iter(slots.positions)
        positions: dict[str, int] = {}
        for operand in (*order.elements, *order.shared, *order.scalars, *order.outputs):
            positions[operand.name] = next(free)
            if operand in order.scalars:
                self.blank[next(free)], self.blank[next(free)] = 0.0, 0
        self._scratch = next(free, None)
        if self._scratch is not None:
            self.blank[self._scratch] = 0
        for operand in operation.positions:  # their elements are addresses from 0 on
            self.blank[positions[operand.name]] = 0
        self.positions = tuple([positions[operand.name] for operand in plan.operation.operands])

    def on(self, device: int) -> Loaded:
        """The kernel ready to launch on a device; raises what `Kernel.on` does."""
        loaded = self.loaded.get(device)
        if loaded is None:
            loaded = self.loaded[device] = registry.kernel(*self.source, self.entries[0]).on(device)
            if self.shared:
                loaded.allow_shared(self.shared)
        return loaded

    def kernels(self, device: int) -> list[tuple[Callable[[int, int, int, int], None], int, int]]:
        """What is launched on a device, in order and with the same parameters: kernels, blocks, threads of one."""
        if device in self._kernels:
            return self._kernels[device]
        first = self.on(device)
        launch = partial(first.launch, shared=self.shared) if self.shared else first.launch
        loaded = [(launch, self.grid, self.block)]
        if self.geometry.finish is not None or self.dependent:
            from skuda.launch.dependent_launch import launch_of

            if self.dependent:
                loaded = [(launch_of(first, self.of_few, self.shared), self.grid, self.block)]
            if self.geometry.finish is not None:
                finish = registry.kernel(*self.source, self.entries[1]).on(device)
                shared = self.geometry.finish_shared
                if shared:
                    finish.allow_shared(shared)
                loaded.append((launch_of(finish, shared=shared), *self.geometry.finish))
        self._kernels[device] = loaded
        return loaded

    def launches(self, checked: Sequence[View | int | float], workspace: int) -> list[tuple[Launch, list]]:
        return [(self, self.filled(checked, workspace))]

    def filled(self, checked: Sequence[View | int | float], workspace: int = 0) -> list:
        """What `Slots.pack` takes, for operands that have been checked and scratch memory at an address."""
        filled = self.blank.copy()
        if self._scratch is not None:
            filled[self._scratch] = workspace
        for value, position, single in zip(checked, self.positions, self._single, strict=True):
            if single and not isinstance(value, View):
                filled[position : position + 3] = 0, float(value), value if isinstance(value, int) else 0
            else:
                filled[position] = value.pointer
        return filled


def starts(plan: Plan, checked: Sequence[View | int | float]) -> tuple[bool, int | None]:
    """`aligned` and `lead` of the layouts of a plan's operands."""
    pointers = [
        (view.pointer, bits)
        for view, bits, is_vector in zip(checked, plan.bits, plan.vectors, strict=True)
        if is_vector and isinstance(view, View)
    ]
    if not any(pointer % 16 for pointer, _ in pointers):
        return True, 0
    for boundary in plan._kernels.boundaries:
        leads = {-pointer * 8 // bits % boundary for pointer, bits in pointers}
        if len(leads) == 1:
            return False, leads.pop()
    return False, None


def layouts(plan: Plan, checked: Sequence[View | int | float]) -> Layouts:
    """How the operands of a call lie."""
    strides: list[tuple[int, ...] | None] = []
    inputs = len(plan.operation.inputs)
    for operand, view, word in zip(plan.operation.operands, checked, plan.words, strict=True):
        if not isinstance(view, View) or (operand.scalar and len(strides) < inputs):
            strides.append(None)
        elif operand.scalar:  # one value that is written, whatever the shape of its array
            strides.append(())
        elif DTYPES[word].packed:
            strides.append((*(2 * step for step in view.strides[:-1]), *view.strides[-1:]))
        else:
            strides.append(view.strides)
    placed = [plan.operation.shape_of(operand, plan.sizes) for operand in plan.operation.positions]
    strides[inputs:inputs] = map(contiguous_strides, placed)
    return Layouts(tuple(strides), *starts(plan, checked))


class RunOnce:
    """Stands for the launch of arguments that were run once: most are not run again, so it was not kept.

    It reads as a `PreparedLaunch` whose arrays have moved.

    Attributes:
        plan: whose arguments they are.
    """

    __slots__ = ("plan",)

    addresses, pointers, workspace = (), None, None

    def __init__(self, plan: Plan):
        self.plan = plan

    def __reduce__(self):
        """As of `PreparedLaunch`."""
        return type(None), ()


class PreparedLaunch:
    """A launch whose arguments have been checked and packed. The arguments hold it, and keep the arrays alive.

    CuPy's arrays cannot get other memory. Torch's can (`set_`, `resize_`, a storage that is freed): their
    addresses are asked again at each launch. Not noticed is an array that keeps its address but gets another
    shape, or a smaller storage at the same address: whoever does that to arrays of arguments makes new ones.

    Attributes:
        plan: whose it is.
        launch: the kernel's, to be given the grid and the parameters.
        grid: blocks.
        block: threads of one.
        parameters: address of the driver's parameters.
        more: the same of the kernels that follow it.
        workspace: scratch memory that they use, as the caller gave it.
        device: CUDA ordinal.
        current_stream: of the first array's library.
        addresses: the data_ptr methods of torch tensors, which can get other memory behind our back.
        pointers: what these said.
        written: tells torch that its tensors among the outputs have been written; None where there are none.
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
        "more",
        "parameters",
        "plan",
        "pointers",
        "workspace",
        "written",
    )

    def __init__(
        self,
        plan: Plan,
        packed: Sequence[tuple[Launch, list]],
        device: int,
        library: Library,
        addresses: list | None,
        lasting: bool,
        workspace,
        written: Callable[[], None] | None = None,
    ):
        self.plan = plan
        self._memory = []
        steps = []
        for launch, filled in packed:
            memory, parameters = launch.slots.pack(filled)
            self._memory.append(memory)
            steps += [(*kernel, parameters) for kernel in launch.kernels(device)]
        (self.launch, self.grid, self.block, self.parameters), *more = steps
        self.more = tuple(more)
        self.workspace = workspace
        self.device = device
        self.current_stream = library.current_stream
        self.lasting = lasting
        self.written = written
        self.addresses = addresses
        if addresses is not None:
            self.pointers = [data_ptr() for data_ptr in addresses]

    def enqueue(self, stream: int) -> None:
        """Launches everything, in order."""
        self.launch(self.grid, self.block, stream, self.parameters)
        for launch, grid, block, parameters in self.more:
            launch(grid, block, stream, parameters)

    def __reduce__(self):
        """A copy of the arguments may have arrays of its own, so it is checked anew."""
        return type(None), ()


def prepared_launch(
    plan: Plan,
    packed: Sequence[tuple[Launch, list]],
    values: Sequence,
    checked: Sequence[View | int | float],
    workspace=None,
) -> PreparedLaunch:
    """The launches of operands that were checked in full, `checked` being the views and numbers of `values`."""
    arrays = [(value, view) for value, view in zip(values, checked, strict=True) if isinstance(view, View)]
    first = arrays[0][1]
    used = [value for value, _ in arrays] + ([] if workspace is None else [workspace])
    lasting = all([plain_library(type(value)) is not None for value in used])
    tensors = [value for value in values[len(plan.operation.inputs) :] if plain_library(type(value)) == "torch"]
    written = partial(library_of(tensors[0]).wrote, tensors) if tensors else None
    library = library_of(first.owner)
    return PreparedLaunch(plan, packed, first.device, library, _addresses(used), lasting, workspace, written)


def _addresses(values: Sequence) -> list | None:
    """The data_ptr methods of the torch tensors among some operands."""
    return [value.data_ptr for value in values if plain_library(type(value)) == "torch"] or None
