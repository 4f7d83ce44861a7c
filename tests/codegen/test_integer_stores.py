"""What an integer output stores: the checker proves that it fits, or a formula says how it is made to fit.

The oracles are Python's own integers.
"""

from __future__ import annotations

import numpy as np
import pytest
from catalogs import catalog_fixture, own_spec
from conformance.support import unpack
from host import emulator
from problems import covering
from quick_compiler import compile_quickly

from skuda.codegen.spec import loads
from skuda.errors import SpecError
from skuda.launch import registry
from skuda.model.sku import BackendKind
from skuda.schedules import table

LIMITS = {
    "s8": (-128, 127), "u8": (0, 255), "s4": (-8, 7), "u4": (0, 15), "i32": (-(2**31), 2**31 - 1),
    "i64": (-(2**63), 2**63 - 1),
}  # fmt: skip
ROW = "ops:\n  op:\n    types: {{{types}}}\n"
ROW += "    inputs: {{x: 'T[*n, d]', z: 'i32[*n]', i: 'i32[*n, d]', u: 'u8[*n, d]'}}\n"
ROW += "    attrs: {{low: Q, high: Q, p: i32}}\n{requires}{let}    outputs:\n{outputs}{backward}"
USES_ALL = "      all: T[*n, d] = x + z + i + u + low + high + p\n"


def mistakes(
    outputs: list[str], types: str = "T: f32, Q: [s8, u8]", requires: str = "", let: str = "", backward: str = ""
) -> str:
    """What is said of a row with these outputs; every name is used, so that nothing else is wrong with it."""
    listed = USES_ALL + "".join(f"      o{index}: {each}\n" for index, each in enumerate(outputs))
    requires = f"    requires: [{requires}]\n" if requires else ""
    let = f"    let: {{{let}}}\n" if let else ""
    try:
        loads(ROW.format(types=types, requires=requires, let=let, outputs=listed, backward=backward))
    except SpecError as error:
        return str(error)
    return ""


FITTING = [
    "s8[*n, d] = clamp(round_to_int(x), -128, 127)",
    "u8[*n, d] = clamp(round_to_int(x), 0, 255)",
    "Q[*n, d] = clamp(round_to_int(x), low, high)",
    "Q[*n, d] = min(max(i, low), high)",
    "Q[*n, d] = clamp(i, low - z, high - z) + z",
    "Q[*n, d] = z + clamp(i - p, low - z, high - z)",
    "Q[*n, d] = clamp(2 * i, low + 2 * z - p, high - p + 2 * z) - 2 * z + p",
    "Q[*n, d] = -clamp(i, z - high, z - low) + z",
    "Q[*n, d] = where(x > 0, low, high)",
    "Q[*n, d] = where(x > 0, clamp(i, low, high), 127)",
    "Q[*n, d] = where(x == x, 1, 0)",
    "s8[*n, d] = round_to_int(clamp(x, -128, 127))",
    "s8[*n, d] = round_to_int(clamp(x, -128.5, 127.4))",
    "u8[*n, d] = round_to_int(clamp(round_even(x), 0, 255))",
    "Q[*n, d] = round_to_int(clamp(x, low, high))",
    "u4[*n, d] = round_to_int(abs(clamp(x, -15, 15)))",
    "s4[*n, d] = round_to_int(sign(x)) * 7",
    "u8[*n, d] = abs(clamp(i, -255, 255))",
    "i32[*n, d] = i",
    "i32[*n, d] = u + 1",
    "i32[*n, d] = u * u - 70000",
    "i64[*n, d] = i * i",
    "i64[*n, d] = 9 * i - round_to_int(x)",
    "i64[*n] = sum(u, over=d)",
    "i64[*n] = argmax(x, over=d)",
    "u8[*n] = max(u, over=d)",
    "Q[*n, d] = max(clamp(i, low, high), over=d)",
    "Q[*n] = min(clamp(i, low - z, high - z), over=d) + z",
    "Q[*n, d] = saturate(i)",
    "s4[*n, d] = wrap(i)",
]

