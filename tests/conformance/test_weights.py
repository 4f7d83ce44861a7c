"""Norms with weights of another type than their input: f32 beside f16 and bf16, as in mixed-precision training."""

from __future__ import annotations

import numpy as np
import pytest

import skuda
from oracles import rows
from oracles.floats import compute_format
from skuda.errors import Unsupported

from .support import RANGE, STORAGE, assert_floats, bits_of, floats, pattern
from .test_rows import EPS, all_rows, assert_admitted, eps_of, other_row, random_row

MIXED = [("f16", "f32"), ("bf16", "f32"), ("f64", "f32")]  # input, weight
LENGTHS = (1, 7, 64, 65, 513, 1000)


def weights_of(element: str, length: int, seed: int) -> list[int]:
    """Values that no half type holds."""
    values = np.random.default_rng([seed, length]).normal(1, 0.3, length).astype(STORAGE[element])
    return bits_of(values, element).tolist()


def operands(name: str, element: str, weight_element: str, row: list[int]) -> tuple[list, list]:
    """The bit patterns that an operation takes, and the element of each."""
    given, elements = [row], [element]
    if name.startswith("add_"):
        given.append(other_row(element, len(row)))
        elements.append(element)
    for seed in (4, 5) if name.startswith("layer_norm") else (4,):
        given.append(weights_of(weight_element, len(row), seed))
        elements.append(weight_element)
    return given, elements


@pytest.mark.parametrize(("element", "weight_element"), MIXED)
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "add_rms_norm"])
def test_the_norm(backend, name, element, weight_element):
    chosen = {what: row for what, row in all_rows(element).items() if len(row) in (*LENGTHS, 20)}
    for what, row in chosen.items():
        given, elements = operands(name, element, weight_element, row)
        arrays = [backend.array(floats(each, of)) for each, of in zip(given, elements, strict=True)]
        results = getattr(skuda, name)(*arrays)
        *sums, actual = map(backend.numpy, results if isinstance(results, tuple) else (results,))
        kinds = {"element": element, "weight_element": weight_element, "wanted": range(0, len(row), 7)}
        expected = getattr(rows, name)(*given, eps_of(name, element), **kinds)
        if sums:
            assert_floats(sums[0], expected[0], element)
            expected = expected[1]
        assert_admitted(actual[::7], expected, element, f"{name} {element} {what}")


@pytest.mark.parametrize(("element", "weight_element"), MIXED)
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "add_rms_norm"])
def test_the_gradients(backend, name, element, weight_element):
    """Those of weight and bias are of the weight's type."""
    eps = pattern(EPS[name], compute_format(element).word)
    kinds = {"element": element, "weight_element": weight_element}
    for count, length in ((3, 9), (1, 64), (9, 5), (2, 131)):
        d_total, dy, x = ([random_row(element, length, s + i) for i in range(count)] for s in (10, 30, 60))
        weight = weights_of(weight_element, length, 7)
        given = (d_total, dy, weight, x) if name == "add_rms_norm" else (dy, x, weight)
        expected = getattr(rows, f"{name}_backward")(*given, eps, **kinds)
        arrays = [backend.array(floats(each, weight_element if each is weight else element)) for each in given]
        d_input, *of_parameters = map(backend.numpy, getattr(skuda, f"{name}_backward")(*arrays))
        assert_admitted(d_input.reshape(-1), sum(expected[0], []), element, f"d_input {element}")
        for actual, spans in zip(of_parameters, expected[1:], strict=True):
            assert_admitted(actual, spans, weight_element, f"{name} {element} of a parameter")


@pytest.mark.turns(2)
@pytest.mark.parametrize("word", ["s8", "s4"])
@pytest.mark.parametrize(("element", "weight_element"), MIXED)
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "add_rms_norm"])
def test_the_norm_and_codes_in_one_pass(backend, name, element, weight_element, word):
    name = f"{name}_dynamic_quantize"
    wide = compute_format(element).word
    for length in (2, 64, 130, 514):
        row = random_row(element, length, 2)
        given, elements = operands(name, element, weight_element, row)
        arrays = [backend.array(floats(each, of)) for each, of in zip(given, elements, strict=True)]
        *sums, scale, codes = map(backend.numpy, getattr(skuda, name)(*arrays, dtype=word))
        if word == "s4":
            codes = np.stack([codes & 15, codes >> 4], axis=-1).astype(np.int64).reshape(-1)
            codes = np.where(codes > 7, codes - 16, codes)
        stored = int(bits_of(scale, wide))
        kinds = {"element": element, "weight_element": weight_element}
        *stored_sums, expected, admitted = getattr(rows, name)(
            *given, eps_of(name, element), *RANGE[word], stored, **kinds
        )
        for mine, other in zip(sums, stored_sums, strict=True):
            assert_floats(mine, other, element)
        assert_admitted(scale, [expected], wide, f"{name} {element}")
        assert all(low <= code <= high for code, (low, high) in zip(codes.tolist(), admitted, strict=True))


@pytest.mark.parametrize("shape", [(3, 41), (5, 4096), (2, 9000), (2, 33000)])
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "rms_norm_dynamic_quantize"])
def test_where_arrays_start_changes_no_bit(backend, name, shape):
    """Odd widths, and weights that start at any element, beside inputs of half their width."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=shape).astype(np.float16)
    weights = [rng.normal(size=shape[-1]).astype(np.float32) for _ in range(2 if name == "layer_norm" else 1)]

    def shifted(array: np.ndarray, by: int):
        memory = backend.array(np.concatenate([np.zeros(by, array.dtype), array.reshape(-1)]))
        return memory[by:].reshape(array.shape)

    def results(*starts: int) -> list[bytes]:
        found = getattr(skuda, name)(*(shifted(each, by) for each, by in zip((x, *weights), starts)))
        return [backend.numpy(each).tobytes() for each in (found if isinstance(found, tuple) else (found,))]

    expected = results(0, 0, 0)
    for starts in ((1, 0, 0), (0, 1, 3), (3, 2, 1), (4, 4, 4)):
        assert results(*starts) == expected


def test_what_weights_may_be(backend):
    def array(dtype):
        return backend.array(np.ones(8, dtype))

    x = backend.array(np.ones((2, 8), np.float16))
    assert backend.numpy(skuda.rms_norm(x, array(np.float16))).dtype == np.float16
    with pytest.raises(Unsupported, match=r"weight is f64, expected f16 or f32 \(input is f16\)"):
        skuda.rms_norm(x, array(np.float64))
    with pytest.raises(Unsupported, match=r"weight is f16, expected f32 \(input is f32\)"):
        skuda.rms_norm(backend.array(np.ones((2, 8), np.float32)), array(np.float16))
    with pytest.raises(Unsupported, match=r"bias is f16, expected f32 \(input is f16, weight is f32\)"):
        skuda.layer_norm(x, array(np.float32), array(np.float16))
