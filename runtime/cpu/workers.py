"""Threads that share the work of a call on the CPU."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import count


@cache
def threads() -> int:
    """How many CPUs the process may use."""
    return len(_affinity()) or os.cpu_count() or 1


def run(work: Callable[[int], None], shares: int) -> None:
    """Does the work of each share, which it gets by its number, by this thread and by others.

    This one does not wait for those that come when none is left.
    """
    numbers = count()

    def take() -> None:
        while (share := next(numbers)) < shares:
            work(share)

    pool = _pool()
    pool.keep_off()
    others = [pool.submit(take) for _ in range(min(shares, threads()) - 1)]
    try:
        take()
    finally:  # what is interrupted ends first: its arguments are the next call's
        for each in others:
            if not each.cancel():
                each.result()


class Workers(ThreadPoolExecutor):
    """Threads that wait for work, and do it on other CPUs than the thread that wakes them.

    Linux may wake a thread on its waker's CPU though another one is idle, which it finds some milliseconds later: then
    the two take turns, and a call takes twice as long. So the threads are kept off that CPU.
    """

    def __init__(self) -> None:
        super().__init__(threads(), "skuda", initializer=self._begin)
        self._cpus = _affinity()
        self._native: list[int] = []
        self._kept = (-1, 0)  # off which CPU, and how many threads

    def _begin(self) -> None:
        self._native.append(threading.get_native_id())

    def keep_off(self) -> None:
        """Keeps all threads off this thread's CPU, where the system can."""
        here = _cpu()
        others = self._cpus - {here}
        wanted = here, len(self._native)
        if here < 0 or not others or wanted == self._kept:
            return
        self._kept = wanted
        for each in [*self._native]:
            try:
                os.sched_setaffinity(each, others)
            except OSError:  # the process may no longer use these, or may not choose: they go on as they are
                return


def _affinity() -> frozenset[int]:
    """The CPUs that this thread may use; none where the system does not tell."""
    affinity = getattr(os, "sched_getaffinity", None)
    return frozenset(affinity(0)) if affinity else frozenset()


@cache
def _sched_getcpu() -> Callable[[], int] | None:
    """The C library's function that tells a thread's CPU."""
    return getattr(ctypes.CDLL(None), "sched_getcpu", None) if hasattr(os, "sched_setaffinity") else None


def _cpu() -> int:
    """The CPU that this thread runs on; below 0 where the system does not tell."""
    asked = _sched_getcpu()
    return asked() if asked else -1


@cache
def _pool() -> Workers:
    return Workers()


if hasattr(os, "register_at_fork"):  # a child has none of its parent's threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
