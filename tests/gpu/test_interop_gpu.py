"""Arrays of every library on the GPU: what goes in, and what kind comes out."""

from __future__ import annotations

import cupy
import ml_dtypes
import numpy as np
import pytest
import torch

import skuda

TORCH = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
STORAGE = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def values(element: str, shape=(33, 130)) -> np.ndarray:
    return np.random.default_rng(1).normal(0, 30, shape).astype(STORAGE[element])


def to_torch(array: np.ndarray) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16).cuda()
    return torch.from_numpy(array.copy()).cuda()


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.cpu()
    return (
        tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        if tensor.dtype == torch.bfloat16
        else tensor.numpy()
    )


class DLPackOnly:
    """What a library that knows nothing but DLPack hands out."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class InterfaceOnly:
    """What a library that knows nothing but the CUDA array interface hands out (Numba and others)."""

    def __init__(self, array):
        self._array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__


PARAMETERS = np.linspace(0.1, 2, 33).astype(np.float32), np.arange(33, dtype=np.int32)


@pytest.mark.parametrize("element", TORCH)
def test_torch_in_and_out(element):
    x = values(element)
    tensors = to_torch(x), *map(to_torch, PARAMETERS)
    for name, dtype in (("quantize_per_token", torch.int8), ("fake_quantize_per_token", TORCH[element])):
        function = getattr(skuda, name)
        output = function(*tensors)
        assert (
            type(output) is torch.Tensor
            and output.is_cuda
            and output.dtype == dtype
            and output.is_contiguous()
        )
        np.testing.assert_array_equal(to_numpy(output), function(x, *PARAMETERS))
        out = torch.empty_like(output)
        assert function(*tensors, out=out) is out
        assert torch.equal(out, output)


@pytest.mark.parametrize(
    ("word", "dtype"), [("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)], ids=["e4m3", "e5m2"]
)
def test_floats_of_8_bits(word, dtype):
    """torch has the types; CuPy has not, so its arrays are of uint8, or views as ml_dtypes' types."""
    x, scale = values("f16"), PARAMETERS[0]
    expected = skuda.quantize_fp8_per_token(x, scale, dtype=word)
    back = skuda.dequantize_fp8_per_token(expected, scale, dtype="f16")
    codes = skuda.quantize_fp8_per_token(to_torch(x), to_torch(scale), dtype=word)
    assert codes.dtype == dtype and codes.is_cuda
    np.testing.assert_array_equal(to_numpy(codes.view(torch.uint8)), expected.view(np.uint8))
    np.testing.assert_array_equal(
        to_numpy(skuda.dequantize_fp8_per_token(codes, to_torch(scale), dtype="f16")).view(np.uint16),
        back.view(np.uint16),
    )
    codes = skuda.quantize_fp8_per_token(cupy.asarray(x), cupy.asarray(scale), dtype=word)
    assert codes.dtype == np.uint8
    np.testing.assert_array_equal(codes.get(), expected.view(np.uint8))
    for given in (codes, codes.view(expected.dtype)):
        again = skuda.dequantize_fp8_per_token(given, cupy.asarray(scale), dtype="f16", input_dtype=word)
        np.testing.assert_array_equal(again.get().view(np.uint16), back.view(np.uint16))
    out = cupy.zeros(x.shape, np.uint8)
    for _ in range(3):  # the short way is asked too
        assert skuda.quantize_fp8_per_token(cupy.asarray(x), cupy.asarray(scale), dtype=word, out=out) is out
        np.testing.assert_array_equal(out.get(), expected.view(np.uint8))
        out.fill(0)


def test_torch_views():
    x = values("f16", (130, 33))
    tensor = to_torch(x)
    expected = skuda.quantize_per_token(x.T, *PARAMETERS)
    parameters = [to_torch(each) for each in PARAMETERS]
    np.testing.assert_array_equal(to_numpy(skuda.quantize_per_token(tensor.t(), *parameters)), expected)
    np.testing.assert_array_equal(
        to_numpy(skuda.quantize_per_token(tensor.t()[:, 1:77], *parameters)), expected[:, 1:77]
    )
    one = tensor[:1, :33].t().expand(33, 130)
    np.testing.assert_array_equal(
        to_numpy(skuda.quantize_per_token(one, *parameters)),
        skuda.quantize_per_token(np.broadcast_to(x[0, :, None], (33, 130)), *PARAMETERS),
    )


@pytest.mark.parametrize("element", ["f32", "f16", "f64", "bf16"])
def test_dlpack(element):
    x = values(element)
    given = to_torch(x)  # torch's DLPack knows bf16
    output = skuda.fake_quantize_per_token(
        DLPackOnly(given), *(DLPackOnly(to_torch(each)) for each in PARAMETERS)
    )
    assert isinstance(output, cupy.ndarray)
    np.testing.assert_array_equal(output.get(), skuda.fake_quantize_per_token(x, *PARAMETERS))


