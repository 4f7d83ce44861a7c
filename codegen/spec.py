"""Reads ops.yaml into programs: what an operation is (a skuda.operation.Operation) and its typed formulas.

All mistakes of a file are reported together, each at its place; a spec with a mistake yields nothing.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping as Map
from dataclasses import dataclass, replace
from keyword import iskeyword
from math import isfinite
from pathlib import Path

import skuda
from skuda.codegen import expr
from skuda.codegen.diagnostics import Diagnostics, Place, closest
from skuda.codegen.expr import BOOL, INT, REAL, Function, Node, Scope, promote
from skuda.codegen.intrinsics import INTRINSICS
from skuda.codegen.yaml_tree import Mapping, Sequence, Text, read
from skuda.dtypes import DTYPES
from skuda.errors import SpecError
from skuda.operation import COMPUTE, SCALE, Attribute, Dim, Operand, Operation, Requirement
from skuda.sku import Direction

DEFAULT_FLOATS = ("f32", "f64", "f16", "bf16")
_ROW_KEYS = ("kind", "doc", "types", "inputs", "attrs", "requires", "outputs", "backward")
_OPERAND = re.compile(r"\s*(?P<type>[A-Za-z][A-Za-z0-9]*)\s*\[(?P<dims>[^\]]*)\]\s*")
_DIM = re.compile(r"\*?[a-z][a-z0-9_]*(?:/[a-z][a-z0-9_]*)?")
_ATTRIBUTE = re.compile(r"\s*(?P<type>[A-Za-z][A-Za-z0-9]*)(?:\s+of\s+(?P<of>[a-z0-9_]+))?\s*(?:=\s*(?P<default>.+?)\s*)?")
_FUNCTION = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*\((?P<parameters>[^()]*)\)")
# Names of functions must not hide what the generated plan modules import, nor modules of skuda itself.
_TAKEN = frozenset({"call", "dataclass", "reference"}) | skuda.MODULES
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_NOT_IN_DOC = re.compile(r"""[\n\t"\\`$]|/\*|\*/|\{[{%#]|//%""")
_KINDS = {REAL: "reals", INT: "integers", BOOL: "booleans"}


@dataclass(frozen=True)
class Program:
    """One direction of a row, checked: the operation and a formula for each output."""

    operation: Operation
    formulas: Map[str, Node]
    formula_texts: Map[str, str]
    requirements: tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class Row:
    """One operation of the spec."""

    name: str
    kind: str
    doc: str
    forward: Program
    backward: Program | None
    line: int
    source: str = ""

    @property
    def programs(self) -> tuple[Program, ...]:
        """Forward, and backward where there is one."""
        return (self.forward,) if self.backward is None else (self.forward, self.backward)


@dataclass(frozen=True)
class Spec:
    """A whole spec file."""

    file_name: str
    rows: tuple[Row, ...]
    functions: Map[str, Function]


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
    diagnostics = Diagnostics(file_name, text)
    tree = read(text, diagnostics)
    reader = _Reader(diagnostics)
    rows = reader.file(tree) if tree is not None else []
    diagnostics.raise_if_any()
    lines = text.splitlines()
    ends = [row.line - 1 for row in rows[1:]] + [len(lines)]
    sourced = (replace(row, source="\n".join(lines[row.line - 1 : end])) for row, end in zip(rows, ends, strict=True))
    return Spec(file_name, tuple(sourced), reader.known_functions)


def check_name(name: Text, diagnostics: Diagnostics) -> bool:
    """Whether a text can be the name of an operation; reports why not."""
    if not expr.check_spelling(name, "the operation's name", diagnostics):
        return False
    if keyword.iskeyword(name.value) or name.value in _TAKEN:
        diagnostics.error(name.place, f"the operation's name `{name.value}` is a reserved word", "choose another name")
        return False
    tail = name.value.rsplit("_", 1)[-1]
    if tail in DTYPES or tail in ("backward", "scale"):
        diagnostics.error(
            name.place, f"an operation's name cannot end with `_{tail}`", "kernel symbols add that part"
        )
        return False
    return True


