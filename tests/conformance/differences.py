"""Slopes of an operation's oracle: differences of what it gives in 113 bits, which share no code with the operation.

An oracle takes operands of any binary format. In one that is wider than f64 it tells neighbours of f64 apart, so that
differences of the fourth order at a step of 2^-24 give its slope to about 2^-70.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from oracles import binding
from oracles.binding import Problem
from oracles.floats import F128, decode, encode_fraction
from oracles.spans import ANY

STEP = Fraction(1, 1 << 24)
WORD = F128.word


def _exactly(value) -> Fraction:
    return value if isinstance(value, Fraction) else Fraction(float(value))


class OfOracle:
    """The forward pass of an operation, as its oracle has it.

    Args:
        plan: in f64, and integers.
        reduction: what of its elements an operation gives ("none", "mean" or "sum", or empty), and the dimensions of
            these.
    """

    def __init__(self, plan, reduction: tuple[str, tuple]):
        self.plan, operation = plan, plan.operation
        self.asked = binding.find(operation.function)
        dims = {dim.name: dim for dim in (*operation.space, *operation.dims)}
        signatures = [{o.name: tuple((dim.name, dim.block) for dim in o.dims) for o in operands}
                      for operands in (operation.inputs, operation.outputs)]  # fmt: skip
        how, elements = reduction
        self.problem = Problem(
            {name: int(np.prod(plan.sizes[name], dtype=np.int64)) for name in dims}, {}, *signatures, how=how,
            elements=elements,
        )  # fmt: skip
        self.problem.types = {letter: WORD if word == "f64" else word for letter, word in plan.types.items()}
        self.floats = {o.name for o, word in zip(operation.inputs, plan.words, strict=False) if word == "f64"}
        for attribute in operation.attributes:
            if not attribute.names_axes and not operation.hands_on(attribute):
                value = plan.attributes[attribute.name]
                real = isinstance(value, float)
                self.problem.values[attribute.name] = encode_fraction(Fraction(value), F128) if real else value

    def __call__(self, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs, exactly as fractions, of operands that are floats, integers or fractions."""
        problem = self.problem
        for name, values in given.items():
            flat = np.asarray(values).reshape(-1).tolist()
            real = name in self.floats
            problem.values[name] = [encode_fraction(_exactly(each), F128) if real else int(each) for each in flat]
        problem.stored = {name: [encode_fraction(0, F128)] * problem.count(name) for name in problem.outputs}
        found = {}
        shapes = self.plan.shapes[len(self.plan.operation.inputs) :]
        for (name, results), shape in zip(binding.expected(self.asked, problem).items(), shapes, strict=True):
            assert ANY not in results, f"the oracle of {self.plan.operation.function} says nothing here"
            found[name] = np.array([_middle(each) for each in results], object).reshape(shape)
        return found

    def slope(self, given: Mapping[str, np.ndarray], weights: Mapping[str, np.ndarray], name: str, along: np.ndarray):
        """How the outputs, weighted, change where an operand is moved along a direction."""

        def moved(steps: int) -> Fraction:
            exact = np.vectorize(_exactly, otypes=[object])(given[name])
            results = self({**given, name: exact + steps * STEP * np.vectorize(_exactly, otypes=[object])(along)})
            return sum(
                (value * _exactly(weight) for key, each in weights.items()
                 for value, weight in zip(results[key].reshape(-1), np.reshape(each, -1), strict=True)), Fraction(0)
            )  # fmt: skip

        return (8 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / (12 * STEP)


def _middle(result) -> Fraction:
    """What an oracle gives, a span or a bit pattern, as a number."""
    if isinstance(result, int):
        return decode(result, F128).signed
    return (result.low.signed + result.high.signed) / 2
