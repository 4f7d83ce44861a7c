"""The declared gradients of the catalog beside derived ones: equal as mathematics, or listed with a reason.

Derived ones are also compared with differences of the forward pass, which know nothing of rules.
"""

from __future__ import annotations

import re
import textwrap
from fnmatch import fnmatch
from functools import cache

import numpy as np
import pytest
from catalogs import forget_defined, own_spec
from domains import bounds, domain

import skuda
from oracles import functions
from skuda.codegen.nodes import REAL
from skuda.codegen.normal_form import equal
from skuda.errors import SpecError
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind

SPEC = own_spec()
DECLARED = {row.name: row for row in SPEC.rows if row.backward is not None}

# Gradients that nothing derives, as patterns of names, and the message of a row that asks for it.
ROUNDING = {
    "quantize_*": "holds no reals",
    "gelu*_quantize_*": "holds no reals",
    "fake_quantize_*": "`round_to_int` has no derivative",
    "learnable_fake_quantize_*": "`round_to_int` has no derivative",
    "multilabel_soft_margin_loss": "`backward:` counts over `d` and over `n`",
    "nll_loss": "no input has all of `n, v`",  # the declared one reduces nothing: a label that is no class gives zeros
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), "the derivative of every output is 0 for every input"),
}
# Of codes, which are no reals, a gradient is declared.
OF_CODES = "dequantize_*"

# Declared gradients whose derived form is another one: the reason, operands at which both differ, and which of the
# gradients these are, where not that of the input alone.
DIFFERENCES = {
    "cross_entropy": (
        "the declared gradient of a label that is no class is NaN, as the loss is; the derived one is 0",
        {"input": [1, 2], "target": [9]},
    ),
    "gelu_tanh": (
        "the declared slope is the share itself beyond 32, where factors of the derived one overflow",
        {"input": [1e120]},
    ),
    "l2_normalize": (
        "where the norm is eps, the declared gradient is that of a quotient by the norm, as torch's; a derived max is "
        "constant beside an attribute that it equals",
        {"input": [1e-12, 0]},
    ),
    "norm2": ("where the norm is 0, the declared gradient is 0; that of a square root is infinite", {"input": [0, 0]}),
    "std": (
        "where the deviation is 0, the declared gradient is 0; that of a square root is infinite",
        {"input": [2, 2]},
    ),
    "poisson_nll_loss": (
        "a choice that a derived gradient does not take multiplies 0 by its slope, which may be infinite",
        {"input": [-2], "target": [1]},
        "d_target",
    ),
    "gaussian_nll_loss": (
        "a variance below eps has the gradient of eps, as torch's; a derived max is constant there",
        {"input": [1], "target": [0], "var": [0]},
        "d_var",
    ),
    "kl_div": (
        "where the target is 0, the declared gradient is finite; the derived one multiplies 0 by an infinity",
        {"input": [1], "target": [0]},
        "d_target",
    ),
    "binary_cross_entropy": (
        "the declared gradient has torch's bound of a divisor in place of that of the logarithms",
        {"input": [0], "target": [1]},
    ),
    "binary_cross_entropy_with_logits": (
        "the declared gradient is made of two sigmoids, so that nothing cancels, and has none of the kinks at 0",
        {"input": [0], "target": [1]},
    ),
    "hinge_loss": ("at the kink the declared gradient is that of the slope, as torch's", {"input": [1], "target": [1]}),
    "hinge_embedding_loss": (
        "at the kink the declared gradient is that of the slope, as torch's",
        {"input": [1], "target": [-1]},
    ),
    "margin_ranking_loss": (
        "at the kink the declared gradients are those of the slope, as torch's",
        {"input1": [1], "input2": [1], "target": [1]},
        "d_input1",
        "d_input2",
    ),
    "triplet_margin_loss": (
        "where a distance is 0, the declared gradient is 0; at the kink it is that of the slope, as torch's",
        {"anchor": [0], "positive": [1e-6], "negative": [0.5]},
        "d_anchor",
        "d_positive",
        "d_negative",
    ),
    "round_decimals": ("where an element stays, the declared gradient is 0 too, as torch's", {"input": [np.inf]}),
    "relu6": ("at a bound, the declared gradient is 0, as torch's", {"input": [0, 6]}),
    "hardtanh": ("at a bound, the declared gradient is 0, as torch's", {"input": [-1, 1]}),
    "hardsigmoid": ("at a bound, the declared gradient is 0, as torch's", {"input": [-3, 3]}),
    "clamp_min": ("at the bound, the declared gradient passes, as torch's", {"input": [-0.5]}),
    "clamp_max": ("at the bound, the declared gradient passes, as torch's", {"input": [0.5]}),
    "step": ("the declared gradient of NaN is 0; its own is passed on by a derived one", {"input": [np.nan]}),
    "logit": ("outside of 0 and 1, where there is no value, the declared gradient is NaN", {"input": [-2]}),
}
# Declared gradients that are equal to derived ones but at kinks, and shorter.
SHORTER = {
    "smooth_l1_loss": ("d_input", "d_target"),
    "huber_loss": ("d_input", "d_target"),
    "cosine_embedding_loss": ("d_input1", "d_input2"),
}
# Declared gradients in another form than the derived one's, and the reason. Numbers are compared, not formulas.
CANCELS = "the derived form is a difference of numbers that may be near each other"
OVERFLOWS = "a step of the derived form leaves the range"
OTHER_FORMS = {
    **dict.fromkeys(("expm1", "tanh", "sigmoid", "elu", "celu", "selu", "tanhshrink", "glu"), CANCELS),
    **dict.fromkeys(("silu", "mish", "sinc", "erf", "erfc"), CANCELS),
    "nan_to_num": "one condition stands for two",
    "powi": "the derived form multiplies the slope of a power that is not chosen by 0",
    **dict.fromkeys(("rsqrt", "atan", "softsign", "hardswish", "softshrink"), OVERFLOWS),
    **dict.fromkeys(("div", "fmod", "addcdiv", "atan2", "hypot", "logaddexp", "logaddexp2", "geglu_tanh"), OVERFLOWS),
    **dict.fromkeys(("layer_norm", "standardize"), "the sum of products waits for no deviation: one pass makes both"),
    **dict.fromkeys(("instance_norm", "group_norm"), "sums along a channel of a sample come first"),
    "sparsemax": "the declared gradient reads the output, and seeks no threshold",
    "gumbel_softmax": "the declared gradient is that of the softmax, also where the output is hard",
    "batch_norm_training": "the declared gradient reads the statistics, and takes none of theirs",
    "xlogy": "the declared gradient is 0 where the first is 0 and the logarithm infinite, as torch's",
}


