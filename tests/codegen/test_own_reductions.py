"""Operations of one's own with reductions: what they give, forward and backward, on rows, groups and several axes.

The values are small integers, whose sums are exact in any order, so that NumPy's sums are to the bit.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from catalogs import catalog_fixture
from conformance.support import STORAGE
from quick_compiler import compile_quickly

from skuda.codegen.render import generate
from skuda.codegen.spec import loads
from skuda.errors import InvalidProblem, SpecError
from skuda.launch import registry
from skuda.launch.compiler import compile_cubin
from skuda.reference import random
from skuda.schedules import table
from skuda.schedules.row_variants import split_variants
from skuda.schedules.variant import RowMode

SPEC = """\
functions:
  centered(x, along): x - mean(x, over=along)
ops:
  center:
    inputs:
      x: T[*n, d]
    outputs:
      y: T[*n, d] = centered(x, d)
    backward:
      d_x: T[*n, d] = centered(d_y, d)

  center_groups:
    inputs:
      x: T[*outer, d, *inner]
    attrs: {group_size: size, axis: axis of d = -1}
    outputs:
      middle: T[*outer, d/group_size, *inner] = mean(x, over=d/group_size)
      y: T[*outer, d, *inner] = x - middle

  center_stored:
    inputs:
      x: T[*n, d]
    outputs:
      middle: T[*n] = mean(x, over=d)
      y: C[*n, d] = x - middle

  spread:
    inputs:
      x: T[*n, d]
    outputs:
      spread: C[*n] = squared_deviations(x, over=d)
      y: C[*n, d] = squared_deviations(2 * x, over=d) - spread * x

  spread_of_groups:
    inputs:
      x: T[*outer, d, *inner]
    attrs: {group_size: size, axis: axis of d = -1}
    outputs:
      y: C[*outer, d/group_size, *inner] = squared_deviations(x, over=d/group_size)

  flags:
    inputs:
      x: T[*n, d]
    attrs: {limit: C = 2}
    outputs:
      some: bool[*n] = any(x > limit, over=d)
      each: bool[*n] = all(x > limit, over=d)
      kept: T[*n, d] = where(any(x > limit, over=d), x, 0)

  code_range:
    types: {T: f32, Q: [s8, u8]}
    inputs:
      q: Q[*n, d]
      weight: T[]
    outputs:
      low: Q[*n] = min(q, over=d)
      y: T[*n, d] = weight * (q - low) / max(1, max(q, over=d) - min(q, over=d))

  column_sums:
    inputs:
      x: T[d, *n]
      weight: T[*n]
    outputs:
      y: T[d] = sum(x * weight, over=n)

  weighted_columns:
    inputs:
      x: T[n, a, d]
      each: T[n]
      weight: T[n, d]
    outputs:
      y: T[a, d] = sum(x * each + weight, over=n)

  stepwise:
    inputs:
      x: T[*n]
    outputs:
      tenth: T[*n] = x * 0.1
      y: T[*n] = tenth * 10

  dropped:
    inputs:
      x: T[*n, d]
      seed: i64[]
      offset: i64[]
    attrs: {p: C = 0.5}
    outputs:
      kept: T[*n, d] = where(random_uniform(seed, offset, position((n, d))) >= p, x - max(x, over=d), 1)

  thirds:
    inputs:
      x: T[*n, d]
    outputs:
      y: T[*n, d] = x / 3 + sum(x / 5, over=d) / 7

  center_all:
    inputs:
      x: T[*shape]
    outputs:
      middle: C[] = mean(x, over=shape)
      y: T[*shape] = x - middle

  center_planes:
    inputs:
      x: T[a, *n, b]
      weight: T[b]
    outputs:
      most: C[*n] = max(x * weight, over=(a, b))
      y: T[a, *n, b] = centered(x * weight, (b, a))

  codes_of_rows:
    types: {T: f32, Q: [s8, u8]}
    inputs:
      q: Q[*n, d]
      weight: T[]
    outputs:
      total: i64[*n] = sum(q, over=d)
      index: i64[*n] = argmax(q, over=d)
      low: i32[*n] = saturate(argmin(q, over=d))
      y: T[*n] = weight * sum(q, over=d) / count(over=d)

  group_indices:
    inputs:
      x: T[*outer, d, *inner]
    attrs: {group_size: size, axis: axis of d = -1}
    outputs:
      index: i32[*outer, d/group_size, *inner] = wrap(argmax(x, over=d/group_size))
      length: T[*outer, d/group_size, *inner] = 0 * max(x, over=d/group_size) + count(over=d/group_size)

  one_hot:
    inputs:
      x: T[*n, d]
    outputs:
      at: i64[*n] = argmax(x, over=d)
      y: T[*n, d] = where(x == max(x, over=d), at, -1)

  product_of_row:
    inputs:
      x: T[*n, d]
      gain: T[*n]
    outputs:
      y: T[*n] = gain * prod(x, over=d)

  row_total:
    inputs:
      x: T[*n, d]
    outputs:
      y: T[*n] = sum(x, over=d)
    backward:
      d_x: T[*n, d] = d_y / count(over=(n, d))

  plane_total:
    inputs:
      x: T[*n, *d]
      moved: T[*d]
    outputs:
      y: T[*n] = sum(x - moved, over=d)
    backward:
      d_x: T[*n, *d] = d_y

  group_totals:
    inputs:
      x: T[*outer, d, *inner]
    attrs: {group_size: size, axis: axis of d = -1}
    outputs:
      y: T[*outer, d/group_size, *inner] = sum(x, over=d/group_size)
    backward:
      d_x: T[*outer, d, *inner] = d_y

  sought_twice:
    inputs:
      x: T[*n, d]
    let:
      next: x - max(x, over=d)
      first: sparsemax_threshold(next, over=d)
      wanted: sparsemax_threshold(next / 2, over=d)
    outputs:
      low: C[*n] = first
      y: T[*n, d] = max(next / 2 - wanted, 0)

  log_shares:
    inputs:
      x: T[*n, *d]
    attrs: {axis: axes of d = -1}
    outputs:
      y: T[*n, *d] = 2 * x - logsumexp(2 * x, over=d)

  shares:
    inputs:
      x: T[*n, d]
    attrs: {gain: C = 3}
    outputs:
      y: T[*n, d] = x * gain / count(over=d)
