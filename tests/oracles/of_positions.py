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


def _raised(row: Sequence[Span], form: Format) -> list[Span]:
    """The exponentials of what elements are beyond the highest one, or beyond 0 where that is not finite."""
    highest = spans.largest(row)
    if highest.low.kind != "finite":
        highest = _whole(0, form)
    return [spans.exp(spans.subtract(x, highest, form), form) for x in row]


def _is_zero(number: Span) -> bool:
    return number.exact and number.low.kind == "finite" and number.low.magnitude == 0


class _Classes:
    """A row of classes, a label, and what weighs: spans of the compute type."""

    def __init__(self, input, weight, label_smoothing: int, z_loss: int, word: str):
        self.form = form = compute_format(word)
        self.row, self.count = _points(input, word), len(input)
        self.weights = [_whole(1, form)] * len(input) if weight is None else _points(weight, word)
        self.weighted = weight is not None
        self.smoothing, self.z = (point(decode(each, form)) for each in (label_smoothing, z_loss))
        self.kept = spans.subtract(_whole(1, form), self.smoothing, form)
        self.lse = spans.log_of_exponentials(self.row, form)

    def mean(self, values: Sequence[Span]) -> Span:
        return spans.divide(spans.total(values, self.form), _whole(self.count, self.form), self.form)

    @property
    def mean_weight(self) -> Span:
        return self.mean(self.weights) if self.weighted else _whole(1, self.form)

    def product(self, *factors: Span) -> Span:
        found = factors[0]
        for factor in factors[1:]:
            found = spans.multiply(found, factor, self.form)
        return found

    def loss(self, target: int) -> Span:
        """(1 - smoothing) w[target] (lse - x[target]) + smoothing (lse mean(w) - mean(w x)) + z lse^2."""
        form, lse, zero = self.form, self.lse, _whole(0, self.form)
        below = spans.subtract(lse, _labelled(self.row, target, form), form)
        found = self.product(self.kept, self.weights[target], below)
        if not _is_zero(self.smoothing):
            mean = self.mean([self.product(*pair) for pair in zip(self.weights, self.row, strict=True)])
            rest = spans.subtract(self.product(lse, self.mean_weight), mean, form)
            found = spans.add(found, self.product(self.smoothing, rest), form)
        squared = zero if _is_zero(self.z) else self.product(self.z, self.product(lse, lse))
        return spans.add(spans.add(found, zero, form), squared, form)

    def slopes(self, target: int, scale: Span) -> list[Span]:
        """scale times: p ((1 - smoothing) w[target] + smoothing mean(w) + 2 z lse) - (1 - smoothing) w[target] at the
        label - smoothing w / count, where p is the softmax."""
        form, zero = self.form, _whole(0, self.form)
        twice = zero if _is_zero(self.z) else self.product(_whole(2, form), self.z, self.lse)
        smoothed = zero if _is_zero(self.smoothing) else self.product(self.smoothing, self.mean_weight)
        factor = spans.add(self.product(self.kept, self.weights[target]), smoothed, form)
        factor = self.product(scale, spans.add(factor, twice, form))
        raised = _raised(self.row, form)
        factor = spans.divide(factor, spans.total(raised, form), form)
        found = []
        for v, (share, w) in enumerate(zip(raised, self.weights, strict=True)):
            own = zero if v != target else self.product(scale, self.kept, w)
            if not _is_zero(self.smoothing):
                each = spans.divide(self.product(scale, self.smoothing), _whole(self.count, form), form)
                own = spans.add(own, self.product(each, w), form)
            found.append(spans.subtract(self.product(share, factor), own, form))
        return found


def _weight(target, ignore_index, weight=None, *, T) -> Span:
    """What a row weighs in a mean: as much as its class; nothing, where it is ignored."""
    form = compute_format(T)
    known = weight is not None and 0 <= target < len(weight)
    own = _points([weight[target]], T)[0] if known else _whole(1, form)
    return _whole(0, form) if target == ignore_index else own


@oracle(over="v", weights=_weight)
def cross_entropy(input, target, weight=None, *, ignore_index, label_smoothing, z_loss, T):
    classes = _Classes(input, weight, label_smoothing, z_loss, T)
    return _by_label(target, ignore_index, classes.count, lambda: classes.loss(target), classes.form)


def _gradient(factor: Span, input, target, weight, ignore_index, label_smoothing, z_loss, T: str) -> list[Span]:
    classes = _Classes(input, weight, label_smoothing, z_loss, T)
    slopes = _by_label(target, ignore_index, classes.count, lambda: classes.slopes(target, factor), classes.form)
    return slopes if isinstance(slopes, list) else [slopes] * classes.count


@oracle(over="v", weights=_weight)
def cross_entropy_backward(share, input, target, weight=None, *, ignore_index, label_smoothing, z_loss, T):
    return _gradient(share, input, target, weight, ignore_index, label_smoothing, z_loss, T)


@oracle(over="v")
def cross_entropy_and_gradient(input, target, weight=None, *, ignore_index, label_smoothing, z_loss, scale, T):
    kinds = {"ignore_index": ignore_index, "label_smoothing": label_smoothing, "z_loss": z_loss, "T": T}
    factor = point(decode(scale, compute_format(T)))
    return cross_entropy(input, target, weight, **kinds), _gradient(factor, input, target, weight, **kinds)


@oracle(over="v", weights=_weight)
def nll_loss(input, target, weight=None, *, ignore_index, T):
    form, row = compute_format(T), _points(input, T)
    if weight is not None:
        row = [spans.multiply(x, w, form) for x, w in zip(row, _points(weight, T), strict=True)]
    found = lambda: spans.negate(_labelled(row, target, form))  # noqa: E731
    return _by_label(target, ignore_index, len(row), found, form)


@oracle(over="v", weights=_weight)
def nll_loss_backward(share, target, weight=None, d_input=(), *, ignore_index, T):
    form, here = compute_format(T), target if target != ignore_index else -1
    own = [spans.negate(share)] * len(d_input)
    if weight is not None:
        own = [spans.multiply(each, w, form) for each, w in zip(own, _points(weight, T), strict=True)]
    return [each if v == here else _whole(0, form) for v, each in enumerate(own)]


@oracle(over="c")
def one_hot(target, output, *, T):
    one = int(encode(integer(1, FORMATS[T]), FORMATS[T])) if T in FORMATS else 1
    return [one if c == target else 0 for c in range(len(output))]
