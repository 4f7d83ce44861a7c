"""The oracles of operations whose formulas know the position of an element: triangles, masked rows, labels."""

from __future__ import annotations

from collections.abc import Sequence

from . import spans
from .binding import oracle
from .floats import FORMATS, NAN, Format, compute_format, decode, encode, integer
from .of_data import wrapped
from .spans import Span, point


def _stored(element: int, word: str) -> int:
    """An element after it was widened and stored again."""
    return encode(decode(element, FORMATS[word]), FORMATS[word]) if word in FORMATS else wrapped(element, word)


def _triangle(table: Sequence[Sequence[int]], kept, word: str) -> list[list[int]]:
    return [[_stored(each, word) if kept(c - r) else 0 for c, each in enumerate(row)] for r, row in enumerate(table)]


@oracle(over=("r", "c"))
def tril(input, diagonal, *, T):
    return _triangle(input, lambda above: above <= diagonal, T)


@oracle(over=("r", "c"))
def tril_backward(d_output, diagonal, *, T):
    return _triangle(d_output, lambda above: above <= diagonal, T)


@oracle(over=("r", "c"))
def triu(input, diagonal, *, T):
    return _triangle(input, lambda above: above >= diagonal, T)


@oracle(over=("r", "c"))
def triu_backward(d_output, diagonal, *, T):
    return _triangle(d_output, lambda above: above >= diagonal, T)


# ---- softmax of some elements of a row ----


def _points(row: Sequence[int], word: str) -> list[Span]:
    return [point(decode(each, FORMATS[word])) for each in row]


def _whole(number: int, form: Format) -> Span:
    return point(integer(number, form))


def _softmax(row: Sequence[int], seen: Sequence[bool], scale: int, word: str) -> list[Span]:
    """e^(x scale - max) / sum, of the elements that are seen; 0 of the others."""
    form = compute_format(word)
    zero, by = _whole(0, form), point(decode(scale, form))
    values = [spans.multiply(x, by, form) for x in _points(row, word)]
    if not any(seen):
        return [zero] * len(row)
    highest = spans.largest([x for x, each in zip(values, seen, strict=True) if each])
    raised = [
        spans.exp(spans.subtract(x, highest, form), form) if each else zero
        for x, each in zip(values, seen, strict=True)
    ]
    share = spans.divide(_whole(1, form), spans.total(raised, form), form)
    return [spans.multiply(each, share, form) for each in raised]


def _softmax_gradient(g: Sequence[int], y: Sequence[int], seen: Sequence[bool], scale: int, word: str) -> list[Span]:
    """y (g - sum(y g)) scale, of the elements that are seen; 0 of the others."""
    form = compute_format(word)
    zero, by = _whole(0, form), point(decode(scale, form))
    g, y = _points(g, word), _points(y, word)
    products = [
        spans.multiply(a, b, form) if each else zero for a, b, each in zip(y, g, seen, strict=True)
    ]
    total = spans.total(products, form)
    return [
        spans.multiply(spans.multiply(a, spans.subtract(b, total, form), form) if each else zero, by, form)
        for a, b, each in zip(y, g, seen, strict=True)
    ]


def _window(q: int, keys: int, diagonal: int, window: int) -> list[bool]:
    return [diagonal - window < k - q <= diagonal for k in range(keys)]


@oracle(over=("q", "k"))
def causal_softmax(input, diagonal, window, scale, *, T):
    return [_softmax(row, _window(q, len(row), diagonal, window), scale, T) for q, row in enumerate(input)]


@oracle(over=("q", "k"))
def causal_softmax_backward(d_output, output, diagonal, window, scale, *, T):
    return [
        _softmax_gradient(g, y, _window(q, len(y), diagonal, window), scale, T)
        for q, (g, y) in enumerate(zip(d_output, output, strict=True))
    ]


@oracle(over="d")
def masked_softmax(input, mask, scale, *, T):
    return _softmax(input, mask, scale, T)


@oracle(over="d")
def masked_softmax_backward(d_output, mask, output, scale, *, T):
    return _softmax_gradient(d_output, output, mask, scale, T)


# ---- labels ----


def _by_label(target: int, ignored: int, count: int, value, form: Format):
    """What is made of a row by its label: 0 of one that is ignored, NaN where there is no such class."""
    if target == ignored:
        return _whole(0, form)
    return value() if 0 <= target < count else point(NAN)


def _labelled(row: Sequence[Span], target: int, form: Format) -> Span:
    return spans.total([x if v == target else _whole(0, form) for v, x in enumerate(row)], form)


