"""How a call takes one more axis, which some of its arrays have and over which it is to be mapped (`vmap`).

Where the batch can be the first axis of a leading `*name` dimension, one call does it, with the same bits: no element
of an output depends on other elements along such a dimension. Elsewhere the call is run once for each entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skuda.model.dtypes import DTYPES
from skuda.model.operation import Operation, Types
from skuda.model.records import Record


class Batched(Record):
    """The one call that maps another one.

    Attributes:
        expanded: names of the inputs that have the leading dimension, but no batch axis: they are to be repeated.
        attributes: those of the call, with `axis` meaning the same axes behind the new first one.
    """

    expanded: tuple[str, ...]
    attributes: dict[str, Any]

    @staticmethod
    def shape(shape: Sequence[int] | None, size: int) -> tuple[int, ...] | None:
        """What `shape=` becomes for a batch of some size; None where the call says none."""
        return None if shape is None else (size, *shape)


def batched(
    operation: Operation,
    has_batch: Mapping[str, bool],
    ranks: Mapping[str, int],
    attributes: Mapping[str, Any],
    types: Types,
) -> Batched | None:
    """How a call whose batch is the first axis of some inputs is one call.

    Args:
        operation: what is called, without the optional inputs that the call leaves out.
        has_batch: of each input by name, whether its first axis is the batch.
        ranks: of each operand by name, how many axes it has without the batch, as the arrays travel.
        attributes: of the call that is mapped, which was checked: it may be run without the batch.
        types: the words of the type letters.

    Returns:
        None where the call has to be run for each entry of the batch: an output lacks the leading dimension (`d_weight:
        W[*d]`), an input that lacks it has a batch, elements along it depend on each other, or codes of 4 bits would be
        packed along the batch.
    """
    expanded = repeated(operation, has_batch, ranks, types)
    return None if expanded is None else Batched(expanded, shifted(operation, attributes, ranks))


def repeated(
    operation: Operation, has_batch: Mapping[str, bool], ranks: Mapping[str, int], types: Types
) -> tuple[str, ...] | None:
    """`expanded` of the one call that `batched` describes, whose arguments these are; None where there is none."""
    lead = leading(operation)
    if lead is None:
        return None
    expanded = []
    for operand in operation.operands:
        has_lead = bool(operand.dims) and operand.dims[0].name == lead
        is_input = operand in operation.inputs
        if has_lead and DTYPES[operation.word(operand, types)].packed and not ranks[operand.name]:
            return None
        if not has_lead and (not is_input or has_batch[operand.name]):
            return None
        if has_lead and is_input and not has_batch[operand.name]:
            expanded.append(operand.name)
    return tuple(expanded)


def leading(operation: Operation) -> str | None:
    """The `*name` that is the first dimension of every operand that has it, where elements along it are computed apart;
    None where there is none."""
    first = operation.space[0] if operation.space else None
    if first is None or not first.many or first.name in {whole.partition("/")[0] for whole in operation.analysis.whole}:
        return None
    for operand in operation.operands:
        if any(dim.name == first.name for dim in operand.dims[1:]):
            return None
        if operand.dims and operand.dims[0].name == first.name and operand.dims[0].block is not None:
            return None
    return first.name


def shifted(operation: Operation, attributes: Mapping[str, Any], ranks: Mapping[str, int]) -> dict[str, Any]:
    """The attributes of a call whose arrays get a new first axis: the axes that they name are those behind it."""
    found = dict(attributes)
    placing = operation.axis
    if placing is None:
        return found
    own = [o for o in operation.operands if placing.axis_of in {dim.name for dim in o.dims}]
    rank = ranks[max(own, key=lambda operand: len(operand.dims)).name]
    value = found[placing.name]
    if placing.type == "axis":
        found[placing.name] = int(value) % rank + 1
    elif not rank:  # one value is a row of one element, which no axis of the batch is
        found[placing.name] = ()
    elif value is None:
        found[placing.name] = tuple(range(1, rank + 1))
    else:
        axes = value if isinstance(value, (tuple, list)) else (value,)
        found[placing.name] = tuple(int(axis) % rank + 1 for axis in axes)
    return found
