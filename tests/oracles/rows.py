"""Operations on a row, from their definitions: plain dynamic quantization to the bit, the others as spans.

Rows, parameters and `eps` are bit patterns; `eps` and scales are of the compute type. A span is where the value may
lie before it is stored (spans.py says why); `wanted` are the places of the row whose outputs are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import affine, spans
from .floats import FORMATS, Value, compute_format, decode, divide, encode, encode_fraction, integer, subtract
from .spans import ANY, Span, point, real

Codes = list[tuple[int, int]]


def dynamic_quantize(row: Sequence[int], q_min: int, q_max: int, *, element: str) -> tuple[int, list[int]]:
    """(scale, codes): scale = the largest finite magnitude / q_max, or 1 where that is 0; zero point 0."""
    compute = compute_format(element)
    sizes = [value.magnitude for value in _decoded(row, element) if value.kind == "finite"]
    scale = encode_fraction(1, compute)
    if max(sizes, default=0):
        scale = encode(divide(Value("finite", False, max(sizes)), integer(q_max, compute), compute), compute)
    kinds = {"element": element, "scale_element": compute.word}
    return scale, [affine.quantize(x, scale, 0, q_min, q_max, **kinds) for x in row]


def dynamic_quantize_asymmetric(row, q_min, q_max, *, element) -> tuple[int, int, list[int]]:
    """(scale, zero point, codes): low and high are those of the finite values and 0. The scale is high / (q_max -
    q_min) - low / (q_max - q_min), each step rounded, or 1 where low = high; the zero point is q_min - low / scale.
    """
    compute = compute_format(element)
    finite = [value.signed for value in _decoded(row, element) if value.kind == "finite"]
    low, high = real(min([*finite, 0]), compute), real(max([*finite, 0]), compute)
    levels = integer(q_max - q_min, compute)
    scale = encode_fraction(1, compute)
    if low.signed != high.signed:
        parts = [divide(each, levels, compute) for each in (high, low)]
        scale = encode(subtract(*parts, compute), compute)
    kinds = {"element": compute.word, "scale_element": compute.word}
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


def layer_norm(row, weight, bias, eps: int, *, element, wanted=None) -> list[Span]:
    """y * (1 / sqrt(mean(y^2) + eps)) * weight + bias, y = x - mean(x)."""
    compute = compute_format(element)
    x, weight, bias = (_points(each, element) for each in (row, weight, bias))
    mean = _mean(x, compute)
    y = [spans.subtract(each, mean, compute) for each in x]
    factor = _one_over_root(y, eps, compute)
    found = []
    for i in _places(row, wanted):
        product = spans.multiply(spans.multiply(y[i], factor, compute), weight[i], compute)
        found.append(spans.add(product, bias[i], compute))
    return found


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
