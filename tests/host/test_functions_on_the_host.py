"""The CUDA spellings of functions that have the same bits everywhere, compiled for the CPU: NumPy's bits."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from function_arguments import arguments

from host.functions import Functions, compiled
from skuda.codegen.intrinsics import HALVED, INTRINSICS
from skuda.model.dtypes import DTYPES
from skuda.reference import formulas

HALVES = [(name, word) for name in sorted(HALVED) for word in ("f16", "bf16")]
COMMON = [name for name, row in INTRINSICS.items() if row.common and "r" in row.arguments]


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    return Functions(COMMON, tmp_path_factory.mktemp("functions"))


@pytest.mark.parametrize("word", ["f32", "f64"])
@pytest.mark.parametrize("name", COMMON)
def test_bits(functions, name, word):
    arrays = arguments(len(INTRINSICS[name].arguments), {"f32": np.float32, "f64": np.float64}[word], 4_000)
    with np.errstate(all="ignore"):
        expected = np.asarray(getattr(formulas, name)(*arrays))
    assert expected.dtype == arrays[0].dtype and np.isfinite(expected).mean() > 0.1
    kind = f"u{expected.itemsize}"
    expected, got = formulas.narrow(expected, word), formulas.narrow(functions(name, *arrays), word)
    wrong = np.flatnonzero(got.view(kind) != expected.view(kind))
    assert not len(wrong), [([each[i] for each in arrays], got[i], expected[i]) for i in wrong[:5]]


@pytest.mark.parametrize("name, word", HALVES)
def test_bits_of_half_precision(functions, name, word):
    """Of every number of the type, and of numbers of f32 between them."""
    every = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[word].storage).astype(np.float32)
    arrays = arguments(len(INTRINSICS[name].arguments), np.float32, 20_000)
    arrays = [np.concatenate([each, other]) for each, other in zip(arrays, (every, every[::-1]), strict=False)]
    with np.errstate(all="ignore"):
        expected = getattr(formulas, name)(*arrays, word)
    assert expected.dtype == np.float32 and np.isfinite(expected).mean() > 0.1
    expected, got = (formulas.narrow(y, "f32") for y in (expected, functions(name, *arrays, precise_as=word)))
    wrong = np.flatnonzero(got.view(np.uint32) != expected.view(np.uint32))
    assert not len(wrong), [([each[i] for each in arrays], got[i], expected[i]) for i in wrong[:5]]


# What rows compute quickly where all elements are usual: the C++, NumPy's function, up to which |x| it is quick.
ROW_FORMS = {
    "x / (1 + exp(-x))": ("logistic_product_as<{fast}, {type}>(x[i], usual)", "exp", lambda e, x: x / (1 + e(-x)), 69),
    "sigmoid(x)": ("row_logistic_as<{fast}, {type}>(x[i], usual)", "sigmoid", lambda sigmoid, x: sigmoid(x), 60),
}  # fmt: skip
ROWS = [(form, word) for form in ROW_FORMS for word in ("f16", "bf16", "f32")]


@pytest.fixture(scope="module")
def row_forms(tmp_path_factory):
    text = '#include "half_erf.cuh"\n'
    for index, (form, word) in enumerate(ROWS):
        for fast in (1, 0):
            call = ROW_FORMS[form][0].format(fast=fast, type=word)
            text += f'extern "C" void form_{index}_{fast}(const f32* x, f32* y, bool* each, long count) {{\n'
            text += f"  for (long i = 0; i < count; ++i) {{ bool usual = true; y[i] = {call}; each[i] = usual; }}\n}}\n"
    return compiled(text, tmp_path_factory.mktemp("row_forms"))


@pytest.mark.parametrize("form, word", ROWS)
def test_quick_forms_of_rows_have_the_bits_of_the_formula(row_forms, form, word):
    """Of every number of bf16 and f16, of f32 between them, of the least ones and next to where they end."""
    _, name, formula, end = ROW_FORMS[form]
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = np.concatenate([(bits.astype(np.uint32) << 16).view(np.float32), bits.view(np.float16).astype(np.float32)])
    least = np.arange(1 << 12, dtype=np.uint32).view(np.float32)
    x = np.concatenate([x, arguments(1, np.float32, 20_000)[0], least, -least, np.linspace(-90, 90, 9_999, dtype="f4")])
    with np.errstate(all="ignore"):
        expected = formulas.narrow(formula(lambda v: getattr(formulas, name)(v, word), x), "f32").view(np.uint32)
    for fast in (1, 0):
        y, usual = np.empty_like(x), np.empty(len(x), bool)
        pointers = [ctypes.c_void_p(each.ctypes.data) for each in (x, y, usual)]
        row_forms[f"form_{ROWS.index((form, word))}_{fast}"](*pointers, ctypes.c_long(len(x)))
        assert (usual == ((np.abs(x) <= end) | (not fast))).all()
        wrong = np.flatnonzero((formulas.narrow(y, "f32").view(np.uint32) != expected) & usual)
        assert not len(wrong), [(x[i], y[i]) for i in wrong[:5]]


FALLING = [
    (f"falling_{of}{'_as' * bool(word)}<{C}{word and ', '}{word}>", function, word)
    for of, function in (("exponential", formulas.exp), ("logarithm", formulas.log1pexp))
    for C, word in (("f32", ""), ("f64", ""), ("f32", "f16"), ("f32", "bf16"), ("f32", "f32"))
]


def test_functions_of_what_is_up_to_0_have_the_bits_of_all(tmp_path):
    """At 0, at NaN, where powers of e become subnormal and then 0, and of every bf16."""
    text = '#include "half_hyperbolic.cuh"\n'
    for index, (name, _, _) in enumerate(FALLING):
        C = "f64" if "f64" in name else "f32"
        text += f'extern "C" void falling_{index}(const {C}* x, {C}* y, long count) {{\n'
        text += f"  for (long i = 0; i < count; ++i) y[i] = {name}(x[i]);\n}}\n"
    library = compiled(text, tmp_path)
    bits = np.arange(1 << 16, dtype=np.uint32) << 16
    ends = [-np.linspace(0, 800, 9_999), -np.linspace(85, 110, 99_999), np.array([0.0, -0.0, -np.inf, np.nan, -1e-40])]
    every = np.concatenate([*ends, bits.view(np.float32)])
    every = every[~(every > 0)]
    for index, (name, function, word) in enumerate(FALLING):
        x = every.astype(np.float64 if "f64" in name else np.float32)
        y = np.empty_like(x)
        library[f"falling_{index}"](*[ctypes.c_void_p(each.ctypes.data) for each in (x, y)], ctypes.c_long(len(x)))
        with np.errstate(all="ignore"):
            expected = function(x, word) if word in ("f16", "bf16") else function(x)
        narrow = "f64" if "f64" in name else "f32"
        y, expected = formulas.narrow(y, narrow), formulas.narrow(expected, narrow)
        assert (expected == 0).sum() > 100 and y.tobytes() == expected.tobytes(), name


def of_forms(*functions):
    """The name in C++ of each function in a form, the function, its C, and what it is as precise as."""
    kinds = ("f32", ""), ("f64", ""), ("f32", "f16"), ("f32", "bf16")
    return [(f"{name}_in{'_as' * bool(word)}", function, C, word) for name, function in functions for C, word in kinds]


ANGLES = of_forms(("sine", formulas.sin), ("cosine", formulas.cos), ("tangent", formulas.tan))
ODDS = of_forms(("log_odds", formulas.logit))


def forms_have_the_bits_of_all(functions, header, near, every, form, folder):
    """In the form for values that are near these alone, by C and what is as precise; which they are is told of each."""
    text = f'#include "{header}"\n'
    for index, (name, _, C, word) in enumerate(functions):
        text += f'extern "C" void form_{index}(const {C}* x, {C}* y, bool* near, long count) {{\n'
        text += f"  for (long i = 0; i < count; ++i)\n    y[i] = {name}<{form}{word and ', '}{word}>(x[i]), "
        text += f"near[i] = {near}(x[i]);\n}}\n"
    library = compiled(text, folder)
    for index, (name, function, C, word) in enumerate(functions):
        x = np.concatenate([every, -every]).astype({"f32": np.float32, "f64": np.float64}[C])
        y, told = np.empty_like(x), np.empty(len(x), bool)
        library[f"form_{index}"](
            *[ctypes.c_void_p(each.ctypes.data) for each in (x, y, told)], ctypes.c_long(len(x))
        )
        with np.errstate(all="ignore"):
            expected = function(x, word) if word else function(x)
        asked = told | (form == "FAST_FORM")
        got, expected = (formulas.narrow(each[asked], C) for each in (y, expected))
        assert got.tobytes() == expected.tobytes(), name
        yield x, told


@pytest.mark.parametrize("form", ["FAST_FORM", "FAST_WITHIN"])
def test_angles_have_the_bits_of_all_in_each_form(tmp_path, form):
    every = np.concatenate([np.linspace(-300_000, 300_000, 9_999), np.geomspace(1e-30, 1e30, 999), [0, np.inf, np.nan]])
    for x, near in forms_have_the_bits_of_all(ANGLES, "half_angles.cuh", "is_near_angle", every, form, tmp_path):
        assert near[np.abs(x) <= 2.0**17].all() and not near[~(np.abs(x) <= 2.0**21)].any()


@pytest.mark.parametrize("form", ["FAST_FORM", "FAST_WITHIN"])
def test_odds_have_the_bits_of_all_in_each_form(tmp_path, form):
    ends = 0.5 + np.geomspace(1e-16, 1e-2, 99), np.geomspace(1e-320, 1, 999), [0, np.nan]
    every = np.concatenate([np.linspace(-0.1, 1.1, 9_999), *ends])
    for x, usual in forms_have_the_bits_of_all(ODDS, "half_hyperbolic.cuh", "are_usual_odds", every, form, tmp_path):
        assert usual[(x > 0.01) & (x < 0.99) & (np.abs(x - 0.5) > 0.01)].all()
        assert x.dtype == np.float32 or not usual[~((x > 1e-160) & (x < 1) & (np.abs(x - 0.5) > 1e-7))].any()