REFUSED = [
    ("s8[*n, d] = round_to_int(x)", "-9007199254740992 to 9007199254740992, s8 holds -128 to 127"),
    ("Q[*n, d] = clamp(i, -128, 127)", "-128 to 127, u8 holds 0 to 255"),
    ("Q[*n, d] = clamp(i, 0, 255)", "0 to 255, s8 holds -128 to 127"),
    ("i32[*n, d] = i * i", "to 4611686018427387904, i32 holds -2147483648 to 2147483647"),
    ("i32[*n, d] = i + 1", "-2147483647 to 2147483648, i32 holds"),
    ("i32[*n, d] = abs(i)", "0 to 2147483648, i32 holds"),
    ("i32[*n, d] = -i", "-2147483647 to 2147483648, i32 holds"),
    ("i32[*n] = sum(u, over=d)", "0 to 280375465082880, i32 holds"),
    ("i32[*n] = argmin(u, over=d)", "0 to 1099511627775, i32 holds"),
    ("Q[*n, d] = clamp(i, low - z, high - p) + z", "s8 holds"),
    ("Q[*n, d] = max(clamp(i, low - z, high - z), over=d) + p", "s8 holds"),
    ("s8[*n, d] = low + 0", "0 to 255, s8 holds"),
    ("u8[*n, d] = u - 1", "-1 to 254, u8 holds"),
    ("u8[*n, d] = 256", "256 to 256, u8 holds"),
    ("u8[*n, d] = -1", "-1 to -1, u8 holds"),
    ("u4[*n, d] = 16", "u4 holds 0 to 15"),
    ("s8[*n, d] = round_to_int(clamp(x, -128, 127.5))", "-128 to 128, s8 holds"),
    ("u8[*n, d] = where(x > 0, u, -1)", "-1 to 255, u8 holds"),
    ("s8[*n, d] = 127 + where(x > 0, 1, 0)", "127 to 128, s8 holds"),
]


@pytest.mark.parametrize("output", FITTING)
def test_what_fits_is_stored_as_it_is(output):
    assert mistakes([output], requires="low <= high") == ""


@pytest.mark.parametrize(("output", "message"), REFUSED)
def test_what_may_not_fit_is_refused(output, message):
    found = mistakes([output], requires="low <= high")
    assert found.count("error: the integer may be ") == 1 and "1 error in" in found
    assert message in found
    assert "clamp(i, low, high)" in found and "saturate(i)" in found and "wrap(i)" in found
    place = found.splitlines()[2]
    formula = output.partition(" = ")[2]
    assert place.count("^") == len(formula)


@pytest.mark.parametrize(
    ("requires", "fits"),
    [("low <= high", True), ("low < high", True), ("high >= low", True), ("high > low, p < 3", True),
     ("low + 1 <= high", True), ("low == high", True), ("p < 0 and low <= high", True),
     ("high <= low", True), ("low <= high or p < 0", False), ("low <= p", False), ("low <= high + 1", False)],
)  # fmt: skip
def test_bounds_are_in_order_by_what_is_required(requires, fits):
    found = mistakes(["Q[*n, d] = clamp(i, low - z, high - z) + z"], requires=requires)
    assert (found == "") == fits
    assert fits or "add `requires: low <= high`" in found


def test_a_let_name_and_an_output_that_another_names():
    outputs = ["s8[*n, d] = wide", "s8[*n, d] = clamp(wide, -5, 5)", "s8[*n, d] = clamp(2 * o1, -128, 127)"]
    found = mistakes(outputs, let='wide: "round_to_int(x)"')
    assert found.count("error:") == 1 and "o0: s8[*n, d] = wide" in found
    found = mistakes(["s8[*n, d] = clamp(i, -100, 100)", "s8[*n, d] = o0 + 28"])
    assert "-100 to 155, s8 holds" in found  # what is stored is known by its type
    lets = 'wide: "i * i", named: "saturate(i)"'
    assert mistakes(["s8[*n, d] = saturate(wide)", "s8[*n, d] = named"], let=lets) == ""


