"""Which element types the operands of an operation may have together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from skuda.errors import Unsupported, one_of
from skuda.model.dtypes import DTYPES
from skuda.model.operands import COMPUTE, Operand

Types = Mapping[str, str]
_KINDS = ("bool", "int", "float")  # each holds those before it


class TypeCombinations:
    """What an `Operation` says about element types; it reads the fields of one."""

    @cached_property
    def kernel_letters(self) -> tuple[str, ...]:
        """Type letters that some operand has, in operand order, those that formulas alone name, and the one that the
        compute type follows from: parameters of the kernel template.
        """
        named = [*(o.element for o in self.operands), *self.analysis.asks_of, self.analysis.precise_as]
        letters = dict.fromkeys(letter for letter in named if letter in self.types)
        if not any(map(self.in_compute, letters)):
            floats = [letter for letter in self.types if self.is_float(letter)]
            letters |= dict.fromkeys((floats or [*self.types][: not letters])[:1])
        if COMPUTE in named:  # of a stage whose operands are W and C
            letters |= dict.fromkeys([letter for letter in self.types if self.in_compute(letter)][:1])
        return tuple(letters)

    @cached_property
    def asked(self) -> dict[str, str]:
        """Keywords that name the type letters which no input array shows: `dtype` for the first, then `scale_dtype` for
        that of an output `scale`.
        """
        shown = set() if self.creates else {operand.element for operand in self.inputs}  # numbers show no type
        found: dict[str, str] = {}
        for letter in self.types:
            owner = next((operand.name for operand in self.outputs if operand.element == letter), None)
            if letter not in shown and not found:
                found[letter] = "dtype"
            elif letter not in shown and owner is not None:
                found[letter] = f"{owner}_dtype"
        return found

    @cached_property
    def reads_packed(self) -> bool:
        """Whether some input may hold two elements to a byte."""
        return any(self.may_be_packed(operand.element) for operand in self.inputs)

    @cached_property
    def combinations(self) -> tuple[dict[str, str], ...]:
        """Every choice of element types, preferred first; `C` is resolved in each."""
        choices: list[dict[str, str]] = [{}]
        for letter, options in self.types.items():
            wider = []
            for choice in choices:
                resolved = {**choice, COMPUTE: self._compute_of(choice)}
                words = dict.fromkeys(resolved.get(option, option) for option in options)
                wider += [{**choice, letter: word} for word in words]
            choices = wider
        return tuple({**choice, COMPUTE: self._compute_of(choice)} for choice in choices)

    def _compute_of(self, types: Types) -> str:
        """The compute type of a choice of element types."""
        follows = next((letter for letter in self._mixed if letter in types), None)
        return compute_word(types) if follows is None else DTYPES[types[follows]].C

    def kernel_combinations(self) -> Iterator[dict[str, str]]:
        """The distinct choices as far as a kernel can tell."""
        seen = set()
        for types in self.combinations:
            key = tuple(types[letter] for letter in self.kernel_letters)
            if key not in seen:
                seen.add(key)
                yield {letter: types[letter] for letter in (*self.kernel_letters, COMPUTE)}

    def word(self, operand: Operand, types: Types) -> str:
        """The element type of an operand under a choice of types."""
        return types.get(operand.element, operand.element)

    def bits(self, operand: Operand, types: Types) -> int:
        """Of an element of an operand under a choice of types."""
        return DTYPES[self.word(operand, types)].bits

    def is_packed(self, types: Types) -> bool:
        """Whether some operand has two elements to a byte under a choice of types."""
        return any([DTYPES[self.word(operand, types)].packed for operand in self.operands])

    def is_float(self, element: str) -> bool:
        """Whether a type letter, the word of an element type or `C` stands for floats."""
        while element in self.types:
            element = self.types[element][0]
        return element == COMPUTE or (element in DTYPES and DTYPES[element].kind == "float")

    @cached_property
    def _mixed(self) -> tuple[str, ...]:
        """The type letters that `is_mixed` is true of."""
        return tuple([letter for letter in self.types if self.is_mixed(letter)])

    def is_mixed(self, element: str) -> bool:
        """Whether it is a type letter of floats, integers and booleans, of more than one of these: C follows it."""
        words = self.types.get(element, ())
        return len({DTYPES[word].kind for word in words if word in DTYPES}) > 1

    def in_compute(self, element: str) -> bool:
        """Whether formulas take elements of a type letter or word as values of C."""
        return self.is_float(element) or self.is_mixed(element)

    def may_be_packed(self, letter: str) -> bool:
        """Whether some choice of types makes this letter a packed type."""
        return letter in self.types and self._holds_packed(letter)

    def _holds_packed(self, element: str) -> bool:
        """The same of a type letter or a word."""
        if element in self.types:
            return any(map(self._holds_packed, self.types[element]))
        return element in DTYPES and DTYPES[element].packed

    def may_be_bytes(self, letter: str) -> bool:
        """Whether an array of uint8 may hold this letter's elements, so that somebody has to say which they are."""
        return any(map(may_be_bytes, self.words_of(letter)))

    def words_of(self, letter: str) -> list[str]:
        """The words that a letter may be; none of what is no letter."""
        return list(dict.fromkeys(types[letter] for types in self.combinations if letter in types))

    @cached_property
    def told(self) -> str | None:
        """The letter of the first input that an array of uint8 may hold: `input_dtype=` says what that letter is."""
        return next((operand.element for operand in self.inputs if self.may_be_bytes(operand.element)), None)

    def resolve(
        self, seen: Mapping[str, str], plan: str, numbers: Sequence[Operand] = (), kinds: Mapping[str, str] = {}
    ) -> dict[str, str]:
        """The preferred choice of types under which each named operand or letter has the word seen.

        Args:
            seen: element words by operand name or type letter.
            plan: what to call it in an error.
            numbers: operands that are Python numbers: a float one counts as an element of the compute type
                where the operand may be that, and is rounded to what it may be elsewhere.
            kinds: of operands by name, of which what kind of number (bool, int, float) each is: where the arrays leave
                a choice, a type of that kind is preferred, then one of the next that holds it.

        Raises:
            Unsupported: there is none; the message names what each operand may be.
        """
        by_name = {operand.name: operand for operand in self.operands}
        fitting = [types for types in self.combinations if self._agree(types, seen, by_name)]
        if kinds and fitting:
            nearest = [self._distance(types, kinds, by_name) for types in fitting]
            fitting = [types for types, distance in zip(fitting, nearest) if distance == min(nearest)]
        for types in fitting:
            if all(
                DTYPES[self.word(operand, types)].kind != "float"
                or self.word(operand, types) == types[COMPUTE]
                for operand in numbers
            ):
                return types
        if fitting:
            return fitting[0]
        raise Unsupported(f"{plan}: {self._misfit(seen, by_name)}")

    def _word_of(self, name: str, types: Types, by_name: Mapping[str, Operand]) -> str:
        """What an operand or a type letter is, by its name."""
        return self.word(by_name[name], types) if name in by_name else types[name]

    def _agree(self, types: Types, seen: Mapping[str, str], by_name: Mapping[str, Operand]) -> bool:
        """Whether a choice of types is what has been seen of them."""
        return all(self._word_of(name, types, by_name) == word for name, word in seen.items())

    def _distance(self, types: Types, kinds: Mapping[str, str], by_name: Mapping[str, Operand]) -> int:
        """How far the types of some operands are from the kinds of numbers; furthest where they cannot hold them."""
        words = {name: self.word(by_name[name], types) for name in kinds}
        apart = [_KINDS.index(DTYPES[words[name]].kind) - _KINDS.index(kind) for name, kind in kinds.items()]
        return max([each if each >= 0 else len(_KINDS) for each in apart])

    def _misfit(self, seen: Mapping[str, str], by_name: Mapping[str, Operand]) -> str:
        """Which operand has the wrong type, and which types it may have: `b is f16, expected f32 (a is f32)`."""
        for name, word in seen.items():
            fits = [self._word_of(name, types, by_name) for types in self.combinations]
            if word not in fits:
                return f"{self._label(name)} is {word}, expected {one_of(fits)}"
        for name in reversed(seen):
            others = {other: word for other, word in seen.items() if other != name}
            fits = [
                self._word_of(name, types, by_name)
                for types in self.combinations
                if self._agree(types, others, by_name)
            ]
            if fits:
                beside = ", ".join(f"{self._label(other)} is {word}" for other, word in others.items())
                return f"{self._label(name)} is {seen[name]}, expected {one_of(fits)} ({beside})"
        given = ", ".join(f"{self._label(name)} is {word}" for name, word in seen.items())
        return f"no kernel takes these types together: {given}"

    def _label(self, name: str) -> str:
        if name in self.types:
            owner = next((operand.name for operand in self.outputs if operand.element == name), None)
            return owner or self.asked.get(name, "dtype")
        return name


def may_be_bytes(word: str) -> bool:
    """Whether an array of uint8 may hold elements of a type and others."""
    return DTYPES[word].packed or DTYPES[word].narrow_float


def compute_word(types: Types) -> str:
    """The compute type of a choice of element types: f64 where its first float is f64, else f32."""
    for word in types.values():
        if DTYPES[word].kind == "float":
            return DTYPES[word].compute
    return "f32"
