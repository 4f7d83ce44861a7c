"""The JSON Schema that editors read: it takes what the loader takes, and refuses what no row can be."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from skuda.codegen.schema import schema_text

SCHEMA = json.loads(schema_text())
OPS = Path(__file__).parents[2] / "ops.yaml"
ROW = {"inputs": {"x": "T[*shape]"}, "outputs": {"y": "T[*shape] = 2 * x"}}


def test_it_is_a_draft_7_schema():
    jsonschema.Draft7Validator.check_schema(SCHEMA)


def test_it_takes_the_operations_of_the_repository():
    jsonschema.validate(yaml.load(OPS.read_text(), yaml.BaseLoader), SCHEMA)


def test_editors_find_it():
    assert OPS.read_text().startswith("# yaml-language-server: $schema=generated/ops.schema.json\n")
    assert json.loads((OPS.parent / "generated" / "ops.schema.json").read_text()) == SCHEMA


@pytest.mark.parametrize(
    "row",
    [
        {**ROW, "input": {}},
        {"inputs": ROW["inputs"]},
        {**ROW, "outputs": {"y": "T[*shape]"}},
        {**ROW, "inputs": {"x": "T"}},
        {**ROW, "types": {"T": ["f17"]}},
        {**ROW, "types": {"C": ["f32"]}},
        {**ROW, "kind": "Two Words"},
    ],
    ids=["key", "no outputs", "no formula", "no dimensions", "element", "letter C", "kind"],
)
def test_it_refuses(row):
    jsonschema.validate({"ops": {"row": ROW}}, SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"ops": {"row": row}}, SCHEMA)
