"""Dimensions of a fixed size, `T[n, 4]`: values, gradients, refusals, kernels, and what frameworks are told."""

from __future__ import annotations

import re
from inspect import signature

import numpy as np
import pytest
import torch
import values
from catalogs import catalog_fixture
from host import emulator
from problems import Call, lay_out, plan_class_of

import skuda
from skuda.codegen.cli import main
from skuda.codegen.describe import DescribedProgram
from skuda.codegen.spec import loads
from skuda.codegen.stubs import Stub
from skuda.errors import InvalidProblem, SpecError
from skuda.frameworks.sharding import Rule, factors, rule
from skuda.launch import registry
from skuda.model.sku import BackendKind

PACKAGE = "fixed_sizes_catalog"
SPEC = """\
ops:
  turned:
    inputs: {q: "T[*n, 4]", gain: "T[4]"}
    outputs: {y: "T[*n, 4] = gain * q / sqrt(sum(q * q, over=4))"}

  corners:
    inputs: {x: "T[*n]"}
    outputs: {y: "T[*n, 4] = x * to_real(position(4))"}

  shifted:
    inputs: {x: "T[n, 3]", shift: "T[3]"}
    outputs: {y: "T[n, 3] = x - shift"}

  channels:
    inputs: {x: "T[*outer, 3, *inner]"}
    attrs: {axis: axis of 3 = 1}
    outputs: {y: "T[*outer, *inner] = mean(x, over=3)", most: "T[*outer, *inner] = max(x, over=3)"}
    backward: none

  running:
    inputs: {x: "T[*n, 5]"}
    outputs: {y: "T[*n, 5] = cumsum(x, along=5)"}

  planes:
    inputs: {x: "T[*n, 2, 3]"}
    outputs: {y: "T[*n] = sum(x * x, over=(3, 2)) / count(over=(2, 3))"}

  seen:
    inputs: {x: "T[*n, 4]", w: "T[4]"}
    outputs: {y: "T[*n, 4] = rms_norm(x, w, 0.5, 4)"}
"""

ours = catalog_fixture(PACKAGE, SPEC)


def of_whole_numbers(*shape: int) -> np.ndarray:
    """Values of which sums are exact."""
    return np.random.default_rng(3).integers(-8, 9, shape).astype(np.float32)


def test_values(run):
    x, gain = of_whole_numbers(7, 4) + 0.5, np.array([1, -2, 0, 4], np.float32)
    wanted = gain * x / np.sqrt((x.astype(np.float64) ** 2).sum(-1, keepdims=True))
    np.testing.assert_allclose(run("turned", x, gain), wanted, rtol=1e-6)
    np.testing.assert_array_equal(run("corners", x[:, 0]), x[:, :1] * np.arange(4))
    np.testing.assert_array_equal(run("shifted", x[:, :3], gain[:3]), x[:, :3] - gain[:3])
    y, most = run("channels", x.reshape(2, 7, 2)[:, :3])
    np.testing.assert_allclose(y, x.reshape(2, 7, 2)[:, :3].mean(1, dtype=np.float64), rtol=1e-6)
    np.testing.assert_array_equal(most, x.reshape(2, 7, 2)[:, :3].max(1))
    np.testing.assert_array_equal(run("channels", x[:3], axis=0)[1], x[:3].max(0))
    fives, sixes = x.reshape(-1)[:25].reshape(5, 5), x.reshape(-1)[:24].reshape(4, 6)
    np.testing.assert_array_equal(run("running", fives), fives.cumsum(1))
    np.testing.assert_allclose(run("planes", sixes.reshape(4, 2, 3)), (sixes**2).mean(1), rtol=1e-6)
    wanted = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 0.5) * gain
    np.testing.assert_allclose(run("seen", x, gain), wanted, rtol=1e-6)
    assert run("turned", x[:0], gain).shape == (0, 4) and run("corners", x[:0, 0]).shape == (0, 4)


