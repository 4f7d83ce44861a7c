"""The life of a plan: select by a descriptor, ask what it is, check arguments, run.

A generated module declares a Plan class for each direction of a row, of its forms and of their stages; everything that
they do is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from math import prod
from threading import RLock
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from skuda.arrays.libraries import PLAIN, device_of, library_of, mark_written, plain_library, stream_handle
from skuda.arrays.views import CPU, View, as_numpy
from skuda.errors import CompileError, InvalidProblem, Unsupported, one_of, shown
from skuda.launch import registry
from skuda.launch.arguments import check, check_workspace
from skuda.launch.prepared import (
    FastPath,
    Launch,
    PreparedLaunch,
    Ready,
    RunOnce,
    layouts,
    prepared_launch,
    refuse,
    starts,
)
from skuda.model.descriptor import args_class, attributes_of, descriptor_class, results_class, sizes_of, types_of
from skuda.model.dtypes import DTYPES
from skuda.model.operation import COUNTED, Operation, class_stem, count, packed_shape, row_of
from skuda.model.sku import BackendKind, KernelSku, PrecisionGuarantee
from skuda.schedules import elementwise, table
from skuda.schedules.geometry import Geometry

if TYPE_CHECKING:
    from skuda.plans.axis_views import AxisView
    from skuda.plans.multi_kernel import Stages


LEAST_ON_CPU = 1 << 17  # elements: fewer take NumPy less time than a compiler
_FEW_AXES = 4  # which kernels take however they lie
_MADE = object()  # stands for a workspace that is to be made
reference = staticmethod  # how plans mark their formula: an operation may be named like any function of Python
_making = RLock()  # of what follows: two threads must not have two operations of one plan


class declared:
    """A class attribute of a plan that is made when it is first asked for, and stays then.

    A module has the plans of stages and of forms of a row, too. A call needs one of them, and pays for that one.
    """

    def __init__(self, make: Callable[..., Any]):
        self._make = make

    def __set_name__(self, owner: type, name: str):
        self._owner, self._name = owner, name

    def __get__(self, plan, cls: type):
        owner, name = self._owner, self._name
        with _making:
            if vars(owner)[name] is self:
                setattr(owner, name, self._make())
        return vars(owner)[name]


class _OfOperation:
    """A class that follows from a plan's operation, made when it is first asked for."""

    def __init__(self, make: Callable[[Operation, str, str], type]):
        self._make = make

    def __set_name__(self, owner: type, name: str):
        self._name = name

    def __get__(self, plan, cls: type[Plan]) -> type:
        operation = cls.operation
        owner = next(each for each in cls.__mro__ if "operation" in vars(each))
        with _making:
            if self._name not in vars(owner):
                setattr(owner, self._name, self._make(operation, owner.__name__, cls.package))
        return vars(owner)[self._name]


def _results(operation: Operation, plan: str, package: str) -> type[tuple] | None:
    """The class of several outputs; None of one. A form that makes what its row makes has the row's."""
    if len(operation.outputs) == 1:
        return None
    if operation.name != operation.row and operation.is_whole:
        module = import_module(f"{package}.plans.{operation.row}")
        function = operation.row + operation.function.removeprefix(operation.name)
        whole = getattr(module, f"{class_stem(function)}Plan")
        if [each.name for each in whole.operation.outputs] == [each.name for each in operation.outputs]:
            return whole.results_type
    return results_class(operation, plan, package)


