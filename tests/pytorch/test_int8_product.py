"""Products of 8-bit integers: exact, traced, and refused where they do not fit. tests/gpu has them on a GPU."""

from __future__ import annotations

import pytest
import torch

import skuda
from skuda.errors import InvalidProblem
from skuda.torch.int8_linear import int8_linear
from skuda.torch.int8_product import _padded, int8_product

SIZES = [(1, 3, 5), (2, 16, 8), (17, 8, 24), (33, 7, 129), (0, 4, 4), (64, 48, 32)]


def operands(rows: int, columns: int, depth: int) -> list[torch.Tensor]:
    torch.manual_seed(rows)
    return [torch.randint(-128, 128, (each, depth), dtype=torch.int8) for each in (rows, columns)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_product_is_exact(sizes):
    left, right = operands(*sizes)
    wanted = left.int() @ right.int().t()
    assert torch.equal(int8_product(left, right), wanted)
    assert torch.equal(_padded(left, right), wanted)  # what a GPU does without cuBLASLt's own way


def test_it_is_one_operator_of_a_program():
    left, right = operands(17, 8, 24)
    torch.library.opcheck(torch.ops.skuda.int8_product.default, (left, right))
    compiled = torch.compile(lambda left, right: int8_product(left, right) * 2, fullgraph=True)
    assert torch.equal(compiled(left, right), left.int() @ right.int().t() * 2)


@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no bias"])
def test_a_linear_layer_is_one_operator_of_a_program(has_bias):
    rows, weight = operands(17, 8, 24)
    scale, weight_scale = torch.rand(17), torch.rand(8)
    bias = torch.randn(8).half() if has_bias else None
    arguments = rows, scale, weight, weight_scale, bias, torch.float16
    torch.library.opcheck(torch.ops.skuda.int8_linear.default, arguments)
    wanted = skuda.dequantize_sums(rows.int() @ weight.int().t(), scale, weight_scale, bias, dtype="f16")
    assert torch.equal(int8_linear(*arguments), wanted)
    compiled = torch.compile(lambda *given: int8_linear(*given, bias, torch.float16) * 2, fullgraph=True)
    assert torch.equal(compiled(*arguments[:4]), wanted * 2)


@pytest.mark.parametrize(
    "left, right, message",
    [
        (torch.zeros(2, 4), torch.zeros(2, 4, dtype=torch.int8), "expected two matrices of int8, got torch.float32"),
        (torch.zeros(4, dtype=torch.int8), torch.zeros(2, 4, dtype=torch.int8), r"of shape \(4,\)"),
        (torch.zeros(2, 4, dtype=torch.int8), torch.zeros(2, 5, dtype=torch.int8), "have 4 elements, those of right 5"),
    ],
    ids=["type", "axes", "length"],
)
def test_what_does_not_fit_is_refused(left, right, message):
    with pytest.raises(InvalidProblem, match=message):
        int8_product(left, right)
