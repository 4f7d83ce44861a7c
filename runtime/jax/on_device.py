"""A call on one device as a primitive of JAX, which becomes a call of XLA's foreign function interface."""

from __future__ import annotations

from functools import lru_cache, partial

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir

from skuda.jax import handler
from skuda.jax.program import Program, program_of

call_p = Primitive("skuda_call_on_device")
call_p.multiple_results = True

handler.register()


def call(program: Program, *arrays) -> list:
    """The outputs of a call whose arrays are whole on the device that runs it; no transform knows it."""
    return call_p.bind(*arrays, text=program.text)


def outputs_of(program: Program) -> list[tuple[tuple[int, ...], np.dtype]]:
    """The shape and the element of each output; integers of 64 bits are of 32 where JAX has no others."""
    inputs = len(program.operation.inputs)
    storages = [jax.dtypes.canonicalize_dtype(each) for each in program.storages[inputs:]]
    return list(zip(program.shapes[inputs:], storages, strict=True))


def has_64_bits() -> bool:
    """Whether JAX has elements of 64 bits now (`jax_enable_x64`)."""
    return jax.dtypes.canonicalize_dtype(np.int64) == np.int64


def abstract(*avals, text: str, **_):
    """The types of the outputs, which vary over the axes of a mesh as the inputs do."""
    if not avals:  # of a call without arrays
        return [jax.core.ShapedArray(*each) for each in outputs_of(program_of(text))]
    like, found = avals[0], []
    for shape, storage in outputs_of(program_of(text)):
        sharding = like.sharding.update(spec=jax.sharding.PartitionSpec(*[None] * len(shape)))
        found.append(like.update(shape=shape, dtype=storage, weak_type=False, sharding=sharding))
    return found


@lru_cache(4096)
def compiled(primitive: Primitive, **parameters):
    """What runs a primitive outside of a trace."""
    program = jax.jit(partial(primitive.bind, **parameters))

    def run(*arrays):
        with jax.disable_jit(False):  # the primitive has no other evaluation
            return program(*arrays)

    return run


@call_p.def_impl
def _evaluate(*arrays, text: str):
    return compiled(call_p, text=text)(*arrays)


def _lower(ctx, *operands, text: str, workspace: int = 0):
    """A call of the handler; its arrays have the elements of the plan, which JAX may not have."""
    program = program_of(text)
    operands = [
        operand if aval.dtype == storage else _converted(ctx, operand, aval.update(dtype=storage, weak_type=False))
        for operand, aval, storage in zip(operands, ctx.avals_in, program.storages)
    ]
    wide = [aval.update(dtype=storage) for aval, storage in zip(ctx.avals_in, program.storages)]
    inputs = len(program.operation.inputs)
    parts = zip(program.shapes[inputs:], program.storages[inputs:], strict=True)
    stored = [jax.core.ShapedArray(*part) for part in parts]
    scratch = [jax.core.ShapedArray((workspace,), np.dtype(np.uint8))] if workspace else []
    rule = jax.ffi.ffi_lowering(handler.TARGET)
    inside = ctx.replace(avals_in=wide, avals_out=[*stored, *scratch])
    results = rule(inside, *operands, **{handler.ATTRIBUTE: text})
    return [
        result if own.dtype == wanted.dtype else _converted(ctx, result, wanted)
        for result, own, wanted in zip(results, stored, ctx.avals_out)
    ]


def _converted(ctx, value, aval):
    """A value of a program in the elements of another type."""
    return stablehlo.convert(mlir.aval_to_ir_type(ctx.module_context, aval), value)


def _lower_on_gpu(ctx, *operands, text: str):
    target = program_of(text).cuda
    return _lower(ctx, *operands, text=text, workspace=getattr(target, "plan", target).workspace_size)


call_p.def_abstract_eval(abstract)
mlir.register_lowering(call_p, _lower, platform="cpu")
mlir.register_lowering(call_p, _lower_on_gpu, platform="cuda")
