"""PyTorch on the CPU, an independent witness: equal bits where its rule is ours, else counted.

torch.fake_quantize_per_*_affine multiplies by the reciprocal (1 / scale rounded to f32, for f64 inputs too),
adds the zero point after rounding, and gives NaN the code q_min. So for scales that are powers of two, and
finite inputs, its rule is ours; for other scales inputs near a tie may get the neighbouring code. Its
gradients multiply by the mask, so a masked negative gradient is -0.0 where ours is 0.0; the tests add 0.0 to
both.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from conformance.support import RANGE, bits_of

import skuda
from peers import differences

TORCH = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
STORAGE = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def to_torch(array: np.ndarray) -> torch.Tensor:
    """The same bits as a tensor; torch takes no ml_dtypes."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def adversarial(element: str, scale: float, shape, seed: int) -> np.ndarray:
    """Finite inputs: ties of the scale and their neighbours, random codes, zeros, subnormals, the ends of the
    range.
    """
    rng = np.random.default_rng(seed)
    storage = STORAGE[element]
    size = int(np.prod(shape))
    with np.errstate(over="ignore"):
        ties = ((rng.integers(-400, 400, size) + 0.5) * scale).astype(storage)
        x = np.where(rng.random(size) < 0.5, ties, (rng.normal(0, 150, size) * scale).astype(storage)).astype(
            storage
        )
    unsigned = np.dtype(f"u{x.itemsize}")
    moved = rng.random(size) < 0.3  # one unit in the last place off
    x.view(unsigned)[moved] ^= 1
    info = ml_dtypes.finfo(storage)
    special = [0.0, -0.0, info.smallest_subnormal, -info.smallest_subnormal, info.smallest_normal]
    x[: len(special)] = np.array(special, storage)
    # |x / scale| < 2^62: beyond, torch converts a float that no int64 holds
    largest = min(float(info.max), 2.0**60 * scale)
    x[len(special) : len(special) + 2] = np.array([largest, -largest], storage)
    assert np.isfinite(x.astype(np.float64)).all()
    return x.reshape(shape)


def assert_same(actual: np.ndarray, expected: torch.Tensor, element: str) -> None:
    np.testing.assert_array_equal(bits_of(actual, element), bits_of(to_numpy(expected), element))


CODES = [("s8", 0), ("s8", -128), ("s8", 17), ("u8", 0), ("u8", 128), ("u8", 255), ("s4", -3), ("u4", 9)]


@pytest.mark.parametrize("word, zero_point", CODES)
@pytest.mark.parametrize("element", TORCH)
@pytest.mark.parametrize("exponent", [-7, -1, 0, 3])
def test_per_tensor_power_of_two_scale(element, exponent, word, zero_point):
    scale = 2.0**exponent
    q_min, q_max = RANGE[word]
    x = adversarial(element, scale, (20_000,), seed=exponent + 50)
    tensor = to_torch(x).requires_grad_()
    expected = torch.fake_quantize_per_tensor_affine(tensor, scale, zero_point, q_min, q_max)
    scales = np.array(scale, STORAGE[element])
    assert_same(skuda.fake_quantize_per_tensor(x, scales, zero_point, dtype=word), expected, element)

    d_output = np.random.default_rng(1).normal(size=x.shape).astype(STORAGE[element])
    expected.backward(to_torch(d_output))
    actual = skuda.fake_quantize_per_tensor_backward(d_output, x, scales, zero_point, dtype=word)
    zero = STORAGE[element](0)
    assert_same(actual + zero, tensor.grad + 0, element)
    assert 0 < np.count_nonzero(actual.astype(np.float64)) < x.size  # inside and outside of the range, both


