"""Which rules of codegen/lowering.py apply where, read off the CUDA that is generated."""

from __future__ import annotations

import re

import pytest
from catalogs import own_spec

import skuda
from skuda.codegen import spec as specs
from skuda.codegen.cuda import ElementwiseProgram
from skuda.codegen.lowering import LOWERINGS, Site
from skuda.codegen.row_program import RowProgram
from skuda.codegen.stages import stages
from skuda.launch import registry

CATALOG = own_spec()
PROGRAMS = {
    program.operation.function: program
    for row in CATALOG.rows
    for program in row.programs
    if not (program.operation.analysis.over or program.operation.analysis.stages)  # test_reductions.py
}
GRANULARITIES = ("per_tensor", "per_channel", "per_token", "per_group")

RULES = [rule for rule in LOWERINGS if rule.holder and {Site.ELEMENTWISE, Site.STORE} & {*rule.sites}]

# What formulas of some families become: classes of quotient.cuh with the methods that are called.
EXAMPLES = {
    "quantize": {("Steps", "value")},
    "quantize_backward": {("Steps", "inside"), ("Divisor", "quotient")},
    "dequantize": {("Offset", "difference")},
    "dequantize_backward": set(),
    "quantize_fp8": {("Saturated", "value")},
    "quantize_fp8_backward": {("Magnitude", "inside"), ("Divisor", "quotient")},
    "dequantize_fp8": set(),
    "dequantize_fp8_backward": set(),
    "fake_quantize": {("Steps", "real")},
    "fake_quantize_backward": {("Steps", "inside")},
    "learnable_fake_quantize": {("Steps", "real")},
    "lerp": set(),
    "round_decimals": {("DivisorFromOne", "rounded"), ("DivisorFromOne", "quotient")},
    "gelu_quantize": {("Steps", "value")},
    "gelu_tanh_quantize": {("Steps", "value")},
    "gelu_quantize_backward": {("Steps", "inside"), ("Divisor", "quotient")},
    "gelu_tanh_quantize_backward": {("Steps", "inside"), ("Divisor", "quotient")},
    "mean_backward": set(),
    "randint": {("Portion", "of")},
}


def family(function: str) -> str:
    return next((function.replace(f"_{each}", "") for each in GRANULARITIES if each in function), function)


def method(rule) -> str:
    """What a rule calls of its object."""
    return re.match(r"\{object\}\.(?:template )?(\w+)", rule.becomes)[1]


def rules(program) -> set[tuple[str, str]]:
    """(class, method) of every rule that applies to a program: its object is a member, its method is called."""
    written = ElementwiseProgram(program)
    prepared = {member.name: member.type.partition("<")[0] for member in written.members if member.prepared}
    found = set()
    for output in written.outputs:
        for name, holder in prepared.items():
            for rule in RULES:
                if rule.kind == holder and re.search(rf"\b{name}\.(template )?{method(rule)}\b", output.formula):
                    found.add((holder, method(rule)))
    assert {holder for holder, _ in found} == set(prepared.values())
    return found


@pytest.mark.parametrize("function", PROGRAMS)
def test_the_catalog(function):
    if family(function) in EXAMPLES:
        assert rules(PROGRAMS[function]) == EXAMPLES[family(function)]
    text = registry.catalogs()[0].source(PROGRAMS[function].operation.source)
    body = text.split(f"struct {function}_program {{")[1].split("\n};")[0]
    used = {holder for holder, _ in rules(PROGRAMS[function])}
    for holder in {rule.kind for rule in RULES}:
        assert bool(re.search(rf"\b{holder}(<C| \w+;)", body)) == (holder in used)


def test_every_rule_is_used_and_every_example_is_there():
    assert set().union(*map(rules, PROGRAMS.values())) == {(rule.kind, method(rule)) for rule in RULES}
    assert {family(function) for function in PROGRAMS} >= EXAMPLES.keys()


