"""What can go wrong, one class a failure. Each is a SkudaError and a builtin, so either can be caught."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType


class SkudaError(Exception):
    """Base of every error that this package raises on purpose."""


class InvalidProblem(SkudaError, ValueError):
    """A descriptor or an argument contradicts the operation: a shape, a range, an overlap."""


class Unsupported(SkudaError, NotImplementedError):
    """The request is meaningful but no kernel in the catalog serves it; the message names the nearest."""


class BufferTooSmall(SkudaError, ValueError):
    """A workspace (or a packed buffer) has fewer bytes than the plan needs."""


class MisalignedOperand(SkudaError, ValueError):
    """A pointer is not a multiple of its element's size."""


class DeviceMismatch(SkudaError, ValueError):
    """Arguments live on different devices, or on one that the plan's backend cannot reach."""


class ElementMismatch(SkudaError, TypeError):
    """An array's element type is not the one that the plan was selected for."""


class NotAnArray(SkudaError, TypeError):
    """An argument is neither a number nor an array of a kind that can be read: NumPy, CuPy, torch, DLPack."""


class NotAStream(SkudaError, TypeError):
    """What is to be launched on is no CUDA stream."""


class UnknownSymbol(SkudaError, LookupError):
    """A text is not the symbol of any KernelSku in the catalogs that are loaded."""


class MissingDependency(SkudaError, ImportError):
    """An optional package is needed; the message names the extra that installs it."""


class CompileError(SkudaError, RuntimeError):
    """NVRTC refused a generated source: a defect of the row or of a template, never of the arguments."""


class SpecError(SkudaError, ValueError):
    """A spec file (ops.yaml) has mistakes; the message lists all of them with their places."""


class BadFile(SkudaError, ValueError):
    """A data file (a safetensors checkpoint) is truncated or broken; the message says where."""


class WorkerLost(SkudaError, RuntimeError):
    """A process that did a part of the work ended before it was done, or cannot be reached."""


_MOST_SHOWN = 80  # characters of a value in a message


def one_of(words: Iterable[str]) -> str:
    """`f32, f64 or f16`, each word once."""
    *others, last = dict.fromkeys(words)
    return f"{', '.join(others)} or {last}" if others else last


def shown(value) -> str:
    """A caller's value for a message: its `repr` on one line, cut where it is long."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # integers of thousands of digits, and what a foreign class may raise
        cls = type(value)
        return f"a {cls.__qualname__}"
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


def optional_module(name: str, needed_by: str, extra: str) -> ModuleType:
    """Import a module of an optional package.

    Args:
        name: of the module.
        needed_by: what cannot do without it, for the message.
        extra: of skuda, which installs the package.

    Raises:
        MissingDependency: it is not installed; the message names the extra.
    """
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise MissingDependency(f"{needed_by} needs the package {package}: pip install 'skuda[{extra}]'") from error
