"""A mutation run: one line of the project is changed after another, and the tests that must notice it run.

    python tests/mutate.py [--jobs N] [--list] [PATTERN...]

Each mutation is applied to a copy of the tree with an import path of its own; the catalog is generated again there
where its text follows from the line. Patterns (regular expressions over file and title) choose some. First the tests
run on the tree as it is, and must pass. The exit status is 1 if a mutation survives, and 2 if the list does not fit the
tree: a text that does not occur exactly once, tests that fail without a mutation or are not found.
tests/mutations.py is the list.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[1]
LIMIT = 300  # seconds that a command may take; one that hangs has noticed
FAILED, REFUSED, USAGE = 1, 2, 4  # pytest: a test failed; nothing could be collected; an import fails, or no such test
_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.pyc", "build", "*.egg-info", "shared")
_PACKAGES = {"codegen": "codegen", "templates": "templates", "generated": "generated"}  # beside runtime, in skuda


class Tree:
    """A copy of the project in which lines are changed and changed back."""

    def __init__(self, folder: Path):
        self.root = folder / "tree"
        shutil.copytree(ROOT, self.root, ignore=_LEFT_OUT)
        package = folder / "path" / "skuda"
        package.mkdir(parents=True)
        for each in (self.root / "runtime").iterdir():
            (package / each.name).symlink_to(each)
        for name, source in _PACKAGES.items():
            (package / name).symlink_to(self.root / source)
        self._environment = {
            **os.environ, "PYTHONPATH": str(folder / "path"), "SKUDA_CACHE_DIR": str(folder / "cache")
        }  # fmt: skip
        self._written = int(time.time())

    def run(self, *command: str) -> subprocess.CompletedProcess[str] | None:
        """A command of this Python in the copy; None if it takes too long."""
        try:
            return subprocess.run(
                [sys.executable, *command], cwd=self.root, env=self._environment, text=True, timeout=LIMIT,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None

    def tests(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
        return self.run("-m", "pytest", "-q", "-x", "--all", "-p", "no:cacheprovider", *arguments)

    def generate(self) -> bool:
        done = self.run("-m", "skuda.codegen.cli", "generate")
        return done is not None and done.returncode == 0

    def write(self, file: str, text: str) -> None:
        """Replaces a file; each time it is some seconds newer, so that no compiled module is taken for it."""
        (self.root / file).write_text(text, encoding="utf-8")
        self._written += 2
        os.utime(self.root / file, (self._written, self._written))


def complaint(mutation: Mutation) -> str | None:
    """Why a mutation does not fit the tree."""
    try:
        found = (ROOT / mutation.file).read_text(encoding="utf-8").count(mutation.before)
    except FileNotFoundError:
        return "there is no such file"
    lines = zip(mutation.before.split("\n"), mutation.after.split("\n"), strict=True)
    if sum(before != after for before, after in lines) != 1:
        return "it does not change one line"
    return None if found == 1 else f"its text occurs {found} times, expected once: {mutation.before}"


def outcome(tree: Tree, mutation: Mutation) -> tuple[str, str]:
    """`killed`, `survived` or `error`, and what was said."""
    text = (tree.root / mutation.file).read_text(encoding="utf-8")
    tree.write(mutation.file, text.replace(mutation.before, mutation.after))
    try:
        if mutation.generate and not tree.generate():
            return "killed", "the generator refuses it"
        done = tree.tests(mutation.tests)
    finally:
        tree.write(mutation.file, text)
        if mutation.generate:
            tree.generate()
    if done is None:
        return "killed", "a test does not end"
    lines = done.stdout.strip().splitlines() or [""]
    last = next((line for line in lines if line.startswith(("FAILED", "ERROR"))), lines[-1])[:120]
    if done.returncode == 0:
        return "survived", last
    imported = done.returncode != USAGE or "ImportError while loading conftest" in done.stdout
    noticed = imported and (done.returncode in (FAILED, REFUSED, USAGE) or done.returncode < 0)
    return ("killed" if noticed else "error"), last


def shared_out(jobs: int, work: Sequence, do) -> Iterator[tuple]:
    """Each item with what `do(tree, item)` returns, as it comes, by some copies of the tree at once."""
    with tempfile.TemporaryDirectory(prefix="skuda-mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        trees: SimpleQueue[Tree] = SimpleQueue()
        for tree in pool.map(lambda number: Tree(Path(folder) / str(number)), range(min(jobs, len(work)))):
            trees.put(tree)

        def one(item):
            tree = trees.get()
            try:
                return item, do(tree, item)
            finally:
                trees.put(tree)

        yield from pool.map(one, work)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("patterns", metavar="PATTERN", nargs="*", help="of files and titles; all if none is given")
    parser.add_argument("--jobs", type=int, default=1, help="copies of the tree at once (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="name the mutations and run nothing")
    parser.add_argument("--quick", action="store_true", help="trust that the tests pass without mutations")
    args = parser.parse_args(arguments)
    chosen = [
        each for each in MUTATIONS
        if not args.patterns or any(re.search(pattern, f"{each.file}: {each.title}") for pattern in args.patterns)
    ]  # fmt: skip
    wrong = [f"{each.file}: {each.title}: {said}" for each in chosen if (said := complaint(each))]
    if args.list or wrong:
        print(*wrong if wrong else [f"{each.file}: {each.title}" for each in chosen], sep="\n")
        return 2 if wrong else 0
    if not args.quick:
        commands = list(dict.fromkeys(each.tests for each in chosen))
        failed = 0
        for tests, done in shared_out(args.jobs, commands, Tree.tests):
            if done is None or done.returncode:
                failed += 1
                print(f"these do not pass without a mutation: {' '.join(tests)}")
                print(done.stdout[-3000:] if done else "they do not end", flush=True)
        if failed:
            return 2
        print(f"{len(commands)} commands pass without a mutation", flush=True)
    counts = dict.fromkeys(("killed", "survived", "error"), 0)
    for number, (each, (what, said)) in enumerate(shared_out(args.jobs, chosen, outcome), 1):
        counts[what] += 1
        print(f"{number:3} {what:8} {each.file}: {each.title} [{said}]", flush=True)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 2 if counts["error"] else int(counts["survived"] > 0)


if __name__ == "__main__":
    sys.exit(main())