def test_every_rule_of_rows_is_used():
    """Rules that make a call are found in the text of passes, those that choose a reduction in what passes make. One is
    for users' rows alone: a quotient by another power than the dividend's own (test_reductions.py)."""
    programs = [stage for row in CATALOG.rows for program in row.programs for stage in (*stages(program), program)]
    found = (each for each in programs if each.operation.analysis.over and not each.operation.analysis.stages)
    over = [RowProgram(each) for each in found]
    calls = " ".join(text for each in over for one in each.passes for text in (*one.statements, *one.values))
    made = " ".join(text for each in over for one in each.passes for text in one.makes)
    extremes = " ".join(text for each in over for text in each.extremes)
    for rule in LOWERINGS:
        if rule.sites == (Site.ROW,) and rule.holder:
            members = [text for each in over for one in each.passes for text in one.members]
            assert any(member.startswith(f"{rule.kind}<") for member in members), rule
        elif rule.sites == (Site.ROW,) and rule.pattern != "x / (1 + exp(u))":
            assert rule.becomes.partition("<")[0].removesuffix("{precise}") in calls, rule
        if Site.REDUCTION in rule.sites:
            assert f"Reduce<{rule.becomes}," in made, rule
        if Site.EXTREME in rule.sites:
            assert f"Extreme<{rule.becomes}," in extremes, rule


def by_elements(program) -> bool:
    """Whether something is divided by what each element has of its own, as in silu: 1 + e^-x."""
    whole = {operand.name for operand in program.operation.inputs if operand.dims == program.operation.space}
    parts = set().union(*(node.parts() for node in program.written_out.values()))
    return any(part.op == "/" and part.args[1].names() & whole for part in parts)


INVERTED = ("silu", "silu_backward", "mish_backward")  # divisors from 1 to 5, whose inverses need no way out


def test_no_division_is_left_where_the_divisor_is_shared():
    assert {family(name) for name, program in PROGRAMS.items() if by_elements(program)} >= {"silu_mul"}
    for program in PROGRAMS.values():
        formulas = [output.formula for output in ElementwiseProgram(program).outputs]
        divides = any(re.search(r"/(?! C\(16\))", formula) for formula in formulas)  # C++ multiplies by a sixteenth
        function = program.operation.function
        assert divides == (by_elements(program) and function not in INVERTED), function


def program_of(formula: str, inputs: str, output: str = "T[*n, d]"):
    letters = {"Q": "[s8, u8]", "E": "[e4m3, e5m2]", "M": "[f16, e5m2]"}
    used = [f", {letter}: {words}" for letter, words in letters.items() if f"{letter}[" in inputs + output]
    types = f"{{T: [f32, f64]{''.join(used)}}}"
    text = f"ops:\n  try_it:\n    types: {types}\n    inputs:\n"
    text += "".join(f"      {line}\n" for line in inputs.split("; ")) + f"    outputs:\n      y: {output} = {formula}\n"
    (row,) = specs.loads(text).rows
    return row.forward


X = "x: T[*n, d]"
DIVISOR = {("Divisor", "quotient")}


WORDS = "x: T[*n]; a: i64[]; b: i32[]"


def portion(size: str) -> str:
    """Elements where a random word times a size, in units of 2^32, is below 7."""
    word = "random_bits(a, a, position(n))"
    return f"where(({word} >> 16) * {size} + (({word} & 65535) * {size} >> 16) >> 16 < 7, x, 0)"


