"""What holds of every operation that reduces, whichever the catalog has: views, axes, nothing to reduce.

Rows of zeros, NaN, infinities, cancelling, wide and large elements: test_every_operation.py.
"""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from frameworks.drawn_calls import draw

import skuda
from oracles import binding, rows, spans
from oracles.floats import FORMATS, compute_format, integer
from skuda.errors import InvalidProblem
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.operation import REDUCTIONS
from skuda.model.sku import BackendKind

from . import test_rows, test_stages
from .support import assert_codes, assert_floats, bits_of, floats, pattern, plain_input, plain_type
from .test_every_operation import reduction_of
from .test_rows import assert_admitted, eps_of, lines_over, other_row, parameter, unusual_rows

CATALOG = registry.catalogs()[0]
PLANS = {
    plan.operation.function: plan
    for name in CATALOG.modules
    for plan in CATALOG.plans(name)
    if plan.operation.reduces and plan.operation.name in CATALOG.modules
}
AXES = [name for name, plan in PLANS.items() if plan.operation.chooses_axes]

CHOICES = {name: plan.operation.choice for name, plan in PLANS.items() if not name.endswith("_backward")}
REDUCED = [name for name, choice in CHOICES.items() if choice is not None and choice.words == REDUCTIONS]
REFUSED = {"amax": "largest", "amin": "smallest", "argmax": "largest", "argmin": "smallest"}
# Of quantizations, by output: what a row of zeros gives. Observers leave their states as they are.
OF_ZEROS = {"scale": 1, "zero_point": -128}



def of_nothing(operation, empty, inputs):
    """What the oracle gives in f32 where a dimension is empty: of a reduced loss, what its elements come to."""
    asked = binding.find(operation.function)
    numbers = {a.name: pattern(a.default, "f32") for a in operation.attributes if a.type == "C"}
    numbers |= {a.name: a.default for a in operation.attributes if a.type != "C" and a.name in asked.parameters}
    word = "f32" if plain_type(operation) is np.float32 else "i64"
    types = {letter: word for letter in operation.types if letter in asked.parameters}

    def element(index: int):
        own = {
            o.name: [] if empty in o.dims else (bits_of(x, "f32") if x.dtype == np.float32 else x).reshape(-1)[index]
            for o, x in zip(operation.inputs, inputs, strict=True)
        }
        own = {name: each if isinstance(each, list) else int(each) for name, each in own.items()}
        return asked.function(**own, **numbers, **types)

    how, elements = reduction_of(operation)
    if how not in ("mean", "sum"):
        return element(0)
    count = prod(0 if name == empty.name else 3 for name, _ in elements)
    total = spans.total([element(index) for index in range(count)], compute_format("f32"))
    return total if how == "sum" else spans.divide(total, spans.point(integer(count, FORMATS["f32"])), FORMATS["f32"])


def select(plan_class, backend, extents):
    """A plan of f32, the extents of each dimension being what a function says of it."""
    operation = plan_class.operation
    words = {"f32", "s8", "e4m3"} if plain_type(operation) is np.float32 else {"f32", "i64"}
    if any(o.element in operation.types and not operation.is_float(o.element) for o in operation.inputs):
        words |= {"i64"}  # labels
    types = next(each for each in operation.combinations if set(each.values()) <= words)
    fields = {field: types[letter] for letter, field in operation.element_fields.items()}
    fields |= {dim.name: extents(dim) for dim in operation.dims}
    fields |= {attribute.name: 3 for attribute in operation.attributes if attribute.type == "size"}
    preference = BackendKind.REFERENCE if backend.name == "reference" else BackendKind.CUDA
    return plan_class.select(plan_class.descriptor_type(**fields), preference=preference)


def inputs_of(plan) -> list[np.ndarray]:
    """Ordinary values."""
    rng = np.random.default_rng(7)
    return [
        plain_input(
            plan.operation, operand, rng.uniform(0.1, 1, shape) if operand.name == "scale" else rng.normal(0, 2, shape)
        )
        for operand, shape in zip(plan.operation.inputs, plan.shapes)
    ]


