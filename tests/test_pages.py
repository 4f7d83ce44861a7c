"""What pages show is true: their Python runs, their specs generate, their error is the error."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from catalogs import forget_catalog

from skuda.codegen.cli import main
from skuda.launch import registry
from skuda.model.sku import Direction

REPOSITORY = Path(__file__).resolve().parents[1]
CATALOG = registry.catalogs()[0]
PAGES = ("README.md", "docs/start.md")
DOCS = [path.relative_to(REPOSITORY) for path in sorted((REPOSITORY / "docs").glob("*.md"))]


def read(page: str) -> str:
    return (REPOSITORY / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", read(page), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page, capsys, monkeypatch, tmp_path):
    """Also the call of the operation that the page defines; its catalog is made from the page's spec first."""
    own = f"page_{Path(page).stem.lower()}"
    [spec] = blocks(page, "yaml")
    (tmp_path / "my_ops.yaml").write_text(spec, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["generate", "--spec", "my_ops.yaml", "--out", f"{own}/generated"]) == 0
    names: dict = {}
    try:
        for block in blocks(page, "python"):
            exec(block.replace("my_package", own), names)
    finally:
        forget_catalog(sys.modules[f"{own}.generated"])
    printed = capsys.readouterr().out
    assert "torch.Size([8, 4096])" in printed and "False" not in printed
    assert names["y"].shape == names["x"].shape


def test_the_examples_of_concepts_run_one_after_another():
    """From the one that imports on; what stands before it is a sketch of a plan."""
    found = blocks("docs/concepts.md", "python")
    first = next(index for index, block in enumerate(found) if block.startswith("import"))
    names: dict = {}
    for block in found[first:]:
        exec(block, names)
    assert len(found[first:]) == 10


def test_the_spec_of_the_language_runs(monkeypatch, tmp_path):
    [spec], [call] = (blocks("docs/language.md", language) for language in ("yaml", "python"))
    (tmp_path / "my_ops.yaml").write_text(spec, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["generate", "--spec", "my_ops.yaml", "--out", "page_language/generated"]) == 0
    try:
        exec(call.replace("my_package", "page_language"), {})
    finally:
        forget_catalog(sys.modules["page_language.generated"])


def test_the_error_of_the_page_is_the_error(capsys, monkeypatch, tmp_path):
    [spec] = blocks("docs/start.md", "yaml")
    (tmp_path / "my_ops.yaml").write_text(spec.replace("alpha + tanh", "alfa + tanh"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["generate", "--spec", "my_ops.yaml", "--out", "my_package/generated"]) == 1
    assert f"```\n{capsys.readouterr().err.strip()}\n```\n" in read("docs/start.md")


def test_readme_is_read_in_a_minute():
    text = read("README.md")
    assert len(text.split()) <= 900
    assert sum(line.startswith("|") for line in text.splitlines()) <= 30
    assert re.findall(r"!\[[^]]*\]\(([^)]*)\)", text) == ["docs/bench.png"]


def test_the_catalog_of_readme_is_the_catalog():
    """What a line of the table names is of its category, with as many others as it says."""
    rows = {}
    for plan in (plan for name in CATALOG.modules for plan in CATALOG.plans(name)):
        operation = plan.operation
        if operation.direction is Direction.FORWARD and operation.function == operation.row:
            rows.setdefault(operation.category, set()).add(operation.name)
    every = set().union(*rows.values())
    section = read("README.md").partition("## What is in the catalog")[2]
    table = re.findall(r"^\| (\w+) \| (.*) \|$", section, re.MULTILINE)
    counted = 0
    for heading, text in table:
        named = set(re.findall(r"`(\w+)`", text))
        assert named <= every, heading
        if more := re.search(r" and (\d+) more", text):
            counted += 1
            own = next(names for names in rows.values() if named <= names)
            assert len(own) == len(named) + int(more[1]), heading
    assert len(table) == 9 and counted == 4


def test_links_of_pages_at_the_root_lead_somewhere():
    for page in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md", *map(str, DOCS)):
        for link in re.findall(r"\]\(([^)\s#]+)[^)\s]*\)", read(page)):
            assert "://" in link or (REPOSITORY / page).parent.joinpath(link).exists(), (page, link)