@pytest.mark.parametrize("word", RANGE)
@pytest.mark.parametrize("element", TORCH)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_per_channel_power_of_two_scales(element, word, axis):
    rng = np.random.default_rng(axis + 3)
    q_min, q_max = RANGE[word]
    x = adversarial(element, 0.25, (13, 11, 17), seed=axis + 60)
    channels = x.shape[axis]
    scale = np.exp2(rng.integers(-5, 3, channels)).astype(np.float32)
    zero_point = rng.integers(q_min, q_max + 1, channels).astype(np.int32)
    tensor = to_torch(x).requires_grad_()
    expected = torch.fake_quantize_per_channel_affine(
        tensor, torch.from_numpy(scale), torch.from_numpy(zero_point), axis % 3, q_min, q_max
    )
    assert_same(
        skuda.fake_quantize_per_channel(x, scale, zero_point, axis=axis, dtype=word), expected, element
    )

    d_output = rng.normal(size=x.shape).astype(STORAGE[element])
    expected.backward(to_torch(d_output))
    actual = skuda.fake_quantize_per_channel_backward(d_output, x, scale, zero_point, axis=axis, dtype=word)
    assert_same(actual + STORAGE[element](0), tensor.grad + 0, element)


@pytest.mark.parametrize("word", RANGE)
@pytest.mark.parametrize("exponent", [-5, 0])
def test_learnable_per_tensor_power_of_two_scale(exponent, word):
    """Zero points that are even and not negative: torch adds them before it rounds, which moves ties, and its gradients
    round negative ones by adding 1/2 and cutting off."""
    scale, zero_point, factor = 2.0**exponent, 4.0, 0.25
    q_min, q_max = RANGE[word]
    x = adversarial("f32", scale, (4_000,), seed=exponent + 80)
    x = np.rint(np.clip(x, -1e3, 1e3) / scale * 8).astype(np.float32) / 8 * np.float32(scale)  # ties, and none nearly
    given = [to_torch(x), torch.tensor([scale]), torch.tensor([zero_point])]
    for each in given:
        each.requires_grad_()
    expected = torch._fake_quantize_learnable_per_tensor_affine(*given, q_min, q_max, factor)
    actual = skuda.learnable_fake_quantize_per_tensor(x, scale, zero_point, dtype=word)
    assert_same(actual + np.float32(0), expected + 0, "f32")
    d_output = np.random.default_rng(2).normal(size=x.shape).astype(np.float32)
    expected.backward(to_torch(d_output))
    d_input, *others = skuda.learnable_fake_quantize_per_tensor_backward(
        d_output, x, scale, zero_point, grad_factor=factor, dtype=word
    )
    assert_same(d_input + np.float32(0), given[0].grad + 0, "f32")
    for mine, theirs in zip(others, (each.grad for each in given[1:]), strict=True):
        assert abs(float(mine) - float(theirs)) <= 1e-5 * float(np.abs(d_output).sum())
        assert mine != 0


@pytest.mark.parametrize("axis", [0, 1])
def test_learnable_per_channel_power_of_two_scales(axis):
    rng = np.random.default_rng(axis + 9)
    x = np.rint(np.clip(adversarial("f32", 0.25, (13, 50), seed=axis + 90), -1e3, 1e3) * 256).astype(np.float32) / 256
    channels = x.shape[axis]
    scale = np.exp2(rng.integers(-5, 3, channels)).astype(np.float32)
    zero_point = 2 * rng.integers(0, 50, channels).astype(np.float32)
    given = [to_torch(each).requires_grad_() for each in (x, scale, zero_point)]
    expected = torch._fake_quantize_learnable_per_channel_affine(*given, axis, -128, 127, 0.5)
    actual = skuda.learnable_fake_quantize_per_channel(x, scale, zero_point, axis=axis)
    assert_same(actual + np.float32(0), expected + 0, "f32")
    d_output = rng.normal(size=x.shape).astype(np.float32)
    expected.backward(to_torch(d_output))
    d_input, *others = skuda.learnable_fake_quantize_per_channel_backward(
        d_output, x, scale, zero_point, axis=axis, grad_factor=0.5
    )
    assert_same(d_input + np.float32(0), given[0].grad + 0, "f32")
    for mine, theirs in zip(others, given[1:], strict=True):
        np.testing.assert_allclose(mine, theirs.grad.numpy(), rtol=1e-4, atol=1e-3)