class _Reader:
    """Walks the YAML tree of one file."""

    def __init__(self, diagnostics: Diagnostics):
        self.diagnostics = diagnostics
        self.error = diagnostics.error
        self.known_functions: dict[str, Function] = {}
        self.broken_functions: set[str] = set()  # their mistakes have been reported, calls of them are none

    def file(self, tree: Mapping) -> list[Row]:
        sections = self.keys(tree, ("functions", "ops"), "the file") or {}
        functions = self.known_functions = self.functions(sections.get("functions"))
        if "ops" not in sections:
            self.error(tree.place, "the file has no `ops:`", "write `ops:` and the operations under it")
            return []
        operations = self.mapping(sections["ops"], "`ops:`")
        rows = []
        classes: dict[str, str] = {}
        for name, body in operations:
            named = check_name(name, self.diagnostics)
            twin = classes.setdefault("".join(map(str.capitalize, name.value.split("_"))), name.value)
            if named and twin != name.value:
                message = f"`{name.value}` and `{twin}` give their plans the same name"
                self.error(name.place, message, "rename one")
            fields = self.keys(body, _ROW_KEYS, f"operation `{name.value}`")
            if fields is not None:
                row = _RowReader(self, name, body, fields, functions).row()
                if row is not None:
                    rows.append(row)
        return rows

    def functions(self, node) -> dict[str, Function]:
        functions: dict[str, Function] = {}
        for head, body in self.mapping(node, "`functions:`") if node is not None else ():
            match = _FUNCTION.fullmatch(head.value.strip())
            self.broken_functions.update(re.findall(r"^\w+", head.value.strip()))
            if match is None:
                self.error(head.place, "a function is spelled `name(parameter, ...): formula`")
                continue
            parts = [part.strip() for part in match["parameters"].split(",")] if match["parameters"].strip() else []
            names = [Text(match["name"], head.at(match.start("name"), len(match["name"])))]
            names += [Text(part, head.at(max(head.value.find(part), 0), max(len(part), 1))) for part in parts]
            what = ["the function's name"] + ["the parameter's name"] * len(parts)
            pairs = zip(names, what, strict=True)
            if not all([expr.check_identifier(*pair, self.diagnostics) for pair in pairs]):
                continue
            if len(set(parts)) != len(parts):
                self.error(head.place, f"`{match['name']}` has a parameter twice")
                continue
            if match["name"] in INTRINSICS or match["name"] in functions:
                other = "an intrinsic" if match["name"] in INTRINSICS else "another function"
                self.error(names[0].place, f"`{match['name']}` is already the name of {other}", "choose another name")
                continue
            text = self.text(body, f"function `{match['name']}`")
            if text is not None:
                functions[match["name"]] = Function(match["name"], tuple(parts), text)
        self.broken_functions -= functions.keys()
        for function in functions.values():
            expr.check_function(function, functions.keys() | self.broken_functions, self.diagnostics)
        return functions

    def keys(self, node, known: tuple[str, ...], what: str) -> dict | None:
        if not isinstance(node, Mapping):
            self.error(node.place, f"{what} needs `key: value` lines, this is {_shape(node)}", f"known keys: {', '.join(known)}")
            return None
        fields = {key.value: value for key, value in node.entries}
        for key, value in node.entries:
            if key.value not in known:
                near = closest(key.value, known)
                help = f"did you mean `{near}`?" if near else f"known keys: {', '.join(known)}"
                self.error(key.place, f"{what} has no key `{key.value}`", help)
                if near:
                    fields.setdefault(near, value)
        return fields

    def mapping(self, node, what: str) -> tuple[tuple[Text, object], ...]:
        if isinstance(node, Mapping):
            return node.entries
        if not (isinstance(node, Text) and node.value == ""):
            self.error(node.place, f"{what} needs `name: value` lines, this is {_shape(node)}")
        return ()

    def text(self, node, what: str) -> Text | None:
        if isinstance(node, Text) and node.value.strip():
            return node
        self.error(node.place, f"{what} needs a text, this is {_shape(node)}")
        return None


