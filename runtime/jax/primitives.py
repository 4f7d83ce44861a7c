"""A call as a primitive of JAX: what each transform makes of it.

It holds the jaxpr of what partitions it over devices and runs it on each, see `partitions`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from skuda.errors import Unsupported
from skuda.frameworks.batching import leading, repeated
from skuda.jax import on_device
from skuda.jax.partitions import explicit_shardings, partitioned
from skuda.jax.program import Program, program_of
from skuda.model.dtypes import DTYPES
from skuda.plans.axis_views import ChosenAxes

call_p = Primitive("skuda_call")
call_p.multiple_results = True


@call_p.def_abstract_eval
def _abstract(*avals, text: str, jaxpr):
    found = on_device.abstract(*avals, text=text)
    if all(each is None for aval in avals for each in aval.sharding.spec):
        return found
    shardings = explicit_shardings(program_of(text), avals)
    return [each.update(sharding=own) for each, own in zip(found, shardings, strict=True)]


def call(program: Program, *arrays) -> list:
    """The outputs of a call, whose arrays have the shapes that its program says."""
    if not arrays:  # each device has all of what is made
        return on_device.call(program)
    jaxpr = partitioned(program, on_device.has_64_bits())
    return call_p.bind(*varying_alike(arrays), text=program.text, jaxpr=jaxpr)


def varying_alike(arrays) -> list:
    """The arrays, each of which varies over the axes of the mesh that some of them vary over, inside of `shard_map`."""
    varying = [_varying(array) for array in arrays]
    every = frozenset().union(*varying)
    if not every:
        return list(arrays)
    missing = [tuple(sorted(every - own, key=str)) for own in varying]
    return [jax.lax.pcast(a, axes, to="varying") if axes else a for a, axes in zip(arrays, missing, strict=True)]


def _varying(array) -> frozenset:
    aval = jax.typeof(array)
    return aval.mat.varying if hasattr(aval, "mat") else getattr(aval, "vma", frozenset())


# ---- evaluation and lowering ----


@call_p.def_impl
def _evaluate(*arrays, text: str, jaxpr):
    return on_device.compiled(call_p, text=text, jaxpr=jaxpr)(*arrays)


def _lower(ctx, *operands, text: str, jaxpr):
    return mlir.lower_fun(jaxpr_as_fun(jaxpr), multiple_results=True)(ctx, *operands)


mlir.register_lowering(call_p, _lower)


# ---- transforms ----


def _differentiate(primals, tangents, *, text: str, jaxpr):
    """The tangents of outputs that have none. Others are an error: gradients are declared for the reverse alone."""
    program = program_of(text)
    outputs = program.operation.outputs
    continuous = [o.name for o, word in zip(outputs, program.plan.words[-len(outputs) :]) if differentiable(word)]
    if continuous and any(type(tangent) is not ad.Zero for tangent in tangents):
        raise Unsupported(
            f"skuda.{program.operation.function} is differentiated where it has no declared gradient: that of "
            f"{', '.join(continuous)} is not known (a gradient's own gradient and forward mode never are); "
            "jax.lax.stop_gradient makes an input a constant"
        )
    found = call_p.bind(*primals, text=text, jaxpr=jaxpr)
    return found, [ad.Zero(jax.typeof(each).to_tangent_aval()) for each in found]


def differentiable(word: str) -> bool:
    """Whether values of an element type have gradients: those of codes are floats of more than 8 bits, or none."""
    return not DTYPES[word].code


def _batch(arrays, axes, *, text: str, jaxpr):
    program = program_of(text)
    operation, arrays = program.operation, list(arrays)
    names = [operand.name for operand in operation.inputs]
    has_batch = {name: axis is not None for name, axis in zip(names, axes, strict=True)}
    size = next(a.shape[axis] for a, axis in zip(arrays, axes) if axis is not None)
    arrays = [jnp.moveaxis(a, axis, 0) if has_batch[name] else a for a, axis, name in zip(arrays, axes, names)]
    ranks = {o.name: len(shape) for o, shape in zip(operation.operands, program.shapes, strict=True)}
    expanded = repeated(operation, has_batch, ranks, program.plan.types)
    if expanded is None:
        found = _loop(program, arrays, has_batch, names)
    else:
        arrays = [jnp.broadcast_to(a, (size, *a.shape)) if n in expanded else a for a, n in zip(arrays, names)]
        found = call(with_batch(program, size), *arrays)
    return found, [0] * len(found)


def with_batch(program: Program, size: int) -> Program:
    """The program of a batch, whose axis comes first."""
    lead, axes = leading(program.operation), program.axes
    if axes is not None:
        axes = ChosenAxes((0, *(axis + 1 for axis in axes.kept)), tuple(axis + 1 for axis in axes.reduced))
    sizes = program.plan.sizes[lead]
    return program.resized({lead: (size, *sizes)}, axes)


def _loop(program: Program, arrays, has_batch, names) -> list:
    """A call for each entry of the batch, one after the other."""
    mapped = [array for array, name in zip(arrays, names, strict=True) if has_batch[name]]

    def one(entries):
        left = iter(entries)
        return call(program, *[next(left) if has_batch[n] else a for a, n in zip(arrays, names, strict=True)])

    return jax.lax.map(one, mapped)


ad.primitive_jvps[call_p] = _differentiate
batching.primitive_batchers[call_p] = _batch