"""

FLOATS = ("f32", "f64", "f16", "bf16")

ours = catalog_fixture("skuda_own_reductions", SPEC)


def integers(element: str, shape, seed: int, most: int = 9) -> np.ndarray:
    """Small integers, whose sums are exact in any order."""
    return np.random.default_rng(seed).integers(-most, most + 1, shape).astype(STORAGE[element])


def wide(array: np.ndarray) -> np.ndarray:
    """In the compute type."""
    return array.astype(np.float64 if array.dtype == np.float64 else np.float32)


def same(actual: np.ndarray, expected: np.ndarray, element: str) -> None:
    assert actual.dtype == STORAGE[element]
    np.testing.assert_array_equal(wide(actual), wide(expected.astype(STORAGE[element])))


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("shape", [(7,), (3, 64), (2, 3, 9), (2, 0, 5), (1, 1)])
def test_a_function_over_a_dimension(run, element, shape):
    x = integers(element, shape, 1)
    expected = wide(x) - wide(x).sum(-1, keepdims=True) / wide(x).dtype.type(shape[-1])
    same(run("center", x), expected, element)
    same(run("center_backward", x), expected, element)


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize(("shape", "axis", "group_size"), [((2, 21), -1, 8), ((7, 3), 0, 3), ((2, 9, 3), 1, 100)])
def test_groups_the_last_of_which_is_shorter(run, element, shape, axis, group_size):
    x = integers(element, shape, 2)
    middle, y = run("center_groups", x, group_size=group_size, axis=axis)
    lines = np.moveaxis(wide(x), axis, -1)
    length = shape[axis]
    for group in range(-(-length // group_size)):
        part = lines[..., group * group_size : (group + 1) * group_size]
        expected = part.sum(-1) / part.dtype.type(part.shape[-1])
        same(np.moveaxis(middle, axis, -1)[..., group], expected, element)
        stored = wide(expected.astype(STORAGE[element]))[..., None]
        here = np.moveaxis(y, axis, -1)[..., group * group_size : (group + 1) * group_size]
        same(here, part - stored, element)


@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_a_named_output_is_the_rounded_one(run, element):
    x = integers(element, (5, 7), 3, most=100)
    middle, y = run("center_stored", x)
    exact = wide(x).sum(-1, keepdims=True) / np.float32(7)
    same(middle, exact[:, 0], element)
    np.testing.assert_array_equal(y, wide(x) - wide(middle)[:, None])
    assert (y != wide(x) - exact).any()


@pytest.mark.parametrize("element", FLOATS)
def test_any_and_all(run, element):
    x = integers(element, (40, 5), 4, most=3)
    x[::7] = 3
    x[1::7, 2] = np.nan
    some, each, kept = run("flags", x)
    assert some.dtype == each.dtype == np.bool_
    np.testing.assert_array_equal(some, (wide(x) > 2).any(-1))
    np.testing.assert_array_equal(each, (wide(x) > 2).all(-1))
    assert 0 < each.sum() < some.sum() < 40
    same(kept, np.where(some[:, None], wide(x), 0), element)
    some, each, kept = run("flags", x[:3, :0])
    assert not some.any() and each.all() and kept.shape == (3, 0)


@pytest.mark.parametrize("storage", [np.int8, np.uint8])
def test_extremes_of_codes(run, storage):
    q = np.random.default_rng(5).integers(0, 256, (6, 77)).astype(np.uint8).view(storage)
    q[0] = 5
    low, y = run("code_range", q, 0.37)
    np.testing.assert_array_equal(low, q.min(-1))
    steps = q.astype(np.int64) - q.min(-1, keepdims=True).astype(np.int64)
    spread = np.maximum(steps.max(-1, keepdims=True), 1).astype(np.float32)
    np.testing.assert_array_equal(y, np.float32(0.37) * steps.astype(np.float32) / spread)
    with pytest.raises(InvalidProblem, match="axis 1 of q has length 0; there is no smallest of no elements"):
        run("code_range", q[:, :0].copy(), 0.37)


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("shape", [(4, 9), (4,), (3, 2, 5), (1, 70, 3), (2, 0)])
def test_a_reduction_over_any_number_of_axes(run, element, shape):
    x, weight = integers(element, shape, 6), integers(element, shape[1:], 7)
    expected = (wide(x) * wide(weight)).reshape(shape[0], -1).sum(-1)
    same(run("column_sums", x, weight), expected, element)


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("shape", [(9, 2, 5), (70, 1, 3), (1, 4, 4), (0, 2, 3)])
def test_columns_with_weights_that_they_share_and_others(run, element, shape):
    n, _, d = shape
    x, each, weight = (integers(element, size, 18, most=3) for size in (shape, (n,), (n, d)))
    expected = (wide(x) * wide(each)[:, None, None] + wide(weight)[:, None]).sum(0)
    same(run("weighted_columns", x, each, weight), expected, element)


@pytest.mark.parametrize("element", FLOATS)
def test_a_chain_of_outputs_without_a_reduction(run, element):
    x = np.linspace(-5, 5, 1001).astype(STORAGE[element])
    C = wide(x).dtype.type
    tenth, y = run("stepwise", x)
    same(tenth, wide(x) * C(0.1), element)
    same(y, wide(tenth) * C(10), element)


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize(
    ("shape", "axis"), [((5, 300), 1), ((72, 480), 0), ((480, 72), 0), ((9, 4, 8), (0, 2)), ((3, 1), 1)]
)
def test_logarithms_of_sums_over_any_axes(run, element, shape, axis):
    """Near columns too, of which kernels hold stripes."""
    x = np.random.default_rng(19).normal(0, 9, shape).astype(STORAGE[element])
    twice = 2 * wide(x).astype(np.float64)
    largest = twice.max(axis, keepdims=True)
    expected = twice - largest - np.log(np.exp(twice - largest).sum(axis, keepdims=True))
    found = wide(run("log_shares", x, axis=axis)).astype(np.float64)
    step = {"f32": 2**-22, "f64": 2**-51, "f16": 2**-11, "bf16": 2**-8}[element]
    assert (np.abs(found - expected) <= step * (np.abs(twice) + np.abs(largest) + 8)).all()


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("shape", [(7,), (3, 64), (2, 3, 9), (0, 3), ()])
def test_everything_reduced(run, element, shape):
    x = integers(element, shape, 11)
    middle, y = run("center_all", x)
    C = wide(x).dtype.type
    with np.errstate(invalid="ignore"):
        expected = wide(x).sum() / C(x.size)
    assert middle.shape == () and middle.dtype == C
    np.testing.assert_array_equal(middle, expected)
    same(y, wide(x) - expected, element)


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("shape", [(3, 5), (1, 4, 7), (2, 3, 2, 8), (3, 1, 5)])
def test_a_reduction_over_axes_with_others_between(run, element, shape):
    x, weight = integers(element, shape, 12), integers(element, shape[-1:], 13)
    most, y = run("center_planes", x, weight)
    product = wide(x) * wide(weight)
    around = (0, len(shape) - 1)
    np.testing.assert_array_equal(most, product.max(around))
    count = product.dtype.type(shape[0] * shape[-1])
    same(y, product - product.sum(around, keepdims=True) / count, element)


def test_one_value_may_be_written_to_any_array_of_one_element(run, ours, backend):
    x = integers("f32", (4, 5), 14)
    middle, y = backend.array(np.zeros((1, 1), np.float32)), backend.array(x)
    ours.center_all(backend.array(x), out=(middle, y))
    np.testing.assert_array_equal(backend.numpy(middle).reshape(()), run("center_all", x)[0])


@pytest.mark.parametrize("storage", [np.int8, np.uint8])
@pytest.mark.parametrize("length", [1, 7, 300, 70000])
def test_sums_and_indices_of_codes(run, storage, length):
    q = np.random.default_rng(15).integers(0, 256, (3, length)).astype(np.uint8).view(storage)
    q[0] = q.dtype.type(127)
    total, index, low, y = run("codes_of_rows", q, 0.25)
    assert (total.dtype, index.dtype, low.dtype) == (np.int64, np.int64, np.int32)
    np.testing.assert_array_equal(total, q.sum(-1, dtype=np.int64))
    np.testing.assert_array_equal(index, q.argmax(-1))
    np.testing.assert_array_equal(low, q.argmin(-1))
    np.testing.assert_array_equal(y, np.float32(0.25) * total.astype(np.float32) / np.float32(length))


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize(("shape", "axis", "group_size"), [((2, 21), -1, 8), ((7, 3), 0, 3), ((2, 9, 3), 1, 100)])
def test_an_index_is_counted_from_its_group_s_start(run, element, shape, axis, group_size):
    x = integers(element, shape, 16)
    index, length = run("group_indices", x, group_size=group_size, axis=axis)
    lines, index, length = (np.moveaxis(each, axis, -1) for each in (x, index, length))
    for group in range(index.shape[-1]):
        part = wide(lines[..., group * group_size : (group + 1) * group_size])
        np.testing.assert_array_equal(index[..., group], part.argmax(-1))
        assert (wide(length[..., group]) == part.shape[-1]).all()


@pytest.mark.parametrize("element", FLOATS)
def test_an_index_may_be_used_for_each_element(run, element):
    x = integers(element, (6, 33), 17)
    at, y = run("one_hot", x)
    np.testing.assert_array_equal(at, wide(x).argmax(-1))
    same(y, np.where(x == x.max(-1, keepdims=True), at[:, None], -1).astype(wide(x).dtype), element)


def test_a_product_and_a_parameter_of_the_row(run):
    x, gain = integers("f32", (9, 6), 8, most=3), integers("f32", (9,), 9)
    same(run("product_of_row", x, gain), gain * x.prod(-1), "f32")
    same(run("product_of_row", x[:, :0].copy(), gain), gain, "f32")


@pytest.mark.turns(2)
@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 64), (9, 1000), (2, 70001)])
def test_squared_deviations(run, element, shape):
    """Far from 0 and near it, of equal elements exactly 0."""
    x = integers(element, shape, 23)
    x[0] = x[0, 0]
    spread, y = run("spread", x)
    exact = wide(x).astype(np.float64)
    exact = ((exact - exact.mean(-1, keepdims=True)) ** 2).sum(-1)
    bound = 1e-5 if spread.dtype == np.float32 else 1e-13
    np.testing.assert_allclose(spread, exact, rtol=bound)
    assert spread[0] == 0
    np.testing.assert_allclose(y, (4 * exact)[:, None] - exact[:, None] * wide(x), rtol=8 * bound, atol=bound)


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize(("shape", "axis", "group_size"), [((2, 21), -1, 8), ((7, 3), 0, 3), ((2, 9, 3), 1, 100)])
def test_squared_deviations_of_groups(run, element, shape, axis, group_size):
    x = integers(element, shape, 24)
    found = run("spread_of_groups", x, group_size=group_size, axis=axis)
    lines, found = (np.moveaxis(each, axis, -1) for each in (x, found))
    for group in range(found.shape[-1]):
        part = wide(lines[..., group * group_size : (group + 1) * group_size]).astype(np.float64)
        np.testing.assert_allclose(found[..., group], part.var(-1) * part.shape[-1], rtol=1e-5, atol=1e-12)


def test_out_may_be_the_input(run, ours, backend):
    x = integers("f32", (5, 33), 10)
    expected = run("center", x)
    target = backend.array(x)
    ours.center(target, out=target)
    np.testing.assert_array_equal(backend.numpy(target), expected)


@pytest.mark.parametrize("name", ["rows", "place", "chunk", "lane", "count", "length", "reduced", "over", "scratch"])
def test_an_operand_may_have_any_name_that_is_not_reserved(tmp_path, name):
    """What the reference calls its own things is reserved; in programs, operands are members of structs."""
    spec = f"""\
