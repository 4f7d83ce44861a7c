"""Formulas as MathML, which browsers typeset by themselves, and a font of mathematics, which few systems have."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from pathlib import Path

from fontTools.subset import Options, Subsetter, load_font, save_font
from latex2mathml.converter import convert

# latex2mathml makes a word an italic letter each, and sets the range of an operator beside it.
_LETTER = re.compile(r"<mi mathvariant=\"italic\">([^<]*)</mi>")
_WORD = re.compile(rf"(?:{_LETTER.pattern.replace('(', '(?:')})+")
_RANGE = re.compile(r"<msub>(<mo>(?:&#x0?22[0-9A-F]{2};|max|min|argmax|argmin)</mo>)(.*?)</msub>")
_FUNCTION = re.compile(r"(?<!<munder>)<mo>([a-z]\w+)</mo>")  # before its arguments an operator would leave a gap
_BAR = '<mo stretchy="false">&#x0007C;</mo>'


@cache
def mathml(latex: str, display: str = "block") -> str:
    """A formula in the LaTeX that `codegen/describe.py` prints, as an element of HTML."""
    text = re.sub(r"\\arg\\(max|min)", r"\\operatorname{arg\1}", latex)
    text = convert(text, display=display)
    text = _WORD.sub(lambda found: f'<mi class="word">{"".join(_LETTER.findall(found[0]))}</mi>', text)
    text = _FUNCTION.sub(r"<mi>\1</mi>", _RANGE.sub(r"<munder>\1\2</munder>", text))
    return text.replace(_BAR, _BAR.replace("<mo", '<mo lspace="0" rspace="0"'))


def block(latex: str) -> str:
    """A formula on lines of its own, which scrolls where it is wider than the page. Search leaves it out."""
    return f'<div class="formula" tabindex="0" data-search-exclude>{mathml(latex)}</div>'


def write_font(path: Path) -> None:
    """Writes STIX Two Math (SIL Open Font License), which ziamath brings, cut to letters and operators."""
    options = Options(layout_features=["*"], notdef_outline=True, name_IDs=["*"])
    font = load_font(str(resources.files("ziamath") / "fonts" / "STIXTwoMath-Regular.ttf"), options)
    subsetter = Subsetter(options)
    ranges = ((0x20, 0x7F), (0xA0, 0x180), (0x370, 0x400), (0x2000, 0x2070), (0x2190, 0x2400), (0x1D434, 0x1D6A4))
    subsetter.populate(unicodes=[code for first, end in ranges for code in range(first, end)])
    subsetter.subset(font)
    save_font(font, str(path), options)
