"""What decides the generated files, and that a change of it is noticed."""

from __future__ import annotations

import json
import time

import pytest
from trees import REPOSITORY, copy_of_the_tree, run, skuda_in

from skuda.codegen import inputs, output

# Which modules rendering has imported, asked of Python; and for each file of the tree whether a change is noticed.
CHANGED = """
import json, sys
from pathlib import Path
from skuda.codegen import inputs, render
tree = Path.cwd()
render.rendered_files(tree / "ops.yaml")
loaded = [Path(module.__file__).resolve() for name, module in sys.modules.items() if name.split(".")[0] == "skuda"]
before, noticed = inputs.digest(tree / "ops.yaml"), {}
for path in sorted(each for each in tree.rglob("*") if each.suffix in (".py", ".jinja", ".cuh", ".yaml")):
    if "import" not in path.relative_to(tree).parts and not path.is_symlink():
        text = path.read_bytes()
        path.write_bytes(text + b" ")
        noticed[str(path.relative_to(tree))] = inputs.digest(tree / "ops.yaml") != before
        path.write_bytes(text)
assert inputs.digest(tree / "ops.yaml") == before
print(json.dumps([[str(path.relative_to(tree)) for path in loaded if path.is_relative_to(tree)], noticed]))
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return copy_of_the_tree(tmp_path_factory.mktemp("inputs"))


@pytest.mark.turns(4)
def test_a_change_of_each_file_that_matters_is_noticed_and_of_no_other(tree):
    done = run(tree, "-c", CHANGED)
    assert done.returncode == 0, done.stderr
    loaded, noticed = json.loads(done.stdout)
    templates = {path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "templates").rglob("*.jinja")}
    assert {"codegen/render.py", "runtime/model/sum_order.py", "runtime/schedules/table.py"} <= set(loaded)
    assert {path for path, is_noticed in noticed.items() if is_noticed} == {*loaded, *templates, "ops.yaml"}
    assert {path for path, is_noticed in noticed.items() if not is_noticed} > {
        "runtime/plans/plan.py", "runtime/cuda/rows.cuh", "codegen/commands/show.py", "tests/conftest.py",
    }  # fmt: skip


@pytest.mark.turns(8)
@pytest.mark.parametrize(
    ("path", "text", "other"),
    [
        ("runtime/model/sum_order.py", '("argmax", "argmin")', '("argmin", "argmax")'),
        ("templates/doc.md.jinja", "# ", "#  "),
    ],
)
def test_generate_and_check_say_that_a_catalog_is_stale(tree, path, text, other):
    assert "up to date" in skuda_in(tree, "generate").stdout
    whole = (tree / path).read_text()
    assert text in whole
    (tree / path).write_text(whole.replace(text, other, 1))
    try:
        assert "MANIFEST: stale" in skuda_in(tree, "check").stdout
        assert "up to date" not in skuda_in(tree, "generate").stdout
    finally:
        (tree / path).write_text(whole)
        skuda_in(tree, "generate")


def test_nothing_to_do_is_known_at_once():
    """A run that has nothing to do takes 0.04 s, of which this is a part."""
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        assert output.up_to_date(REPOSITORY / "generated", REPOSITORY / "ops.yaml")
        seconds.append(time.perf_counter() - begun)
    assert min(seconds) < 0.15
    assert len(inputs.files()) > 40
