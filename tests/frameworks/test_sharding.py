"""Calls of parts of the arrays, split as the rules say, give the parts of the results, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from skuda.codegen.define import define
from skuda.frameworks.sharding import Factor, factors, rule
from skuda.plans.axis_views import chosen

from .drawn_calls import DrawnCall, draw, plans, same_bits, types_of

JOINED = {"max": np.maximum, "min": np.minimum, "any": np.logical_or, "all": np.logical_and, "sum": np.add,
          "prod": np.multiply}  # fmt: skip
EXACT = ("max", "min", "any", "all")


def axes_of(drawn: DrawnCall, keeps=()):
    """What the axes of a drawn call's arrays are."""
    operation, order = drawn.operation, None
    if operation.chooses_axes:
        rank = max(array.ndim for array in (*drawn.inputs.values(), *drawn.run()))
        order = chosen(drawn.attributes[operation.axis.name], (1,) * rank, "axis", "input").order
    return factors(operation, drawn.sizes, drawn.types, order, keeps)


def part(array: np.ndarray, axes, key, which: int, parts: int) -> np.ndarray:
    """A part of an array along its axis that is a factor; the array itself where it has none."""
    for axis, factor in enumerate(axes):
        if factor is not None and factor.key == key:
            return np.ascontiguousarray(np.split(array, parts, axis)[which])
    return array