def assert_same(got, expected, what: str) -> None:
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes(), what


# How an array may lie: from a NumPy array and a backend.
LAYOUTS = {
    "every other": lambda on, x: on.array(np.repeat(x, 2, -1))[..., ::2],
    "backwards": lambda on, x: on.array(x[..., ::-1])[..., ::-1],
    "first axis innermost": lambda on, x: on.array(x.T).T,
    "padded": lambda on, x: on.array(np.pad(x, 2))[(slice(2, -2),) * x.ndim],
}


@pytest.mark.parametrize("name", PLANS)
def test_however_arrays_lie(backend, name):
    plan = select(PLANS[name], backend, lambda dim: (3, 4) if dim.many else 7)
    inputs = inputs_of(plan)

    def outputs(laid_out):
        given = [laid_out(each) for each in inputs]
        made = [laid_out(np.zeros(shape, storage)) for shape, storage in plan.made]
        plan.execute((*given, *made))
        return [backend.numpy(each) for each in made]

    expected = outputs(backend.array)
    for what, layout in LAYOUTS.items():
        placed = outputs(lambda x, layout=layout: layout(backend, x) if x.ndim else backend.array(x))
        assert_same(placed, expected, f"{name}, {what}")


@pytest.mark.parametrize("name", PLANS)
def test_a_reduction_of_nothing(backend, name):
    """Each dimension is empty in turn: outputs that do not have it are what nothing gives, or the call is refused."""
    operation = PLANS[name].operation
    stages = [stage.operation for stage in (PLANS[name].stages or (PLANS[name],))]
    of_extremes = {dim for each in stages if each.analysis.of_some for dim in each.along}
    for empty in operation.dims:
        lacking = [o.name for o in operation.outputs if empty.name not in {dim.name for dim in o.dims}]
        try:
            plan = select(
                PLANS[name],
                backend,
                lambda dim, empty=empty: ((0,) if dim.many else 0) if dim is empty else ((3,) if dim.many else 3),
            )
        except InvalidProblem as error:
            assert f"there is no {operation.analysis.of_some} of no elements" in str(error)
            assert lacking and empty.name in of_extremes
            continue
        assert not lacking or empty.name not in of_extremes
        made = [backend.array(np.full(shape, 7, storage)) for shape, storage in plan.made]
        given = inputs_of(plan)
        plan.execute((*map(backend.array, given), *made))
        states = dict(zip((operand.name for operand in operation.inputs), given, strict=True))
        for operand, output in zip(operation.outputs, map(backend.numpy, made), strict=True):
            if operand.name in lacking:
                if operand.name.startswith("new_"):
                    state = states[operand.name.removeprefix("new_")]
                    np.testing.assert_array_equal(output, np.fmax(state, 0) if "absmax" in name else state)
                    continue
                if operand.name in OF_ZEROS:
                    np.testing.assert_array_equal(output, np.full(output.shape, OF_ZEROS[operand.name], output.dtype))
                    continue
                allowed = 0 if name.endswith("_backward") else of_nothing(operation, empty, given)
                if isinstance(allowed, tuple):
                    allowed = allowed[operation.outputs.index(operand)]
                word = operation.word(operand, plan.types)
                bits = bits_of(output, word) if word in FORMATS else output
                assert all(binding.allowed(allowed, int(each), word) for each in bits.reshape(-1)), name
            else:
                assert output.size == 0


