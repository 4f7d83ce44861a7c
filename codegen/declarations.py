"""What a row declares: its kind, element types, operands, dimensions and attributes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite

from skuda.codegen import forms
from skuda.codegen.attributes import NUMBER, Attributes
from skuda.codegen.diagnostics import Diagnostics, Place
from skuda.codegen.names import LONGEST_OF_FORM, check_identifier, is_reserved_of_dimensions
from skuda.codegen.nodes import BOOL, DIM, INT, REAL, Node
from skuda.codegen.yaml_tree import Text
from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE, Attribute, Dim, Operand

OPERAND = re.compile(r"\s*(?P<type>[A-Za-z][A-Za-z0-9]*)\s*\[(?P<dims>[^\]]*)\]\s*")
_INPUT = re.compile(OPERAND.pattern + r"(?:=\s*(?P<default>.*?)\s*)?", re.DOTALL)
_HALF = re.compile(r"half\s+of\s+(?P<of>[a-z][a-z0-9_]*)")
_DIM = re.compile(r"\*?[a-z][a-z0-9_]*(?:/[a-z][a-z0-9_]*)?|[1-9][0-9]{0,8}")
_NOT_IN_DOC = re.compile(r"""[\n\t"\\`$]|/\*|\*/|\{[{%#]|//%""")


CONSTANT = "constant"  # in place of the gradient of an input that has none
DERIVED = "derived"  # in place of a gradient, or of all: made from the outputs' formulas
NONE = "none"  # in place of all gradients: there are none
LET = "let"


def is_same(node: object) -> bool:
    """Whether a line of `backward:` makes no gradient: it names another one, or says `constant`."""
    return isinstance(node, Text) and re.fullmatch(rf"\s*(d_\w+|{CONSTANT})\s*", node.value) is not None


