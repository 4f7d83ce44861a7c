"""The oracles of losses, of an element or row as `reduction="none"` gives it: binding.py makes means and sums of these.

What is made of steps that are rounded correctly is known to the bit. What calls elementary functions or sums is within
some units u = 2^-p of the exact value, relative to the sizes of what is added: so much for each result below. The
gradient of a loss is given what of the gradient an element or row has, in the compute type, as `share`.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import mpmath
from mpmath import mpf

from . import spans
from .binding import oracle
from .floats import FORMATS, NAN, Format, Value, compute_format, decode, power_of_two
from .spans import ANY, ZERO, Span, point

_INFINITY = Value("inf")
_EPSILON = Fraction(1, 10**12)  # of cosine_embedding_loss


class _Steps:
    """Arithmetic on spans in the compute type of some element type."""

    def __init__(self, element: str):
        self.element, self.form = element, compute_format(element)

    def of(self, bits: int) -> Span:
        """An operand."""
        return point(decode(bits, FORMATS[self.element]))

    def attribute(self, bits: int) -> Span:
        return point(decode(bits, self.form))

    def number(self, value: float) -> Span:
        return point(spans.real(Fraction(value), self.form))

    def add(self, *terms: Span) -> Span:
        total = terms[0]
        for term in terms[1:]:
            total = spans.add(total, term, self.form)
        return total

    def subtract(self, a: Span, b: Span) -> Span:
        return spans.subtract(a, b, self.form)

    def multiply(self, *factors: Span) -> Span:
        product = factors[0]
        for factor in factors[1:]:
            product = spans.multiply(product, factor, self.form)
        return product

    def divide(self, a: Span, b: Span) -> Span:
        return spans.divide(a, b, self.form)

    def at_least_0(self, a: Span) -> Span:
        return spans.cut(a, point(ZERO), point(_INFINITY))


def _near(function: Callable, units: int, form: Format, *operands: Span, stored: str = "") -> Span:
    """What a function of exact operands is near: it gives the exact value and the sizes of what is added, NaN where
    there is none. `stored`: the half type as precise as which the functions are that it calls."""
    return _nears(lambda *values: [function(*values)], 1, units, form, *operands, stored=stored)[0]


def _nears(function: Callable, count: int, units: int, form: Format, *operands: Span, stored: str = "") -> list[Span]:
    """The same of a function that gives several values, each with its sizes."""
    if ANY in operands:
        return [ANY] * count
    if any(operand.nan for operand in operands):
        return [point(NAN)] * count
    if not all(operand.finite for operand in operands):
        return [ANY] * count
    with mpmath.workprec(200):
        found = function(*(_mpf(operand.low.signed) for operand in operands))
        return [_around(exact, sizes, units, form, stored) for exact, *sizes in found]


def _around(exact: mpf, sizes: list[mpf], units: int, form: Format, stored: str) -> Span:
    if mpmath.isnan(exact):
        return point(NAN)
    size = sum(map(abs, sizes)) + abs(exact)
    if not mpmath.isfinite(size) or size > mpf(2) ** (form.highest_exponent - 2):
        return ANY
    slack = _fraction(size) * units / (1 << (form.fraction_bits + 1)) + 8 * power_of_two(form.unit)
    slack += abs(_fraction(exact)) * spans.HALF.get(stored, 0)
    return spans.within(_fraction(exact) - slack, _fraction(exact) + slack, form)


def _mpf(number: Fraction) -> mpf:
    return mpf(number.numerator) / number.denominator


def _fraction(number: mpf) -> Fraction:
    sign, mantissa, exponent, _ = number._mpf_
    return (-1 if sign else 1) * int(mantissa) * power_of_two(exponent)


def _exp(x: mpf) -> mpf:
    return mpmath.exp(x) if abs(x) < 2000 else mpf("inf") if x > 0 else mpf(0)


def _log(x: mpf) -> mpf:
    return mpf("nan") if x < 0 else mpmath.log(x) if x else mpf("-inf")


def _sigmoid(x: mpf) -> mpf:
    return 1 / (1 + _exp(-x))


def _softplus(x: mpf) -> mpf:
    return max(x, mpf(0)) + mpmath.log1p(_exp(-abs(x)))


def _one(element: str) -> Span:
    return _Steps(element).number(1)


# ---- differences ----


def _difference(input: int, target: int, T: str) -> Span:
    steps = _Steps(T)
    return steps.subtract(steps.of(input), steps.of(target))


@oracle
def mse_loss(input, target, *, T):
    difference = _difference(input, target, T)
    return _Steps(T).multiply(difference, difference)


@oracle
def mse_loss_backward(share, input, target, *, T):
    steps = _Steps(T)
    d_input = steps.multiply(steps.number(2), share, _difference(input, target, T))
    return d_input, spans.negate(d_input)


@oracle
def l1_loss(input, target, *, T):
    return spans.magnitude(_difference(input, target, T))


@oracle
def l1_loss_backward(share, input, target, *, T):
    d_input = _Steps(T).multiply(share, spans.lifted(_sign, _difference(input, target, T)))
    return d_input, spans.negate(d_input)


def _below(size: Span, limit: Span) -> bool:
    return not size.nan and spans.order(size.low) < spans.order(limit.low)


@oracle
def smooth_l1_loss(input, target, *, beta, T):
    steps, size = _Steps(T), spans.magnitude(_difference(input, target, T))
    beta, half = steps.attribute(beta), steps.number(0.5)
    if _below(size, beta):
        return steps.divide(steps.multiply(half, size, size), beta)
    return steps.subtract(size, steps.multiply(half, beta))


@oracle
def smooth_l1_loss_backward(share, input, target, *, beta, T):
    steps, difference = _Steps(T), _difference(input, target, T)
    beta = steps.attribute(beta)
    if _below(spans.magnitude(difference), beta):
        slope = steps.divide(difference, beta)
    else:
        slope = spans.lifted(_sign, difference)
    return steps.multiply(share, slope), steps.multiply(spans.negate(share), slope)


def _sign(x: Value) -> Value:
    return x if x.kind == "nan" or x.zero else Value("finite", x.negative, Fraction(1))


@oracle
def huber_loss(input, target, *, delta, T):
    steps, size = _Steps(T), spans.magnitude(_difference(input, target, T))
    delta, half = steps.attribute(delta), steps.number(0.5)
    if _below(size, delta):
        return steps.multiply(half, size, size)
    return steps.multiply(delta, steps.subtract(size, steps.multiply(half, delta)))


@oracle
def huber_loss_backward(share, input, target, *, delta, T):
    steps, delta = _Steps(T), _Steps(T).attribute(delta)
    slope = spans.cut(_difference(input, target, T), spans.negate(delta), delta)
    return steps.multiply(share, slope), steps.multiply(spans.negate(share), slope)


# ---- likelihoods ----


@oracle
def poisson_nll_loss(input, target, *, log_input, full, eps, T):
    steps = _Steps(T)

    def loss(x, t, eps):
        terms = [_exp(x), -t * x] if log_input else [x, -t * _log(x + eps)]
        beside = [] if log_input else [abs(t) * _rounding(x, eps)]
        if full and t > 1:
            terms += [t * mpmath.log(t), -t, mpmath.log(2 * mpmath.pi * t) / 2]
        return sum(terms), *terms, *beside

    return _near(loss, 16, steps.form, steps.of(input), steps.of(target), steps.attribute(eps))


def _rounding(x: mpf, eps: mpf) -> mpf:
    """How much the logarithm of a rounded sum of two changes, in units u."""
    return (abs(x) + eps) / abs(x + eps) if x + eps else mpf("inf")


@oracle
def poisson_nll_loss_backward(share, input, target, *, log_input, full, eps, T):
    steps = _Steps(T)
    operands = share, steps.of(input), steps.of(target), steps.attribute(eps)

    def of_input(g, x, t, eps):
        if log_input:
            return g * (_exp(x) - t), g * _exp(x), g * t, _apart(_exp(x))
        if not x + eps:
            return mpf("inf"), mpf("inf")
        return g * (1 - t / (x + eps)), g, g * t / (x + eps) * (1 + _rounding(x, eps))

    def of_target(g, x, t, eps):
        terms = [mpmath.log(t), 1 / (2 * t)] if full and t > 1 else []
        terms.append(-x if log_input else -_log(x + eps))
        return g * sum(terms), *(g * term for term in terms), *([] if log_input else [g * _rounding(x, eps)])

    d_target = ANY if steps.of(target).nan else _near(of_target, 16, steps.form, *operands)
    return _near(of_input, 16, steps.form, *operands), d_target


@oracle
def gaussian_nll_loss(input, target, var, *, full, eps, T):
    steps = _Steps(T)

    def loss(x, t, v, eps):
        v = max(v, eps)
        terms = mpmath.log(v) / 2, (x - t) ** 2 / v / 2, (mpmath.log(2 * mpmath.pi) / 2 if full else 0)
        return sum(terms), *terms, _apart((x - t) ** 2)

    return _near(loss, 16, steps.form, *map(steps.of, (input, target, var)), steps.attribute(eps))


def _apart(step: mpf) -> mpf:
    """Nothing, or infinity where a step on the way may overflow or vanish."""
    return mpf(0) if mpf(2) ** -100 < abs(step) < mpf(2) ** 100 or not step else mpf("inf")


@oracle
def gaussian_nll_loss_backward(share, input, target, var, *, eps, T):
    steps = _Steps(T)
    operands = share, *map(steps.of, (input, target, var)), steps.attribute(eps)

    def of_input(g, x, t, v, eps):
        return g * (x - t) / max(v, eps), _apart((x - t) / max(v, eps))

    def of_var(g, x, t, v, eps):
        v = max(v, eps)
        terms = g / v / 2, -g * (x - t) ** 2 / v / v / 2
        return sum(terms), *terms, _apart((x - t) ** 2), _apart((x - t) ** 2 / v), _apart(v)

    d_input = _near(of_input, 8, steps.form, *operands)
    return d_input, spans.negate(d_input), _near(of_var, 16, steps.form, *operands)


@oracle
def kl_div(input, target, *, log_target, T):
    steps = _Steps(T)

    def loss(x, t):
        if log_target:
            return _exp(t) * (t - x), _exp(t), _apart(_exp(t))
        terms = (t * _log(t) if t else mpf(0)), -t * x
        return sum(terms), *terms

    return _near(loss, 8, steps.form, steps.of(input), steps.of(target))


@oracle
def kl_div_backward(share, input, target, *, log_target, T):
    steps = _Steps(T)
    operands = share, steps.of(input), steps.of(target)

    def of_input(g, t):
        return -g * (_exp(t) if log_target else t), _apart(_exp(t))

    def of_target(g, x, t):
        if log_target:
            return g * _exp(t) * (t - x + 1), g * _exp(t) * (abs(t - x) + 1), _apart(_exp(t))
        terms = [g * _log(t), g, -g * x] if t else [-g * x]
        return sum(terms), *terms

    d_input = _near(of_input, 8, steps.form, share, steps.of(target))
    return d_input, _near(of_target, 16, steps.form, *operands)


# ---- cross-entropies ----


def _weights(T: str, *given: int | None) -> list[Span]:
    return [_one(T) if each is None else _Steps(T).of(each) for each in given]


def _bounded(x: mpf) -> mpf:
    return max(_log(x), mpf(-100)) if not x < 0 else mpf("nan")


@oracle
def binary_cross_entropy(input, target, weight=None, *, T):
    steps = _Steps(T)

    def loss(x, t, w):
        terms = (t - 1) * _bounded(1 - x) * w, -t * _bounded(x) * w
        return sum(terms), *terms

    return _near(loss, 8, steps.form, steps.of(input), steps.of(target), *_weights(T, weight))


@oracle
def binary_cross_entropy_backward(share, input, target, weight=None, *, T):
    steps = _Steps(T)
    operands = share, steps.of(input), steps.of(target), *_weights(T, weight)

    def of_input(g, x, t, w):
        beyond = mpf("inf") if abs(x) > mpf(2) ** 50 else mpf(0)
        return g * w * (x - t) / max(x * (1 - x), mpf("1e-12")), _apart(g * w), _apart(x - t), beyond

    def of_target(g, x, w):
        terms = g * w * _bounded(1 - x), -g * w * _bounded(x)
        return sum(terms), *terms, _apart(g * w)

    own, weight = (share, steps.of(input)), operands[3:]
    return _near(of_input, 8, steps.form, *operands), _near(of_target, 8, steps.form, *own, *weight)


def _logit_terms(x: mpf, t: mpf, pos_weight: mpf) -> tuple[mpf, mpf]:
    return (1 - t) * _softplus(x), t * _softplus(-x) * pos_weight


@oracle
def binary_cross_entropy_with_logits(input, target, weight=None, pos_weight=None, *, T):
    steps = _Steps(T)

    def loss(x, t, w, p):
        terms = [each * w for each in _logit_terms(x, t, p)]
        return sum(terms), *terms

    return _near(loss, 12, steps.form, steps.of(input), steps.of(target), *_weights(T, weight, pos_weight))


@oracle
def binary_cross_entropy_with_logits_backward(share, input, target, weight=None, pos_weight=None, *, T):
    steps = _Steps(T)
    operands = share, steps.of(input), steps.of(target), *_weights(T, weight, pos_weight)

    def of_input(g, x, t, w, p):
        terms = g * w * (1 - t) * _sigmoid(x), -g * w * t * _sigmoid(-x) * p
        return sum(terms), *terms, _apart(g * w), _apart(t * _sigmoid(-x) * p)

    def of_target(g, x, w, p):
        terms = g * w * _softplus(-x) * p, -g * w * _softplus(x)
        return sum(terms), *terms, _apart(g * w), _apart(_softplus(-x) * p)

    own, weights = (share, steps.of(input)), operands[3:]
    return _near(of_input, 16, steps.form, *operands), _near(of_target, 16, steps.form, *own, *weights)


@oracle(over="d")
def cross_entropy_of_probabilities(input, target, *, label_smoothing, T):
    steps, count = _Steps(T), len(input)

    def loss(smoothing, *values):
        shifted, wanted, total, spread = _shares(smoothing, values, count)
        terms = [w * (mpmath.log(total) - s) for w, s in zip(wanted, shifted)]
        return sum(terms), *terms, spread * sum(map(abs, wanted)), sum(map(abs, wanted))

    return _near(loss, 64, steps.form, steps.attribute(label_smoothing), *map(steps.of, (*input, *target)))


def _shares(smoothing, values, count):
    """Logits less the largest, what is wanted of each class, the sum of exponentials, and how much rounded differences
    change its logarithm, in units u."""
    logits, target = values[:count], values[count:]
    shifted = [x - max(logits) for x in logits]
    wanted = [t * (1 - smoothing) + smoothing / count for t in target]
    total = sum(map(_exp, shifted))
    return shifted, wanted, total, sum(abs(s) * _exp(s) for s in shifted) / total


@oracle(over="d")
def cross_entropy_of_probabilities_backward(share, input, target, *, label_smoothing, T):
    steps, count = _Steps(T), len(input)
    operands = steps.attribute(label_smoothing), *map(steps.of, (*input, *target))

    def of_input(g, smoothing, *values):
        shifted, wanted, total, spread = _shares(smoothing, values, count)
        sum_of_wanted, sizes = sum(wanted), sum(map(abs, wanted))
        for own, want in zip(shifted, wanted):
            share = _exp(own) / total
            beside = g * share * sizes * (1 + spread - own), g * want, g * smoothing / count
            yield g * (share * sum_of_wanted - want), *beside

    def of_target(g, smoothing, *values):
        shifted, _, total, spread = _shares(smoothing, (*values, *values), count)
        for own in shifted:
            terms = g * (1 - smoothing) * mpmath.log(total), -g * (1 - smoothing) * own
            yield sum(terms), *terms, g * (1 + spread)

    d_input = _nears(of_input, count, 64, steps.form, share, *operands)
    return d_input, _nears(of_target, count, 64, steps.form, share, *operands[: count + 1])


# ---- margins ----


@oracle
def soft_margin_loss(input, target, *, T):
    steps = _Steps(T)

    def loss(x, t):
        return _softplus(-t * x), abs(t * x) * _sigmoid(-t * x)

    return _near(loss, 8, steps.form, steps.of(input), steps.of(target), stored=T)


@oracle
def soft_margin_loss_backward(share, input, target, *, T):
    steps = _Steps(T)

    def slope(g, x, t):
        return -g * t * _sigmoid(-t * x), g * t * _sigmoid(-t * x) * (1 + abs(t * x)), _apart(g * t), _apart(t * x)

    return _near(slope, 8, steps.form, share, steps.of(input), steps.of(target), stored=T)


@oracle(over="d")
def multilabel_soft_margin_loss(input, target, weight=None, *, T):
    steps, count = _Steps(T), len(input)
    if not count:
        return point(NAN)  # the mean of no classes
    weights = _weights(T, *(weight or [None] * count))

    def loss(*values):
        parts = zip(values[:count], values[count : 2 * count], values[2 * count :])
        terms = [part * w / count for x, t, w in parts for part in _logit_terms(x, t, mpf(1))]
        return sum(terms), *terms, _apart(sum(map(abs, terms)) * count)

    return _near(loss, 48, steps.form, *map(steps.of, (*input, *target)), *weights)


@oracle(over="d")
def multilabel_soft_margin_loss_backward(share, input, target, weight=None, *, T):
    steps, count = _Steps(T), len(input)
    found = []
    for x, t, w in zip(input, target, _weights(T, *(weight or [None] * count)), strict=True):

        def slope(g, x, t, w):
            terms = g / count * w * (1 - t) * _sigmoid(x), -g / count * w * t * _sigmoid(-x)
            return sum(terms), *terms, _apart(g / count * w)

        found.append(_near(slope, 16, steps.form, share, steps.of(x), steps.of(t), w))
    return found


@oracle
def hinge_loss(input, target, *, T):
    steps = _Steps(T)
    return steps.at_least_0(steps.subtract(_one(T), steps.multiply(steps.of(target), steps.of(input))))


@oracle
def hinge_loss_backward(share, input, target, *, T):
    steps = _Steps(T)
    lacks = steps.subtract(_one(T), steps.multiply(steps.of(target), steps.of(input)))
    return _where_not_below_0(lacks, steps.multiply(spans.negate(share), steps.of(target)))


def _where_not_below_0(a: Span, value: Span) -> Span:
    """A gradient, where what is cut at 0 is at least 0; else 0."""
    return value if not a.nan and (a.low.zero or not a.low.negative) else point(ZERO)


@oracle
def hinge_embedding_loss(input, target, *, margin, T):
    steps, x, label = _Steps(T), _Steps(T).of(input), decode(target, FORMATS[T])
    lacks = steps.at_least_0(steps.subtract(steps.attribute(margin), x))
    nothing = point(ZERO)
    return steps.add(nothing if _is(label, 1) else lacks, nothing if _is(label, -1) else x)


def _is(value: Value, number: int) -> bool:
    return value.kind == "finite" and value.signed == number


@oracle
def hinge_embedding_loss_backward(share, input, target, *, margin, T):
    steps, label = _Steps(T), decode(target, FORMATS[T])
    lacks = steps.subtract(steps.attribute(margin), steps.of(input))
    second = point(ZERO) if _is(label, 1) else _where_not_below_0(lacks, share)
    return steps.subtract(point(ZERO) if _is(label, -1) else share, second)


@oracle
def margin_ranking_loss(input1, input2, target, *, margin, T):
    return _Steps(T).at_least_0(_lacks(input1, input2, target, margin, T))


def _lacks(input1, input2, target, margin, T) -> Span:
    steps = _Steps(T)
    ranked = steps.multiply(steps.of(target), steps.subtract(steps.of(input1), steps.of(input2)))
    return steps.subtract(steps.attribute(margin), ranked)


@oracle
def margin_ranking_loss_backward(share, input1, input2, target, *, margin, T):
    steps, lacks = _Steps(T), _lacks(input1, input2, target, margin, T)
    slopes = (steps.multiply(each, steps.of(target)) for each in (spans.negate(share), share))
    return tuple(_where_not_below_0(lacks, slope) for slope in slopes)


# ---- rows ----


def _cosine(values, count):
    """The cosine of two rows, and the squares of their norms; `values` are both rows."""
    one, other = values[:count], values[count:]
    squares = [sum(x * x for x in row) + _mpf(_EPSILON) for row in (one, other)]
    beside = [_apart(x * x) for x in values] + [_apart(squares[0] * squares[1])]
    return sum(x * y for x, y in zip(one, other)) / mpmath.sqrt(squares[0] * squares[1]), squares, beside


@oracle(over="d")
def cosine_embedding_loss(input1, input2, target, *, margin, T):
    steps, count, label = _Steps(T), len(input1), decode(target, FORMATS[T])
    values = *map(steps.of, (*input1, *input2)), steps.attribute(margin)
    if any(value.nan for value in values[:-1]) and not (_is(label, 1) or _is(label, -1)):
        return point(ZERO)
    if _is(label, 1):
        return _near(lambda *v: (1 - (c := _cosine(v[:-1], count))[0], 1, *c[2]), 64, steps.form, *values)
    if _is(label, -1):
        beyond = lambda *v: ((c := _cosine(v[:-1], count))[0] - v[-1], 1, v[-1], *c[2])  # noqa: E731
        return steps.at_least_0(_near(beyond, 64, steps.form, *values))
    return point(ZERO)


@oracle(over="d")
def cosine_embedding_loss_backward(share, input1, input2, target, *, margin, T):
    steps, count, label = _Steps(T), len(input1), decode(target, FORMATS[T])
    operands = share, steps.attribute(margin), *map(steps.of, (*input1, *input2))

    def slopes(g, margin, *values):
        cosine, squares, beside = _cosine(values, count)
        sign = -1 if _is(label, 1) else 1 if _is(label, -1) and cosine >= margin else 0
        if _is(label, -1) and abs(cosine - margin) < mpf(2) ** -(steps.form.fraction_bits - 6):
            beside = [mpf("inf")]  # on either side of the kink
        root = mpmath.sqrt(squares[0] * squares[1])
        for index, value in enumerate(values):
            own = squares[index >= count]
            terms = g * values[(index + count) % (2 * count)] / root, -g * value * cosine / own
            yield sign * sum(terms), *terms, g * value / own, *beside

    made = _nears(slopes, 2 * count, 96, steps.form, *operands)
    return made[:count], made[count:]


def _distances(margin, eps, values, count):
    """Of a triplet: what each difference is, the two distances, and how much of the margin is left."""
    anchor, positive, negative = (values[start : start + count] for start in (0, count, 2 * count))
    differences = [[a - b + eps for a, b in zip(anchor, other)] for other in (positive, negative)]
    distances = [mpmath.sqrt(sum(x * x for x in row)) for row in differences]
    rounding = [sum(abs(a) + abs(b) + eps for a, b in zip(anchor, other)) for other in (positive, negative)]
    beside = [_apart(x * x) for row in differences for x in row]
    return differences, distances, margin + distances[0] - distances[1], rounding, beside


@oracle(over="d")
def triplet_margin_loss(anchor, positive, negative, *, margin, eps, T):
    steps, count = _Steps(T), len(anchor)

    def loss(margin, eps, *values):
        _, distances, left, rounding, beside = _distances(margin, eps, values, count)
        return left, margin, *distances, *rounding, *beside

    operands = steps.attribute(margin), steps.attribute(eps), *map(steps.of, (*anchor, *positive, *negative))
    return steps.at_least_0(_near(loss, 64, steps.form, *operands))


@oracle(over="d")
def triplet_margin_loss_backward(share, anchor, positive, negative, *, margin, eps, T):
    steps, count = _Steps(T), len(anchor)
    if any(steps.of(bits).nan for bits in (*anchor, *positive, *negative)):
        return [ANY] * count, [ANY] * count, [ANY] * count
    values = *map(steps.of, (*anchor, *positive, *negative)),
    operands = share, steps.attribute(margin), steps.attribute(eps), *values

    def slopes(g, margin, eps, *values):
        differences, distances, left, rounding, beside = _distances(margin, eps, values, count)
        if abs(left) < sum((*distances, margin, *rounding)) * mpf(2) ** -(steps.form.fraction_bits - 8):
            beside = [mpf("inf")]  # on either side of the kink
        for signs in ((1, -1), (-1, 0), (0, 1)):
            for index in range(count):
                if left < 0:
                    yield mpf(0), *beside
                    continue
                parts = [part for part in zip(signs, differences, distances, rounding) if part[0] and part[2]]
                terms = [g * sign * row[index] / norm for sign, row, norm, _ in parts]
                yield sum(terms), *terms, *(g * rough / norm for _, _, norm, rough in parts), *beside

    made = _nears(slopes, 3 * count, 96, steps.form, *operands)
    return made[:count], made[count : 2 * count], made[2 * count :]