@pytest.fixture(scope="module", autouse=True)
def no_catalogs_stay():
    before = registry.catalogs()
    yield
    forget_defined(before)
    defined.cache_clear()


def asking(row) -> str:
    """A row's text with derived gradients in place of those that it declares."""
    own = re.sub(r"(?m)^    backward:.*\n(      .*\n?)*", "", row.source.rstrip() + "\n")
    return textwrap.dedent(own).replace(row.name, f"derived_{row.name}", 1) + "  backward: derived\n"


@cache
def defined(name: str):
    """The operation with derived gradients; the message where there are none."""
    try:
        return skuda.define(asking(DECLARED[name]))
    except SpecError as error:
        return str(error)


def derivable() -> list[str]:
    return [name for name in DECLARED if not any(fnmatch(name, pattern) for pattern in ROUNDING)]


def written_out(row, node):
    """A formula of a gradient without names of outputs."""
    formulas = row.forward.formulas
    return node.replaced(
        lambda each: (
            written_out(row, formulas[each.text])
            if each.op == "name" and each.kind == REAL and each.text in formulas
            else None
        )
    )


def compared(name: str) -> dict[str, tuple]:
    """Of each gradient that is declared and derived, both formulas."""
    row, derived = DECLARED[name], defined(name)
    program = derived.backward._program
    same = dict(program.operation.same)
    found = {}
    for gradient, node in row.backward.formulas.items():
        other = program.formulas.get(same.get(gradient, gradient))
        if other is not None:
            found[gradient] = (written_out(row, node), written_out(row, other))
    return found


def with_optional_inputs() -> list[str]:
    return [name for name in derivable() if DECLARED[name].optional]


@pytest.mark.parametrize("name", with_optional_inputs())
def test_forms_read_what_the_row_reads(name):
    """A call without an optional input hands on what the row's backward pass takes, and nothing else."""
    backward = defined(name).backward.plan_class.operation
    known = {operand.name for operand in backward.inputs}
    for form in dict(backward.forms):
        found = defined(name).backward.plan_class.without(form).operation
        assert {operand.name for operand in found.inputs} <= known, form


@pytest.mark.parametrize("name", [name for name in DECLARED if name not in derivable()])
def test_what_rounds_is_declared(name):
    message = next(said for pattern, said in ROUNDING.items() if fnmatch(name, pattern))
    assert isinstance(defined(name), str)
    assert message in defined(name)


def test_each_pattern_is_of_some_row():
    assert all(any(fnmatch(name, pattern) for name in DECLARED) for pattern in (*ROUNDING, OF_CODES))
    assert {*DIFFERENCES, *OTHER_FORMS} < set(derivable())


