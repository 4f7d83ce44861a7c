"""What a kernel's machine code is: a digest of its instructions and of the tables that they read.

A source changes when a comment, a name or a header changes; its instructions often do not. Where they are the same,
what was found of the kernel still holds. Names are no part of the digest. Neither are constants that the compiler keeps
beside the instructions that it folded them into. Another version of NVRTC gives other instructions, and so another
digest.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

DIGITS = 12  # hexadecimal ones of a digest
_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_NO_BITS = 8  # a section that has a size alone
_RELOCATIONS = 4
_WORD = 8  # bytes of the largest constant that is folded; what is larger is a table


class _Section(NamedTuple):
    name: str
    kind: int
    data: bytes


def digest(cubins: Sequence[bytes]) -> str:
    """The digest of the kernels that one schedule launches, in this order: each is the only one of its cubin."""
    found = hashlib.sha256()
    for cubin in cubins:
        for part in _parts(cubin):
            found.update(struct.pack("<Q", len(part)) + part)
    return found.hexdigest()[:DIGITS]


def _parts(cubin: bytes) -> Iterator[bytes]:
    """Instructions, jump tables and constants, then each table with the position that instructions know it by."""
    sections = _sections(cubin)
    for prefix in (".text.", ".nv.constant2", ".nv.constant3"):
        yield prefix.encode()
        yield from sorted(each.data for each in sections if each.name.startswith(prefix))
    symbols = next((each.data for each in sections if each.name == ".symtab"), b"")
    tables = []
    for each in sections:
        if each.kind == _RELOCATIONS and each.name.startswith((".rela.nv.constant", ".rela.text")):
            for offset, info, addend in _RELOCATION.iter_unpack(each.data):
                _, _, _, index, start, size = _SYMBOL.unpack_from(symbols, (info >> 32) * _SYMBOL.size)
                if size > _WORD and index < len(sections):
                    held = sections[index].data[start : start + size]
                    tables.append(struct.pack("<Qq", offset, addend) + held)
    yield from sorted(tables)


def _sections(cubin: bytes) -> list[_Section]:
    """Of an ELF file of 64 bits."""
    if cubin[:4] != b"\x7fELF":
        raise ValueError("machine code that is no ELF file")
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, named = struct.unpack_from("<HHH", cubin, 0x3A)
    heads = [_HEADER.unpack_from(cubin, start + index * size) for index in range(count)]
    texts = heads[named][4]
    return [
        _Section(
            cubin[texts + head[0] : cubin.index(b"\0", texts + head[0])].decode(),
            head[1],
            b"" if head[1] == _NO_BITS else cubin[head[4] : head[4] + head[5]],
        )
        for head in heads
    ]


# ---- what is known of kernels that ran ----


def read(path: Path) -> dict[str, str]:
    """The digests in a file, by the kernels' symbols; none where there is no file."""
    if not path.exists():
        return {}
    kernels = json.loads(path.read_text(encoding="utf-8"))["kernels"]
    pairs = ((family, each.split(":")) for family, of in kernels.items() for each in of.split())
    return {f"{family}__{variant}": found for family, (variant, found) in pairs}


def write(path: Path, arch: str, codes: Mapping[str, str]) -> None:
    """Writes the digests of kernels for one architecture, by their symbols."""
    kernels: dict[str, list[str]] = {}
    for symbol, found in sorted(codes.items()):
        family, _, variant = symbol.partition("__")
        kernels.setdefault(family, []).append(f"{variant}:{found}")
    text = json.dumps({"arch": arch, "kernels": {family: " ".join(of) for family, of in kernels.items()}}, indent=1)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
