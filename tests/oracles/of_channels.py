"""The oracles of norms that have a weight and a bias for each channel: of instances, groups and batches."""

from __future__ import annotations

from collections.abc import Sequence

from . import rows, spans
from .binding import oracle
from .floats import FORMATS, compute_format, decode, integer
from .spans import Span, point


def _points(values: Sequence[int], element: str) -> list[Span]:
    return [point(decode(each, FORMATS[element])) for each in values]


def _parameter(bits: int | None, W: str) -> Span | None:
    return None if bits is None else _points([bits], W)[0]


def _weighted(values: Sequence[Span], weight: Span | None, bias: Span | None, form) -> list[Span]:
    """Each value times the weight plus the bias, of which one may be absent."""
    found = [each if weight is None else spans.multiply(each, weight, form) for each in values]
    return [each if bias is None else spans.add(each, bias, form) for each in found]


def _split(values: Sequence, count: int) -> list[list]:
    """In so many parts of one length."""
    size = len(values) // count if count else 0
    return [[*values[index * size : (index + 1) * size]] for index in range(count)]


def _joined(parts: Sequence[Sequence]) -> list:
    return [each for part in parts for each in part]


# ---- of instances and groups: the rows of a call are those of samples ----


@oracle(over="d")
def instance_norm(input, weight=None, bias=None, *, eps, T, W=""):
    normal = rows.standardize(input, eps, element=T)
    return _weighted(normal, _parameter(weight, W), _parameter(bias, W), compute_format(T))


@oracle(over=("c", "d"))
def group_norm(input, weight=None, bias=None, *, eps, T, W=""):
    normal = _split(rows.standardize(_joined(input), eps, element=T), len(input))
    absent = [None] * len(input)
    parameters = zip(normal, weight or absent, bias or absent, strict=True)
    return [_weighted(x, _parameter(w, W), _parameter(b, W), compute_format(T)) for x, w, b in parameters]


def _instance_norm_backward(d_output, input, weight, eps, T, W) -> tuple[list, Span, Span]:
    """(of the input, of the weight, of the bias): the gradient of each standardized row, times the weight; the sum of
    dy * h along each row and then over these, h being the standardized row, and that of dy."""
    form = compute_format(T)
    of_input, of_weight, of_bias = [], [], []
    for gradient, row in zip(d_output, input, strict=True):
        dy = _points(gradient, T)
        slope, h = rows.standardized_gradient(dy, _points(row, T), eps, form)
        of_input.append(_weighted(slope, _parameter(weight, W), None, form))
        of_weight.append(spans.total(_products(dy, h, form), form))
        of_bias.append(spans.total(dy, form))
    return of_input, spans.total(of_weight, form), spans.total(of_bias, form)


def _group_norm_backward(d_output, input, weight, eps, T, W) -> tuple[list, list[Span], list[Span]]:
    """The same of groups, with g = dy * weight: r * (g - mean(g) - h * mean(g * h)), with r the inverse deviation of a
    group, h the group standardized, and means over it."""
    form = compute_format(T)
    channels = len(input[0]) if input else 0
    weights = [_parameter(each, W) for each in weight or [None] * channels]
    of_input, products, gradients = [], [[] for _ in range(channels)], [[] for _ in range(channels)]
    for gradient, group in zip(d_output, input, strict=True):
        dy = [_points(each, T) for each in gradient]
        weighted = _joined([_weighted(each, w, None, form) for each, w in zip(dy, weights, strict=True)])
        slope, h = rows.normal_gradient(weighted, _points(_joined(group), T), eps, form)
        of_input.append(_split(slope, channels))
        for index, (own, part) in enumerate(zip(dy, _split(h, channels), strict=True)):
            products[index].append(spans.total(_products(own, part, form), form))
            gradients[index].append(spans.total(own, form))
    return of_input, *([spans.total(each, form) for each in sums] for sums in (products, gradients))


def _products(a: Sequence[Span], b: Sequence[Span], form) -> list[Span]:
    return [spans.multiply(*pair, form) for pair in zip(a, b, strict=True)]


def _mean(values: Sequence[Span], form) -> Span:
    return spans.divide(spans.total(values, form), point(integer(len(values), form)), form)


# ---- of batches: a call is about a channel ----


@oracle(over=("outer", "inner"))
def batch_norm(input, running_mean, running_var, weight=None, bias=None, *, eps, T, W=""):
    normal = _split(_of_statistics(_joined(input), running_mean, running_var, eps, T)[0], len(input))
    return [_weighted(each, _parameter(weight, W), _parameter(bias, W), compute_format(T)) for each in normal]


def _of_statistics(values: Sequence[int], mean: int, variance: int, eps: int, T: str) -> tuple[list[Span], Span]:
    """(x - mean) * r of elements, and r = 1 / sqrt(variance + eps)."""
    form = compute_format(T)
    mean, variance, eps = (point(decode(each, form)) for each in (mean, variance, eps))
    r = spans.divide(point(integer(1, form)), spans.sqrt(spans.add(variance, eps, form), form), form)
    return [spans.multiply(spans.subtract(each, mean, form), r, form) for each in _points(values, T)], r


