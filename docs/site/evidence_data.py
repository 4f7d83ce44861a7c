"""Every row that `skuda bench` recorded, as one file that the table of the site reads."""

from __future__ import annotations

import json

from skuda.bench import targets
from skuda.bench.peers import PEERS
from skuda.verification.evidence import Records
from skuda.verification.findings import share, shown_row

NAME = "measurements"


def as_json(records: Records) -> str:
    """`rows` have a cell for each of `heads`, and then for each of `peers` its time over ours, or null.

    Times are microseconds, sizes bytes, shares of the speed of a copy (of a kernel that only reads, where outputs are
    few values).
    """
    rows = []
    for record in records.measured:
        for row in targets.measured(record.get("rows", ())):
            ratios = [targets.speedup(row, peer.name) for peer in PEERS]
            rows.append([
                record["machine"]["gpu"], row["operation"], row["dtype"], shown_row(row), row["class"], row["bytes"],
                row["ours_us"], round(share(row), 3), *(ratio and round(ratio, 3) for ratio in ratios),
            ])  # fmt: skip
    heads = ["GPU", "operation", "types", "shape", "class", "bytes", "us", "share"]
    result = {"heads": heads, "peers": [peer.name for peer in PEERS], "rows": rows}
    return json.dumps(result, separators=(",", ":"))
