"""Registers operations with torch: schemas, kernels, meta kernels; gradients and transforms are beside this file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import _register_namedtuple

from skuda.arrays.libraries import CPU, PLAIN, library_named, torch_dtypes
from skuda.errors import InvalidProblem, NotAnArray, Unsupported, shown
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.operation import FORM, Operation
from skuda.model.sku import Direction
from skuda.plans import creation, functions
from skuda.plans.functions import Call, chosen, each_of, form_of
from skuda.plans.plan import Plan
from skuda.plans.results import made_by
from skuda.torch import gradients, schema, transforms
from skuda.torch.described import described, strides_of

NAMESPACE = "skuda"
SERIALIZED: set[type[tuple]] = set()  # classes whose names torch.export knows
TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)


class Operator:
    """One operation as operators of torch.

    Attributes:
        plan_class: the operation's plan.
        operation: the operation.
        name: of the operators, in their namespace.
        arguments: of the schema, in order.
        inputs, scalars: where the inputs are among the arguments, and those of them that are one value.
        broadcast: where the inputs are that broadcast against each other.
        results: the class of several outputs; None of one.
        gradient: what autograd records.
        overloads: the operators, by whether they take numbers, and whether they are given what they write.
    """

    def __init__(self, plan_class: type[Plan], name: str):
        self.plan_class = plan_class
        self.operation: Operation = plan_class.operation
        self.name = name
        self.arguments = schema.arguments(self.operation)
        positions = {argument.name: index for index, argument in enumerate(self.arguments)}
        self.inputs = [positions[operand.name] for operand in self.operation.inputs]
        self._attributes = [positions[attribute.name] for attribute in self.operation.attributes]
        self._lists = [positions[a.name] for a in self.operation.attributes if a.type == "axes"]
        self._defaults = [
            [a.default] if i in self._lists and a.default is not None else a.default
            for i, a in enumerate(self.arguments)
        ]
        self._options = {name: positions[name] for name in self.operation.options}
        self._device = positions.get("device") if self.operation.creates else None
        self.broadcast = self.operation.broadcast  # which torch.compile could not make
        self.scalars = [positions[operand.name] for operand in self.operation.inputs if operand.scalar]
        self._said = [position for position in range(len(self.arguments)) if position not in self.inputs]
        self._last: tuple | None = None  # what the last call said beside its inputs, and its attributes and options
        self.results = plan_class.results_type
        self.overloads: dict[tuple[bool, bool], Any] = {}
        self.gradient = gradients.Gradient(self)

    @cached_property
    def backward(self) -> Operator | None:
        """The operator of the gradients; None where the row declares none."""
        if self.operation.direction is Direction.BACKWARD:
            return None
        plans = registry.catalog_of(self.plan_class.package).plans(self.operation.row)
        whole = [plan for plan in plans if plan.operation.is_whole]
        without = self.operation.name.partition(FORM)[0]
        for name in dict.fromkeys((self.operation.name, without)):  # without an input: its own, or that with it
            for plan in whole:
                if plan.operation.direction is Direction.BACKWARD and plan.operation.name == name:
                    return operator_of(plan)
        return None

    def filled(self, values: tuple, out: bool = False) -> tuple:
        """All arguments: torch's dispatcher leaves out the last ones where they are defaults."""
        if out:  # what is written comes last, so nothing is left out
            return values
        return (*values, *self._defaults[len(values) :])

    def call_of(self, values: tuple, out=None) -> Call:
        """The call that an operator's arguments mean.

        Args:
            values: in the order of the schema.
            out: what it writes; a tuple if there are several.
        """
        values = self.filled(values)
        options = {name: values[position] for name, position in self._options.items()}
        asked = tuple(options[name] for name in self.operation.asked.values()) or (None,)
        shape = options.get("shape")
        return Call(
            self.plan_class,
            tuple(values[position] for position in self.inputs),
            out,
            tuple(_plain(values[position]) for position in self._attributes),
            None,
            asked,
            options.get("input_dtype"),
            None if shape is None else tuple(shape),
            options.get("keepdims", False),
        )

    def options_of(self, call: Call) -> dict[str, Any]:
        """The options of a call by name."""
        options = dict(zip(self.operation.asked.values(), call.dtypes))
        options |= {"input_dtype": call.input_dtype, "shape": call.shape, "keepdims": call.keepdims}
        return {name: options[name] for name in self._options}

    def call_by_name(self, values: Mapping[str, Any]) -> Call:
        """The call with these inputs, attributes and options; the others have their defaults."""
        return self.call_of(tuple(values.get(argument.name, argument.default) for argument in self.arguments))

    def values_of(self, call: Call) -> list:
        """The arguments of an operator for a call: `call_of` turned round."""
        values: list[Any] = [None] * len(self.arguments)
        for position, value in zip(self.inputs, call.inputs, strict=True):
            values[position] = value
        for position, value in zip(self._attributes, call.attributes, strict=True):
            if position in self._lists and value is not None:
                value = [*value] if isinstance(value, (tuple, list)) else [value]
            values[position] = value
        for name, value in self.options_of(call).items():
            values[self._options[name]] = value
        return values

    def apply(self, call: Call, device=None):
        """The call through torch's dispatcher; returns what was made, or what the call gave to be written.

        Args:
            call: the call.
            device: where an operation that creates makes its outputs.
        """
        values = self.values_of(call)
        if self._device is not None:
            values[self._device] = device
        numbers = [position for position in self.scalars if not isinstance(values[position], torch.Tensor)]
        if len(numbers) < len(self.scalars):  # some are tensors: the others become tensors
            for position in numbers:
                values[position] = self._tensor_of(values[position], position, call.inputs)
            numbers = []
        if call.out is None:
            return self.named(self.overloads[bool(numbers), False](*values))
        self.overloads[bool(numbers), True](*values, *each_of(call.out))
        return call.out

    def named(self, made):
        """What a call returns, of what an operator returns."""
        return made if self.results is None else self.results(*made)

    def _tensor_of(self, number, position: int, inputs: tuple):
        """A number as a tensor of one value: an integer as i32, a float as the compute type."""
        tensor = next(value for value in inputs if isinstance(value, torch.Tensor))
        operand = self.operation.inputs[self.inputs.index(position)]
        element = operand.element
        wide = torch.float64 in [value.dtype for value in inputs if isinstance(value, torch.Tensor)]
        real = torch.float64 if wide else torch.float32
        whole = torch_dtypes()[DTYPES[element].storage] if element in DTYPES else torch.int32
        dtype = real if self.operation.is_float(element) else whole
        if self.operation.is_mixed(element):  # as the other one
            dtype = tensor.dtype
        where = f"skuda.{self.operation.function}: {operand.name}"
        if not isinstance(number, (int, float, np.number, np.bool_)):
            raise NotAnArray(f"{where} is {shown(number)}, expected a number or a tensor")
        try:
            return torch.full((), number, dtype=dtype, device=tensor.device)
        except (OverflowError, RuntimeError) as error:
            if not isinstance(error, OverflowError) and "overflow" not in str(error):
                raise  # an error of the device
            raise InvalidProblem(f"{where} is {shown(number)}, which {dtype} cannot hold") from error

    def compute(self, *values):
        """The kernel, on the CPU and on CUDA."""
        return self._run(self.filled(values), None)

    def write(self, *values) -> None:
        """The kernel into tensors that are given."""
        count = len(self.operation.outputs)
        out = values[-count:]
        self._run(values[:-count], out if count > 1 else out[0])

    def repeated(self, values: tuple):
        """The kernel, where the call repeats a known one and nothing of torch follows it; else None."""
        if self.operation.creates:
            return None
        values = self.filled(values)
        inputs = [values[position] for position in self.inputs]
        if type(inputs[0]) not in PLAIN:  # a tensor without memory comes with lengths that are symbols
            return None
        return functions.repeated(self.plan_class, (*inputs, None), *self._meant(values))

    def _run(self, values: tuple, out):
        """A call with all arguments."""
        if self.operation.creates:
            device = out.device if isinstance(out, torch.Tensor) else out[0].device if out else self.device_of(values)
            return creation.made(self.call_of(values, out), library_named("torch"), ordinal(device))
        inputs = [values[position] for position in self.inputs]
        return functions.run(self.plan_class, (*inputs, out), *self._meant(values))

    def device_of(self, values: tuple) -> torch.device:
        """Where the outputs are made by an operation that creates: on the device that all arguments say, else beside a
        tensor among them, else on torch's default one."""
        device = values[self._device]
        if device is None:
            device = next((value.device for value in values if isinstance(value, torch.Tensor)), None)
        return torch.get_default_device() if device is None else torch.device(device)

    def _meant(self, values: tuple) -> tuple[tuple, tuple]:
        """The attributes and options that all arguments mean: mostly those of the call before."""
        said, last = [values[position] for position in self._said], self._last
        if last is None or last[0] != said:
            call = self.call_of(values)
            last = said, call.attributes, call.options
            self._last = None if 0 in said else last  # -0.0 == 0.0
        return last[1:]

    def meta(self, *values):
        """Tensors without memory, as `compute` would make them."""
        dtypes = torch_dtypes()
        device = self.device_of(self.filled(values)) if self.operation.creates else "meta"
        made = self._made(values)
        strides = strides_of(self.call_of(values), [shape for shape, _ in made])
        made = [
            torch.empty(shape, dtype=dtypes[storage], device=device)
            if steps is None
            else torch.empty_strided(shape, steps, dtype=dtypes[storage], device=device)
            for (shape, storage), steps in zip(made, strides, strict=True)
        ]
        return tuple(made) if len(made) > 1 else made[0]

    def meta_write(self, *values) -> None:
        """Refuses tensors into which `write` would not write."""
        count = len(self.operation.outputs)
        made = self._made(values[:-count])
        for operand, (shape, storage), out in zip(self.operation.outputs, made, values[-count:], strict=True):
            if tuple(out.shape) != tuple(shape) or out.dtype != torch_dtypes()[storage]:
                raise Unsupported(
                    f"{self.operation.function}: out {operand.name} is {out.dtype} of shape {tuple(out.shape)}, "
                    f"expected {torch_dtypes()[storage]} of shape {tuple(shape)}"
                )

    def _made(self, values) -> list:
        return made_by(self.call_of(values), described)


