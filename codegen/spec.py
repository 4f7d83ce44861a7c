"""Reads ops.yaml into programs: what an operation is (a skuda.model.operation.Operation) and its typed formulas.

All mistakes of a file are reported together, each at its place; a spec with a mistake yields nothing.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path

from skuda.codegen import forms
from skuda.codegen.diagnostics import Diagnostics
from skuda.codegen.intrinsics import CONVERSIONS, INTRINSICS
from skuda.codegen.library import functions_text
from skuda.codegen.names import check_identifier, check_name
from skuda.codegen.nodes import SMALLEST, Function
from skuda.codegen.program import Row, Spec
from skuda.codegen.reductions import COUNT, REDUCTION_NAMES, SCAN_NAMES
from skuda.codegen.row_reader import RowReader
from skuda.codegen.syntax import check_function
from skuda.codegen.tree_reader import TreeReader
from skuda.codegen.two_processes import in_halves, interleaved
from skuda.codegen.yaml_tree import Mapping, Text, read
from skuda.errors import SpecError
from skuda.model.operation import class_stem

_ROW_KEYS = ("kind", "doc", "types", "inputs", "attrs", "requires", "let", "outputs", "backward")
_ROW = re.compile(r"  \w+: *", re.ASCII)  # the line that a row begins with
_USUAL_BREAKS = re.compile(r"[^\r\f\v\x1c-\x1e\x85\u2028\u2029]*")  # a text whose lines end by \n alone
_FUNCTION = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*\((?P<parameters>[^()]*)\)")


def load(path: str | Path) -> Spec:
    """Reads and checks a spec file.

    Raises:
        SpecError: the file cannot be read, or has mistakes; the message lists all of them.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: expected UTF-8 text, byte {error.start} is not") from error
    return loads(text, path.name)


def loads(text: str, file_name: str = "ops.yaml") -> Spec:
    """Checks a spec from its text; `load` says what is raised."""
    rows, functions = _read_in_halves(text, file_name) or _read(text, file_name)
    lines = text.splitlines()
    ends = [*(row.line - 1 for row in rows[1:]), len(lines)]
    sourced = tuple(
        replace(row, source="\n".join(_own(lines[row.line - 1 : end]))) for row, end in zip(rows, ends, strict=True)
    )
    others = library()
    both = [function for name, function in functions.items() if name in others and not function.library]
    shadowed = tuple(function for function in both if not _same(function, others[function.name]))
    return Spec(file_name, tuple(forms.linked(sourced)), functions, shadowed)


def _read(text: str, file_name: str) -> tuple[list[Row], dict[str, Function]]:
    """The rows of a file, and the functions that they may call."""
    diagnostics = Diagnostics(file_name, text)
    tree = read(text, diagnostics)
    reader = _FileReader(diagnostics)
    rows = reader.file(tree) if tree is not None else []
    diagnostics.raise_if_any()
    return rows, reader.known_functions


def _read_in_halves(text: str, file_name: str) -> tuple[list[Row], dict[str, Function]] | None:
    """The same by two processes, each of which sees empty lines in place of every second row. None where that does not
    pay, where the text is not laid out as `ops.yaml` is, and where there is a mistake: then one process tells all."""
    lines = text.split("\n")
    if not _USUAL_BREAKS.fullmatch(text) or "ops:" not in lines:
        return None
    begin = lines.index("ops:") + 1
    starts = [at for at, line in enumerate(lines) if at >= begin and _ROW.fullmatch(line)]
    if not starts or any(line[:1] not in ("", " ", "#") for line in lines[begin:]):
        return None
    rows = [range(*each) for each in zip(starts, [*starts[1:], len(lines)])]

    def half(part: slice) -> tuple[list[Row], dict[str, Function]] | None:
        kept = {*range(starts[0]), *chain.from_iterable(rows[part])}
        try:
            found = _read("\n".join([line if at in kept else "" for at, line in enumerate(lines)]), file_name)
        except SpecError:
            return None
        return found if len(found[0]) == len(rows[part]) else None

    halves = in_halves(len(rows), half)
    if halves is None or None in halves:
        return None
    (first, functions), (second, _) = halves
    found = interleaved(first, second)
    return (found, functions) if len({class_stem(row.name) for row in found}) == len(rows) else None


def loads_row(text: str, name: str, called: str) -> Spec:
    """Checks one operation from the text of its row, and functions of its own under `functions:`.

    Args:
        text: the keys of a row; or one key, the operation's name, with these under it.
        name: the operation's name if the text has none.
        called: what messages call the text.

    Raises:
        SpecError: the text has mistakes; the message lists all of them.
    """
    diagnostics = Diagnostics(called, text, "defined")
    tree = read(text, diagnostics)
    reader = _FileReader(diagnostics)
    row = reader.only_row(tree, name) if tree is not None else None
    diagnostics.raise_if_any()
    return Spec(called, tuple(forms.linked((replace(row, source=text),))), reader.known_functions)


def _own(lines: list[str]) -> list[str]:
    """The lines of a row, without what stands between it and the next one: its files do not change with that."""
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines = lines[:-1]
    return lines


