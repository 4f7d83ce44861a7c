"""Wrong arguments: the typed error, a message that says what is wrong, and an `out` that nobody wrote to."""

from __future__ import annotations

import numpy as np
import pytest

import skuda
from skuda.errors import (
    DeviceMismatch,
    ElementMismatch,
    InvalidProblem,
    MisalignedOperand,
    NotAnArray,
    SkudaError,
    Unsupported,
)

SENTINEL = 42


class Call:
    """quantize_per_token of a [4, 6] input with correct arguments, to be spoilt one at a time."""

    def __init__(self, backend):
        self.backend = backend
        self.out = self.array(np.full((4, 6), SENTINEL, np.int8))
        self.arguments = {
            "input": self.array(np.ones((4, 6), np.float32)),
            "scale": self.array(np.ones(4, np.float32)),
            "zero_point": self.array(np.zeros(4, np.int32)),
            "out": self.out,
        }

    def array(self, array):
        return self.backend.array(array)

    def __call__(self, **spoilt):
        return skuda.quantize_per_token(**{**self.arguments, **spoilt})

    def refused(self, *errors, says=(), **spoilt) -> None:
        """The call raises one of these errors, each of `says` is in its message, and `out` is as it was."""
        with pytest.raises(errors) as caught:
            self(**spoilt)
        assert isinstance(caught.value, SkudaError)
        for text in says:
            assert text in str(caught.value)
        assert self.backend.numpy(self.out).tolist() == [[SENTINEL] * 6] * 4


@pytest.fixture
def call(backend):
    return Call(backend)


def test_the_correct_call_writes_out(call, backend):
    assert call() is call.out
    assert backend.numpy(call.out).tolist() == [[1] * 6] * 4


@pytest.mark.parametrize("name", ["scale", "zero_point"])
@pytest.mark.parametrize("shape", [(5,), (1, 4), (4, 6), (4, 1, 1), (1,), (6,), ()])
def test_shape_of_a_parameter(call, name, shape):
    array = call.array(np.ones(shape, call.arguments[name].dtype))
    call.refused(InvalidProblem, says=("QuantizePerTokenPlan", name, str(shape), "(4,)"), **{name: array})


@pytest.mark.parametrize("shape", [(4, 5), (4,), (6, 4), (4, 6, 1), (24,)])
def test_shape_of_out(call, shape):
    out = call.array(np.zeros(shape, np.int8))
    call.refused(InvalidProblem, says=("QuantizePerTokenPlan", "out", str(shape), "(4, 6)"), out=out)
    assert not call.backend.numpy(out).any()


@pytest.mark.parametrize("element", [np.int64, np.float32, np.uint32])
def test_element_of_zero_point(call, element):
    zero_point = call.array(np.zeros(4, element))
    says = ("QuantizePerTokenPlan", "zero_point", "i32")
    call.refused(ElementMismatch, Unsupported, says=says, zero_point=zero_point)


@pytest.mark.parametrize("element", [np.uint8, np.float32, np.int32])
def test_element_of_out(call, element):
    out = call.array(np.zeros((4, 6), element))
    call.refused(ElementMismatch, says=("QuantizePerTokenPlan", "out", "s8"), out=out)
    assert not call.backend.numpy(out).any()


@pytest.mark.parametrize("element", [np.int32, np.int8, np.bool_])
def test_element_of_input(call, element):
    array = call.array(np.ones((4, 6), element))
    call.refused(ElementMismatch, Unsupported, says=("input", "f32"), input=array)


@pytest.mark.parametrize("element", [np.float64, np.float16, np.int32])
def test_element_of_scale(call, element):
    """The input's own type or f32, nothing else."""
    call.refused(ElementMismatch, Unsupported, says=("scale", "f32"), scale=call.array(np.ones(4, element)))


@pytest.mark.parametrize(
    ("q_min", "q_max", "shown"),
    [
        (-129, 127, "-129"),
        (-128, 128, "128"),
        (3, 2, "3"),
        (-(10**30), 0, "-1000000"),
        (0, 10**30, "1000000"),
    ],
)
def test_range(call, q_min, q_max, shown):
    call.refused(InvalidProblem, says=("q_m", shown), q_min=q_min, q_max=q_max)


@pytest.mark.parametrize("name", ["q_min", "q_max"])
@pytest.mark.parametrize("value", [1.5, "7", float("nan")])
def test_range_that_is_no_integer(call, name, value):
    call.refused(InvalidProblem, TypeError, says=(name,), **{name: value})


@pytest.mark.parametrize("word", ["s9", "f32", "i32", "", "bool"])
def test_element_word_of_the_output(call, word):
    call.refused(Unsupported, InvalidProblem, says=("s8",), dtype=word)


@pytest.mark.parametrize("name", ["input", "scale", "zero_point", "out"])
@pytest.mark.parametrize("value", ["text", [[1.0, 2.0]], object()])
def test_what_is_no_array(call, name, value):
    call.refused(NotAnArray, says=(name,), **{name: value})


