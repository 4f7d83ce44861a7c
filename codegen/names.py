"""Names of operands, attributes, functions and operations: their spelling, and the words they must not be."""

from __future__ import annotations

import keyword
import re

from skuda.codegen.diagnostics import Diagnostics
from skuda.codegen.intrinsics import CONSTANTS
from skuda.codegen.nodes import PLACED
from skuda.codegen.operators import FUNCTIONS
from skuda.codegen.yaml_tree import Text
from skuda.model.dtypes import DTYPES
from skuda.model.operation import AS, FORM
from skuda.names import PUBLIC

_FIELD = re.compile(r"(?:\w+_)?element")  # what fields of descriptors are called that hold element types
LONGEST = 64  # letters of a name
LONGEST_OF_FORM = 96  # letters of the name of a form of a row
IDENTIFIER = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")

# Words of C++ and of the generated sources that a name must not be; Python's own are in `keyword`.
RESERVED = frozenset(
    """alignas alignof asm auto bool case catch char class const constexpr continue default delete do double
    else enum explicit export extern false float for friend goto if inline int long mutable namespace new
    noexcept nullptr operator private protected public register requires return short signed sizeof static
    struct switch template this throw true try typedef typeid typename union unsigned using virtual void
    volatile while and_eq bitand bitor compl not_eq or_eq xor xor_eq concept consteval constinit decltype
    co_await co_return co_yield const_cast dynamic_cast reinterpret_cast static_cast static_assert
    thread_local linux unix
    self
    device dtype input_dtype keepdims like np out reference row shape stream without""".split()
) | frozenset(DTYPES) | frozenset(
    word
    for row in FUNCTIONS.values()
    for text in (row.cuda, row.numpy)
    for word in re.findall(r"[a-z_]\w*", text)
) | CONSTANTS.keys()


def check_name(name: Text, diagnostics: Diagnostics) -> bool:
    """Whether a text can be the name of an operation; reports why not."""
    if not check_spelling(name, "the operation's name", diagnostics):
        return False
    if keyword.iskeyword(name.value) or name.value in PUBLIC:
        what = "a reserved word" if keyword.iskeyword(name.value) else "a public name of skuda or of a catalog"
        diagnostics.error(name.place, f"the operation's name `{name.value}` is {what}", "choose another name")
        return False
    tail = name.value.rsplit("_", 1)[-1]
    if tail in DTYPES or tail in ("backward", "scale"):
        diagnostics.error(
            name.place, f"an operation's name cannot end with `_{tail}`", "kernel symbols add that part"
        )
        return False
    forms = {FORM: "what a row is without an optional input", AS: "what a row is for a word of a choice"}
    for part, what in forms.items():
        if part in f"{name.value}_":
            message = f"an operation's name cannot have `{part}` in it"
            diagnostics.error(name.place, message, f"so is called {what}")
            return False
    return True


def check_identifier(text: Text, what: str, diagnostics: Diagnostics) -> bool:
    """Whether a name can be an operand's, attribute's or function's in every target; reports why not."""
    if not check_spelling(text, what, diagnostics):
        return False
    if text.value.startswith(PLACED):
        diagnostics.error(text.place, f"{what} `{text.value}` begins as names of positions do", "choose another name")
        return False
    if text.value in RESERVED or keyword.iskeyword(text.value) or _FIELD.fullmatch(text.value):
        diagnostics.error(text.place, f"{what} `{text.value}` is a reserved word", "choose another name")
        return False
    return True


def is_reserved_of_dimensions(name: str) -> bool:
    """Whether a word cannot be a dimension: Python's, and what else a descriptor has by name."""
    return keyword.iskeyword(name) or name == "self" or bool(_FIELD.fullmatch(name))


def check_spelling(text: Text, what: str, diagnostics: Diagnostics) -> bool:
    """Whether a text has the form of a name; reports why not."""
    word = text.value
    if IDENTIFIER.fullmatch(word) and len(word) <= LONGEST:
        return True
    help = f"use a-z, 0-9 and single _ between them, {LONGEST} at most"
    diagnostics.error(text.place, f"{what} {_quoted(word)} is not a name", help)
    return False


def _quoted(word: str) -> str:
    return "`" + (word if len(word) <= 40 else word[:37] + "...") + "`"