def _plain(value):
    """An attribute as Python's own numbers: a symbol is no longer one, so a program is compiled for its value."""
    if isinstance(value, (list, tuple)):
        return tuple(map(int, value))
    if isinstance(value, torch.SymInt):
        return int(value)
    return float(value) if isinstance(value, torch.SymFloat) else value


def ordinal(device: torch.device) -> int:
    """A device as views have it."""
    if device.type == "cpu":
        return CPU
    return torch.cuda.current_device() if device.index is None else device.index


_OPERATORS: dict[type[Plan], Operator] = {}
_REGISTERED: dict[str, tuple[registry.Catalog, torch.library.Library]] = {}  # by package
_NAMES: dict[str, str] = {}  # of operators: the package that has each


def operator_of(plan_class: type[Plan]) -> Operator:
    """The operator of an operation, by its plan."""
    found = _OPERATORS.get(plan_class)
    if found is None:
        register_operators()
        found = _OPERATORS[plan_class]
    return found


def operators() -> tuple[Operator, ...]:
    """The operators of all catalogs that are loaded."""
    register_operators()
    return tuple(_OPERATORS.values())


def register_operators() -> None:
    """Registers the operations of all catalogs that are loaded, as far as they are not; takes away those of others."""
    loaded = registry.catalogs()
    for package in _REGISTERED.keys() - {catalog.package for catalog in loaded}:
        _forget(package)
    for catalog in loaded:
        known = _REGISTERED.get(catalog.package)
        if known is None or known[0] is not catalog:
            if known is not None:  # generated anew
                _forget(catalog.package)
            _register(catalog)


