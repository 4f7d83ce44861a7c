"""`python -m skuda.checkpoints.worker NUMBER`: quantizes the files that its input names, a line of JSON each."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing

from skuda.checkpoints.weights import Backend, backend
from skuda.checkpoints.workers import Job


def serve(number: int) -> None:
    """Do the jobs that the input names."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the process that started this one, which ends it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is no answer
    on: dict[str, Backend] = {}
    try:
        for line in sys.stdin:
            for answer in _answers(Job(**json.loads(line)), on, number):
                print(json.dumps(answer), file=answers)
    except BrokenPipeError:  # the process that started this one has ended
        os._exit(1)


def _answers(job: Job, on: dict[str, Backend], number: int) -> Iterator[dict]:
    """What is said of a job while it is done. What is half written is removed, however this ends."""
    try:
        if job.device not in on:
            on[job.device] = backend(job.device, number)
        with closing(job.steps(on[job.device])) as steps:
            for done in steps:
                yield {"bytes": done}
        yield {"finished": True}
    except Exception as error:
        yield {"error": str(error), "kind": type(error).__name__}


if __name__ == "__main__":
    serve(int(sys.argv[1]))
