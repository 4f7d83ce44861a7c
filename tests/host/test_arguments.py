"""The arguments of kernels as a C++ compiler lays them out, and as the host packs them.

skuda.schedules.abi declares them. Members are compared by name, so one that is renamed or moved on one side alone
fails. Operands are compared in the order of arguments, and by the names that the structs of programs have for them.
"""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace

import pytest

from host import emulator
from skuda.arrays.views import CPU, View
from skuda.codegen.program import loaded
from skuda.launch import compiler, registry
from skuda.launch.prepared import Launch
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.schedules import abi, table
from skuda.schedules.geometry import Geometry
from skuda.schedules.slab_variants import SlabVariant
from skuda.schedules.variant import STAGES

WORD = 8  # bytes of a slot
SOURCES = 25  # in one translation unit
PRELUDE = """
template <typename A> const auto& head_of(const A& args) {
  if constexpr (requires { args.head; }) return args.head;
  else return args.rows;
}
template <typename A> const auto& items_of(const A& args) {
  if constexpr (requires { args.items; }) return args.items;
  else return args.operands;
}
template <typename V> const auto& pointer_of(const V& item) {
  if constexpr (requires { item.data; }) return item.data;
  else return item.array;
}
template <typename A> const auto& workspace_of(const A& args) {
  if constexpr (requires { args.accumulators; }) return args.accumulators;
  else return args.table;
}
template <typename A, typename B> constexpr bool same_type = false;
template <typename A> constexpr bool same_type<A, A> = true;
template <typename S, typename V> constexpr bool points_to = same_type<V, S* const&> || same_type<V, const S* const&>;
template <typename V, typename T> constexpr bool is = same_type<V, const T&>;
template <typename A, typename M> long at(const A& args, const M& member) { return (char*)&member - (char*)&args; }
"""


def structs() -> list[abi.Struct]:
    """Every struct that the host fills."""
    found: dict[str, abi.Struct] = {}

    def add(each: abi.Struct) -> None:
        for member in each.members:
            if member.struct:
                add(member.struct)
        found[each.name] = each

    for each in vars(abi).values():
        if isinstance(each, abi.Struct):
            add(each)
    return [*found.values()]


STRUCTS = structs()


