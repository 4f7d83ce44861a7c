"""Takes the YAML tree of a spec apart: what is not of the form that is expected is reported at its place."""

from __future__ import annotations

from skuda.codegen.diagnostics import Diagnostics, closest, suggestion
from skuda.codegen.yaml_tree import Mapping, Sequence, Text

# What stands in a section, for those who have left it empty.
_ENTRY = {
    "`functions:`": "square(x): x * x",
    "`ops:`": "double: {inputs: {x: 'T[*n]'}, outputs: {y: 'T[*n] = 2 * x'}}",
    "`types:`": "T: [f32, f16]",
    "`inputs:`": "x: T[*n]",
    "`attrs:`": "alpha: C = 1",
    "`let:`": "total: sum(x, over=d)",
    "`outputs:`": "y: T[*n] = 2 * x",
    "`backward:`": "d_x: T[*n] = 2 * d_y",
}


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
        """The entries of a mapping; one without any is reported, as what nobody meant to write."""
        if isinstance(node, Mapping) and node.entries:
            return node.entries
        if isinstance(node, Mapping) or (isinstance(node, Text) and node.value == ""):
            needed = what in ("`ops:`", "`inputs:`", "`outputs:`")
            help = f"write entries under it, {self.such_as(what)}" + (", or remove it" if not needed else "")
            self.error(node.place, f"{what} is empty", help)
        else:
            self.error(node.place, f"{what} needs `name: value` lines, this is {_shape(node)}", self.such_as(what))
        return ()

    def such_as(self, section: str) -> str:
        """An entry of a section, as a help text."""
        return f"such as `{_ENTRY[section]}`"

    def text(self, node, what: str, help: str | None = None) -> Text | None:
        """A scalar that is not empty."""
        if isinstance(node, Text) and node.value.strip():
            return node
        empty = isinstance(node, Text)
        self.error(node.place, f"{what} is empty" if empty else f"{what} needs a text, this is {_shape(node)}", help)
        return None


def _shape(node) -> str:
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    return "a text" if node.value else "empty"