@cache
def library() -> dict[str, Function]:
    """The functions of the catalog; none where they have a mistake, which is told to those who edit the catalog."""
    diagnostics = Diagnostics("ops.yaml", functions_text())
    tree = read(functions_text(), diagnostics)
    sections = {key.value: value for key, value in tree.entries} if isinstance(tree, Mapping) else {}
    found = _FileReader(diagnostics).functions(sections.get("functions"), {})
    if len(diagnostics):
        return {}
    functions: dict[str, Function] = {}
    functions |= {name: replace(function, library=functions) for name, function in found.items()}
    return functions


def _same(one: Function, other: Function) -> bool:
    """Whether two functions are spelled alike."""
    bodies = [function.body.value.split() for function in (one, other)]
    return one.parameters == other.parameters and bodies[0] == bodies[1]


class _FileReader(TreeReader):
    """Walks the YAML tree of one file."""

    def __init__(self, diagnostics: Diagnostics):
        super().__init__(diagnostics)
        self.known_functions: dict[str, Function] = {}
        self.broken_functions: set[str] = set()  # their mistakes have been reported, calls of them are none

    def file(self, tree: Mapping) -> list[Row]:
        sections = self.keys(tree, ("functions", "ops"), "the file") or {}
        self.known_functions = self.functions(sections.get("functions"), library())
        if "ops" not in sections:
            self.error(tree.place, "the file has no `ops:`", "write `ops:` and the operations under it")
            return []
        operations = self.mapping(sections["ops"], "`ops:`")
        rows = []
        classes: dict[str, str] = {}
        for name, body in operations:
            named = check_name(name, self.diagnostics)
            twin = classes.setdefault(class_stem(name.value), name.value)
            if named and twin != name.value:
                message = f"`{name.value}` and `{twin}` give their plans the same name"
                self.error(name.place, message, "rename one")
            row = self.row(name, body)
            if row is not None:
                rows.append(row)
        return rows

    def row(self, name: Text, body) -> Row | None:
        """One operation; None where it has a mistake, which has been reported."""
        fields = self.keys(body, _ROW_KEYS, f"operation `{name.value}`")
        if fields is None:
            return None
        return RowReader(self.diagnostics, name, fields, self.known_functions, self.broken_functions).row()

    def only_row(self, tree: Mapping, name: str) -> Row | None:
        """The operation of a text that has no other; its name is `name`, or the text's one key."""
        own = [(key, value) for key, value in tree.entries if key.value != "functions"]
        functions = next((value for key, value in tree.entries if key.value == "functions"), None)
        self.known_functions = self.functions(functions, library())
        if len(own) == 1 and own[0][0].value not in _ROW_KEYS and isinstance(own[0][1], Mapping):
            (named, body), *_ = own
            return self.row(named, body) if check_name(named, self.diagnostics) else None
        return self.row(Text(name, tree.place), Mapping(tuple(own), tree.place))

    def functions(self, node, library: dict[str, Function]) -> dict[str, Function]:
        """The functions of a spec, and those of the catalog whose names it gives to none of its own."""
        functions: dict[str, Function] = {}
        for head, body in self.mapping(node, "`functions:`") if node is not None else ():
            match = _FUNCTION.fullmatch(head.value.strip())
            self.broken_functions.update(re.findall(r"^\w+", head.value.strip()))
            if match is None:
                message = "a function is spelled `name(parameter, ...): formula`"
                self.error(head.place, message, "such as `square(x): x * x`")
                continue
            listed = match["parameters"].strip()
            parts = [part.strip() for part in listed.split(",")] if listed else []
            names = [Text(match["name"], head.at(match.start("name"), len(match["name"])))]
            names += [Text(part, head.at(max(head.value.find(part), 0), max(len(part), 1))) for part in parts]
            what = ["the function's name"] + ["the parameter's name"] * len(parts)
            pairs = zip(names, what, strict=True)
            if not all([check_identifier(*pair, self.diagnostics) for pair in pairs]):
                continue
            if len(set(parts)) != len(parts):
                self.error(head.place, f"`{match['name']}` has a parameter twice")
                continue
            reductions = (*REDUCTION_NAMES, *SCAN_NAMES, COUNT, SMALLEST)
            intrinsics = (*INTRINSICS, *CONVERSIONS)
            if match["name"] in intrinsics or match["name"] in reductions or match["name"] in functions:
                other = "an intrinsic" if match["name"] in intrinsics else "another function"
                other = "a reduction" if match["name"] in REDUCTION_NAMES else other
                other = "a scan" if match["name"] in SCAN_NAMES else other
                other = "a word of the language" if match["name"] in (COUNT, SMALLEST) else other
                self.error(
                    names[0].place, f"`{match['name']}` is already the name of {other}", "choose another name"
                )
                continue
            text = self.text(body, f"function `{match['name']}`", "write its formula, such as `x * x`")
            if text is not None:
                functions[match["name"]] = Function(match["name"], tuple(parts), text)
        self.broken_functions -= functions.keys()
        others = {name: function for name, function in library.items() if name not in self.broken_functions}
        for function in functions.values():
            check_function(function, others | functions, self.broken_functions, self.diagnostics)
        return others | functions
