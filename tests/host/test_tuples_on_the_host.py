"""Tuples of program.cuh lie in memory as a struct of the same members does: kernels take their arguments in tuples, and
hosts pack structs."""

from __future__ import annotations

import ctypes
import subprocess

import pytest

from host import emulator

MEMBERS = {
    "one": ("f32",),
    "wide_after_narrow": ("u8", "i64", "bool", "f32", "f64"),
    "same_types": ("i64", "i64", "f64", "f64"),
    "narrow_at_the_end": ("f64", "i32", "u8"),
    "pointers": ("const f32*", "Strides", "u8*", "Strides"),
    "elements_of_a_row": ("ElementsArgs<f16>", "ElementsArgs<s4>", "ResultsArgs<bf16>"),
    "shared_by_a_row": ("PerRowArgs<const f32>", "Scalar<f32>", "f64", "i64", "PerRowArgs<f64>"),
    "all_roles": ("ElementsArgs<f32>", "PerRowArgs<const f32>", "Scalar<i32>", "i64", "f64", "ResultsArgs<s8>"),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Functions that write offsets of members, then the size: of a struct, and of the tuple."""
    text = '#include "row_args.cuh"\n'
    for name, types in MEMBERS.items():
        members = " ".join(f"{each} m{position};" for position, each in enumerate(types))
        text += f"struct {name} {{ {members} }};\nusing {name}_tuple = Tuple<{', '.join(types)}>;\n"
        for kind, member in ((name, "it.m{}"), (f"{name}_tuple", "get<{}>(it)")):
            offsets = "".join(
                f"  offsets[{i}] = (char*)&{member.format(i)} - (char*)&it;\n" for i in range(len(types))
            )
            text += (
                f'extern "C" void {kind}_offsets(long* offsets) {{\n  {kind} it;\n{offsets}'
                f"  offsets[{len(types)}] = sizeof(it);\n}}\n"
            )
    folder = tmp_path_factory.mktemp("tuples")
    path = folder / "tuples.cpp"
    path.write_text('#include "device.h"\n' + emulator._hosted(emulator._inlined(text, set())), encoding="utf-8")
    built = path.with_suffix(".so")
    command = [emulator.COMPILER, *emulator._FLAGS, f"-I{emulator.HERE}", str(path), "-shared", "-o", str(built)]
    said = subprocess.run(command, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr[:4000]
    return ctypes.CDLL(str(built))


@pytest.mark.parametrize("name", MEMBERS)
def test_members_lie_as_in_a_struct(library, name):
    found = []
    for kind in (name, f"{name}_tuple"):
        offsets = (ctypes.c_long * (len(MEMBERS[name]) + 1))()
        getattr(library, f"{kind}_offsets")(offsets)
        found.append(list(offsets))
    struct, tuple_ = found
    assert tuple_ == struct
    assert struct[-1] > 0 and sorted(struct[:-1]) == struct[:-1]
