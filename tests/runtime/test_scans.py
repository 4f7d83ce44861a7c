"""Scans: the order that docs/numerics.md states, walked one group after the other, and which kernel takes a call."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import Call, lay_out

import skuda
from skuda.model.sku import BackendKind
from skuda.reference.scans import scanned

GROUP, WARP, TILE, SEGMENT = 8, 32, 8, 16  # elements of a group, groups of a warp, warps of a tile, tiles of a segment


class Tree:
    """Sklansky's tree as one who walks along it has it: the totals of first halves that are done."""

    def __init__(self):
        self.halves, self.count = {}, 0

    def add(self, total):
        """The total of all up to this one."""
        level = 0
        while self.count >> level:
            if self.count >> level & 1:
                total = self.halves[level] + total
            elif self.count & ((1 << level) - 1) == (1 << level) - 1:
                self.halves[level] = total
            level += 1
        if self.count & (self.count + 1) == 0:  # all bits are set: it ends a tree
            self.halves[level] = total
        self.count += 1
        return total


def walked(row: np.ndarray, exclusive: bool, reverse: bool) -> np.ndarray:
    """The sums of a row, added in plain loops."""
    zero = row.dtype.type(-0.0)
    groups = [row[start : start + GROUP] for start in range(0, len(row), GROUP)]
    groups = [group[::-1] for group in groups[::-1]] if reverse else groups
    found, segments, tiles, warps, lanes = [], zero, zero, zero, zero
    in_warp, in_tile = Tree(), Tree()
    for number, group in enumerate(groups):
        base = ((segments + tiles) + warps) + lanes
        total = None
        for value in group:
            before = base if total is None else base + total
            total = value if total is None else total + value
            found.append(before if exclusive else base + total)
        lanes = in_warp.add(total)
        if (number + 1) % WARP == 0:
            warps, lanes, in_warp = in_tile.add(lanes), zero, Tree()
        if (number + 1) % (WARP * TILE) == 0:
            tiles, warps, in_tile = tiles + warps, zero, Tree()
        if (number + 1) % (WARP * TILE * SEGMENT) == 0:
            segments, tiles = segments + tiles, zero
    if exclusive:
        found[0] = row.dtype.type(0)
    return np.array(found[::-1] if reverse else found)


