"""Schedules of rows that lie beside each other in memory, and that a block or a cluster of blocks holds: stripe.cuh."""

from __future__ import annotations

from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE, Operation, Types
from skuda.model.sku import Layout
from skuda.schedules.variant import CLUSTER_ARCH, Variant

_THREAD_BITS = 64  # of neighbours in memory that a thread takes: it has what passes make of each in registers
_LEAST_BITS = 32  # that are copied to shared memory at once
MOST_STATES = 4  # values that a pass reduces a row to; blocks of a cluster send each other those of all rows
_MOST_SENT = 24  # such values of a row, at most


class StripeVariant(Variant):
    """One schedule of stripes: neighbours in memory, which belong to different rows.

    Attributes:
        blocks: of the cluster that holds a stripe.
        narrow: whether a thread takes half as many rows, where there would be few blocks.
    """

    blocks: int = 1
    narrow: bool = False

    least_arch = CLUSTER_ARCH  # for its shared memory, also where a block is alone

    @property
    def number(self) -> int:
        return self.blocks


_STRIPES = (
    StripeVariant("stripe", Layout.STRIDED, suffix="_narrow", narrow=True),
    *[StripeVariant("stripe", Layout.STRIDED, blocks=blocks) for blocks in (1, 2, 4, 8, 16)],
)


def stripe_lanes(operation: Operation, types: Types, variant: StripeVariant) -> int:
    """Rows that a thread takes; 0 where an element of some input is then too narrow to be copied."""
    full = [operation.bits(operand, types) for operand in operation.read if operand.dims == operation.space]
    lanes = _THREAD_BITS // max(full) // (2 if variant.narrow else 1)
    return lanes if lanes * min(full) >= _LEAST_BITS else 0


def stripe_variants(operation: Operation, types: Types) -> tuple[StripeVariant, ...]:
    """The schedules of stripes that an operation has, the smallest first; none of packed elements."""
    states = operation.analysis.stripes
    if not states or operation.is_packed(types):
        return ()
    sent = [each for each in _STRIPES if each.blocks * states <= _MOST_SENT]
    return tuple([each for each in sent if stripe_lanes(operation, types, each)])


def stripe_state(operation: Operation, types: Types) -> int:
    """Bytes of what a pass reduces a row to, at most."""
    return operation.analysis.stripes * DTYPES[types[COMPUTE]].bits // 8