def options_of_part(drawn: DrawnCall, key, parts: int) -> dict:
    """The keywords of a part of a call, whose array of all dimensions has them in the order of the space."""
    if "shape" not in drawn.options:
        return drawn.options
    keys = [(dim.name, i) for dim in drawn.operation.space for i in range(len(np.atleast_1d(drawn.sizes[dim.name])))]
    shape = zip(keys, drawn.options["shape"], strict=True)
    return {**drawn.options, "shape": tuple(extent // parts if each == key else extent for each, extent in shape)}


@pytest.mark.turns(2)
@pytest.mark.parametrize("plan", plans(), ids=lambda plan: plan.operation.function)
def test_parts_are_computed_apart(plan):
    operation = plan.operation
    for types in types_of(operation):
        drawn, tried = draw(plan, types), 0
        axes, whole = axes_of(drawn), drawn.run()
        for key in {f.key for own in axes.values() for f in own if f is not None}:
            size = drawn.sizes[key[0]]
            extent = size[key[1]] if isinstance(size, tuple) else size
            found = rule(operation, axes, key, drawn.sizes)
            if not found.splits or extent % (2 * found.multiple):
                continue
            tried += 1
            pieces = [
                drawn.run(
                    {name: part(array, axes[name], key, which, 2) for name, array in drawn.inputs.items()},
                    options=options_of_part(drawn, key, 2),
                )
                for which in range(2)
            ]
            for position, output in enumerate(operation.outputs):
                halves = [piece[position] for piece in pieces]
                how = found.partial[position] if found.partial else ""
                if how:
                    joined = JOINED[how](*halves).astype(halves[0].dtype)
                    if how in EXACT or joined.dtype.kind == "i":
                        assert same_bits(joined, whole[position]), (types, key, output.name)
                    else:
                        actual, expected = joined.astype(np.float64), whole[position].astype(np.float64)
                        near = np.allclose(actual, expected, rtol=0.05, atol=0.1, equal_nan=True)
                        assert near, (types, key, output.name)
                    continue
                axis = next(i for i, f in enumerate(axes[output.name]) if f is not None and f.key == key)
                assert same_bits(np.concatenate(halves, axis), whole[position]), (types, key, output.name)
        assert tried or not splits_at_all(operation), types


def splits_at_all(operation) -> bool:
    """Whether there is a dimension that is not whole, or along which parts are computed apart nevertheless."""
    whole = {text for text in operation.analysis.whole if "/" not in text}
    return bool(operation.analysis.partial) or any(dim.name not in whole for dim in operation.space)


def rules_of(function: str, many=(4, 6), block: int = 4, **types) -> dict:
    """The rule of each factor of a drawn call, by its name."""
    plan = next(each for each in plans() if each.operation.function == function)
    chosen = next(each for each in plan.operation.combinations if types.items() <= each.items())
    drawn = draw(plan, chosen, many=many, block=block)
    axes = axes_of(drawn)
    keys = sorted({f.key for own in axes.values() for f in own if f is not None})
    return {key: rule(plan.operation, axes, key, drawn.sizes) for key in keys}


def test_what_is_reduced_stays_whole():
    found = rules_of("softmax")
    assert [key for key, each in found.items() if each.splits] == [("n", 0), ("n", 1)]
    assert not any(each.partial for each in found.values())
    assert not rules_of("mean")["reduced", 0].splits and not rules_of("mean_backward")["reduced", 0].splits


def test_plain_reductions_come_in_parts():
    for function, how in [("sum", "sum"), ("amax", "max"), ("amin", "min"), ("count_nonzero", "sum"), ("any", "any")]:
        found = rules_of(function)["reduced", 0]
        assert found.splits and found.partial == (how,), function
    assert not rules_of("argmax")["reduced", 0].splits


def test_a_sum_beside_elements_comes_in_parts():
    """A gradient of what rows share, beside that of the rows."""
    for function, parts in [("rms_norm_backward", ("", "sum")), ("layer_norm_backward", ("", "sum", "sum"))]:
        found = rules_of(function)
        assert found["n", 0].partial == found["n", 1].partial == parts
        assert not found["d", 0].splits  # of which the norm is
    assert rules_of("learnable_fake_quantize_per_tensor_backward")["shape", 1].partial == ("", "sum", "sum")


FORMULAS = {
    "sum(x * w, over=n)": "sum", "-sum(x, over=n) * w / 3": "sum", "sum(sum(x, over=d), over=n)": "sum",
    "max(x, over=n)": "max", "-max(x, over=n)": None, "sum(x, over=n) + w": None, "w / sum(x, over=n)": None,
    "sum(x / count(over=n), over=n)": None, "mean(x, over=n)": None, "sum(x, over=n) * sum(x, over=n)": None,
    "sum(x * max(x, over=n), over=n)": None, "sqrt(sum(x, over=n))": None,
}  # fmt: skip


@pytest.mark.parametrize("formula", FORMULAS)
def test_which_last_steps_join_parts(formula):
    """A reduction, or a sum times what is the same for all parts."""
    outputs = {"y": "T[*n, d] = x * w", "z": f"C[d] = {formula}"}
    made = define(name="joined", inputs={"x": "T[*n, d]", "w": "T[d]"}, outputs=outputs)
    how = FORMULAS[formula]
    assert made.plan_class.operation.analysis.partial == ((("n", ("", how)),) if how else ())


def test_parts_end_where_blocks_and_bytes_do():
    assert rules_of("quantize_per_group", T="f32", Q="s8")["d", 0].multiple == 4
    assert rules_of("dynamic_quantize_per_group", T="f32", Q="s8")["d", 0].multiple == 4
    assert rules_of("quantize_per_group", many=(), block=3, T="f32", Q="s4")["d", 0].multiple == 6
    assert rules_of("quantize_per_token", T="f32", Q="s4")["d", 0].multiple == 2
    assert rules_of("quantize_per_token", T="f32", Q="s8")["d", 0].multiple == 1


def test_factors_follow_the_axes_that_a_call_names():
    operation = next(plan for plan in plans() if plan.operation.function == "sum").operation
    sizes, types = {"kept": (2, 3), "reduced": (5,)}, {"T": "f32"}
    order = chosen((1,), (2, 5, 3), "axis", "input").order
    kept, reduced = [Factor("kept", 0), Factor("kept", 1)], Factor("reduced", 0)
    found = factors(operation, sizes, types, order)
    assert found == {"input": (kept[0], reduced, kept[1]), "output": (kept[0], kept[1])}
    assert factors(operation, sizes, types, order, ("output",))["output"] == (kept[0], None, kept[1])
