"""Work on the rows of a large spec by two processes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TypeVar

T = TypeVar("T")

_FIRST, _SECOND = slice(0, None, 2), slice(1, None, 2)
_MANY = 50  # rows: another process takes longer than fewer do


def in_halves(count: int, work: Callable[[slice], T]) -> tuple[T, T] | None:
    """What some work makes of every second one of many things, and what another process makes of the others; None where
    that is not worth its while, or where the other process cannot be started safely.

    Args:
        count: of the things.
        work: what is done with those that a slice chooses. What it returns can be pickled; of the second half nothing
            else that it does is seen.
    """
    # The other process starts as a copy of this one, which has no other threads then.
    if sys.platform != "linux" or count <= _MANY or (os.cpu_count() or 1) < 2 or threading.active_count() > 1:
        return None
    context = get_context("fork")  # what it is given is not copied
    receiver, sender = context.Pipe(duplex=False)
    other = context.Process(target=_send, args=(sender, work), daemon=True)
    other.start()
    sender.close()
    try:
        first = work(_FIRST)
        try:
            second = receiver.recv()
        except EOFError:  # it ended without them
            second = work(_SECOND)
    except BaseException:
        other.terminate()  # it may wait for someone to read what it has
        raise
    finally:
        other.join()
    return first, second


def interleaved(first: Sequence[T], second: Sequence[T]) -> list[T]:
    """Many things in their order, of two halves."""
    both: list[T] = [*first, *second]
    both[_FIRST], both[_SECOND] = first, second
    return both


def _send(sender: Connection, work: Callable[[slice], T]) -> None:
    sender.send(work(_SECOND))
