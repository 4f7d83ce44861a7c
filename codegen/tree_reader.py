"""Takes the YAML tree of a spec apart: what is not of the form that is expected is reported at its place."""

from __future__ import annotations

from skuda.codegen.diagnostics import Diagnostics, closest, suggestion
from skuda.codegen.yaml_tree import Mapping, Sequence, Text


class TreeReader:
    """What the readers of a file and of a row share."""

    def __init__(self, diagnostics: Diagnostics):
        self.diagnostics = diagnostics
        self.error = diagnostics.error

    def keys(self, node, known: tuple[str, ...], what: str) -> dict | None:
        """The values of a mapping by their keys, or None where it is none; misspelled keys count as meant."""
        if not isinstance(node, Mapping):
            self.error(
                node.place,
                f"{what} needs `key: value` lines, this is {_shape(node)}",
                f"known keys: {', '.join(known)}",
            )
            return None
        fields = {key.value: value for key, value in node.entries}
        for key, value in node.entries:
            if key.value not in known:
                help = suggestion(key.value, known, f"known keys: {', '.join(known)}")
                self.error(key.place, f"{what} has no key `{key.value}`", help)
                near = closest(key.value, known)
                if near:
                    fields.setdefault(near, value)
        return fields

    def mapping(self, node, what: str) -> tuple[tuple[Text, object], ...]:
        """The entries of a mapping, none where nothing is written."""
        if isinstance(node, Mapping):
            return node.entries
        if not (isinstance(node, Text) and node.value == ""):
            self.error(node.place, f"{what} needs `name: value` lines, this is {_shape(node)}")
        return ()

    def text(self, node, what: str) -> Text | None:
        """A scalar that is not empty."""
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
