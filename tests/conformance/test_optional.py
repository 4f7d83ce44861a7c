"""Optional inputs: what is left out is its number, by kernels that read no such operand."""

from __future__ import annotations

import numpy as np
import pytest

import skuda
from oracles import affine_array, learned, rows
from oracles.floats import FORMATS, compute_format
from skuda.errors import InvalidProblem, NotAnArray
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.operation import AS, Operation, packed_shape
from skuda.model.sku import Direction

from .support import ELEMENTS, RANGE, assert_codes, assert_floats, bits_of, floats, pattern, stored_codes
from .test_rows import EPS, all_rows, assert_admitted, eps_of, other_row, random_row

CATALOG = registry.catalogs()[0]
OPTIONAL = {
    plan.operation.function: plan.operation
    for name in CATALOG.modules
    for plan in CATALOG.plans(name)
    if plan.operation.optional
}
CHOICES = {
    plan.operation.name: plan.operation.choice.name
    for name in CATALOG.modules
    for plan in CATALOG.plans(name)
    if plan.operation.choice
}


def and_later(operation: Operation, first: str) -> list[str]:
    """An optional input and those after it."""
    names = [*operation.numbers]
    return names[names.index(first) :]


def problem(operation: Operation, types) -> tuple[dict[str, np.ndarray], dict]:
    """Arrays of the inputs by name, with unusual values among those that are not optional, and keywords."""
    rng = np.random.default_rng(1)
    several = sum(not dim.many for dim in operation.dims) > 2  # of 24 each, an array would have 250,000 elements
    sizes = {dim.name: (3, 6) if dim.many else 4 if several else 24 for dim in operation.dims}
    if operation.axis is None and sum(dim.many for dim in operation.space) == 2:
        sizes[operation.space[-1].name] = (24,)
    options = {}
    for attribute in operation.attributes:
        if attribute.type == "size":
            options[attribute.name] = sizes[attribute.name] = 8
        elif attribute.type == "axis":
            options[attribute.name] = 2 if operation.space[0].many else 0
    if operation.shaped is not None and not operation.creates:
        options["shape"] = operation.shape_of(operation.shaped, sizes)
    for letter, keyword in operation.asked.items():
        options[keyword] = types[letter]
    arrays = {}
    for operand in operation.inputs:
        word = operation.word(operand, types)
        storage, shape = DTYPES[word].storage, packed_shape(operation.shape_of(operand, sizes), word)
        if operation.may_be_bytes(operand.element):
            options["input_dtype"] = word
        if operand.name in operation.numbers:
            number = operation.numbers[operand.name]
            # A floating sum with -0 leaves its other operand as it is; one with 0 makes +0 of -0.
            number = -0.0 if number == 0 and DTYPES[word].kind == "float" else number
            arrays[operand.name] = np.full(shape, number).astype(storage)
        elif DTYPES[word].kind != "float":
            arrays[operand.name] = rng.integers(0, 100, shape).astype(storage)
        elif operand.name == "scale":
            arrays[operand.name] = np.asarray(rng.uniform(0.1, 2, shape)).astype(storage)
        else:
            values = np.asarray(rng.normal(0, 3, shape)).astype(storage)
            if values.ndim:
                values.reshape(-1)[3:9] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0]  # of one row
            arrays[operand.name] = values
    return arrays, options


def outputs_of(results) -> tuple:
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.turns(2)
@pytest.mark.parametrize("function", OPTIONAL)
def test_what_is_left_out_is_its_number(backend, function):
    """To the bit, at each choice of types, forward and backward; without a gradient of what is not there."""
    operation = OPTIONAL[function]
    assert operation.forms
    row, _, word = operation.name.partition(AS)
    call = getattr(skuda, function.replace(operation.name, row, 1))
    selected = {CHOICES[row]: word} if word else {}  # what a call says to run this form of its row
    for types in operation.combinations:
        arrays, options = problem(operation, types)
        options |= selected
        options |= {"shape": (6,), "like": backend.array(np.zeros(1))} if operation.creates else {}
        given = {name: backend.array(array) for name, array in arrays.items()}
        whole = dict(zip(operation.outputs, outputs_of(call(**given, **options)), strict=True))
        for first, _ in operation.forms:
            left_out = and_later(operation, first)
            gradients = {f"d_{name}" for name in left_out}
            kept = [result for operand, result in whole.items() if operand.name not in gradients]
            assert len(whole) - len(kept) == len(gradients & {o.name for o in operation.outputs})
            some = {name: array for name, array in given.items() if name not in left_out}
            said = {} if first in given else {"without": first}
            found = outputs_of(call(**some, **options, **said))
            for expected, actual in zip(map(backend.numpy, kept), map(backend.numpy, found), strict=True):
                assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
                assert actual.tobytes() == expected.tobytes(), (function, types, first)


def test_what_is_absent_is_not_added(backend):
    """So -0 stays -0 without a bias, and a bias of 0 makes it 0."""
    x = backend.array(np.array([[-0.0, 1, -1, 0]], np.float32))
    ones, zeros = backend.array(np.ones(4, np.float32)), backend.array(np.zeros(4, np.float32))
    assert np.signbit(backend.numpy(skuda.layer_norm(x, ones))).tolist() == [[True, False, True, False]]
    assert np.signbit(backend.numpy(skuda.layer_norm(x, ones, zeros))).tolist() == [[False, False, True, False]]