def test_any_scale_where_torch_differs_is_where_the_reciprocal_does():
    """So the only difference of the two rules is the reciprocal: the scheme written out gives torch's codes.
    """
    for column in differences.COLUMNS:
        sample = differences.sample(*column)
        np.testing.assert_array_equal(differences.torch_fake_quantize(sample), differences.reciprocal(sample))


# Scheme -> the most that may differ, in each column of differences.COLUMNS: f32 f16 bf16, then the same on
# ties.
MOST = {
    differences.reciprocal: (1e-5, 1e-4, 1e-4, 0.15, 1e-3, 1e-3),
    differences.zero_point_first: (1e-5, 5e-4, 3e-3, 0.45, 0.03, 0.03),
    differences.wide_division: (1e-5, 0, 0, 0.5, 0, 0),
    differences.torch_fake_quantize: (1e-5, 1e-4, 1e-4, 0.15, 1e-3, 1e-3),
    differences.torch_quantize: (1e-5, 5e-4, 3e-3, 0.5, 0.03, 0.03),
}


def test_the_differences_that_the_documentation_quotes():
    fractions = differences.fractions()
    assert fractions.keys() == differences.SCHEMES.keys()
    for name, shares in fractions.items():
        most = MOST[differences.SCHEMES[name]]
        assert all(share <= bound for share, bound in zip(shares, most, strict=True)), (name, shares)
        # On ties in f32 the order of roundings shows in every scheme: a table of zeros would compare nothing.
        assert shares[3] > most[3] / 2, (name, shares)


def test_no_code_differs_by_more_than_one():
    for column in differences.COLUMNS:
        sample = differences.sample(*column)
        own = differences.ours(sample).astype(int)
        for scheme in differences.SCHEMES.values():
            assert np.abs(own - scheme(sample)).max() <= 1


def test_the_tables_are_markdown():
    for text in (differences.table(), differences.lerp_table()):
        bars = {line.count("|") for line in text.replace(r"\|", "").splitlines()}
        assert len(bars) == 1
        assert "%" in text


@pytest.mark.parametrize("element", TORCH)
def test_lerp_where_every_step_is_exact(element):
    """Small integers and eighths: no formula rounds, so all give the value itself."""
    rng = np.random.default_rng(5)
    a, b = rng.integers(-15, 16, (2, 5_000)).astype(STORAGE[element])
    for eighths in range(-8, 17):
        expected = torch.lerp(to_torch(a), to_torch(b), eighths / 8)
        actual = skuda.lerp(a, b, eighths / 8)
        # The sign of a zero is the formula's: b - (b - a) * (1 - w) and a + w * (b - a) differ in it.
        zero = STORAGE[element](0)
        assert_same(actual + zero, expected + 0, element)


@pytest.mark.parametrize("element", TORCH)
def test_lerp_elsewhere_differs_by_roundings_only(element):
    """torch: a + weight * (b - a), fused, below weight 1/2 and b - (b - a) * (1 - weight) above; ours: the
    first, unfused, for every weight. Each rounds at most four times, at numbers below 2 * (1 + |weight|) in
    size.
    """
    rng = np.random.default_rng(6)
    a, b = rng.uniform(-1, 1, (2, 20_000)).astype(STORAGE[element])
    for weight in differences.WEIGHTS:
        expected = to_numpy(torch.lerp(to_torch(a), to_torch(b), weight)).astype(np.float64)
        actual = skuda.lerp(a, b, weight).astype(np.float64)
        compute = np.finfo(np.float64 if element == "f64" else np.float32).eps
        narrow = float(ml_dtypes.finfo(STORAGE[element]).eps)
        size = 2 * (1 + abs(weight))
        assert np.abs(actual - expected).max() <= (4 * compute + narrow * (element in ("f16", "bf16"))) * size
    assert max(differences.lerp_fractions("f32")) > 0.1  # they do differ; this is no test of equality