def _shape(node) -> str:
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    return "a text" if node.value else "empty"


class _RowReader:
    """Reads one operation."""

    def __init__(self, reader: _Reader, name: Text, body: Mapping, fields: dict, functions: dict[str, Function]):
        self.reader = reader
        self.diagnostics = reader.diagnostics
        self.error = reader.error
        self.name = name
        self.place = name.place
        self.body = body
        self.fields = fields
        self.functions = functions
        self.places: dict[str, Place] = {}  # of the names of inputs and attributes, faulty ones included
        self.texts: dict[str, Text] = {}  # what stands behind these names, and behind those of outputs

    def row(self) -> Row | None:
        before = len(self.diagnostics)
        kind = self.kind()
        doc = self.doc()
        self.types = self.read_types()
        inputs = self.operands()
        if not self.places:
            self.entries("outputs")
            return None
        self.dims = {dim.name: dim for operand in inputs for dim in operand.dims if dim.block is None}
        attributes = self.attributes(inputs)
        self.check_dims(inputs, attributes)
        outputs, formulas = self.outputs("outputs", inputs, attributes)
        requirements = self.requirements(attributes)
        if len(self.diagnostics) > before or len(outputs) < len(self.entries("outputs")):
            return None
        forward = self.program(Direction.FORWARD, kind, doc, inputs, outputs, attributes, requirements, formulas)
        used = set().union(*(node.names() for _, node in formulas.values())) | {n for r in requirements for n in r[1].names()}
        used |= {dim.block for operand in inputs for dim in operand.dims}
        used |= {a.name for a in attributes if a.type == "axis" and a.axis_of in map(_between, inputs)}
        for name, place in self.places.items():
            if name not in used:
                message = f"`{self.name.value}` never uses `{name}`"
                self.error(place, message, "remove it, or use it in an output")
        backward = None
        if "backward" in self.fields:
            backward = self.backward(kind, doc, forward)
        return None if len(self.diagnostics) > before else Row(self.name.value, kind, doc, forward, backward, self.place.line)

    def kind(self) -> str:
        if "kind" not in self.fields:
            return "custom." + self.name.value
        text = self.reader.text(self.fields["kind"], "`kind`")
        if text is None:
            return "custom"
        if not re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)?", text.value):
            self.error(text.place, "a kind is `category` or `category.name`", "such as `quantization.per_token`")
        return text.value

    def doc(self) -> str:
        if "doc" not in self.fields:
            return f"The operation {self.name.value}."
        text = self.reader.text(self.fields["doc"], "`doc`")
        if text is None:
            return ""
        bad = _NOT_IN_DOC.search(text.value.rstrip("\n"))
        if bad is not None:
            what = "a line break" if bad.group() == "\n" else f"`{bad.group()}`"
            self.error(
                text.at(bad.start(), len(bad.group())),
                f"a doc cannot have {what}",
                "it is one line, which goes into comments and docstrings as it is",
            )
        return text.value.rstrip("\n")

    def read_types(self) -> dict[str, tuple[str, ...]]:
        types: dict[str, tuple[str, ...]] = {}
        declared = self.reader.mapping(self.fields["types"], "`types:`") if "types" in self.fields else ()
        if "T" not in [letter.value for letter, _ in declared]:
            types["T"] = DEFAULT_FLOATS
        for letter, node in declared:
            if not re.fullmatch(r"[A-Z]", letter.value) or letter.value == COMPUTE:
                self.error(letter.place, f"a type letter is one capital other than C, this is `{letter.value}`")
                continue
            items = node.items if isinstance(node, Sequence) else (node,)
            words: list[str] = []
            for item in items:
                if not isinstance(item, Text):
                    self.error(item.place, "a type letter takes a list of element types")
                elif item.value in DTYPES or item.value in types:
                    words.append(item.value)
                else:
                    near = closest(item.value, [*DTYPES, *types])
                    help = f"did you mean `{near}`?" if near else f"element types: {' '.join(DTYPES)}"
                    if item.value in [other.value for other, _ in declared]:
                        help = f"declare `{item.value}` before `{letter.value}`"
                    self.error(item.place, f"`{item.value}` is not an element type", help)
            if not items:
                self.error(node.place, f"`{letter.value}` has no element type")
            types[letter.value] = tuple(dict.fromkeys(words))
            kinds = {DTYPES[word].kind for word in self.words(letter.value, types)}
            if len(kinds) > 1:
                self.error(node.place, f"`{letter.value}` mixes {' and '.join(sorted(kinds))} types")
        others = [letter for letter in types if letter != SCALE]
        if len(others) > 2:
            self.error(self.fields["types"].place, "a row has at most two type letters beside S (scale)")
        return types

    def entries(self, section: str) -> tuple[tuple[Text, object], ...]:
        """The lines of a section that the row must have."""
        before = len(self.diagnostics)
        node = self.fields.get(section)
        entries = self.reader.mapping(node, f"`{section}:`") if node is not None else ()
        if not entries and len(self.diagnostics) == before:
            self.error(self.place, f"`{self.name.value}` has no `{section}:`")
        return entries

    def operands(self) -> tuple[Operand, ...]:
        found = []
        for name, node in self.entries("inputs"):
            self.places[name.value] = name.place
            text = self.reader.text(node, f"`{name.value}`")
            if expr.check_identifier(name, "the input's name", self.diagnostics) and text is not None:
                self.texts[name.value] = text
                operand = self.operand(name, text, _OPERAND.fullmatch(text.value))
                if operand is not None:
                    found.append(operand)
        return tuple(found)

    def operand(self, name: Text, text: Text, match: re.Match | None) -> Operand | None:
        if match is None:
            self.error(text.place, f"`{name.value}` is spelled `Type[dimensions]`", "such as `T[*shape]`, `S[c]`, `i32[]`")
            return None
        element = match["type"]
        if element not in self.types and element not in DTYPES and element != COMPUTE:
            near = closest(element, [*self.types, *DTYPES])
            help = f"did you mean `{near}`?" if near else f"declare it under types: {{{element}: [...]}}"
            self.error(text.at(match.start("type"), len(element)), f"`{element}` is not a type of this row", help)
            return None
        dims = []
        start = match.start("dims")
        for part in match["dims"].split(",") if match["dims"].strip() else ():
            word = part.strip()
            if not _DIM.fullmatch(word):
                at = text.at(start + len(part) - len(part.lstrip()), max(len(word), 1))
                self.error(at, f"`{word}` is not a dimension", "use `d`, `*name` or `d/block`")
                return None
            if iskeyword(Dim.of(word).name):
                at = text.at(start + len(part) - len(part.lstrip()), len(word))
                self.error(at, f"the dimension `{word}` is a reserved word", "choose another name")
                return None
            dims.append(Dim.of(word))
            start += len(part) + 1
        if len({dim.name for dim in dims}) != len(dims):
            self.error(text.place, f"`{name.value}` has a dimension twice")
            return None
        if sum(dim.many for dim in dims) > 2:
            self.error(text.place, f"`{name.value}` has more than two `*` dimensions", "their split would be ambiguous")
            return None
        return Operand(name.value, element, tuple(dims))

    def attributes(self, inputs: tuple[Operand, ...]) -> tuple[Attribute, ...]:
        found: list[Attribute] = []
        for name, node in self.reader.mapping(self.fields["attrs"], "`attrs:`") if "attrs" in self.fields else ():
            taken = name.value in self.places
            self.places.setdefault(name.value, name.place)
            text = self.reader.text(node, f"`{name.value}`")
            if not expr.check_identifier(name, "the attribute's name", self.diagnostics) or text is None:
                continue
            match = _ATTRIBUTE.fullmatch(text.value)
            if taken:
                self.error(name.place, f"`{name.value}` is an input already", "choose another name")
            elif name.value in self.dims:
                self.error(name.place, f"`{name.value}` is a dimension already", "choose another name")
            elif match is None:
                self.error(text.place, f"`{name.value}` is spelled `type` or `type = default`")
            else:
                attribute = self.attribute(name.value, text, match)
                if attribute is not None:
                    found.append(attribute)
        return tuple(found)

    def attribute(self, name: str, text: Text, match: re.Match) -> Attribute | None:
        kind, default, of = match["type"], match["default"], match["of"]
        integer_letter = kind in self.types and all(w in DTYPES and DTYPES[w].kind == "int" for w in self.types[kind])
        if not integer_letter and kind not in ("i32", COMPUTE, "size", "axis"):
            letters = [letter for letter, words in self.types.items() if all(w in DTYPES and DTYPES[w].kind == "int" for w in words)]
            self.error(
                text.at(match.start("type"), len(kind)),
                f"`{kind}` is not a type of attribute",
                f"use {', '.join([*letters, 'i32', COMPUTE, 'size', 'axis of d'])}",
            )
            return None
        if (kind == "axis") != (of is not None) or (of is not None and of not in self.dims):
            self.error(text.place, f"an axis is spelled `axis of d`, with a dimension of the inputs: {', '.join(self.dims)}")
            return None
        value: int | float | str | None = None
        if default is not None:
            at = text.at(match.start("default"), len(default))
            limits = {f"lowest({kind})": "lowest", f"highest({kind})": "highest"}
            if integer_letter and default in limits:
                value = limits[default]
            elif not _NUMBER.fullmatch(default) or len(default) > 40:
                choices = f"a number, {' or '.join(limits)}" if integer_letter else "a number"
                self.error(at, f"`{default}` is not a default for `{kind}`", f"use {choices}")
            elif kind == COMPUTE:
                value = float(default)
                if not isfinite(value):
                    self.error(at, f"`{default}` does not fit a double")
            elif re.search(r"[.eE]", default):
                self.error(at, f"`{name}` is an integer, its default is `{default}`")
            else:
                value = int(default)
                self.check_default(value, kind, at)
        return Attribute(name, kind, value, of)

    def check_default(self, value: int, kind: str, place: Place) -> None:
        """An integer default must be a value of each type that the attribute may have."""
        if kind == "size" and value < 1:
            self.error(place, f"`{value}` is not a size", "sizes start at 1")
        for word in self.words(kind) if kind not in ("size", "axis") else ():
            if not DTYPES[word].lowest <= value <= DTYPES[word].highest:
                limits = f"{DTYPES[word].lowest} to {DTYPES[word].highest}"
                help = f"use lowest({kind}) or highest({kind})" if kind in self.types else None
                self.error(place, f"`{value}` does not fit {word}: {limits}", help)
                break

    def check_dims(self, inputs: tuple[Operand, ...], attributes: tuple[Attribute, ...]) -> None:
        """Blocks need a size attribute; two `*names` need an axis attribute."""
        sizes = {attribute.name for attribute in attributes if attribute.type == "size"}
        axes = {attribute.axis_of for attribute in attributes if attribute.type == "axis"}
        for operand in inputs:
            for dim in operand.dims:
                if dim.block is not None and dim.block not in sizes:
                    place, help = self.place_of(operand, dim), f"add `attrs: {{{dim.block}: size}}`"
                    self.error(place, f"`{dim.block}` is no attribute of type size", help)
                if dim.name not in self.dims:
                    place = self.place_of(operand, dim)
                    self.error(place, f"no input has the whole dimension `{dim.name}`")
            stars = [index for index, dim in enumerate(operand.dims) if dim.many]
            if len(stars) == 2 and operand.dims[stars[0]].block is None:
                between = operand.dims[stars[0] + 1 : stars[1]]
                if len(between) != 1:
                    place = self.place_of(operand, operand.dims[stars[1]])
                    self.error(place, "exactly one dimension stands between two `*names`")
                elif between[0].name not in axes:
                    name = between[0].name
                    place, help = self.place_of(operand, between[0]), f"add `attrs: {{axis: axis of {name}}}`"
                    self.error(place, f"nothing says which axis `{name}` is", help)

    def place_of(self, operand: Operand, dim: Dim) -> Place:
        """Where a dimension stands in an operand's declaration."""
        text = self.texts[operand.name]
        word = re.compile(rf"(?<!\w){re.escape(str(dim))}(?!\w)")
        return text.at(word.search(text.value, text.value.index("[")).start(), len(str(dim)))

    def values(self, inputs: tuple[Operand, ...], attributes: tuple[Attribute, ...]) -> dict[str, Node]:
        """The names that a formula may use, typed."""
        values = {}
        for operand in inputs:
            dims = frozenset(dim.name for dim in operand.dims)
            kind, bits = self.kind_of(operand.element)
            values[operand.name] = Node("name", (), kind, dims, bits, operand.name)
        for attribute in attributes:
            if attribute.type in ("size", "axis"):
                continue
            kind, bits = self.kind_of(attribute.type)
            values[attribute.name] = Node("name", (), kind, frozenset(), bits, attribute.name)
        return values

    def kind_of(self, element: str) -> tuple[str, int]:
        words = self.words(element)
        kinds = {DTYPES[word].kind for word in words}
        if kinds == {"int"}:
            return INT, max(DTYPES[word].bits + (not DTYPES[word].signed) for word in words)
        return (BOOL, 0) if kinds == {"bool"} else (REAL, 0)

    def words(self, element: str, types: Map[str, tuple[str, ...]] | None = None) -> tuple[str, ...]:
        """Every element type that a letter may be."""
        types = self.types if types is None else types
        if element == COMPUTE:
            return ("f32", "f64")
        if element not in types:
            return (element,)
        return tuple(dict.fromkeys(word for option in types[element] for word in self.words(option, types)))

    def hidden(self, attributes: tuple[Attribute, ...]) -> dict[str, str | None]:
        """Names that the row or the file declares and that have no value in a formula: see expr.Scope."""
        hidden: dict[str, str | None] = dict.fromkeys([*self.reader.broken_functions, *self.places])
        for name, _ in self.entries("outputs") if "outputs" in self.fields else ():
            hidden.setdefault(name.value, "is an output, a formula has inputs and attributes")
        for attribute in attributes:
            if attribute.type in ("size", "axis"):
                hidden[attribute.name] = f"is of type {attribute.type}, it has no value in a formula"
        return hidden

    def outputs(self, section: str, inputs: tuple[Operand, ...], attributes: tuple[Attribute, ...], extra=()):
        """Operands and their typed formulas: (operands, {name: (formula text, node)})."""
        found: list[Operand] = []
        formulas: dict[str, tuple[str, Node]] = {}
        values = self.values(tuple(inputs) + tuple(extra), attributes)
        hidden = self.hidden(attributes)
        all_inputs = len(inputs) == len(self.entries("inputs"))
        for name, body in self.entries(section):
            text = self.reader.text(body, f"`{name.value}`")
            if not expr.check_identifier(name, "the output's name", self.diagnostics) or text is None:
                continue
            if name.value in values or name.value in self.places:
                what = "an attribute" if name.value in {a.name for a in attributes} else "an input"
                self.error(name.place, f"`{name.value}` is {what} already", "choose another name")
                continue
            self.texts[name.value] = text
            head, equals, tail = text.value.partition("=")
            match = _OPERAND.fullmatch(head)
            if match is None or not tail.strip():
                help = "such as `T[*shape] = 2 * x`"
                self.error(text.place, f"`{name.value}` is spelled `Type[dimensions] = formula`", help)
                continue
            operand = self.operand(name, text, match)
            dims = operand.dims if operand is not None else ()
            unknown = [dim for dim in dims if dim.name not in self.dims]
            for dim in unknown if all_inputs else ():
                near = closest(dim.name, self.dims)
                help = f"did you mean `{near}`?" if near else f"dimensions: {', '.join(self.dims)}"
                self.error(self.place_of(operand, dim), f"no input has the dimension `{dim.name}`", help)
            formula = _tail(text, len(text.value) - len(tail.lstrip()))
            scope = Scope(values, self.functions, f"formula of `{name.value}`", hidden)
            value = expr.parse(formula, scope, self.diagnostics)
            if operand is None or value is None or unknown:
                continue
            value = self.fitted(operand, value, formula)
            if value is not None:
                found.append(operand)
                formulas[name.value] = (" ".join(tail.split()), value)
        for operand in found[1:]:
            if operand.dims != found[0].dims:
                message = f"`{found[0].name}` has other dimensions: `{found[0].signature}`"
                self.error(self.texts[operand.name].place, message, "all outputs have the same")
        return tuple(found), formulas

    def fitted(self, operand: Operand, value: Node, formula: Text) -> Node | None:
        """The formula as its output's kind and dimensions need it."""
        kind, _ = self.kind_of(operand.element)
        if kind == REAL:
            value = promote(value)
        if value.kind != kind:
            help = "use `round_to_int(x)`" if (kind, value.kind) == (INT, REAL) else "use `where(condition, 1, 0)`" if value.kind == BOOL else None
            message = f"`{operand.signature}` holds {_KINDS[kind]}, the formula gives {_KINDS[value.kind]}"
            self.error(formula.place, message, help)
            return None
        own = {dim.name for dim in operand.dims if dim.block is None}
        missing = sorted((value.dims & self.dims.keys()) - own)
        if missing:
            self.error(
                formula.place,
                f"the formula depends on {', '.join(f'`{name}`' for name in missing)}, "
                f"which `{operand.signature}` does not have",
                "add the dimension to the output",
            )
            return None
        return value

    def requirements(self, attributes: tuple[Attribute, ...]) -> tuple[tuple[str, Node], ...]:
        if "requires" not in self.fields:
            return ()
        node = self.fields["requires"]
        found = []
        for item in node.items if isinstance(node, Sequence) else (node,):
            text = self.reader.text(item, "`requires`")
            if text is None:
                continue
            hidden = self.hidden(attributes)
            arrays = self.texts.keys() & self.places.keys()
            hidden |= dict.fromkeys(arrays, "is an array, `requires` is about attributes")
            scope = Scope(self.values((), attributes), self.functions, "`requires`", hidden)
            value = expr.parse(text, scope, self.diagnostics)
            if value is not None and value.kind != BOOL:
                self.error(text.place, "`requires` needs a condition on attributes", "such as `low <= high`")
            elif value is not None:
                found.append((" ".join(text.value.split()), value))
        return tuple(found)

    def backward(self, kind: str, doc: str, forward: Program) -> Program | None:
        op = forward.operation
        gradients = []
        names = {f"d_{operand.name}" for operand in op.inputs}
        node = self.fields["backward"]
        for name, _ in self.entries("backward"):
            if name.value not in names:
                near = closest(name.value, names)
                help = f"did you mean `{near}`?" if near else f"gradients: {', '.join(sorted(names))}"
                self.error(name.place, f"`{name.value}` is the gradient of no input", help)
        floats = next((o.element for o in op.inputs if self.kind_of(o.element)[0] == REAL), "T")
        for operand in op.outputs:  # the gradient of codes flows in the type of the values they came from
            element = operand.element if self.kind_of(operand.element)[0] == REAL else floats
            gradients.append(Operand(f"d_{operand.name}", element, operand.dims))
            if f"d_{operand.name}" in self.places:
                message = f"`d_{operand.name}` is the name of the gradient of `{operand.name}`"
                self.error(self.places[f"d_{operand.name}"], message, "choose another name")
        outputs, formulas = self.outputs("backward", op.inputs, op.attributes, gradients)
        if len(outputs) < len(self.entries("backward")):
            return None
        inputs_by_name = {f"d_{operand.name}": operand for operand in op.inputs}
        for operand in outputs:
            of = inputs_by_name.get(operand.name, operand)
            is_real = self.kind_of(of.element)[0] == REAL  # the gradient of codes is of the type declared
            if operand.dims != of.dims or (is_real and operand.element != of.element):
                message = f"`{operand.name}` is the gradient of `{of.name}`, which is `{of.signature}`"
                self.error(self.texts[operand.name].place, message, "declare it so")
        used = set().union(*(value.names() for _, value in formulas.values()))
        inputs = tuple(o for o in (*gradients, *op.inputs) if o.name in used)
        if not inputs or inputs[0] not in gradients:
            message = f"`backward` never uses {' or '.join(f'`{g.name}`' for g in gradients)}"
            self.error(node.place, message, "a gradient is a multiple of the outputs' gradients")
            return None
        dims = {dim.name for operand in (*inputs, *outputs) for dim in operand.dims}
        blocks = {dim.block for operand in (*inputs, *outputs) for dim in operand.dims}
        checks = tuple(r for r in forward.requirements if r[1].names() & used)
        wanted = used | blocks | {name for r in checks for name in r[1].names()}
        attributes = tuple(a for a in op.attributes if a.name in wanted or (a.axis_of in dims))
        program = self.program(Direction.BACKWARD, kind, doc, inputs, outputs, attributes, checks, formulas)
        letters = {a.type for a in attributes} | {o.element for o in (*inputs, *outputs)}
        needed = self.needed(letters)
        operation = replace(
            program.operation,
            types={letter: words for letter, words in op.types.items() if letter in needed},
            element_fields={letter: f for letter, f in op.element_fields.items() if letter in needed},
        )
        return replace(program, operation=operation)

    def needed(self, letters: set[str]) -> set[str]:
        """The letters, and those that they or C are defined by."""
        needed = set(letters & self.types.keys()) | ({"T"} if COMPUTE in letters else set())
        for letter in tuple(needed):
            needed |= {word for word in self.types[letter] if word in self.types}
        return needed

    def program(self, direction, kind, doc, inputs, outputs, attributes, requirements, formulas) -> Program:
        exact = all(INTRINSICS[name].exact for _, node in formulas.values() for name in node.intrinsics())
        operation = Operation(
            name=self.name.value,
            category=kind.partition(".")[0],
            direction=direction,
            doc=doc,
            types=self.types,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            attributes=tuple(attributes),
            requirements=tuple(
                Requirement(text, tuple(a.name for a in attributes if a.name in node.names()), _never) for text, node in requirements
            ),
            element_fields=self.element_fields((*inputs, *outputs)),
            exact=exact,
            source=f"{self.name.value}.cu",
            formula_attributes=tuple(a.name for a in attributes if any(a.name in n.names() for _, n in formulas.values())),
        )
        if direction is Direction.FORWARD:
            self.check_letters(operation)
        return Program(
            operation,
            {name: node for name, (_, node) in formulas.items()},
            {name: text for name, (text, _) in formulas.items()},
            tuple(requirements),
        )

    def check_letters(self, operation: Operation) -> None:
        shown = {operand.element for operand in operation.inputs}
        hidden = [letter for letter in self.types if letter not in shown]
        if len(hidden) > 1:
            self.error(self.place, f"no input shows the types {' and '.join(hidden)}; `dtype=` can name only one of them")
        if not any(operand.dims == operation.outputs[0].dims for operand in operation.inputs):
            self.error(self.place, "no input has the dimensions of the output", "one input gives the output its shape")

    def element_fields(self, operands: tuple[Operand, ...]) -> dict[str, str]:
        first = {}
        for operand in operands:
            if operand.element in self.types:
                first.setdefault(operand.element, f"{operand.name}_element")
        for letter in self.types:
            first.setdefault(letter, f"{letter.lower()}_element")
        if len(first) == 1:
            return {letter: "element" for letter in first}
        return first


def _between(operand: Operand) -> str | None:
    """The dimension between an operand's two `*names`."""
    stars = [index for index, dim in enumerate(operand.dims) if dim.many]
    return operand.dims[stars[0] + 1].name if len(stars) == 2 else None


def _tail(text: Text, start: int) -> Text:
    """The text from an offset on, whose characters keep their places."""
    return Text(text.value[start:], text.at(start, max(len(text.value) - start, 1)), text.spots[start:])


def _never(**_) -> bool:
    raise AssertionError("a requirement is evaluated by the generated plan")
