"""Formulas that are read and printed again mean the same: a formula is Python, so Python itself is the oracle."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from skuda.codegen.cuda_printers import CppPrinter
from skuda.codegen.expr import parse_alone
from skuda.codegen.nodes import BOOL, INT, REAL, Node, Scope
from skuda.codegen.printers import NumpyPrinter, PythonPrinter
from skuda.errors import SkudaError

NAMES = {name: Node("name", (), REAL, text=name) for name in "abcd"}
NAMES |= {"i": Node("name", (), INT, bits=33, text="i")}
NAMES |= {name: Node("name", (), BOOL, text=name) for name in "pqr"}
NUMBERS = {"a": 0.1, "b": 3.7, "c": -1.3, "d": 0.7}
SIGNS = "+-*/"

PAIRS = [f"a {one} (b {other} c)" for one, other in product(SIGNS, SIGNS)]
PAIRS += [f"(a {one} b) {other} c" for one, other in product(SIGNS, SIGNS)]
PAIRS += [f"a {one} (b {other} (c {third} d))" for one, other, third in product(SIGNS, SIGNS, SIGNS)]
PAIRS += [f"-(a {sign} b)" for sign in SIGNS] + [f"a {sign} -b" for sign in SIGNS] + [f"-a {sign} b" for sign in SIGNS]
LOGIC = ["p and (q or r)", "(p and q) or r", "p or (q and r)", "not (p or q) and r", "not p or q", "not (p and q) or r"]
LOGIC += ["(a < b) and (c < d) or p", "not (a < b) or q", "not a < b and (p or c >= d)", "a < b <= d or r"]


def read(text: str) -> Node:
    return parse_alone(text, Scope(NAMES, {}))


@pytest.mark.parametrize("printer", [NumpyPrinter, CppPrinter, PythonPrinter])
@pytest.mark.parametrize("formula", PAIRS)
def test_arithmetic_keeps_its_order(formula, printer):
    """To the last bit: a - (b - c) rounds otherwise than a - b + c, and so does a + (b + c)."""
    assert eval(printer().text(read(formula)), {**NUMBERS, "np": np}) == eval(formula, dict(NUMBERS))


@pytest.mark.parametrize("formula", LOGIC)
def test_logic_keeps_its_order(formula):
    for values in product([False, True], repeat=3):
        plain = dict(zip("pqr", values, strict=True)) | NUMBERS
        arrays = {name: np.asarray(value) for name, value in plain.items()}
        expected = eval(formula, dict(plain))
        assert bool(eval(NumpyPrinter().text(read(formula)), arrays)) == expected
        said = CppPrinter().text(read(formula)).replace("&&", " and ").replace("||", " or ").replace("!", " not ")
        assert eval(said, dict(plain)) == expected


def test_integers_have_64_bits():
    assert read("round_to_int(a) * 255").bits == 64 == read("i * 1073741823").bits
    for formula in ("round_to_int(a) * 511", "i * 2147483647"):
        with pytest.raises(SkudaError, match="could need 65 bits, 64 are held exactly"):
            read(formula)