def _forget(package: str) -> None:
    _REGISTERED.pop(package)[1]._destroy()
    for plan_class in [each for each in _OPERATORS if each.package == package]:
        del _OPERATORS[plan_class]
    for name in [name for name, owner in _NAMES.items() if owner == package]:
        del _NAMES[name]


def _register(catalog: registry.Catalog) -> None:
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    _REGISTERED[catalog.package] = catalog, library
    for module in catalog.modules:
        for plan_class in catalog.plans(module):
            if not plan_class.operation.is_whole or plan_class in _OPERATORS:
                continue
            _export_as_named(plan_class.results_type)
            name = plan_class.operation.function
            if name in _NAMES:  # another catalog's
                name = f"{catalog.package.replace('.', '_')}_{name}"
            _NAMES[name] = catalog.package
            operator = _OPERATORS[plan_class] = Operator(plan_class, name)
            for numbers in (False, True) if operator.scalars else (False,):
                _define(library, operator, numbers)
            for name in dict(operator.operation.forms):
                form_of(plan_class, name)  # torch.compile cannot import what this does
            for word in operator.operation.choice.words if operator.operation.choice else ():
                chosen(plan_class, word)


def _export_as_named(results: type[tuple] | None) -> None:
    """Lets `torch.export` save programs that return a named tuple; to torch's other parts it is one as it stands."""
    if results is not None and results not in SERIALIZED:
        SERIALIZED.add(results)
        _register_namedtuple(results, serialized_type_name=f"{results.__module__}.{results.__name__}")