@pytest.mark.parametrize("options", [(False, False), (True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("length", [1, 7, 8, 9, 255, 264, 2048, 2055, 6149, 40_003])
def test_the_order_is_the_one_that_is_stated(length, options):
    row = np.random.default_rng(length).standard_normal(length).astype(np.float32)
    assert scanned(row, "cumsum", *options).tobytes() == walked(row, *options).tobytes()


def test_other_orders_give_other_bits():
    row = np.random.default_rng(1).standard_normal(6149).astype(np.float32)
    own = scanned(row, "cumsum")
    assert np.mean(own != np.cumsum(row)) > 0.2
    assert np.mean(own != scanned(row, "cumsum", reverse=True)[::-1]) > 0.2


def test_several_axes_are_one_row():
    x = np.random.default_rng(2).standard_normal((3, 4, 5)).astype(np.float32)
    whole = skuda.cumsum(x.reshape(-1)).reshape(x.shape)
    assert skuda.cumsum(x, axis=None).tobytes() == whole.tobytes()
    middle = skuda.cumsum(np.moveaxis(x, 1, 0).reshape(4, -1))
    assert skuda.cumsum(x, axis=(0, 2)).tobytes() == np.moveaxis(middle.reshape(4, 3, 5), 0, 1).tobytes()


def test_what_a_recurrence_multiplies_by_0_is_forgotten():
    a = np.array([2, 3, 0, -1, 0.5], np.float32)
    b = np.array([1, np.nan, 4, np.inf, 0], np.float32)
    assert skuda.linear_recurrence(a, b).astype(str).tolist() == ["1.0", "nan", "4.0", "inf", "inf"]
    assert skuda.linear_recurrence(np.float32([np.inf, np.inf]), np.float32([-0.0, 3])).tolist() == [0, 3]
    d_a, d_b = skuda.linear_recurrence_backward(np.float32([1, 1, 1, np.inf, 1]), a, np.ones(5, np.float32))
    assert d_b.tolist() == [4, 1, -np.inf, np.inf, 1]
    assert d_a.tolist()[:2] == [0, 1]


def _recurrence(a, b):
    found = [b[..., 0]]
    for index in range(1, b.shape[-1]):
        found.append(a[..., index] * found[-1] + b[..., index])
    return torch.stack(found, -1)


@pytest.mark.parametrize("name", ["cumprod", "cummax", "cummin", "logcumsumexp", "linear_recurrence"])
@pytest.mark.parametrize("axis", [-1, 0])
def test_gradients_are_those_of_torch(name, axis):
    """Of rows with zeros and equal elements, of one group and of several."""
    random = np.random.default_rng(3)
    own = {"cumprod": torch.cumprod, "logcumsumexp": torch.logcumsumexp, "linear_recurrence": _recurrence}
    own |= {each: lambda x, dim, of=each: getattr(torch, of)(x, dim).values for each in ("cummax", "cummin")}
    for length in (5, 300):
        given = [np.round(random.standard_normal((3, length)), 1) for _ in range(1 + (name == "linear_recurrence"))]
        gradient = random.standard_normal((3, length))
        tensors = [torch.tensor(each, requires_grad=True) for each in given]
        output = own[name](*tensors) if name == "linear_recurrence" else own[name](*tensors, -1)
        output.backward(torch.tensor(gradient))
        stored = [output.detach().numpy()] if name in ("cummax", "cummin") else []  # which these gradients read
        turned = [each if axis else np.ascontiguousarray(each.T) for each in (gradient, *given, *stored)]
        found = getattr(skuda, f"{name}_backward")(*turned, axis=axis)
        for each, tensor in zip(found if isinstance(found, tuple) else (found,), tensors, strict=True):
            assert np.allclose(each if axis else each.T, tensor.grad.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"])
@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_of_exclusive_scans_are_those_of_torch(name, reverse):
    """Of what is before each element: of rows with equal elements, zeros, infinities and NaN."""
    operation = skuda.define(
        inputs={"x": "T[*n, d]"},
        outputs={"y": f"T[*n, d] = {name}(x, along=d, exclusive=True, reverse={reverse})"},
    )
    random = np.random.default_rng(6)
    ends = [[1, 2, 2, 2, -1], [3, 0, 0, 4, 0]]
    ends += [[3, -np.inf, -np.inf, 4, 1]] if name not in ("cumsum", "cumprod") else []
    ends += [[1, np.nan, 3, 2, 5]] if name in ("cummax", "cummin") else []
    for values in (np.round(random.standard_normal((3, 5)), 1), np.round(random.standard_normal((2, 300)), 1), ends):
        x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
        gradient = torch.from_numpy(random.standard_normal(x.shape))
        (found,) = torch.autograd.grad(operation(x), x, gradient)
        turned, given = (each.flip(-1) if reverse else each for each in (x, gradient))
        of = getattr(torch, name)(turned, -1)
        of = of.values if name in ("cummax", "cummin") else of
        (expected,) = torch.autograd.grad((of[:, :-1] * given[:, 1:]).sum(), x)
        assert torch.allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_scans_from_both_ends_and_of_scans_run_in_stages():
    outside = skuda.define("""
        outside:
          inputs: {x: "T[*n, d]"}
          outputs:
            y: T[*n, d] = cumsum(x, along=d, exclusive=True) * cumsum(x, along=d, exclusive=True, reverse=True)
    """)
    twice = skuda.define("""
        twice:
          inputs: {x: "T[*n, d]"}
          outputs: {y: "T[*n, d] = cumsum(cumsum(x, along=d) + 1, along=d)"}
    """)
    x = np.random.default_rng(4).integers(-3, 4, (2, 70)).astype(np.float32)
    before = np.cumsum(x, -1) - x
    assert (outside(x) == before * (x.sum(-1, keepdims=True) - before - x)).all()
    assert (twice(x) == np.cumsum(np.cumsum(x, -1) + 1, -1)).all()


def test_a_factor_may_be_one_for_all():
    average = skuda.define("""
        average:
          inputs: {x: "T[*n, d]", keep: "C[]"}
          outputs: {y: "T[*n, d] = linear_recurrence(keep, (1 - keep) * x, along=d)"}
    """)
    x = np.random.default_rng(5).standard_normal((2, 30))
    found = average(x, 0.5)
    state = np.zeros(2)
    for index in range(30):
        state = 0.5 * state + 0.5 * x[:, index]
        assert np.allclose(found[:, index], state)


def test_nan_and_infinities():
    x = np.array([1, np.inf, 2, np.nan, 3], np.float32)
    assert np.isnan(skuda.cummax(x)).tolist() == [False, False, False, True, True]
    assert skuda.cummin(x)[:3].tolist() == [1, 1, 1]
    low = np.array([-np.inf, -np.inf, 0, 0, np.inf], np.float32)
    assert skuda.logcumsumexp(low).tolist() == [-np.inf, -np.inf, 0, np.float32(np.log(2)), np.inf]
    assert skuda.cumsum_exclusive(np.array([5, 7], np.int32)).tolist() == [0, 5]
    assert skuda.cumsum(np.array([2**31 - 1, 1], np.int32)).tolist() == [2**31 - 1, -(2**31)]
    assert skuda.cumsum(np.empty((0, 4), np.float32), axis=0).shape == (0, 4)


@pytest.mark.parametrize(
    ("shape", "axis", "how", "kernel"),
    [
        ((300, 30), 1, "plain", "scan"),
        ((3, 70_003), 1, "plain", "scan_parts"),
        ((1000, 70_003), 1, "plain", "scan"),
        ((70_003, 64), 0, "plain", "scan_down_parts"),
        ((16_384, 64), 0, "plain", "scan_down_parts"),
        ((70_003, 100_000), 0, "plain", "scan_down"),
        ((70_003, 3), 0, "plain", "scan_parts"),
        ((5, 40, 64), 1, "plain", "scan_down"),
    ],
)
def test_which_kernel_takes_a_call(shape, axis, how, kernel):
    n = tuple(extent for index, extent in enumerate(shape) if index != axis)
    at = lay_out(shape, how)
    order = [*(index for index in range(len(shape)) if index != axis), axis]
    moved = type(at)(tuple(at.shape[i] for i in order), tuple(at.strides[i] for i in order), at.start, at.size)
    call = Call(
        skuda.CumsumPlan, (("n", n), ("d", (shape[axis],))), (("element", "f32"),),
        (("input", moved), ("output", moved)),
    )  # fmt: skip
    plan = call.plan(BackendKind.REFERENCE)
    found = plan._geometry(call.views(plan))
    assert found.variant.kernel == kernel
    assert (found.workspace > 0) == (found.finish is not None) == kernel.endswith("_parts")
    assert found.workspace <= plan._kernels.workspace
