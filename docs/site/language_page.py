"""The tables that the site adds to docs/language.md, written from those that the generator reads formulas by."""

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


def sections() -> str:
    """The sections, in Markdown."""
    made = (_keys, _types, _operators, _intrinsics, _conversions, _reductions, _scans, _positions, _gradients,
            _constants, _functions, _absent)  # fmt: skip
    text = "\n".join(line for section in made for line in (*section(), ""))
    return text.replace("docs/numerics.md", "[the numbers](numerics.md)")


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    heads = list(heads)
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for row in rows:
        yield f"| {' | '.join(map(_cell, row))} |"


def _cell(text: str) -> str:
    """Text whose bars do not end a cell: within code, Markdown takes them as they are."""
    return "`".join(part if index % 2 else part.replace("|", "&#124;") for index, part in enumerate(text.split("`")))


def _keys() -> Iterator[str]:
    top = json.loads(schema_text())["properties"]
    row = next(iter(top["ops"]["patternProperties"].values()))
    required = set(row["required"])
    yield "## Keys of a row\n"
    yield f"Beside `ops:`, a spec may have `functions:`. Each is {top['functions']['description']} A row has:\n"
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
    yield f"- numbers (reals and integers): {arithmetic} and a leading `-`"
    yield f"- comparisons of numbers: {compare}, also in chains (`low <= x <= high`)"
    yield "- booleans: `and`, `or`, `not`\n"
    yield "Each step on reals is rounded once, to nearest, ties to even. Integers are exact. The quotient of two"
    yield "integers is `//`. These operators take integers, and values of a T that may be integers:\n"
    rules = ((f"`{row.name}`", row.rule) for row in OPERATORS.values())
    yield from _table(("operator", "rule"), rules)
    yield ""
    yield "Reals do not have these. The language has no `**` and no `@`:\n"
    refused = [(f"`{sign}`", instead) for sign, instead in syntax.REFUSED_OPERATORS.values()]
    yield from _table(("of reals", "instead"), refused)


def _call(row: Intrinsic) -> str:
    names = ARGUMENTS.get(row.name, ("x", "y", "z"))
    return f"{row.name}({', '.join(names[: len(row.arguments)])})"


def _intrinsics() -> Iterator[str]:
    yield "## Functions of an element\n"
    yield "*Exact* functions are correctly rounded on every target. *n ulp* functions take the same steps on every"
    yield "target, so they give the same bits, at most n units in the last place from the exact value.\n"
    yield from _table(("call", "meaning", "takes, gives", "accuracy", "rule"), map(_intrinsic, INTRINSICS.values()))


def _intrinsic(row: Intrinsic) -> tuple[str, ...]:
    names = [rf"\mathit{{{name}}}" for name in _call(row)[len(row.name) + 1 : -1].split(", ")]
    kinds = f"{', '.join(_KINDS[each] for each in row.arguments)} → {_KINDS[row.result]}"
    bound = "exact" if row.exact else " / ".join(f"{each:g}" for each in dict.fromkeys(row.ulp or ())) + " ulp"
    rule = row.rule.split("; ", 1)[-1] if row.ulp else row.rule
    return f"`{_call(row)}`", formulas.mathml(row.latex.format(*names), "inline"), kinds, bound, rule


def _conversions() -> Iterator[str]:
    yield "## Conversions at a store\n"
    yield "A conversion is the outermost call in the formula of an output. The output's type is the target. The"
    yield "first four convert integers:\n"
    yield from _table(("call", "rule"), ((f"`{_call(row)}`", row.rule) for row in CONVERSIONS.values()))


def _reductions() -> Iterator[str]:
    yield "## Reductions\n"
    yield "A reduction makes one value of many. It can stand anywhere in a formula. `over=d` names a dimension,"
    yield "`over=(n, d)` several dimensions at once, `over=d/group_size` each block along d. A dimension of a fixed"
    yield "size, as in `T[*n, 4]`, has that number as its name, `over=4`; another size is refused.\n"
    rows = [(f"`{name}(x, over=d)`", formulas.mathml(row.latex.format("d", "x"), "inline"), row.rule)
            for name, row in REDUCTIONS.items() if not isinstance(row, Scan)]  # fmt: skip
    rows.append((f"`{MEAN}(x, over=d)`", "", "the sum divided by the number of elements"))
    rows.append((f"`{COUNT}(over=d)`", "", "the number of elements, an exact integer"))
    yield from _table(("call", "meaning", "rule"), rows)


