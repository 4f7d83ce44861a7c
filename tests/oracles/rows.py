"""Operations on a row, from their definitions: plain dynamic quantization to the bit, the others as spans.

Rows, parameters and `eps` are bit patterns; `eps` and scales are of the compute type, weights and biases of
`weight_element`, that of the row if None. A span is where the value may
lie before it is stored (spans.py says why); `wanted` are the positions of the row whose outputs are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache, wraps

from . import affine, spans
from .floats import FORMATS, Value, add, compute_format, decode, divide, encode, encode_fraction, integer, subtract
from .spans import ANY, ZERO, Span, point, real

Codes = list[tuple[int, int]]
LEAST = 1  # the bit pattern of the least positive value of every type


def remembered(oracle: Callable) -> Callable:
    """An oracle that knows its last answers: codes of several types are made of the same values."""
    answer = lru_cache(16)(oracle)

    def fixed(value):
        return tuple(value) if isinstance(value, list) else value

    @wraps(oracle)
    def ask(*given, **options):
        return answer(*map(fixed, given), **{name: fixed(value) for name, value in options.items()})

    return ask


def dynamic_quantize(row, q_min: int, q_max: int, *, element, scale_element=None) -> tuple[int, list[int]]:
    """(scale, codes): scale = the largest finite magnitude / q_max as `scale_element` (the compute type if None) holds
    it, the least positive value of that type in place of 0; 1 where the magnitude is 0. Zero point 0. The codes are
    made with the scale as it is stored.
    """
    compute = compute_format(element)
    scale_form = FORMATS[scale_element or compute.word]
    sizes = [value.magnitude for value in _decoded(row, element) if value.kind == "finite"]
    scale = encode_fraction(1, scale_form)
    if max(sizes, default=0):
        scale = encode(divide(Value("finite", False, max(sizes)), integer(q_max, compute), compute), scale_form)
        scale = scale or LEAST
    kinds = {"element": element, "scale_element": scale_form.word}
    return scale, [affine.quantize(x, scale, 0, q_min, q_max, **kinds) for x in row]


def dynamic_quantize_asymmetric(row, q_min, q_max, *, element, scale_element=None) -> tuple[int, int, list[int]]:
    """(scale, zero point, codes): low and high are those of the finite values and 0. The scale is high / (q_max -
    q_min) - low / (q_max - q_min), each step rounded, or 1 where low = high; the zero point is q_min - low / scale.
    `scale_element` and a scale of 0 as above.
    """
    compute = compute_format(element)
    scale_form = FORMATS[scale_element or compute.word]
    finite = [value.signed for value in _decoded(row, element) if value.kind == "finite"]
    low, high = real(min([*finite, 0]), compute), real(max([*finite, 0]), compute)
    levels = integer(q_max - q_min, compute)
    scale = encode_fraction(1, scale_form)
    if low.signed != high.signed:
        parts = [divide(each, levels, compute) for each in (high, low)]
        scale = encode(subtract(*parts, compute), scale_form) or LEAST
    kinds = {"element": compute.word, "scale_element": scale_form.word}
    zero_point = affine.clamp(q_min - affine.steps(encode(low, compute), scale, **kinds), q_min, q_max)
    kinds["element"] = element
    return scale, zero_point, [affine.quantize(x, scale, zero_point, q_min, q_max, **kinds) for x in row]


@remembered
def rms_norm(row, weight, eps: int, *, element, weight_element=None, wanted=None) -> list[Span]:
    """x * (1 / sqrt(mean(x^2) + eps)) * weight."""
    compute = compute_format(element)
    x, weight = _points(row, element), _points(weight, weight_element or element)
    factor = _one_over_root(x, eps, compute)
    positions = _positions(row, wanted)
    return [spans.multiply(spans.multiply(x[i], factor, compute), weight[i], compute) for i in positions]


def rms_normalize(row, eps: int, *, element, wanted=None) -> list[Span]:
    """x * (1 / sqrt(mean(x^2) + eps))."""
    compute = compute_format(element)
    x = _points(row, element)
    factor = _one_over_root(x, eps, compute)
    return [spans.multiply(x[i], factor, compute) for i in _positions(row, wanted)]


def add_rms_norm(row, residual, weight, eps: int, **kinds) -> tuple[list[int], list[Span]]:
    """(x + residual as it is stored, rms_norm of that)."""
    stored = _stored_sums(row, residual, kinds["element"])
    return stored, rms_norm(stored, weight, eps, **kinds)


@remembered
def layer_norm(row, weight, bias, eps: int, *, element, weight_element=None, wanted=None) -> list[Span]:
    """y * (1 / sqrt(mean(y^2) + eps)) * weight + bias, y = x - mean(x)."""
    compute = compute_format(element)
    weight, bias = (_points(each, weight_element or element) for each in (weight, bias))
    positions = _positions(row, wanted)
    return [
        spans.add(spans.multiply(y, weight[i], compute), bias[i], compute)
        for i, y in zip(positions, standardize(row, eps, element=element, wanted=positions), strict=True)
    ]


def standardize(row, eps: int, *, element, wanted=None) -> list[Span]:
    """y * (1 / sqrt(mean(y^2) + eps)), y = x - mean(x)."""
    compute = compute_format(element)
    y = centered(_points(row, element), compute)
    factor = _one_over_root(y, eps, compute)
    return [spans.multiply(y[i], factor, compute) for i in _positions(row, wanted)]


def rms_norm_backward(
    d_output, rows, weight, eps: int, *, element, weight_element=None
) -> tuple[list[list[Span]], list[Span]]:
    """(of the input, of the weight), with r = 1 / sqrt(mean(x^2) + eps) of each row and g = dy * weight:
    r * (g - x * (r * r * mean(g * x))), and the sum of dy * (x * r) over the rows."""
    compute = compute_format(element)
    weight = _points(weight, weight_element or element)
    of_input, of_weight = [], []
    for dy, x in ((_points(a, element), _points(b, element)) for a, b in zip(d_output, rows, strict=True)):
        r = _one_over_root(x, eps, compute)
        of_input.append(_rms_gradient(_products(dy, weight, compute), x, r, compute))
        of_weight.append(_products(dy, [spans.multiply(each, r, compute) for each in x], compute))
    return of_input, [spans.total(column, compute) for column in zip(*of_weight, strict=True)]


def add_rms_norm_backward(d_total, d_output, weight, totals, eps: int, *, element, weight_element=None):
    """(of the input, of the weight): what the total passes on itself, and what rms_norm of it does."""
    compute = compute_format(element)
    kinds = {"element": element, "weight_element": weight_element}
    by_norm, of_weight = rms_norm_backward(d_output, totals, weight, eps, **kinds)
    pairs = zip(d_total, by_norm, strict=True)
    return [_sums(_points(own, element), other, compute) for own, other in pairs], of_weight


def rms_normalize_backward(d_output, row, eps: int, *, element) -> list[Span]:
    """r * (g - x * (r * r * mean(g * x))), r = 1 / sqrt(mean(x^2) + eps)."""
    compute = compute_format(element)
    x = _points(row, element)
    return _rms_gradient(_points(d_output, element), x, _one_over_root(x, eps, compute), compute)


def _rms_gradient(g: Sequence[Span], x: Sequence[Span], r: Span, compute) -> list[Span]:
    share = spans.multiply(spans.multiply(r, r, compute), _mean(_products(g, x, compute), compute), compute)
    rest = [spans.subtract(a, spans.multiply(b, share, compute), compute) for a, b in zip(g, x, strict=True)]
    return [spans.multiply(r, each, compute) for each in rest]


def layer_norm_backward(
    d_output, rows, weight, eps: int, *, element, weight_element=None
) -> tuple[list, list[Span], list[Span]]:
    """(of the input, of the weight, of the bias), with y = x - mean(x), r = 1 / sqrt(mean(y^2) + eps), h = y * r and
    g = dy * weight: r * (g - mean(g) - h * mean(g * h)), the sum of dy * h over the rows, and that of dy."""
    compute = compute_format(element)
    weight = _points(weight, weight_element or element)
    of_input, of_weight, of_bias = [], [], []
    for dy, x in ((_points(a, element), _points(b, element)) for a, b in zip(d_output, rows, strict=True)):
        gradient, h = normal_gradient(_products(dy, weight, compute), x, eps, compute)
        of_input.append(gradient)
        of_weight.append(_products(dy, h, compute))
        of_bias.append(dy)
    return of_input, *([spans.total(c, compute) for c in zip(*each, strict=True)] for each in (of_weight, of_bias))


def standardize_backward(d_output, row, eps: int, *, element) -> list[Span]:
    """r * (g - mean(g) - h * mean(g * h)), with y = x - mean(x), r = 1 / sqrt(mean(y^2) + eps) and h = y * r."""
    x = _points(row, element)
    return normal_gradient(_points(d_output, element), x, eps, compute_format(element))[0]


def standardized_gradient(g, x, eps: int, compute) -> tuple[list[Span], list[Span]]:
    """(the gradient, h)"""
    h, r = standardized_by(x, eps, compute)
    return gradient_of_standardized(g, h, r, compute), h


def normal_gradient(g, x, eps: int, compute) -> tuple[list[Span], list[Span]]:
    """The same where products are summed before the inverse deviation multiplies them: anything where that sum leaves
    the range and the inverse deviation is not 0."""
    h, r = standardized_by(x, eps, compute)
    gradient, y = gradient_of_standardized(g, h, r, compute), centered(x, compute)
    finite = all(each.finite for each in (*g, *y, r)) and not (r.exact and r.low.zero)
    products = _products(g, y, compute)
    if finite and not all(each.finite for each in (*products, spans.total(products, compute))):
        gradient = [ANY] * len(gradient)
    return gradient, h


def standardized_by(x, eps: int, compute) -> tuple[list[Span], Span]:
    """(h, r)"""
    y = centered(x, compute)
    r = _one_over_root(y, eps, compute)
    return [spans.multiply(each, r, compute) for each in y], r


def gradient_of_standardized(g, h, r: Span, compute) -> list[Span]:
    """r * (g - mean(g) - h * mean(g * h))"""
    share = _mean(_products(g, h, compute), compute)
    rest = [
        spans.subtract(a, spans.multiply(b, share, compute), compute)
        for a, b in zip(centered(g, compute), h, strict=True)
    ]
    return [spans.multiply(r, each, compute) for each in rest]


def l2_normalize_backward(d_output, row, eps: int, *, element) -> list[Span]:
    """g / eps where the norm is below eps, else (g - x * (sum(g * x) / norm / norm)) / norm."""
    compute = compute_format(element)
    g, x = _points(d_output, element), _points(row, element)
    norm, least = _norm(x, compute), point(decode(eps, compute))
    if norm is ANY or (not norm.nan and spans.order(norm.low) < spans.order(least.low) <= spans.order(norm.high)):
        return [ANY] * len(row)
    if not norm.nan and spans.order(norm.high) < spans.order(least.low):
        return [spans.divide(each, least, compute) for each in g]
    whole = spans.total(_products(g, x, compute), compute)
    share = spans.divide(spans.divide(whole, norm, compute), norm, compute)
    rest = [spans.subtract(a, spans.multiply(b, share, compute), compute) for a, b in zip(g, x, strict=True)]
    return [spans.divide(each, norm, compute) for each in rest]


def l2_normalize(row, eps: int, *, element, wanted=None) -> list[Span]:
    """x / max(sqrt(sum(x^2)), eps); NaN where the norm is."""
    compute = compute_format(element)
    x = _points(row, element)
    norm = _norm(x, compute)
    norm = spans.largest([norm, point(decode(eps, compute))])
    return [spans.divide(x[i], norm, compute) for i in _positions(row, wanted)]


@remembered
def softmax(row, *, element, wanted=None) -> list[Span]:
    """e^(x - max) * (1 / sum(e^(x - max)))."""
    compute = compute_format(element)
    raised = _raised(_points(row, element), compute, element)
    factor = spans.divide(_one(compute), spans.total(raised, compute), compute)
    return [spans.multiply(raised[i], factor, compute) for i in _positions(row, wanted)]


def softmax_backward(d_output, output, *, element, wanted=None) -> list[Span]:
    """y * (dy - sum(dy * y))."""
    compute = compute_format(element)
    gradient, y = _points(d_output, element), _points(output, element)
    products = [spans.multiply(*pair, compute) for pair in zip(gradient, y, strict=True)]
    total = spans.total(products, compute)
    positions = _positions(output, wanted)
    return [spans.multiply(y[i], spans.subtract(gradient[i], total, compute), compute) for i in positions]


def log_softmax(row, *, element, wanted=None) -> list[Span]:
    """(x - max) - log(sum(e^(x - max)))."""
    compute = compute_format(element)
    x = _points(row, element)
    highest = spans.largest(x)
    rest = spans.log(spans.total(_raised(x, compute), compute), compute)
    positions = _positions(row, wanted)
    return [spans.subtract(spans.subtract(x[i], highest, compute), rest, compute) for i in positions]


def log_softmax_backward(d_output, output, *, element, wanted=None) -> list[Span]:
    """dy - e^y * sum(dy)."""
    compute = compute_format(element)
    gradient, y = _points(d_output, element), _points(output, element)
    total = spans.total(gradient, compute)
    found = []
    for i in _positions(output, wanted):
        share = spans.multiply(spans.exp(y[i], compute), total, compute)
        found.append(spans.subtract(gradient[i], share, compute))
    return found


def rms_norm_dynamic_quantize(
    row, weight, eps, q_min, q_max, scale, *, element, scale_element=None, weight_element=None, wanted=None
) -> tuple[Span, Codes]:
    """(scale, codes) of rms_norm before it is stored; `scale` is the one that was stored beside the codes
    in the type `scale_element` (the compute type if None), widened."""
    values = rms_norm(row, weight, eps, element=element, weight_element=weight_element)
    return _quantized(values, q_min, q_max, scale, element, scale_element, wanted)


def silu_mul_dynamic_quantize(
    gate, up, q_min, q_max, scale, *, element, scale_element=None, wanted=None
) -> tuple[Span, Codes]:
    """(scale, codes) of gate / (1 + e^-gate) * up before it is stored; `scale` as in rms_norm_dynamic_quantize."""
    return _quantized(silu_mul(gate, up, element=element), q_min, q_max, scale, element, scale_element, wanted)


def add_rms_norm_dynamic_quantize(row, residual, weight, eps, q_min, q_max, scale, **kinds):
    """(x + residual as it is stored, scale, codes of rms_norm of that); `scale` as in rms_norm_dynamic_quantize."""
    stored = _stored_sums(row, residual, kinds["element"])
    return stored, *rms_norm_dynamic_quantize(stored, weight, eps, q_min, q_max, scale, **kinds)


def layer_norm_dynamic_quantize(
    row, weight, bias, eps, q_min, q_max, scale, *, element, scale_element=None, weight_element=None, wanted=None
):
    """(scale, codes) of layer_norm before it is stored; `scale` as in rms_norm_dynamic_quantize."""
    values = layer_norm(row, weight, bias, eps, element=element, weight_element=weight_element)
    return _quantized(values, q_min, q_max, scale, element, scale_element, wanted)


def softmax_dynamic_quantize(
    row, q_min, q_max, scale, *, element, scale_element=None, wanted=None
) -> tuple[Span, Codes]:
    """(scale, codes) of softmax before it is stored; `scale` as in rms_norm_dynamic_quantize."""
    return _quantized(softmax(row, element=element), q_min, q_max, scale, element, scale_element, wanted)


def gelu_dynamic_quantize(row, q_min, q_max, scale, *, element, scale_element=None, wanted=None) -> tuple[Span, Codes]:
    """(scale, codes) of gelu before it is stored; `scale` as in rms_norm_dynamic_quantize."""
    return _quantized(gelu(row, element=element), q_min, q_max, scale, element, scale_element, wanted)


def gelu_tanh_dynamic_quantize(
    row, q_min, q_max, scale, *, element, scale_element=None, wanted=None
) -> tuple[Span, Codes]:
    """(scale, codes) of gelu_tanh before it is stored; `scale` as in rms_norm_dynamic_quantize."""
    return _quantized(gelu_tanh(row, element=element), q_min, q_max, scale, element, scale_element, wanted)


def total(row, *, element) -> Span:
    """The sum."""
    return spans.total(_points(row, element), compute_format(element))


def mean(row, *, element) -> Span:
    """The sum / the number of elements."""
    return _mean(_points(row, element), compute_format(element))


def product(row, *, element) -> Span:
    """The product."""
    return spans.multiplied(_decoded(row, element), compute_format(element))


def largest(row, *, element) -> Span:
    """The largest; NaN if any is NaN; +0 is above -0."""
    return spans.largest(_points(row, element))


def smallest(row, *, element) -> Span:
    """The smallest; NaN if any is NaN; -0 is below +0."""
    return spans.smallest(_points(row, element))


def norm1(row, *, element) -> Span:
    """The sum of magnitudes."""
    return spans.total([spans.magnitude(x) for x in _points(row, element)], compute_format(element))


def norm2(row, *, element) -> Span:
    """The square root of the sum of squares."""
    return _norm(_points(row, element), compute_format(element))


def logsumexp(row, *, element) -> Span:
    """max + log(sum(e^(x - max))); of infinities -inf where all are that, +inf where any is."""
    return spans.log_of_exponentials(_points(row, element), compute_format(element))


def variance(row, correction: Fraction = Fraction(1), *, element) -> Span:
    """The sum of squares of x - mean(x) / the number of elements less the correction, 0 if that is less."""
    compute = compute_format(element)
    divisor = max(Fraction(len(row)) - correction, Fraction(0))
    whole = squared_deviations(_points(row, element), compute)
    if not divisor and whole.finite and not whole.exact and whole.low.signed <= 0 <= whole.high.signed:
        return ANY  # 0 / 0, or something else / 0
    return spans.divide(whole, point(real(divisor, compute)), compute)


def deviation(row, correction: Fraction = Fraction(1), *, element) -> Span:
    """The square root of the variance."""
    return spans.sqrt(variance(row, correction, element=element), compute_format(element))


def total_backward(d_output: int, row, *, element) -> list[Span]:
    """The gradient, for each element."""
    return _points([d_output] * len(row), element)


def mean_backward(d_output: int, row, *, element) -> list[Span]:
    """The gradient / the number of elements, for each of them."""
    compute = compute_format(element)
    share = spans.divide(_points([d_output], element)[0], point(integer(len(row), compute)), compute)
    return [share] * len(row)


def product_backward(d_output: int, row, output: int, *, element) -> list[Span]:
    """The gradient * the product of the other elements: that of all / the element; what has a zero beside it, by the
    output, which that zero makes a zero or NaN; of zeros one is not beside itself."""
    compute = compute_format(element)
    gradient, whole = _points([d_output, output], element)
    values = _decoded(row, element)
    rest = spans.multiplied([value for value in values if not value.zero] + [integer(1, compute)], compute)
    zeros = sum(value.zero for value in values)
    found = []
    for value in values:
        beside = whole if zeros > value.zero else rest if value.zero else spans.divide(rest, point(value), compute)
        found.append(spans.multiply(gradient, beside, compute))
    return found


def largest_backward(d_output: int, row, output: int, *, element) -> list[Span]:
    """The gradient / the number of elements that equal the output, for each of these; 0 / that number for others."""
    compute = compute_format(element)
    gradient, best = _decoded([d_output, output], element)
    chosen = [
        "nan" not in (x.kind, best.kind) and spans.order(x)[:2] == spans.order(best)[:2] for x in _decoded(row, element)
    ]
    count = integer(sum(chosen), compute)
    return [point(divide(gradient if each else ZERO, count, compute)) for each in chosen]


def smallest_backward(d_output: int, row, output: int, *, element) -> list[Span]:
    """That of the largest, but of the smallest."""
    return largest_backward(d_output, row, output, element=element)


def norm1_backward(d_output: int, row, *, element) -> list[Span]:
    """The gradient with the sign of each element; times the element where that is a zero or NaN."""
    compute = compute_format(element)
    gradient = _points([d_output], element)[0]
    values = _decoded(row, element)
    signs = [x if x.kind == "nan" or x.zero else integer(-1 if x.negative else 1, compute) for x in values]
    return [spans.multiply(gradient, point(sign), compute) for sign in signs]


def norm2_backward(d_output: int, row, output: int, *, element) -> list[Span]:
    """x * (gradient / norm); 0 where the norm is."""
    compute = compute_format(element)
    gradient, norm = _points([d_output, output], element)
    if norm.low.zero:
        return [point(ZERO)] * len(row)
    slope = spans.divide(gradient, norm, compute)
    return [spans.multiply(x, slope, compute) for x in _points(row, element)]


def logsumexp_backward(d_output: int, row, output: int, *, element) -> list[Span]:
    """gradient * e^(x - output)."""
    compute = compute_format(element)
    gradient, whole = _points([d_output, output], element)
    shares = [spans.exp(spans.subtract(x, whole, compute), compute) for x in _points(row, element)]
    return [spans.multiply(gradient, share, compute) for share in shares]


def variance_backward(d_output: int, row, correction: Fraction = Fraction(1), *, element) -> list[Span]:
    """(x - mean(x)) * (2 * gradient / the divisor of the variance)."""
    return _variance_gradient(_points([d_output], element)[0], row, correction, element)


def deviation_backward(d_output: int, row, output: int, correction: Fraction = Fraction(1), *, element) -> list[Span]:
    """That of the variance, by half the gradient / the deviation; 0 where the deviation is."""
    compute = compute_format(element)
    gradient, deviation = _points([d_output, output], element)
    if deviation.low.zero:
        return [point(ZERO)] * len(row)
    half = spans.multiply(point(real(Fraction(1, 2), compute)), gradient, compute)
    return _variance_gradient(spans.divide(half, deviation, compute), row, correction, element)


def _variance_gradient(gradient: Span, row, correction: Fraction, element: str) -> list[Span]:
    compute = compute_format(element)
    divisor = point(real(max(Fraction(len(row)) - correction, Fraction(0)), compute))
    slope = spans.multiply(point(integer(2, compute)), spans.divide(gradient, divisor, compute), compute)
    return [spans.multiply(y, slope, compute) for y in centered(_points(row, element), compute)]


def some(row, *, element) -> bool:
    """Whether an element is not a zero; a NaN is none."""
    return nonzero(row, element=element) > 0


def each(row, *, element) -> bool:
    """Whether no element is a zero."""
    return nonzero(row, element=element) == len(row)


def nonzero(row, *, element) -> int:
    """How many elements are no zeros."""
    return sum(not value.zero for value in _decoded(row, element))


def first_largest(row, *, element) -> int:
    """The position of the first NaN, else that of the first of the largest; zeros of both signs are equal."""
    return _first(row, element, max)


def first_smallest(row, *, element) -> int:
    """The position of the first NaN, else that of the first of the smallest; zeros of both signs are equal."""
    return _first(row, element, min)


@remembered
def gelu(row, *, element) -> list[Span]:
    """x times the normal distribution below it."""
    compute = compute_format(element)
    return [spans.multiply(x, spans.ndtr(x, compute, element), compute) for x in _points(row, element)]


def gelu_backward(d_output, row, *, element) -> list[Span]:
    """gradient * (the normal distribution below x + x * (its density e^(-x^2 / 2) / sqrt(2 pi)))."""
    return _products(_points(d_output, element), _gelu_slopes(row, element), compute_format(element))


def _gelu_slopes(row, element: str) -> list[Span]:
    compute = compute_format(element)
    return [spans.gelu_slope(x.low, compute, element) for x in _points(row, element)]


@remembered
def gelu_tanh(row, *, element) -> list[Span]:
    """x (1 + tanh u) / 2 = x * sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    compute = compute_format(element)
    points = _points(row, element)
    return [spans.multiply(x, spans.sigmoid(_twice_u(x, compute), compute, element), compute) for x in points]