@pytest.mark.parametrize("name", REDUCED)
def test_losses_of_no_rows(backend, name):
    """Whatever rows reduce among themselves: their sum is 0, their mean NaN, and each is none."""
    plan = PLANS[name]
    for word, expected in (("none", []), ("sum", 0), ("mean", np.nan)):
        drawn = draw(plan.chosen(word), plan.operation.combinations[0], many=(0,), single=5, block=2)
        inputs = {name: backend.array(array) for name, array in drawn.inputs.items()}
        (made,) = drawn.run(inputs)
        np.testing.assert_array_equal(backend.numpy(made), expected, word)


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_value_of_nothing_says_which_axis_is_empty(backend, name):
    x = backend.array(np.zeros((2, 0, 3), np.float32))
    for axis, empty in ((1, 1), (-2, 1), ((2, 1), 1), (None, 1)):
        message = rf"^{name}: axis {empty} of input has length 0; there is no {REFUSED[name]} of no elements$"
        with pytest.raises(InvalidProblem, match=message):
            getattr(skuda, name)(x, axis=axis)
    assert getattr(skuda, name)(x, axis=0).shape == (0, 3)  # no output, so nothing is asked for


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (2, 0, 3)])
def test_quantizing_nothing_is_quantizing_zeros(backend, shape):
    x = backend.array(np.zeros(shape, np.float32))
    scale, codes = skuda.dynamic_quantize_per_tensor(x)
    assert backend.numpy(scale) == 1 and codes.shape == shape
    scale, zero_point, codes = skuda.dynamic_quantize_asymmetric_per_tensor(x)
    assert backend.numpy(scale) == 1 and backend.numpy(zero_point) == -128 and codes.shape == shape
    scale, codes = skuda.dynamic_quantize_per_token(x)
    np.testing.assert_array_equal(backend.numpy(scale), np.ones(shape[:-1]))
    scale, codes = skuda.dynamic_quantize_per_channel(x, axis=-1)
    np.testing.assert_array_equal(backend.numpy(scale), np.ones(shape[-1:]))
    scale, codes = skuda.dynamic_quantize_per_group(x, group_size=4)
    assert scale.shape == (*shape[:-1], -(-shape[-1] // 4)) and codes.shape == shape
    low, high = skuda.observe_min_max_per_tensor(x, -2.0, -np.inf)
    assert backend.numpy(low) == -2 and backend.numpy(high) == -np.inf


@pytest.mark.parametrize("axis", [0, 1, -1, None, (0, 1), (1, 2), (2, 0)])
@pytest.mark.parametrize("name", AXES)
def test_over_any_axes_it_is_what_it_is_over_the_last(backend, name, axis):
    operation = PLANS[name].operation
    full = [operand.dims == operation.space for operand in operation.operands]
    rng = np.random.default_rng(18)
    shape, lines = lines_over(np.zeros((4, 9, 5)), axis)
    given, moved = [], []
    for operand, whole in zip(operation.inputs, full):
        x = plain_input(operation, operand, rng.normal(0, 2, (4, 9, 5) if whole else shape))
        given.append(backend.array(x))
        moved.append(backend.array(lines_over(x, axis)[1] if whole else x.reshape(-1)))
    call = getattr(skuda, name)

    def found(*arrays, **options) -> list[np.ndarray]:
        results = call(*arrays, **options)
        return [backend.numpy(each) for each in (results if isinstance(results, tuple) else (results,))]

    expected, wholes = found(*moved, axis=-1), full[len(operation.inputs) :]
    for got, other, whole in zip(found(*given, axis=axis), expected, wholes, strict=True):
        assert got.shape == ((4, 9, 5) if whole else shape)
        assert_same([lines_over(got, axis)[1] if whole else got.reshape(-1)], [other], name)
    if operation.analysis.keeps:
        kept = np.empty((4, 9, 5)).sum(axis, keepdims=True).shape
        given = [each if whole else each.reshape(kept) for each, whole in zip(given, full)]
        for got, other, whole in zip(found(*given, axis=axis, keepdims=True), expected, wholes, strict=True):
            assert got.shape == ((4, 9, 5) if whole else kept)
            assert_same([lines_over(got, axis)[1] if whole else got.reshape(-1)], [other], name)


@pytest.mark.parametrize("element", ["f16", "f32", "f64"])
@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "argmin", "any", "all", "count_nonzero"])
def test_what_is_exact_is_as_numpy_has_it(backend, name, element):
    """The first of equals, NaN above everything, over any axes."""
    x = np.random.default_rng(19).integers(-2, 3, (4, 9, 5)).astype(DTYPES[element].storage)
    x[1, :, 2], x[2, 0], x[3, 1, 1], x[3, 4, 1], x[0, 0, :2], x[0, 3, 3] = 0, -0.0, np.nan, np.nan, np.inf, -np.inf
    for axis in (0, 1, 2, None, (0, 2), (1, 2)) if not name.startswith("arg") else (0, 1, 2, None):
        expected = getattr(np, name)(x, axis=axis)
        actual = backend.numpy(getattr(skuda, name)(backend.array(x), axis=axis))
        np.testing.assert_array_equal(actual, expected, f"{name} {axis}")


