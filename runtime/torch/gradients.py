"""Gradients of operators: as the rows of the table declare them, and an error where none is declared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch._C import (
    _after_autograd_keyset,
    _any_requires_grad,
    _are_functorch_transforms_active,
    _AutoDispatchBelowAutograd,
)
from torch._C._functorch import unwrap_if_dead
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

# What autograd itself makes of a function on one level: an operator's kernel runs below torch.func, which has
# unwrapped that level's tensors already.
from torch.autograd.function import _SingleLevelFunction

from skuda.arrays.views import contiguous_strides
from skuda.errors import InvalidProblem, Unsupported
from skuda.launch.prepared import Repeated
from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE
from skuda.plans import functions
from skuda.plans.functions import KEEPDIMS, SHAPE
from skuda.plans.halves import call_of_halves
from skuda.torch.broadcasting import expanded
from skuda.torch.halves import joined, places_of_one

if TYPE_CHECKING:
    from skuda.torch.operators import Operator

_GRADIENT = "d_"  # before the name of what an operand is the gradient of
_DIFFERENTIABLE = frozenset((torch.float32, torch.float64, torch.float16, torch.bfloat16))


class Kept:
    """What a recorded call asks its backward operation for.

    Attributes:
        attributes, options: of the backward operation, as `plans.functions.call` has them.
        repeat: makes a gradient of the one that comes where it is a copy; None where gradients are computed.
        ready: what has served such a call, of the operands alone; None where nothing has.
    """

    __slots__ = ("attributes", "options", "ready", "repeat")

    def __init__(self, attributes: tuple, options: tuple, repeat: Callable | None):
        self.attributes, self.options, self.repeat = attributes, options, repeat
        self.ready: Callable[..., Any] | None = None


class Gradient:
    """How the gradient of an operation is computed: which operands of its backward operation are which of its own.

    Attributes:
        function: the autograd function. It takes what computes the outputs from the inputs (None: the operation's
            function), the call that is recorded, and the inputs.
    """

    def __init__(self, operator: Operator):
        self.operator, self.operation = operator, operator.operation

        def backward(ctx, *gradients):
            return self._backward(ctx, gradients)

        methods = {"forward": staticmethod(self._forward), "backward": staticmethod(backward)}
        doc = f"skuda.{self.operation.function}, recorded."
        bases = (_SingleLevelFunction,)
        self.function = type(f"Skuda{self.operation.class_name}", bases, {**methods, "__doc__": doc})
        self.function._backward_cls.apply = backward  # which would look for it, in every pass

    @cached_property
    def backward(self):
        """The operation of the gradients; None where the row declares none."""
        return None if self.operator.backward is None else self.operator.backward.operation

    @cached_property
    def _made(self) -> list[int | None]:
        """Of each input, which output of the backward operation is its gradient; None for a constant, and for one of
        which nothing is declared."""
        return [self._declared.get(_GRADIENT + operand.name) for operand in self.operation.inputs]

    @cached_property
    def _declared(self) -> dict[str, int | None]:
        return {} if self.backward is None else self.backward.gradients

    @cached_property
    def _read(self) -> list[tuple[bool, int]]:
        """Of each input of the backward operation, which operand it is: of the gradients that come, or of inputs and
        outputs."""
        if self.backward is None:
            return []
        outputs = [_GRADIENT + operand.name for operand in self.operation.outputs]
        operands = [operand.name for operand in self.operation.operands]
        names = [operand.name for operand in self.backward.inputs]
        return [(True, outputs.index(name)) if name in outputs else (False, operands.index(name)) for name in names]

    @cached_property
    def _kept(self) -> list[int]:
        """The operands that a backward pass reads."""
        return [index for of_gradient, index in self._read if not of_gradient]

    @cached_property
    def _shaped(self) -> int | None:
        """The input whose shape the backward operation asks for."""
        if self.backward is None or self.backward.shaped is None:
            return None
        name = self.backward.shaped.name.removeprefix(_GRADIENT)
        return [operand.name for operand in self.operation.inputs].index(name)

    @cached_property
    def _has_codes(self) -> bool:
        """Whether some output may be of a type that has no gradient."""
        elements = [operand.element for operand in self.operation.outputs]
        words = {word for each in elements for word in self.operation.words_of(each) or [each]} - {COMPUTE}
        return any(DTYPES[word].kind != "float" or DTYPES[word].narrow_float for word in words)

    @cached_property
    def _unread(self) -> list[int]:
        """The outputs whose gradients the backward operation does not read, such as statistics beside a norm."""
        read = {index for of_gradient, index in self._read if of_gradient}
        return [index for index in range(len(self.operation.outputs)) if read and index not in read]

    @cached_property
    def _scalars(self) -> list[int]:
        return [index for index, operand in enumerate(self.operation.inputs) if operand.scalar]

    @cached_property
    def _undeclared(self) -> list[int]:
        """The inputs for which no gradient is declared, and which are not declared constant either."""
        names = [_GRADIENT + operand.name for operand in self.operation.inputs]
        return [index for index, name in enumerate(names) if name not in self._declared]

    def _forward(self, ctx, compute, call: Repeated, *inputs):
        if compute is not None:
            made = compute(*inputs)
        else:
            made = None if call.ready is None else call.ready(*inputs)
            if made is None:
                made = functions.run(self.operator.plan_class, (*inputs, None), call.attributes, call.options)
        outputs = made if isinstance(made, tuple) else (made,)
        if self._has_codes or self._unread:
            # An input of which nothing is declared may lead to any of them: a backward pass then raises.
            silent = any([ctx.needs_input_grad[2 + index] for index in self._undeclared])
            unread = [] if silent else [outputs[index] for index in self._unread]
            ctx.mark_non_differentiable(*unread, *[each for each in outputs if each.dtype not in _DIFFERENTIABLE])
        ctx.call = call
        if self._shaped is not None:
            ctx.shape = inputs[self._shaped].shape
        if self._scalars:
            ctx.scalar_shapes = [getattr(inputs[index], "shape", None) for index in self._scalars]
        if self._kept:
            operands = (*inputs, *outputs)
            kept = [operands[index] for index in self._kept]
            if self._scalars:
                ctx.numbers = [None if isinstance(value, torch.Tensor) else value for value in kept]
                kept = [value for value in kept if isinstance(value, torch.Tensor)]
            if kept:
                ctx.save_for_backward(*kept)
            ctx.wrapped = compute is not None and _are_functorch_transforms_active()
        return made

    def _backward(self, ctx, gradients):
        if self._is_of_views:  # of inputs that need none, autograd drops them
            return None, None, *self._run(gradients, ctx)
        needed = ctx.needs_input_grad[2:]
        if self._undeclared and any([needed[index] for index in self._undeclared]):
            raise Unsupported(self._refusal([self.operation.inputs[i].name for i in self._undeclared if needed[i]]))
        kept = ctx.saved_tensors if self._kept else ()
        if self._kept and ctx.wrapped:  # a transform that has returned, as that of torch.func.vjp, left its wrappers
            kept = [unwrap_if_dead(value) for value in kept]
        if self._kept and self._scalars:
            tensors = iter(kept)
            kept = [next(tensors) if number is None else number for number in ctx.numbers]
        made = self._run((*gradients, *kept), ctx)
        if self._is_in_order and False not in needed:
            return None, None, *made
        found = [made[index] if need and index is not None else None for need, index in zip(needed, self._made)]
        if self._scalars:
            for index, shape in zip(self._scalars, ctx.scalar_shapes):
                if found[index] is not None and found[index].shape != shape:
                    found[index] = found[index].reshape(shape)  # one value, as the caller gave it
        return None, None, *found

    @cached_property
    def _is_in_order(self) -> bool:
        """Whether what the backward operation makes are the gradients of the inputs as they stand."""
        return self._made == list(range(len(self._made))) and not self._scalars

    @cached_property
    def _is_of_views(self) -> bool:
        """Whether the gradients of the inputs are copies of what comes, as they stand."""
        return self._is_in_order and self._copied is not None and not self._undeclared

    @cached_property
    def _places(self) -> list[int]:
        """Where the inputs of the backward operation are among the gradients that come, and what is kept after them."""
        behind = iter(range(len(self.operation.outputs), len(self.operation.outputs) + len(self._kept)))
        return [index if of_gradient else next(behind) for of_gradient, index in self._read]

    @cached_property
    def _copied(self) -> list[int] | None:
        """Of each output of the backward operation, the place of what it is a copy of; None where one is computed."""
        operation = self.backward
        names = [operand.name for operand in operation.inputs]
        of = dict(operation.analysis.copies)
        if len(of) < len(operation.outputs):
            return None
        sources = [names.index(of[operand.name]) for operand in operation.outputs]
        for source, output in zip(sources, operation.outputs, strict=True):
            dims = operation.inputs[source].dims
            along_axes = operation.chooses_axes and output.dims == operation.space_of_axes and dims == output.dims[:-1]
            if dims != output.dims and not along_axes:
                return None
        return [self._places[source] for source in sources]

    def _run(self, values: tuple, ctx) -> tuple:
        """The backward operation of a recorded call.

        Args:
            values: the gradients that come, and what is kept.
        """
        call, shape = ctx.call, None if self._shaped is None else ctx.shape
        if call.kept is None or call.kept.options[SHAPE] != shape:
            call.kept = self._asked(call, shape)
        kept = call.kept
        if kept.repeat is not None:
            return [kept.repeat(values[place]) for place in self._copied]
        operands = [values[place] for place in self._places]
        of_one = None if self._halves is None else places_of_one(operands, self._halves)
        if of_one is not None:
            return self._compute_in_one(operands, kept, of_one)
        made = None if kept.ready is None else kept.ready(*operands)
        if made is None:
            made = self._compute(operands, kept)
        return made if isinstance(made, tuple) else (made,)

    def _compute(self, operands: list, kept: Kept):
        """The backward operation of its inputs."""
        plan_class = self.operator.backward.plan_class
        ready = functions.ready_for(plan_class)
        made = None if ready is None else ready((*operands, None), kept.attributes, kept.options, None)
        if made is not None and type(made) is not Repeated:
            kept.ready = ready.repeated.alone
            return made
        dtype, others, input_dtype, shape, keepdims = kept.options
        return functions.call(
            plan_class, (*operands, None), kept.attributes, None, dtype=dtype, output_dtypes=others,
            input_dtype=input_dtype, shape=shape, keepdims=keepdims,
        )  # fmt: skip

    @cached_property
    def _halves(self) -> list[int] | None:
        """Where the two inputs are among those of the backward operation that may be halves of one tensor."""
        names = [operand.name for operand in self.backward.inputs]
        return [names.index(name) for name in self.backward.halves] if self.backward.halves else None

    def _compute_in_one(self, operands: list, kept: Kept, of_one: Sequence[int]) -> tuple:
        """The backward operation of two operands that are halves of one tensor: so are their gradients.

        Args:
            operands, kept: as of `_compute`.
            of_one: which operand is the first half, and which the second.
        """
        first, second = of_one
        dtype, others, input_dtype, shape, keepdims = kept.options
        given = [*operands, None]
        given[first], given[second] = joined(operands[first], operands[second]), None
        made = call_of_halves(
            self.operator.backward.plan_class, tuple(given), kept.attributes, None, dtype=dtype, output_dtypes=others,
            input_dtype=input_dtype, shape=shape, keepdims=keepdims,
        ).chunk(2, -1)  # fmt: skip
        return made if first == self._halves[0] else made[::-1]

    def _asked(self, call: Repeated, shape: tuple[int, ...] | None) -> Kept:
        """What the backward operation is asked for of a call."""
        options = call.options
        named = {attribute.name: value for attribute, value in zip(self.operation.attributes, call.attributes)}
        own = tuple([named.get(attribute.name, attribute.absent) for attribute in self.backward.attributes])
        words = dict(zip(self.operation.asked.values(), (options[0], *options[1])))
        first, *others = [words.get(name) for name in self.backward.asked.values()] or [None]
        has = self.backward.options
        input_dtype = options[2] if "input_dtype" in has else None
        keepdims = options[KEEPDIMS] if "keepdims" in has else False
        shape = None if shape is None else tuple(shape)
        repeat = None if self._copied is None else _repeating(shape, self._absent_axes(own, shape), keepdims)
        return Kept(own, (first, tuple(others), input_dtype, shape, keepdims), repeat)

    def _absent_axes(self, attributes: tuple, shape: tuple[int, ...] | None) -> list[int]:
        """The axes of the inputs that the outputs of a call lack, in order."""
        if shape is None:
            return []
        axes = attributes[self.backward.attributes.index(self.backward.axis)]
        named = range(len(shape)) if axes is None else axes if isinstance(axes, (tuple, list)) else (axes,)
        return sorted([axis % len(shape) for axis in named]) if shape else []  # of one value there are none

    def _refusal(self, missing: list[str]) -> str:
        name = f"skuda.{self.operation.function}"
        if self.operation.direction.value == "backward":
            return f"{name}: the gradient of a gradient is not declared; call backward without create_graph"
        names = ", ".join(missing)
        return f"{name}: no gradient is declared for {names}; give {names} detached, or without requires_grad"


def _repeating(shape: tuple[int, ...] | None, axes: list[int], keepdims: bool) -> Callable:
    """What makes a gradient of the one that comes: it, or it repeated along these axes. No kernel runs."""
    sizes = [1 if axis in axes else size for axis, size in enumerate(shape or ())]
    strides = [0 if axis in axes else stride for axis, stride in enumerate(contiguous_strides(tuple(sizes)))]

    def repeat(value: torch.Tensor) -> torch.Tensor:
        if shape is None or value.shape == shape:
            return value
        if type(value) is torch.Tensor and value.is_contiguous() and not _are_functorch_transforms_active():
            return value.as_strided(shape, strides)  # one view, where the others are one for each axis, and one more
        for axis in () if keepdims else axes:
            value = value.unsqueeze(axis)
        return value.expand(shape)

    return repeat


def kernel(operator: Operator, numbers: bool, out: bool) -> Callable:
    """What runs at the Autograd key of an operator: it records the gradient, and goes on below."""
    if out:

        def refuse(keyset, *values):
            if torch.is_grad_enabled() and _any_requires_grad(*values):
                raise InvalidProblem(
                    f"skuda.{operator.operation.function}: out= records no gradient, but an array requires grad; "
                    "call it without out=, or under torch.no_grad()"
                )
            with _AutoDispatchBelowAutograd():
                return operator.overloads[numbers, True].redispatch(keyset & _after_autograd_keyset, *values)

        return refuse

    count = len(operator.operation.inputs)  # which come first

    def record(keyset, *values):
        transformed = _are_functorch_transforms_active()
        recorded = torch.is_grad_enabled() and _any_requires_grad(*values)
        if not (recorded or transformed or forward_ad._current_level >= 0):
            made = operator.repeated(values)  # past the dispatcher, which takes as long as the call
            if made is not None:
                return made
            with _AutoDispatchBelowAutograd():
                return operator.overloads[numbers, False].redispatch(keyset & _after_autograd_keyset, *values)

        def below(*inputs):
            # What autograd calls records nothing, and drops tangents. An outer transform of torch.func has to see both.
            recording = torch.set_grad_enabled(transformed or torch.is_grad_enabled())
            forward = forward_ad._set_fwd_grad_enabled(transformed or torch._C._is_fwd_grad_enabled())
            with _AutoDispatchBelowAutograd(), recording, forward:
                overload = operator.overloads[numbers, False]
                return overload.redispatch(keyset & _after_autograd_keyset, *inputs, *values[count:])

        call = expanded(operator, operator.call_of(values))
        with enable_single_level_autograd_function():
            return operator.gradient.function.apply(below, Repeated(call.attributes, call.options), *call.inputs)

    return record