def gelu_tanh_backward(d_output, row, *, element) -> list[Span]:
    """gradient * (s * (1 + x * (1 - s) * (2 sqrt(2 / pi) (1 + 3 * 0.044715 x^2)))), s = sigmoid(2u); s is 0 or 1 from
    |x| = 32 on, and so is the slope."""
    return _products(_points(d_output, element), _gelu_tanh_slopes(row, element), compute_format(element))


def _gelu_tanh_slopes(row, element: str) -> list[Span]:
    compute = compute_format(element)
    doubled, cubic = (point(real(Fraction(each), compute)) for each in ("1.5957691216057308", "0.21406444881780073"))
    found = []
    for x in _points(row, element):
        s = spans.sigmoid(_twice_u(x, compute), compute, element)
        if x.low.kind == "inf" or (x.finite and x.low.magnitude >= 32):
            found.append(point(real(not x.low.negative, compute)))
            continue
        inner = spans.add(doubled, spans.multiply(cubic, spans.multiply(x, x, compute), compute), compute)
        rest = spans.multiply(x, spans.subtract(_one(compute), s, compute), compute)
        bent = spans.add(_one(compute), spans.multiply(rest, inner, compute), compute)
        found.append(spans.multiply(s, bent, compute))
    return found


@remembered
def silu_mul(gate, up, *, element) -> list[Span]:
    """gate / (1 + e^-gate) * up."""
    compute = compute_format(element)
    return _products(_silu(_points(gate, element), compute, element), _points(up, element), compute)


