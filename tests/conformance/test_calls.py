"""What calls take beside plain arrays: types by any name, axes and attributes, bytes, parameters that keep axes."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest
import torch

import skuda
from skuda.arrays.libraries import stream_handle
from skuda.errors import InvalidProblem, NotAnArray, NotAStream, SkudaError, Unsupported
from skuda.launch import registry
from skuda.model.dtypes import DTYPES, word_of
from skuda.model.sku import BackendKind
from skuda.plans import functions, selection

from .support import plain_input

CATALOG = registry.catalogs()[0]
PLANS = {plan.operation.function: plan for name in CATALOG.modules for plan in CATALOG.plans(name)}
PLANS = {name: plan for name, plan in PLANS.items() if plan.operation.name in CATALOG.modules}
AXES = [name for name, plan in PLANS.items() if plan.operation.chooses_axes]


class Scalar:
    """As JAX's scalar types, which are no classes to NumPy but have a dtype."""

    def __init__(self, dtype):
        self.dtype = np.dtype(dtype)


def kind(value) -> str:
    """An id of a parameter that is the same in every process."""
    return value if isinstance(value, str) else type(value).__name__


NAMES = {row.word: row.storage.name for row in DTYPES.values() if not row.packed} | {"s4": "int4", "u4": "uint4"}


def names_of(word: str) -> list:
    name = NAMES[word]
    scalar = getattr(ml_dtypes, name, None) or getattr(np, name)
    return [word, name, scalar, np.dtype(scalar), Scalar(scalar), getattr(torch, name, word)]


NAMED = [(word, named) for word in NAMES for named in names_of(word)]


@pytest.mark.parametrize(("word", "named"), NAMED, ids=kind)
def test_a_type_by_each_of_its_names(word, named):
    assert word_of(named) == word


@pytest.mark.parametrize(("word", "named"), [(float, "f64"), (bool, "bool"), (np.str_("s8"), "s8")])
def test_a_type_as_numpy_understands_it(word, named):
    assert word_of(word) == named


NO_TYPES = [
    None, 3, "f4", "S8", "torch.int8", object, list, np.generic, np.dtype(">f4"), np.complex64, np.zeros(2),
    np.float32(1), torch.complex64, torch.zeros(2), ml_dtypes.float8_e4m3fnuz, [np.int8], {"s8"}, Scalar(">i4"),
]  # fmt: skip


@pytest.mark.parametrize("named", NO_TYPES, ids=kind)
def test_what_is_no_type(named):
    assert word_of(named) is None


@pytest.mark.parametrize("named", [np.uint8, np.dtype("uint8"), torch.uint8, "uint8", "u8"], ids=kind)
def test_types_of_outputs_scales_and_descriptors(backend, named):
    x = backend.array(np.linspace(0, 9, 8, dtype=np.float32).reshape(2, 4))
    one, zero = backend.array(np.ones(2, np.float32)), backend.array(np.zeros(2, np.int32))
    codes = skuda.quantize_per_token(x, one, zero, dtype=named)
    assert backend.numpy(codes).dtype == np.uint8
    descriptor = skuda.QuantizePerTokenDescriptor(n=2, d=4, output_element=named, input_element=np.float16)
    plan = skuda.QuantizePerTokenPlan.select(descriptor, preference=BackendKind.REFERENCE)
    assert plan.types["Q"] == "u8" and plan.types["T"] == "f16"


def test_types_of_scales_and_packed_inputs(backend):
    x = backend.array(np.linspace(-9, 9, 14, dtype=np.float16).reshape(2, 7))
    scale, codes = skuda.dynamic_quantize_per_token(x, dtype=ml_dtypes.int4, scale_dtype="float16")
    assert backend.numpy(scale).dtype == np.float16 and codes.shape == (2, 4)
    zero = backend.array(np.zeros(2, np.int32))
    back = skuda.dequantize_per_token(codes, scale, zero, input_dtype=ml_dtypes.int4, dtype=np.float16, shape=(2, 7))
    assert backend.numpy(back).dtype == np.float16 and back.shape == (2, 7)


