"""The oracles of elementwise operations of several operands whose steps are rounded one by one, and of conversions."""

from __future__ import annotations

from fractions import Fraction

from . import floats, rows, spans
from .binding import oracle
from .floats import FORMATS, FP8, NAN, Value, compute_format, decode, encode, encode_fraction, integer
from .function_slopes import of_sigmoid
from .of_data import INTEGERS, either, fmod, mul, wrapped
from .of_functions import exactly, of_gradient
from .spans import Span, order, point


def _values(T: str, *elements: int) -> list[Value]:
    return [decode(each, FORMATS[T]) for each in elements]


def _stored(value: Value, T: str) -> int:
    return encode(value, FORMATS[T])


def _number(bits: int, T: str) -> Value:
    """An attribute, which is of the compute type."""
    return decode(bits, compute_format(T))


# ---- of two ----


@oracle
def div(a, b, *, T):
    return _stored(floats.divide(*_values(T, a, b), compute_format(T)), T)


@oracle
def div_backward(d_output, a, b, *, T):
    """g / b and -g (a / b / b), which is 0 where g is."""
    form, (g, x, y) = compute_format(T), _values(T, d_output, a, b)
    slope = floats.divide(floats.divide(x, y, form), y, form)
    return _stored(floats.divide(g, y, form), T), _negative_multiple(slope, g, T)


def _negative_multiple(slope: Value, g: Value, T: str) -> int:
    form = compute_format(T)
    return _stored(floats.negate(spans.ZERO if g.zero else floats.multiply(slope, g, form)), T)


@oracle(name="fmod")
def fmod_of_elements(a, b, *, T):
    return _stored(fmod(*_values(T, a, b)), T)


@oracle
def fmod_backward(d_output, a, b, *, T):
    """g, and -g times the quotient toward 0."""
    g, x, y = _values(T, d_output, a, b)
    quotient = floats.divide(x, y, compute_format(T))
    if quotient.kind == "finite":
        quotient = Value("finite", quotient.negative, Fraction(quotient.magnitude.__floor__()))
    return _stored(g, T), _negative_multiple(quotient, g, T)


@oracle
def copysign(a, b, *, T):
    """A NaN has no sign where it is stored; that of the second is looked at."""
    form = FORMATS[T]
    size = a & ~form.sign
    return form.nan if decode(a, form).kind == "nan" else size | (b & form.sign)


@oracle
def copysign_backward(d_output, a, b, *, T):
    g, x = _values(T, d_output, a)
    if x.zero:
        return Span(*ZEROS) if g.kind == "finite" else FORMATS[T].nan
    if x.kind == "nan":
        return FORMATS[T].nan
    turned = x.negative != bool(b & FORMATS[T].sign)
    return _stored(floats.negate(g) if turned else g, T)


ZEROS = (Value("finite", True), spans.ZERO)


def _number_or_other(T: str, a: int, b: int, first: bool) -> int:
    x, y = _values(T, a, b)
    return _stored(x if y.kind == "nan" or (x.kind != "nan" and first) else y, T)


def _before(T: str, a: int, b: int) -> int:
    """-1, 0 or 1 as the first is below the second, equal, or above; NaN is neither, 2."""
    x, y = _values(T, a, b)
    if "nan" in (x.kind, y.kind):
        return 2
    return (order(x)[:2] > order(y)[:2]) - (order(x)[:2] < order(y)[:2])


@oracle
def fmin(a, b, *, T):
    return _number_or_other(T, a, b, _before(T, a, b) < 0)


@oracle
def fmax(a, b, *, T):
    return _number_or_other(T, a, b, _before(T, a, b) == 1)


def _to_one(d_output: int, a: int, b: int, T: str, first: bool) -> tuple[int, int]:
    taken = first or _values(T, b)[0].kind == "nan"
    whole = _stored(decode(d_output, FORMATS[T]), T)
    return (whole, 0) if taken else (0, whole)


@oracle
def fmin_backward(d_output, a, b, *, T):
    return _to_one(d_output, a, b, T, _before(T, a, b) in (-1, 0))


@oracle
def fmax_backward(d_output, a, b, *, T):
    return _to_one(d_output, a, b, T, _before(T, a, b) in (1, 0))


@oracle
def heaviside(a, b, *, T):
    x, y = _values(T, a, b)
    return _stored(y if x.zero else x if x.kind == "nan" else Value("finite", False, Fraction(not x.negative)), T)


# ---- bounds ----


def _cut(x: Value, low: Value, high: Value) -> Value:
    if "nan" in (x.kind, low.kind, high.kind):
        return NAN
    raised = x if order(x)[:2] > order(low)[:2] else low  # the second of equals
    return raised if order(raised)[:2] < order(high)[:2] else high


@oracle
def clamp(input, *, low, high, T):
    return _stored(_cut(*_values(T, input), _number(low, T), _number(high, T)), T)


