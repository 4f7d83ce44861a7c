"""What quantizing a weight cost: compare it with what comes back."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from skuda.checkpoints.scheme import Quantized, Scheme
from skuda.checkpoints.weights import widened

# The histogram of errors, in units of scale: bins of 1/51, so that one is centred on 0 and the half that
# bounds an error lies on an edge. What lies outside is counted in the outermost bins.
HISTOGRAM_EDGES = np.arange(-56.5, 57) / 51
_BLOCK = 1 << 20  # elements compared at a time: what a block needs then stays in the processor's cache


@dataclass
class Loss:
    """What one or more weights lost. `+` joins two.

    Attributes:
        signal: sum of the squares of the original values.
        noise: sum of the squares of the errors.
        worst: the largest error of an element in units of its scale. At most 0.5, plus what rounding the
            result to the weight's own type adds: little for f16, for bf16 up to 0.5 with s8 codes, 1 with u8.
        not_finite: NaN and infinite values; they count for nothing else here.
        histogram: elements by error in units of scale, between `HISTOGRAM_EDGES`.
    """

    signal: float = 0.0
    noise: float = 0.0
    worst: float = 0.0
    not_finite: int = 0
    histogram: np.ndarray = field(default_factory=lambda: np.zeros(HISTOGRAM_EDGES.size - 1, np.int64))

    def __add__(self, other: Loss) -> Loss:
        return Loss(
            self.signal + other.signal,
            self.noise + other.noise,
            max(self.worst, other.worst),
            self.not_finite + other.not_finite,
            self.histogram + other.histogram,
        )

    @property
    def snr(self) -> float:
        """Signal-to-noise ratio in decibels: inf if nothing was lost, NaN if there was nothing to lose."""
        if self.signal == 0 or not math.isfinite(self.signal):
            return math.nan
        return 10 * math.log10(self.signal / self.noise) if self.noise else math.inf


def loss(weight: np.ndarray, back: np.ndarray, quantized: Quantized, scheme: Scheme) -> Loss:
    """Compare a weight with what its codes give back, in the type that it computes in.

    Args:
        weight: the original.
        back: the dequantized weight, of the same shape and type.
        quantized: the codes' scales.
        scheme: how the scales lie.
    """
    spread = np.broadcast_to(scheme.spread(quantized.scale, weight.shape), weight.shape)
    rows = max(1, _BLOCK // math.prod(weight.shape[1:]))
    total = Loss()
    for first in range(0, len(weight), rows):
        block = slice(first, first + rows)
        total += _loss(widened(weight[block]), widened(back[block]), spread[block])
    return total


def _loss(values: np.ndarray, back: np.ndarray, scale: np.ndarray) -> Loss:
    finite = np.isfinite(values)
    if not finite.all():
        values, back, scale = values[finite], back[finite], scale[finite]
    error = back - values
    steps = (error / scale).ravel()
    bins = HISTOGRAM_EDGES.size - 1
    index = np.clip((steps - HISTOGRAM_EDGES[0]) * 51, 0, bins - 1).astype(np.int64)
    with np.errstate(over="ignore"):  # the squares of a f64 weight's largest values
        return Loss(
            signal=float(np.sum(np.square(values, dtype=np.float64))),
            noise=float(np.sum(np.square(error, dtype=np.float64))),
            worst=float(np.abs(steps).max(initial=0)),
            not_finite=int(finite.size - np.count_nonzero(finite)),
            histogram=np.bincount(index, minlength=bins),
        )
