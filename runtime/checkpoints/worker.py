"""`python -m skuda.checkpoints.worker NUMBER`: quantizes the files that its input names, a line of JSON each."""

from __future__ import annotations

import json
import os
import signal
import sys
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
    for line in sys.stdin:
        job = Job(**json.loads(line))
        try:
            if job.device not in on:
                on[job.device] = backend(job.device, number)
            with closing(job.steps(on[job.device])) as steps:  # removes what is half written, however it ends
                for done in steps:
                    print(json.dumps({"bytes": done}), file=answers)
            print(json.dumps({"finished": True}), file=answers)
        except BrokenPipeError:  # the process that started this one has ended
            os._exit(1)
        except Exception as error:
            print(json.dumps({"error": str(error), "kind": type(error).__name__}), file=answers)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