def _at_most(x: Value, y: Value) -> bool:
    return "nan" not in (x.kind, y.kind) and order(x)[:2] <= order(y)[:2]


@oracle
def clamp_backward(d_output, input, *, low, high, T):
    (g, x), (least, most) = _values(T, d_output, input), (_number(each, T) for each in (low, high))
    return _stored(g if _at_most(least, x) and _at_most(x, most) else spans.ZERO, T)


@oracle
def clamp_min(input, *, low, T):
    return _stored(_cut(*_values(T, input), _number(low, T), Value("inf")), T)


@oracle
def clamp_min_backward(d_output, input, *, low, T):
    g, x = _values(T, d_output, input)
    return _stored(g if _at_most(_number(low, T), x) else spans.ZERO, T)


@oracle
def clamp_max(input, *, high, T):
    return _stored(_cut(*_values(T, input), Value("inf", True), _number(high, T)), T)


@oracle
def clamp_max_backward(d_output, input, *, high, T):
    g, x = _values(T, d_output, input)
    return _stored(g if _at_most(x, _number(high, T)) else spans.ZERO, T)


@oracle
def clamp_tensor(input, low, high, *, T):
    return either(T, lambda *values: _cut(*values[:3]), lambda x, low, high: min(max(x, low), high), input, low, high)


@oracle
def clamp_tensor_backward(d_output, input, low, high, *, T):
    g, x, least, most = _values(T, d_output, input, low, high)

    def below(one: Value, other: Value) -> bool:
        return _at_most(one, other) and not _at_most(other, one)

    where = (
        _at_most(least, x) and _at_most(x, most),
        below(x, least) and below(least, most),
        below(most, x) or below(most, least),
    )
    return tuple(_stored(g if holds else spans.ZERO, T) for holds in where)


# ---- products that are added ----


@oracle
def addcmul(input, a, b, *, value, T):
    form, (x, y, z) = compute_format(T), _values(T, input, a, b)
    product = floats.multiply(floats.multiply(_number(value, T), y, form), z, form)
    return _stored(floats.add(x, product, form), T)


@oracle
def addcmul_backward(d_output, a, b, *, value, T):
    form, (g, x, y) = compute_format(T), _values(T, d_output, a, b)
    v = _number(value, T)
    return _stored(g, T), *(_stored(floats.multiply(floats.multiply(g, w, form), v, form), T) for w in (y, x))


@oracle
def addcdiv(input, a, b, *, value, T):
    form, (x, y, z) = compute_format(T), _values(T, input, a, b)
    return _stored(floats.add(x, floats.multiply(_number(value, T), floats.divide(y, z, form), form), form), T)


@oracle
def addcdiv_backward(d_output, a, b, *, value, T):
    form, (g, x, y) = compute_format(T), _values(T, d_output, a, b)
    v = _number(value, T)
    slope = floats.divide(floats.multiply(v, floats.divide(x, y, form), form), y, form)
    of_a = floats.divide(floats.multiply(g, v, form), y, form)
    return _stored(g, T), _stored(of_a, T), _negative_multiple(slope, g, T)


@oracle
def affine(input, *, scale, shift, T):
    form, (x,) = compute_format(T), _values(T, input)
    return _stored(floats.add(floats.multiply(_number(scale, T), x, form), _number(shift, T), form), T)


@oracle
def affine_backward(d_output, *, scale, T):
    return _stored(floats.multiply(*_values(T, d_output), _number(scale, T), compute_format(T)), T)


@oracle
def affine_per_channel(input, scale, shift, *, T):
    form, (x, factor, addend) = compute_format(T), _values(T, input, scale, shift)
    return _stored(floats.add(floats.multiply(x, factor, form), addend, form), T)


@oracle(sharing="scale")
def affine_per_channel_backward(d_output, input, scale, *, T):
    form = compute_format(T)
    gradients, elements = ([point(each) for each in _values(T, *given)] for given in (d_output, input))
    factor = point(decode(scale, FORMATS[T]))
    products = [spans.multiply(g, x, form) for g, x in zip(gradients, elements, strict=True)]
    of_input = [spans.multiply(g, factor, form) for g in gradients]
    return of_input, spans.total(products, form), spans.total(gradients, form)


# ---- gates ----


def _points(T: str, *elements: int) -> list[Span]:
    return [point(each) for each in _values(T, *elements)]


def _above(gate: Span) -> Span:
    """The gate where it is above 0."""
    return gate if gate.nan or order(gate.low)[:2] > (0, 0) else point(spans.ZERO)


def _gated(value: Span, other: int, T: str) -> Span:
    return spans.multiply(value, *_points(T, other), compute_format(T))


@oracle
def glu(gate, up, *, T):
    return _gated(spans.sigmoid(*_points(T, gate), compute_format(T)), up, T)


