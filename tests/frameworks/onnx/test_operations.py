"""Every operation and every gradient of the catalog as a function of ONNX, in ONNX Runtime on the CPU."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from calls import BOUND, KINDS, NoKernel, draw, has_kernels, near, part_of, run, same

import skuda
from skuda.codegen.onnx_intrinsics import LACKING
from skuda.frameworks.programs import plans
from skuda.model.dtypes import DTYPES
from skuda.onnx import model, refused, same_bits

PLANS = {name: plan for name, plan in plans().items() if plan.package == "skuda.generated" and name not in refused()}
DOCS = Path(__file__).parents[3] / "docs" / "frameworks.md"
EXACT = {name for name in PLANS if same_bits(name)}


def test_every_operation_can_be_said():
    """But what calls an intrinsic that ONNX lacks, what wraps, what repeats passes, and scans but sums."""
    found = refused()
    assert found.pop("prod_of_integers").startswith("`prod` of integers: ")
    assert found.pop("sparsemax") == "`sparsemax_threshold`: a loop whose length follows from values"
    scans = [name for name, reason in found.items() if "of scans" in reason]
    reasons = {f"`{intrinsic}`: {reason}" for intrinsic, reason in LACKING.items()}
    assert {reason for name, reason in found.items() if name not in scans} <= reasons
    assert {"popcount", "clz", "cbrt", "expm1"} <= found.keys()
    assert len(PLANS) > 100
    assert {"quantize_per_group", "dynamic_quantize_fp8_per_channel", "amax", "argmax"} <= EXACT
    assert not {"softmax", "rms_norm", "gelu", "sum"} & EXACT


def test_the_page_names_those_without_the_same_bits():
    page = DOCS.read_text(encoding="utf-8")
    listed = page.partition("These have other bits:")[2].partition("\n\n")[0]
    assert re.findall(r"`(\w+)`", listed) == [name for name in PLANS if name not in EXACT]
    assert f"2^{int(np.log2(BOUND))} of the largest" in page


def test_the_page_names_those_that_cannot_be_said():
    page = DOCS.read_text(encoding="utf-8")
    listed = page.partition("All operations of the catalog but ")[2].partition("can be said")[0]
    assert sorted(re.findall(r"`(\w+)`", listed)) == sorted(refused())


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", sorted(EXACT))
def test_the_same_bits(name):
    """For every choice of element types: usual values, any bit patterns, and zeros of both signs."""
    with np.errstate(all="ignore"):
        for seed, types in enumerate(PLANS[name].operation.combinations):
            for kind in KINDS:
                call = draw(PLANS[name], types, seed, kind)
                for ours, theirs in zip(call.ours(), call.theirs(), strict=True):
                    assert same(ours, theirs).all(), (types, kind, call.options, ours, theirs)


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", sorted(PLANS.keys() - EXACT))
def test_within_the_bound(name):
    """For every choice of element types: usual values; where nearly all codes are the same."""
    for seed, types in enumerate(PLANS[name].operation.combinations):
        call = draw(PLANS[name], types, seed)
        if not has_kernels(PLANS[name], types):
            with pytest.raises(NoKernel):
                call.theirs()
            continue
        for ours, theirs in zip(call.ours(), call.theirs(), strict=True):
            part = part_of(PLANS[name], types)
            assert near(ours, theirs, types["C"] == "f64", part).all(), (types, call.options, ours, theirs)
            if ours.dtype.kind in "iu":
                assert np.mean(ours != theirs) <= 0.05


@pytest.mark.parametrize("name", sorted(name for name, plan in PLANS.items() if plan.operation.forms))
def test_without_optional_inputs(name):
    """Each optional input is left out, together with those after it."""
    operation = PLANS[name].operation
    names = [operand.name for operand in operation.inputs]
    for first, _ in operation.forms:
        call = draw(PLANS[name], operation.combinations[0], 1)
        gone = [*operation.numbers][[*operation.numbers].index(first) :]
        call.inputs = [None if each in gone else value for each, value in zip(names, call.inputs, strict=True)]
        if first not in names:
            call.options["without"] = first
        for ours, theirs in zip(call.ours(), call.theirs(), strict=True):
            assert (same(ours, theirs) if name in EXACT else near(ours, theirs, False)).all()


@pytest.mark.parametrize("name", sorted(n for n, plan in PLANS.items() if plan.operation.analysis.keeps))
def test_with_the_reduced_axes_kept(name):
    call = draw(PLANS[name], PLANS[name].operation.combinations[0], 3)
    operation = PLANS[name].operation
    axes = call.options[operation.axis.name]
    call.options["keepdims"] = True
    call.inputs = [
        np.expand_dims(value, axes) if operand.name in operation.analysis.keeps else value
        for operand, value in zip(operation.inputs, call.inputs, strict=True)
    ]
    for ours, theirs in zip(call.ours(), call.theirs(), strict=True):
        assert (same(ours, theirs) if name in EXACT else near(ours, theirs, False)).all()


def test_rows_of_other_lengths_than_the_example():
    """A function is of types and axes: extents are those of the arrays that come."""
    made = model("dynamic_quantize_per_group", "f16[8, 512]", group_size=5, dtype="s4")
    x = np.random.default_rng(0).normal(size=(3, 23)).astype(np.float16)
    for ours, theirs in zip(
        skuda.dynamic_quantize_per_group(x, group_size=5, dtype="s4"), run(made, [x]), strict=True
    ):
        assert same(ours, theirs).all()


def test_the_element_types_of_the_catalog_are_onnxs():
    for word in {word for plan in PLANS.values() for types in plan.operation.combinations for word in types.values()}:
        assert onnx.helper.np_dtype_to_tensor_dtype(DTYPES[word].storage)
