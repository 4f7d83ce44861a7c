"""The element types of a row: what its type letters stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping

from skuda.codegen.diagnostics import Diagnostics, suggestion
from skuda.codegen.nodes import BOOL, INT, REAL
from skuda.codegen.tree_reader import TreeReader
from skuda.codegen.yaml_tree import Sequence, Text
from skuda.model.dtypes import DTYPES, WORD_OF_NAME
from skuda.model.operation import COMPUTE, SCALE, WEIGHT

DEFAULT_FLOATS = ("f32", "f64", "f16", "bf16")
# What NumPy, torch and C call the element types.
WORDS = {**WORD_OF_NAME, "half": "f16", "fp16": "f16", "float": "f32", "fp32": "f32", "double": "f64"}
WORDS |= {"fp64": "f64", "bf": "bf16", "int": "i32", "i8": "s8", "byte": "u8", "long": "i64", "boolean": "bool"}
del WORDS["bool"]


class TypeLetters(TreeReader):
    """Reads the types of a row.

    Attributes:
        fields: the row's sections, by their names.
        types: what each type letter may be; `shown`: those that the operation has, fewer in a form.
    """

    def __init__(self, diagnostics: Diagnostics, fields: dict):
        super().__init__(diagnostics)
        self.fields = fields
        self.types: dict[str, tuple[str, ...]] = {}
        self.shown: dict[str, tuple[str, ...]] = {}

    def read_types(self) -> dict[str, tuple[str, ...]]:
        types: dict[str, tuple[str, ...]] = {}
        declared = self.mapping(self.fields["types"], "`types:`") if "types" in self.fields else ()
        if "T" not in [letter.value for letter, _ in declared]:
            types["T"] = DEFAULT_FLOATS
        for letter, node in declared:
            if not re.fullmatch(r"[A-Z]", letter.value) or letter.value == COMPUTE:
                self.error(
                    letter.place, f"a type letter is one capital other than C, this is `{letter.value}`"
                )
                continue
            items = node.items if isinstance(node, Sequence) else (node,)
            words: list[str] = []
            for item in items:
                if isinstance(item, Text) and not item.value:
                    self.error(item.place, f"`{letter.value}` has no element type", "such as `[s8, u8]`")
                elif not isinstance(item, Text):
                    self.error(item.place, "a type letter takes a list of element types")
                elif item.value in DTYPES or item.value in types or (item.value == COMPUTE and types):
                    words.append(item.value)
                else:
                    help = self.type_meant(item.value, [*DTYPES, *types], f"element types: {' '.join(DTYPES)}")
                    if item.value in [other.value for other, _ in declared]:
                        help = f"declare `{item.value}` before `{letter.value}`"
                    self.error(item.place, f"`{item.value}` is not an element type", help)
            if not items:
                self.error(node.place, f"`{letter.value}` has no element type", "such as `[s8, u8]`")
            types[letter.value] = tuple(dict.fromkeys(words))
            kinds = {DTYPES[word].kind for word in self.words(letter.value, types)}
            if len(kinds) > 1 and not (letter.value == "T" and {*words} <= DTYPES.keys()):
                self.error(node.place, f"`{letter.value}` mixes {' and '.join(sorted(kinds))} types")
        others = [letter for letter in types if letter not in (SCALE, WEIGHT)]
        if len(others) > 2:
            message = "a row has at most two type letters beside S (scale) and W (weight)"
            self.error(self.fields["types"].place, message)
        return types

    def type_meant(self, word: str, choices: list[str], otherwise: str) -> str:
        """The help for a type that there is not: by what others call it, or by its spelling."""
        return f"write `{WORDS[word]}`" if word in WORDS else suggestion(word, choices, otherwise)

    def kind_of(self, element: str) -> tuple[str, int]:
        """Of what kind elements are in a formula, and how many bits hold integers; REAL: as values of C."""
        words = self.words(element)
        kinds = {DTYPES[word].kind for word in words}
        if kinds == {"int"}:
            return INT, max(DTYPES[word].bits + (not DTYPES[word].signed) for word in words)
        return (BOOL, 0) if kinds == {"bool"} else (REAL, 0)

    def of_floats(self, element: str) -> bool:
        """Whether a letter stands for floats alone."""
        return {DTYPES[word].kind for word in self.words(element)} == {"float"}

    def kinds_of_types(self) -> dict[str, str]:
        """Of what kind the values of each type letter are, and those of C."""
        return {letter: self.kind_of(letter)[0] for letter in (*self.types, COMPUTE)}

    @property
    def mixed(self) -> bool:
        """Whether T is floats, integers and booleans, more than one of these, which C follows; else C is a float."""
        return len({DTYPES[word].kind for word in self.words("T")}) > 1

    @property
    def computes(self) -> frozenset[str]:
        """What C may be: see Scope."""
        return frozenset(DTYPES[word].kind for word in self.words("T")) if self.mixed else frozenset({"float"})

    def differentiable(self) -> dict[str, tuple[str, ...]]:
        """The types of a backward pass: of a T that is mixed the floats alone."""
        floats = tuple(word for word in self.words("T") if DTYPES[word].kind == "float")
        return self.shown | ({"T": floats} if self.mixed and "T" in self.shown else {})

    def of_codes(self, element: str) -> bool:
        """Whether an operand of this element holds what a quantization gives: no gradient has its type."""
        return all(DTYPES[word].code for word in self.words(element))

    def words(self, element: str, types: Mapping[str, tuple[str, ...]] | None = None) -> tuple[str, ...]:
        """Every element type that a letter may be."""
        types = self.types if types is None else types
        if element == COMPUTE:
            return ("f32", "f64")
        if element not in types:
            return (element,)
        return tuple(dict.fromkeys(word for option in types[element] for word in self.words(option, types)))

    def needed(self, letters: set[str]) -> set[str]:
        """The letters, and those that they or C are defined by."""
        used = letters | {word for letter in letters & self.types.keys() for word in self.types[letter]}
        return set(used & self.types.keys()) | ({"T"} if COMPUTE in used else set())