class Declarations(Attributes):
    """Reads what stands in a row beside the formulas.

    Attributes:
        texts: what comes after the names of inputs and outputs.
        optional: the inputs that may be left out, and the number that each then is; `defaults`: where these stand.
        halves: the two inputs that may come as the halves of one array; none where there are not.
        absent: of a form of a row, the operands that it lacks and their numbers; `declared`: the inputs of the row.
        spreads: in a backward pass, the gradients of means, of which formulas have an element's share: what each is
            divided by, and how a formula spells that.
    """

    def __init__(
        self,
        diagnostics: Diagnostics,
        name: Text,
        fields: dict,
        absent: Mapping[Operand, int | float] = {},
        declared: tuple[Operand, ...] = (),
        word: str = "",
    ):
        super().__init__(diagnostics, name, fields, word)
        self.optional: dict[str, int | float] = {}
        self.halves: tuple[str, ...] = ()
        self.defaults: dict[str, Place] = {}
        self.absent = absent
        self.declared = declared
        self.spreads: dict[str, tuple[Node, str]] = {}
        self.place = name.place
        self.texts: dict[str, Text] = {}

    def kind(self) -> str:
        if "kind" not in self.fields:
            return "custom." + self.name.value
        text = self.text(self.fields["kind"], "`kind`")
        if text is None:
            return "custom"
        if not re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)?", text.value):
            self.error(
                text.place, "a kind is `category` or `category.name`", "such as `quantization.per_token`"
            )
        return text.value

    def doc(self) -> str:
        if "doc" not in self.fields:
            return f"The operation {self.name.value}."
        text = self.text(self.fields["doc"], "`doc`")
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

    def entries(self, section: str) -> tuple[tuple[Text, object], ...]:
        """The lines of a section that the row must have."""
        before = len(self.diagnostics)
        node = self.fields.get(section)
        entries = self.mapping(node, f"`{section}:`") if node is not None else ()
        if not entries and len(self.diagnostics) == before:
            self.error(self.place, f"`{self.name.value}` has no `{section}:`", self.such_as(f"`{section}:`"))
        prefix = {"inputs": "", "backward": "d_"}.get(section)
        left_out = {f"{prefix}{operand.name}" for operand in self.absent} if prefix is not None else ()
        found = tuple(entry for entry in entries if entry[0].value not in left_out)
        if section != "backward":
            return found
        return tuple(entry for entry in found if not is_same(entry[1]) and entry[0].value != LET)

    def lets_of_backward(self) -> tuple[tuple[Text, object], ...]:
        """The lines of `let:` under `backward:`."""
        entries = self.mapping(self.fields["backward"], "`backward:`")
        own = next((body for name, body in entries if name.value == LET), None)
        return () if own is None else self.mapping(own, "`let:`")

    def same_gradients(self) -> tuple[tuple[Text, Text], ...]:
        """The lines of `backward:` that name another gradient, or say `constant`."""
        node = self.fields.get("backward")
        left_out = {f"d_{operand.name}" for operand in self.absent}
        entries = self.mapping(node, "`backward:`") if node is not None else ()
        return tuple(entry for entry in entries if is_same(entry[1]) and entry[0].value not in left_out)

    def operands(self) -> tuple[Operand, ...]:
        found = []
        required = None
        for name, node in self.entries("inputs") if "inputs" in self.fields else ():
            self.places[name.value] = name.place
            self.meanings[name.value] = "an input"
            text = self.text(node, f"`{name.value}`", "write its type and dimensions, such as `T[*shape]`")
            if check_identifier(name, "the input's name", self.diagnostics) and text is not None:
                self.texts[name.value] = text
                match = _INPUT.fullmatch(text.value)
                operand = self.operand(name, text, match)
                if operand is not None:
                    found.append(operand)
                    if match["default"] is not None and match["default"].startswith("half"):
                        self.read_half(operand, text, match, found)
                    elif match["default"] is not None:
                        self.read_optional(operand, text, match)
                if match is not None and match["default"] is None:
                    required = name
                    if self.optional or self.halves:
                        last = next(reversed(self.optional), *self.halves[1:])
                        message = f"`{name.value}` comes after `{last}`, which may be left out"
                        self.error(name.place, message, "inputs with a default come after those without")
        if any(not operand.scalar for operand in found) and required is None and self.optional:
            self.error(self.place, f"`{self.name.value}` has no input that must be there", "remove a default")
        return tuple(found)

    def read_half(self, operand: Operand, text: Text, match: re.Match, inputs: list[Operand]) -> None:
        """The other half of the array whose first half an input above is, checked: `half of gate`."""
        default = match["default"]
        at, spelled = text.at(match.start("default"), len(default)), _HALF.fullmatch(default)
        other = next((each for each in inputs[:-1] if spelled and each.name == spelled["of"]), None)
        alike = other is not None and (other.element, other.dims) == (operand.element, operand.dims)
        if other is None:
            names = ", ".join(each.name for each in inputs[:-1])
            self.error(at, f"`{default}` names no input above", f"write `half of name`: {names}" if names else None)
        elif not alike or not operand.dims or operand.dims[-1].block is not None:
            message = f"`{operand.signature}` and `{other.signature}` are not halves of one array"
            self.error(at, message, "they have one type and the same dimensions, the last of which is split")
        elif any(DTYPES[word].packed for word in self.words(operand.element)):
            self.error(at, "codes of 4 bits are not split", "two share a byte")
        elif self.halves or self.optional:
            what = "are halves of an array" if self.halves else "is an input that may be left out"
            self.error(at, f"there {what} already", "a row has one of these")
        elif other is not inputs[-2]:
            between = inputs[-2].name
            self.error(at, f"`{between}` is between the halves", f"write `{operand.name}` behind `{other.name}`")
        else:
            self.halves = other.name, operand.name

    def read_optional(self, operand: Operand, text: Text, match: re.Match) -> None:
        """What an input is where it is left out, checked: exactly a value of each type that it may have."""
        default, name = match["default"], operand.name
        if self.halves:
            place = text.at(match.start("default"), max(len(default), 1))
            self.error(place, "there are halves of an array already", "a row has one of these")
        at = text.at(match.start("default"), max(len(default), 1))
        kind, _ = self.kind_of(operand.element)
        if kind == BOOL or not NUMBER.fullmatch(default) or len(default) > 40:
            self.error(at, f"`{default}` is not what `{operand.signature}` can be without an array", "write a number")
            return
        value = float(default) if re.search(r"[.eE]", default) else int(default)
        if kind == INT and not isinstance(value, int):
            self.error(at, f"`{name}` holds integers, its default is `{default}`")
            return
        if not isfinite(value):
            self.error(at, f"`{default}` does not fit a double")
            return
        for word in self.words(operand.element):
            exact = kind == REAL and DTYPES[word].bits >= 32  # is computed with as it is
            if not (abs(value) <= DTYPES[word].highest if exact else DTYPES[word].holds(value)):
                self.error(at, f"`{default}` is not a value of {word}", "what is left out is exactly this number")
                return
        self.optional[name] = value
        self.defaults[name] = at
        if len(forms.form_name(self.name.value, [*self.optional])) > LONGEST_OF_FORM:
            many = f"more than {LONGEST_OF_FORM} letters"
            message = f"what the row is without its optional inputs would have a name of {many}"
            self.error(at, message, "choose a shorter name")

    def operand(self, name: Text, text: Text, match: re.Match | None) -> Operand | None:
        if match is None:
            self.error(
                text.place,
                f"`{name.value}` is spelled `Type[dimensions]`",
                "such as `T[*shape]`, `S[c]`, `i32[]`",
            )
            return None
        element = match["type"]
        if element not in self.types and element not in DTYPES and element != COMPUTE:
            declare = f"declare it under types: {{{element}: [...]}}"
            help = self.type_meant(element, [*self.types, *DTYPES], declare)
            self.error(
                text.at(match.start("type"), len(element)), f"`{element}` is not a type of this row", help
            )
            return None
        dims = []
        start = match.start("dims")
        for part in match["dims"].split(",") if match["dims"].strip() else ():
            word = part.strip()
            if not _DIM.fullmatch(word):
                at = text.at(start + len(part) - len(part.lstrip()), max(len(word), 1))
                self.error(at, f"`{word}` is not a dimension", "use `d`, `*name`, `d/block`, or a size such as `4`")
                return None
            if is_reserved_of_dimensions(Dim.of(word).name):
                at = text.at(start + len(part) - len(part.lstrip()), len(word))
                self.error(at, f"the dimension `{word}` is a reserved word", "choose another name")
                return None
            dims.append(Dim.of(word))
            start += len(part) + 1
        if len({dim.name for dim in dims}) != len(dims):
            numbers = any(dim.size is not None for dim in dims)
            help = "two sizes that are the same number are one dimension; give one a name" if numbers else None
            self.error(text.place, f"`{name.value}` has a dimension twice", help)
            return None
        if sum(dim.many for dim in dims) > 2:
            self.error(
                text.place,
                f"`{name.value}` has more than two `*` dimensions",
                "their split would be ambiguous",
            )
            return None
        return Operand(name.value, element, tuple(dims))

    def last_axis(self, inputs: tuple[Operand, ...], attributes: tuple[Attribute, ...]) -> tuple[Attribute, ...]:
        """The attributes of a form: where what it lacks alone said how many axes `*d` is, `*d` is the last axis."""
        alone = {operand.dims[0].name for operand in self.absent if len(operand.dims) == 1 and operand.dims[0].many}
        alone -= {operand.dims[0].name for operand in inputs if len(operand.dims) == 1}
        named = {attribute.axis_of for attribute in attributes}
        for dim in (operand.dims[1] for operand in inputs if len(operand.dims) == 2 and operand.dims[0].many):
            if dim.name in alone - named and dim.many and "axis" not in self.meanings:
                return (Attribute("axis", "axes", -1, dim.name), *attributes)
        return attributes

    def check_dims(self, inputs: tuple[Operand, ...], attributes: tuple[Attribute, ...]) -> None:
        """Blocks need a size attribute; two `*names` need what says where the one ends and the other begins."""
        sizes = {attribute.name for attribute in attributes if attribute.type == "size"}
        axes = {attribute.axis_of for attribute in attributes if attribute.names_axes}
        alone = {dims[0].name for dims in (o.dims for o in inputs) if len(dims) == 1 and dims[0].many}
        named = [attribute for attribute in attributes if attribute.type == "axes"]
        for attribute in named if len([a for a in attributes if a.names_axes]) > 1 else ():
            self.error(self.places[attribute.name], "a row has one attribute of axes", "remove the others")
        for attribute in named:
            if not any(_spans(operand, attribute.axis_of) for operand in inputs):
                help = f"such as `T[*kept, *{attribute.axis_of}]`: the other axes need a name too"
                message = f"`axes of {attribute.axis_of}` come after the other axes, and no input has these"
                self.error(self.places[attribute.name], message, help)
        for operand in inputs:
            for dim in operand.dims:
                if dim.block is not None and dim.block not in sizes:
                    place, help = self.place_of(operand, dim), f"add `attrs: {{{dim.block}: size}}`"
                    self.error(place, f"`{dim.block}` is no attribute of type size", help)
                if dim.name not in self.dims:
                    place = self.place_of(operand, dim)
                    self.error(place, f"no input has the whole dimension `{dim.name}`")
            self.check_stars(operand)
            stars = [index for index, dim in enumerate(operand.dims) if dim.many]
            if len(stars) == 2 and operand.dims[stars[0]].block is None:
                between = operand.dims[stars[0] + 1 : stars[1]]
                names = [operand.dims[index].name for index in stars]
                if not between and (alone & {*names} or (operand.dims[-1].name in axes and len(operand.dims) == 2)):
                    continue
                if not between:
                    self.error(
                        self.place_of(operand, operand.dims[stars[1]]),
                        f"nothing says where `*{names[0]}` ends and `*{names[1]}` begins",
                        f"add `attrs: {{axis: axes of {names[1]}}}`, or an input that has `*{names[1]}` alone",
                    )
                elif len(between) != 1:
                    place = self.place_of(operand, operand.dims[stars[1]])
                    self.error(place, "exactly one dimension stands between two `*names`")
                elif between[0].name not in axes:
                    name = between[0].name
                    place, help = self.place_of(operand, between[0]), f"add `attrs: {{axis: axis of {name}}}`"
                    self.error(place, f"nothing says which axis `{name}` is", help)

    def check_stars(self, operand: Operand) -> bool:
        """Whether each dimension is one axis, or any number of them, as in the first input that has it."""
        for dim in operand.dims:
            first = self.dims.get(dim.name, dim)
            if first.many and dim.block is not None:
                message, help = f"`{dim.name}` is any number of axes, blocks are along one", None
            elif first.many != dim.many:
                message = f"`{dim.name}` is {'any number of axes' if first.many else 'one axis'} in an input"
                help = f"write `{replace(dim, many=first.many)}`"
            else:
                continue
            self.error(self.place_of(operand, dim), message, help)
            return False
        return True

    def place_of(self, operand: Operand, dim: Dim) -> Place:
        """Where a dimension stands in an operand's declaration."""
        text = self.texts[operand.name]
        word = re.compile(rf"(?<!\w){re.escape(str(dim))}(?!\w)")
        return text.at(word.search(text.value, text.value.index("[")).start(), len(str(dim)))

    def check_mixed(self, named: Mapping[str, str]) -> None:
        """Refuses operands and attributes of floats, by their names, beside a T that makes C an integer."""
        for name, element in named.items() if self.mixed else ():
            if element != "T" and all(DTYPES[word].kind == "float" for word in self.words(element)):
                message = f"`{name}` is of type {element}, a float, where C may be an integer or boolean, as T is"
                attribute = self.meanings.get(name) == "an attribute"
                help = "make it an input of one value, `T[]`, or an `i32`" if attribute else None
                self.error(self.places.get(name, self.place), message, help or "declare it as `T`, or as integers")

    def values(self, inputs: tuple[Operand, ...], attributes: tuple[Attribute, ...]) -> dict[str, Node]:
        """The names that a formula may use, typed."""
        own = [name for name in self.dims if name not in self.places]
        values = {name: Node("name", (), DIM, frozenset({name}), text=name) for name in own}
        values |= {operand.name: self.value_of(operand) for operand in inputs}
        for operand, value in self.absent.items():
            values[operand.name] = forms.number_of(value, self.kind_of(operand.element)[0])
        for name in self.spreads & values.keys():  # each element's share of the mean's gradient
            values[name] = Node("/", (values[name], self.spreads[name][0]), REAL, values[name].dims)
        for attribute in attributes:
            if attribute.type == "size":
                values[attribute.name] = Node("name", (), DIM, text=attribute.name)
            if attribute.type == "size" or attribute.names_axes:
                continue
            kind, bits = self.kind_of(attribute.type)
            values[attribute.name] = Node("name", (), kind, frozenset(), bits, attribute.name)
        return values

    def value_of(self, operand: Operand) -> Node:
        """An operand's element in a formula."""
        kind, bits = self.kind_of(operand.element)
        return Node("name", (), kind, _entries(operand), bits, operand.name)


def _spans(operand: Operand, name: str) -> bool:
    """Whether an operand is `[*kept, *name]`."""
    return len(operand.dims) == 2 and operand.dims[0].many and operand.dims[1].name == name


def _entries(operand: Operand) -> frozenset[str]:
    """An operand's dimensions as those of a value."""
    return frozenset(str(dim).lstrip("*") for dim in operand.dims)