def silu_mul_backward(d_output, gate, up, *, element) -> tuple[list[Span], list[Span]]:
    """(of gate: gradient * (s * (1 + gate * (1 - s))) * up, s = sigmoid(gate); of up: gradient * silu(gate))."""
    compute = compute_format(element)
    g, x, up = (_points(each, element) for each in (d_output, gate, up))
    slopes = []
    for each in x:
        s = spans.sigmoid(each, compute, element)
        rest = spans.multiply(each, spans.subtract(_one(compute), s, compute), compute)
        slopes.append(spans.multiply(s, spans.add(_one(compute), rest, compute), compute))
    return _products(_products(g, slopes, compute), up, compute), _products(g, _silu(x, compute, element), compute)


def gelu_quantize(row, scale: int, zero_point: int, q_min: int, q_max: int, *, element, scale_element) -> Codes:
    """The codes of gelu before it is stored, from the least to the greatest that may be."""
    return _codes(gelu(row, element=element), scale, zero_point, q_min, q_max, element, scale_element)


def gelu_tanh_quantize(row, scale: int, zero_point: int, q_min: int, q_max: int, *, element, scale_element) -> Codes:
    """The same of gelu_tanh."""
    return _codes(gelu_tanh(row, element=element), scale, zero_point, q_min, q_max, element, scale_element)


