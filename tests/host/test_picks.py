"""What one element of a row tells, and what only some calls want, in every schedule, run on the CPU."""

from __future__ import annotations

import re

import numpy as np
import pytest

import skuda
from host.own_rows import check_bytes, kernels_of

ROWS = {
    # The last label of seven rows is no element of theirs, unless they are long.
    "picked_alone": """
        types: {T: [f32, bf16]}
        inputs: {input: "T[*n, d]", weight: "T[d]"}
        let: {label: position(n) % 9 - 1}
        outputs:
          value: T[*n] = sum(where(position(d) == label, input * weight, 0), over=d)
          product: C[*n] = prod(where(label == position(d), weight, 1), over=d)
          known: bool[*n] = any(position(d) == label, over=d)
        backward: none
    """,
    # No operand has an element for each: rows are as many as the labels, and as long as the weights.
    "picked_of_columns": """
        types: {T: [f32, bf16], L: [i64, i32]}
        inputs: {label: "L[*n]", weight: "T[v]"}
        outputs:
          value: T[*n] = prod(where(position(v) == label, weight, 1), over=v)
        backward: none
    """,
    "of_columns": """
        types: {T: [f32, bf16]}
        inputs: {x: "T[*n]", weight: "T[v]"}
        outputs:
          value: T[*n] = sum(exp(min(x, 1) * max(-1, min(weight, 1))), over=v) * max(weight, over=v)
        backward: none
    """,
    # One is known to the first pass, the others after it.
    "picked_within": """
        types: {T: [f32, bf16]}
        inputs: {input: "T[*n, d]"}
        let:
          label: position(n) % 9 - 1
          own: sum(where(position(d) == label, input, 0), over=d)
        outputs:
          value: T[*n] = sum(min(input, own), over=d) + sum(where(position(d) == 2, input, 0), over=d)
          output: T[*n, d] = max(input * own, over=d) + sum(where(position(d) == 3, input, 0), over=d) * input
        backward: none
    """,
    "picked_beside": """
        types: {T: [f32, bf16]}
        inputs: {input: "T[*n, *d]"}
        attrs: {axis: axes of d = -1, share: C = 0.5, some: bool = true}
        let:
          label: position(n) % 9 - 1
          own: sum(where(position(d) == label, input, 0), over=d)
        outputs:
          output: T[*n, *d] = where(own > 4, 0, where(position(d) == label, own, exp(input - max(input, over=d))) +
            where(share == 0, 0, share * mean(input, over=d)) + where(some, 0, max(input - own, over=d)))
        backward: none
    """,
}


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", ROWS)
def test_bytes(name, tmp_path):
    check_bytes(name, ROWS[name], tmp_path)


def test_rows_of_which_one_element_is_read_have_one_kernel_for_each_way_they_lie():
    variants = {sku.variant for sku in kernels_of("picked_alone", ROWS["picked_alone"])}
    assert len(variants) == 3
    assert not [each for each in variants if re.search("reread|cluster|along|across", each)]


def test_a_zero_keeps_its_sign_in_a_row_of_one_element_alone():
    operation = skuda.define(ROWS["picked_alone"], name="picked_alone")
    for width, sign in ((1, True), (2, False)):
        x = np.full((2, width), -0.0, np.float32)
        value, _, known = operation(x, np.ones(width, np.float32))
        assert known.tolist() == [False, True]
        assert np.signbit(value).tolist() == [False, sign]