@pytest.mark.parametrize("name", ["input", "scale", "zero_point", "out"])
def test_address_that_is_no_multiple_of_the_element_s_size(call, backend, name):
    """NumPy reads such arrays, so the reference does; a GPU cannot. A byte's address always is a multiple."""
    moved = backend.at_odd_address(backend.numpy(call.arguments[name]))
    if backend.name == "cuda" and name != "out":
        call.refused(MisalignedOperand, says=("QuantizePerTokenPlan", name), **{name: moved})
    else:
        assert backend.numpy(call(**{name: moved})).tolist() == [[1] * 6] * 4


@pytest.mark.parametrize("axis", [2, -3, 100])
def test_axis_beyond_the_rank(backend, axis):
    x, scale = backend.array(np.ones((4, 6), np.float32)), backend.array(np.ones(4, np.float32))
    out = backend.array(np.full((4, 6), SENTINEL, np.int8))
    with pytest.raises(InvalidProblem, match=f"axis.*{axis}"):
        skuda.quantize_per_channel(x, scale, backend.array(np.zeros(4, np.int32)), axis=axis, out=out)
    assert backend.numpy(out).tolist() == [[SENTINEL] * 6] * 4


@pytest.mark.parametrize("group_size", [0, -1, -(10**20)])
def test_group_size_that_is_not_positive(backend, group_size):
    x, scale = backend.array(np.ones((4, 6), np.float32)), backend.array(np.ones((4, 2), np.float32))
    zero_point = backend.array(np.zeros((4, 2), np.int32))
    out = backend.array(np.full((4, 6), SENTINEL, np.int8))
    with pytest.raises(InvalidProblem, match="group_size"):
        skuda.quantize_per_group(x, scale, zero_point, group_size=group_size, out=out)
    assert backend.numpy(out).tolist() == [[SENTINEL] * 6] * 4


def test_number_of_groups(backend):
    x = backend.array(np.ones((4, 7), np.float32))
    scale, zero_point = backend.array(np.ones((4, 2), np.float32)), backend.array(np.zeros((4, 2), np.int32))
    with pytest.raises(InvalidProblem, match=r"scale.*\(4, 2\).*\(4, 3\)"):
        skuda.quantize_per_group(x, scale, zero_point, group_size=3)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 1.5, float("nan")])
def test_zero_point_that_no_i32_holds(backend, value):
    x = backend.array(np.ones(4, np.float32))
    with pytest.raises((InvalidProblem, ElementMismatch), match="zero_point"):
        skuda.quantize_per_tensor(x, 1.0, value)


@pytest.mark.parametrize("name", ["a", "b"])
def test_operands_of_lerp_must_agree(backend, name):
    good, short = backend.array(np.ones((3, 4), np.float32)), backend.array(np.ones(3, np.float32))
    other = backend.array(np.ones((3, 4), np.float16))
    out = backend.array(np.full((3, 4), SENTINEL, np.float32))
    for wrong, errors in ((short, InvalidProblem), (other, (ElementMismatch, Unsupported))):
        arguments = {"a": good, "b": good, name: wrong}
        with pytest.raises(errors):
            skuda.lerp(**arguments, weight=0.5, out=out)
    assert backend.numpy(out).tolist() == [[SENTINEL] * 4] * 3


def test_parameter_of_per_tensor_has_one_element(backend):
    x = backend.array(np.ones(4, np.float32))
    with pytest.raises(InvalidProblem, match="scale"):
        skuda.quantize_per_tensor(x, backend.array(np.ones(2, np.float32)), 0)


def test_packed_bytes_must_be_uint8(backend):
    codes = backend.array(np.zeros((2, 2), np.int8))
    with pytest.raises((ElementMismatch, InvalidProblem, Unsupported), match="s4.*int8"):
        skuda.dequantize_per_tensor(codes, 1.0, 0, dtype="f32", input_dtype="s4")


def test_read_only_out():
    """NumPy's arrays only: CuPy has none that refuse writes."""
    x, out = np.ones((2, 3), np.float32), np.full((2, 3), SENTINEL, np.float32)
    out.flags.writeable = False
    with pytest.raises(InvalidProblem, match="FakeQuantizePerTensorPlan.*out.*(read|writ)"):
        skuda.fake_quantize_per_tensor(x, 1.0, 0, out=out)
    assert out.tolist() == [[SENTINEL] * 3] * 2


class OnGpu:
    """Claims four f32 on a GPU; nobody may read them before the devices are compared."""

    __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (1 << 40, False), "version": 3}

    def __dlpack_device__(self):
        return 2, 0


def test_arrays_of_the_cpu_and_of_a_gpu_do_not_mix():
    out = np.full((4, 6), SENTINEL, np.int8)
    with pytest.raises(DeviceMismatch, match="QuantizePerTokenPlan.*scale"):
        skuda.quantize_per_token(np.ones((4, 6), np.float32), OnGpu(), np.zeros(4, np.int32), out=out)
    assert out.tolist() == [[SENTINEL] * 6] * 4
