"""Long lines of generated C++ are broken where a person would, and mean the same."""

from __future__ import annotations

from importlib import resources

import pytest

from skuda.codegen.cpp_layout import WIDTH, laid_out

NAMES = [f"operand_{index}" for index in range(12)]


def test_no_generated_line_is_longer():
    folder = resources.files("skuda.generated") / "cuda"
    texts = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(".cu")}
    assert texts
    assert [(name, line) for name, text in texts.items() for line in text.splitlines() if len(line) > WIDTH] == []


@pytest.mark.parametrize(
    "line",
    [
        f"  using Inputs = List<{', '.join(f'PerElement<{name}>' for name in NAMES)}>;",
        f"    return {{{' + '.join(NAMES)}}};",
        f"    sum = {' * '.join(f'({name} - mean)' for name in NAMES)};",
        f"        : first(f({', '.join(NAMES)})), second(a < b ? -a : b), third(x->y && {' && '.join(NAMES)}) {{}}",
        f"  if (condition) value = {'(' * 12}{') + '.join(NAMES)});",
        f"// a comment: {' '.join(NAMES)}, and {' '.join(NAMES)}",
    ],
)
def test_a_line_is_broken_between_its_tokens(line):
    text = laid_out(line)
    assert len(text.splitlines()) > 1 and all(len(each) <= WIDTH for each in text.splitlines())
    joined = "".join(each.replace("//", "").replace(" ", "") for each in text.splitlines())
    assert joined == line.replace("//", "").replace(" ", "")
    assert laid_out(text) == text


def test_the_outermost_comma_is_where_a_line_ends():
    inner = ", ".join(NAMES[:6])
    lines = laid_out(f"    make(first({inner}), second({inner}));").splitlines()
    assert lines == [f"    make(first({inner}),", f"        second({inner}));"]


def test_a_minus_in_front_of_a_value_stays_with_it():
    for line in laid_out(f"    f({', '.join(f'-{name}' for name in NAMES)});").splitlines():
        assert not line.endswith("-")