@pytest.mark.parametrize(
    ("name", "shapes", "message"),
    [
        ("turned", [(2, 5), (5,)], "q has shape (2, 5), expected (*n, 4): dimension 1 must be 4, got 5"),
        ("turned", [(5,), (4,)], "q has shape (5,), expected (*n, 4): dimension 0 must be 4, got 5"),
        ("turned", [(2, 4), (5,)], "gain has shape (5,), expected (4,)"),
        ("shifted", [(2, 4), (4,)], "x has shape (2, 4), expected (n, 3): dimension 1 must be 3, got 4"),
        ("shifted", [(3,), (3,)], "x has shape (3,), expected (n, 3)"),
        ("channels", [(2, 4, 3)], "x has shape (2, 4, 3), expected (*outer, 3, *inner): dimension 1 must be 3, got 4"),
        ("planes", [(3, 2)], "x has shape (3, 2), expected (*n, 2, 3): dimension 0 must be 2, got 3"),
        ("corners_backward", [(2, 3)], "d_y has shape (2, 3), expected (*n, 4): dimension 1 must be 4, got 3"),
    ],
)
def test_another_size_is_refused(run, name, shapes, message):
    with pytest.raises(InvalidProblem, match=re.escape(message)):
        run(name, *(np.ones(shape, np.float32) for shape in shapes))


def test_an_output_of_another_size_is_refused(ours):
    with pytest.raises(InvalidProblem, match=r"y has shape \(3, 5\), expected \(n, 4\) = \(3, 4\)"):
        ours.corners(np.ones(3, np.float32), out=np.empty((3, 5), np.float32))


def test_a_descriptor_has_the_other_sizes_alone(ours):
    descriptor = ours.TurnedPlan.descriptor_type(n=(6,))
    plan = ours.TurnedPlan.select(descriptor, preference=BackendKind.REFERENCE)
    assert plan.shapes == ((6, 4), (4,), (6, 4)) and set(signature(type(descriptor)).parameters) == {"n", "element"}
    assert "4:" not in type(descriptor).__doc__ and "q: T[*n, 4]" in ours.turned.__doc__


def test_the_stub_has_no_field_for_it():
    row = next(row for row in loads(SPEC, "spec.yaml").rows if row.forward.operation.name == "turned")
    described = DescribedProgram(row.forward)
    assert Stub(described, described).descriptor == ["n: Sizes", "element: Element | None = None"]


@pytest.mark.parametrize("name", ["turned", "corners", "channels"])
def test_the_command_line_shows_it(ours, name, capsys):
    assert main(["show", name, "--catalog", PACKAGE]) == 0
    assert re.search(r"T\[\*\w+, [34]", capsys.readouterr().out)


def test_gradients_and_tracing(ours):
    """As operators of torch: derived gradients in f64, a compiled program for any number of rows, and a batch."""
    draw = torch.Generator().manual_seed(0)
    x, gain = (torch.randn(shape, generator=draw, dtype=torch.float64, requires_grad=True) for shape in ((3, 4), (4,)))
    assert torch.autograd.gradcheck(ours.turned, (x, gain)) and torch.autograd.gradcheck(ours.seen, (x, gain))
    assert torch.autograd.gradcheck(ours.corners, (gain,))
    assert torch.autograd.gradcheck(ours.shifted, (x[:, 1:], gain[1:]))
    both = lambda x, gain: ours.turned(x, gain) + ours.corners(x[:, 0])  # noqa: E731
    compiled = torch.compile(both, backend="aot_eager", dynamic=True, fullgraph=True)
    for rows in (x, x[:2]):
        assert torch.equal(compiled(rows, gain), both(rows, gain))
    batch = torch.stack([x, 2 * x])
    assert torch.equal(torch.vmap(lambda each: ours.turned(each, gain))(batch), ours.turned(batch, gain))
    with torch._subclasses.FakeTensorMode():
        assert ours.corners(torch.empty(2, 3)).shape == (2, 3, 4)
        with pytest.raises(InvalidProblem, match="dimension 1 must be 4, got 3"):
            ours.turned(torch.empty(2, 3), torch.empty(3))