def test_a_gradient_that_is_an_integer():
    text = "ops:\n  op:\n    inputs: {{x: 'T[n]', i: 'i32[n]'}}\n    outputs: {{y: 'T[n] = x * i'}}\n"
    text += "    backward:\n      d_x: T[n] = d_y * i\n      d_i: i32[n] = {}\n"
    with pytest.raises(SpecError, match="i32 holds -2147483648 to 2147483647"):
        loads(text.format("round_to_int(d_y * x)"))
    loads(text.format("saturate(round_to_int(d_y * x))"))


def test_each_type_of_a_letter_and_of_a_letter_that_names_another():
    types = "T: f32, Q: [s8, u8], S: [Q, i32]"
    assert mistakes(["S[*n, d] = clamp(i, low, high)"], types=types) != ""  # s8 for Q and u8 for P
    assert "s8 holds" in mistakes(["S[*n, d] = clamp(i, 0, 128)"], types=types)
    assert mistakes(["S[*n, d] = clamp(i, 0, 127)", "Q[*n, d] = clamp(i, 0, 127)"], types=types) == ""


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("u8[*n, d] = 1 + wrap(i)", "`wrap` converts what an output stores: it stands outermost"),
        ("u8[*n, d] = clamp(saturate(i), 0, 3)", "`saturate` converts what an output stores"),
        ("u8[*n, d] = saturate(wrap(i))", "`wrap` converts what an output stores"),
        ("T[*n, d] = saturate(i)", "`saturate` converts to an integer type, `T[*n, d]` holds reals"),
        ("bool[*n, d] = wrap(i)", "`wrap` converts to an integer type, `bool[*n, d]` holds booleans"),
        ("u8[*n, d] = saturate(x)", "`saturate` needs an integer, this is a real"),
        ("u8[*n, d] = saturate(x > 0)", "`saturate` needs a number, this is a boolean"),
        ("u8[*n, d] = wrap(i, 8)", "`wrap` takes 1 argument, got 2"),
        ("u8[*n, d] = wrap", "`wrap` is a function: it needs its arguments"),
        ("u8[*n, d] = saturat(i)", "did you mean `saturate`?"),
    ],
)
def test_where_a_conversion_may_stand(output, message):
    assert message in mistakes([output])


def test_operations_of_the_catalog_that_need_a_conversion():
    """Ranges of the others are proven, so their kernels have no instruction for it."""
    rows = [row for row in own_spec().rows if any(map(converts, row.programs))]
    asked = {row.name for row in rows if row.forward.operation.category not in ("cast", "bits")}
    assert asked == {"sum_of_integers", "prod_of_integers", "stochastic_round", "randint"}


def converts(program) -> bool:
    """Whether an output is cut to its type, or keeps the lowest bits."""
    parts = {part.op for node in program.formulas.values() for part in node.parts()}
    return program.operation.analysis.converts or bool(parts & {"saturate", "wrap"})


