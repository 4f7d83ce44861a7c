"""Sizes for an architecture: records, whose is whose, and what follows from them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from host import emulator

from skuda.errors import Unsupported
from skuda.launch import compiler, registry
from skuda.launch.cubin_cache import _key
from skuda.plans import alternative
from skuda.schedules import table, tuning
from skuda.schedules.tuning import SM_90, TUNINGS, Launch, Tuning
from skuda.schedules.variant import BLOCK


@pytest.fixture
def another(monkeypatch):
    """Puts a record of another architecture beside those that there are."""
    compiler.headers()  # is made once, of those

    def put(arch: int, **sizes) -> Tuning:
        monkeypatch.setitem(TUNINGS, arch, SM_90.but(**sizes))
        tuning.header.cache_clear()
        return TUNINGS[arch]

    yield put
    tuning.header.cache_clear()


def test_every_size_has_a_line_and_a_use():
    for cls, fields in ((Launch, Launch._fields), (Tuning, Tuning._fields[len(Launch._fields) :])):
        said = re.findall(r"^ {8}(\w+): ", cls.__doc__, re.MULTILINE)
        assert sorted(said) == sorted(fields)
    paths = [path for module in (table, alternative) for path in Path(module.__file__).parent.glob("*.py")]
    host = "\n".join([path.read_text(encoding="utf-8") for path in paths if path.name != "tuning.py"])
    assert [name for name in Launch._fields if f"TUNED.{name}" not in host and name not in tuning._AGREED] == []


def test_every_constant_is_used_by_a_header_and_said_by_no_other():
    headers = dict(compiler.headers())
    own = headers.pop(tuning.HEADER)
    everything = "\n".join(headers.values())
    for name in tuning.constants("sm_90"):
        assert re.search(rf"(?:// .*\n)+constexpr int {name} = \d+;", own)
        assert re.search(rf"\b{name}\b", everything), name
        assert not re.search(rf"constexpr int {name}\b", everything), name
    for header, text in headers.items():
        if any(re.search(rf"\b{name}\b", text) for name in tuning.constants("sm_90")):
            assert tuning.HEADER in compiler.included(text), header


def test_a_gpu_without_a_record_takes_its_neighbours(another):
    newer = another(100, near_rows=1)
    older = another(80, near_rows=2)
    for arch, expected in [
        ("sm_90", SM_90), ("sm_90a", SM_90), ("sm_100", newer), ("sm_103a", newer), ("sm_120", newer), ("sm_89", older),
        ("sm_80", older), ("sm_75", older), ("sm_99", SM_90),
    ]:  # fmt: skip
        assert tuning.tuning_for(arch) is expected, arch
    with pytest.raises(Unsupported, match="'90' is no architecture"):
        tuning.tuning_for("90")


def test_a_record_says_what_differs():
    assert SM_90.but(near_rows=1) == replace(SM_90, near_rows=1) != SM_90
    with pytest.raises(TypeError):
        SM_90.but(no_such_size=1)


def _source(symbol: str) -> tuple[str, str, str]:
    """The text and the name of a kernel's source, and its entry."""
    (sku,) = [sku for sku in registry.skus() if sku.symbol == symbol]
    found = registry.entry_of(sku)
    (entry,) = table.entries(found.operation, found.types, found.variant)
    return registry.catalogs()[0].source(found.operation.source), found.operation.source, entry


def test_each_architecture_gets_its_own_constants(another):
    """Machine code of an architecture follows from its record alone; so does its position in the cache."""
    text, name, entry = _source("rms_norm_f16__row128x4")
    was = {arch: compiler.compile_cubin(text, name, [entry], arch).cubin for arch in ("sm_90", "sm_100")}
    keys = {arch: _key(text, entry, arch) for arch in was}
    another(100, early_threads=64, elementwise_threads=64)
    now = {arch: compiler.compile_cubin(text, name, [entry], arch).cubin for arch in was}
    assert now["sm_90"] == was["sm_90"] and _key(text, entry, "sm_90") == keys["sm_90"]
    assert now["sm_100"] != was["sm_100"] and _key(text, entry, "sm_100") != keys["sm_100"]
    constants = tuning.constants("sm_100")
    assert constants["EARLY_THREADS"] == 64
    assert constants["ELEMENTWISE_THREADS"] == BLOCK  # as the host launches them


@pytest.mark.parametrize(
    "sizes, symbols",
    [
        (
            {"row_bytes_ahead": 1 << 16, "near_rows": 0, "early_threads": 0, "held_chunks": 0, "stretch_bits": 8},
            ["rms_norm_f16__row128x4_unaligned", "softmax_f32__row128x4"],
        ),
        ({"split_along_bits": 16, "split_along_turns": 2}, ["sum_f16__along", "sum_f32__along_unaligned"]),
        ({"tile_batch": 3, "tile_stores_unrolled": 1}, ["gelu_f16__tile"]),
    ],
)
def test_bits_do_not_follow_from_sizes(sizes, symbols, another, tmp_path, monkeypatch):
    another(90, **sizes)
    headers = compiler.headers()
    changed = headers | {tuning.HEADER: tuning.header("sm_90")}
    assert changed != headers
    monkeypatch.setattr(compiler, "headers", lambda: changed)
    skus = [sku for sku in registry.skus() if sku.symbol in symbols]
    assert len(skus) == len(symbols)
    host = emulator.Host(skus, tmp_path)
    for sku in skus:
        assert list(host.faults(sku)) == []


PROCESS = """
from skuda.schedules import tuning
tuning.TUNINGS[100] = tuning.SM_90.but(row_shapes=((4, 4), (32, 4), (256, 4)), elementwise_threads=256)
from skuda.launch import registry
from skuda.schedules import table
from skuda.schedules.variant import BLOCK
operation, types = registry.catalogs()[0].plans("softmax")[0].operation, {"T": "f32", "C": "f32"}
names = [registry.make_sku(operation, types, each).symbol for each in table.variants(operation, types)]
rows = {name for name in names if name.startswith("softmax_f32__row")}
constants = tuning.constants("sm_90")
print(len(rows), "softmax_f32__row128x4" in rows, BLOCK, constants["ELEMENTWISE_THREADS"])
"""


def test_the_host_reads_the_record_that_a_process_asks_for():
    """Fewer sizes of rows: longer rows take more threads, and symbols say so."""
    lines = []
    for asked in ("", "sm_90", "sm_100", "sm_103"):
        env = os.environ | {"SKUDA_TUNING": asked}
        done = subprocess.run([sys.executable, "-c", PROCESS], env=env, capture_output=True, text=True, check=True)
        lines.append(done.stdout.split())
    assert lines[0] == lines[1] and lines[2] == lines[3]
    assert lines[0][1:] == ["True", "128", "128"] and lines[2][1:] == ["False", "256", "256"]
    assert int(lines[2][0]) < int(lines[0][0])
