"""How a run of the bench is interrupted: between rows, and what was measured is written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopped_like_an_interrupt() -> Iterator[None]:
    """Within, the first SIGTERM does what Ctrl-C does. `timeout` sends one to the process and one to its group."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.default_int_handler(number, frame)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is stop:  # else what was measured is still to be written
            signal.signal(signal.SIGTERM, before)


@contextmanager
def told_afterwards() -> Iterator[None]:
    """Within, Ctrl-C and SIGTERM wait for the end: neither a graph in capture nor a peer in the middle of a call bears
    an exception. A second Ctrl-C does not wait. What is ignored stays so, as Ctrl-C is of a job in the background."""
    if threading.current_thread() is not threading.main_thread():  # which has the signals
        yield
        return
    waiting: list[int] = []

    def wait(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and number in waiting:
            signal.default_int_handler(number, frame)
        waiting.append(number)

    told = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, wait) for number in told}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if waiting:
        signal.raise_signal(waiting[0])
