"""Whatever Python objects a caller gives, in place of any argument: a result, or an error of skuda's own."""

from __future__ import annotations

import inspect
from decimal import Decimal
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import skuda
from skuda.errors import SkudaError
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind

CATALOG = registry.catalogs()[0]
PLANS = {
    plan.operation.function: plan
    for name in CATALOG.modules
    for plan in CATALOG.plans(name)
    if plan.operation.name in CATALOG.modules
}


class Hostile:
    """Answers every question with an error."""

    def _fail(self, *_):
        raise ZeroDivisionError("asked a hostile object")

    __repr__ = __eq__ = __hash__ = __bool__ = __len__ = __iter__ = __int__ = __float__ = __index__ = _fail
    __array__ = __dlpack__ = __dlpack_device__ = __cuda_stream__ = __lt__ = __le__ = _fail


class Claims:
    """An array by its attributes, of which none makes sense."""

    shape, dtype, ndim, strides = "shape", "dtype", "two", None
    __cuda_array_interface__ = {"shape": "x", "typestr": 3, "data": None}


_STRUCTURED = np.dtype([("a", "i4"), ("b", "f8")])
# Numbers are small or beyond all memory: a shape of 2^31 would be a fair wish.
_OBJECTS = [
    None, True, False, 0, 1, -1, 2, 7, -(2**63), 2**63, 10**30, 10**400, -(10**5000), 0.0, -0.0, 1.5, float("nan"),
    float("inf"), 1e300, 1j, "", "s8", "s4", "int8", "f99", "nonsense", b"bytes", [], [1], [1.5, "x"], (), (0,), (1, 1),
    (-1, 10**30), (2, (3,)), (True,), set(), {1}, frozenset({0}), {}, {"a": 1}, range(3), slice(1), ..., NotImplemented,
    Fraction(1, 3), Decimal("0.1"), object(), int, float, list, type, np, np.int8, np.ndarray, np.generic, len,
    lambda: 1, np.dtype("int8"), np.dtype(">f4"), _STRUCTURED, ml_dtypes.int4, ml_dtypes.float8_e4m3fnuz, torch.int8,
    torch.complex64, torch.Tensor, torch.float32, np.int64(1), np.uint8(255), np.float16(0.5), np.float64(-0.0),
    np.bool_(True), np.complex64(1), np.str_("s8"), np.datetime64("2020-01-01"), ml_dtypes.bfloat16(2),
    np.longdouble(1), np.array(1), np.array(0.5, np.float32), np.zeros(0, np.float32), np.zeros((2, 0), np.int8),
    np.zeros((2, 4), np.float32), np.ones((2, 1), np.float32), np.zeros((2, 4), np.complex64), np.zeros(2, object),
    np.zeros((2, 4), np.uint8), np.zeros((2, 4), ">f4"), np.zeros(2, _STRUCTURED), np.array(["a"]), np.ma.zeros(3),
    np.zeros((1,) * 40, np.float32), np.zeros((2, 8), np.float32)[:, ::2], np.zeros(8, "f4")[::-1],
    np.broadcast_to(np.float32(1), (2, 4)), torch.zeros(2, 4), torch.zeros(2, 4, requires_grad=True),
    torch.zeros(2, dtype=torch.complex64), torch.zeros(2, 4).to_sparse(), torch.zeros(2, 4, device="meta"),
    torch.zeros(()), torch.zeros(0), torch.tensor(True), memoryview(b"ab"), bytearray(3), Hostile(), Claims(), Hostile,
    Claims, BackendKind.CUDA, BackendKind.REFERENCE, BackendKind, skuda, ValueError("x"),
]  # fmt: skip
OBJECTS = st.sampled_from(range(len(_OBJECTS))).map(lambda index: _OBJECTS[index])  # a bound method prints them all
OBJECTS = st.one_of(
    OBJECTS,
    st.lists(OBJECTS, max_size=3),
    st.lists(OBJECTS, max_size=3).map(tuple),
    st.integers(-9, 9),
    st.floats(allow_nan=True),
    st.text(max_size=4),
)
PATIENT = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def fields_of(plan_class) -> dict:
    """A descriptor that a plan can be selected by."""
    operation = plan_class.operation
    fields = {dim.name: (2,) if dim.many else 4 for dim in operation.dims}
    if "inner" in fields:
        fields["inner"] = ()
    return fields | {attribute.name: 2 for attribute in operation.attributes if attribute.type == "size"}


