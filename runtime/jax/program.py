"""A call as a text: what an XLA program holds of it, and all that is needed to run it in another process.

A text names the plan's class and says its descriptor, so a program that was exported, or that comes from JAX's cache on
disk, finds the plan again.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

import numpy as np

from skuda.arrays.views import CPU, View, contiguous_strides
from skuda.errors import Unsupported
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.operation import Operation
from skuda.model.sku import BackendKind
from skuda.plans.axis_views import AxisViewPlan, ChosenAxes, with_axis_views
from skuda.plans.plan import Plan

_APART = 1 << 64  # bytes between the arrays of a call that is only checked


class Program:
    """One call: a plan, and how its operands lie in the caller's arrays, which are contiguous.

    Attributes:
        text: what it is made from.
        plan_class: of the plan.
        fields: of the plan's descriptor.
        axes: the axes that the call names, and the others; None where these are the last ones.
        keepdims: whether outputs keep the axes that they lack.
        loaded: GPUs that have the kernels of arrays which lie alike, and how these lie.
    """

    def __init__(self, text: str):
        self.loaded: set[tuple[int, ...]] = set()
        said = json.loads(text)
        self.text = text
        self.plan_class = _plan_class(said["catalog"], said["module"], said["plan"])
        self.fields = {name: _tupled(value) for name, value in said["fields"].items()}
        self.axes = None if said["axes"] is None else ChosenAxes(*map(tuple, said["axes"]))
        self.keepdims = said["keepdims"]

    @staticmethod
    def of(target: Plan | AxisViewPlan) -> Program:
        """The program of what the function form has selected."""
        plan = target.plan if isinstance(target, AxisViewPlan) else target
        axes = target.axes if isinstance(target, AxisViewPlan) else None
        descriptor = plan.descriptor
        fields = {name: getattr(descriptor, name) for name in descriptor._fields}
        return _program(type(plan), fields, axes, axes is not None and target.keepdims)

    def resized(self, sizes: dict[str, Any], axes: ChosenAxes | None) -> Program:
        """The program for other sizes of some dimensions."""
        return _program(self.plan_class, self.fields | sizes, axes, self.keepdims)

    @property
    def operation(self) -> Operation:
        """What the plan computes."""
        return self.plan_class.operation

    @cached_property
    def host(self) -> Plan | AxisViewPlan:
        """What runs on the CPU: compiled kernels or the reference. It knows types and shapes."""
        return self._select(None)

    @cached_property
    def cuda(self) -> Plan | AxisViewPlan:
        """What runs on a GPU.

        Raises:
            Unsupported: there is no GPU here.
        """
        return self._select(BackendKind.CUDA)

    @property
    def plan(self) -> Plan:
        """The plan on the CPU."""
        return self.host.plan if isinstance(self.host, AxisViewPlan) else self.host

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the array of each operand."""
        target = self.host
        if isinstance(target, AxisViewPlan):
            return tuple(axis_view.shape for axis_view in target.axis_views)
        return target.stored

    @cached_property
    def storages(self) -> tuple[np.dtype, ...]:
        """The element of the array of each operand."""
        return tuple(DTYPES[word].storage for word in self.plan.words)

    @cached_property
    def strides(self) -> tuple[tuple[int, ...], ...]:
        """Of the array of each operand."""
        return tuple(map(contiguous_strides, self.shapes))

    def views(self, pointers, device: int = CPU) -> list[View]:
        """The arrays at some addresses, inputs first."""
        inputs = len(self.operation.inputs)
        parts = zip(pointers, self.shapes, self.strides, self.storages, strict=True)
        return [View(*part, device, True, index < inputs, None) for index, part in enumerate(parts)]

    def unplaced(self) -> list[View]:
        """The arrays at addresses that stand for any that are aligned."""
        return self.views([_APART * (index + 1) for index in range(len(self.shapes))])

    def _select(self, backend: BackendKind | None) -> Plan | AxisViewPlan:
        descriptor = self.plan_class.descriptor_type(**self.fields)
        plan = self.plan_class.select(descriptor, preference=backend or self.plan_class.on_cpu(descriptor))
        return plan if self.axes is None else with_axis_views(plan, self.axes, self.keepdims)


_PROGRAMS: dict[str, Program] = {}
_MOST_PROGRAMS = 4096


def program_of(text: str) -> Program:
    """The program of a text.

    Raises:
        Unsupported: it is one of a catalog that this process has not imported.
    """
    program = _PROGRAMS.get(text)
    if program is None:
        if len(_PROGRAMS) >= _MOST_PROGRAMS:
            _PROGRAMS.clear()
        program = _PROGRAMS[text] = Program(text)
    return program


def _program(plan_class: type[Plan], fields: dict[str, Any], axes: ChosenAxes | None, keepdims: bool) -> Program:
    said = {
        "catalog": plan_class.package,
        "module": plan_class.__module__.removeprefix(f"{plan_class.package}.plans."),
        "plan": plan_class.__name__,
        "fields": fields,
        "axes": None if axes is None else [axes.kept, axes.reduced],
        "keepdims": bool(keepdims),
    }
    text = json.dumps(said, sort_keys=True)
    if (known := _PROGRAMS.get(text)) is not None and known.plan_class is not plan_class:  # a catalog made again
        del _PROGRAMS[text]
    return program_of(text)


def _plan_class(package: str, module: str, name: str) -> type[Plan]:
    catalog = next((each for each in registry.catalogs() if each.package == package), None)
    if catalog is None:
        raise Unsupported(f"a compiled program calls {name} of the catalog {package}: import {package} before it runs")
    return getattr(catalog.module(module), name)


def _tupled(value):
    return tuple(value) if isinstance(value, list) else value
