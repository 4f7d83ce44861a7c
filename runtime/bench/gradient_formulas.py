"""Gradients as a torch user writes them, from values in the compute type to such."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch

from skuda.bench.problem import Problem
from skuda.bench.suite import Case

Formula = Callable[..., object]


def _mean(x: torch.Tensor) -> torch.Tensor:
    return x.mean(-1, keepdim=True)


def _over_rows(x: torch.Tensor) -> torch.Tensor:
    """A sum over all axes but the last, as the gradient of a weight is."""
    return x.flatten(0, -2).sum(0)


# ---- normalizations ----


def _rms_gradient(x: torch.Tensor, g: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return r * (g - x * (r * r * _mean(g * x)))


def _rms_norm(problem: Problem) -> Formula:
    eps = problem.case.default("eps")

    def backward(g, x, weight):
        r = torch.rsqrt(_mean(x.square()) + eps)
        return _rms_gradient(x, g * weight, r), _over_rows(g * (x * r))

    return backward


def _rms_normalize(problem: Problem) -> Formula:
    eps = problem.case.default("eps")
    return lambda g, x: _rms_gradient(x, g, torch.rsqrt(_mean(x.square()) + eps))


def _add_rms_norm(problem: Problem) -> Formula:
    rms_norm = _rms_norm(problem)

    def backward(of_total, g, weight, total):
        d_input, d_weight = rms_norm(g, total, weight)
        return of_total + d_input, d_weight

    return backward


def _standardized(x: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    centered = x - _mean(x)
    r = torch.rsqrt(_mean(centered.square()) + eps)
    return centered * r, r


def _standardized_gradient(h: torch.Tensor, g: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return r * (g - _mean(g) - h * _mean(g * h))


def _layer_norm(problem: Problem) -> Formula:
    eps = problem.case.default("eps")

    def backward(g, x, weight):
        h, r = _standardized(x, eps)
        return _standardized_gradient(h, g * weight, r), _over_rows(g * h), _over_rows(g)

    return backward


def _standardize(problem: Problem) -> Formula:
    eps = problem.case.default("eps")

    def backward(g, x):
        h, r = _standardized(x, eps)
        return _standardized_gradient(h, g, r)

    return backward


def _l2_normalize(problem: Problem) -> Formula:
    eps = problem.case.default("eps")

    def backward(g, x):
        norm = x.square().sum(-1, keepdim=True).sqrt()
        return torch.where(norm > eps, (g - x * ((g * x).sum(-1, keepdim=True) / norm / norm)) / norm, g / eps)

    return backward


# ---- softmax ----


def _softmax(problem: Problem) -> Formula:
    return lambda g, y: y * (g - (g * y).sum(-1, keepdim=True))


def _log_softmax(problem: Problem) -> Formula:
    return lambda g, y: g - y.exp() * g.sum(-1, keepdim=True)


# ---- reductions ----


def _sum(problem: Problem) -> Formula:
    """Written out, which autograd does not do: what it hands on has strides of 0."""
    return lambda g: g.expand(problem.case.extents).contiguous()


def _mean_of(problem: Problem) -> Formula:
    spread = _sum(problem)
    count = prod(problem.case.extents[axis] for axis in _reduced(problem.case))
    return lambda g: spread(g / count)


def _reduced(case: Case) -> list[int]:
    """The axes that the gradient's operation reduces, whose own formula may reduce nothing."""
    return [axis for axis, _ in enumerate(case.extents) if axis not in case.axes_of(case.operation.inputs[0])]


def _prod(problem: Problem) -> Formula:
    (axis,) = problem.case.reduced

    def backward(g, x, y):
        zero = x == 0
        others = torch.where(zero, 1, x)
        alone = zero.sum(axis, keepdim=True) == zero
        return g * torch.where(alone, others.prod(axis, keepdim=True) / others, y)

    return backward


def _extreme(problem: Problem) -> Formula:
    axes = problem.case.reduced

    def backward(g, x, y):
        here = x == y
        return torch.where(here, g, 0) / here.sum(axes, keepdim=True)

    return backward


def _slope(case: Case) -> float:
    """The gradient of the variance, as a multiple of an element less its mean."""
    return 2 / (prod(case.extents[axis] for axis in case.reduced) - case.default("correction"))


def _var(problem: Problem) -> Formula:
    axes, slope = problem.case.reduced, _slope(problem.case)
    return lambda g, x: (x - x.mean(axes, keepdim=True)) * (g * slope)


def _std(problem: Problem) -> Formula:
    axes, slope = problem.case.reduced, _slope(problem.case)
    return lambda g, x, y: torch.where(y == 0, 0, (x - x.mean(axes, keepdim=True)) * (g / y * (slope / 2)))


# ---- learnable fake-quantization ----


def _learnable_fake_quantize(problem: Problem) -> Formula:
    low, high, axes = problem.q_min, problem.q_max, problem.case.reduced
    factor = problem.case.default("grad_factor")

    def backward(g, x, s, z):
        z = min(max(round(z), low), high) if isinstance(z, float) else z.round().clamp(low, high)
        quotient = x / s
        codes = quotient.round() + z
        within = (codes >= low) & (codes <= high)
        slope = torch.where(within, codes - z - quotient, codes.clamp(low, high) - z)
        d_zero_point = torch.where(within, 0, g * -s).sum(axes)
        return torch.where(within, g, 0), (g * slope).sum(axes) * factor, d_zero_point * factor

    return backward


MAKERS: dict[str, Callable[[Problem], Formula]] = {
    "learnable_fake_quantize_backward": _learnable_fake_quantize,
    "rms_norm_backward": _rms_norm,
    "rms_normalize_backward": _rms_normalize,
    "add_rms_norm_backward": _add_rms_norm,
    "layer_norm_backward": _layer_norm,
    "standardize_backward": _standardize,
    "l2_normalize_backward": _l2_normalize,
    "softmax_backward": _softmax,
    "log_softmax_backward": _log_softmax,
    "sum_backward": _sum,
    "mean_backward": _mean_of,
    "prod_backward": _prod,
    "amax_backward": _extreme,
    "amin_backward": _extreme,
    "var_backward": _var,
    "std_backward": _std,
    "norm1_backward": lambda problem: lambda g, x: g * x.sign(),
    "norm2_backward": lambda problem: lambda g, x, y: torch.where(y == 0, 0, x * (g / y)),
    "logsumexp_backward": lambda problem: lambda g, x, y: g * torch.exp(x - y),
}
