"""What is changed in the text of programs so that loops of the CPU become vectors: each rule has its place."""

from __future__ import annotations

import re

import pytest

from skuda.cpu import source
from skuda.launch import compiler

RULES = {name: rule for name, rule in vars(source).items() if isinstance(rule, re.Pattern) and name != "_ARGUMENT"}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_finds_what_it_is_for(name):
    assert any(RULES[name].search(text) for text in compiler.headers().values())


@pytest.mark.parametrize("replaced", [old for old, _ in source._STEP])
def test_steps_of_tables_are_found(replaced):
    assert any(replaced in text for text in compiler.headers().values())


def test_the_better_of_two_is_chosen_by_bits():
    text = "return (a > b) | ((a == b) & (bits(b) < 0)) | is_nan(a) ? a : b;"
    assert source.asked(text) == "return ::chosen((a > b) | ((a == b) & (bits(b) < 0)) | is_nan(a), a, b);"


def test_what_is_its_own_value_is_chosen_at_the_end():
    text = "  if (fabs(x) < 0x1p-54) return x;\n  const f64 y = one(x);\n  return y + y;\n"
    assert source.asked(text) == "  const f64 y = one(x);\n  return fabs(x) < 0x1p-54 ? x : y + y;\n"
