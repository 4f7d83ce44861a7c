"""Files that two processes render."""

from __future__ import annotations

import pytest

from skuda.codegen import render as renderer
from skuda.codegen import spec as specs
from skuda.codegen.describe import Described

ROW = """\
  {name}:
    kind: test.{name}
    doc: A test.
    inputs: {{x: 'T[*shape]'}}
    outputs: {{y: 'T[*shape] = x + {number}'}}
"""
SPEC = "ops:\n" + "".join(ROW.format(name=f"plus_{number}", number=number) for number in range(1, 6))


@pytest.fixture
def given():
    spec = specs.loads(SPEC)
    return spec, [[Described(each) for each in row.every] for row in spec.rows]


def test_two_processes_render_what_one_does(given):
    files = renderer._by_two(*given)
    assert files == renderer._files_of(*given)
    assert {"cuda/plus_1.cu", "cuda/plus_2.cu", "plans/plus_5.py"} < files.keys()


def test_what_another_process_does_not_give_is_rendered_by_this_one(given, monkeypatch):
    monkeypatch.setattr(renderer, "_send", lambda sender, *_: sender.close())
    assert renderer._by_two(*given) == renderer._files_of(*given)
