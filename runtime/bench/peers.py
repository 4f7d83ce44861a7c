"""The other libraries: each is imported when it is first measured; its column says so where it is missing."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from skuda.bench.shapes import BATCH, DECODE, LARGE, MISALIGNED, NARROW, ODD, TRANSPOSED, Layout
from skuda.bench.suite import Case

if TYPE_CHECKING:
    from skuda.bench.problem import Problem

_COMPILED_OPERATIONS = {
    f"{name}_per_{granularity}"
    for name in ("quantize", "dequantize", "fake_quantize")
    for granularity in ("token", "tensor")
} | {"lerp"}
_COMPILED_ELEMENTS = ("f16", "bf16", "f32")
_COMPILED_REDUCTIONS = {
    "dynamic_quantize_per_token", "dynamic_quantize_per_group", "dynamic_quantize_per_tensor",
    "dynamic_quantize_per_channel", "rms_norm", "layer_norm", "softmax", "softmax_backward", "rms_norm_backward",
    "layer_norm_backward", "rms_norm_dynamic_quantize", "add_rms_norm_dynamic_quantize", "layer_norm_dynamic_quantize",
    "silu_mul_dynamic_quantize", "gelu_dynamic_quantize", "softmax_dynamic_quantize", "sum",
}  # fmt: skip
_COMPILED_SHAPES = {DECODE, LARGE, ODD}
_COMPILED_ONCE = {BATCH, NARROW, MISALIGNED, TRANSPOSED}  # of elementwise operations, at the first element type alone


@dataclass(frozen=True)
class Peer:
    """One library's way to do what a row does.

    Attributes:
        name: heading of its column.
        modules: what it needs.
        prepare: from a problem to a call that enqueues the work and returns what it computes (a tensor, or a
            tuple), or None where it has none for this row.
    """

    name: str
    modules: tuple[str, ...]
    prepare: Callable[[Problem], Callable[[], object] | None]

    def absent(self) -> str | None:
        """Why it cannot be measured, or None."""
        for module in self.modules:
            try:
                importlib.import_module(module)
            except ImportError:
                return f"no {module}"
        if "torch" in self.modules and not importlib.import_module("torch").cuda.is_available():
            return "torch has no CUDA"
        return None

    def version(self) -> str:
        """Of its last module, `torch 2.11.0`."""
        module = self.modules[-1]
        loaded = importlib.import_module(module)
        said = getattr(loaded, "__version__", None)
        return f"{module} {said or metadata.version(module.replace('_', '-'))}"


def _eager(problem: Problem) -> Callable[[], object] | None:
    from skuda.bench import formulas
    from skuda.bench.tensors import tensors_of

    found = formulas.composed(problem, tensors_of(problem))
    if found is None:
        return formulas.few(problem)
    function, arguments = found
    return lambda: function(*arguments)


def is_compiled(case: Case, quick: bool = False) -> bool:
    """Whether torch.compile is measured in a row: it takes seconds to compile each, so only some are."""
    shapes = _COMPILED_SHAPES
    if case.operation.reduces:
        named, elements = case.operation.function in _COMPILED_REDUCTIONS, ("f16",)
    else:
        named, elements = case.operation.function in _COMPILED_OPERATIONS, _COMPILED_ELEMENTS
        if case.element == elements[0]:
            shapes = _COMPILED_SHAPES | _COMPILED_ONCE
    return (
        named
        and case.element in (elements[:1] if quick else elements)
        and case.shape in shapes
        and (not quick or case.shape != DECODE)
    )


def _compiled(problem: Problem) -> Callable[[], object] | None:
    import torch

    from skuda.bench import formulas
    from skuda.bench.tensors import tensors_of

    found = formulas.composed(problem, tensors_of(problem))
    if found is None:
        return None
    torch._dynamo.reset()  # each row is a program of its own, with its sizes known
    function, arguments = found
    compiled = torch.compile(function, dynamic=False)
    return lambda: compiled(*arguments)


# Triton's kernels, and Liger's, compute in f32 whatever the elements are: they are no peers of f64.
_IN_F32 = "f32", "f16", "bf16"


def _triton(problem: Problem) -> Callable[[], object] | None:
    case = problem.case
    serves = (
        len(case.shape.extents) == 2
        and case.shape.layout is not Layout.TRANSPOSED
        and case.element in _IN_F32
    )
    if not serves:
        return None
    if case.operation.reduces:
        return _triton_rows(problem)
    if case.operation.function != "quantize_per_token":
        return None
    import torch

    from skuda.bench.tensors import tensors_of
    from skuda.bench.triton_quantize import quantize_per_token

    tensors = tensors_of(problem)
    out = torch.empty_like(tensors["output"])
    arguments = (tensors["input"], tensors["scale"], tensors["zero_point"], out, problem.q_min, problem.q_max)

    def call():
        quantize_per_token(*arguments)
        return out

    return call


def _triton_rows(problem: Problem) -> Callable[[], object] | None:
    from skuda.bench import triton_rows
    from skuda.bench.tensors import tensors_of

    case = problem.case
    if case.row_length > triton_rows.MOST:
        return None
    tensors, eps = tensors_of(problem), case.default("eps")
    return triton_rows.call_of(case.operation.function, tensors, eps, problem.q_min, problem.q_max)


def _liger(problem: Problem) -> Callable[[], object] | None:
    case = problem.case
    if len(case.shape.extents) != 2 or case.shape.layout is not Layout.CONTIGUOUS or case.attributes.get("axis") == 0:
        return None
    if case.element not in _IN_F32:
        return None
    from skuda.bench import liger_rows
    from skuda.bench.tensors import tensors_of

    return liger_rows.call_of(case.operation.function, tensors_of(problem), case.default("eps"))


def _native(problem: Problem) -> Callable[[], object] | None:
    from skuda.bench import formulas

    return formulas.native(problem)


EAGER, COMPILE, NATIVE, TRITON, LIGER = "torch eager", "torch.compile", "torch's own", "Triton", "Liger"

PEERS = (
    Peer(EAGER, ("torch",), _eager),
    Peer(COMPILE, ("torch",), _compiled),
    Peer(NATIVE, ("torch",), _native),
    Peer(TRITON, ("torch", "triton"), _triton),
    Peer(LIGER, ("torch", "triton", "liger_kernel"), _liger),
)


def peers_of(case: Case, quick: bool) -> Iterator[Peer]:
    """The peers to ask in a row."""
    for peer in PEERS:
        if peer.name != COMPILE or is_compiled(case, quick):
            yield peer
