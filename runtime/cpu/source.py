"""Programs as C++ for the CPU.

A program is the struct that `skuda generate` writes for CUDA. Here it gets other schedules: the headers of this
folder in place of those of `runtime/cuda`, of which the arithmetic stays. What that asks of CUDA is in `device.h`:
functions by their names, and instructions of PTX as calls.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from skuda.launch import compiler
from skuda.schedules.table import ON_CPU, SCHEDULES

PIECE = 1 << 14  # elements of a line that are one unit of an elementwise program's work; even: pairs stay together
FEW_ROWS = 8  # of which threads take parts, where they are long
PART_SEGMENTS = 4  # of a part; a power of two

_FOLDER = Path(__file__).parent
_INCLUDE = re.compile(r'#include "(\w+\.(?:cuh|h))"')
# asm("name %0, %1, ...;" : "=f"(result) : "f"(argument), ...);
_INSTRUCTION = re.compile(r'asm\("([a-z][\w.:]*) %0[^"]*"\s*:\s*"=\w"\((.*?)\)\s*:\s*(.*?)\);', re.DOTALL)
_ARGUMENT = re.compile(r'"\w"\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)')
_FAR = r"far_(?:sine|cosine|tangent)\("
# Patterns of the text and what stands in their place, in this order, so that loops over elements become vectors.
REWRITES = tuple((re.compile(pattern), text) for pattern, text in (
    # What few elements ask for is asked by `unusual` of device.h. The way of the others takes any number, and reads no
    # table by it. And the definitions of what is asked for.
    (rf"if \((.+)\) return ({_FAR}|logarithm_end\()", r"if (unusual(\1)) return \2"),
    (rf"return ([^;?]+?) \? ([^;]+?) : ({_FAR}[^;]*\));", r"if (unusual(!(\1))) return \3; return \2;"),
    (rf"__device__ __noinline__ (\w+ {_FAR})", r"__device__ __attribute__((noinline, const)) \1"),
    # Rows of a table of three by steps of 64 bits, element by element: else compilers gather nothing from it.
    (r"  i32 power, step;\n", "  i32 power;\n  i64 step;\n"),
    (r"i32\(above >> 46\) & 63\}", "above >> 46 & 63}"),
    # An angle's quadrant chooses between numbers of 64 bits, so it has as many.
    (r"const i32 (quadrant = )(angle\.quadrant)( \+ quarters;\n  const DoubleDouble)", r"const i64 \1i64(\2)\3"),
    # Both of two conditions are asked: else the second one is behind a branch.
    (r"(!raised) && (least > [\d.]+ \* most)", r"\1 & (\2)"),
    (r"(least \* by < 0x1p-450) && (!low);", r"(\1) & \2;"),
    (r"(is_inf\(most\)) && (least < infinity\(\)) \?", r"\1 & (\2) ?"),
    (r"const f64\* const by = (logarithm_table\[\w+\.step\]);", r"const f64 by[3] = {\1[0], \1[1], \1[2]};"),
    # What is so near 0 that it is its own value is chosen at the end, where the way of the others takes any number.
    (r"  if \((fabs\(x\) < 0x1p-54)\) return x;\n((?:  const .+;\n)*)  return (.+);\n", r"\2  return \1 ? x : \3;\n"),
    # A hypotenuse that needs no root (infinite, NaN, or the longer side alone) is chosen at the end too.
    (r"  if \((is_inf\(x\)) \|\| (is_inf\(y\))\) return infinity\(\);\n(  const f64 most.+\n)"
     r"  if \((.+)\) return (x != x) \|\| (y != y) \? not_a_number\(\) : most;\n((?:  const .+;\n)+)  return (.+);\n",
     r"\3\7  const f64 only = ::chosen((\5) | (\6), f64(not_a_number()), most);\n"
     r"  return ::chosen(\1 | \2, f64(infinity()), ::chosen(\4, only, \8));\n"),
    # The better of two numbers of f64 by bits, for of several in a row compilers make branches.
    (r"return (\(a [<>] b\) \| .+ \| is_nan\(a\)) \? a : b;", r"return ::chosen(\1, a, b);"),
))  # fmt: skip
# What a program of f64 calls, and an option that it is compiled with: the logarithm reads a table, and compilers that
# compute early what several ways have in common then leave it to one way, so that no loop becomes vectors.
OPTIONS_OF_F64 = {"logarithm_one_plus_exponential": "-fno-tree-pre"}
_PROGRAM = re.compile(r"<(\w+_program)<(.*)>>$")
_UNROLLED = re.compile(r"#pragma unroll$", re.MULTILINE)  # g++ has a name of its own for it
# What a source includes for the schedules of a GPU.
_OF_SCHEDULES = {row.header for row in SCHEDULES.values()} | {"elementwise.cuh", "scan.cuh"}


def text_of(source: str, entry: str) -> str:
    """C++ with one function, `kernel(arguments, begin, end)`: some units of an entry's work.

    Args:
        source: of a program, as the catalog has it.
        entry: a schedule of the CPU with its program, as in `cpu_rows<softmax_program<f32>>`.
    """
    header = ON_CPU[entry.partition("<")[0]].header
    numbers = f"PIECE = {PIECE}, FEW_ROWS = {FEW_ROWS}, PART_SEGMENTS = {PART_SEGMENTS}"
    head = f'#include "device.h"\nconstexpr long long {numbers};\n#include "{header}"\n'
    whole = _inlined(head + source, _OF_SCHEDULES - {"strided.cuh"})
    whole = for_vectors(called(whole)).replace("-fused(", "negative_fused(")
    whole = _UNROLLED.sub("#pragma GCC unroll 16", whole)
    return (
        f"{whole}\n"
        f'extern "C" void kernel(const void* arguments, long long begin, long long end) {{\n'
        f"  {entry}(arguments, begin, end);\n}}\n"
    )


def options_of(source: str, entry: str) -> tuple[str, ...]:
    """What an entry is compiled with beside `library.OPTIONS`. Args: as `text_of`."""
    name, words = _PROGRAM.search(entry).groups()
    if "f64" not in words.split(", "):
        return ()
    program = source.partition(f"struct {name} ")[2].partition("\n};\n")[0]
    return tuple(option for function, option in OPTIONS_OF_F64.items() if function in program)


def called(text: str) -> str:
    """A text in which instructions of PTX that give one value are calls of functions, with `_` for each dot."""

    def call(match: re.Match) -> str:
        arguments = ", ".join(_ARGUMENT.findall(match[3]))
        return f"{match[2]} = {re.sub('[.:]', '_', match[1])}({arguments});"

    return _INSTRUCTION.sub(call, text)


def for_vectors(text: str) -> str:
    """A text with all REWRITES."""
    for pattern, instead in REWRITES:
        text = pattern.sub(instead, text)
    return text


def _inlined(text: str, seen: set[str]) -> str:
    """A text with the headers that it includes, each once."""

    def header(match: re.Match) -> str:
        if match[1] in seen:
            return ""
        seen.add(match[1])
        return _inlined(_header(match[1]), seen)

    return _INCLUDE.sub(header, text.replace("#pragma once", ""))


@cache
def _header(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8") if name.endswith(".h") else compiler.headers()[name]
