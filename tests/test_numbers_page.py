"""The figures of docs/numerics.md are those of the code, the records and the tables that it speaks of."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from skuda.codegen.intrinsics import HALF_BOUNDS, HALVED, INTRINSICS, QUICKENED
from skuda.model import scan_order, sum_order
from skuda.model.dtypes import DTYPES
from skuda.reference import formulas
from skuda.verification import nearness
from skuda.verification.texts import header_digest

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = (REPOSITORY / "docs" / "numerics.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """What stands below a heading, up to the next one."""
    return re.split(r"^#", PAGE.partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def rows(title: str) -> dict[str, list[str]]:
    """The first table of a section, by its first column."""
    lines = (line.strip("|").split("|") for line in section(title).splitlines() if line.startswith("| `"))
    return {head.strip(): [each.strip() for each in cells] for head, *cells in lines}


def test_bounds_of_functions_are_those_of_the_table():
    stated = {}
    for names, [bound] in rows("Elementary functions").items():
        stated |= dict.fromkeys(re.findall(r"\w+", names), (float(bound),) * 2)
    assert stated == {name: row.ulp for name, row in INTRINSICS.items() if row.ulp}


def test_bounds_of_shorter_functions_are_those_of_the_table():
    text = section("Functions as precise as what is stored")
    for word, power in HALF_BOUNDS.items():
        assert re.search(rf"within 2\^{power}\b[^.]*?rows\s+of\s+{word}\b", text), word
    assert all(f"`{name}`" in text.partition("**Which rows.**")[0] for name in HALVED)


def test_steps_back_of_exp_are_those_of_the_record():
    records = [*(REPOSITORY / "evidence").glob("elementary-nvidia-*.json")]
    found = [json.loads(record.read_text(encoding="utf-8"))["functions"] for record in records]
    [steps] = {each["exp"]["f32"]["steps_down"] for each in found}
    assert f"falls by one unit at {steps:,} of all arguments" in " ".join(PAGE.split())


def test_steps_back_of_log1pexp_are_those_of_records_of_its_steps():
    """Records of steps that it had before do not count."""
    found = [json.loads(each.read_text("utf-8")) for each in (REPOSITORY / "evidence").glob("elementary-nvidia-*.json")]
    found = [each["functions"]["log1pexp"]["f32"] for each in found if "log1pexp" in each["functions"]]
    found = [each for each in found if each["digest"] == header_digest(INTRINSICS["log1pexp"].header)]
    [said] = re.findall(r"and `log1pexp` at (\d[\d,]*\d)", " ".join(PAGE.split()))
    assert {each["steps_down"] for each in found} <= {int(said.replace(",", ""))}
    [most] = re.findall(r"`log1pexp` within [\d.]+ \(([\d.]+) where", PAGE)
    assert all(each["worst_ulp"] <= float(most) for each in found)


def test_tighter_bounds_of_f64_are_those_of_the_record():
    record = json.loads((REPOSITORY / "evidence" / "elementary-f64.json").read_text(encoding="utf-8"))
    text = " ".join(section("Elementary functions").split()).partition("cbrt` and `hypot` are within")[2]
    text = text.partition("In f64 ")[2].partition(" So powers")[0]
    stated = {}
    for names, bound in re.findall(r"`([\w ]+)` (?:is )?within (\d\.\d+)", text):
        stated |= dict.fromkeys(names.split(), float(bound))
    promised = {name for name, row in INTRINSICS.items() if row.ulp and row.ulp[1] == 1}
    assert set(stated) == promised - {"exp", "log", "erf", "erfc"}
    off = {name: record["functions"][name]["f64"]["worst_ulp"] for name in stated}
    assert not {name: units for name, units in off.items() if units > stated[name]}


def test_largest_values_of_small_floats():
    found = re.search(r"e4m3: (\d+), e5m2: (\d+), e2m1: (\d+), e8m0: 2\^(\d+)", PAGE)
    *values, power = map(int, found.groups())
    assert values == [DTYPES[word].highest for word in ("e4m3", "e5m2", "e2m1")]
    assert 2**power == DTYPES["e8m0"].highest


def test_sizes_of_orders():
    text = section("Sums in one order")
    assert sum_order.GROUP == 8 and "Eight neighbours" in text
    least, most = sum_order.accumulators(1), sum_order.accumulators(10**9)
    assert f"to {least} to {most:,} accumulators" in text and f"more than {sum_order.SEGMENT:,} elements" in text
    few, many = sum_order.SLAB_ROWS
    assert f"`ceil(n / {sum_order.SLABS})` of n rows, at least {few} and at most {many}" in text
    scans, group = section("Scans in one order"), sum_order.GROUP
    tile = group * scan_order.WARP_GROUPS * scan_order.TILE_WARPS
    assert f"totals of {scan_order.WARP_GROUPS} groups" in scans and f"{scan_order.TILE_WARPS} times as many" in scans
    assert f"Tiles of {tile:,} elements" in scans and f"segments of {tile * scan_order.SEGMENT_TILES:,}" in scans


def test_divisors_of_the_fast_path():
    header = (REPOSITORY / "runtime" / "cuda" / "quotient.cuh").read_text(encoding="utf-8")
    low, high = re.search(r"scale_low = 0x1p(-\d+)f, scale_high = 0x1p(\d+)f", header).groups()
    assert f"[2^{low}, 2^{high}] (f32)" in PAGE


def _called(name: str, x: np.ndarray, word: str) -> np.ndarray:
    """A function of the table, `x * ndtr(x)` too, rounded to C in each step; in f64 where x is."""
    with np.errstate(all="ignore"):
        return x * formulas.ndtr(x, word) if name.startswith("x") else getattr(formulas, name)(x, word)


@pytest.mark.parametrize("word", HALF_BOUNDS)
def test_results_that_are_not_the_nearest_are_counted(word):
    column = 2 * list(HALF_BOUNDS).index(word)
    table = rows("Functions as precise as what is stored")
    of_one = [name for name in HALVED if INTRINSICS[name].arguments == "r"]
    assert {name for name in table if "(" not in name} == {f"`{name}`" for name in of_one}
    every = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[word].storage).astype(np.float32)
    x = np.unique(every[np.isfinite(every)])
    assert f"{word}, of {len(x):,}" in PAGE
    for name, counts in table.items():
        name = name.strip("`")
        with np.errstate(all="ignore"):
            nearest = formulas.narrow(_called(name, x.astype(np.float64), ""), word)
            found = [formulas.narrow(_called(name, x, form), word) for form in (word, "")]
        numbers = ~np.isnan(nearest.astype(np.float32))
        missed = [np.count_nonzero((each.astype(np.float32) != nearest.astype(np.float32)) & numbers) for each in found]
        assert missed == [int(each) for each in counts[column : column + 2]], name


def test_bounds_of_instructions_are_those_of_the_tests():
    text = section("Instructions of the GPU")
    for element, power in nearness.BOUNDS.items():
        if element == "f64":
            assert f"within 2^{power} of the value" in text
        else:
            said = re.search(rf"T is {element} \| 2\^(-\d+) of the value", text)
            assert said and int(said[1]) == power
    assert f"below 2^{int(np.log2(nearness.SMALLEST))}" in text and nearness.STEPS == 1
    assert all(f"`{name}`" in text for name in QUICKENED)