def plan_of(plan_class):
    descriptor = plan_class.descriptor_type(**fields_of(plan_class))
    return plan_class.select(descriptor, preference=BackendKind.REFERENCE)


def arrays_of(plan) -> list[np.ndarray]:
    return [
        np.ones(shape, DTYPES[word].storage) for shape, word in zip(plan.stored, plan.words, strict=True)
    ]


def arguments_of(plan_class) -> dict:
    """Arguments of a function form that are in order."""
    plan = plan_of(plan_class)
    operation = plan_class.operation
    arguments = dict(zip((operand.name for operand in operation.inputs), arrays_of(plan)))
    parameters = inspect.signature(getattr(skuda, operation.function)).parameters
    arguments |= {attribute.name: 2 for attribute in operation.attributes if attribute.type == "size"}
    if operation.axis is not None:
        arguments[operation.axis.name] = -1
    if "shape" in parameters and operation.shaped is not None:
        arguments["shape"] = plan.shapes[plan.operation.operands.index(operation.shaped)]
    return arguments


@pytest.mark.parametrize("name", ["hypot", "atan2", "fma", "pow", "sum", "cumsum", "softmax", "triplet_margin_loss"])
@pytest.mark.parametrize("axes", [33, 60, 64])
def test_arrays_of_many_axes_are_served_or_refused(name, axes):
    """np.broadcast knows 32 axes, an array may have 64."""
    good = arguments_of(PLANS[name])
    first = next(key for key, value in good.items() if isinstance(value, np.ndarray))
    try:
        getattr(skuda, name)(**{**good, first: np.ones((1,) * axes, good[first].dtype)})
    except SkudaError as error:
        assert "60" in str(error) or axes < 61


@pytest.mark.parametrize("name", PLANS)
def test_the_arguments_to_be_spoilt_are_in_order(name):
    getattr(skuda, name)(**arguments_of(PLANS[name]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.turns(9)
@pytest.mark.parametrize("name", PLANS)
def test_no_function_fails_otherwise_whatever_it_is_given(name):
    function, good = getattr(skuda, name), arguments_of(PLANS[name])
    names = [*inspect.signature(function).parameters]

    @PATIENT
    @given(st.dictionaries(st.sampled_from(names), OBJECTS, min_size=1, max_size=3))
    def call(spoilt):
        try:
            function(**{**good, **spoilt})
        except SkudaError as error:
            assert str(error)

    call()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.turns(9)
@pytest.mark.parametrize("name", PLANS)
def test_no_plan_fails_otherwise_whatever_it_is_given(name):
    plan_class = PLANS[name]
    good, plan = fields_of(plan_class), plan_of(plan_class)
    arrays = arrays_of(plan)
    selects = st.dictionaries(st.sampled_from(plan_class.descriptor_type._fields), OBJECTS, max_size=2)
    operands = st.dictionaries(st.integers(0, len(arrays) - 1), OBJECTS, max_size=2)

    @PATIENT
    @given(selects, operands, OBJECTS, OBJECTS, OBJECTS, st.sampled_from(range(5)))
    def use(fields, others, descriptor, stream, preference, which):
        try:
            if which == 0:
                plan_class.select(plan_class.descriptor_type(**{**good, **fields}), preference=BackendKind.REFERENCE)
            elif which == 1:
                plan_class.select(descriptor, stream, preference)
            elif which == 2:
                plan_class.select(plan_class.descriptor_type(**good), stream, BackendKind.REFERENCE)
            else:
                given = [others.get(index, array) for index, array in enumerate(arrays)]
                args = plan_class.args_type(*given) if which == 3 else descriptor
                plan.can_implement(args)
                plan.run(args, *([stream] if others else []))
        except SkudaError as error:
            assert str(error)

    use()
