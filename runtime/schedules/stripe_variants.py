"""Schedules of rows that lie beside each other in memory, and that a block or a cluster of blocks holds: stripe.cuh."""

from __future__ import annotations

from skuda.model.dtypes import DTYPES
from skuda.model.operation import Operation, Types
from skuda.model.sku import Layout
from skuda.schedules.variant import CLUSTER_ARCH, Variant

_MOST_LANES = 4  # rows that a thread takes: it has what a pass makes of each in registers
_LEAST_BITS = 32  # that are copied to shared memory at once


class StripeVariant(Variant):
    """One schedule of stripes: neighbours in memory, which belong to different rows.

    Attributes:
        blocks: of the cluster that holds a stripe.
    """

    blocks: int = 1

    least_arch = CLUSTER_ARCH  # for its shared memory, also where a block is alone

    @property
    def number(self) -> int:
        return self.blocks


_STRIPES = tuple([StripeVariant("stripe", Layout.STRIDED, blocks=blocks) for blocks in (1, 4, 8, 16)])


def stripe_lanes(operation: Operation, types: Types) -> int:
    """Rows that a thread takes: 16 bytes of the widest element, at most; 0 where an element of another operand is then
    too narrow to be copied."""
    full = [operation.bits(operand, types) for operand in operation.read if operand.dims == operation.space]
    lanes = min(_MOST_LANES, 128 // max(full))
    return lanes if lanes * min(full) >= _LEAST_BITS else 0


def stripe_variants(operation: Operation, types: Types) -> tuple[StripeVariant, ...]:
    """The schedules of stripes that an operation has, the smallest first; none of packed elements."""
    if not operation.analysis.stripes or operation.is_packed(types) or not stripe_lanes(operation, types):
        return ()
    return _STRIPES


def stripe_state(operation: Operation, types: Types) -> int:
    """Bytes of what a pass reduces a row to, at most."""
    return operation.analysis.stripes * DTYPES[types["C"]].bits // 8