@pytest.mark.parametrize("element", ["f32", "f16", "f64"])
def test_cuda_array_interface(element):
    x = values(element)
    output = skuda.quantize_per_token(
        InterfaceOnly(cupy.asarray(x)), *(InterfaceOnly(cupy.asarray(each)) for each in PARAMETERS)
    )
    assert isinstance(output, cupy.ndarray)
    np.testing.assert_array_equal(output.get(), skuda.quantize_per_token(x, *PARAMETERS))


@pytest.mark.parametrize("make", [cupy.asarray, to_torch], ids=["cupy", "torch"])
def test_a_scale_of_another_type_after_many_calls(make):
    """The short way of a call knows the first input's type alone; the others may change."""
    x, scale = values("f16"), PARAMETERS[0]
    expected = skuda.fake_quantize_per_token(x, scale.astype(np.float16), PARAMETERS[1])
    given = [make(each) for each in (x, *PARAMETERS)]
    for _ in range(4):
        skuda.fake_quantize_per_token(*given)
    for _ in range(3):
        output = skuda.fake_quantize_per_token(given[0], make(scale.astype(np.float16)), given[2])
        np.testing.assert_array_equal(cupy.asarray(output).get().view(np.uint16), expected.view(np.uint16))
    with pytest.raises(skuda.errors.InvalidProblem, match=r"scale has shape \(5,\)"):
        skuda.fake_quantize_per_token(given[0], given[1][:5], given[2])


def test_mixed_libraries_follow_the_first():
    x = values("f32")
    scale, zero_point = PARAMETERS
    torch.cuda.synchronize()
    output = skuda.quantize_per_token(cupy.asarray(x), to_torch(scale), cupy.asarray(zero_point))
    assert isinstance(output, cupy.ndarray)
    torch.cuda.synchronize()
    np.testing.assert_array_equal(output.get(), skuda.quantize_per_token(x, scale, zero_point))


@pytest.mark.parametrize("make", [cupy.asarray, to_torch], ids=["cupy", "torch"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_element_parameters_of_any_shape(make, shape):
    x = values("f32")
    scale, zero_point = np.full(shape, 0.3, np.float32), np.full(shape, -4, np.int32)
    output = skuda.quantize_per_tensor(make(x), make(scale), make(zero_point))
    expected = skuda.quantize_per_tensor(x, scale, zero_point)
    np.testing.assert_array_equal(cupy.asarray(output).get(), expected)
    np.testing.assert_array_equal(
        cupy.asarray(skuda.quantize_per_tensor(make(x), float(np.float32(0.3)), -4)).get(), expected
    )


def test_nothing_is_launched_for_no_elements():
    x = cupy.empty((0, 5), np.float32)
    output = skuda.quantize_per_token(x, cupy.empty(0, np.float32), cupy.empty(0, np.int32))
    assert output.shape == (0, 5)
    assert skuda.quantize_per_tensor(to_torch(np.zeros((3, 0), np.float32)), 1.0, 0).shape == (3, 0)


def test_backward_with_torch():
    x, d_output = values("bf16"), values("bf16")[::-1].copy()
    expected = skuda.quantize_per_token_backward(d_output, x, *PARAMETERS)
    actual = skuda.quantize_per_token_backward(to_torch(d_output), to_torch(x), *map(to_torch, PARAMETERS))
    np.testing.assert_array_equal(to_numpy(actual).view(np.uint16), expected.view(np.uint16))
    d_a, d_b = skuda.lerp_backward(to_torch(d_output), 0.3)
    for got, want in zip((d_a, d_b), skuda.lerp_backward(d_output, 0.3), strict=True):
        np.testing.assert_array_equal(to_numpy(got).view(np.uint16), want.view(np.uint16))


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("way", ["function", "plan", "kept arguments"])
def test_autograd_notices_what_was_written(way, times):
    """By the full check, and by the short ways that later calls take."""
    w, x, ones = torch.ones(64, device="cuda", requires_grad=True), torch.ones(64, device="cuda"), torch.ones(64).cuda()
    plan = skuda.GeluPlan.select(skuda.GeluDescriptor(shape=64))
    args = skuda.GeluArgs(ones, x)
    y = w * x  # saves x
    for _ in range(times):
        before = x._version
        if way == "function":
            skuda.gelu(ones, out=x)
        else:
            plan.run(args if way == "kept arguments" else skuda.GeluArgs(ones, x))
        assert x._version == before + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    leaf = torch.ones(64, device="cuda", requires_grad=True)
    with pytest.raises(skuda.SkudaError, match="requires grad"):
        skuda.gelu(ones, out=leaf)
    with torch.no_grad():
        assert skuda.gelu(ones, out=leaf)._version == 1