SPEC = """\
functions:
  codes(v): saturate(round_to_int(v))
ops:
"""
for word in LIMITS:
    SPEC += f"""\
  saturate_to_{word}_:
    types: {{T: f32}}
    inputs: {{i: "i64[*n]", x: "T[*n]"}}
    outputs:
      o: {word}[*n] = saturate(i)
      after: i64[*n] = clamp(o, -1000, 1000) - round_to_int(x)
  wrap_to_{word}_:
    types: {{T: f32}}
    inputs: {{i: "i64[*n]", x: "T[*n]"}}
    outputs:
      o: {word}[*n] = wrap(i)
      after: i64[*n] = clamp(o, -1000, 1000) - round_to_int(x)
""".replace(f"_{word}_", f"_{word}_it")
SPEC += """\
  codes_of_reals:
    types: {T: [f32, f64], Q: [s8, u8, s4, u4, i32, i64]}
    inputs: {x: "T[*n, d]"}
    outputs:
      o: Q[*n, d] = codes(x)
  squares:
    types: {T: f32}
    inputs: {i: "i32[*n]", x: "T[*n]"}
    outputs:
      nearest: i32[*n] = saturate(i * i)
      lowest: i32[*n] = wrap(where(x == x, i * i, 0))
  totals:
    types: {T: f32}
    inputs: {i: "i32[*n, d]", x: "T[*n, d]"}
    outputs:
      nearest: i32[*n] = saturate(sum(clamp(i, -1000000, 1000000), over=d))
      lowest: s8[*n] = wrap(sum(clamp(i, -1000000, 1000000), over=d))
      mean: T[*n] = mean(x, over=d)
  whole:
    types: {T: f32}
    inputs: {i: "i32[*n, d]", x: "T[*n, d]"}
    let: {total: "sum(clamp(i, -1000000, 1000000), over=(n, d))"}
    outputs:
      one: u8[] = saturate(total)
      each: s8[*n, d] = wrap(total + i + round_to_int(x))
      spread: s4[*n, d] = saturate(total)
  two_widths:
    types: {T: f32}
    inputs: {x: "T[*n, d]", scale: "f32[*n, d/g]"}
    attrs: {g: size}
    outputs:
      o: s8[*n, d] = saturate(round_to_int(x / scale))
      half: u4[*n, d] = saturate(round_to_int(x / scale))
  twice:
    inputs: {i: "i32[*n]"}
    outputs:
      o: i64[*n] = round_to_int(2.0 * i)
"""

ours = catalog_fixture("skuda_integer_stores", SPEC)


def saturated(value: int, word: str) -> int:
    low, high = LIMITS[word]
    return min(max(value, low), high)


def wrapped(value: int, word: str) -> int:
    low, high = LIMITS[word]
    return (value - low) % (high - low + 1) + low


CONVERSIONS = {"saturate": saturated, "wrap": wrapped}
INTEGERS = [
    value
    for base in (0, 8, 16, 44, 128, 256, 300, 2**15, 2**31, 2**32, 2**53, 2**62, 2**63)
    for by in (-1, 0, 1)
    for value in (base + by, -base + by)
    if -(2**63) <= value < 2**63
]


def codes_of(array: np.ndarray, word: str, shape: tuple[int, ...]) -> list[int]:
    """Stored integers, those of 4 bits one to an element."""
    if LIMITS[word][1] < 127:
        array = unpack(array, shape[-1], word == "s4")
    return array.reshape(-1).tolist()


@pytest.mark.parametrize("word", LIMITS)
@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions(ours, backend, name, word):
    """Also what a later formula sees of it."""
    count = len(INTEGERS)
    i, x = np.array(INTEGERS, np.int64), np.zeros(count, np.float32)
    stored, after = getattr(ours, f"{name}_to_{word}_it")(backend.array(i), backend.array(x))
    expected = [CONVERSIONS[name](value, word) for value in INTEGERS]
    assert codes_of(backend.numpy(stored), word, (count,)) == expected
    assert backend.numpy(after).tolist() == [min(max(value, -1000), 1000) for value in expected]


@pytest.mark.parametrize("word", LIMITS)
def test_codes_that_a_function_saturates(ours, backend, word):
    reals = [0.0, -0.5, 2.5, 300.0, -300.0, 1e9, -1e9, 1e30, -1e30, np.inf, -np.inf, np.nan, 127.5, 44.0]
    x = np.array([reals, reals[::-1]], np.float32)
    stored = backend.numpy(ours.codes_of_reals(backend.array(x), dtype=word))
    whole = [0 if v != v else round(max(min(float(v), 2.0**53), -(2.0**53))) for v in x.reshape(-1)]
    assert codes_of(stored, word, x.shape) == [saturated(value, word) for value in whole]