@oracle
def glu_backward(d_output, gate, up, *, T):
    form, (g, x) = compute_format(T), _values(T, d_output, gate)
    slope = of_gradient(exactly(g), lambda: of_sigmoid(exactly(x)), 6, form)
    return _gated(slope, up, T), _gated(spans.sigmoid(point(x), form), d_output, T)


@oracle
def reglu(gate, up, *, T):
    return _gated(_above(*_points(T, gate)), up, T)


@oracle
def reglu_backward(d_output, gate, up, *, T):
    above = _above(*_points(T, gate))
    passes = not above.nan and not above.low.zero
    return mul(d_output, up, T=T) if passes else 0, _gated(above, d_output, T)


@oracle
def geglu(gate, up, *, T):
    return _gated(rows.gelu([gate], element=T)[0], up, T)


@oracle
def geglu_backward(d_output, gate, up, *, T):
    slope = rows.gelu_backward([d_output], [gate], element=T)[0]
    return _gated(slope, up, T), _gated(rows.gelu([gate], element=T)[0], d_output, T)


@oracle
def geglu_tanh(gate, up, *, T):
    return _gated(rows.gelu_tanh([gate], element=T)[0], up, T)


@oracle
def geglu_tanh_backward(d_output, gate, up, *, T):
    slope = rows.gelu_tanh_backward([d_output], [gate], element=T)[0]
    return _gated(slope, up, T), _gated(rows.gelu_tanh([gate], element=T)[0], d_output, T)


# ---- conversions ----


@oracle
def cast(input, *, T, U):
    formats = FORMATS | FP8
    return encode(decode(input, formats[T]), formats[U])


@oracle
def cast_backward(d_output, *, T, U):
    return cast(d_output, T=U, U=T)


@oracle
def cast_from_integers(input, *, T):
    return encode_fraction(input, FORMATS[T])


def _ends(word: str) -> tuple[int, int]:
    bits, signed = INTEGERS[word]
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


@oracle
def cast_to_integers(input, *, T, Q):
    """Toward 0; an infinity is the end of the type, and NaN is 0."""
    (x,), (low, high) = _values(T, input), _ends(Q)
    if x.kind != "finite":
        return 0 if x.kind == "nan" else low if x.negative else high
    whole = x.magnitude.__floor__()
    return min(max(-whole if x.negative else whole, low), high)


@oracle
def cast_to_long(input, *, T):
    return cast_to_integers(input, T=T, Q="i64")


@oracle
def cast_to_booleans(input, *, T):
    return int(not decode(input, FORMATS[T]).zero) if T in FORMATS else int(input != 0)


@oracle
def cast_from_booleans(input, *, T):
    return _stored(integer(input, FORMATS[T]), T)


@oracle
def cast_booleans_to_integers(input):
    return int(input)


@oracle
def cast_saturate(input, *, U):
    low, high = _ends(U)
    return min(max(input, low), high)


@oracle
def cast_wrap(input, *, U):
    return wrapped(input, U)


@oracle
def fma(a, b, c, *, T):
    """Exactly, then rounded to the compute type."""
    x, y, z = _values(T, a, b, c)
    if "nan" in (x.kind, y.kind, z.kind) or "inf" in (x.kind, y.kind) or x.zero or y.zero or z.kind == "inf":
        if "inf" not in (x.kind, y.kind) and z.kind == "inf":
            return _stored(z, T) if "nan" not in (x.kind, y.kind) else _stored(NAN, T)
        form = compute_format(T)
        return _stored(floats.add(floats.multiply(x, y, form), z, form), T)
    total = x.signed * y.signed + z.signed
    return _stored(floats.rounded(Value("finite", total < 0, abs(total)), compute_format(T)), T)


@oracle
def fma_backward(d_output, a, b, *, T):
    form, (g, x, y) = compute_format(T), _values(T, d_output, a, b)
    return _stored(floats.multiply(g, y, form), T), _stored(floats.multiply(g, x, form), T), _stored(g, T)


# ---- decimals ----


def _whole(value: Value) -> Value:
    return Value("finite", value.negative, Fraction(round(value.magnitude)))


@oracle
def round_decimals(input, decimals, *, T):
    """x times 10^n rounded to an integer, ties to even, and divided by 10^n; the other way round where n < 0."""
    (x,), form = _values(T, input), compute_format(T)
    unit = integer(10 ** abs(decimals), form)
    there, back = (floats.divide, floats.multiply) if decimals < 0 else (floats.multiply, floats.divide)
    moved = there(x, unit, form)
    return _stored(back(_whole(moved), unit, form) if moved.kind == "finite" else x, T)


@oracle
def round_decimals_backward(d_output, *, T):
    """0, also where an element stays: as torch's."""
    return _stored(spans.ZERO, T)
