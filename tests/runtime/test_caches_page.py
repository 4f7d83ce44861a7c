"""docs/caches.md lists the caches of a call: what it names is there, and no cache of the call's rooms is missing."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from skuda.launch import compiler, registry
from skuda.plans import selection

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "caches.md").read_text(encoding="utf-8")
# No caches of calls: modules of other libraries, what is said or made once, and what an object knows from its start.
BESIDE = {"_driver", "_nvrtc", "_cupy_cuda", "_temporary_folder", "_warn_once", "operations", "_CATALOGS"}
BESIDE |= {"CARRIERS", "CREATORS", "RECORDERS", "PARTS"}  # what frameworks set when they are imported
BESIDE |= {"positions", "layout", "words", "_extents", "_may_repack", "deciding"}


def cached(path: Path) -> list[str]:
    """The functions and properties of a module that keep what they return, and its dictionaries that grow."""
    found = []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            kept = [each for each in node.decorator_list if ast.unparse(each) in ("cache", "cached_property")]
            found += [node.name] if kept else []
        elif isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict) and not node.value.keys:
            name = ast.unparse(node.target)
            found += [name.removeprefix("self.")] if node in tree.body or name.startswith("self.") else []
    return found


def test_modules_and_limits_are_what_the_page_says():
    for module in re.findall(r"`(\w+/\w+\.py)`", PAGE):
        assert (REPOSITORY / "runtime" / module).is_file(), module
    assert f"{selection.MOST:,} plans" in PAGE
    entries, size = (int(found.replace(",", "")) for found in re.search(
        r"([\d,]+) entries for skuda's own.*?(\d+) kB each", PAGE, re.DOTALL).groups())  # fmt: skip
    assert entries == pytest.approx(len([*registry.skus()]), rel=0.1)
    assert size == pytest.approx(sum(map(len, compiler.headers().values())) / 1000, rel=0.1)


@pytest.mark.parametrize(
    "path",
    [path for room in ("launch", "plans") for path in sorted((REPOSITORY / "runtime" / room).glob("*.py"))],
    ids=lambda path: path.stem,
)
def test_no_cache_is_missing(path):
    named = set(re.findall(r"\b\w+\b", PAGE))
    assert set(cached(path)) - BESIDE <= named