def test_the_square_of_50000(ours, backend):
    i = np.array([50000, -50000, 3, 2**31 - 1, -(2**31)], np.int32)
    nearest, lowest = ours.squares(backend.array(i), backend.array(np.zeros(5, np.float32)))
    squares = [int(value) ** 2 for value in i]
    assert backend.numpy(nearest).tolist() == [saturated(value, "i32") for value in squares]
    assert backend.numpy(lowest).tolist() == [wrapped(value, "i32") for value in squares]
    assert backend.numpy(nearest)[0] == 2147483647


@pytest.mark.parametrize("shape", [(3, 5), (2, 3000), (40, 64)])
def test_conversions_of_sums(ours, backend, shape):
    """In rows, in one value, and in stages that hand it on to each element."""
    rng = np.random.default_rng(shape[1])
    i = rng.integers(-1000000, 1000001, shape).astype(np.int32)
    i[0] = 1000000
    x = rng.integers(-99, 99, shape).astype(np.float32)
    arrays = backend.array(i), backend.array(x)
    nearest, lowest, _ = map(backend.numpy, ours.totals(*arrays))
    sums = [sum(line) for line in i.tolist()]
    assert nearest.tolist() == [saturated(value, "i32") for value in sums]
    assert lowest.tolist() == [wrapped(value, "s8") for value in sums]
    one, each, spread = map(backend.numpy, ours.whole(*arrays))
    assert int(one) == saturated(sum(sums), "u8")
    expected = [wrapped(sum(sums) + a + int(b), "s8") for a, b in zip(i.reshape(-1).tolist(), x.reshape(-1))]
    assert each.reshape(-1).tolist() == expected
    assert codes_of(spread, "s4", shape) == [saturated(sum(sums), "s4")] * i.size


@pytest.mark.turns(2)
@pytest.mark.parametrize("source", ["two_widths", "whole", "saturate_to_s4_it", "wrap_to_u8_it"])
def test_kernels_give_the_bytes_of_the_reference(ours, source, monkeypatch, tmp_path):
    """By the host's compiler: kernels of each schedule, also where one of two outputs alone has two elements in a byte,
    and its type is no letter.
    """
    found = registry._CATALOGS[ours.__name__]
    ours = [sku for sku in registry.skus() if registry.entry_of(sku).catalog is found]
    skus = [sku for sku in ours if sku.backend is BackendKind.CUDA]
    sources = emulator.by_source(sku for sku in skus if not registry.entry_of(sku).operation.of_alternative)
    monkeypatch.setattr(registry, "catalogs", lambda: (found,))
    some = covering(sources[f"{source}.cu"])
    host = emulator.Host(some, tmp_path)
    assert [fault for sku in some for fault in host.faults(sku)] == []


@pytest.mark.turns(3)
@pytest.mark.parametrize("source", ["squares", "codes_of_reals", "totals", "whole", "twice"])
def test_every_kernel_compiles(ours, source):
    """Operations of integers alone are kernels too, and so are their stages."""
    found = registry._CATALOGS[ours.__name__]
    entries: dict[str, None] = {}
    for plan in found.plans(source):
        operation = plan.operation
        for types in operation.kernel_combinations() if not operation.analysis.stages else ():
            for variant in table.variants(operation, types):
                entries |= dict.fromkeys(table.entries(operation, types, variant))
    chosen = [*entries][:: max(1, len(entries) // 6)]
    compiled = compile_quickly(found.source(f"{source}.cu"), f"{source}.cu", chosen, "sm_90")
    assert compiled.log == "" and compiled.lowered.keys() == set(chosen)


@pytest.mark.parametrize("element", ["f32", "f64"])
def test_reals_between_integers_are_of_the_type_that_is_asked_for(ours, backend, element):
    """No operand shows T, and C follows from it all the same."""
    i = np.array([0, 1, 2**24 + 1, 2**31 - 1, -(2**31)], np.int32)
    actual = backend.numpy(ours.twice(backend.array(i), dtype=element))
    C = {"f32": np.float32, "f64": np.float64}[element]
    assert actual.tolist() == [int(C(value)) * 2 for value in i.tolist()]