def _define(library: torch.library.Library, operator: Operator, numbers: bool) -> None:
    """The two operators of an operation: one that makes its outputs, one that is given them."""
    suffix = ".Scalar" if numbers else ""
    kinds = (
        (False, f"{operator.name}{suffix}", schema.schema, operator.compute, operator.meta),
        (True, f"{operator.name}_out{suffix}", schema.out_schema, operator.write, operator.meta_write),
    )
    for out, name, text, compute, meta in kinds:
        library.define(text(operator.name, operator.operation, numbers), tags=TAGS)
        packet = getattr(getattr(torch.ops, NAMESPACE), name.partition(".")[0])
        operator.overloads[numbers, out] = packet.Scalar if numbers else packet.default
        library.impl(name, compute, "CPU")
        library.impl(name, compute, "CUDA")
        if operator.operation.creates and not out:
            torch.library.register_fake(f"{NAMESPACE}::{name}", meta, lib=library)  # whose tensors have a device
            library.impl(name, _by_device(operator, numbers), "BackendSelect", with_keyset=True)
        else:
            library.impl(name, meta, "Meta")
        library.impl(name, gradients.kernel(operator, numbers, out), "Autograd", with_keyset=True)
        for key in ("AutocastCPU", "AutocastCUDA"):
            library.impl(name, transforms.autocast(operator, numbers, out, key), key)
        torch.library.register_vmap(f"{NAMESPACE}::{name}", transforms.vmap(operator, numbers, out), lib=library)


def _by_device(operator: Operator, numbers: bool) -> Callable:
    """What runs before the kernels of an operator that creates: no tensor may say which device's is meant."""

    def selected(keyset, *values):
        values = operator.filled(values)
        device = operator.device_of(values)
        key = getattr(torch._C.DispatchKey, torch._C._dispatch_key_for_device(device.type))
        return operator.overloads[numbers, False].redispatch(torch._C.DispatchKeySet(key), *values)

    return selected