def test_it_is_not_split_over_devices(ours):
    operation = ours.ShiftedPlan.operation
    sizes = {"n": 8, "3": 3}
    axes = factors(operation, sizes, {"T": "f32", "C": "f32"})
    assert rule(operation, axes, ("n", 0), sizes).splits
    assert rule(operation, axes, ("3", 0), sizes) == Rule(False)


def test_what_a_row_may_not_say():
    for given, message in (
        ({"inputs": {"x": "T[n, 0]"}}, "`0` is not a dimension"),
        ({"inputs": {"x": "T[n, 4, 4]"}}, "`x` has a dimension twice"),
        ({"outputs": {"y": "T[n] = sum(x, over=3)"}}, "`over=` needs a dimension"),
        ({"outputs": {"y": "T[n] = x"}}, "the formula depends on `4`, which `T[n]` does not have"),
        ({"outputs": {"y": "T[n, 5] = x"}}, "the formula depends on `4`, which `T[n, 5]` does not have"),
    ):
        with pytest.raises(SpecError, match=re.escape(message)):
            skuda.define(**{"inputs": {"x": "T[n, 4]"}, "outputs": {"y": "T[n, 4] = x"}, **given})


# ---- kernels ----


CALLS = {  # sizes of which rows and elements are left over, whatever a thread takes
    "turned": {"n": (37,)}, "corners": {"n": (3, 11)}, "corners_backward": {"n": (37,)}, "shifted": {"n": 41},
    "channels": {"outer": (5,), "inner": (7,)}, "running": {"n": (37,)}, "planes": {"n": (9,)},
}  # fmt: skip


def call_of(ours, name: str) -> Call:
    """A call with contiguous arrays of f32."""
    plan_class = plan_class_of(PACKAGE, name)
    sizes = tuple(CALLS[name].items())
    elements = tuple((field, "f32") for field in plan_class.operation.element_fields.values())
    plan = Call(plan_class, sizes, elements, ()).plan(BackendKind.REFERENCE)
    layouts = [(operand.name, lay_out(shape, "plain"))
               for operand, shape in zip(plan.operation.operands, plan.stored, strict=True)]  # fmt: skip
    return Call(plan_class, sizes, elements, tuple(layouts))


@pytest.mark.skipif(not emulator.COMPILER, reason="no C++ compiler")
def test_kernels_give_the_references_bits(ours, tmp_path):
    skus = {}
    for sku in registry.skus():
        entry = registry.entry_of(sku)
        if entry.catalog.package == PACKAGE and entry.operation.function in CALLS and sku.backend is BackendKind.CUDA:
            skus[entry.operation.source] = sku
    calls = [call_of(ours, name) for name in CALLS]
    plans = [call.plan(BackendKind.REFERENCE) for call in calls]
    launched = [plan.launch_for(call.views(plan)).entries for call, plan in zip(calls, plans, strict=True)]
    host = emulator.Host([*skus.values()], tmp_path, entries=[*dict.fromkeys(sum(map(list, launched), []))])
    for call, plan in zip(calls, plans, strict=True):
        given = {operand.name: of_whole_numbers(*shape) + np.float32(0.5)
                 for operand, shape in zip(plan.operation.inputs, plan.shapes, strict=False)}  # fmt: skip
        expected = values.run(plan, given)
        held = {name: each.reshape(-1).view(np.uint8) for name, each in given.items()}
        held |= {name: np.full(each.nbytes, values.UNTOUCHED, np.uint8) for name, each in expected.items()}
        arrays = {name: (held[name], np.dtype(np.float32), at) for name, at in call.layouts}
        found = {}
        assert list(host.run(plan, arrays, found)) == []
        for name, each in expected.items():
            np.testing.assert_array_equal(found[name], each.reshape(-1).view(np.uint8), err_msg=plan.operation.name)