@pytest.mark.parametrize("named", ["nonsense", 3, object(), [np.int8], np.complex64, torch.complex64], ids=kind)
def test_what_is_no_type_is_refused_by_its_name(backend, named):
    x = backend.array(np.ones((2, 4), np.float32))
    expected = ".*, expected an element type, one of"
    with pytest.raises(Unsupported, match=rf"^DynamicQuantizePerTokenPlan: dtype is {expected} s8 s4$"):
        skuda.dynamic_quantize_per_token(x, dtype=named)
    with pytest.raises(Unsupported, match=rf"^DynamicQuantizePerTokenPlan: scale_dtype is {expected} f32"):
        skuda.dynamic_quantize_per_token(x, scale_dtype=named)
    with pytest.raises(Unsupported, match=rf"^DequantizePerTensorPlan: input_dtype is {expected} s8 u8 s4"):
        skuda.dequantize_per_tensor(x, 1.0, 0, input_dtype=named)
    descriptor = skuda.SoftmaxDescriptor(n=(), d=(4,), element=named)
    with pytest.raises(Unsupported, match=rf"^SoftmaxPlan: element is {expected} f32"):
        skuda.SoftmaxPlan.select(descriptor, preference=BackendKind.REFERENCE)


# ---- axes and attributes ----


def call_over(name: str, axis, backend):
    """The function form with an axis, of ordinary arrays."""
    plan = PLANS[name]
    operation = plan.operation
    rng = np.random.default_rng(3)
    sizes = {dim.name: (2,) if dim.many else 4 for dim in operation.dims} | {"inner": ()}
    sizes |= {attribute.name: 2 for attribute in operation.attributes if attribute.type == "size"}
    given = {}
    for operand in operation.inputs:
        word = operation.word(operand, operation.combinations[0])
        values = rng.uniform(1, 5, operation.shape_of(operand, sizes)).astype(DTYPES[word].storage)
        given[operand.name] = backend.array(values)
    given |= {attribute.name: 2 for attribute in operation.attributes if attribute.type == "size"}
    if operation.shaped is not None:
        given["shape"] = operation.shape_of(operation.shaped, sizes)
    result = getattr(skuda, name)(**given, **{operation.axis.name: axis})
    return [backend.numpy(each) for each in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.parametrize("name", [name for name, plan in PLANS.items() if plan.operation.axis is not None])
def test_integers_of_numpy_are_axes_and_booleans_are_none(backend, name):
    expected = call_over(name, 1, backend)
    for axis in (np.int64(1), np.uint8(1), np.int32(-1)):
        for one, other in zip(call_over(name, axis, backend), expected, strict=True):
            np.testing.assert_array_equal(one, other)
    # (True,) and (1.0,) equal (1,), which has been called before
    tuples = [(True,), (1.0,)] if PLANS[name].operation.chooses_axes else []
    if tuples:
        call_over(name, (1,), backend)
    for axis in (True, np.True_, 1.0, "1", 1j, {1}, [[1]], np.array(1), np.array([1]), *tuples):
        with pytest.raises(InvalidProblem, match="axis is .*, expected an integer"):
            call_over(name, axis, backend)
    with pytest.raises(InvalidProblem, match="axis is 1000000000000000000000000000000, expected -2 to 1"):
        call_over(name, 10**30, backend)


NO_NUMBERS = [
    1j, np.complex64(1), True, np.True_, "1", [1], (1,), {1}, {}, np.array(1), np.ones(2), torch.ones(1), object(),
    10**400,
]  # fmt: skip


@pytest.mark.parametrize("value", NO_NUMBERS, ids=kind)
def test_attributes_are_refused_by_their_names(backend, value):
    x, zero = backend.array(np.ones((2, 4), np.float32)), backend.array(np.zeros((2, 2), np.int32))
    scale = backend.array(np.ones((2, 2), np.float32))
    with pytest.raises(InvalidProblem, match="^QuantizePerGroupPlan: q_max is .*, expected "):
        skuda.quantize_per_group(x, scale, zero, group_size=2, q_max=value)
    with pytest.raises(InvalidProblem, match="^QuantizePerGroupPlan: group_size is .*, expected a positive integer"):
        skuda.quantize_per_group(x, scale, zero, group_size=value)
    with pytest.raises(InvalidProblem, match="^StandardizePlan: eps is .*, (expected a number|which f32 cannot hold)$"):
        skuda.standardize(x, eps=value)


def test_integers_beyond_an_attribute(backend):
    x = backend.array(np.ones((2, 4), np.float32))
    with pytest.raises(InvalidProblem, match="q_max is 1000000000000000000000000000000, expected -128 to 127"):
        skuda.dynamic_quantize_per_token(x, q_max=10**30)
    with pytest.raises(InvalidProblem, match="group_size is 10{30}, expected a positive integer below 2.63"):
        skuda.dynamic_quantize_per_group(x, group_size=10**30)
    with pytest.raises(InvalidProblem, match="eps is 10{39}, which f32 cannot hold"):
        skuda.standardize(x, eps=10**39)
    skuda.standardize(x, eps=10**30)  # a number like another


@pytest.mark.parametrize("value", [10**400, -(10**400), 10**39])
def test_integers_that_no_scale_holds(backend, value):
    x = backend.array(np.ones(4, np.float32))
    with pytest.raises(InvalidProblem, match="^QuantizePerTensorPlan: scale is .*, which f32 cannot hold$"):
        skuda.quantize_per_tensor(x, value, 0)
    with pytest.raises(InvalidProblem, match="^QuantizePerTensorPlan: zero_point is .*, which i32 cannot hold$"):
        skuda.quantize_per_tensor(x, 1.0, value)


def test_a_descriptor_has_no_sizes_beyond_memory():
    for sizes in ({"n": (), "d": (10**30,)}, {"n": (2**31,), "d": (2**31,)}, {"n": (True,), "d": (4,)}):
        with pytest.raises(InvalidProblem, match="^SoftmaxPlan: .* (expected non-negative integers|fewer than)"):
            skuda.SoftmaxPlan.select(skuda.SoftmaxDescriptor(**sizes), None, BackendKind.REFERENCE)


@pytest.mark.parametrize("value", ["yes", None, 2, 1.0, [], np.ones(2)], ids=kind)
def test_keepdims_is_a_flag(backend, value):
    x = backend.array(np.ones((2, 4), np.float32))
    with pytest.raises(InvalidProblem, match="^SumPlan: keepdims is .*, expected True or False$"):
        skuda.sum(x, keepdims=value)
    assert skuda.sum(x, axis=1, keepdims=np.True_).shape == skuda.sum(x, axis=1, keepdims=1).shape == (2, 1)


@pytest.mark.parametrize("stream", ["x", 1.5, True, object(), 2**64, [], type], ids=kind)
def test_what_is_no_stream_is_refused_on_every_backend(backend, stream):
    x = backend.array(np.ones(4, np.float32))
    with pytest.raises(NotAStream):
        skuda.gelu(x, stream=stream)
    with pytest.raises(NotAStream):
        stream_handle(stream)


@pytest.mark.parametrize("preference", ["cuda", 1, BackendKind], ids=kind)
def test_a_preference_is_a_backend(preference):
    with pytest.raises(InvalidProblem, match="^GeluPlan: preference is .*, expected a BackendKind$"):
        skuda.GeluPlan.select(skuda.GeluDescriptor(shape=4), None, preference)


# ---- signed zeros and NaN in keys ----


def gradient(backend, factor):
    x = backend.array(np.ones((2, 4), np.float32))
    found = skuda.learnable_fake_quantize_per_tensor_backward(x, x, 0.3, 0.0, grad_factor=factor)
    return np.signbit(backend.numpy(found[1])).item()


def test_a_negative_zero_has_a_plan_of_its_own(backend):
    for _ in range(3):  # the third time, by the short way
        signs = [gradient(backend, factor) for factor in (0.0, -0.0, np.float64(0.0), np.float32(-0.0))]
        assert signs[0] != signs[1] and signs[::2] == signs[:1] * 2 and signs[1::2] == signs[1:2] * 2


def test_a_nan_makes_one_plan(backend, monkeypatch):
    monkeypatch.setattr(selection, "_PLANS", {})
    monkeypatch.setattr(functions, "_FAST_PATHS", {})
    for _ in range(4):
        gradient(backend, float("nan"))
    assert len(selection._PLANS) == 1 and not functions._FAST_PATHS


def test_descriptors_tell_signed_zeros_apart():
    def descriptor(factor):
        return skuda.LearnableFakeQuantizePerTensorBackwardDescriptor(shape=(4,), grad_factor=factor)

    assert descriptor(0.0) != descriptor(-0.0) and descriptor(np.float32(0)) != descriptor(np.float32(-0.0))
    assert descriptor(float("nan")) == descriptor(-float("nan")) and len({descriptor(float("nan")) for _ in "ab"}) == 1
    assert descriptor(0.5) == descriptor(0.5) and hash(descriptor(0.5)) == hash(descriptor(0.5))


# ---- memory of the reference ----


GROUPED = [name for name, plan in PLANS.items() if "size" in {each.type for each in plan.operation.attributes}]


@pytest.mark.parametrize("name", GROUPED)
def test_memory_does_not_grow_with_the_length_of_groups(name):
    plan_class = PLANS[name]
    fields = {dim.name: (3,) if dim.many else 8 for dim in plan_class.operation.dims} | {"inner": ()}
    fields = {name: size for name, size in fields.items() if name in plan_class.descriptor_type._fields}

    def run(group_size):
        descriptor = plan_class.descriptor_type(**fields, group_size=group_size)
        plan = plan_class.select(descriptor, preference=BackendKind.REFERENCE)
        arrays = [np.ones(shape, DTYPES[word].storage) for shape, word in zip(plan.stored, plan.words)]
        plan.execute(arrays)
        return [array.tobytes() for array in arrays]

    expected = run(8)
    tracemalloc.start()
    try:
        for group_size in (9, 2**31, 2**63 - 1):
            assert run(group_size) == expected
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_memory_of_short_rows_is_that_of_the_array():
    """A hundred thousand sums of one element each: the positions that they leave empty take no memory."""
    x, one = np.ones((1, 100_000), np.float32), np.ones(100_000, np.float32)
    tracemalloc.start()
    try:
        skuda.learnable_fake_quantize_per_channel_backward(x, x, one, 0 * one, axis=1)
        assert tracemalloc.get_traced_memory()[1] < 64 * x.nbytes
    finally:
        tracemalloc.stop()


# ---- arrays without axes ----


@pytest.mark.parametrize("name", AXES)
def test_one_value_is_a_row_of_one(backend, name):
    operation = PLANS[name].operation
    values = [plain_input(operation, operand, 0.7 + index) for index, operand in enumerate(operation.inputs)]

    def found(shape, **options):
        given = [backend.array(np.full(shape, value)) for value in values]
        if operation.shaped is not None:
            options["shape"] = shape
        if operation.analysis.keeps and shape:
            options["keepdims"] = True
        result = getattr(skuda, name)(*given, **options)
        return [backend.numpy(each) for each in (result if isinstance(result, tuple) else (result,))]

    expected = found((1,), axis=0)
    for options in ({}, {"axis": 0}, {"axis": -1}, {"axis": (0,)}, {"axis": ()}, {"axis": None}):
        for one, other in zip(found((), **options), expected, strict=True):
            assert one.shape == () and one.tobytes() == other.tobytes()
    for axis in (1, -2, (0, -1), (0, 0)):
        with pytest.raises(InvalidProblem, match=rf"^{PLANS[name].__name__}: axis is"):
            found((), axis=axis)


# ---- bytes ----


def packed(backend):
    """Four rows of seven codes, packed and plain; and what they were quantized by."""
    x = np.linspace(-7, 7, 28, dtype=np.float32).reshape(4, 7)
    scale, zero = backend.array(np.ones(4, np.float32)), backend.array(np.zeros(4, np.int32))
    codes = skuda.quantize_per_token(backend.array(x), scale, zero, dtype="s4")
    return codes, scale, zero


def test_bytes_that_a_shape_contradicts_are_not_read_as_u8(backend):
    codes, scale, zero = packed(backend)
    asks = r"input has elements uint8 and shape \(4, 4\), which may be s4 or u4; say which by input_dtype="
    with pytest.raises(Unsupported, match=asks):
        skuda.dequantize_per_token(codes, scale, zero, shape=(4, 7))
    assert skuda.dequantize_per_token(codes, scale, zero).shape == (4, 4)  # nothing says that they are not u8
    back = skuda.dequantize_per_token(codes, scale, zero, shape=(4, 7), input_dtype="s4")
    assert backend.numpy(back)[0, 0] == -7 and back.shape == (4, 7)


@pytest.mark.parametrize("word", [None, "u8", np.uint8])
def test_a_shape_that_no_reading_of_the_bytes_has_is_refused(backend, word):
    codes, scale, zero = packed(backend)
    for shape in ((4, 9), (4,), (7, 4), (4, 4, 1), (4, 7) if word else (3, 4)):
        with pytest.raises(InvalidProblem, match="^DequantizePerTokenPlan: shape is .*input"):
            skuda.dequantize_per_token(codes, scale, zero, shape=shape, input_dtype=word)
    wide = backend.array(np.ones((4, 4), np.int8))
    with pytest.raises(InvalidProblem, match=r"shape is \(4, 7\), but input has shape \(4, 4\) \(s8\)"):
        skuda.dequantize_per_token(wide, scale, zero, shape=(4, 7))


def test_scales_tell_how_bytes_are_meant(backend):
    codes = backend.array(np.full((2, 4), 0x21, np.uint8))
    for groups, refused in ((2, None), (4, Unsupported), (3, InvalidProblem)):
        scale = backend.array(np.ones((2, groups), np.float32))
        zero = backend.array(np.zeros((2, groups), np.int32))
        if refused is None:
            assert skuda.dequantize_per_group(codes, scale, zero, group_size=2).shape == (2, 4)  # u8, as ever
            continue
        with pytest.raises(refused, match="input.* s4 or u4" if groups == 4 else "scale has shape"):
            skuda.dequantize_per_group(codes, scale, zero, group_size=2)


def test_floats_of_8_bits_in_bytes_ask_which_they_are(backend):
    codes, scale = backend.array(np.zeros((2, 4), np.uint8)), backend.array(np.ones(2, np.float32))
    with pytest.raises(Unsupported, match="input has elements uint8 .* may be e4m3 or e5m2; say which by input_dtype="):
        skuda.dequantize_fp8_per_token(codes, scale)
    assert skuda.dequantize_fp8_per_token(codes, scale, input_dtype=ml_dtypes.float8_e5m2).shape == (2, 4)


# ---- parameters that keep the axes they lack ----


def spread_cases():
    for name, plan in PLANS.items():
        operation = plan.operation
        sizes = {dim.name: (3, 2) if dim.many else 4 for dim in operation.dims}
        sizes |= {attribute.name: 2 for attribute in operation.attributes if attribute.type == "size"}
        for operand in operation.operands:
            found = operation.spread(operand, sizes)
            # The weight of a norm says which axes it is for: more axes would be others.
            if found is not None and (operation.axis is not None or not all(dim.many for dim in operation.space)):
                yield pytest.param(name, operand.name, id=f"{name}-{operand.name}")


@pytest.mark.parametrize(("name", "spread"), [*spread_cases()])
def test_a_parameter_may_keep_the_axes_that_it_lacks(backend, name, spread):
    plan_class = PLANS[name]
    operation = plan_class.operation
    sizes = {dim.name: (3, 2) if dim.many else 4 for dim in operation.dims}
    if operation.analysis.over and "inner" in sizes:
        sizes["inner"] = ()
    sizes |= {attribute.name: 2 for attribute in operation.attributes if attribute.type == "size"}
    preference = BackendKind.REFERENCE if backend.name == "reference" else BackendKind.CUDA
    plan = plan_class.select(plan_class.descriptor_type(**sizes), preference=preference)
    rng = np.random.default_rng(5)
    given = [
        np.asarray(rng.uniform(1, 3, shape)).astype(DTYPES[word].storage)
        for shape, word in zip(plan.stored, plan.words, strict=True)
    ]
    shape, axes = operation.spread(next(o for o in operation.operands if o.name == spread), plan.sizes)
    names = [operand.name for operand in operation.operands]
    position = names.index(spread)
    assert np.squeeze(np.empty(shape)).size == given[position].size and len(axes) == given[position].ndim

    def outputs(keeps: bool):
        placed = [value.reshape(shape) if keeps and at == position else value for at, value in enumerate(given)]
        arrays = list(map(backend.array, placed))
        for _ in range(3):
            plan.run(plan.args_type(*arrays))
        return [backend.numpy(array).tobytes() for array in arrays[len(operation.inputs) :]]

    assert outputs(True) == outputs(False)
    wrong = [backend.array(value) for value in given]
    wrong[position] = backend.array(given[position].reshape(1, *shape))
    with pytest.raises(InvalidProblem, match=f"{spread} has shape"):
        plan.run(plan.args_type(*wrong))


def test_scales_as_keepdims_leaves_them(backend):
    x = backend.array(np.arange(12, dtype=np.float32).reshape(3, 4))
    largest = skuda.amax(x, axis=1, keepdims=True)
    zero = backend.array(np.zeros((3, 1), np.int32))
    codes = skuda.quantize_per_token(x, largest, zero)
    flat = skuda.quantize_per_token(x, largest.reshape(3), zero.reshape(3))
    np.testing.assert_array_equal(backend.numpy(codes), backend.numpy(flat))
    columns = skuda.amax(x, axis=0, keepdims=True)
    zero = backend.array(np.zeros((1, 4), np.int32))
    assert skuda.quantize_per_channel(x, columns, zero, axis=1).shape == (3, 4)
    with pytest.raises(InvalidProblem, match=r"scale has shape \(1, 4\), expected \(c,\) = \(3,\)"):
        skuda.quantize_per_channel(x, columns, zero, axis=0)
    kept = backend.array(np.zeros((1, 4), np.float32))
    assert skuda.sum(x, axis=0, out=kept) is kept and backend.numpy(kept).tolist() == [[12, 15, 18, 21]]
    assert skuda.sum_backward(kept, shape=(3, 4), axis=0).shape == (3, 4)


def test_errors_show_long_values_in_part(backend):
    x = backend.array(np.ones(4, np.float32))
    for value in (10**400, 10**5000, "x" * 1000, [1] * 1000):
        with pytest.raises(SkudaError) as caught:
            skuda.standardize(x, eps=value)
        assert len(str(caught.value)) < 200
    with pytest.raises(NotAnArray):
        skuda.lerp(x, x, 1j)