@oracle(over=("outer", "inner"))
def batch_norm_training(input, running_mean, running_var, weight=None, bias=None, *, momentum, eps, T, W=""):
    """(the output, the mean, the variance, each statistic moved by the momentum): the running mean to the mean as the
    sum gives it, the running variance to the variance whose divisor is one less."""
    form, values = compute_format(T), _joined(input)
    mean = rows.middle(_points(values, T), form)
    squares = rows.squared_deviations(_points(values, T), form)
    variance, unbiased = (spans.divide(squares, point(integer(max(len(values) - k, 0), form)), form) for k in (0, 1))
    deviation = spans.sqrt(spans.add(variance, point(decode(eps, form)), form), form)
    inverse = spans.divide(point(integer(1, form)), deviation, form)
    normal = [spans.multiply(each, inverse, form) for each in rows.centered(_points(values, T), form)]
    output = _weighted(normal, _parameter(weight, W), _parameter(bias, W), form)
    moved = [
        _moved(*(point(decode(each, form)) for each in (state, momentum)), seen, form)
        for state, seen in ((running_mean, _mean(_points(values, T), form)), (running_var, unbiased))
    ]
    return _split(output, len(input)), mean, variance, *moved


def _moved(state: Span, momentum: Span, seen: Span, form) -> Span:
    """state + momentum * (seen - state); what was seen where the state is not finite, the state where that is not."""
    if seen is spans.ANY or not (seen.finite or seen.exact):
        return spans.ANY
    if not seen.finite or not state.finite:
        return seen if seen.finite else state
    return spans.add(state, spans.multiply(momentum, spans.subtract(seen, state, form), form), form)


def _batch_norm_backward(d_output, input, running_mean, running_var, weight, eps, T, W) -> tuple[list, Span, Span]:
    form, dy = compute_format(T), _points(_joined(d_output), T)
    h, r = _of_statistics(_joined(input), running_mean, running_var, eps, T)
    of_input = _weighted([spans.multiply(each, r, form) for each in dy], _parameter(weight, W), None, form)
    products = _products(dy, h, form)
    return _split(of_input, len(input)), spans.total(products, form), spans.total(dy, form)


def _batch_norm_training_backward(d_output, input, mean, variance, weight, eps, T, W) -> tuple[list, Span, Span]:
    """With the statistics that were stored."""
    form, dy = compute_format(T), _points(_joined(d_output), T)
    h, r = _of_statistics(_joined(input), mean, variance, eps, T)
    of_input = _weighted(rows.gradient_of_standardized(dy, h, r, form), _parameter(weight, W), None, form)
    products = _products(dy, h, form)
    return _split(of_input, len(input)), spans.total(products, form), spans.total(dy, form)


# ---- the gradients, with those of the weight and the bias where there are these ----


@oracle(over=("n", "d"))
def instance_norm_backward(d_output, input, weight, *, eps, T, W):
    return _instance_norm_backward(d_output, input, weight, eps, T, W)


@oracle(over=("n", "d"))
def instance_norm_without_bias_backward(d_output, input, weight, *, eps, T, W):
    return _instance_norm_backward(d_output, input, weight, eps, T, W)[:2]


@oracle(over=("n", "d"))
def instance_norm_without_weight_and_bias_backward(d_output, input, *, eps, T):
    return _instance_norm_backward(d_output, input, None, eps, T, "")[0]


@oracle(over=("n", "c", "d"))
def group_norm_backward(d_output, input, weight, *, eps, T, W):
    return _group_norm_backward(d_output, input, weight, eps, T, W)


@oracle(over=("n", "c", "d"))
def group_norm_without_bias_backward(d_output, input, weight, *, eps, T, W):
    return _group_norm_backward(d_output, input, weight, eps, T, W)[:2]


@oracle(over=("n", "c", "d"))
def group_norm_without_weight_and_bias_backward(d_output, input, *, eps, T):
    return _group_norm_backward(d_output, input, None, eps, T, "")[0]


@oracle(over=("outer", "inner"))
def batch_norm_backward(d_output, input, running_mean, running_var, weight, *, eps, T, W):
    return _batch_norm_backward(d_output, input, running_mean, running_var, weight, eps, T, W)


@oracle(over=("outer", "inner"))
def batch_norm_without_bias_backward(d_output, input, running_mean, running_var, weight, *, eps, T, W):
    return _batch_norm_backward(d_output, input, running_mean, running_var, weight, eps, T, W)[:2]


@oracle(over=("outer", "inner"))
def batch_norm_without_weight_and_bias_backward(d_output, running_var, *, eps, T):
    none = [[0] * len(each) for each in d_output]
    return _batch_norm_backward(d_output, none, 0, running_var, None, eps, T, "")[0]


@oracle(over=("outer", "inner"))
def batch_norm_training_backward(d_output, input, mean, variance, weight, *, eps, T, W):
    return _batch_norm_training_backward(d_output, input, mean, variance, weight, eps, T, W)


@oracle(over=("outer", "inner"))
def batch_norm_training_without_bias_backward(d_output, input, mean, variance, weight, *, eps, T, W):
    return _batch_norm_training_backward(d_output, input, mean, variance, weight, eps, T, W)[:2]


@oracle(over=("outer", "inner"))
def batch_norm_training_without_weight_and_bias_backward(d_output, input, mean, variance, *, eps, T):
    return _batch_norm_training_backward(d_output, input, mean, variance, None, eps, T, "")[0]