@pytest.mark.parametrize("element", TORCH)
def test_lerp_backward(element):
    """The gradients are the same formula: (1 - weight) * d and weight * d; eighths are exact in every type.
    """
    rng = np.random.default_rng(7)
    a, b, d_output = (rng.normal(size=1_000).astype(STORAGE[element]) for _ in range(3))
    ta, tb = to_torch(a).requires_grad_(), to_torch(b).requires_grad_()
    torch.lerp(ta, tb, 0.375).backward(to_torch(d_output))
    d_a, d_b = skuda.lerp_backward(d_output, 0.375)
    assert_same(d_a, ta.grad, element)
    assert_same(d_b, tb.grad, element)


@pytest.mark.parametrize("element", TORCH)
def test_torch_tensors_in_and_out(element):
    x = adversarial(element, 0.1, (7, 33), seed=8)
    scale, zero_point = np.full(7, 0.1, np.float32), np.arange(7, dtype=np.int32)
    tensors = to_torch(x), torch.from_numpy(scale), torch.from_numpy(zero_point)
    for name, dtype in (("quantize_per_token", torch.int8), ("fake_quantize_per_token", TORCH[element])):
        function = getattr(skuda, name)
        actual = function(*tensors)
        assert type(actual) is torch.Tensor and actual.dtype == dtype and actual.device.type == "cpu"
        np.testing.assert_array_equal(to_numpy(actual), function(x, scale, zero_point))
        out = torch.empty_like(actual)
        assert function(*tensors, out=out) is out
        assert torch.equal(out, actual)


def test_torch_views_and_packed_codes():
    x = torch.randn(12, 9, generator=torch.Generator().manual_seed(1))
    transposed = x.t()
    scale, zero_point = torch.tensor(0.05), torch.tensor(3, dtype=torch.int32)
    codes = skuda.quantize_per_tensor(transposed, scale, zero_point, dtype="s4")
    assert (codes.dtype, tuple(codes.shape)) == (torch.uint8, (9, 6))
    assert torch.equal(
        codes, skuda.quantize_per_tensor(transposed.contiguous(), scale, zero_point, dtype="s4")
    )
    values = skuda.dequantize_per_tensor(codes, scale, zero_point, input_dtype="s4")
    assert torch.equal(values, skuda.fake_quantize_per_tensor(transposed, scale, zero_point, dtype="s4"))
    assert values.dtype == torch.float32


def test_the_gradient_of_fake_quantize_is_torch_s():
    x = torch.randn(4, 8, requires_grad=True)
    assert not skuda.quantize_per_tensor(x, 0.1, 0).requires_grad
    (ours,) = torch.autograd.grad(skuda.fake_quantize_per_tensor(x, 0.1, 0).square().sum(), x)
    (theirs,) = torch.autograd.grad(torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127).square().sum(), x)
    assert torch.equal(ours, theirs)


FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


@pytest.mark.parametrize("word", FP8)
@pytest.mark.parametrize("element", ["f32", "f16", "bf16"])
def test_fp8_inside_the_range(element, word):
    """Beyond it torch's conversion gives NaN or infinities. Tensors come out as torch's own types."""
    largest = torch.finfo(FP8[word]).max
    x = adversarial(element, 0.01, (64, 300), 11)
    tensor = to_torch(np.where(np.abs(x.astype(np.float32)) <= 0.3 * largest, x, np.ones_like(x)))
    scale = torch.tensor(np.random.default_rng(12).uniform(0.3, 2, 64), dtype=torch.float32)
    codes = skuda.quantize_fp8_per_token(tensor, scale, dtype=word)
    theirs = (tensor.float() / scale[:, None]).to(FP8[word])
    assert codes.dtype == FP8[word]
    assert torch.equal(codes.view(torch.uint8), theirs.view(torch.uint8))
    values = skuda.dequantize_fp8_per_token(codes, scale, dtype=element)
    assert torch.equal(values, (theirs.float() * scale[:, None]).to(TORCH[element]))


@pytest.mark.parametrize("word", FP8)
def test_every_fp8_code_is_torch_s(word):
    codes = torch.arange(256, dtype=torch.uint8).view(FP8[word])
    assert torch.allclose(skuda.dequantize_fp8_per_tensor(codes, 1.0), codes.float(), rtol=0, atol=0, equal_nan=True)
