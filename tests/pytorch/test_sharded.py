"""Operators on tensors that DTensor splits over two processes: the bits of a call on whole tensors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from operations import of_tensors, plans

from skuda.model.operation import FORM, Operation
from skuda.torch import operator_of

# Whose parts would need something of the others: scales of a whole tensor, states that are joined with what is seen.
WHOLE = (
    "dynamic_quantize_per_tensor", "dynamic_quantize_fp8_per_tensor", "dynamic_quantize_asymmetric_per_tensor",
    "observe_min_max_per_tensor", "observe_absmax_per_tensor", "observe_moving_average_per_tensor",
)  # fmt: skip


def is_whole(operation: Operation) -> bool:
    """Whether no axis may be split: a part knows neither its place among all elements nor how many a mean is of."""
    counted = {dim.name for position in operation.positions for dim in position.dims}
    row = plans()[operation.name.partition(FORM)[0]].operation
    averaged = row.choice is not None and row.choice.default == "mean"
    return operation.name in WHOLE or averaged or counted == {dim.name for dim in operation.space}


@pytest.mark.turns(6)
def test_every_operation_on_two_processes(tmp_path):
    two_processes(tmp_path / "meeting", "cpu")


def two_processes(file: Path, device: str) -> None:
    """Runs sharded_calls.py twice, on the CPU or on a GPU each."""
    program = str(Path(__file__).with_name("sharded_calls.py"))
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    path = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]  # where what the tests share lies
    piped["env"] = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    runs = [subprocess.Popen([sys.executable, program, str(rank), str(file), device], **piped) for rank in range(2)]
    try:
        texts = [run.communicate(timeout=300) for run in runs]
    finally:
        for run in runs:
            run.kill()
    for run, (_, errors) in zip(runs, texts, strict=True):
        assert run.returncode == 0, errors[-3000:]
    ways = dict(line.split() for line in texts[0][0].splitlines() if line.count(" ") == 1)
    assert ways.keys() == of_tensors().keys()
    assert {name for name, count in ways.items() if count == "0"} == {
        name for name, plan in of_tensors().items() if is_whole(plan.operation)
    }


def test_the_cache_of_dtensor_is_told_of_every_attribute():
    """Of each overload, what is no tensor is behind what DTensor keys its cache by."""
    from torch.distributed.tensor import DTensor

    from skuda.torch import shard

    shard()
    infos = DTensor._op_dispatcher.sharding_propagator.op_to_schema_info
    for plan in plans().values():
        for (_, out), overload in operator_of(plan).overloads.items():
            if out:
                continue
            for position, argument in enumerate(overload._schema.arguments):
                if str(argument.type) != "Tensor":
                    assert infos[overload].static_argnum <= position, (overload, argument.name)
