"""The life of a plan: select by a descriptor, ask what it is, check arguments, run.

A generated module declares, for each direction of each operation, a Descriptor, an Args and a Plan class; everything
that they do is here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from skuda import dispatch, mapping, reference
from skuda.aliasing import overlap, overlaps_itself
from skuda.dtypes import DTYPES, WORD_OF_STORAGE
from skuda.errors import (
    BufferTooSmall,
    DeviceMismatch,
    ElementMismatch,
    InvalidProblem,
    MisalignedOperand,
    Unsupported,
)
from skuda.operation import Operand, Operation, count, packed_shape
from skuda.sku import BackendKind, KernelSku, PrecisionGuarantee
from skuda.tensor import CPU, View, as_numpy, family_of, stream_handle, view_of

log = logging.getLogger("skuda")

_I32 = range(-(1 << 31), 1 << 31)


class Plan:
    """One operation at fixed sizes, element types and attributes, ready to run any number of times.

    Class attributes are set by the generated subclass: `operation`, `descriptor_type`, `args_type`, `formula` (the
    generated reference) and `package` (the generated package).
    """

    operation: ClassVar[Operation]
    descriptor_type: ClassVar[type]
    args_type: ClassVar[type]
    formula: ClassVar[Callable[..., Mapping[str, np.ndarray]]]
    package: ClassVar[str]

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
        if preference is None:
            preference = BackendKind.CUDA if _cuda_available() else BackendKind.REFERENCE
        elif preference is BackendKind.CUDA and not _cuda_available():
            raise Unsupported(f"{cls.__name__}: no CUDA device here; `skuda doctor` says what is missing")
        return cls(descriptor, stream, preference)

    def __init__(self, descriptor, stream, backend: BackendKind):
        operation = self.operation
        name = type(self).__name__
        self.descriptor = descriptor
        self.name = name
        self.backend = backend
        self._stream = None if stream is None else stream_handle(stream)
        given = {
            letter: word
            for letter, field in operation.element_fields.items()
            if (word := getattr(descriptor, field)) is not None
        }
        for letter, word in given.items():
            if word not in DTYPES:
                raise Unsupported(
                    f"{name}: {operation.element_fields[letter]} is {word!r}, expected one of "
                    f"{' '.join(dict.fromkeys(types[letter] for types in operation.combinations))}"
                )
        self.types = operation.resolve(given, name)
        self.sizes = _sizes(operation, descriptor, name)
        self.attributes = _attributes(operation, descriptor, self.types, name)
        self.words = tuple(operation.word(operand, self.types) for operand in operation.operands)
        self.shapes = tuple(operation.shape_of(operand, self.sizes) for operand in operation.operands)
        self.stored = tuple(packed_shape(shape, word) for shape, word in zip(self.shapes, self.words, strict=True))
        self.numel = count(operation.shape_of(operation.outputs[0], self.sizes))
        self._kernels = mapping.MapKernels(operation, self.types, self.sizes)
        self._geometries: dict[tuple, mapping.Geometry] = {}
        used = {parameter: self.attributes[parameter] for parameter in operation.formula_attributes}
        self._values = used
        variant = mapping.VEC if backend is BackendKind.CUDA else dispatch.REFERENCE
        self._sku = dispatch.make_sku(operation, self.types, variant)

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
        """Bytes of scratch memory that `run` needs."""
        return 0

    def can_implement(self, args) -> None:
        """Checks arguments without launching or writing anything.

        Raises:
            InvalidProblem: a shape, a number's range, an overlap of operands.
            ElementMismatch: an array's element type is not the plan's.
            DeviceMismatch: arrays on different devices, or not on the backend's.
            MisalignedOperand: a pointer that is not a multiple of its element's size.
            NotAnArray: an argument that is neither an array nor, where one value is expected, a number.
        """
        self._check(args)

    def run(self, args, stream=None, workspace=None) -> None:
        """Computes the outputs. Asynchronous on CUDA; nothing is launched where there are no elements.

        Args:
            args: an instance of the operation's args class.
            stream: what to launch on; the current stream of the arrays' library if not given.
            workspace: scratch memory of at least `workspace_size` bytes; None where that is 0.

        Raises:
            BufferTooSmall: the workspace is smaller than `workspace_size`.
            SkudaError: what `can_implement` raises; then nothing is launched or written.
        """
        if workspace is not None and workspace.nbytes < self.workspace_size:
            raise BufferTooSmall(
                f"{self.name}: workspace has {workspace.nbytes} bytes, expected at least {self.workspace_size}"
            )
        checked = self._check(args)
        if self.numel == 0:
            return
        if self.backend is BackendKind.REFERENCE:
            self._run_reference(checked)
        else:
            self._launch(checked, stream)

    # ---- checks ----

    def _check(self, args) -> list[View | int | float]:
        """Each operand as a view or a number, in operand order."""
        if type(args) is not self.args_type:
            raise InvalidProblem(f"{self.name}: expected a {self.args_type.__name__}, got a {type(args).__name__}")
        operation = self.operation
        checked: list[View | int | float] = []
        device = None
        for index, operand in enumerate(operation.operands):
            value = getattr(args, operand.name)
            if operand.scalar and index < len(operation.inputs) and is_number(value):
                checked.append(self._number(operand, self.words[index], value))
                continue
            view = value if type(value) is View else view_of(value, f"{self.name}: {operand.name}")
            self._check_view(operand, index, view)
            if device is None:
                device = view.device
                self._check_device(operand, device)
            elif view.device != device:
                raise DeviceMismatch(
                    f"{self.name}: {operand.name} is on {_device(view.device)}, expected {_device(device)} like "
                    f"{operation.operands[0].name}"
                )
            checked.append(view)
        self._check_overlap(checked)
        return checked

    def _number(self, operand: Operand, word: str, value) -> int | float:
        """A Python number as an operand of one value, rounded to its element."""
        if DTYPES[word].kind == "int":
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
                raise ElementMismatch(f"{self.name}: {operand.name} is {value!r}, expected an integer ({word})")
            if not DTYPES[word].lowest <= value <= DTYPES[word].highest:
                raise InvalidProblem(f"{self.name}: {operand.name} is {value}, which {word} cannot hold")
            return int(value)
        return float(DTYPES[word].storage.type(value))

    def _check_view(self, operand: Operand, index: int, view: View) -> None:
        word = self.words[index]
        storage = DTYPES[word].storage
        if view.storage != storage:
            came = WORD_OF_STORAGE.get(view.storage, str(view.storage))
            travels = f"{word} (which travels as {storage})" if DTYPES[word].packed else word
            raise ElementMismatch(f"{self.name}: {operand.name} has elements {came}, expected {travels}")
        if view.shape != self.stored[index] and not (operand.scalar and count(view.shape) == 1):
            raise InvalidProblem(f"{self.name}: {operand.name} has shape {view.shape}, expected {self._expected(index)}")
        if view.pointer % storage.itemsize and self.backend is BackendKind.CUDA:
            raise MisalignedOperand(
                f"{self.name}: {operand.name} starts at {view.pointer:#x}, expected a multiple of {storage.itemsize} bytes"
            )

    def _expected(self, index: int) -> str:
        """`(n,) = (4,)`: the dimensions of an operand and their sizes."""
        operand = self.operation.operands[index]
        if operand.scalar:
            return "one element"
        names = []
        for dim in operand.dims:
            size = self.sizes[dim.name]
            names.append(dim.name if isinstance(size, tuple) and len(size) == 1 else str(dim))
        symbolic = f"({', '.join(names)}{',' if len(names) == 1 else ''})"
        packed = DTYPES[self.words[index]].packed
        logical = f"{symbolic} = {self.shapes[index]}"
        return f"{logical} packed two to a byte, {self.stored[index]}" if packed else logical

    def _check_device(self, operand: Operand, device: int) -> None:
        if (self.backend is BackendKind.CUDA) != (device != CPU):
            expected = "a CUDA device" if self.backend is BackendKind.CUDA else "the CPU"
            raise DeviceMismatch(
                f"{self.name}: {operand.name} is on {_device(device)}, expected {expected} (backend "
                f"{self.backend.value}; select the plan with preference= for the other)"
            )

    def _check_overlap(self, checked: list) -> None:
        inputs = len(self.operation.inputs)
        operands = self.operation.operands
        for index in range(inputs, len(checked)):
            output = checked[index]
            name = operands[index].name
            if output.readonly:
                raise InvalidProblem(f"{self.name}: {name} is read-only, expected an array that can be written")
            if not output.contiguous and overlaps_itself(output):
                raise InvalidProblem(f"{self.name}: {name} has elements that share memory (strides {output.strides})")
            for other in range(index):
                view = checked[other]
                if not isinstance(view, View) or not overlap(output, view):
                    continue
                same_place = (
                    other < inputs
                    and (view.pointer, view.shape, view.storage) == (output.pointer, output.shape, output.storage)
                    and (view.strides == output.strides or (view.contiguous and output.contiguous))
                    and self._kernels.full[other]
                    and self.words[other] == self.words[index]
                )
                if not same_place:
                    raise InvalidProblem(
                        f"{self.name}: {name} overlaps {operands[other].name}; in place, it must be the same array"
                    )

    # ---- backends ----

    def _run_reference(self, checked: list) -> None:
        operation = self.operation
        arrays = {
            operand.name: as_numpy(value) if isinstance(value, View) else value
            for operand, value in zip(operation.operands, checked, strict=True)
        }
        reference.run(
            operation,
            type(self).formula,
            self.types,
            self.sizes,
            {operand.name: arrays[operand.name] for operand in operation.inputs},
            self._values,
            {operand.name: arrays[operand.name] for operand in operation.outputs},
        )

    def _launch(self, checked: list, stream) -> None:
        geometry = self._geometry(checked)
        device = next(value.device for value in checked if isinstance(value, View))
        loaded = self._loaded(geometry.variant, device)
        first = next(value for value in checked if isinstance(value, View))
        loaded.launch(
            geometry.grid, mapping.BLOCK, self.stream_of(first, stream), self._parameters(geometry, checked)
        )

    def stream_of(self, view: View, stream=None) -> int:
        """Handle of the stream that `run` launches on: the one given, else the plan's, else the library's current."""
        if stream is not None:
            return stream_handle(stream)
        if self._stream is not None:
            return self._stream
        return family_of(view.owner).current_stream(view.device)

    def _loaded(self, variant: mapping.Variant, device: int):
        entry = mapping.entry(self.operation, self.types, variant)
        return dispatch.kernel(self.package, self.operation.source, entry).on(device)

    def _geometry(self, checked: list) -> mapping.Geometry:
        full = self._kernels.full
        views = [value if isinstance(value, View) else None for value in checked]
        aligned = not any(
            view.pointer % 16 for view, is_full in zip(views, full, strict=True) if is_full and view is not None
        )
        key = (aligned, *(None if view is None else view.strides for view in views))
        geometry = self._geometries.get(key)
        if geometry is None:
            geometry = self._geometries[key] = self._kernels.geometry(self._layouts(views, aligned))
        return geometry

    def _layouts(self, views: list[View | None], aligned: bool) -> mapping.Layouts:
        strides: list[tuple[int, ...] | None] = []
        for operand, view, word in zip(self.operation.operands, views, self.words, strict=True):
            if view is None or operand.scalar and not self.numel_is_scalar(operand):
                strides.append(None)
            elif DTYPES[word].packed:
                strides.append((*(2 * step for step in view.strides[:-1]), *view.strides[-1:]))
            else:
                strides.append(view.strides)
        return mapping.Layouts(tuple(strides), aligned)

    def numel_is_scalar(self, operand: Operand) -> bool:
        """Whether an operand without dimensions is in the shape of the output, which has none either."""
        return operand.dims == self.operation.space

    def _parameters(self, geometry: mapping.Geometry, checked: list):
        from skuda.kernel import Parameters

        operation = self.operation
        strides = geometry.strides
        arrays, parameters, scalars, outputs = [], [], [], []
        for index, (operand, value) in enumerate(zip(operation.operands, checked, strict=True)):
            if index >= len(operation.inputs):
                outputs += [value.pointer, *strides.get(operand.name, ())]
            elif self._kernels.full[index]:
                arrays += [value.pointer, *strides.get(operand.name, ())]
            elif operand.scalar:
                if isinstance(value, View):
                    scalars += [value.pointer, 0.0, 0]
                else:
                    scalars += [0, float(value), int(value) if isinstance(value, int) else 0]
            else:
                parameters += [value.pointer, *strides[operand.name]]
        values = list(self._values.values())
        return Parameters([*geometry.head, *arrays, *parameters, *scalars, *values, *outputs])


def is_number(value) -> bool:
    """Whether an argument is one number, and no array."""
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _device(device: int) -> str:
    return "the CPU" if device == CPU else f"CUDA device {device}"


def _cuda_available() -> bool:
    from skuda.kernel import cuda_available

    return cuda_available()


def _sizes(operation: Operation, descriptor, plan: str) -> dict[str, int | tuple[int, ...]]:
    """The descriptor's dimensions and block lengths, checked."""
    sizes: dict[str, int | tuple[int, ...]] = {}
    for dim in operation.dims:
        value = getattr(descriptor, dim.name)
        extents = (value,) if isinstance(value, (int, np.integer)) else value
        if not dim.many and not isinstance(value, (int, np.integer)):
            raise InvalidProblem(f"{plan}: {dim.name} is {value!r}, expected an integer")
        if not isinstance(extents, (tuple, list)) or not all(
            isinstance(extent, (int, np.integer)) and extent >= 0 for extent in extents
        ):
            kind = "non-negative integers" if dim.many else "a non-negative integer"
            raise InvalidProblem(f"{plan}: {dim.name} is {value!r}, expected {kind}")
        sizes[dim.name] = tuple(int(extent) for extent in extents) if dim.many else int(value)
    for attribute in operation.attributes:
        if attribute.type == "size":
            value = getattr(descriptor, attribute.name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise InvalidProblem(f"{plan}: {attribute.name} is {value!r}, expected a positive integer")
            sizes[attribute.name] = int(value)
    return sizes


def _attributes(operation: Operation, descriptor, types, plan: str) -> dict[str, int | float]:
    """The attributes' values: defaults filled in, ranges and requirements checked."""
    values: dict[str, Any] = {}
    for attribute in operation.attributes:
        if attribute.type in ("size", "axis"):
            continue
        value = getattr(descriptor, attribute.name)
        word = types.get(attribute.type, attribute.type)
        dtype = DTYPES[word]
        if value is None:
            value = {"lowest": dtype.lowest, "highest": dtype.highest}.get(attribute.default, attribute.default)
        if value is None:
            raise InvalidProblem(f"{plan}: {attribute.name} is missing, expected a number ({word})")
        if dtype.kind == "int":
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
                raise InvalidProblem(f"{plan}: {attribute.name} is {value!r}, expected an integer ({word})")
            if not dtype.lowest <= value <= dtype.highest:
                raise InvalidProblem(
                    f"{plan}: {attribute.name} is {value}, expected {dtype.lowest} to {dtype.highest} ({word})"
                )
            values[attribute.name] = int(value)
        else:
            if not is_number(value):
                raise InvalidProblem(f"{plan}: {attribute.name} is {value!r}, expected a number")
            values[attribute.name] = float(value)
    for requirement in operation.requirements:
        chosen = {name: values[name] for name in requirement.names}
        if not requirement.holds(**chosen):
            came = ", ".join(f"{name}={value}" for name, value in chosen.items())
            raise InvalidProblem(f"{plan}: requires {requirement.text}, got {came}")
    return values