@pytest.mark.parametrize(
    "formula, inputs, output, expected",
    [
        # the divisor is shared by a run, by all, or by none
        ("x / s", f"{X}; s: T[*n]", "T[*n, d]", DIVISOR),
        ("x / s", f"{X}; s: T[]", "T[*n, d]", DIVISOR),
        ("x / s", f"{X}; s: T[*n, d]", "T[*n, d]", set()),
        ("s / x", f"{X}; s: T[*n]", "T[*n, d]", set()),
        ("x / (s * x)", f"{X}; s: T[*n]", "T[*n, d]", set()),
        ("(x + x) / (s * s)", f"{X}; s: T[*n]", "T[*n, d]", DIVISOR),
        ("exp(x) / s", f"{X}; s: T[*n]", "T[*n, d]", {("PowerDivisor", "quotient")}),
        ("exp(x) / s + x / s", f"{X}; s: T[]", "T[*n, d]", DIVISOR | {("PowerDivisor", "quotient")}),
        ("x / 8", X, "T[*n, d]", set()),
        ("clamp(x, s, 7)", f"{X}; s: T[*n]", "T[*n, d]", {("Bounds", "value")}),
        # random numbers are compared with what all share, as integers
        ("where(random_uniform(a, a, position(n)) >= s, x, 0)", "x: T[*n]; s: T[]; a: i64[]", "T[*n]",
         {("LeastShare", "reached_by")}),
        ("where(random_uniform(a, a, position(n)) >= x, x, 0)", "x: T[*n]; a: i64[]", "T[*n]", set()),
        ("where(random_uniform(a, a, position(n)) > s, x, 0)", "x: T[*n]; s: T[]; a: i64[]", "T[*n]", set()),
        # their words times what all share are one product, if that has 31 bits
        (portion("clamp(b, 0, 2147483647)"), WORDS, "T[*n]", {("Portion", "of")}),
        (portion("clamp(b, 0, 2147483646)"), WORDS, "T[*n]", set()),
        (portion("clamp(b + position(n), 0, 2147483647)"), WORDS, "T[*n]", set()),
        # nothing varies: computed once, by the plain division
        ("x + s / s", f"{X}; s: T[*n]", "T[*n, d]", set()),
        # Steps needs the divisor and both bounds
        ("clamp(round_to_int(x / s), -8, 7)", f"{X}; s: T[*n]", "i32[*n, d]", {("Steps", "value")}),
        ("clamp(round_to_int(x / s), -8, 7)", f"{X}; s: T[*n, d]", "i32[*n, d]", set()),
        ("clamp(round_to_int(x / s), z, 7)", f"{X}; s: T[*n]; z: i32[*n]", "i32[*n, d]", {("Steps", "value")}),
        ("clamp(round_to_int(x / s), z, 7)", f"{X}; s: T[*n]; z: i32[*n, d]", "i32[*n, d]", DIVISOR),
        ("clamp(round_to_int(s / x), -8, 7)", f"{X}; s: T[*n]", "i32[*n, d]", set()),
        ("clamp(round_to_int(x * s), -8, 7)", f"{X}; s: T[*n]", "i32[*n, d]", set()),
        ("x * clamp(round_to_int(x / s), -8, 7)", f"{X}; s: T[*n]", "T[*n, d]", {("Steps", "real")}),
        ("where(-8 <= round_to_int(x / s) <= 7, x, 0)", f"{X}; s: T[*n]", "T[*n, d]", {("Steps", "inside")}),
        # the mask's two sides must be of one quotient
        ("where(-8 <= round_to_int(x / s) and round_to_int(x / t) <= 7, x, 0)", f"{X}; s: T[*n]; t: T[*n]",
         "T[*n, d]", DIVISOR),
        ("where(-8 < round_to_int(x / s) <= 7, x, 0)", f"{X}; s: T[*n]", "T[*n, d]", DIVISOR),
        # Saturated needs an output of 8 bits, and to be all that it stores
        ("clamp(x / s, -8, 8)", f"{X}; s: T[*n]", "E[*n, d]", {("Saturated", "value")}),
        ("clamp(x / s, -s, s)", f"{X}; s: T[*n]", "E[*n, d]", {("Saturated", "value")}),
        ("clamp(x / s, -8, 8)", f"{X}; s: T[*n, d]", "E[*n, d]", set()),
        ("clamp(x / s, -8, 8) + 1", f"{X}; s: T[*n]", "E[*n, d]", DIVISOR),
        ("clamp(x / s, -8, 8)", f"{X}; s: T[*n]", "T[*n, d]", DIVISOR),
        ("clamp(x / s, -8, 8)", f"{X}; s: T[*n]", "M[*n, d]", DIVISOR),
        ("x / s", f"{X}; s: T[*n]", "E[*n, d]", DIVISOR),
        # Magnitude needs one side and a shared bound
        ("where(abs(x / s) <= t, x, 0)", f"{X}; s: T[*n]; t: T[*n]", "T[*n, d]", {("Magnitude", "inside")}),
        ("where(abs(x / s) <= t, x, 0)", f"{X}; s: T[*n]; t: T[*n, d]", "T[*n, d]", DIVISOR),
        ("where(abs(x / s) < t, x, 0)", f"{X}; s: T[*n]; t: T[*n]", "T[*n, d]", DIVISOR),
        # Offset needs a narrow code
        ("(q - z) * s", "q: Q[*n, d]; z: i32[*n]; s: T[*n]", "T[*n, d]", {("Offset", "difference")}),
        ("(q - z) * s", "q: Q[*n, d]; z: i32[*n, d]; s: T[*n]", "T[*n, d]", set()),
        ("(q - z) * s", "q: i32[*n, d]; z: i32[*n]; s: T[*n]", "T[*n, d]", set()),
        ("(q + z) * s", "q: Q[*n, d]; z: i32[*n]; s: T[*n]", "T[*n, d]", set()),
    ],
)  # fmt: skip
def test_where_a_rule_applies(formula, inputs, output, expected):
    assert rules(program_of(formula, inputs, output)) == expected