def gelu_quantize_backward(
    d_output, row, scale: int, zero_point: int, q_min: int, q_max: int, *, element, scale_element
) -> list[Span]:
    """gradient / scale * the slope of gelu where its code is in range, else 0."""
    active, slopes = gelu(row, element=element), _gelu_slopes(row, element)
    return _let_through(d_output, active, slopes, (scale, zero_point, q_min, q_max), element, scale_element)


def gelu_tanh_quantize_backward(
    d_output, row, scale: int, zero_point: int, q_min: int, q_max: int, *, element, scale_element
) -> list[Span]:
    """The same of gelu_tanh."""
    active, slopes = gelu_tanh(row, element=element), _gelu_tanh_slopes(row, element)
    return _let_through(d_output, active, slopes, (scale, zero_point, q_min, q_max), element, scale_element)


def _let_through(d_output, active, slopes, parameters, element: str, scale_element: str) -> list[Span]:
    """gradient / scale * slope where the code of what is quantized is in range and the slope is not 0, else 0; any of
    both where a span has values within and without."""
    compute = compute_format(element)
    divisor = point(decode(parameters[0], FORMATS[scale_element]))
    kinds = {"element": compute.word, "scale_element": scale_element}
    found = []
    for g, value, slope in zip(_points(d_output, element), active, slopes, strict=True):
        ends = [encode(end, compute) for end in (value.low, value.high)]
        within = [affine.in_range(end, *parameters, **kinds) for end in ends]
        through = spans.multiply(spans.divide(g, divisor, compute), slope, compute)
        if slope.exact and slope.low.zero:
            through = point(ZERO)
        elif slope.finite and through is not ANY and (slope.low.zero or slope.high.zero):
            through = ANY if through.nan else spans.hull([through.low, through.high, ZERO])
        found.append(through if all(within) else ANY if any(within) or not value.exact else point(ZERO))
    return found


