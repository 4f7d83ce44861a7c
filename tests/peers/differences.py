"""How often other schemes give another result than ours, as Markdown tables. Deterministic.

    python tests/peers/differences.py

Each column of the first table is one million inputs: 256 scales (in the inputs' own type) and zero points,
4096 inputs each, spread evenly over the range of s8 codes, or lying on ties (the input nearest to (k + 1/2) *
scale). Our rule is one IEEE division in f32, round to nearest even, zero point added after. The second table
is torch.lerp on the CPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import torch

import skuda

SCALES, INPUTS = 256, 4096
LOW, HIGH = -128, 127
ELEMENTS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
TORCH = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Sample:
    """Inputs of one column: x[i, :] has scale[i] and zero_point[i]."""

    element: str
    x: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray


def sample(element: str, ties: bool) -> Sample:
    """A column's inputs, the same on every machine."""
    rng = np.random.Generator(np.random.PCG64(20240501 + ties))
    scale = (np.float64(2) ** (rng.random(SCALES) * 8 - 10)).astype(ELEMENTS[element])
    zero_point = rng.integers(-20, 21, SCALES).astype(np.int32)
    if ties:
        steps = rng.integers(-100, 100, (SCALES, INPUTS)) + 0.5
    else:
        steps = rng.random((SCALES, INPUTS)) * 200 - 100
    x = (steps * scale.astype(np.float64)[:, None]).astype(ELEMENTS[element])
    return Sample(element, x, scale, zero_point)


def ours(s: Sample) -> np.ndarray:
    return skuda.quantize_per_token(s.x, s.scale, s.zero_point, dtype="s8")


def _cut(codes: np.ndarray) -> np.ndarray:
    return np.clip(codes, LOW, HIGH).astype(np.int8)


def reciprocal(s: Sample) -> np.ndarray:
    """round(x * (1 / scale)) + zero_point, in f32."""
    inverse = (np.float32(1) / s.scale.astype(np.float32))[:, None]
    return _cut(np.rint(s.x.astype(np.float32) * inverse) + s.zero_point[:, None])


def zero_point_first(s: Sample) -> np.ndarray:
    """round(x / scale + zero_point), in f32."""
    quotient = s.x.astype(np.float32) / s.scale.astype(np.float32)[:, None]
    return _cut(np.rint(quotient + s.zero_point[:, None].astype(np.float32)))


def wide_division(s: Sample) -> np.ndarray:
    """round(x / scale) + zero_point, divided in f64."""
    return _cut(np.rint(s.x.astype(np.float64) / s.scale.astype(np.float64)[:, None]) + s.zero_point[:, None])


def _torch_rows(s: Sample, function: Callable) -> np.ndarray:
    tensor = torch.from_numpy(s.x.astype(np.float32)).to(TORCH[s.element])
    parameters = zip(tensor, s.scale.astype(np.float64).tolist(), s.zero_point.tolist(), strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces the end of its quantized tensors
        return np.stack([function(row, scale, zero_point) for row, scale, zero_point in parameters])


def torch_fake_quantize(s: Sample) -> np.ndarray:
    """The codes in the output of torch.fake_quantize_per_tensor_affine."""

    def codes(row, scale, zero_point):
        output = torch.fake_quantize_per_tensor_affine(row, scale, zero_point, LOW, HIGH)
        return np.rint(output.double().numpy() / scale).astype(np.int64) + zero_point

    return _cut(_torch_rows(s, codes))


def torch_quantize(s: Sample) -> np.ndarray:
    """torch.quantize_per_tensor, which takes f32 only."""
    return _torch_rows(
        s,
        lambda row, scale, zero_point: (
            torch.quantize_per_tensor(row.float(), scale, zero_point, torch.qint8).int_repr().numpy()
        ),
    )


SCHEMES: dict[str, Callable[[Sample], np.ndarray]] = {
    "multiply by the reciprocal: `round(x * (1 / scale)) + zero_point`": reciprocal,
    "zero point before rounding: `round(x / scale + zero_point)`": zero_point_first,
    "division in f64: `round(f64(x) / scale) + zero_point`": wide_division,
    "`torch.fake_quantize_per_tensor_affine`": torch_fake_quantize,
    "`torch.quantize_per_tensor`": torch_quantize,
}
COLUMNS = [(element, ties) for ties in (False, True) for element in ELEMENTS]


def fractions() -> dict[str, list[float]]:
    """Scheme -> the share of codes that differ from ours, one number a column."""
    samples = [sample(*column) for column in COLUMNS]
    codes = [ours(s) for s in samples]
    return {
        name: [float((scheme(s) != own).mean()) for s, own in zip(samples, codes, strict=True)]
        for name, scheme in SCHEMES.items()
    }


def table() -> str:
    """The first table."""
    heads = [f"{element}{', ties' if ties else ''}" for element, ties in COLUMNS]
    rows = [[name, *map(_percent, shares)] for name, shares in fractions().items()]
    return _markdown(["codes that differ", *heads], rows)


WEIGHTS = (0.1, 0.25, 0.3, 0.5, 0.7, 1.0, 2.0)


def lerp_fractions(element: str) -> list[float]:
    """The share of elements in which torch.lerp differs from ours, one number a weight."""
    rng = np.random.Generator(np.random.PCG64(20240503))
    a, b = (2 * rng.random((2, 1 << 18)) - 1).astype(ELEMENTS[element])
    tensors = [torch.from_numpy(each.astype(np.float32)).to(TORCH[element]) for each in (a, b)]
    theirs = [torch.lerp(*tensors, weight).double().numpy() for weight in WEIGHTS]
    own = [skuda.lerp(a, b, weight).astype(np.float64) for weight in WEIGHTS]
    return [float((one != other).mean()) for one, other in zip(own, theirs, strict=True)]


def lerp_table() -> str:
    """The second table."""
    rows = [[element, *map(_percent, lerp_fractions(element))] for element in ELEMENTS]
    return _markdown(["`torch.lerp` differs, weight", *map(str, WEIGHTS)], rows)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def _markdown(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    print(table(), lerp_table(), sep="\n\n")