@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("name", test_stages.WORDS)
def test_hard_rows_are_quantized_as_channels_and_as_groups_too(backend, name, element):
    """By the scale that each has alone, along the first axis and along the last."""
    lines = [*unusual_rows(element).values()]
    lines += lines[: -len(lines) % 4]
    x = floats(lines, element)
    word, wide = test_stages.WORDS[name][0], compute_format(element).word
    expected = [test_stages.quantized(name, line, element, word, wide) for line in lines]
    channels, groups = (getattr(skuda, f"{name}_per_{each}") for each in ("channel", "group"))
    for what, results, turned in (
        ("channels 0", channels(backend.array(x), axis=0, dtype=word), False),
        ("channels 1", channels(backend.array(x.T), axis=1, dtype=word), True),
        ("groups", groups(backend.array(x.reshape(-1, 80)), group_size=20, dtype=word), False),
        ("groups 0", groups(backend.array(x.reshape(-1, 80).T), group_size=20, axis=0, dtype=word), True),
    ):
        scale, *zero_point, codes = (backend.numpy(each) for each in results)
        parts = [(each.T if turned else each).reshape(len(lines), -1) for each in (scale, *zero_point, codes)]
        assert_floats(np.ascontiguousarray(parts[0][:, 0]), [each[0] for each in expected], wide, what=what)
        if zero_point:
            assert parts[1][:, 0].tolist() == [each[1] for each in expected], what
        wanted = np.array([each[-1] for each in expected])
        if word in test_stages.FP8:
            stored = np.ascontiguousarray(parts[-1]).view(DTYPES[word].storage)
            assert_floats(stored, wanted, word, what=what)
        else:
            assert_codes(parts[-1], wanted, word, input=x)


@pytest.mark.parametrize("name", ["sum", "mean", "norm1", "norm2", "var"])
def test_many_ones_beside_a_large_element_count(backend, name):
    """In one accumulator beside 2^24 each of them would vanish."""
    large = pattern(2**12 if name in ("norm2", "var") else 2**24, "f32")
    line = [large] + [pattern(1, "f32")] * 2100
    expected = test_rows.ONE_VALUE[name](line, element="f32")
    assert not expected.exact
    for axis in (0, 1):
        x = backend.array(np.moveaxis(floats([line, line[::-1]], "f32"), 1, axis))
        assert_admitted(backend.numpy(getattr(skuda, name)(x, axis=axis)), [expected] * 2, "f32", name)


@pytest.mark.parametrize("element", FORMATS)
def test_hard_rows_of_a_sum_and_its_norm_have_a_gradient(backend, element):
    lines = [row for what, row in unusual_rows(element).items() if what != "wide exponents"]
    d_total = dy = [other_row(element, 20)] * len(lines)
    weight, eps = parameter(element, 20, 7), eps_of("add_rms_norm", element)
    expected = rows.add_rms_norm_backward(d_total, dy, weight, lines, eps, element=element)
    given = (backend.array(floats(each, element)) for each in (d_total, dy, weight, lines))
    d_input, d_weight = map(backend.numpy, skuda.add_rms_norm_backward(*given))
    assert_admitted(d_input.reshape(-1), sum(expected[0], []), element, f"d_input {element}")
    assert_admitted(d_weight, expected[1], element, f"d_weight {element}")
    assert bits_of(d_weight, element).size == 20
