"""Records: what a frozen dataclass does, without what its import costs."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle

import pytest

from skuda.generated import LerpArgs
from skuda.model.records import Record


class Point(Record, aside=("label",)):
    x: int
    y: int = 2
    label: str = ""


class Other(Record):
    x: int
    y: int = 2
    label: str = ""


def test_values_and_defaults():
    for point in (Point(1), Point(x=1), Point(1, 2, ""), Point(1, y=2), Point(label="", x=1)):
        assert (point.x, point.y, point.label) == (1, 2, "")


@pytest.mark.parametrize(("values", "named"), [((), {}), ((1, 2, "", 4), {}), ((1,), {"x": 1}), ((1,), {"z": 3})])
def test_values_that_do_not_fit(values, named):
    with pytest.raises(TypeError, match="Point"):
        Point(*values, **named)


def test_equal_by_class_and_fields():
    assert Point(1, 2) == Point(1) != Point(1, 3)
    assert Point(1, label="a") == Point(1, label="b")
    assert len({Point(1, label="a"), Point(1, label="b"), Point(2)}) == 2
    assert Point(1) != Other(1) and Point(1) != (1, 2, "")
    assert repr(Other(1, label="a")) == "Other(x=1, y=2, label='a')"


def test_nothing_can_be_replaced():
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="x"):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="y"):
        del point.y
    assert point == Point(1)


def test_the_functions_for_dataclasses():
    assert dataclasses.replace(Point(1, 3, "a"), x=5).__dict__ == {"x": 5, "y": 3, "label": "a"}
    assert [field.name for field in dataclasses.fields(Point)] == ["x", "y", "label"]
    assert dataclasses.asdict(Point(1)) == {"x": 1, "y": 2, "label": ""}
    args = LerpArgs(1, 2, 0.5, [3])
    assert [field.name for field in dataclasses.fields(args)] == ["a", "b", "weight", "output"]
    assert dataclasses.replace(args, b=4).b == 4


def test_signature():
    assert str(inspect.signature(Point)) == "(x: 'int', y: 'int' = 2, label: 'str' = '')"
    assert str(inspect.signature(LerpArgs)) == "(a, b, weight, output)"


def test_copies():
    for record in (Point(1), LerpArgs(1, 2, 0.5, 3)):
        for made in (copy.copy(record), copy.deepcopy(record)):
            assert type(made) is type(record) and repr(made) == repr(record)
    assert pickle.loads(pickle.dumps(Point(1, 3))) == Point(1, 3)
    args = LerpArgs(1, 2, 0.5, 3)
    assert args != LerpArgs(1, 2, 0.5, 3) and args == args


def test_match():
    match Point(1, 3):
        case Point(x, y):
            assert (x, y) == (1, 3)
