"""Rows drawn at random: formulas with reductions, scans and broadcast operands, and what torch computes for them.

A value of a formula is a tensor with an axis for each of DIMS, of extent 1 where the value does not change along it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import torch
from torch.nn import functional

DIMS = "kmd"
OPERANDS = {"x": "md", "z": "md", "t": "kmd", "a": "kd", "b": "d", "s": "m", "q": "k", "c": ""}
UNARY: dict[str, Callable] = {
    "tanh({0})": torch.tanh, "sigmoid({0})": torch.sigmoid, "sin({0})": torch.sin, "abs({0})": torch.abs,
    "gelu({0})": functional.gelu, "silu({0})": functional.silu, "softplus({0})": functional.softplus,
    "-({0})": torch.neg, "({0} * {0})": torch.square, "max({0}, 0)": torch.relu,
    "exp(tanh({0}))": lambda v: torch.exp(torch.tanh(v)), "sqrt({0} * {0} + 1)": lambda v: torch.sqrt(v * v + 1),
    "log1p({0} * {0})": lambda v: torch.log1p(v * v),
}  # fmt: skip
BINARY: dict[str, Callable] = {
    "({0} + {1})": torch.add, "({0} - {1})": torch.sub, "({0} * {1})": torch.mul, "max({0}, {1})": torch.maximum,
    "({0} / (1 + {1} * {1}))": lambda u, v: u / (1 + v * v),
    "where({0} > {1}, {0}, 2 * {1})": lambda u, v: torch.where(u > v, u, 2 * v),
}  # fmt: skip
REDUCERS: dict[str, Callable] = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin}


@dataclass(frozen=True)
class Formula:
    """Its text, the dimensions that it has, and its value of the values of operands."""

    text: str
    dims: str
    value: Callable[[dict[str, torch.Tensor]], torch.Tensor]


def drawn(rng: Random, depth: int, names: list[str], inside: int = 0) -> Formula:
    """A formula of some operands, within so many reductions."""
    kind = rng.random()
    if depth == 0 or kind < 0.12:
        name = rng.choice(names)
        return Formula(name, OPERANDS[name], lambda operands: operands[name])
    first = drawn(rng, depth - 1, names, inside + (kind >= 0.72))
    if kind < 0.34:
        text, of_one = rng.choice([*UNARY.items()])
        return Formula(text.format(first.text), first.dims, lambda operands: of_one(first.value(operands)))
    if kind < 0.72 or inside > 1 or not first.dims:
        second = drawn(rng, depth - 1, names, inside)
        text, of_two = rng.choice([*BINARY.items()])
        dims = "".join(dim for dim in DIMS if dim in first.dims + second.dims)
        value = lambda operands: of_two(first.value(operands), second.value(operands))  # noqa: E731
        return Formula(text.format(first.text, second.text), dims, value)
    if kind > 0.98:
        along = rng.choice(first.dims)
        value = lambda operands: first.value(operands).cumsum(DIMS.index(along))  # noqa: E731
        return Formula(f"cumsum({first.text}, along={along})", first.dims, value)
    over = rng.sample(first.dims, rng.randint(1, len(first.dims)))
    name, reduced = rng.choice([*REDUCERS.items()])
    axes = [DIMS.index(dim) for dim in over]
    spelled = over[0] if len(over) == 1 else f"({', '.join(over)})"
    left = "".join(dim for dim in first.dims if dim not in over)
    value = lambda operands: reduced(first.value(operands), axes, keepdim=True)  # noqa: E731
    return Formula(f"{name}({first.text}, over={spelled})", left, value)


@dataclass(frozen=True)
class Row:
    """Operands with their dimensions, and a formula for each output."""

    operands: dict[str, str]
    outputs: tuple[Formula, ...]

    @property
    def inputs(self) -> dict[str, str]:
        """`inputs:` of the row."""
        return {name: f"T[{', '.join(dims)}]" for name, dims in self.operands.items()}

    @property
    def formulas(self) -> dict[str, str]:
        """`outputs:` of the row."""
        return {f"y{at}": f"T[{', '.join(each.dims)}] = {each.text}" for at, each in enumerate(self.outputs)}

    def values(self, sizes: dict[str, int], operands: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The outputs as torch computes them."""
        shaped = {
            name: tensor.reshape([sizes[dim] if dim in dims else 1 for dim in DIMS])
            for (name, dims), tensor in zip(self.operands.items(), operands, strict=True)
        }
        return tuple(
            each.value(shaped).expand([sizes[dim] if dim in each.dims else 1 for dim in DIMS])
            .reshape([sizes[dim] for dim in each.dims])
            for each in self.outputs
        )  # fmt: skip


def row(seed: str) -> Row:
    """A row that a seed gives."""
    rng = Random(seed)
    names = rng.sample([*OPERANDS], rng.randint(1, 4))
    outputs = tuple(drawn(rng, rng.randint(2, 4), names) for _ in range(rng.choice((1, 1, 2))))
    words = {word for each in outputs for word in re.findall(r"\w+", each.text)}
    return Row({name: OPERANDS[name] for name in names if name in words}, outputs)
