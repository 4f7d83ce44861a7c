"""`skuda.define`: an operation that is made in a Python session, from the text of a row.

The text is read, checked and rendered as `skuda generate` does it, but no file is written: the plan module and the
CUDA source stay in memory. The machine code of its kernels is kept on disk by their content, as for any kernel.
Printers write from typed trees, so a text that comes from a stranger runs no code.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import linecache
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any

from skuda.codegen import spec as specs
from skuda.codegen.describe import DescribedProgram
from skuda.codegen.diagnostics import Diagnostics, Place
from skuda.codegen.names import check_name
from skuda.codegen.notebook import markdown
from skuda.codegen.program import Program, Row, Spec
from skuda.codegen.render import PLANS, SOURCE, gradients_of, render
from skuda.codegen.yaml_tree import Text
from skuda.errors import SpecError, Unsupported, shown
from skuda.launch import registry
from skuda.model.operation import section_of
from skuda.names import SESSION
from skuda.plans.plan import Plan

_CALLED = "define"  # what messages call a text
_SECTIONS = ("types", "inputs", "attrs", "let", "outputs", "backward", "functions")

_lock = threading.RLock()
_by_text: dict[tuple[str | None, str], DefinedOperation] = {}
_by_name: dict[str, DefinedOperation] = {}  # those that calls may use


def define(
    row: str | None = None,
    /,
    *,
    name: str | None = None,
    kind: str | None = None,
    doc: str | None = None,
    types: Mapping[str, str | Sequence[str]] | str | None = None,
    inputs: Mapping[str, str] | str | None = None,
    attrs: Mapping[str, str] | str | None = None,
    requires: str | Sequence[str] | None = None,
    let: Mapping[str, str] | str | None = None,
    outputs: Mapping[str, str] | str | None = None,
    backward: Mapping[str, str] | str | None = None,
    functions: Mapping[str, str] | str | None = None,
) -> DefinedOperation:
    """Makes an operation from a row, given as a text or by keyword arguments:

        leaky_relu = skuda.define(\"\"\"
            leaky_relu:
              inputs: {x: "T[*shape]"}
              attrs: {alpha: C = 0.01}
              outputs:
                y: T[*shape] = where(x > 0, x, alpha * x)
              backward:
                d_x: T[*shape] = where(x > 0, d_y, alpha * d_y)
            \"\"\")

    It runs on the CPU and on GPUs, with gradients, under torch and JAX, as one of the catalog does. Without
    `backward:`, or with `backward: derived`, gradients are derived from the formulas; printing the operation shows
    them. The same text gives the same object. Another text under the same name replaces the operation: calls of the
    earlier object raise then.

    Args:
        row: the text of a row as in ops.yaml: its keys, or its name with these under it. None if keywords say it.
        name: the operation's name, if the text has none; made from the text if neither has one.
        kind, doc, types, inputs, attrs, requires, let, outputs, backward: the keys of a row, each as a mapping (a list
            for several types or conditions) of texts, or as the text that stands under it.
        functions: functions of its own that the formulas call, such as `{"square(x)": "x * x"}`.

    Returns:
        The operation, which is called as a function of the catalog is; its gradient is `.backward`.

    Raises:
        SpecError: the row has mistakes; the message has each with its line and carets.
    """
    said = {"functions": functions, "kind": kind, "doc": doc, "types": types, "inputs": inputs, "attrs": attrs}
    said |= {"requires": requires, "let": let, "outputs": outputs, "backward": backward}
    said = {key: value for key, value in said.items() if value is not None}
    if row is not None and said:
        raise SpecError(f"{_CALLED}: got a text and {', '.join(f'{key}=' for key in said)}, expected one of both")
    if row is None and not said:
        raise SpecError(f"{_CALLED}: got no row, expected its text or keywords such as inputs= and outputs=")
    if row is not None and not isinstance(row, str):
        raise SpecError(f"{_CALLED}: the row is {shown(row)}, expected a text")
    if name is not None:
        _check_name(name)
    text = _written(said) if row is None else row
    with _lock:
        found = _by_text.get((name, text))
        if found is None:
            found = _by_text[name, text] = _made(text, name)
        found._activate()
        return found


class DefinedFunction:
    """One direction of an operation that was defined in this session. It is called as a function of the catalog is.

    Attributes:
        plan_class: the class of its plans.
        backward: the function of its gradient; None where there is none, and of a gradient.
    """

    def __init__(self, function: Callable[..., Any], plan_class: type[Plan], program: Program):
        self.plan_class = plan_class
        self.backward: DefinedFunction | None = None
        self.__name__ = self.__qualname__ = function.__name__
        self.__doc__ = function.__doc__
        self._function = function
        self._program = program
        self._replaced = False

    def __call__(self, *inputs, **options):
        if self._replaced:
            raise Unsupported(f"{self.__name__} was defined anew since; call what the later skuda.define returned")
        return self._function(*inputs, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._function)

    @cached_property
    def _described(self) -> DescribedProgram:
        return DescribedProgram(self._program)

    @property
    def _head(self) -> str:
        """The call, with defaults as the row has them."""
        signature = self._described.signature
        for attribute in self._described.operation.attributes:
            if attribute.default is not None and not attribute.names_axes:
                signature = re.sub(rf"\b{attribute.name}=None", f"{attribute.name}={attribute.default}", signature)
        return f"{self.__name__}({signature})"

    def __repr__(self):
        described = self._described
        formulas = [f"    {o.name}: {o.signature} = {described.formulas[o.name]}" for o in described.operation.outputs]
        gradient = [] if self.backward is None else ["", repr(self.backward)]
        return "\n".join([self._head, *formulas, *gradient])

    def _latex(self) -> list[str]:
        gradient = [] if self.backward is None else self.backward._latex()
        return [*self._described.latex, *gradient]

    def _repr_latex_(self) -> str:
        """The formulas as mathematics, for a notebook."""
        return "\n\n".join(f"$$\\displaystyle {line}$$" for line in self._latex())

    def _repr_markdown_(self) -> str:
        """The signature, and the formulas as mathematics, for a notebook."""
        gradient = [] if self.backward is None else [self.backward._repr_markdown_()]
        return "\n\n".join([markdown(self._described, self._head), *gradient])


class DefinedOperation(DefinedFunction):
    """An operation that was defined in this session: its forward pass, called as a function of the catalog is.

    Attributes:
        text: of its row.
        catalog: the catalog of this one row.
    """

    def __init__(self, row: Row, text: str, said_name: str | None, catalog: SessionCatalog):
        module = catalog.module(row.name)
        functions = [
            DefinedFunction(getattr(module, op.function), getattr(module, f"{op.class_name}Plan"), program)
            for program in row.programs
            if (op := program.operation)
        ]
        forward, *backward = functions
        super().__init__(forward._function, forward.plan_class, forward._program)
        self.text = text
        self.catalog = catalog
        self.backward = backward[0] if backward else None
        self._said_name = said_name

    def __reduce__(self):
        return _defined_again, (self.text, self._said_name)

    def _activate(self) -> None:
        """Makes its kernels and operators known, in place of those of an earlier operation of its name."""
        before = _by_name.get(self.__name__)
        if before is self:
            return
        if before is not None:
            registry.forget(before.catalog)
            before._set_replaced(True)
        _by_name[self.__name__] = self
        registry.register(self.catalog)
        self._set_replaced(False)
        if "skuda.torch" in sys.modules:
            sys.modules["skuda.torch"].register_operators()

    def _set_replaced(self, replaced: bool) -> None:
        for each in filter(None, (self, self.backward)):
            each._replaced = replaced


def _defined_again(text: str, name: str | None) -> DefinedOperation:
    """What a pickle of an operation becomes."""
    return define(text, name=name)


class SessionCatalog(registry.Catalog):
    """A package that is nowhere but in memory.

    Args:
        package: its import name.
        spec: what it is rendered from, one row.
    """

    def __init__(self, package: str, spec: Spec):
        (row,) = spec.rows
        forms = {row.name: tuple(form.name for form in row.every[1:])} if row.every[1:] else {}
        super().__init__(package, (row.name,), forms, gradients_of(spec))
        self.spec = spec
        files = render(spec)
        self._source = files[SOURCE.path.format(name=row.name)]
        path = PLANS.path.format(name=row.name)
        for name, text in ((package, ""), (f"{package}.plans", ""), (f"{package}.plans.{row.name}", files[path])):
            _import(name, f"<{package}/{path}>", text)
        sys.modules[package].__dict__.update(CATALOG=self, __getattr__=self.attribute)

    def source(self, name: str) -> str:
        """The text of a CUDA source, by the name that operations give it."""
        return section_of(self._source, name)


def _import(name: str, file_name: str, text: str) -> None:
    """Makes a module of a text; its lines are shown in tracebacks."""
    module = sys.modules[name] = ModuleType(name)
    if text:
        linecache.cache[file_name] = (len(text), None, text.splitlines(keepends=True), file_name)
        exec(compile(text, file_name, "exec"), module.__dict__)
    else:
        module.__path__ = []


def _made(text: str, name: str | None) -> DefinedOperation:
    """The operation of a text."""
    digest = hashlib.sha256(f"{name}\n{text}".encode()).hexdigest()[:8]
    spec = specs.loads_row(text, name or f"op_{digest}", _CALLED)
    (row,) = spec.rows
    if name is not None and row.name != name:
        raise SpecError(f"{_CALLED}: the text names the operation {row.name!r}, but name is {name!r}")
    return DefinedOperation(row, text, name, SessionCatalog(f"{SESSION}.{row.name}_{digest}", spec))


def _check_name(name) -> None:
    """Refuses a name that no operation can have."""
    if not isinstance(name, str):
        raise SpecError(f"{_CALLED}: name is {shown(name)}, expected a text")
    diagnostics = Diagnostics("name", name, "defined")
    check_name(Text(name, Place(1, 1, max(len(name), 1))), diagnostics)
    diagnostics.raise_if_any()


def _written(said: Mapping[str, Any]) -> str:
    """The text of a row that keyword arguments say."""
    lines: list[str] = []
    for key, value in said.items():
        if isinstance(value, Mapping):
            lines.append(f"{key}:")
            lines += [line for name, each in value.items() for line in _entry(name, each, f"{key} {name}")]
        elif key in _SECTIONS and isinstance(value, str):
            lines += [f"{key}:", *(f"  {line}" for line in inspect.cleandoc(value).splitlines())]
        else:
            lines.append(f"{key}: {_value(value, key)}")
    return "\n".join([*lines, ""])


def _entry(name: str, value, called: str) -> list[str]:
    """A line of a section, or a section in it, as `let:` is in `backward:`."""
    if isinstance(value, Mapping):
        return [f"  {_scalar(name)}:", *(f"    {_scalar(each)}: {_value(of, called)}" for each, of in value.items())]
    return [f"  {_scalar(name)}: {_value(value, called)}"]


def _value(value, called: str) -> str:
    """A text, a number or a list of them, as YAML."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_scalar(each, inside=True) for each in value)}]"
    if not isinstance(value, (str, int, float)):
        raise SpecError(f"{_CALLED}: {called} is {shown(value)}, expected a text")
    return _scalar(value)


def _scalar(value, inside: bool = False) -> str:
    """A text as YAML, quoted where YAML would read it as anything else, also `inside` of brackets."""
    text = str(value)
    plain = re.fullmatch(r"[A-Za-z0-9_][^\n\r]*", text) and not re.search(r":(\s|$)|\s#|\s$", text)
    return text if plain and not (inside and re.search(r"[\[\]{},:]", text)) else json.dumps(text, ensure_ascii=False)
