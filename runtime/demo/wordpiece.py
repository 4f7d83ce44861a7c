"""Text to the tokens of a BERT vocabulary: words and punctuation apart, each in the longest pieces that there are."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path

START, END, UNKNOWN = "[CLS]", "[SEP]", "[UNK]"
_MOST = 100  # characters of a word; a longer one is unknown


def read_vocabulary(path: Path) -> dict[str, int]:
    """The number of each token: its line in the file."""
    return {token: index for index, token in enumerate(path.read_text(encoding="utf-8").splitlines())}


def tokens(text: str, vocabulary: Mapping[str, int]) -> list[int]:
    """The tokens of a text, lower-cased and without accents, between those of its start and its end."""
    pieces = [piece for word in _words(text) for piece in _pieces(word, vocabulary)]
    return [vocabulary[piece] for piece in (START, *pieces, END)]


def _words(text: str) -> Iterator[str]:
    plain = [each for each in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(each) != "Mn"]
    apart = "".join(f" {each} " if _is_punctuation(each) else each for each in plain)
    return iter(apart.split())


def _is_punctuation(character: str) -> bool:
    ascii_symbol = character.isascii() and character.isprintable() and not character.isalnum() and character != " "
    return ascii_symbol or unicodedata.category(character).startswith("P")


def _pieces(word: str, vocabulary: Mapping[str, int]) -> list[str]:
    found, start = [], 0
    while start < len(word) <= _MOST:
        prefix = "##" if start else ""
        ends = range(len(word), start, -1)
        end = next((end for end in ends if prefix + word[start:end] in vocabulary), None)
        if end is None:
            return [UNKNOWN]
        found.append(prefix + word[start:end])
        start = end
    return found or [UNKNOWN]