@pytest.mark.parametrize("name", derivable())
def test_a_declared_gradient_is_the_derived_one(name):
    both = compared(name)
    of_codes = {"d_input"} if fnmatch(name, OF_CODES) else set()
    assert both.keys() == DECLARED[name].backward.formulas.keys() - of_codes
    differing = [gradient for gradient, (one, other) in both.items() if not equal(one, other)]
    if name in OTHER_FORMS:
        assert differing
        return
    listed = DIFFERENCES[name][2:] or ("d_input",) if name in DIFFERENCES else SHORTER.get(name, ())
    assert {*differing} <= {*listed}  # two formulas may be equal but for infinities


# ---- numbers ----


def plan_of(plan_class, types, extents):
    operation = plan_class.operation
    fields = {field: types[letter] for letter, field in operation.element_fields.items()}
    fields |= {dim.name: extents[dim.name] for dim in operation.dims}
    fields |= {attribute.name: 2 for attribute in operation.attributes if attribute.type == "size"}
    fields |= bounds(operation)
    return plan_class.select(plan_class.descriptor_type(**fields), preference=BackendKind.REFERENCE)


def run(plan, arrays) -> dict[str, np.ndarray]:
    made = [np.zeros(shape, storage) for shape, storage in plan.made]
    plan.execute((*(arrays[operand.name] for operand in plan.operation.inputs), *made))
    return dict(zip((operand.name for operand in plan.operation.outputs), made, strict=True))


class Case:
    """Operands in f64 of an operation of the catalog, and its gradients: declared, derived."""

    def __init__(self, name: str, given=None):
        derived = defined(name)
        self.forward = derived.plan_class
        plans = registry.catalogs()[0].plans(name)
        declared = next(plan for plan in plans if plan.operation.function == f"{name}_backward")
        self.gradients = [declared, derived.backward.plan_class]
        operation = self.forward.operation
        self.types = max(operation.combinations, key=lambda types: [*types.values()].count("f64"))
        length = 4 if given is None else len(next(iter(given.values())))
        self.extents = {dim.name: (length,) if dim.many else length for dim in operation.dims}
        rng = np.random.default_rng(5)
        plan = plan_of(self.forward, self.types, self.extents)
        self.arrays = {}
        for operand, shape in zip(operation.inputs, plan.shapes, strict=False):
            dtype = DTYPES[operation.word(operand, self.types)]
            classes = operation.classes(operand, plan.sizes)
            low, high = (0, classes) if classes else (-5, 5)
            floats = functions.placed(name, rng.normal(0.3, 1, shape))
            values = floats if dtype.kind == "float" else rng.integers(low, high, shape)
            ends = domain(name, operand.name)
            values = values if ends is None else rng.uniform(*ends, shape)
            values = np.resize(given[operand.name], shape) if given and operand.name in given else values
            self.arrays[operand.name] = np.asarray(values).astype(dtype.storage)
        self.arrays |= run(plan, self.arrays)
        read = {operand.name for operand in declared.operation.inputs}
        for output in operation.outputs:
            given = rng.normal(0, 1, self.arrays[output.name].shape)
            self.arrays[f"d_{output.name}"] = given if f"d_{output.name}" in read else 0 * given

    def declared_and_derived(self) -> list[dict[str, np.ndarray]]:
        return [run(plan_of(each, self.types, self.extents), self.arrays) for each in self.gradients]

    def moved(self, name: str, along: np.ndarray, step: float) -> float:
        """The outputs, weighted by their gradients, where an input is moved."""
        arrays = self.arrays | {name: self.arrays[name] + step * along}
        made = run(plan_of(self.forward, self.types, self.extents), arrays)
        return sum(float(np.sum(made[each] * self.arrays[f"d_{each}"])) for each in made)


@pytest.mark.parametrize("name", derivable())
def test_both_have_the_same_values(name):
    declared, derived = Case(name).declared_and_derived()
    for gradient in compared(name):
        same = dict(defined(name).backward.plan_class.operation.same)
        np.testing.assert_allclose(derived[same.get(gradient, gradient)], declared[gradient], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", derivable())
def test_a_derived_gradient_is_the_limit_of_differences(name):
    case = Case(name)
    _, derived = case.declared_and_derived()
    assert derived
    for gradient, found in derived.items():
        operand = gradient.removeprefix("d_")
        along = np.random.default_rng(6).normal(0, 1, case.arrays[operand].shape)
        step = 1e-5
        slope = (case.moved(operand, along, step) - case.moved(operand, along, -step)) / (2 * step)
        assert np.sum(found * along) == pytest.approx(slope, rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_is_one(name):
    reason, operands, *gradients = DIFFERENCES[name]
    declared, derived = Case(name, operands).declared_and_derived()
    first = (gradients or ["d_input"])[0]
    assert not np.array_equal(declared[first], derived[first], equal_nan=True), reason
