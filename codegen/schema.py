"""A JSON Schema (draft-07) of spec files, for completion and hover in editors."""

from __future__ import annotations

import json

from skuda.codegen.declarations import CONSTANT, DERIVED, LET, NONE
from skuda.codegen.intrinsics import CONVERSIONS, INTRINSICS
from skuda.codegen.names import IDENTIFIER
from skuda.codegen.reductions import COUNT, REDUCTION_NAMES, SCAN_NAMES
from skuda.model.dtypes import DTYPES


def schema_text() -> str:
    """The schema as JSON text."""
    return json.dumps(_schema(), indent=2) + "\n"


def _schema() -> dict:
    names = f"^{IDENTIFIER.pattern}$"
    operand = r"^\s*[A-Za-z][A-Za-z0-9]*\s*\[[^\]]*\]\s*(=\s*([-+.\d][-+.eE\d]*|half\s+of\s+\w+)\s*)?$"
    formula = r"^\s*[A-Za-z][A-Za-z0-9]*\s*\[[^\]]*\]\s*=[\s\S]+$"
    words = {"type": "string", "anyOf": [{"enum": list(DTYPES)}, {"pattern": "^[A-Z]$"}]}
    calls = ", ".join([*INTRINSICS, *CONVERSIONS])

    def table(pattern: str, description: str, names: str = names) -> dict:
        value = {"type": "string", "pattern": pattern}
        return {
            "type": "object",
            "description": description,
            "patternProperties": {names: value},
            "additionalProperties": False,
        }

    lets = table(
        r"^[\s\S]+$",
        "name: formula, for the formulas below. Reductions: "
        f"{', '.join(f'{name}(x, over=d)' for name in REDUCTION_NAMES)}, "
        f"{COUNT}(over=d); `over=(n, d)`, `over=d/size`. Scans: "
        f"{', '.join(f'{name}({arguments}, along=d)' for name, arguments in SCAN_NAMES.items())}; "
        "`exclusive=True`, `reverse=True`.",
    )
    gradients = table(rf"{formula}|^\s*(d_\w+|{CONSTANT}|{DERIVED})\s*$", "the gradients", rf"^d_{IDENTIFIER.pattern}$")
    of_gradients = "name: formula, for the gradients alone: it may name outputs and their gradients too."
    (formulas,) = gradients["patternProperties"].values()
    gradients["patternProperties"] = {f"^(?!{LET}$){IDENTIFIER.pattern}$": formulas}
    gradients["properties"] = {LET: {**lets, "description": of_gradients}}
    row = {
        "type": "object",
        "required": ["outputs"],
        "additionalProperties": False,
        "properties": {
            "kind": {
                "type": "string",
                "description": "category.name",
                "pattern": r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)?$",
            },
            "doc": {
                "type": "string",
                "description": "One sentence; goes into comments, docstrings and pages.",
            },
            "types": {
                "type": "object",
                "description": "What each type letter may be, preferred first. "
                "T defaults to f32 f64 f16 bf16; C is what the letters above are computed in.",
                "patternProperties": {
                    "^[ABD-Z]$": {"anyOf": [words, {"type": "array", "items": words, "minItems": 1}]}
                },
                "additionalProperties": False,
            },
            "inputs": table(
                operand,
                "name: Type[dimensions]; `*name` any number of axes, `d/block` one entry a block, `4` a size; "
                "after `= number` what it is where a call leaves it out, or `half of name`: one array may hold both.",
            ),
            "attrs": table(
                r"^.+$",
                "name: type = default; types are a letter, i32, bool, C, size, `axis of d`, `axes of d`, reduction, "
                "precision, or words for each of which formulas `choose`: `none | tanh = none`. "
                "A default is a number, `inf`, or a limit of a type: `highest(T)`.",
            ),
            "requires": {
                "description": "Conditions on attributes, checked when a plan is selected.",
                "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            },
            "let": lets,
            "outputs": table(formula, f"name: Type[dimensions] = formula. Intrinsics: {calls}."),
            "backward": {
                "description": "d_<input>: Type[dimensions] = formula over d_<output>, inputs and outputs; the name of "
                f"another gradient that it is, `{CONSTANT}`, or `{DERIVED}` (from the formulas of the outputs). In "
                f"place of all: `{DERIVED}`, or `{NONE}`. A row without it whose outputs are floats has derived ones.",
                "anyOf": [{"enum": [DERIVED, NONE]}, gradients],
            },
        },
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "skuda operations",
        "type": "object",
        "required": ["ops"],
        "additionalProperties": False,
        "properties": {
            "functions": {
                "type": "object",
                "description": "name(parameter, ...): formula, expanded where it is called.",
                "additionalProperties": {"type": "string"},
            },
            "ops": {"type": "object", "patternProperties": {names: row}, "additionalProperties": False},
        },
    }
