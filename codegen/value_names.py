"""What values of a program are called in a generated source, where the spec gives them no name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count

from skuda.codegen.nodes import Node, Replaced
from skuda.codegen.reductions import COUNT
from skuda.model.operation import COUNTED

_WORDS = {"+": "sum", "-": "difference", "*": "product", "/": "quotient", "neg": "negative", "stored": "rounded"}
_WORDS |= {"where": "chosen", "exp": "exponential", "log": "logarithm"}


def default_name(op: str) -> str:
    """The field's word for the value of an operator, an intrinsic or a reduction (`LargestMagnitude`)."""
    return _WORDS.get(op) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", op).lower()


class UniqueNames:
    """Gives each value a name that no other has: `sum`, then `sum_2`.

    Args:
        taken: names that none may have.
    """

    def __init__(self, taken: Iterable[str] = ()):
        self._taken = {*taken}

    def new(self, stem: str) -> str:
        """The name, or the name with the first number that is free."""
        names = (stem if number == 1 else f"{stem}_{number}" for number in count(1))
        name = next(name for name in names if name not in self._taken)
        self._taken.add(name)
        return name


def with_members(members: Mapping[str, str], length: Node, over: str = "") -> Replaced:
    """Makes values in which some names are those of members (`shared.scale`), and a number of elements is `length`; of
    rows along `over`, that of anything else is a member."""

    def member(each: Node) -> Node | None:
        if each.op == COUNT:
            return length if each.text == over else replace(length, text=members.get(COUNTED, length.text))
        return replace(each, text=members[each.text]) if each.op == "name" and each.text in members else None

    return Replaced(member)


def functions_in(texts: Iterable[str]) -> set[str]:
    """The names of functions that some C++ calls."""
    return {name for text in texts for name in re.findall(r"[a-z_]\w*(?=[(<])", text)}