def _logsumexp(row: Sequence[Span], form: Format) -> Span:
    highest = spans.largest(row)
    if highest.low.kind != "finite":
        highest = _whole(0, form)
    raised = [spans.exp(spans.subtract(x, highest, form), form) for x in row]
    return spans.add(highest, spans.log(spans.total(raised, form), form), form)


def _is_zero(number: Span) -> bool:
    return number.exact and number.low.kind == "finite" and number.low.magnitude == 0


def _cross_entropy(row: Sequence[Span], target: int, smoothing: Span, z: Span, form: Format) -> Span:
    """(1 - smoothing) (lse - x[target]) + smoothing (lse - mean(x)) + z lse^2."""
    lse, zero = _logsumexp(row, form), _whole(0, form)
    kept = spans.subtract(_whole(1, form), smoothing, form)
    first = spans.multiply(kept, spans.subtract(lse, _labelled(row, target, form), form), form)
    mean = spans.divide(spans.total(row, form), _whole(len(row), form), form)
    smoothed = zero if _is_zero(smoothing) else spans.multiply(smoothing, spans.subtract(lse, mean, form), form)
    squared = zero if _is_zero(z) else spans.multiply(z, spans.multiply(lse, lse, form), form)
    return spans.add(spans.add(first, smoothed, form), squared, form)


def _slopes(row: Sequence[Span], target: int, smoothing: Span, z: Span, form: Format) -> list[Span]:
    """e^(x - lse) (1 + 2 z lse) - (1 - smoothing) at the label - smoothing / count."""
    lse, zero, one = _logsumexp(row, form), _whole(0, form), _whole(1, form)
    twice = spans.multiply(spans.multiply(_whole(2, form), z, form), lse, form)
    factor = spans.add(one, zero if _is_zero(z) else twice, form)
    kept, each = spans.subtract(one, smoothing, form), spans.divide(smoothing, _whole(len(row), form), form)
    found = []
    for v, x in enumerate(row):
        share = spans.multiply(spans.exp(spans.subtract(x, lse, form), form), factor, form)
        found.append(spans.subtract(spans.subtract(share, kept if v == target else zero, form), each, form))
    return found


@oracle(over="v")
def cross_entropy(input, target, ignore_index, label_smoothing, z_loss, *, T):
    form, row = compute_format(T), _points(input, T)
    smoothing, z = (point(decode(each, form)) for each in (label_smoothing, z_loss))
    return _by_label(target, ignore_index, len(row), lambda: _cross_entropy(row, target, smoothing, z, form), form)


def _gradient(factor: Span, input, target, ignore_index, label_smoothing, z_loss, word: str) -> list[Span]:
    form, row = compute_format(word), _points(input, word)
    smoothing, z = (point(decode(each, form)) for each in (label_smoothing, z_loss))
    slopes = [_by_label(target, ignore_index, len(row), lambda: None, form)] * len(row)
    if slopes[0] is None:
        slopes = _slopes(row, target, smoothing, z, form)
    return [spans.multiply(factor, each, form) for each in slopes]


@oracle(over="v")
def cross_entropy_backward(d_output, input, target, ignore_index, label_smoothing, z_loss, *, T):
    factor = point(decode(d_output, FORMATS[T]))
    return _gradient(factor, input, target, ignore_index, label_smoothing, z_loss, T)


@oracle(over="v")
def cross_entropy_and_gradient(input, target, ignore_index, label_smoothing, z_loss, scale, *, T):
    loss = cross_entropy(input, target, ignore_index, label_smoothing, z_loss, T=T)
    factor = point(decode(scale, compute_format(T)))
    return loss, _gradient(factor, input, target, ignore_index, label_smoothing, z_loss, T)


@oracle(over="v")
def nll_loss(input, target, ignore_index, *, T):
    form, row = compute_format(T), _points(input, T)
    found = lambda: spans.negate(_labelled(row, target, form))  # noqa: E731
    return _by_label(target, ignore_index, len(row), found, form)


@oracle(over="v")
def nll_loss_backward(d_output, target, d_input, ignore_index, *, T):
    form = FORMATS[T]
    slope = spans.negate(point(decode(d_output, form)))
    here = target if target != ignore_index else -1
    return [slope if v == here else point(integer(0, form)) for v in range(len(d_input))]


@oracle(over="c")
def one_hot(target, output, *, T):
    one = int(encode(integer(1, FORMATS[T]), FORMATS[T])) if T in FORMATS else 1
    return [one if c == target else 0 for c in range(len(output))]
