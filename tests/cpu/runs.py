"""Kernels of the CPU beside the reference: the calls of tests/problems.py, byte by byte of the outputs' memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from values import POISON, UNTOUCHED, Case, cases, memory_of, view

from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind, KernelSku
from skuda.schedules import table


def cases_of(sku: KernelSku) -> Iterator[Case]:
    """The cases of GPU kernels of the operation and types: of each way that operands lie one kernel's."""
    own = registry.entry_of(sku)
    seen = set()
    for variant in reversed(table.variants(own.operation, own.types)):
        how = getattr(variant, "mode", variant.kernel), variant.kernel
        if how not in seen:
            seen.add(how)
            yield from cases(registry.make_sku(own.operation, own.types, variant), 2)


def faults(sku: KernelSku) -> Iterator[str]:
    """What is wrong with the runs of a kernel of the CPU."""
    for case in cases_of(sku):
        plan, layouts, filled = case.call.plan(BackendKind.CPU), dict(case.call.layouts), case.problem()
        memory, arrays = {}, {}
        for operand, word in zip(plan.operation.operands, plan.words, strict=True):
            at, storage = layouts.get(operand.name), DTYPES[word].storage
            given = filled.inputs.get(operand.name)
            around = UNTOUCHED if given is None else POISON
            memory[operand.name] = memory_of(at, given, storage, around)
            arrays[operand.name] = view(memory[operand.name], storage, at)
        plan.run(plan.args_type(**arrays))
        assert plan.backend is BackendKind.CPU, "the compiler refused it"
        for operand in plan.operation.outputs:
            found, word = memory[operand.name], plan.words[plan.operation.operands.index(operand)]
            expected = memory_of(
                layouts.get(operand.name), filled.expected[operand.name], DTYPES[word].storage, UNTOUCHED
            )
            wrong = np.flatnonzero(found != expected)
            if len(wrong):
                first = wrong[:5]
                yield (
                    f"{sku.symbol} {dict(case.call.sizes)} {case.call.layouts[0][1]}: {len(wrong)} of {len(found)} "
                    f"bytes of {operand.name} differ, first at {first.tolist()}: {found[first].tolist()}, expected "
                    f"{expected[first].tolist()}"
                )