@pytest.mark.parametrize(
    "formula, expected",
    [
        ("clamp(x, -8, 7)", "bounded(element.x, C(-8), C(7))"),
        ("exp(clamp(x, -8, 7))", "exponential(bounded(element.x, C(-8), C(7)))"),
        ("clamp(x, 0, 7)", "clamp(element.x, C(0), C(7))"),
        ("clamp(x, -8, -0.0)", "clamp(element.x, C(-8), C(-0.0))"),
        ("clamp(x, s, 7)", "bounds.template value<FAST>(element.x)"),
        ("clamp(x, s, 0)", "clamp(element.x, s, C(0))"),
        ("clamp(s, x, 7)", "clamp(s, element.x, C(7))"),
    ],
)
def test_bounds_by_the_hardware_next_to_no_zero(formula, expected):
    program = ElementwiseProgram(program_of(formula, f"{X}; s: T[*n]" if "s" in formula else X))
    assert program.outputs[0].formula == expected
    assert list(program.ranges) == ["bounds.within"] * expected.startswith("bounds")


def test_equal_parts_share_one_object():
    program = program_of("x / s + (x * x) / s", f"{X}; s: T[*n]")
    assert [member.type for member in ElementwiseProgram(program).members] == ["Divisor<C>"]
    program = program_of("x / s + x / t", f"{X}; s: T[*n]; t: T[*n]")
    assert [member.type for member in ElementwiseProgram(program).members] == ["Divisor<C>", "Divisor<C>"]
    assert len({member.name for member in ElementwiseProgram(program).members}) == 2


def test_shared_values_are_made_once():
    program = program_of("x * (s * s + 1)", f"{X}; s: T[*n]")
    (member,) = ElementwiseProgram(program).members
    assert member.value == "shared.s * shared.s + C(1)" and not member.prepared
    assert ElementwiseProgram(program).outputs[0].formula == f"element.x * {member.name}"


@pytest.mark.parametrize(
    "formula, expected",
    [
        ("(s + 1) * x", "shared_value * element.x"),
        ("x - (s + s)", "element.x - shared_value"),
        ("s * (x / t)", "s * divisor.template quotient<FAST, T>(element.x)"),
        ("2 * where(x < s, x, s)", "C(2) * ::chosen(element.x < s, element.x, s)"),
        ("-(s - x)", "-(s - element.x)"),
    ],
)
def test_parentheses_stand_only_where_they_are_needed(formula, expected):
    program = program_of(formula, f"{X}; s: T[*n]" + ("; t: T[*n]" if "t)" in formula else ""))
    assert ElementwiseProgram(program).outputs[0].formula == expected


