"""What a call with several outputs returns: a named tuple, one class an operation."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections import namedtuple

import numpy as np
import pytest

import skuda
from skuda.generated import CATALOG
from skuda.plans.plan import Plan

X = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
SEVERAL = [
    plan
    for module in CATALOG.modules
    for plan in CATALOG.plans(module)
    if len(plan.operation.outputs) > 1 and plan.operation.is_whole
]


def test_outputs_have_names_and_the_order_of_the_row():
    made = skuda.dynamic_quantize_per_token(X)
    scale, output = made
    assert made.scale is scale is made[0]
    assert made.output is output is made[1]
    assert isinstance(made, tuple) and made == (scale, output)
    assert repr(made).startswith("DynamicQuantizePerTokenResults(scale=array(")


def test_a_match_statement_takes_them_by_position_and_by_name():
    match skuda.dynamic_quantize_per_token(X):
        case skuda.DynamicQuantizePerTokenResults(scale, output=codes):
            assert (scale.shape, codes.shape) == ((4,), (4, 8))
        case _:
            pytest.fail("it matches its class")


def test_copies_and_pickles_are_of_the_same_class():
    made = skuda.dynamic_quantize_per_token(X)
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert type(other) is skuda.DynamicQuantizePerTokenResults
        np.testing.assert_array_equal(other.output, made.output)


def test_one_output_is_an_array():
    assert type(skuda.softmax(X)) is np.ndarray
    with pytest.raises(AttributeError, match="has no 'SoftmaxResults'"):
        _ = skuda.SoftmaxResults


def test_what_the_caller_gives_comes_back():
    out = (np.empty(4, np.float32), np.empty((4, 8), np.int8))
    assert skuda.dynamic_quantize_per_token(X, out=out) is out
    made = skuda.dynamic_quantize_per_token(X)
    for _ in range(2):  # what is found for later calls too
        assert skuda.dynamic_quantize_per_token(-X, out=made) is made
    np.testing.assert_array_equal(made.output, skuda.dynamic_quantize_per_token(-X).output)


@pytest.mark.parametrize("plan", SEVERAL, ids=lambda plan: plan.__name__)
def test_a_class_is_a_named_tuple(plan: type[Plan]):
    made, names = plan.results_type, tuple(operand.name for operand in plan.operation.outputs)
    theirs = namedtuple(made.__name__, names)
    values = range(len(names))
    assert made._fields == made.__match_args__ == theirs._fields == names
    assert made(*values) == theirs(*values) == made._make(values) == made(**dict(zip(names, values)))
    assert made(*values)._asdict() == theirs(*values)._asdict()
    assert made(*values)._replace(**{names[1]: 7}) == theirs(*values)._replace(**{names[1]: 7})
    assert repr(made(*values)) == repr(theirs(*values))
    assert made.__bases__ == theirs.__bases__
    assert all(f"{o.name}: {o.signature}" in made.__doc__ for o in plan.operation.outputs)
    assert not hasattr(made(*values), "__dict__")
    assert getattr(skuda, made.__name__) is made
    assert inspect.isclass(made)


def test_a_form_of_a_row_returns_what_the_row_returns():
    with_bias, without = skuda.LayerNormDynamicQuantizePlan, skuda.LayerNormDynamicQuantizeWithoutBiasPlan
    assert with_bias.results_type is without.results_type
    weight = np.ones(8, np.float32)
    assert type(skuda.layer_norm_dynamic_quantize(X, weight)) is with_bias.results_type


@pytest.mark.parametrize("values, named", [((1,), {}), ((1, 2, 3), {}), ((1,), {"scale": 2}), ((1, 2), {"other": 3})])
def test_a_class_refuses_what_does_not_fit(values, named):
    with pytest.raises(TypeError, match="expected one for each of scale, output"):
        skuda.DynamicQuantizePerTokenResults(*values, **named)


def test_the_catalog_has_such_operations():
    assert len(SEVERAL) > 30
