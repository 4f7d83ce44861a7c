"""Writes the golden messages anew: `make golden`. Says which changed, so that nobody keeps a change unread."""

from __future__ import annotations

import sys

from test_errors import CASES, report


def main() -> int:
    faultless = []
    for path in CASES:
        golden, message = path.with_suffix(".txt"), report(path)
        if not message:
            faultless.append(path.name)
        elif not golden.exists() or golden.read_text(encoding="utf-8") != message:
            golden.write_text(message, encoding="utf-8")
            print(f"changed: {golden.name}")
    for golden in CASES[0].parent.glob("*.txt"):
        if not golden.with_suffix(".yaml").exists():
            golden.unlink()
            print(f"removed: {golden.name}")
    for name in faultless:
        print(f"{name} has no mistake: correct the case, or the check that should have found one", file=sys.stderr)
    return 1 if faultless else 0


if __name__ == "__main__":
    sys.exit(main())
