"""The node tests of the package onnx through our functions on NumPy arrays: each agrees, or a stated reason holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from node_cases import OTHER, cases, reasons

UNSIGNED = "Add BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mod"
# By reason (the text of `Differs`, or the class of the error that the call raises) the operators, and why it is so.
DIFFERENCES = {
    "Unsupported": (
        f"{UNSIGNED} Mul Sub DequantizeLinear Div Pow QuantizeLinear ReduceMax ReduceMin Clip",
        "There is no u16 and no u64, and Div and Pow take floats alone, extremes no booleans, codes 8 bits at most.",
    ),
    "`select_last_index`": ("ArgMax ArgMin", "The first of equals is taken."),
    "more inputs": ("Clip Max Min", "Two operands, and bounds that are attributes."),
    "TypeError": ("Max Min", "Fewer operands than two."),
    "values": ("ThresholdedRelu", "A threshold that is left out is 0 here."),
    "`exclusive`": ("CumProd", "The row has the inclusive product alone."),
    "`reverse`": ("CumProd", "The row has the forward product alone."),
    "exclusive and reverse": ("CumSum", "A row for each alone."),
    "InvalidProblem": (
        "DequantizeLinear PRelu QuantizeLinear ReduceMax ReduceMin",
        "A scale for each channel is another row's; slopes are of channels; nothing has no largest element.",
    ),
    "`axis`": ("DequantizeLinear QuantizeLinear", "Other rows have scales for each channel and for groups."),
    "NotAnArray": ("Equal QuantizeLinear", "Strings, and codes of four bits that are Python objects."),
    "`detect_negative`": ("IsInf", "Both infinities are meant."),
    "`detect_positive`": ("IsInf", "Both infinities are meant."),
    "no axis at all": ("ReduceSum", "No axes mean all."),
    "`alpha`": ("Selu Swish ThresholdedRelu", "The row has its constants."),
}
PAGE = Path(__file__).parents[3] / "docs" / "frameworks.md"


@pytest.mark.parametrize("operator", sorted(cases()))
def test_node_cases(operator):
    agree, found = reasons(operator)
    stated = {reason for reason, (operators, _) in DIFFERENCES.items() if operator in operators.split()}
    assert found.keys() == stated, found
    assert agree or stated


def test_the_page_says_how_many():
    agree = sum(reasons(operator)[0] for operator in cases())
    said = f"{agree} node tests of the package onnx, of {len(cases())} operators, give the same"
    assert said in " ".join(PAGE.read_text(encoding="utf-8").split())
    assert not {*OTHER} & {*cases()}
