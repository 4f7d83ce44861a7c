"""The list of mutations (tests/mutate.py) fits the tree; the mutations themselves are run by `make mutate`."""

from __future__ import annotations

from pathlib import Path

import mutate
import pytest

LAYERS = ("ops.yaml", "codegen/", "templates/", "runtime/cuda/", "runtime/")


@pytest.mark.parametrize("mutation", mutate.MUTATIONS, ids=lambda each: f"{each.file}: {each.title}")
def test_each_changes_one_line_of_the_tree_and_has_tests(mutation):
    assert mutate.complaint(mutation) is None
    files = [each.partition("::")[0] for each in mutation.tests if each.startswith("tests/")]
    assert files and all((mutate.ROOT / file).exists() for file in files)
    # What generated text follows from must be generated again; headers and the runtime are read as they are.
    assert mutation.generate or not mutation.file.startswith(("ops.yaml", "templates/"))


def test_every_layer_has_some():
    files = [each.file for each in mutate.MUTATIONS]
    assert len(files) >= 40
    assert all(any(file.startswith(layer) for file in files) for layer in LAYERS)


def test_a_text_that_has_moved_is_said(tmp_path):
    mutation = mutate.Mutation("Makefile", "no such text", "another", (), "none")
    assert "occurs 0 times" in mutate.complaint(mutation)
    assert "no such file" in mutate.complaint(mutate.Mutation("no such file", "a", "b", (), "none"))
    twice = mutate.Mutation("Makefile", "$(BIN)/skuda", "x", (), "none")
    assert "expected once" in mutate.complaint(twice)
    assert "one line" in mutate.complaint(mutate.Mutation("Makefile", "help", "help", (), "none"))


def test_a_copy_of_the_tree_imports_itself(tmp_path):
    tree = mutate.Tree(tmp_path)
    tree.write("runtime/errors.py", (mutate.ROOT / "runtime/errors.py").read_text() + "\nMARK = 'mutant'\n")
    done = tree.run("-c", "import skuda.errors as e, skuda.codegen, skuda.generated as g; print(e.MARK, g.__file__)")
    mark, generated = done.stdout.split()
    assert mark == "mutant" and Path(generated).is_relative_to(tmp_path)
