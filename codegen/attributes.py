"""The attributes of a row: what a plan is selected with, and what chooses one of the row's forms."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from math import isfinite

from skuda.codegen.diagnostics import Diagnostics, Place
from skuda.codegen.names import IDENTIFIER, check_identifier
from skuda.codegen.nodes import REAL
from skuda.codegen.type_letters import WORDS, TypeLetters
from skuda.codegen.yaml_tree import Text
from skuda.model.dtypes import DTYPES
from skuda.model.operation import ALL, COMPUTE, REDUCTIONS, Attribute, Dim

_ATTRIBUTE = re.compile(
    r"\s*(?P<type>[A-Za-z][A-Za-z0-9]*)(?:\s+of\s+(?P<of>[a-z0-9_]+))?(?:\s+by\s+(?P<by>[a-z0-9_]+))?\s*"
    r"(?:=\s*(?P<default>.+?)\s*)?"
)
_WORDS = re.compile(r"\s*(?P<words>\w+(?:\s*\|\s*\w+)+)\s*(?:=\s*(?P<default>.+?)\s*)?")
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
INFINITIES = ("inf", "-inf")  # what no bound is, as the default of a real
BOOL_WORD = "bool"  # the type of an attribute that is true or false
REDUCTION = "reduction"  # the type of an attribute that chooses how outputs are reduced
REDUCERS = ("mean", "sum")  # those of its words that reduce
PRECISION = "precision"  # the type of an attribute that chooses how elementary functions are computed
EXACT, FAST = PRECISIONS = "exact", "fast"  # in steps that CPU and GPU have in common; by instructions of the GPU


def _is_word(word: str) -> bool:
    """Whether a word can be one of a choice: a formula says it as the name of an argument."""
    return IDENTIFIER.fullmatch(word) is not None and not keyword.iskeyword(word)


@dataclass(frozen=True)
class Chosen:
    """An attribute by whose word a call selects a form of the row: `reduction: reduction = mean`, or by words of the
    row's own, each of which has its formula: `approximate: none | tanh = none`.

    Attributes:
        name: its name.
        words: what it may be; `default` is that of the row itself.
        by: the name of `let:` by whose sum means divide; empty where they divide by the number of elements.
        reduces: whether its words say how elements of the output are reduced.
        computes: whether its words say how elementary functions are computed.
    """

    name: str
    words: tuple[str, ...]
    default: str
    by: str = ""
    reduces: bool = False
    computes: bool = False

    @property
    def of_formulas(self) -> bool:
        """Whether formulas say what its words are (`choose`)."""
        return not (self.reduces or self.computes)


class Attributes(TypeLetters):
    """Reads the attributes of a row.

    Attributes:
        name: of the row.
        dims: the inputs' whole dimensions, by their names.
        places: of the names of inputs and attributes, faulty ones included.
        meanings: what each name of the row is, such as "an input", faulty ones included.
        choice: the attribute that chooses a form; `word`: what it is in the form that is read, empty for its default.
    """

    def __init__(self, diagnostics: Diagnostics, name: Text, fields: dict, word: str = ""):
        super().__init__(diagnostics, fields)
        self.name = name
        self.word = word
        self.choice: Chosen | None = None
        self.dims: dict[str, Dim] = {}
        self.places: dict[str, Place] = {}
        self.meanings: dict[str, str] = {}

    def attributes(self) -> tuple[Attribute, ...]:
        found: list[Attribute] = []
        for name, node in self.mapping(self.fields["attrs"], "`attrs:`") if "attrs" in self.fields else ():
            taken = self.meanings.get(name.value)
            self.places.setdefault(name.value, name.place)
            self.meanings.setdefault(name.value, "an attribute")
            text = self.text(node, f"`{name.value}`", "write its type, with `=` and a default if it has one: `C = 1`")
            if not check_identifier(name, "the attribute's name", self.diagnostics) or text is None:
                continue
            match, words = _ATTRIBUTE.fullmatch(text.value), _WORDS.fullmatch(text.value)
            if taken is not None:
                self.error(name.place, f"`{name.value}` is {taken} already", "choose another name")
            elif words is not None:
                self.read_words(name.value, text, words)
            elif match is None:
                self.error(text.place, f"`{name.value}` is spelled `type` or `type = default`", "such as `C = 1`")
            else:
                attribute = self.attribute(name.value, text, match)
                if attribute is not None:
                    found.append(attribute)
        return tuple(found)

    def attribute(self, name: str, text: Text, match: re.Match) -> Attribute | None:
        kind, default, of = match["type"], match["default"], match["of"]
        letters = [
            letter
            for letter, words in self.types.items()
            if all(word in DTYPES and DTYPES[word].code and DTYPES[word].kind != "bool" for word in words)
        ]
        if match["by"] is not None and kind != REDUCTION:
            place = text.at(match.start("by"), len(match["by"]))
            self.error(place, f"`by` is of a `{REDUCTION}`, this is `{kind}`", f"write `{REDUCTION} by weight = mean`")
            return None
        if kind == REDUCTION:
            self.read_choice(name, text, match)
            return None
        if kind == PRECISION:
            self.read_precision(name, text, match)
            return None
        of_codes = kind in letters
        real = kind == COMPUTE or (of_codes and self.kind_of(kind)[0] == REAL)
        if not of_codes and kind not in ("i32", BOOL_WORD, COMPUTE, "size", "axis", "axes"):
            others = ("i32", BOOL_WORD, COMPUTE, "size", "axis of d", "axes of d", REDUCTION, PRECISION)
            help = f"use {', '.join([*letters, *others])}"
            word = WORDS.get(kind, kind)
            if kind == "T" or kind in self.types or (word in DTYPES and DTYPES[word].kind == "float"):
                help = f"a number that formulas use is `{COMPUTE}`, of the type that they compute in"
            elif word in DTYPES:
                help = "an integer is `i32`, or a letter of integer types such as Q: [s8, u8]"
            self.error(text.at(match.start("type"), len(kind)), f"`{kind}` is not a type of attribute", help)
            return None
        if (kind in ("axis", "axes")) != (of is not None) or (of is not None and of not in self.dims):
            spelled = "axes are spelled `axes of d`" if kind == "axes" else "an axis is spelled `axis of d`"
            self.error(text.place, f"{spelled}, with a dimension of the inputs: {', '.join(self.dims)}")
            return None
        if of is not None and self.dims[of].many != (kind == "axes"):
            many = self.dims[of].many
            message = f"`{of}` is {'any number of axes' if many else 'one axis'}, this is {kind} of it"
            self.error(text.place, message, f"write `{'axes' if many else 'axis'} of {of}`")
            return None
        value: int | float | str | None = None
        if default is not None:
            at = text.at(match.start("default"), len(default))
            # C follows T alone, so its limits are those of T.
            letter = kind if of_codes or kind == "i32" else "T" if real and self.of_floats("T") else None
            limits = [f"lowest({letter})", f"highest({letter})"] if letter is not None else []
            if default in limits:
                value = default
            elif kind == COMPUTE and default in INFINITIES:
                value = float(default)
            elif kind == "axes" and default == ALL:
                value = ALL
            elif kind == BOOL_WORD:
                value = default == "true"
                if default not in ("true", "false"):
                    self.error(at, f"`{default}` is not a default for `{kind}`", "use true or false")
            elif not NUMBER.fullmatch(default) or len(default) > 40:
                words = [*(INFINITIES if kind == COMPUTE else ()), *limits, *([f"`{ALL}`"] if kind == "axes" else [])]
                choices = ", ".join(["a number", *words[:-1]]) + "".join(f" or {word}" for word in words[-1:])
                self.error(at, f"`{default}` is not a default for `{kind}`", f"use {choices}")
            elif real:
                value = float(default)
                if not isfinite(value):
                    self.error(at, f"`{default}` does not fit a double")
                elif of_codes:
                    self.check_default(value, kind, at)
            elif re.search(r"[.eE]", default):
                self.error(at, f"`{name}` is an integer, its default is `{default}`")
            else:
                value = int(default)
                self.check_default(value, kind, at)
        return Attribute(name, kind, value, of)

    def read_choice(self, name: str, text: Text, match: re.Match) -> None:
        """`reduction = mean`: no reduction, the mean or the sum of an output's elements."""
        of, default = match["of"], match["default"]
        words = ", ".join(REDUCTIONS)
        if of is not None:
            place = text.at(match.start("of"), len(of))
            self.error(place, "a reduction is of all elements of the output", f"write `{REDUCTION} = mean`")
        elif default not in REDUCTIONS:
            place = text.place if default is None else text.at(match.start("default"), len(default))
            message = f"`{name}` has no default" if default is None else f"`{default}` is no reduction"
            self.error(place, message, f"write `{REDUCTION} = mean`, or another of {words}")
        else:
            self.choose(Chosen(name, REDUCTIONS, default, match["by"] or "", reduces=True))

    def read_precision(self, name: str, text: Text, match: re.Match) -> None:
        """`precision = exact`: functions in steps that CPU and GPU have in common, or by instructions of the GPU."""
        of, default = match["of"], match["default"]
        if of is not None:
            message = "a precision is of all functions of the outputs"
        elif default is None:
            message = f"`{name}` has no default"
        elif default == FAST:
            message = f"`{name}` is `{EXACT}` unless a call says otherwise"
        else:
            message = "" if default == EXACT else f"`{default}` is no precision"
        if message:
            said = "of" if of is not None else "default"
            place = text.at(match.start(said), len(match[said])) if match[said] else text.place
            self.error(place, message, f"write `{PRECISION} = {EXACT}`")
        else:
            self.choose(Chosen(name, PRECISIONS, EXACT, computes=True))

    def read_words(self, name: str, text: Text, match: re.Match) -> None:
        """`none | tanh = none`: words, for each of which formulas say what they are (`choose`)."""
        words, default = tuple(match["words"].replace("|", " ").split()), match["default"]
        wrong = next((word for word in words if not _is_word(word) or words.count(word) > 1), None)
        if wrong is not None:
            message = f"`{wrong}` is there twice" if _is_word(wrong) else f"`{wrong}` is no word of a choice"
            self.error(text.place, message, "write different words, not Python's own: `none | tanh = none`")
            default = words[0]
        elif default not in words:
            place = text.place if default is None else text.at(match.start("default"), len(default))
            message = f"`{name}` has no default" if default is None else f"`{default}` is none of the words"
            self.error(place, message, f"write `{' | '.join(words)} = {words[0]}`")
            default = words[0]
        self.choose(Chosen(name, words, default))

    def choose(self, choice: Chosen) -> None:
        """Makes an attribute the row's choice."""
        if self.choice is None:
            self.choice = choice
            return
        message = f"`{choice.name}` chooses a form, and so does `{self.choice.name}`"
        self.error(self.places[choice.name], message, "a row has one such attribute")

    @property
    def chosen_word(self) -> str:
        """The word of the choice that is read."""
        return self.word or (self.choice.default if self.choice is not None else "")

    @property
    def how(self) -> str:
        """How elements of the output are reduced; empty where nothing chooses it."""
        return self.chosen_word if self.choice is not None and self.choice.reduces else ""

    def check_default(self, value: float, kind: str, place: Place) -> None:
        """A default must be a value of each type that the attribute may have."""
        if kind == "size" and value < 1:
            self.error(place, f"`{value}` is not a size", "sizes start at 1")
        for word in self.words(kind) if kind not in ("size", "axis", "axes") else ():
            if not DTYPES[word].holds(value):
                limits = f"{DTYPES[word].lowest:g} to {DTYPES[word].highest:g}"
                if DTYPES[word].kind == "int":
                    limits = f"{DTYPES[word].lowest} to {DTYPES[word].highest}"
                help = f"use lowest({kind}) or highest({kind})" if kind in self.types else None
                self.error(place, f"`{value}` does not fit {word}: {limits}", help)
                break
