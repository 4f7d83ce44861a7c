"""`skuda.torch.compile`: compilers fuse an operation with what is around it, from its formula in torch's operators.

A graph that torch.compile found names operators `torch.ops.skuda.*`. With `fusible=True` each becomes a function that
evaluates the operation's formula by operators of torch, and whose gradient is the declared one, evaluated alike. What a
compiler makes of these is its own: sums have its order, and elementary functions are torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch._C import _are_functorch_transforms_active
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from skuda.errors import InvalidProblem
from skuda.frameworks.programs import OWN, plans, program_of
from skuda.launch import registry
from skuda.launch.prepared import Repeated
from skuda.plans.functions import Call
from skuda.plans.plan import Plan
from skuda.torch import formulas
from skuda.torch.broadcasting import expanded, promoted
from skuda.torch.gradients import Gradient, Kept
from skuda.torch.operators import Operator, operator_of, operators, register_operators

Specs = Mapping[str, str | Path]


def compile(
    model: Callable | None = None,
    *,
    fusible: bool = False,
    specs: Specs | None = None,
    backend: str | Callable = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    dynamic: bool | None = None,
    **others: Any,
) -> Any:
    """torch.compile, which may fuse skuda's operations with what is around them.

    Without `fusible` it is torch.compile: each operation is a call of its kernel, and has the bits of an eager one.
    With it the compiler is given each formula in torch's operators, forward and backward. It may fuse them with other
    code, and the promise of bits is lost: sums have the compiler's order, elementary functions are torch's, a compiler
    may contract products and sums, or divide otherwise. A code beside a tie may be its neighbour.

    An operation that torch cannot say stays a call of its kernel; `not_fusible` lists these. So does a call under a
    transform of torch.func inside of the model, and one with tensors of a class that wraps others (DTensor).

    Args:
        model: a module or a function; None for a decorator.
        fusible: whether operations may be fused.
        specs: for catalogs of one's own, by package: the file that each was generated from. skuda's own catalog and
            what `skuda.define` made need none.
        backend, mode, options, dynamic, others: as torch.compile takes them.

    Raises:
        InvalidProblem: `specs` names a package that is no catalog.
        SpecError: a file of `specs` cannot be read.
    """
    register_operators()  # of catalogs that were imported since
    if fusible:
        backend = Fusing(backend, mode, options, dynamic, specs or {})
        mode = options = None
    return torch.compile(model, backend=backend, mode=mode, options=options, dynamic=dynamic, **others)


def not_fusible(specs: Specs | None = None) -> dict[str, str]:
    """The operations that stay calls of kernels under `fusible=True`, by the names of their functions, with the reason.

    Args:
        specs: as of `compile`.
    """
    found = {}
    for name, plan in plans(forms=True).items():
        said = _said(plan, specs or {})
        if isinstance(said, str):
            found[name] = said
    return found


class Fusing:
    """A backend of torch.compile that another one compiles for.

    Args:
        backend, mode, options, dynamic: of the other, as torch.compile takes them.
        specs: as of `compile`.
    """

    def __init__(self, backend: str | Callable, mode, options, dynamic, specs: Specs):
        packages = {plan.package for plan in plans(forms=True).values()}
        if unknown := specs.keys() - packages:
            known = ", ".join(sorted(packages - {OWN})) or "none is"
            raise InvalidProblem(f"skuda.torch.compile: specs names {', '.join(sorted(unknown))}, expected packages of "
                                 f"catalogs that are imported: {known}")  # fmt: skip
        self.specs = dict(specs)
        inductor = backend == "inductor"
        wrapper = torch._TorchCompileInductorWrapper if inductor else torch._TorchCompileWrapper
        self.inner = wrapper(*(() if inductor else (backend,)), mode, options, dynamic)
        self.__name__ = f"fusible_{self.inner.compiler_name}"  # what torch's errors call it

    def __call__(self, graph: torch.fx.GraphModule, inputs: list, **options: Any) -> Callable:
        replace(graph, self.specs)
        return self.inner(graph, inputs, **options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fusing) and (self.inner, self.specs) == (other.inner, other.specs)

    __hash__ = None

    def reset(self) -> None:
        """Forgets what the other backend kept; torch._dynamo.reset calls it."""
        if hasattr(self.inner, "reset"):
            self.inner.reset()


def replace(graph: torch.fx.GraphModule, specs: Specs) -> None:
    """Puts formulas in the place of operators, in a graph and in the graphs that it calls."""
    known = {overload: (operator, overload) for operator in operators()
             for (_, writes), overload in operator.overloads.items() if not writes}  # fmt: skip
    for module in graph.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        changed = False
        for node in module.graph.nodes:
            found = known.get(node.target) if node.op == "call_function" else None
            if found is not None and not isinstance(_said(found[0].plan_class, specs), str):
                node.target, changed = _function(*found, specs), True
        if changed:
            module.recompile()


def _said(plan: type[Plan], specs: Specs) -> Any:
    """The program of an operation; why there is none, where torch cannot say it."""
    if plan.package not in specs and plan.package != OWN and not hasattr(registry.catalog_of(plan.package), "spec"):
        return f"the file of its row is not known: specs={{{plan.package!r}: ...}} names it"
    program = program_of(plan, specs.get(plan.package))
    return formulas.lacking(program) or program


def _function(operator: Operator, overload, specs: Specs) -> Callable:
    """A function that stands for an operator in a graph."""
    gradient = FusibleGradient(operator, specs)
    names = [argument.name for argument in overload._schema.arguments]

    def fusible(*values, **named):
        values = operator.filled((*values, *(named[name] for name in names[len(values) :] if name in named)))
        if _are_functorch_transforms_active() or any(map(is_traceable_wrapper_subclass, values)):
            return overload(*values)
        if operator.operation.creates:  # which records no gradient
            return gradient.evaluated(operator.call_of(tuple(values)), operator.device_of(values))
        device = next(value for value in values if isinstance(value, torch.Tensor)).device.type
        if torch.is_autocast_enabled(device):
            values = promoted(operator, values)
        call = expanded(operator, operator.call_of(tuple(values)))
        with torch.autocast(device, enabled=False):
            recorded = Repeated(call.attributes, call.options)
            return gradient.function.apply(gradient.formula(call), recorded, *call.inputs)

    fusible.__name__ = f"fusible_{operator.name}"
    return fusible


class FusibleGradient(Gradient):
    """What autograd records of an operation whose passes are both evaluated by torch's operators."""

    def __init__(self, operator: Operator, specs: Specs):
        super().__init__(operator)
        self._specs = specs

    def formula(self, call: Call) -> Callable:
        """What computes a call from its inputs: its formula, or its kernel where torch cannot say that."""

        def compute(*inputs):
            rest = (getattr(call, name) for name in call._fields[2:])
            return self.evaluated(Call(call.plan_class, inputs, *rest))

        return compute

    def evaluated(self, call: Call, device: torch.device | None = None):
        """The outputs of a call, on a device where no tensor shows it."""
        said = _said(call.plan_class, self._specs)
        made = None if isinstance(said, str) else formulas.evaluated(call, said, device)
        if made is None:
            return operator_of(call.plan_class).apply(call, device)
        return made if len(made) > 1 else made[0]

    def _compute(self, operands: list, kept: Kept):
        dtype, others, *rest = kept.options
        backward = self.operator.backward.plan_class
        return self.evaluated(Call(backward, tuple(operands), None, kept.attributes, None, (dtype, *others), *rest))
