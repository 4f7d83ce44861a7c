"""What is changed in the text of programs so that loops of the CPU become vectors: each rule has its place."""

from __future__ import annotations

import pytest

from skuda.cpu import source
from skuda.launch import compiler


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in source.REWRITES])
def test_a_rule_finds_what_it_is_for(pattern):
    assert any(pattern.search(text) for text in compiler.headers().values())


def test_the_better_of_two_is_chosen_by_bits():
    text = "return (a > b) | ((a == b) & (bits(b) < 0)) | is_nan(a) ? a : b;"
    assert source.for_vectors(text) == "return ::chosen((a > b) | ((a == b) & (bits(b) < 0)) | is_nan(a), a, b);"


def test_what_is_its_own_value_is_chosen_at_the_end():
    text = "  if (fabs(x) < 0x1p-54) return x;\n  const f64 y = one(x);\n  return y + y;\n"
    assert source.for_vectors(text) == "  const f64 y = one(x);\n  return fabs(x) < 0x1p-54 ? x : y + y;\n"


@pytest.mark.parametrize("function", source.OPTIONS_OF_F64)
def test_an_option_is_of_programs_that_call_a_function_in_f64(function):
    text = f"struct one_program {{\n  x = {function}(y);\n}};\nstruct other_program {{\n}};\n"
    option = source.OPTIONS_OF_F64[function]
    assert any(f"f64 {function}(f64" in header for header in compiler.headers().values())
    assert source.options_of(text, "cpu_elementwise<one_program<f64>>") == (option,)
    assert source.options_of(text, "cpu_rows<one_program<f64, i64>>") == (option,)
    assert source.options_of(text, "cpu_elementwise<one_program<f32>>") == ()
    assert source.options_of(text, "cpu_elementwise<other_program<f64>>") == ()
