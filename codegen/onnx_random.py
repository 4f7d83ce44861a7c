"""Random numbers as operators of ONNX: `skuda.reference.random` in int64, whose products wrap.

Integers and uniform numbers have the kernels' bits; normal ones are made by ONNX's logarithm and cosine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from skuda.codegen.nodes import Node

_LOWER = 0xFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85


class RandomNumbers:
    """Prints `random_bits`, `random_uniform` and `random_normal`: about 150 operators each."""

    emit: Callable[..., Any]
    cast: Callable[..., Any]
    real: Callable[[float], Any]
    whole: Callable[[int], Any]
    C: Any

    def _and(self, a: Any, mask: int) -> Any:
        return self.emit("BitwiseAnd", a, self.whole(mask))

    def _upper(self, a: Any, bits: int) -> Any:
        """Shifted to the right; zeros come in."""
        value, by = (self.cast(each, np.uint64) for each in (a, self.whole(bits)))
        unsigned = self.emit("BitShift", value, by, direction="RIGHT")
        return self.cast(unsigned, np.int64)

    def _block_of(self, index: Any, bits: int) -> Any:
        """The quotient by a power of two toward minus infinity: what is left is taken away first."""
        rest = self._and(index, (1 << bits) - 1)
        return self.emit("Div", self.emit("Sub", index, rest), self.whole(1 << bits))

    def _words(self, seed: Any, offset: Any, block: Any) -> tuple[Any, ...]:
        halves = [(self._and(each, _LOWER), self._upper(each, 32)) for each in (block, offset, seed)]
        (a, b), (c, d), keys = halves
        for number in range(10):
            left, right = (self.emit("Mul", x, self.whole(by)) for x, by in zip((a, c), _MULTIPLIERS, strict=True))
            own = [
                self._and(self.emit("Add", key, self.whole(number * step)), _LOWER)
                for key, step in zip(keys, _KEY_STEPS, strict=True)
            ]
            a = self._mixed(self._upper(right, 32), b, own[0])
            c = self._mixed(self._upper(left, 32), d, own[1])
            b, d = self._and(right, _LOWER), self._and(left, _LOWER)
        return a, b, c, d

    def _mixed(self, a: Any, b: Any, c: Any) -> Any:
        return self.emit("BitwiseXor", self.emit("BitwiseXor", a, b), c)

    def _is(self, index: Any, mask: int) -> Any:
        """Whether one of some bits is 1."""
        return self.emit("Not", self.emit("Equal", self._and(index, mask), self.whole(0)))

    def random_bits(self, node: Node, seed: Any, offset: Any, index: Any) -> Any:
        words = self._words(seed, offset, self._block_of(index, 2))
        odd, latter = self._is(index, 1), self._is(index, 2)
        pairs = [self.emit("Where", odd, words[at + 1], words[at]) for at in (0, 2)]
        return self.emit("Where", latter, pairs[1], pairs[0])

    def random_uniform(self, node: Node, seed: Any, offset: Any, index: Any) -> Any:
        if np.dtype(self.C) == np.float32:
            upper = self._upper(self.random_bits(node, seed, offset, index), 8)
            return self.emit("Mul", self.cast(upper, self.C), self.real(2.0**-24))
        words, odd = self._words(seed, offset, self._block_of(index, 1)), self._is(index, 1)
        low, high = (self.emit("Where", odd, words[at + 2], words[at]) for at in (0, 1))
        return self.emit("Mul", self.cast(self._upper_53(low, high), self.C), self.real(2.0**-53))

    def _upper_53(self, low: Any, high: Any) -> Any:
        return self.emit("Add", self.emit("Mul", high, self.whole(1 << 21)), self._upper(low, 11))

    def random_normal(self, node: Node, seed: Any, offset: Any, index: Any) -> Any:
        single, odd = np.dtype(self.C) == np.float32, self._is(index, 1)
        first, second, third, fourth = self._words(seed, offset, self._block_of(index, 2 if single else 1))
        if single:
            latter = self._is(index, 2)
            distance = self.cast(self.emit("Where", latter, third, first), self.C)
            angle, bits = self.emit("Where", latter, fourth, second), 32
            share = self.emit("Add", self.emit("Mul", distance, self.real(2.0**-32)), self.real(2.0**-33))
        else:
            share = self.cast(self.emit("Add", self._upper_53(first, second), self.whole(1)), self.C)
            share = self.emit("Mul", share, self.real(2.0**-53))
            angle, bits = self._upper_53(third, fourth), 53
        quarter = self.emit("Where", odd, self.whole(1 << (bits - 2)), self.whole(0))
        angle = self.emit("Sub", angle, quarter)
        turned = self.emit("Mul", self.cast(angle, self.C), self.real(2 * math.pi * 2.0**-bits))
        distance = self.emit("Sqrt", self.emit("Mul", self.emit("Log", share), self.real(-2)))
        return self.emit("Mul", distance, self.emit("Cos", turned))
