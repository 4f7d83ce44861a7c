"""Rows of a user's own, whose reductions are over different things: values and derived gradients as torch has them.

Small calls are NumPy's, large ones are compiled.
"""

from __future__ import annotations

import drawn_rows
import numpy as np
import pytest
import torch
import turns

import skuda
from skuda.errors import SpecError, Unsupported

SIZES = {"n": 3, "d": 5}, {"n": 300, "d": 700}
DRAWN = ({"k": 2, "m": 3, "d": 5}, {"k": 1, "m": 4, "d": 1}), ({"k": 3, "m": 130, "d": 1100},)


def defined(inputs: dict[str, str], output: str, **more):
    return skuda.define(name="own", inputs=inputs, outputs={"y": output}, **more)



ROWS = {
    "a sum to one value": ({"x": "n"}, "T[] = sum(x, over=n)", lambda x: x.sum()),
    "a mean to one value": ({"x": "n d"}, "T[] = 2 * mean(x, over=(n, d)) + 1", lambda x: 2 * x.mean() + 1),
    "a scan of others": ({"u": "n d"}, "T[n, d] = 3 * cumsum(u, along=d)", lambda u: 3 * u.cumsum(1)),
    "extremes both ways": (
        {"u": "n d"}, "T[] = sum(max(u, over=d), over=n) + sum(max(u, over=n), over=d)",
        lambda u: u.amax(1).sum() + u.amax(0).sum(),
    ),
    "a sum beside a sum of rows": (
        {"u": "n d", "w": "d"}, "T[] = sum(w, over=d) * sum(max(u, over=d), over=n)",
        lambda u, w: w.sum() * u.amax(1).sum(),
    ),
    "a share of a sum": (
        {"s": "n", "w": "d"}, "T[n, d] = s * w / sum(s, over=n)", lambda s, w: torch.outer(s, w) / s.sum(),
    ),
    "a product with a sum": (
        {"s": "n", "w": "d"}, "T[n, d] = s * w * sum(w, over=d)", lambda s, w: torch.outer(s, w) * w.sum(),
    ),
    "rows times a mean": (
        {"u": "n d", "w": "d", "s": "n"}, "T[n] = sum(u * w, over=d) * mean(s, over=n)",
        lambda u, w, s: (u * w).sum(1) * s.mean(),
    ),
    "an activation of a sum with a bias": (
        {"x": "n d", "b": "d"}, "T[n, d] = gelu(x + b)", lambda x, b: torch.nn.functional.gelu(x + b),
    ),
}  # fmt: skip


@pytest.mark.parametrize("sizes", SIZES, ids=["small", "large"])
@pytest.mark.parametrize("row", ROWS)
def test_values_and_gradients_are_torchs(row, sizes):
    inputs, output, formula = ROWS[row]
    own = defined({name: f"T[{', '.join(dims.split())}]" for name, dims in inputs.items()}, output)
    generator = torch.Generator().manual_seed(1)
    values = [
        torch.rand([sizes[dim] for dim in dims.split()], generator=generator, dtype=torch.float64)
        for dims in inputs.values()
    ]
    found, wanted = ([value.clone().requires_grad_() for value in values] for _ in range(2))
    made, expected = own(*found), formula(*wanted)
    np.testing.assert_allclose(made.detach(), expected.detach(), rtol=1e-11)
    weight = torch.rand(expected.shape, generator=generator, dtype=torch.float64)
    for output in (made, expected):
        (output * weight).sum().backward()
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.grad, other.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rows", [30, 300])
def test_an_output_that_is_reduced_as_well(rows):
    own = skuda.define(
        name="own", inputs={"z": "T[m, d]"}, backward="none",
        outputs={"s": "T[m] = sum(exp(z), over=d)", "y": "T[m, d] = exp(z)"},
    )  # fmt: skip
    z = np.random.default_rng(2).random((rows, 500), np.float32)
    made = own(z)
    np.testing.assert_array_equal(made.y, skuda.exp(z))
    np.testing.assert_array_equal(made.s, skuda.sum(skuda.exp(z), axis=1))


@pytest.mark.parametrize("factor", ["T[d]", "T[n]", "T[]"])
def test_a_scan_has_no_gradient_for_its_factor(factor):
    own = defined({"u": "T[n, d]", "w": factor}, "T[n, d] = w * cumsum(u, along=d)")
    u, w = torch.rand(3, 3, requires_grad=True), torch.rand([3] * (len(factor) - 3), requires_grad=True)
    own(u, w.detach()).sum().backward()
    assert u.grad is not None
    with pytest.raises(Unsupported, match="no gradient is declared for w"):
        own(u, w).sum().backward()


@pytest.mark.parametrize("output", ["T[d] = sum(x * x, over=n) / sum(1.0 * position(d), over=d)"])
def test_positions_that_a_kernel_would_reduce_alone_are_refused(output):
    with pytest.raises(SpecError, match=r"reduces `position\(d\)`, and no operand of it has that dimension"):
        defined({"x": "T[n, d]"}, output, backward="none")


@pytest.mark.turns(2)
@pytest.mark.parametrize(("sizes", "part", "count"), [(DRAWN[0], part, 60) for part in range(4)] + [(DRAWN[1], 0, 3)])
def test_drawn_rows_are_refused_or_give_what_torch_gives(sizes, part, count):
    """Some hundred times as many, small and large, were drawn when a cause of errors was mended."""
    made = 0
    for number in range(count):
        row = drawn_rows.row(f"{turns.commit()} {part} {number} {len(sizes)}")
        try:
            own = skuda.define(name="own", inputs=row.inputs, outputs=row.formulas)
        except SpecError:
            continue
        made += 1
        for each in sizes:
            try:
                check_drawn(own, row, each)
            except Exception as error:
                raise AssertionError(f"{row.inputs} {row.formulas}, {each}") from error
    assert made or count < 60


def check_drawn(own, row, sizes):
    generator = torch.Generator().manual_seed(3)
    drawn = {"generator": generator, "dtype": torch.float64}
    values = [torch.randn([sizes[dim] for dim in dims], **drawn) for dims in row.operands.values()]
    found, wanted = ([value.clone().requires_grad_() for value in values] for _ in range(2))
    expected = row.values(sizes, wanted)
    with torch.no_grad():
        alone = own(*values)
    compare(alone if isinstance(alone, tuple) else (alone,), expected, 1e-9)
    weights = [torch.randn(each.shape, **drawn) for each in expected]
    try:
        made = own(*found)
        slopes = slopes_of(made if isinstance(made, tuple) else (made,), found, weights)
    except Unsupported:  # a gradient that is none of the language
        return
    compare(slopes, slopes_of(expected, wanted, weights), 1e-7)


def slopes_of(outputs, inputs, weights):
    """Gradients of a weighted sum of outputs; one whose slope is 0 everywhere, as that of `x - x`, takes no part."""
    total = sum((output * weight).sum() for output, weight in zip(outputs, weights) if output.requires_grad)
    if not isinstance(total, torch.Tensor):
        return [torch.zeros_like(each) for each in inputs]
    return torch.autograd.grad(total, inputs, materialize_grads=True)


def compare(made, expected, bound):
    for one, other in zip(made, expected, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=bound, atol=bound * max(1.0, other.abs().max().item()))