ops:
  named:
    inputs: {{x: 'T[*n, d]', {name}: 'T[*n]', other: 'T[d]'}}
    outputs: {{y: 'T[*n, d] = x * other + {name} * sum(x, over=d)'}}
"""
    (tmp_path / "ops.yaml").write_text(spec, encoding="utf-8")
    generate(tmp_path / "ops.yaml", tmp_path / "out")
    compile((tmp_path / "out" / "plans" / "named.py").read_text(encoding="utf-8"), "named.py", "exec")
    text = (tmp_path / "out" / "cuda" / "named.cu").read_text(encoding="utf-8")
    entry = "row<named_program<f32>, 32, 2, true, 0>"
    assert compile_cubin(text, "named.cu", [entry], "sm_90").log == ""


@pytest.mark.parametrize("section", ["inputs: {x: 'T[*n]', row: 'T[*n]'}", "inputs: {x: 'T[*n]'}\n    attrs: {row: C}"])
def test_the_name_of_the_references_parameter_is_reserved(section):
    with pytest.raises(SpecError, match="name `row` is a reserved word"):
        loads(f"ops:\n  named:\n    {section}\n    outputs: {{y: 'T[*n] = x * row'}}\n")


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("shape", [(7,), (3, 64), (2, 3, 9), (2, 0, 5), (2, 5, 0)])
def test_a_gradient_has_a_dimension_that_its_inputs_lack(run, element, shape):
    """The gradient of a sum alone: the call says how long a row is."""
    gradient = integers(element, shape[:-1], 18)
    with np.errstate(all="ignore"):
        share = wide(gradient) / wide(gradient).dtype.type(np.prod(shape))
    same(run("row_total_backward", gradient, shape=shape), np.broadcast_to(share[..., None], shape), element)
    for kept in range(len(shape)):
        gradient = integers(element, shape[:kept], 19)
        spread = gradient.reshape(shape[:kept] + (1,) * (len(shape) - kept))
        same(run("plane_total_backward", gradient, shape=shape), np.broadcast_to(spread, shape), element)


@pytest.mark.parametrize(("shape", "axis", "group_size"), [((2, 21), -1, 8), ((7, 3), 0, 3), ((2, 9, 3), 1, 100)])
def test_a_gradient_is_that_of_its_group(run, shape, axis, group_size):
    groups = list(shape)
    groups[axis] = -(-shape[axis] // group_size)
    gradient = integers("f32", groups, 20)
    expected = np.take(gradient, np.arange(shape[axis]) // group_size, axis=axis)
    same(run("group_totals_backward", gradient, shape=shape, group_size=group_size, axis=axis), expected, "f32")


def test_a_shape_that_the_gradient_does_not_fit(run):
    gradient = np.ones((3,), np.float32)
    with pytest.raises(InvalidProblem, match=re.escape("y has shape (3,), expected (n,) = (4,)")):
        run("row_total_backward", gradient, shape=(4, 5))
    with pytest.raises(InvalidProblem, match=re.escape("d_x has shape (), expected (*n, d)")):
        run("row_total_backward", gradient, shape=())
    with pytest.raises(InvalidProblem, match="d_x has shape .* with 1 axes of .n"):
        run("plane_total_backward", gradient, shape=())


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("shape", [(7,), (3, 64), (2, 3, 9), (2, 0, 5), (2, 5, 0)])
def test_a_map_may_count(run, element, shape):
    """Behind an attribute: both are numbers that kernels take."""
    x = integers(element, shape, 21)
    same(run("shares", x, gain=5.0), wide(x) * 5 / wide(x).dtype.type(shape[-1] or 1), element)


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("p", [-1.0, 0.0, 0.3, 1.0, np.nan])
def test_random_numbers_beside_a_reduction(run, element, p):
    x, seed, offset = integers(element, (5, 333), 27), np.array(3), np.array(1 << 40)
    drawn = random.random_uniform(seed, offset, np.arange(x.size).reshape(x.shape), wide(x).dtype.type)
    expected = np.where(drawn >= p, wide(x) - wide(x).max(-1, keepdims=True), 1)
    same(run("dropped", x, seed, offset, p=p), expected, element)


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("shape", [(1, 1), (7,), (3, 64), (2, 3, 900)])
def test_passes_that_are_repeated(run, element, shape):
    """Of two values, which have the names of what kernels repeat passes by. Sums are exact, so the quotient is rounded
    once."""
    x = integers(element, shape, 22)
    distances = wide(x) - wide(x).max(-1, keepdims=True)
    low, y = run("sought_twice", x)
    same(low, _threshold(distances), "f64" if element == "f64" else "f32")
    same(y, np.maximum(distances / 2 - _threshold(distances / 2)[..., None], 0), element)


def _threshold(rows: np.ndarray) -> np.ndarray:
    """By sorting."""
    ordered = -np.sort(-rows, axis=-1)
    sums, counts = np.cumsum(ordered, axis=-1), np.arange(1, rows.shape[-1] + 1)
    above = (1 + counts * ordered > sums).sum(axis=-1)
    return (np.take_along_axis(sums, above[..., None] - 1, -1)[..., 0] - 1) / above.astype(rows.dtype)


@pytest.mark.turns(8)
@pytest.mark.parametrize("source", re.findall(r"^  (\w+):$", SPEC, re.MULTILINE))
def test_every_kernel_compiles(ours, source):
    """One schedule of each way in which rows may lie, kept and read again."""
    catalog = registry._CATALOGS[ours.__name__]
    entries = []
    for operation in catalog.operations:
        if operation.source != f"{source}.cu":
            continue
        types = next(operation.kernel_combinations())
        variants = table.variants(operation, types)
        if operation.analysis.stages:
            continue
        if operation.analysis.split:
            variants = split_variants(operation, types)
        elif operation.analysis.over:
            ways = ((RowMode.WHOLE, True, 32), (RowMode.UNIT, True, 256), (RowMode.STEPPED, False, 1024))
            variants = [next(v for v in variants if (v.mode, v.keep, v.threads) == way) for way in ways]
        entries += dict.fromkeys(e for variant in variants for e in table.entries(operation, types, variant))
    assert entries
    assert compile_quickly(catalog.source(f"{source}.cu"), f"{source}.cu", entries, "sm_90").log == ""
