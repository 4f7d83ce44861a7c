"""The reference of the formula language, written from the tables that the generator reads formulas by."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import formulas

from skuda.codegen import expr, syntax
from skuda.codegen.intrinsics import (
    ABSENT,
    ARGUMENTS,
    CONSTANTS,
    CONVERSIONS,
    DERIVATIVES,
    INSTEAD,
    INTRINSICS,
    KINKS,
    LIMITED,
    OF_REDUCTIONS,
    OF_SCANS,
    STEPS,
    Intrinsic,
)
from skuda.codegen.nodes import POSITION, SMALLEST
from skuda.codegen.operators import OPERATORS
from skuda.codegen.reductions import COUNT, MEAN, REDUCTIONS, Scan
from skuda.codegen.schema import schema_text
from skuda.codegen.spec import library
from skuda.model.dtypes import DTYPES

_KINDS = {"r": "real", "i": "integer", "b": "boolean", "n": "number", "x": "any"}
_INTRODUCTION = """\
# The formula language

A spec is a YAML file. Each row under `ops:` is one operation: its operands with named dimensions, and a formula for
each output. A formula is written for one element. It is one expression of names, numbers, operators and calls; there
are no statements, loops or subscripts. This page is written from the tables that the generator itself reads.

A value is a **real** (computed in the compute type C: f64 where T is f64, else f32), an exact **integer** of 64 bits
that never wraps, or a **boolean**. A **number** is a real or an integer, the same in all places of a call.
"""


def page() -> str:
    """The page, in Markdown."""
    sections = (_keys, _types, _operators, _intrinsics, _conversions, _reductions, _scans, _positions, _gradients,
                _constants, _functions, _absent)  # fmt: skip
    return "\n".join([_INTRODUCTION, *(line for section in sections for line in (*section(), ""))])


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    heads = list(heads)
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _keys() -> Iterator[str]:
    top = json.loads(schema_text())["properties"]
    row = next(iter(top["ops"]["patternProperties"].values()))
    required = set(row["required"])
    yield "## A spec and a row\n"
    yield f"At the top, beside `ops:`, a spec may have `functions:` {top['functions']['description']} A row has:\n"
    yield from _table(
        ("key", "meaning"),
        ((f"`{key}`" + (" (required)" if key in required else ""), each["description"].replace("<", "&lt;"))
         for key, each in row["properties"].items()),
    )  # fmt: skip


def _types() -> Iterator[str]:
    yield "## Element types\n"
    rows = (
        (f"`{row.word}`", f"{row.kind}, {row.bits} bits", f"`{row.element}`", f"{row.lowest:g}" if row.kind == "float"
         else str(row.lowest), f"{row.highest:g}" if row.kind == "float" else str(row.highest), _notes(row))
        for row in DTYPES.values()
    )  # fmt: skip
    yield from _table(("type", "kind", "NumPy", "lowest", "highest", ""), rows)


def _notes(row) -> str:
    notes = ["two to a byte, low nibble first"] if row.packed else []
    notes += ["stored saturated"] if row.narrow_float else []
    notes += [] if row.kind != "float" or row.infinities else ["no infinities"]
    notes += [] if row.kind != "float" or row.nan else ["no NaN"]
    return "; ".join(notes)


def _operators() -> Iterator[str]:
    yield "## Operators\n"
    arithmetic = " ".join(f"`{sign}`" for sign in expr.BINARY.values())
    compare = " ".join(f"`{sign}`" for sign in expr.COMPARE.values())
    yield f"{arithmetic} and a leading `-` on numbers; {compare} on numbers, also in chains (`low <= x <= high`);"
    yield "`and`, `or`, `not` on booleans. Each step on reals is rounded once, to nearest, ties to even. Integers are"
    yield "exact; the quotient of two integers is `//`.\n"
    yield "Of integers, and of T where it is integers too:\n"
    rules = ((f"`{row.name}`".replace("|", "\\|"), row.rule) for row in OPERATORS.values())
    yield from _table(("operator", "rule"), rules)
    yield ""
    yield "Not in the language, or not of reals, and what to write instead:\n"
    refused = [(f"`{sign}`", instead) for sign, instead in syntax.REFUSED_OPERATORS.values()]
    yield from _table(("not", "instead"), refused)


def _call(row: Intrinsic) -> str:
    names = ARGUMENTS.get(row.name, ("x", "y", "z"))
    return f"{row.name}({', '.join(names[: len(row.arguments)])})"


def _intrinsics() -> Iterator[str]:
    yield "## Functions of an element\n"
    yield "*Exact*: correctly rounded on every target. *n ulp*: the same steps, so the same bits, on every target, and"
    yield "at most that many units in the last place from the exact value.\n"
    yield from _table(("call", "meaning", "takes, gives", "accuracy", "rule"), map(_intrinsic, INTRINSICS.values()))


def _intrinsic(row: Intrinsic) -> tuple[str, ...]:
    names = [rf"\mathit{{{name}}}" for name in _call(row)[len(row.name) + 1 : -1].split(", ")]
    kinds = f"{', '.join(_KINDS[each] for each in row.arguments)} → {_KINDS[row.result]}"
    bound = "exact" if row.exact else " / ".join(f"{each:g}" for each in dict.fromkeys(row.ulp or ())) + " ulp"
    rule = row.rule.split("; ", 1)[-1] if row.ulp else row.rule
    return f"`{_call(row)}`", formulas.mathml(row.latex.format(*names), "inline"), kinds, bound, rule


def _conversions() -> Iterator[str]:
    yield "## Conversions at a store\n"
    yield "Outermost in the formula of an output, which says to which type. The first four convert integers:\n"
    yield from _table(("call", "rule"), ((f"`{_call(row)}`", row.rule) for row in CONVERSIONS.values()))


def _reductions() -> Iterator[str]:
    yield "## Reductions\n"
    yield "A reduction makes one value of many and is a value like any other. It says what it is over: `over=d`,"
    yield "`over=(n, d)` for several dimensions at once, `over=d/group_size` for each block along d. The name of a"
    yield "dimension of a fixed size, as in `T[*n, 4]`, is that number, as in `over=4`; another size is refused.\n"
    rows = [(f"`{name}(x, over=d)`", formulas.mathml(row.latex.format("d", "x"), "inline"), row.rule)
            for name, row in REDUCTIONS.items() if not isinstance(row, Scan)]  # fmt: skip
    rows.append((f"`{MEAN}(x, over=d)`", "", "the sum divided by the number of elements"))
    rows.append((f"`{COUNT}(over=d)`", "", "the number of elements, an exact integer"))
    yield from _table(("call", "meaning", "rule"), rows)


def _scans() -> Iterator[str]:
    yield "## Scans\n"
    yield "A scan makes a value for each element, of it and those before it in its row: `along=d`, or `along=(n, d)`,"
    yield "in row-major order. `exclusive=True` leaves the element itself out, `reverse=True` begins at the end. All"
    yield "scans of a direction run along the same dimensions, from the same end, beside no reductions.\n"
    rows = [(f"`{row.call('x', 'd')}`", formulas.mathml(row.latex.format("d", "x"), "inline"), row.rule)
            for row in REDUCTIONS.values() if isinstance(row, Scan) and not row.options]  # fmt: skip
    yield from _table(("call", "meaning", "rule"), rows)


def _positions() -> Iterator[str]:
    yield "## Positions\n"
    yield f"`{POSITION}(d)` is the index of the element along the dimension d, from 0 on: an exact integer without a"
    yield f"gradient. `{POSITION}((n, d))`, and `{POSITION}(shape)` of any number of axes `*shape`, count elements in"
    yield "row-major order of these dimensions, as `argmax` counts, however arrays lie in memory. Nothing is read for"
    yield "it. An array is not split over devices, and no batch is added, along a dimension that has a position.\n"
    yield "```yaml"
    yield "tril: where(position(c) <= position(r), x, 0)"
    yield "one_hot: where(position(c) == label, 1, 0)"
    yield "```\n"


def _gradients() -> Iterator[str]:
    yield "## Derived gradients\n"
    yield "`backward: derived` makes gradients from the formulas of the outputs by these rules. `g` is the gradient of"
    yield "the value `y`; `a`, `b`, `c` are the arguments. A rule is a formula; where there is none, the derivative is"
    yield "0. An argument that lacks dimensions of the value gets the sum over these.\n"
    rules = {name: (f"`{name}({', '.join('abc'[: len(rows)])})`", rows) for name, rows in DERIVATIVES.items()}
    rules |= {f"reduce {name}": (f"`{name}(a, over=d)`", rows) for name, rows in OF_REDUCTIONS.items()}
    rules |= {name: (f"`{REDUCTIONS[name].call('a', 'd')}`", (rule,)) for name, rule in OF_SCANS.items()}
    rows = [(call, "; ".join(f"`{rule}`" if rule else "0" for rule in each), KINKS.get(name, ""))
            for name, (call, each) in rules.items()]  # fmt: skip
    none = (f"`{name}`" for name in sorted(STEPS))
    yield from _table(("call", "gradients of its arguments", "at kinks and steps"), rows)
    yield f"\n{', '.join(none)} give integers and have no derivative: a gradient through them is declared.\n"
    limited = [(f"`{name}(a, b)`", "; ".join(f"`{rule}`" for rule in each)) for name, each in LIMITED.items()]
    yield "Beside an argument that has no gradient, a number or an attribute, two functions have another rule:\n"
    yield from _table(("call", "gradients"), limited)


def _constants() -> Iterator[str]:
    yield "## Numbers with names\n"
    rows = [(f"`{name}`", f"{value!r}") for name, value in CONSTANTS.items()]
    rows.append((f"`{SMALLEST}(S)`", "the least positive value of a type letter's type, subnormal where it has such"))
    rows.append(("`lowest(Q)`, `highest(Q)`", "finite limits of a letter's type, as defaults of attributes; those of "
                 "numbers in C are `inf`, `-inf` and the limits of T"))
    yield from _table(("name", "value"), rows)


def _functions() -> Iterator[str]:
    yield "## Functions of the catalog\n"
    yield "Every spec may call these. They are expanded where they are called, so calling one fuses it.\n"
    yield "```yaml"
    for function in library().values():
        yield f"{function.signature}: {' '.join(function.body.value.split())}"
    yield "```"


def _absent() -> Iterator[str]:
    yield "## Other libraries' names\n"
    yield from _table(("name", "here"), [(f"`{name}`", here) for name, here in INSTEAD.items()])
    reasons: dict[str, list[str]] = {}
    for name, reason in ABSENT.items():
        reasons.setdefault(reason, []).append(f"`{name}`")
    yield "\nNot in the language:\n"
    yield from _table(("name", "why"), ((" ".join(names), reason) for reason, names in reasons.items()))