def _twice_u(x: Span, compute) -> Span:
    """2 sqrt(2 / pi) (x + 0.044715 x^3)."""
    doubled, cubic = (point(real(Fraction(each), compute)) for each in ("1.5957691216057308", "0.07135481627260025"))
    inner = spans.add(doubled, spans.multiply(cubic, spans.multiply(x, x, compute), compute), compute)
    return spans.multiply(x, inner, compute)


def _silu(values: Sequence[Span], compute, element: str) -> list[Span]:
    below = (spans.add(_one(compute), spans.exp(spans.negate(x), compute, element), compute) for x in values)
    return [spans.divide(*pair, compute) for pair in zip(values, below, strict=True)]


def _first(row, element: str, extreme) -> int:
    values = _decoded(row, element)
    kinds = [value.kind for value in values]
    if "nan" in kinds:
        return kinds.index("nan")
    keys = [spans.order(value)[:2] for value in values]
    return keys.index(extreme(keys))


def _stored_sums(row, other, element: str) -> list[int]:
    compute = compute_format(element)
    pairs = zip(_decoded(row, element), _decoded(other, element), strict=True)
    return [encode(add(*pair, compute), FORMATS[element]) for pair in pairs]


def centered(values: Sequence[Span], compute) -> list[Span]:
    """x - the mean of x: equal elements deviate by 0."""
    if not values:
        return []
    if len(set(values)) == 1 and values[0].exact and values[0].finite:
        return [point(ZERO)] * len(values)
    mean = middle(values, compute)
    return [spans.subtract(each, mean, compute) for each in values]