def _scans() -> Iterator[str]:
    yield "## Scans\n"
    yield "A scan makes a value for each element from that element and those before it in its row: `along=d`, or"
    yield "`along=(n, d)` in row-major order. `exclusive=True` leaves the element itself out. `reverse=True` begins"
    yield "at the end. All scans of a forward or backward pass run along the same dimensions, from the same end."
    yield "Such a pass has no reductions.\n"
    rows = [(f"`{row.call(row.arguments, 'd')}`", formulas.mathml(row.latex.format("d", "x"), "inline"), row.rule)
            for row in REDUCTIONS.values() if isinstance(row, Scan) and not row.options]  # fmt: skip
    yield from _table(("call", "meaning", "rule"), rows)


def _positions() -> Iterator[str]:
    yield "## Positions\n"
    yield f"`{POSITION}(d)` is the index of the element along the dimension d, from 0 on. It is an exact integer"
    yield f"without a gradient, and no array holds it. `{POSITION}((n, d))`, and `{POSITION}(shape)` for any number"
    yield "of axes `*shape`, count elements in row-major order of these dimensions, as `argmax` does, however"
    yield "arrays lie in memory. Frameworks do not split an array over devices, and do not add a batch, along a"
    yield "dimension that has a position.\n"
    yield "```yaml"
    yield "tril: where(position(c) <= position(r), x, 0)"
    yield "one_hot: where(position(c) == label, 1, 0)"
    yield "```\n"


def _gradients() -> Iterator[str]:
    yield "## Derived gradients\n"
    yield "`backward: derived` makes gradients from the formulas of the outputs by these rules. `g` is the gradient"
    yield "of the value `y`; `a`, `b`, `c` are the arguments. Without a rule the derivative is 0. An argument that"
    yield "lacks dimensions of the value gets the sum over these. The rule of a scan with `reverse=True` is that of"
    yield "the scan without it, with every `reverse` turned over.\n"
    rules = {name: (f"`{name}({', '.join('abc'[: len(rows)])})`", rows) for name, rows in DERIVATIVES.items()}
    rules |= {f"reduce {name}": (f"`{name}(a, over=d)`", rows) for name, rows in OF_REDUCTIONS.items()}
    scans = {REDUCTIONS[name]: each for name, each in OF_SCANS.items()}
    rules |= {row.name: (f"`{row.call('a, b' if ',' in row.arguments else 'a', 'd')}`", each)
              for row, each in scans.items() if not row.reverse}  # fmt: skip
    rows = [(call, "; ".join(f"`{rule}`" if rule else "0" for rule in each), KINKS.get(name, ""))
            for name, (call, each) in rules.items()]  # fmt: skip
    none = (f"`{name}`" for name in sorted(STEPS))
    yield from _table(("call", "gradients of its arguments", "at kinks and steps"), rows)
    yield f"\n{', '.join(none)} give integers and have no derivative. A row that uses them declares its gradients.\n"
    limited = [(f"`{name}(a, b)`", "; ".join(f"`{rule}`" for rule in each)) for name, each in LIMITED.items()]
    yield "If the other argument has no gradient (a number, an attribute), two functions have another rule:\n"
    yield from _table(("call", "gradients"), limited)


def _constants() -> Iterator[str]:
    yield "## Numbers with names\n"
    rows = [(f"`{name}`", f"{value!r}") for name, value in CONSTANTS.items()]
    rows.append((f"`{SMALLEST}(S)`", "the least positive value of a letter's type, subnormal if the type has such"))
    rows.append(("`lowest(Q)`, `highest(Q)`", "the finite limits of a letter's type, as defaults of attributes. A "
                 "number in C may have `inf`, `-inf` and the limits of T"))
    yield from _table(("name", "value"), rows)


def _functions() -> Iterator[str]:
    yield "## Functions of the catalog\n"
    yield "Every spec may call these. They are expanded where they are called, so calling one fuses it. If a spec"
    yield "defines a function of the same name, its own formulas call that one.\n"
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
