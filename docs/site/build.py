"""Makes the site: pages from the repository's files, tables and records in build/site-src, HTML in build/site.

    python docs/site/build.py            both
    python docs/site/build.py --pages    the pages alone

Nothing of it is committed. `make site` installs what it takes: the extra `docs`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import evidence_data
import formulas
import language_page
import support_page
import yaml
from links import Links
from operation_pages import OperationPages

import skuda
from skuda.codegen import spec
from skuda.verification.evidence import Records

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
SOURCE, SITE = REPOSITORY / "build" / "site-src", REPOSITORY / "build" / "site"

# The navigation: of each section the pages by their paths on the site, and the files that they are made of. A page
# without a file is written from tables. Other pages of docs/ follow after the guides, so a new one needs no entry.
START = {"index.md": "README.md", "start.md": "docs/start.md", "concepts.md": "docs/concepts.md"}
GUIDES = {
    "numerics.md": "docs/numerics.md",
    "frameworks.md": "docs/frameworks.md",
    "checkpoints.md": "docs/checkpoints.md",
}
LANGUAGE = {"language.md": "docs/language.md"}
CHOICE = {"alternatives.md": "docs/alternatives.md", "support.md": "docs/support.md"}
SPEED = {
    "evidence/index.md": "docs/speed.md",
    "evidence/speed.md": "evidence/speed.md",
    "evidence/kernels.md": "evidence/README.md",
    "evidence/limits.md": "evidence/limits.md",
    "evidence/history.md": "evidence/history.md",
    "evidence/tried.md": "evidence/tried.md",
}
CHANGES = {"changes.md": "CHANGELOG.md", "stability.md": "docs/stability.md"}
HOUSE = {
    "house/architecture.md": "ARCHITECTURE.md",
    "house/contributing.md": "CONTRIBUTING.md",
    "house/caches.md": "docs/caches.md",
    "house/glossary.md": "docs/glossary.md",
}
WIDE = {"evidence/index.md"}  # pages that take the width of the navigation too


def main() -> int:
    """Makes the pages, then the site; the exit status of mkdocs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", action="store_true", help="write build/site-src alone")
    args = parser.parse_args()
    write_pages()
    if args.pages:
        return 0
    configuration = SOURCE.parent / "mkdocs.yml"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", str(configuration)]
    settings = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    status = subprocess.run(command, check=False, env=settings).returncode
    if not status:
        _mend_search()
        print(f"open {SITE / 'index.html'}")
    return status


# lunr names a node of its tree of words by its edges, each a letter and a number, written together. A letter may be a
# digit, so different nodes can have one name, and a search that meets them finds words that are nowhere, and fails.
_NAMED, _NAMED_APART = "e=e+s+o.id}return e}", 'e=e+s+o.id+","}return e}'


def _mend_search() -> None:
    """Writes a separator into the names that the search of mkdocs-material gives to nodes."""
    (worker,) = (SITE / "assets" / "javascripts" / "workers").glob("search.*.js")
    text = worker.read_text(encoding="utf-8")
    if text.count(_NAMED) != 1:
        raise SystemExit(f"{worker}: expected {_NAMED!r} once; has mkdocs-material changed its search?")
    worker.write_text(text.replace(_NAMED, _NAMED_APART), encoding="utf-8")


def write_pages() -> None:
    """Writes what mkdocs reads, anew.

    Raises:
        BrokenLink: a page links to what is not there.
    """
    shutil.rmtree(SOURCE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    table = spec.load(REPOSITORY / "ops.yaml")
    records = Records(REPOSITORY / "generated")
    operations = OperationPages(table.rows, records)
    made = _made(START, LANGUAGE, GUIDES, CHOICE, SPEED, CHANGES, HOUSE)
    others = sorted(path.name for path in (REPOSITORY / "docs").glob("*.md"))
    more = {name: f"docs/{name}" for name in others if f"docs/{name}" not in made.values()}
    made |= more
    by_file = {file: page for page, file in made.items()}
    by_file |= {f"generated/docs/{row.name}.md": f"operations/{row.name}.md" for row in table.rows}
    by_file |= {"generated/docs": "operations/index.md", "evidence": "evidence/kernels.md", "ops.yaml": "ops.md"}
    links = Links(REPOSITORY, by_file, SOURCE)
    added = {"support.md": support_page.section(REPOSITORY, records), "language.md": language_page.sections()}
    for page, file in made.items():
        text = links.rewritten((REPOSITORY / file).read_text(encoding="utf-8"), file, page)
        _write(page, text + ("\n" + added[page] if page in added else ""))
    for row in table.rows:
        file, page = f"generated/docs/{row.name}.md", f"operations/{row.name}.md"
        text = (REPOSITORY / file).read_text(encoding="utf-8")
        _write(page, links.rewritten(operations.page(row, text), file, page))
    _write("operations/index.md", operations.index())
    text = (REPOSITORY / "ops.yaml").read_text(encoding="utf-8")
    _write("ops.md", f"# The table\n\n`ops.yaml`, the only list of operations.\n\n````yaml\n{text}````\n")
    data = evidence_data.as_json(records)
    _write(f"assets/{evidence_data.NAME}.json", data)
    _write(f"assets/{evidence_data.NAME}.js", f"window.{evidence_data.NAME} = {data};\n")  # pages in files cannot fetch
    shutil.copytree(HERE / "assets", SOURCE / "assets", dirs_exist_ok=True)
    formulas.write_font(SOURCE / "assets" / "math.ttf")
    _configure(operations, more)


def _made(*sections: dict[str, str]) -> dict[str, str]:
    """The pages whose files are there."""
    pages = {page: file for section in sections for page, file in section.items()}
    return {page: file for page, file in pages.items() if (REPOSITORY / file).exists()}


def _write(page: str, text: str) -> None:
    path = SOURCE / page
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("---\nhide: [navigation, toc]\n---\n" * (page in WIDE) + text, encoding="utf-8")


def _configure(operations: OperationPages, more: dict[str, str]) -> None:
    """Writes build/mkdocs.yml: the settings beside this file, and the navigation."""
    categories = [
        {category.capitalize(): [{row.name: f"operations/{row.name}.md"} for row in rows]}
        for category, rows in operations.categories.items()
    ]
    navigation = [
        {"Start": list(_made(START))},
        {"Operations": ["operations/index.md", *categories]},
        {"The language": [*LANGUAGE, "ops.md"]},
        {"Guides": [*_made(GUIDES), *more, *_made(CHOICE)]},
        {"Evidence": list(_made(SPEED))},
        {"Changes": list(_made(CHANGES))},
        {"Inside": list(_made(HOUSE))},
    ]
    settings = yaml.safe_load((HERE / "mkdocs.yml").read_text(encoding="utf-8"))
    settings |= {"docs_dir": str(SOURCE), "site_dir": str(SITE), "nav": navigation}
    settings["extra"]["version_text"] = skuda.__version__
    (SOURCE.parent / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