def middle(values: Sequence[Span], compute) -> Span:
    """The mean, which lies between the least and the greatest; of nothing 0."""
    if not values:
        return point(ZERO)
    return spans.cut(_mean(values, compute), spans.smallest(values), spans.largest(values))


def squared_deviations(values: Sequence[Span], compute) -> Span:
    """The sum of the squares of x - the mean of x, of exact values; in one pass, whose error is bounded.

    Eight neighbours are made one around their own mean. A distance from the first is off by u of itself, the mean of
    such by 5 u of the largest, which is at most eight times what the squares have of it: 20 u in all. Each of at most
    k joins adds three roundings, of which one is of the smallest subnormal where squares are so small.
    """
    if not all(value.finite for value in values):
        return point(spans.NAN)
    numbers = [value.low.signed for value in values]
    count = max(len(numbers), 1)
    mean = sum(numbers, Fraction(0)) / count
    whole = sum(((number - mean) ** 2 for number in numbers), Fraction(0))
    if whole == 0:
        return point(ZERO)
    u = Fraction(1, 1 << (compute.fraction_bits + 1))
    joins = min(count - 1, 20 + ((count - 1) // 65536).bit_length())
    off, least = whole * (20 + 3 * joins) * u, 2 * count * decode(1, compute).magnitude
    return spans.within(max(whole - off - least, Fraction(0)), whole + off + least, compute)


def _decoded(bits: Iterable[int], element: str) -> list[Value]:
    return [decode(each, FORMATS[element]) for each in bits]


def _points(bits: Iterable[int], element: str) -> list[Span]:
    return [point(value) for value in _decoded(bits, element)]


def _positions(row: Sequence[int], wanted: Iterable[int] | None) -> Iterable[int]:
    return range(len(row)) if wanted is None else wanted


def _one(compute) -> Span:
    return point(integer(1, compute))


def _mean(values: Sequence[Span], compute) -> Span:
    return spans.divide(spans.total(values, compute), point(integer(len(values), compute)), compute)


def _products(a: Sequence[Span], b: Sequence[Span], compute) -> list[Span]:
    return [spans.multiply(*pair, compute) for pair in zip(a, b, strict=True)]


def _sums(a: Sequence[Span], b: Sequence[Span], compute) -> list[Span]:
    return [spans.add(*pair, compute) for pair in zip(a, b, strict=True)]


def _squares(values: Sequence[Span], compute) -> list[Span]:
    """x * x: the square of the magnitude, as both factors are one value."""
    return [spans.multiply(size, size, compute) for size in map(spans.magnitude, values)]


def _norm(values: Sequence[Span], compute) -> Span:
    return spans.sqrt(spans.total(_squares(values, compute), compute), compute)


def _one_over_root(values: Sequence[Span], eps: int, compute) -> Span:
    within = spans.add(_mean(_squares(values, compute), compute), point(decode(eps, compute)), compute)
    return spans.divide(_one(compute), spans.sqrt(within, compute), compute)


def _raised(x: Sequence[Span], compute, stored: str = "") -> list[Span]:
    highest = spans.largest(x)
    return [spans.exp(spans.subtract(each, highest, compute), compute, stored) for each in x]


def _quantized(values: Sequence[Span], q_min, q_max, scale, element, scale_element, wanted) -> tuple[Span, Codes]:
    """Where the scale may lie, and from which code to which each code by the scale that was stored.

    A code is the exact quantization of some value of a span, so more than one code is admitted only where a span
    reaches over a tie.
    """
    compute = compute_format(element)
    wanted = [values[i] for i in _positions(values, wanted)]
    least = decode(LEAST, FORMATS[scale_element or compute.word])
    return symmetric_scale(values, q_max, least, compute), _codes(wanted, scale, 0, q_min, q_max, element, compute.word)


def _codes(values: Sequence[Span], scale: int, zero_point: int, q_min, q_max, element, scale_element: str) -> Codes:
    compute = compute_format(element)
    kinds = {"element": compute.word, "scale_element": scale_element}
    codes = []
    for value in values:
        if value is ANY:
            codes.append((q_min, q_max))
            continue
        ends = [encode(end, compute) for end in ((value.low,) if value.exact else (value.low, value.high))]
        both = sorted(affine.quantize(end, scale, zero_point, q_min, q_max, **kinds) for end in ends)
        codes.append((both[0], both[-1]))
    return codes


def symmetric_scale(values: Sequence[Span], q_max: int | Fraction, least: Value, compute) -> Span:
    """Where the largest finite magnitude / q_max lies; the least value in place of 0, 1 where the magnitude is 0."""
    if any(not each.finite and not each.exact or each is ANY for each in values):
        return ANY  # finite or not: the largest is of these or of others
    sizes = [spans.magnitude(each) for each in values if each.finite]
    if not sizes or all(size.high.zero for size in sizes):
        return _one(compute)
    size = spans.largest(sizes)
    if size.low.zero:
        return ANY
    scale = spans.divide(size, point(real(q_max, compute)), compute)
    return spans.largest([scale, point(least)])