@pytest.mark.parametrize("word", RANGE)
@pytest.mark.parametrize(("element", "scale_element"), ELEMENTS)
def test_codes_without_a_zero_point(backend, element, scale_element, word):
    """quantize, dequantize and fake_quantize, forward and backward, against the oracle with zero point 0."""
    row = [bits for each in all_rows(element).values() for bits in each[:64]]
    row, dy = np.array(row[: len(row) // 2 * 2], np.uint64), np.array(other_row(element, len(row) // 2 * 2), np.uint64)
    scale = np.uint64(pattern("0.37", scale_element))
    kinds = {"element": element, "scale_element": scale_element}
    low, high = RANGE[word]
    x, gradient = (backend.array(floats(each, element)) for each in (row, dy))
    step = backend.array(floats(np.array(scale), scale_element))
    codes = affine_array.quantize(row, scale, 0, low, high, **kinds)
    assert_codes(backend.numpy(skuda.quantize_per_tensor(x, step, dtype=word)), codes, word)
    options = {"input_dtype": word} if word in ("s4", "u4") else {}
    if element == scale_element:  # the output's type is the scale's
        stored = backend.array(stored_codes(codes, word))
        values = backend.numpy(skuda.dequantize_per_tensor(stored, step, **options))
        assert_floats(values, affine_array.dequantize(codes, scale, 0, **kinds), element)
    values = backend.numpy(skuda.fake_quantize_per_tensor(x, step, dtype=word))
    assert_floats(values, affine_array.fake_quantize(row, scale, 0, low, high, **kinds), element)
    for name in ("quantize", "fake_quantize"):
        expected = getattr(affine_array, f"{name}_backward")(dy, row, scale, 0, low, high, **kinds)
        actual = getattr(skuda, f"{name}_per_tensor_backward")(gradient, x, step, dtype=word)
        assert_floats(backend.numpy(actual), expected, element)


@pytest.mark.parametrize("element", FORMATS)
def test_a_learned_scale_without_a_zero_point(backend, element):
    wide = compute_format(element).word
    for number, row in enumerate(all_rows(element).values()):
        word = [*RANGE][number % 4]
        low, high = RANGE[word]
        dy, scale, one = other_row(element, len(row)), pattern("0.37", wide), pattern(1, wide)
        x, gradient = (backend.array(floats(each, element)) for each in (row, dy))
        step = backend.array(floats(scale, wide))
        actual = backend.numpy(skuda.learnable_fake_quantize_per_tensor(x, step, dtype=word))
        expected = [learned.fake_quantize(each, scale, 0, low, high, element=element) for each in row]
        assert_floats(actual, expected, element)
        results = skuda.learnable_fake_quantize_per_tensor_backward(gradient, x, step, dtype=word)
        d_input, d_scale = map(backend.numpy, results)
        bits, span, _ = learned.fake_quantize_backward(dy, row, scale, 0, low, high, one, element=element)
        assert_floats(d_input, bits, element)
        assert_admitted(d_scale, [span], wide, f"{element} {word}")


def neutral(name: str, element: str, length: int) -> list[list[int]]:
    """Weights of 1, and biases of -0, to which nothing is added."""
    ones = [pattern(1, element)] * length
    return [ones, [FORMATS[element].sign] * length] if name.startswith("layer_norm") else [ones]


@pytest.mark.turns(2)
@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "add_rms_norm"])
def test_norms_without_weights(backend, name, element):
    for what, row in all_rows(element).items():
        given = [row, other_row(element, len(row))] if name == "add_rms_norm" else [row]
        arrays = [backend.array(floats(each, element)) for each in given]
        *sums, actual = map(backend.numpy, outputs_of(getattr(skuda, name)(*arrays)))
        wanted = range(0, len(row), 7)
        parameters = neutral(name, element, len(row))
        expected = getattr(rows, name)(*given, *parameters, eps_of(name, element), element=element, wanted=wanted)
        if sums:
            assert_floats(sums[0], expected[0], element)
            expected = expected[1]
        assert_admitted(actual[::7], expected, element, f"{name} {element} {what}")


@pytest.mark.turns(2)
@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "add_rms_norm"])
def test_gradients_of_norms_without_weights(backend, name, element):
    eps = pattern(EPS[name], compute_format(element).word)
    for count, length in ((3, 9), (1, 64), (2, 131)):
        d_total, dy, x = ([random_row(element, length, s + i) for i in range(count)] for s in (10, 30, 60))
        ones = [pattern(1, element)] * length
        given = (d_total, dy, ones, x) if name == "add_rms_norm" else (dy, x, ones)
        expected, *_ = getattr(rows, f"{name}_backward")(*given, eps, element=element)
        arrays = [None if each is ones else backend.array(floats(each, element)) for each in given]
        d_input = backend.numpy(getattr(skuda, f"{name}_backward")(*arrays))
        assert_admitted(d_input.reshape(-1), sum(expected, []), element, f"{name} {element}")


