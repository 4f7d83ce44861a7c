"""Operations on a row, from their definitions: plain dynamic quantization to the bit, the others as spans.

Rows, parameters and `eps` are bit patterns; `eps` and scales are of the compute type. A span is where the value may
lie before it is stored (spans.py says why); `wanted` are the places of the row whose outputs are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from . import affine, spans
from .floats import FORMATS, Value, add, compute_format, decode, divide, encode, encode_fraction, integer, subtract
from .spans import ANY, Span, point, real

Codes = list[tuple[int, int]]


def dynamic_quantize(row, q_min: int, q_max: int, *, element, scale_element=None) -> tuple[int, list[int]]:
    """(scale, codes): scale = the largest finite magnitude / q_max, or 1 where that is 0; zero point 0. The codes are
    made with the scale as `scale_element` (the compute type if None) holds it.
    """
    compute = compute_format(element)
    scale_form = FORMATS[scale_element or compute.word]
    sizes = [value.magnitude for value in _decoded(row, element) if value.kind == "finite"]
    scale = encode_fraction(1, scale_form)
    if max(sizes, default=0):
        scale = encode(divide(Value("finite", False, max(sizes)), integer(q_max, compute), compute), scale_form)
    kinds = {"element": element, "scale_element": scale_form.word}
    return scale, [affine.quantize(x, scale, 0, q_min, q_max, **kinds) for x in row]


def dynamic_quantize_asymmetric(row, q_min, q_max, *, element, scale_element=None) -> tuple[int, int, list[int]]:
    """(scale, zero point, codes): low and high are those of the finite values and 0. The scale is high / (q_max -
    q_min) - low / (q_max - q_min), each step rounded, or 1 where low = high; the zero point is q_min - low / scale.
    `scale_element` as above.
    """
    compute = compute_format(element)
    scale_form = FORMATS[scale_element or compute.word]
    finite = [value.signed for value in _decoded(row, element) if value.kind == "finite"]
    low, high = real(min([*finite, 0]), compute), real(max([*finite, 0]), compute)
    levels = integer(q_max - q_min, compute)
    scale = encode_fraction(1, scale_form)
    if low.signed != high.signed:
        parts = [divide(each, levels, compute) for each in (high, low)]
        scale = encode(subtract(*parts, compute), scale_form)
    kinds = {"element": compute.word, "scale_element": scale_form.word}
    zero_point = affine.clamp(q_min - affine.steps(encode(low, compute), scale, **kinds), q_min, q_max)
    kinds["element"] = element
    return scale, zero_point, [affine.quantize(x, scale, zero_point, q_min, q_max, **kinds) for x in row]


def rms_norm(row, weight, eps: int, *, element, wanted=None) -> list[Span]:
    """x * (1 / sqrt(mean(x^2) + eps)) * weight."""
    compute = compute_format(element)
    x, weight = _points(row, element), _points(weight, element)
    factor = _one_over_root(x, eps, compute)
    places = _places(row, wanted)
    return [spans.multiply(spans.multiply(x[i], factor, compute), weight[i], compute) for i in places]


def rms_normalize(row, eps: int, *, element, wanted=None) -> list[Span]:
    """x * (1 / sqrt(mean(x^2) + eps))."""
    compute = compute_format(element)
    x = _points(row, element)
    factor = _one_over_root(x, eps, compute)
    return [spans.multiply(x[i], factor, compute) for i in _places(row, wanted)]


def add_rms_norm(row, residual, weight, eps: int, *, element, wanted=None) -> tuple[list[int], list[Span]]:
    """(x + residual as it is stored, rms_norm of that)."""
    stored = _stored_sums(row, residual, element)
    return stored, rms_norm(stored, weight, eps, element=element, wanted=wanted)


def layer_norm(row, weight, bias, eps: int, *, element, wanted=None) -> list[Span]:
    """y * (1 / sqrt(mean(y^2) + eps)) * weight + bias, y = x - mean(x)."""
    compute = compute_format(element)
    weight, bias = (_points(each, element) for each in (weight, bias))
    places = _places(row, wanted)
    return [
        spans.add(spans.multiply(y, weight[i], compute), bias[i], compute)
        for i, y in zip(places, standardize(row, eps, element=element, wanted=places), strict=True)
    ]


def standardize(row, eps: int, *, element, wanted=None) -> list[Span]:
    """y * (1 / sqrt(mean(y^2) + eps)), y = x - mean(x)."""
    compute = compute_format(element)
    y = _centered(_points(row, element), compute)
    factor = _one_over_root(y, eps, compute)
    return [spans.multiply(y[i], factor, compute) for i in _places(row, wanted)]


def rms_norm_backward(d_output, rows, weight, eps: int, *, element) -> tuple[list[list[Span]], list[Span]]:
    """(of the input, of the weight), with r = 1 / sqrt(mean(x^2) + eps) of each row and g = dy * weight:
    r * (g - x * (r * r * mean(g * x))), and the sum of dy * (x * r) over the rows."""
    compute = compute_format(element)
    weight = _points(weight, element)
    of_input, of_weight = [], []
    for dy, x in ((_points(a, element), _points(b, element)) for a, b in zip(d_output, rows, strict=True)):
        r = _one_over_root(x, eps, compute)
        g = _products(dy, weight, compute)
        share = spans.multiply(spans.multiply(r, r, compute), _mean(_products(g, x, compute), compute), compute)
        rest = [spans.subtract(a, spans.multiply(b, share, compute), compute) for a, b in zip(g, x, strict=True)]
        of_input.append([spans.multiply(r, each, compute) for each in rest])
        of_weight.append(_products(dy, [spans.multiply(each, r, compute) for each in x], compute))
    return of_input, [spans.total(column, compute) for column in zip(*of_weight, strict=True)]


def layer_norm_backward(d_output, rows, weight, eps: int, *, element) -> tuple[list, list[Span], list[Span]]:
    """(of the input, of the weight, of the bias), with y = x - mean(x), r = 1 / sqrt(mean(y^2) + eps), h = y * r and
    g = dy * weight: r * (g - mean(g) - h * mean(g * h)), the sum of dy * h over the rows, and that of dy."""
    compute = compute_format(element)
    weight = _points(weight, element)
    of_input, of_weight, of_bias = [], [], []
    for dy, x in ((_points(a, element), _points(b, element)) for a, b in zip(d_output, rows, strict=True)):
        mean = _mean(x, compute)
        y = [spans.subtract(each, mean, compute) for each in x]
        r = _one_over_root(y, eps, compute)
        h = [spans.multiply(each, r, compute) for each in y]
        g = _products(dy, weight, compute)
        middle, share = _mean(g, compute), _mean(_products(g, h, compute), compute)
        rest = [
            spans.subtract(spans.subtract(a, middle, compute), spans.multiply(b, share, compute), compute)
            for a, b in zip(g, h, strict=True)
        ]
        of_input.append([spans.multiply(r, each, compute) for each in rest])
        of_weight.append(_products(dy, h, compute))
        of_bias.append(dy)
    return of_input, *([spans.total(c, compute) for c in zip(*each, strict=True)] for each in (of_weight, of_bias))


def l2_normalize(row, eps: int, *, element, wanted=None) -> list[Span]:
    """x / max(sqrt(sum(x^2)), eps); eps where the norm is NaN."""
    compute = compute_format(element)
    x = _points(row, element)
    norm = _norm(x, compute)
    least = point(decode(eps, compute))
    if norm is not ANY:
        norm = least if norm.nan else spans.largest([norm, least])
    return [spans.divide(x[i], norm, compute) for i in _places(row, wanted)]


def softmax(row, *, element, wanted=None) -> list[Span]:
    """e^(x - max) * (1 / sum(e^(x - max)))."""
    compute = compute_format(element)
    raised = _raised(_points(row, element), compute)
    factor = spans.divide(_one(compute), spans.total(raised, compute), compute)
    return [spans.multiply(raised[i], factor, compute) for i in _places(row, wanted)]


def softmax_backward(d_output, output, *, element, wanted=None) -> list[Span]:
    """y * (dy - sum(dy * y))."""
    compute = compute_format(element)
    gradient, y = _points(d_output, element), _points(output, element)
    products = [spans.multiply(*pair, compute) for pair in zip(gradient, y, strict=True)]
    total = spans.total(products, compute)
    places = _places(output, wanted)
    return [spans.multiply(y[i], spans.subtract(gradient[i], total, compute), compute) for i in places]


def log_softmax(row, *, element, wanted=None) -> list[Span]:
    """(x - max) - log(sum(e^(x - max)))."""
    compute = compute_format(element)
    x = _points(row, element)
    highest = spans.largest(x)
    rest = spans.log(spans.total(_raised(x, compute), compute), compute)
    places = _places(row, wanted)
    return [spans.subtract(spans.subtract(x[i], highest, compute), rest, compute) for i in places]


def log_softmax_backward(d_output, output, *, element, wanted=None) -> list[Span]:
    """dy - e^y * sum(dy)."""
    compute = compute_format(element)
    gradient, y = _points(d_output, element), _points(output, element)
    total = spans.total(gradient, compute)
    found = []
    for i in _places(output, wanted):
        share = spans.multiply(spans.exp(y[i], compute), total, compute)
        found.append(spans.subtract(gradient[i], share, compute))
    return found


def rms_norm_dynamic_quantize(row, weight, eps, q_min, q_max, scale, *, element, wanted=None) -> tuple[Span, Codes]:
    """(scale, codes) of rms_norm before it is stored; `scale` is the one that was stored beside the codes."""
    return _quantized(rms_norm(row, weight, eps, element=element), q_min, q_max, scale, element, wanted)


def silu_mul_dynamic_quantize(gate, up, q_min, q_max, scale, *, element, wanted=None) -> tuple[Span, Codes]:
    """(scale, codes) of gate / (1 + e^-gate) * up before it is stored; `scale` as in rms_norm_dynamic_quantize."""
    compute = compute_format(element)
    products = []
    for x, other in zip(_points(gate, element), _points(up, element), strict=True):
        below = spans.add(_one(compute), spans.exp(spans.negate(x), compute), compute)
        products.append(spans.multiply(spans.divide(x, below, compute), other, compute))
    return _quantized(products, q_min, q_max, scale, element, wanted)


def add_rms_norm_dynamic_quantize(row, residual, weight, eps, q_min, q_max, scale, *, element, wanted=None):
    """(x + residual as it is stored, scale, codes of rms_norm of that); `scale` as in rms_norm_dynamic_quantize."""
    stored = _stored_sums(row, residual, element)
    return stored, *rms_norm_dynamic_quantize(
        stored, weight, eps, q_min, q_max, scale, element=element, wanted=wanted
    )


def layer_norm_dynamic_quantize(row, weight, bias, eps, q_min, q_max, scale, *, element, wanted=None):
    """(scale, codes) of layer_norm before it is stored; `scale` as in rms_norm_dynamic_quantize."""
    values = layer_norm(row, weight, bias, eps, element=element)
    return _quantized(values, q_min, q_max, scale, element, wanted)


def softmax_dynamic_quantize(row, q_min, q_max, scale, *, element, wanted=None) -> tuple[Span, Codes]:
    """(scale, codes) of softmax before it is stored; `scale` as in rms_norm_dynamic_quantize."""
    return _quantized(softmax(row, element=element), q_min, q_max, scale, element, wanted)


def gelu_dynamic_quantize(row, q_min, q_max, scale, *, element, wanted=None) -> tuple[Span, Codes]:
    """(scale, codes) of x (1 + tanh u) / 2 = x / (1 + e^(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3), before it is
    stored; `scale` as in rms_norm_dynamic_quantize."""
    compute = compute_format(element)
    doubled, cubic = (point(real(Fraction(each), compute)) for each in ("-1.5957691216057308", "0.044715"))
    values = []
    for x in _points(row, element):
        cube = spans.multiply(spans.multiply(x, x, compute), x, compute)
        inner = spans.add(x, spans.multiply(cubic, cube, compute), compute)
        below = spans.add(_one(compute), spans.exp(spans.multiply(doubled, inner, compute), compute), compute)
        values.append(spans.divide(x, below, compute))
    return _quantized(values, q_min, q_max, scale, element, wanted)


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
    """max + log(sum(e^(x - max)))."""
    compute = compute_format(element)
    x = _points(row, element)
    rest = spans.log(spans.total(_raised(x, compute), compute), compute)
    return spans.add(spans.largest(x), rest, compute)


def variance(row, correction: Fraction = Fraction(1), *, element) -> Span:
    """The sum of squares of x - mean(x) / the number of elements less the correction, 0 if that is less."""
    compute = compute_format(element)
    squares = _squares(_centered(_points(row, element), compute), compute)
    divisor = max(Fraction(len(row)) - correction, Fraction(0))
    whole = spans.total(squares, compute)
    if not divisor and whole.finite and not whole.exact and whole.low.signed <= 0 <= whole.high.signed:
        return ANY  # 0 / 0, or something else / 0
    return spans.divide(whole, point(real(divisor, compute)), compute)


def deviation(row, correction: Fraction = Fraction(1), *, element) -> Span:
    """The square root of the variance."""
    return spans.sqrt(variance(row, correction, element=element), compute_format(element))


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
    """The place of the first NaN, else that of the first of the largest; zeros of both signs are equal."""
    return _first(row, element, max)


def first_smallest(row, *, element) -> int:
    """The place of the first NaN, else that of the first of the smallest; zeros of both signs are equal."""
    return _first(row, element, min)


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


def _centered(values: Sequence[Span], compute) -> list[Span]:
    mean = _mean(values, compute)
    return [spans.subtract(each, mean, compute) for each in values]


def _decoded(bits: Iterable[int], element: str) -> list[Value]:
    return [decode(each, FORMATS[element]) for each in bits]


def _points(bits: Iterable[int], element: str) -> list[Span]:
    return [point(value) for value in _decoded(bits, element)]


def _places(row: Sequence[int], wanted: Iterable[int] | None) -> Iterable[int]:
    return range(len(row)) if wanted is None else wanted


def _one(compute) -> Span:
    return point(integer(1, compute))


def _mean(values: Sequence[Span], compute) -> Span:
    return spans.divide(spans.total(values, compute), point(integer(len(values), compute)), compute)


def _products(a: Sequence[Span], b: Sequence[Span], compute) -> list[Span]:
    return [spans.multiply(*pair, compute) for pair in zip(a, b, strict=True)]


def _squares(values: Sequence[Span], compute) -> list[Span]:
    """x * x: the square of the magnitude, as both factors are one value."""
    return [spans.multiply(size, size, compute) for size in map(spans.magnitude, values)]


def _norm(values: Sequence[Span], compute) -> Span:
    return spans.sqrt(spans.total(_squares(values, compute), compute), compute)


def _one_over_root(values: Sequence[Span], eps: int, compute) -> Span:
    within = spans.add(_mean(_squares(values, compute), compute), point(decode(eps, compute)), compute)
    return spans.divide(_one(compute), spans.sqrt(within, compute), compute)


def _raised(x: Sequence[Span], compute) -> list[Span]:
    highest = spans.largest(x)
    return [spans.exp(spans.subtract(each, highest, compute), compute) for each in x]


def _quantized(values: Sequence[Span], q_min, q_max, scale: int, element, wanted) -> tuple[Span, Codes]:
    """Where the scale may lie, and from which code to which each code by the scale that was stored.

    A code is the exact quantization of some value of a span, so more than one code is admitted only where a span
    reaches over a tie.
    """
    compute = compute_format(element)
    kinds = {"element": compute.word, "scale_element": compute.word}
    codes = []
    for i in _places(values, wanted):
        if values[i] is ANY:
            codes.append((q_min, q_max))
            continue
        ends = [encode(end, compute) for end in (values[i].low, values[i].high)]
        both = sorted(affine.quantize(end, scale, 0, q_min, q_max, **kinds) for end in ends)
        codes.append((both[0], both[1]))
    return _scale(values, q_max, compute), codes


def _scale(values: Sequence[Span], q_max: int, compute) -> Span:
    if any(not each.finite and not each.exact or each is ANY for each in values):
        return ANY  # finite or not: the largest is of these or of others
    sizes = [spans.magnitude(each) for each in values if each.finite]
    if not sizes or all(size.high.zero for size in sizes):
        return _one(compute)
    size = spans.largest(sizes)
    return ANY if size.low.zero else spans.divide(size, point(integer(q_max, compute)), compute)