@pytest.mark.parametrize(
    "formula, ranges",
    [
        ("x / s", ["divisor.template within<T>(element.x)"]),
        ("x / s + 2 * (x / s)", ["divisor.template within<T>(element.x)"]),
        # a dividend that is computed may be any value of the compute type
        ("(x + x) / s", ["divisor.template within<C>(element.x + element.x)"]),
        # what costs much is not computed to be asked: the divisor alone is
        ("(x + exp(x)) / s", ["power_divisor.within"]),
        ("(x + exp(x)) / 3", ["power_divisor.within"]),
        ("(x + exp(x)) / 4", []),
        ("x / -0.25", []),
        ("(x + exp(t)) / s", ["divisor.template within<C>(element.x + shared_value)"]),
        ("z / s + x / t", ["divisor.template within<T>(element.z)", "divisor_2.template within<T>(element.x)"]),
        ("x * clamp(round_to_int(x / s), -8, 7)", []),
    ],
)
def test_what_a_vector_is_asked_before_its_elements_are_computed(formula, ranges):
    operands = {"x": "T[*n, d]", "z": "T[*n, d]", "s": "T[*n]", "t": "T[*n]"}
    inputs = "; ".join(f"{name}: {what}" for name, what in operands.items() if name in re.findall(r"\w+", formula))
    program = ElementwiseProgram(program_of(formula, inputs))
    assert list(program.ranges) == ranges


@pytest.mark.parametrize(
    "formula, expected",
    [
        ("1 / (2 + exp(-abs(x)))", "sure_inverse("),
        ("1 / where(x < 0, exp(min(x, 0)) * exp(-2 * abs(x)) + 0.5, 3)", "C(1) / "),  # of min nothing is known
        ("1 / (exp(-abs(x)) + abs(x))", "C(1) / "),  # 0 as far as is known, and infinite
        ("1 / (2 - exp(-abs(x)))", "C(1) / "),  # nor of differences
        ("(1 + exp(-abs(x))) / where(x < 0, 3, 1 + exp(-abs(x)))", "sure_quotient("),
        ("exp(-abs(x)) / (1 + exp(-abs(x)))", " / "),  # a subnormal dividend
    ],
)
def test_a_division_of_what_is_known_to_be_usual_asks_nothing(formula, expected):
    """By the ends between which parts lie: an exponential of what is not above 0 is 1 at most."""
    program = ElementwiseProgram(program_of(formula, "x: T[*n, d]"))
    assert expected in program.outputs[0].formula
    assert ("sure_" in program.outputs[0].formula) == ("sure_" in expected)


@pytest.mark.parametrize(
    ("formula", "calls"),
    [
        ("exp(-abs(x))", "falling_exponential"),
        ("exp(-0.5 * abs(x)) + 1", "falling_exponential"),
        ("exp(-(x * x))", "exponential"),  # of what nobody knows the range
        ("exp(abs(x))", "exponential"),
        ("exp(1 - abs(x))", "exponential"),
        ("exp(1 + -abs(x))", "exponential"),  # at most 1
        ("log1pexp(-abs(x))", "falling_logarithm"),
        ("log1pexp(abs(x))", "logarithm_one_plus_exponential"),
        ("max(x, -3)", "at_least"),
        ("min(x, 2)", "at_most"),
        ("max(x, 0)", "maximum"),  # zeros have signs
        ("max(x, a)", "maximum"),
    ],
)
def test_what_is_known_of_a_value_saves_steps(formula, calls):
    outputs = f"{{y: 'T[*s] = {formula}', z: 'T[*s] = a * x'}}"
    row = f"{{kind: activation.mine, inputs: {{x: 'T[*s]'}}, attrs: {{a: C = 2}}, outputs: {outputs}}}"
    text = skuda.define(f"mine: {row}").catalog.source("mine.cu")
    functions = r"\b(\w*exponential|falling_logarithm|at_least|at_most|maximum|minimum)(?:_as)?[<(]"
    assert set(re.findall(functions, text)) == {calls}
