"""The oracles know of which rows the functions are only as precise as a half type is."""

from __future__ import annotations

import re

from oracles import of_functions
from oracles.function_slopes import BACKWARD
from oracles.functions import FORWARD
from skuda.generated import CATALOG
from skuda.verification.evidence import package_of


def test_oracles_allow_what_functions_of_half_precision_are_off():
    """A program that calls such a function says for which type: `_as<T>`, `_as<C, T>`, `_as<FAST, T>`."""
    calls: dict[bool, set[str]] = {False: set(), True: set()}
    for source in (package_of(CATALOG) / "cuda").glob("*.cu"):
        for name, text in re.findall(r"struct (\w+)_program \{(.*?)\n\};", source.read_text(), re.DOTALL):
            if re.search(r"_as<(C, |FAST, )?T>", text):
                calls[name.endswith("_backward")].add(name.removesuffix("_backward"))
    assert calls[False] & FORWARD.keys() == of_functions.SHORT_FORWARD
    assert calls[True] & BACKWARD.keys() == of_functions.SHORT_BACKWARD
