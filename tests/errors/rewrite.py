"""Writes the golden messages anew: `make golden`. Prints which ones changed, for their diff to be read."""

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
        print(f"{name}: no mistake found; correct the case or the check", file=sys.stderr)
    return 1 if faultless else 0


if __name__ == "__main__":
    sys.exit(main())
