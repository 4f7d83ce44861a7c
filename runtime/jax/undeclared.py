"""Values whose gradient no row declares: they pass as they are, and differentiating them is an error, not a zero."""

from __future__ import annotations

from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from skuda.errors import Unsupported

_input_p = Primitive("skuda_input_without_gradient")
_output_p = Primitive("skuda_output_without_gradient")


def constant(array, message: str):
    """An input. An error if it depends on what is differentiated."""
    return _input_p.bind(array, message=message)


def without_gradient(array, message: str):
    """An output. An error if what is differentiated depends on it."""
    return _output_p.bind(array, message=message)


def _differentiate_input(primals, tangents, *, message: str):
    if type(tangents[0]) is not ad.Zero:
        raise Unsupported(message)
    return constant(*primals, message), tangents[0]


def _differentiate_output(primals, tangents, *, message: str):
    (tangent,) = tangents
    passed = tangent if type(tangent) is ad.Zero else without_gradient(tangent, message)
    return without_gradient(*primals, message), passed


def _transpose_output(cotangent, operand, *, message: str):
    if type(cotangent) is not ad.Zero:
        raise Unsupported(message)
    return (cotangent,)


for _primitive in (_input_p, _output_p):
    _primitive.def_abstract_eval(lambda aval, *, message: aval)
    _primitive.def_impl(lambda array, *, message: array)
    mlir.register_lowering(_primitive, lambda ctx, operand, *, message: [operand])
    batching.defvectorized(_primitive)
ad.primitive_jvps[_input_p] = _differentiate_input
ad.primitive_jvps[_output_p] = _differentiate_output
ad.primitive_transposes[_output_p] = _transpose_output