class Plan:
    """One operation at fixed sizes, element types and attributes, ready to run any number of times.

    Class attributes are set by the generated subclass: `operation`, and `formula`, its reference. What follows from
    them is made when it is asked for.

    Attributes:
        descriptor_type: the class of what `select` takes.
        args_type: the class of what `run` takes.
        results_type: the class of the tuple that the function form returns; None where there is one output.
        package: the generated package that it is in.
        stages: the plans of its stages, where it has some.
        of_one: the plan that serves rows of one element, where there is such (`plans.one_element`).
    """

    operation: ClassVar[Operation]
    formula: ClassVar[Callable[..., Mapping[str, np.ndarray]]]
    package: ClassVar[str]
    stages: ClassVar[tuple[type[Plan], ...]] = ()
    of_one: ClassVar[type[Plan] | None] = None
    descriptor_type = _OfOperation(descriptor_class)
    args_type = _OfOperation(args_class)
    results_type = _OfOperation(_results)

    def __init_subclass__(cls) -> None:
        cls.package = cls.__module__.rpartition(".plans.")[0]

    @classmethod
    def select(cls, descriptor, stream=None, preference: BackendKind | None = None):
        """The plan for a descriptor.

        Args:
            descriptor: an instance of the operation's descriptor class.
            stream: what `run` launches on when it is given none: a CuPy or torch stream, a handle, or an object with
                `__cuda_stream__`.
            preference: the backend; CUDA where there is a GPU and REFERENCE elsewhere, if not given.

        Raises:
            Unsupported: no kernel has these element types, or the backend is not there; names what there is.
            InvalidProblem: a size is negative, or an attribute is out of its range.
        """
        if not isinstance(descriptor, cls.descriptor_type):
            raise InvalidProblem(
                f"{cls.__name__}: expected a {cls.descriptor_type.__name__}, got a {type(descriptor).__name__}"
            )
        if preference is not None and not isinstance(preference, BackendKind):
            raise InvalidProblem(f"{cls.__name__}: preference is {shown(preference)}, expected a BackendKind")
        if preference is None:
            preference = BackendKind.CUDA if _cuda_available() else cls.on_cpu(descriptor)
        elif preference is BackendKind.CUDA and not _cuda_available():
            raise Unsupported(f"{cls.__name__}: no CUDA device here; `skuda doctor` says what is missing")
        elif preference is BackendKind.CPU and not _cpu().library.compiler():
            needed = "kernels on the CPU need a C++ compiler, g++ or what CXX names; none is here"
            raise Unsupported(f"{cls.__name__}: {needed}")
        return cls(descriptor, stream, preference)

    @classmethod
    def on_cpu(cls, descriptor) -> BackendKind:
        """What computes a call on the CPU: a kernel where there is much to do and a C++ compiler, else NumPy."""
        sizes = sizes_of(cls.operation, descriptor, cls.__name__)
        most = max(count(cls.operation.shape_of(operand, sizes)) for operand in cls.operation.operands)
        return BackendKind.CPU if most >= LEAST_ON_CPU and _cpu().library.compiler() else BackendKind.REFERENCE

    @classmethod
    def without(cls, name: str) -> type[Plan]:
        """The plan of this operation without an optional input and those after it.

        Raises:
            InvalidProblem: it has no such optional input, or does nothing without it.
        """
        operation = cls.operation
        if name not in operation.numbers:
            known = ", ".join(operation.numbers) or "none"
            raise InvalidProblem(f"{cls.__name__}: without {name!r}, expected an optional input ({known})")
        form = dict(operation.forms).get(name)
        if form is None:
            raise InvalidProblem(f"{cls.__name__}: without {name} there is nothing to compute")
        return cls._form(form)

    @classmethod
    def chosen(cls, word: str) -> type[Plan]:
        """The plan of this operation for a word of its choice.

        Raises:
            InvalidProblem: it has no choice, or the word is none of it.
        """
        choice = cls.operation.choice
        if choice is None:
            raise InvalidProblem(f"{cls.__name__}: has no forms to choose, got {shown(word)}")
        form = dict(choice.forms).get(word) if isinstance(word, str) else None
        if form is None:
            expected = one_of(map(repr, choice.words))
            raise InvalidProblem(f"{cls.__name__}: {choice.name} is {shown(word)}, expected {expected}")
        return cls._form(form)

    @classmethod
    def _form(cls, name: str) -> type[Plan]:
        operation = cls.operation
        module = import_module(f"{cls.package}.plans.{row_of(name)}")
        function = name + operation.function.removeprefix(operation.name)
        return getattr(module, f"{class_stem(function)}Plan")

    def __init__(self, descriptor, stream, backend: BackendKind):
        operation = self.operation
        name = type(self).__name__
        self.descriptor = descriptor
        self.name = name
        self.backend = backend
        self.stream = None if stream is None else stream_handle(stream)
        self.types = types_of(operation, descriptor, name)
        self.sizes = sizes_of(operation, descriptor, name)
        self.attributes = attributes_of(operation, descriptor, self.types, name)
        self.words = tuple(operation.word(operand, self.types) for operand in operation.operands)
        self.shapes = tuple(operation.shape_of(operand, self.sizes) for operand in operation.operands)
        self.stored = tuple(packed_shape(shape, word) for shape, word in zip(self.shapes, self.words, strict=True))
        self.numel = max(count(operation.shape_of(output, self.sizes)) for output in operation.outputs)
        empty = [dim for dim in operation.along if not self._extent(dim)]
        if operation.analysis.of_some and self.numel and empty:
            size = self.sizes[empty[0]]
            raise InvalidProblem(
                f"{name}: {empty[0]} is {size}; there is no {operation.analysis.of_some} of no elements"
            )
        self.values = {parameter: self.attributes[parameter] for parameter in operation.analysis.attributes}
        if operation.analysis.counted:
            self.values[COUNTED] = float(prod(map(self._extent, operation.analysis.counted)))
        # Of each output: the shape and the element of an array that can hold it.
        self.made = tuple(
            (shape, DTYPES[word].storage)
            for shape, word in list(zip(self.stored, self.words))[len(operation.inputs) :]
        )
        self._kernels = self._make_kernels()
        kernels = self._kernels
        self.full, self.vectors, self.bits = map(self._seen_by_calls, (kernels.full, kernels.vectors, kernels.bits))
        self._launches: dict[tuple, Launch | Stages] = {}
        self.waits: Callable[[float], None] | None = None  # is told how many seconds NumPy took of each call
        self._seen = RunOnce(self)
        self._fast_path: FastPath = refuse  # the one that served last
        self._fast_paths: dict[tuple, FastPath | None] = {}  # by the types of operands, after their axis views if any
        self._sku = self._sku_of(backend)

    def alike(self, other: type[Plan], types: Mapping[str, str] | None = None) -> Plan:
        """The plan of another operation at this one's sizes, attributes and element types, or others, as far as it has
        them."""
        operation, types = other.operation, types or self.types
        names = {dim.name for dim in operation.dims} | {a.name for a in operation.attributes if not a.names_axes}
        fields: dict[str, Any] = {k: value for k, value in {**self.sizes, **self.attributes}.items() if k in names}
        fields |= {field: types[letter] for letter, field in operation.element_fields.items() if letter in types}
        return other.select(other.descriptor_type(**fields), preference=self.backend)

    def __repr__(self) -> str:
        """`<SoftmaxPlan softmax_f32__reference: input f32[4, 8] -> output f32[4, 8]>`, with the attributes if any."""
        each = [
            f"{operand.name} {word}{list(shape)}"
            for operand, word, shape in zip(self.operation.operands, self.words, self.shapes)
        ]
        values = [f"{name}={value!r}" for name, value in self.attributes.items()]
        first = len(self.operation.inputs)
        return f"<{self.name} {self._sku}: {', '.join(each[:first] + values)} -> {', '.join(each[first:])}>"

    def _sku_of(self, backend: BackendKind) -> KernelSku:
        variant = registry.on_host(backend) or table.variants(self.operation, self.types)[0]
        return registry.make_sku(self.operation, self.types, variant)

    def _seen_by_calls(self, each: tuple) -> tuple:
        """What kernels know of each operand, without positions."""
        first, behind = len(self.operation.inputs), len(self.operation.positions)
        return (*each[:first], *each[first + behind :])

    def _extent(self, dim: str) -> int:
        """Elements along a dimension."""
        size = self.sizes[dim]
        return count(size) if isinstance(size, tuple) else size

    def _make_kernels(self):
        """What says how a call is launched."""
        if self.backend is BackendKind.CPU:
            return _cpu().kernels_of(self.operation, self.types, self.sizes)
        if not self.operation.analysis.over:
            kernels = elementwise.ElementwiseKernels(self.operation, self.types, self.sizes)
            if self.operation.analysis.tabled and self.backend is BackendKind.CUDA:
                from skuda.launch.kernel import cluster_shared, multiprocessors

                kernels.cluster_shared, kernels.multiprocessors = cluster_shared(), multiprocessors()
            return kernels
        if self.operation.analysis.scans:
            from skuda.schedules.scans import ScanKernels

            return ScanKernels(self.operation, self.types, self.sizes)
        from skuda.schedules.row_reduction import RowKernels  # a first elementwise call does not wait for it

        return self._told_clusters(RowKernels(self.operation, self.types, self.sizes))

    def _told_clusters(self, kernels):
        """Kernels that know how much shared memory a block of a cluster has on the GPUs there are."""
        if self.backend is BackendKind.CUDA:
            from skuda.launch.kernel import cluster_shared

            kernels.cluster_shared = cluster_shared()
        return kernels

    @cached_property
    def deciding(self) -> tuple[int, ...]:
        """The inputs as whose strides outputs lie where nobody gives them: see `plans.layout`."""
        from skuda.plans.layout import deciding  # which most calls do without

        return deciding(self.operation, self.words)

    @property
    def sku(self) -> KernelSku:
        """The kernel that serves contiguous, aligned operands; others are served by its siblings, to the same bits."""
        return self._sku

    @property
    def precision_guarantee(self) -> PrecisionGuarantee:
        """What the numbers of this plan promise."""
        return self._sku.precision_guarantee

    @property
    def workspace_size(self) -> int:
        """Bytes of scratch memory that `run` needs at most, however the arrays lie; 0 on the CPU."""
        return self._kernels.workspace if self.backend is BackendKind.CUDA else 0

    def can_implement(self, args) -> None:
        """Checks arguments without launching or writing anything.

        Raises:
            InvalidProblem: a shape, a number's range, an overlap of operands.
            ElementMismatch: an array's element type is not the plan's.
            DeviceMismatch: arrays on different devices, or not on the backend's.
            MisalignedOperand: a pointer that is not a multiple of its element's size.
            NotAnArray: an argument that is neither an array nor, where one value is expected, a number.
        """
        check(self, self._operands(args))

    def run(self, args, stream=None, workspace=None) -> None:
        """Computes the outputs. Asynchronous on CUDA; nothing is launched where there are no elements.

        Args:
            args: an instance of the operation's args class. One that is run time and again is not checked each time
                (see `launch.PreparedLaunch`), which makes such a call cheap.
            stream: what to launch on; the current stream of the arrays' library if not given.
            workspace: a contiguous array of at least `workspace_size` bytes on the operands' device, of any elements;
                what is in it does not matter before or after. None where that is 0. Runs that may overlap in time
                need one each.

        Raises:
            BufferTooSmall: the workspace is smaller than `workspace_size`, or there is none where one is needed.
            SkudaError: what `can_implement` raises, and the same of the workspace; nothing is launched or written then.
        """
        values = self._operands(args) if type(args) is not self.args_type else args._values
        ready = args._ready
        if ready is not None and ready.plan is self and ready.workspace is workspace:
            if ready.addresses is None or [data_ptr() for data_ptr in ready.addresses] == ready.pointers:
                own = stream is None and self.stream is None
                handle = ready.current_stream(ready.device) if own else self._handle(ready, stream)
                ready.launch(ready.grid, ready.block, handle, ready.parameters)
                for launch, grid, block, parameters in ready.more:
                    launch(grid, block, handle, parameters)
                if ready.written is not None:
                    ready.written()
                return
            kept = self._execute_checked(values, stream, workspace)
        elif workspace is None and self._fast_path(values, stream, False):
            kept = self._seen
        else:
            kept = self._execute_anew(values, stream, workspace)
        if PLAIN.get(type(values[-1])) != "cupy":
            mark_written(values[len(self.operation.inputs) :])
        if kept is not None:
            args._ready = kept

    def execute(self, values: Sequence, stream=None) -> None:
        """`run` on the operands themselves, inputs first; `View`s may be among them. A workspace is made if needed."""
        if not self._fast_path(values, stream):
            self._execute_anew(values, stream, _MADE)

    def _execute_anew(self, values: Sequence, stream, workspace=None) -> PreparedLaunch | RunOnce | None:
        """`execute` of what the last fast path does not serve; what the arguments may keep."""
        fast_path = self._fast_paths.get(tuple(map(type, values)))
        if fast_path is not None and fast_path is not self._fast_path:
            self._fast_path = fast_path
            if fast_path(values, stream):
                return self._seen
        return self._execute_checked(values, stream, workspace)

    def _execute_checked(self, values: Sequence, stream, workspace=None) -> PreparedLaunch | None:
        """`execute` by the full check; what the arguments may keep."""
        checked = check(self, values)
        if stream is not None:
            stream_handle(stream)  # also where nothing is launched
        if self.numel == 0:
            return None
        if self.backend is not BackendKind.CUDA:
            if self.backend is BackendKind.CPU and self._run_on_cpu(checked):
                self.learn(values)
                return None
            if any(isinstance(value, View) and len(value.shape) > _FEW_AXES for value in checked):
                self._check_layout(checked)
            started = perf_counter()
            self._run_reference(checked)
            if self.waits is not None:
                self.waits(perf_counter() - started)
            return None
        launch = self.launch_for(checked)
        needed = launch.workspace
        if workspace is _MADE:
            first = next(view for view in checked if isinstance(view, View))
            handle = self.stream_of(first, stream)
            workspace = library_of(first.owner).scratch(self.workspace_size, first.device, handle) if needed else None
        address = check_workspace(self, workspace, checked) if needed or workspace is not None else 0
        ready = prepared_launch(self, launch.launches(checked, address), values, checked, workspace)
        ready.enqueue(self._handle(ready, stream))
        self.learn(values)
        return ready if ready.lasting else None

    def learn(self, values: Sequence, axis_views: tuple[AxisView, ...] = ()) -> FastPath | None:
        """Prepares for more operands of these types, which have been launched: the second time, as most plans run once.

        Args:
            values: the operands, or the caller's arrays that they lie in as `axis_views` say.
            axis_views: of each operand; none where the arrays are the operands.

        Returns:
            Their fast path, `refuse` if there is none, None the first time.
        """
        if self.numel == 0 or self.backend is BackendKind.REFERENCE:
            return refuse
        types = tuple(map(type, values))
        key = (*axis_views, *types)
        if key not in self._fast_paths:
            self._fast_paths[key] = None
            return None
        fast_path = self._fast_paths[key]
        if fast_path is None:
            from skuda.launch.fast_path import fast_path_of  # a first call does not wait for it

            library = plain_library(types[-1])
            device = device_of[library](values[-1]) if library else CPU
            fast_path = self._fast_paths[key] = fast_path_of(self, types, device, axis_views)
        if fast_path is not refuse and not axis_views:
            self._fast_path = fast_path
        return fast_path

    def ready(self, values: Sequence, call: tuple, axis_views: tuple[AxisView, ...] = ()) -> Ready | None:
        """What serves the calls of the function form that repeat one, for operands as `learn` has had them."""
        from skuda.launch.fast_path import ready_of

        types = tuple(map(type, values))
        library = plain_library(types[-1])
        device = device_of[library](values[-1]) if library else CPU
        return ready_of(self, types, device, axis_views, call)

    def _handle(self, ready: PreparedLaunch, stream) -> int:
        if stream is not None:
            return stream_handle(stream)
        if self.stream is not None:
            return self.stream
        return ready.current_stream(ready.device)

    def _operands(self, args) -> tuple:
        if type(args) is not self.args_type:
            raise InvalidProblem(f"{self.name}: expected a {self.args_type.__name__}, got a {type(args).__name__}")
        return args._values

    # ---- backends ----

    def _run_on_cpu(self, checked: list) -> bool:
        """Runs the kernels of the CPU; False where NumPy has to: operands that lie at odd bytes, or a compiler that
        refuses, after which the plan is the reference's."""
        if any(isinstance(view, View) and view.pointer % view.storage.itemsize for view in checked):
            return False
        try:
            _cpu().run(self, checked)
        except CompileError as error:
            import logging

            logging.getLogger("skuda").warning("%s: NumPy computes it from now on: %s", self.name, error)
            self.backend = BackendKind.REFERENCE
            self._sku = self._sku_of(self.backend)
            return False
        return True

    def on_threads(self, launches: Sequence[Launch]) -> dict[str, Any]:
        """What starts launches on the CPU (`cpu.kernels.starting`)."""
        return _cpu().starting(launches, max(map(prod, self.shapes)))

    def _run_reference(self, checked: list) -> None:
        self._evaluate(self._arrays(checked))

    def _check_layout(self, checked: list) -> None:
        """Refuses operands that lie as no kernel serves them: what one backend refuses the other one does too."""
        self._geometry(checked)

    def _arrays(self, checked: list) -> dict[str, np.ndarray | int | float]:
        """The operands by name, as NumPy arrays of their elements."""
        return {
            operand.name: as_numpy(value).view(DTYPES[word].storage) if isinstance(value, View) else value
            for operand, word, value in zip(self.operation.operands, self.words, checked, strict=True)
        }

    def _evaluate(self, arrays: Mapping[str, Any]) -> None:
        """Runs the reference on some arrays, this plan's operands among them."""
        from skuda.reference import formulas

        operation = self.operation
        formulas.run(
            operation,
            self.formula,
            self.types,
            self.sizes,
            {operand.name: arrays[operand.name] for operand in operation.inputs},
            self.values,
            {operand.name: arrays[operand.name] for operand in operation.outputs},
        )

    def stream_of(self, view: View, stream=None) -> int:
        """Handle of the stream that `run` launches on: the one given, else the plan's, else the library's current."""
        if stream is not None:
            return stream_handle(stream)
        if self.stream is not None:
            return self.stream
        return library_of(view.owner).current_stream(view.device)

    def launch_for(self, checked: Sequence[View | int | float]) -> Launch | Stages:
        """What is launched for operands which lie as these do."""
        key = (starts(self, checked), *[view.strides if isinstance(view, View) else None for view in checked])
        launch = self._launches.get(key)
        if launch is None:
            launch = self._launches[key] = self._launch(checked)
        return launch

    def served_by(self, checked: Sequence[View | int | float]) -> KernelSku:
        """The kernel that runs on operands which lie as these do."""
        return registry.make_sku(self.operation, self.types, self._geometry(checked).variant)

    def _launch(self, checked: Sequence[View | int | float]) -> Launch | Stages:
        return Launch(self, self._geometry(checked))

    def _geometry(self, checked: Sequence[View | int | float]) -> Geometry:
        return self._kernels.geometry(layouts(self, checked))


def _cpu():
    from skuda.cpu import kernels  # a first call on a GPU does not wait for it

    return kernels


def _cuda_available() -> bool:
    from skuda.launch.kernel import cuda_available

    return cuda_available()