@pytest.mark.turns(2)
@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "add_rms_norm"])
def test_norms_without_weights_and_codes_in_one_pass(backend, name, element):
    name, wide = f"{name}_dynamic_quantize", compute_format(element).word
    for length in (1, 9, 64, 513):
        row = random_row(element, length, 2)
        given = [row, other_row(element, length)] if name.startswith("add_") else [row]
        arrays = [backend.array(floats(each, element)) for each in given]
        *sums, scale, codes = map(backend.numpy, getattr(skuda, name)(*arrays))
        parameters, stored = neutral(name, element, length), int(bits_of(scale, wide))
        oracle = getattr(rows, name)
        *_, expected, admitted = oracle(*given, *parameters, eps_of(name, element), -128, 127, stored, element=element)
        assert_admitted(scale, [expected], wide, f"{name} {element}")
        assert all(low <= code <= high for code, (low, high) in zip(codes.tolist(), admitted, strict=True))


def test_without_a_weight_the_last_axis_is_normalized(backend):
    x = backend.array(np.random.default_rng(2).normal(size=(4, 5, 6)).astype(np.float32))
    pairs = [("rms_norm", "rms_normalize"), ("layer_norm", "standardize")]
    for name, other in pairs:
        expected = backend.numpy(getattr(skuda, other)(x))
        np.testing.assert_array_equal(backend.numpy(getattr(skuda, name)(x)), expected)
    total, output = map(backend.numpy, skuda.add_rms_norm(x, x))
    np.testing.assert_array_equal(output, backend.numpy(skuda.rms_normalize(backend.array(total))))


@pytest.mark.parametrize("direction", Direction)
def test_rows_for_absence_alone_are_the_forms(direction):
    """They have one kernel, so that they cannot differ."""
    for name, other in (("rms_norm", "rms_normalize"), ("layer_norm", "standardize")):
        plans = [plan for plan in CATALOG.plans(name) if plan.operation.direction is direction]
        plan = next(plan for plan in plans if plan.operation.optional)
        assert plan.without("weight").operation.name == other
        assert plan.without("weight").operation.direction is direction


def test_a_number_in_the_place_of_an_array(backend):
    """The number that an input is when it is left out stands for its absence; no other number stands for an array."""
    x = backend.array(np.linspace(-3, 3, 24, dtype=np.float32).reshape(4, 6))
    scale = backend.array(np.full(4, 0.1, np.float32))
    expected = backend.numpy(skuda.quantize_per_token(x, scale))
    for zero in (0, np.int64(0)):
        np.testing.assert_array_equal(backend.numpy(skuda.quantize_per_token(x, scale, zero)), expected)
    for wrong in (1, 0.0, False, "0"):
        with pytest.raises(NotAnArray, match="QuantizePerTokenPlan: zero_point "):
            skuda.quantize_per_token(x, scale, wrong)
    np.testing.assert_array_equal(backend.numpy(skuda.layer_norm(x, 1.0, 0)), backend.numpy(skuda.standardize(x)))


def test_what_is_behind_must_be_left_out_too(backend):
    x = backend.array(np.ones((4, 6), np.float32))
    ones = backend.array(np.ones(6, np.float32))
    with pytest.raises(InvalidProblem, match="LayerNormPlan: bias is given, but weight is not: what comes after"):
        skuda.layer_norm(x, None, ones)
    with pytest.raises(InvalidProblem, match="LayerNormBackwardPlan: without is 'weight', but weight is given"):
        skuda.layer_norm_backward(x, x, ones, without="weight")
    for wrong in ("axis", "input", ""):
        with pytest.raises(InvalidProblem, match=f"without {wrong!r}, expected an optional input .weight, bias."):
            skuda.layer_norm_backward(x, x, ones, without=wrong)
    for wrong in (1, ["bias"], ("bias",)):
        with pytest.raises(InvalidProblem, match="without is .*, expected 'weight', 'bias' or None"):
            skuda.layer_norm_backward(x, x, ones, without=wrong)


def test_what_stands_behind_by_position_or_by_name(backend):
    """The gradient of add_rms_norm takes the total after the weight."""
    x = backend.array(np.random.default_rng(5).normal(size=(4, 6)).astype(np.float32))
    expected = backend.numpy(skuda.add_rms_norm_backward(x, x, None, x))
    np.testing.assert_array_equal(backend.numpy(skuda.add_rms_norm_backward(x, x, total=x)), expected)
    for given in ((x, x), (x, x, backend.array(np.ones(6, np.float32)))):
        with pytest.raises(NotAnArray, match="total"):
            skuda.add_rms_norm_backward(*given)


def test_an_array_to_write(backend):
    x = backend.array(np.linspace(-3, 3, 24, dtype=np.float32).reshape(4, 6))
    scale, out = backend.array(np.full(4, 0.1, np.float32)), backend.array(np.zeros((4, 6), np.int8))
    assert skuda.quantize_per_token(x, scale, out=out) is out
    np.testing.assert_array_equal(backend.numpy(out), backend.numpy(skuda.quantize_per_token(x, scale)))