class Compiled:
    """Functions that report numbers, compiled by the host.

    Args:
        text: CUDA that they need.
        reports: of each function, by its name: statements that its own needs, and expressions by what they tell.
    """

    def __init__(self, text: str, reports: dict[str, tuple[str, dict[str, str]]], folder, name: str):
        self._keys = {function: [*values] for function, (_, values) in reports.items()}
        text = '#include "device.h"\n#include <cstddef>\n' + emulator._hosted(text) + PRELUDE
        for function, (body, values) in reports.items():
            text += f'extern "C" void {function}(long* found) {{\n{body}'
            text += "".join(f"  *found++ = {value};\n" for value in values.values()) + "}\n"
        path = folder / f"{name}.cpp"
        path.write_text(text, encoding="utf-8")
        built = path.with_suffix(".so")
        flags = [each for each in emulator._FLAGS if each != "-O1"]
        command = [emulator.COMPILER, *flags, "-O0", f"-I{emulator.HERE}", str(path), "-shared", "-o", str(built)]
        said = subprocess.run(command, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr[:4000]
        self._library = ctypes.CDLL(str(built))

    def __call__(self, function: str) -> dict[str, int]:
        keys = self._keys[function]
        found = (ctypes.c_long * len(keys))()
        getattr(self._library, function)(found)
        return dict(zip(keys, found, strict=True))


@pytest.fixture(scope="module")
def sizes(tmp_path_factory):
    """What the compiler says of structs without a program."""
    headers = {table.SCHEDULES[kernel].header for kernel in table.SCHEDULES}
    text = emulator._inlined("".join(f'#include "{name}"\n' for name in sorted(headers)), set())
    reports = {}
    for each in STRUCTS:
        values = {member.name: f"offsetof({each.name}, {member.name})" for member in each.members}
        values |= {f"size of {m.name}": f"sizeof({each.name}::{m.name})" for m in each.members}
        values |= {
            f"{m.name} is {m.struct.name}": f"same_type<decltype({each.name}::{m.name}), {m.struct.name}"
            f"{f'[{m.count}]' if m.count > 1 else ''}>"
            for m in each.members
            if m.struct
        }
        reports[each.name + "_offsets"] = "", values | {"sizeof": f"sizeof({each.name})"}
    scalar = {name: f"offsetof(Scalar<f32>, {name})" for name in abi.SCALAR}
    reports["Scalar_offsets"] = "", scalar | {"sizeof": "sizeof(Scalar<f32>)"}
    reports["constants"] = "", {"AXES": "AXES", "INNER": "INNER"}
    return Compiled(text, reports, tmp_path_factory.mktemp("structs"), "structs")


@pytest.mark.parametrize("each", STRUCTS, ids=lambda each: each.name)
def test_structs_lie_as_they_are_declared(sizes, each):
    expected, slots = {}, 0
    for member in each.members:
        expected[member.name] = slots * WORD
        expected[f"size of {member.name}"] = member.slots * WORD
        if member.struct:
            expected[f"{member.name} is {member.struct.name}"] = 1
        slots += member.slots
    assert sizes(each.name + "_offsets") == expected | {"sizeof": slots * WORD}


def test_scalars_and_numbers_of_axes_are_as_declared(sizes):
    expected = {name: position * WORD for position, name in enumerate(abi.SCALAR)}
    assert sizes("Scalar_offsets") == expected | {"sizeof": len(abi.SCALAR) * WORD}
    assert sizes("constants") == {"AXES": abi.AXES, "INNER": abi.INNER}


class Kernel(SimpleNamespace):
    """A program and an argument that kernels take it with: `entry` of the catalog, `argument` in C++, `program` at one
    choice of types."""

    @property
    def function(self) -> str:
        return f"{self.entry.operation.function}_{self.argument}"

    @property
    def declared(self) -> abi.Arguments:
        return table.schedule_of(self.entry.variant).argument


@cache
def kernels() -> dict[str, Kernel]:
    """Every program with every argument that some kernel takes it with, at the types that tell operands apart best."""
    text = "".join(compiler.headers().values())
    arguments = dict(re.findall(r"(\w+)\(const __grid_constant__ (\w+)<", text))
    found: dict[str, Kernel] = {}
    several: dict[str, int] = {}
    for sku in registry.skus():
        entry = registry.entry_of(sku)
        apart = entry.variant is STAGES or isinstance(entry.variant, SlabVariant)
        if sku.backend is not BackendKind.CUDA or apart:  # one of slabs takes that of rows, and the workspace
            continue
        argument = arguments[table.schedule_of(entry.variant).kernel]
        kernel = Kernel(entry=entry, argument=argument)
        types = len(set(entry.types.values()))
        if types > several.get(kernel.function, 0):
            several[kernel.function], found[kernel.function] = types, kernel
    for kernel in found.values():
        name = table.entry(kernel.entry.operation, kernel.entry.types, kernel.entry.variant)
        kernel.program = re.search(r"\w+_program<[^<>]*>", name)[0]
    return found


def operands(kernel: Kernel) -> Iterator[tuple[int, str, tuple[str, ...] | None]]:
    """The items of an argument in order: number, name, and the members that follow the pointer of an operand (None of
    an attribute)."""
    order = abi.order(kernel.entry.operation)
    items = (*order.elements, *order.shared, *order.scalars, *order.attributes, *order.outputs)
    for number, item in enumerate(items):
        if isinstance(item, str):
            yield number, item, None
        elif item in order.scalars:
            yield number, item.name, tuple(abi.SCALAR)
        else:
            yield number, item.name, tuple(m.name for m in kernel.declared.operand(kernel.entry.operation, item))


def as_compiled(kernel: Kernel) -> tuple[str, dict[str, str]]:
    """Statements and expressions that report where everything is: offsets by name, and facts by a sentence."""
    operation, types = kernel.entry.operation.in_kernels, kernel.entry.types
    order = abi.order(operation)
    words = {each.name: operation.word(each, types) for each in operation.operands}
    for each in operation.operands:  # u32, and a bool that is read, are structs there
        if loaded(operation, each.element) != each.element:
            words[each.name] = f"element_t<{words[each.name]}>"
    words |= {each.name: "Place" for each in operation.positions}
    values = {"sizeof": "sizeof(args)", "head": "at(args, head_of(args))"}
    values["head is declared"] = f"is<decltype(head_of(args)), {kernel.declared.head.name}>"
    for number, name, members in operands(kernel):
        item = f"get<{number}>(items_of(args))"
        if members is None:
            values[name] = f"at(args, {item})"
            continue
        if name not in {operand.name for operand in order.scalars}:
            values[name] = f"at(args, pointer_of({item}))"
        values |= {f"{name}.{member}": f"at(args, {item}.{member})" for member in members}
        values[f"{name} is of its type"] = f"points_to<storage_t<{words[name]}>, decltype(pointer_of({item}))>"
        if name in {operand.name for operand in operation.inputs}:
            values[f"{name} has its element"] = (
                f"same_type<typename type_at<typename P::Inputs, {number}>::element, {words[name]}>"
            )
    values["items of the argument are all"] = f"items_of(args).size == {len([*operands(kernel)])}"
    if kernel.declared.workspace:
        values["workspace"] = "at(args, workspace_of(args))"
    # What programs call the items, in structs that kernels fill in the order of arguments.
    reduces = kernel.declared in (abi.ROW_ARGUMENTS, abi.FEW_ROWS_ARGUMENTS, abi.SPLIT_ARGUMENTS)
    columns = [each for each in order.shared if reduces and operation.runs_along(each)]
    given = [each for each in (*order.shared, *order.scalars) if each not in columns]
    for each in (*order.elements, *columns):
        values[f"Element::{each.name}"] = f"offsetof(P::Element, {each.name})"
    for name in (*(each.name for each in given), *order.attributes):
        values[f"Shared::{name}"] = f"offsetof(P::Shared, {name})"
    body = (
        f"  using P = {kernel.program};\n  alignas(16) static char memory[sizeof({kernel.argument}<P>)];\n"
        f"  const auto& args = *reinterpret_cast<const {kernel.argument}<P>*>(memory);\n"
    )
    return body, values


class Arguments:
    """Of each kernel's function what the compiler says, which is asked of some sources at once, the first time."""

    def __init__(self, folder):
        self.folder = folder
        self.by_source: dict[str, list[Kernel]] = {}
        for kernel in kernels().values():
            self.by_source.setdefault(kernel.entry.operation.source, []).append(kernel)
        self.found: dict[str, dict] = {}

    def __getitem__(self, function: str) -> dict:
        if function not in self.found:
            sources = [*self.by_source]
            at = sources.index(kernels()[function].entry.operation.source) // SOURCES * SOURCES
            self._compile(sources[at : at + SOURCES], f"sources_{at}")
        return self.found[function]

    def _compile(self, sources: list[str], name: str) -> None:
        seen: set[str] = set()
        text, reports = "", {}
        for source in sources:
            text += emulator._inlined(self.by_source[source][0].entry.catalog.source(source), seen)
            reports |= {kernel.function: as_compiled(kernel) for kernel in self.by_source[source]}
        library = Compiled(text, reports, self.folder, name)
        self.found |= {function: library(function) for function in reports}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return Arguments(tmp_path_factory.mktemp("arguments"))


def as_packed(kernel: Kernel) -> dict[str, int]:
    """The same of what a launch packs: every slot holds a number of its own, and is sought by it."""
    operation, types, declared = kernel.entry.operation.in_kernels, kernel.entry.types, kernel.declared
    order = abi.order(operation)
    numbers: dict[str, int] = {}

    def number(name: str) -> int:
        return numbers.setdefault(name, 1001 + len(numbers))

    def follow(operand) -> tuple[int, ...]:
        members = declared.operand(operation, operand)
        return tuple(
            number(f"{operand.name}.{member.name}" + (f"[{slot}]" if slot else ""))
            for member in members
            for slot in range(member.slots)
        )

    head = tuple(number("head" + (f"[{slot}]" if slot else "")) for slot in range(declared.head.slots))
    strides = {each.name: follow(each) for each in operation.operands if each not in order.scalars}
    values = {name: number(name) for name in order.attributes}
    plan = SimpleNamespace(
        operation=kernel.entry.operation, types=types, values=values, package=kernel.entry.catalog.package
    )
    launch = Launch(plan, Geometry(kernel.entry.variant, 1, head, strides))
    views = [
        number(f"{each.name}.real")
        if each in order.scalars
        else View(number(each.name), (), (), DTYPES["u8"].storage, CPU, False, False, None)
        for each in plan.operation.operands
    ]
    memory, _ = launch.slots.pack(launch.filled(views, number("workspace")))
    words = [*memory][:-1]
    found = {name: words.index(each) * WORD for name, each in numbers.items() if each in words}
    for each in order.scalars:
        real = struct.unpack("=Q", struct.pack("=d", numbers[f"{each.name}.real"]))[0]
        first = launch.slots.words[launch.positions[plan.operation.operands.index(each)]]
        found[f"{each.name}.array"] = first * WORD
        found[f"{each.name}.integer"] = words.index(numbers[f"{each.name}.real"]) * WORD
        found[f"{each.name}.real"] = words.index(real) * WORD
    for each in operation.positions:  # whose address, 0, stands before the first of its members
        members = declared.operand(operation, each)
        found[each.name] = found[f"{each.name}.{members[0].name}"] - WORD
        assert words[found[each.name] // WORD] == 0
    return {name: at for name, at in found.items() if "[" not in name} | {"sizeof": len(words) * WORD}


def test_every_program_has_arguments():
    """As many as there are operations that have kernels of their own."""
    operations = registry.catalogs()[0].operations  # other tests may have defined some of their own
    held = {id(each) for each in operations if each.analysis.stripes or each.analysis.pieces}
    every = held | {id(each) for each in operations if not each.analysis.stages}
    assert {id(kernel.entry.operation) for kernel in kernels().values()} == every


@pytest.mark.turns(60)
@pytest.mark.parametrize("function", kernels())
def test_arguments_lie_as_they_are_packed(compiled, function):
    found = compiled[function]
    facts = {name: holds for name, holds in found.items() if " " in name}
    assert [name for name, holds in facts.items() if not holds] == []
    for each in ("Element::", "Shared::"):
        members = [at for name, at in found.items() if name.startswith(each)]
        assert members == sorted(set(members))
    offsets = {name: at for name, at in found.items() if name not in facts and "::" not in name}
    assert offsets == as_packed(kernels()[function])
