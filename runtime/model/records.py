"""Immutable data. Like a frozen dataclass, but nothing is compiled when such a class is made.

`dataclasses` writes and compiles the methods of each class at import: 0.3 to 0.5 ms a class, of the 10 ms that a first
call may take. The functions of that module (`fields`, `replace`, `asdict`) serve records too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self, dataclass_transform

import numpy as np


class Written:
    """`__doc__` of a class whose text is written when somebody asks for it."""

    def __init__(self, write: Callable[[], str]):
        self._write = write

    def __get__(self, instance, cls) -> str:
        return self._write()


def _annotation(cls: type, name: str) -> str:
    """A field's annotation, by the class that declares it."""
    return next(found[name] for each in cls.__mro__ if name in (found := vars(each).get("__annotations__", {})))


class DataclassFields:
    """`__dataclass_fields__` of a class that has `_fields` and `_defaults`, made when `dataclasses` asks for it."""

    def __init__(self):
        self._of: dict[type, dict] = {}

    def __get__(self, record, cls):
        if cls not in self._of:
            self._of[cls] = self._make(cls)
        return self._of[cls]

    @staticmethod
    def _make(cls: type) -> dict:
        from dataclasses import field, make_dataclass

        made = []
        for name in cls._fields:
            default = [field(default=cls._defaults[name])] if name in cls._defaults else []
            made.append((name, _annotation(cls, name), *default))
        return make_dataclass(cls.__name__, made).__dataclass_fields__


class _Signature:
    """`__signature__` of a record, made when `inspect` or `help` asks for it."""

    def __get__(self, record, cls: type[Record]):
        from inspect import Parameter, Signature

        made = [
            Parameter(
                name,
                Parameter.POSITIONAL_OR_KEYWORD,
                default=cls._defaults.get(name, Parameter.empty),
                annotation=_annotation(cls, name),
            )
            for name in cls._fields
        ]
        return Signature(made)


_FLOATS = (float, np.floating)


def told_apart(value: Any) -> Any:
    """A value as a part of a key: 0.0 and -0.0 differ, and every NaN is the same."""
    return (float, float(value).hex()) if isinstance(value, _FLOATS) else value


@dataclass_transform(frozen_default=True)
class Record:
    """Base of classes whose fields are their annotations, in order, after those of the class they derive from; a class
    attribute is a field's default.

    Two of one class are equal if their fields are, floats to the bit; the fields are hashed.

    Class arguments:
        aside: fields that equality, hash and `repr` leave out.
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    _names: ClassVar[frozenset[str]] = frozenset()
    _compared: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}
    __dataclass_fields__ = DataclassFields()
    __signature__ = _Signature()

    def __init_subclass__(cls, aside: tuple[str, ...] = ()) -> None:
        own, base = vars(cls), super(cls, cls)
        fields = tuple(dict.fromkeys((*base._fields, *own.get("__annotations__", ()))))
        cls._fields = cls.__match_args__ = fields
        cls._names = frozenset(fields)
        cls._compared = tuple([name for name in fields if name not in aside])
        cls._defaults = {**base._defaults, **{name: own[name] for name in fields if name in own}}

    def __init__(self, *values: Any, **named: Any):
        fields, given = self._fields, named
        if values:
            given = dict(zip(fields, values))
            if len(values) > len(fields) or given.keys() & named.keys():
                raise TypeError(f"{type(self).__name__}: more values than fields ({', '.join(fields)})")
            given |= named
        if len(given) < len(fields):
            given = {**self._defaults, **given}
        if given.keys() != self._names:
            raise TypeError(f"{type(self).__name__}: got {', '.join(given)}, expected {', '.join(fields)}")
        self.__dict__.update(given)

    def _key(self) -> tuple:
        own = self.__dict__
        values = [own[name] for name in self._compared]
        return tuple([told_apart(value) if isinstance(value, _FLOATS) else value for value in values])

    def __eq__(self, other):
        if self is other:
            return True
        if type(other) is not type(self):
            return NotImplemented
        own, others = self.__dict__, other.__dict__
        for name in self._compared:  # most that differ do so in the first field
            one, another = own[name], others[name]
            if one is not another and told_apart(one) != told_apart(another):
                return False
        return True

    def __hash__(self):
        own = self.__dict__
        found = own.get("_hash")
        if found is None:  # operations are keys of many caches, and hold much
            found = own["_hash"] = hash(self._key())
        return found

    def __getstate__(self):
        """For copies and pickles: hashes differ from process to process."""
        return {name: self.__dict__[name] for name in self._fields}

    def but(self, **fields: Any) -> Self:
        """The same record but for some fields."""
        return type(self)(**{**self.__getstate__(), **fields})

    def __repr__(self):
        shown = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self._compared)
        return f"{type(self).__qualname__}({shown})"

    def __setattr__(self, name: str, value):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot delete field {name!r}")


class Args:
    """Base of the args classes: the operands of one run, none of which can be replaced.

    It is a dataclass to the functions of `dataclasses`. Fields are properties without setters, which costs less at each
    call than a `__setattr__` that refuses.

    Attributes:
        _values: the operands in order, set by `__init__`.
        _ready: what `Plan.run` knows of them (see `launch`).
    """

    _values: tuple
    _ready: Any = None
    _fields: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}
    __dataclass_fields__ = DataclassFields()

    def __init_subclass__(cls) -> None:
        cls._fields = cls.__match_args__ = tuple(vars(cls)["__annotations__"])
        for index, name in enumerate(cls._fields):
            read_only = property(lambda self, index=index: self._values[index])
            read_only.__set_name__(cls, name)  # for the message of whoever sets it
            setattr(cls, name, read_only)

    @staticmethod
    def of(name: str, fields: tuple[str, ...], package: str, write: Callable[[], str]) -> type[Args]:
        """A class of such operands, whose `__init__` takes them as Python's own functions do.

        Args:
            name: of the class.
            fields: the operands' names.
            package: what the class is an attribute of.
            write: makes its docstring.
        """
        made: dict[str, Any] = {}
        names = ", ".join(fields)
        exec(f"def __init__(self, {names}):\n    self._values = ({names},)", made)
        own = {"__module__": package, "__doc__": Written(write), "__init__": made["__init__"]}
        return type(Args)(name, (Args,), {**own, "__annotations__": dict.fromkeys(fields, "Any")})

    def __repr__(self):
        shown = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self._values))
        return f"{type(self).__qualname__}({shown})"
