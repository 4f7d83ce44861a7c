"""Several processes of this machine that quantize a file each, and what they say to the one that started them.

A process runs `skuda.checkpoints.worker`. It reads a line of JSON for each job and answers with lines:
`{"bytes": n}` while it works, `{"finished": true}`, or `{"error": text, "kind": class}`. It ends when its input does,
so none outlives the process that started it by more than a part of a tensor.
"""

from __future__ import annotations

import json
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from skuda import errors
from skuda.checkpoints.scheme import Scheme
from skuda.checkpoints.shard import quantize_shard
from skuda.checkpoints.weights import Backend, backend

Step = tuple[str, int | None]  # the name of a file, and bytes of it that are newly done; None: it is finished


@dataclass(frozen=True)
class Job:
    """One file to quantize, in what JSON holds.

    Attributes:
        source, output: paths of the file and of the one to write.
        scheme: such as `per_group:s4`.
        group_size: of per_group.
        keep: patterns of the names of tensors to leave as they are.
        device: `auto`, `cpu` or `cuda`.
    """

    source: str
    output: str
    scheme: str
    group_size: int
    keep: Sequence[str]
    device: str

    @property
    def name(self) -> str:
        """The name of the file."""
        return Path(self.source).name

    def steps(self, on: Backend) -> Iterator[int]:
        """Do it; `quantize_shard` says what is given and raised."""
        scheme = Scheme.parse(self.scheme, self.group_size)
        return quantize_shard(Path(self.source), Path(self.output), scheme, self.keep, on)


def in_this_process(jobs: Sequence[Job]) -> Iterator[Step]:
    """Do one job after the other."""
    for job in jobs:
        for done in job.steps(backend(job.device)):
            yield job.name, done
        yield job.name, None


def in_processes(jobs: Sequence[Job], count: int) -> Iterator[Step]:
    """Do the jobs in several processes, the n-th of which uses the n-th GPU, counted in a circle.

    Raises:
        WorkerLost: a process ended in the middle of its work.
        SkudaError: what a process raised. In either case the others are ended, and leave nothing half written.
    """
    waiting, running = list(jobs), {}
    processes = [_started(number) for number in range(min(count, len(jobs)))]
    with selectors.DefaultSelector() as selector:
        try:
            for process in processes:
                selector.register(process.stdout, selectors.EVENT_READ, process)
                _hand(process, waiting, running)
            while running:
                for key, _ in selector.select():
                    process: subprocess.Popen = key.data
                    job = running[process.pid]
                    answer = _answer(process, job)
                    if "bytes" in answer:
                        yield job.name, answer["bytes"]
                        continue
                    yield job.name, None
                    if not _hand(process, waiting, running):
                        selector.unregister(process.stdout)
        finally:
            for process in processes:
                process.stdin.close()
                process.terminate()
            for process in processes:
                process.wait()
                process.stdout.close()


def _started(number: int) -> subprocess.Popen:
    words = [sys.executable, "-m", "skuda.checkpoints.worker", str(number)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


def _hand(process: subprocess.Popen, waiting: list[Job], running: dict[int, Job]) -> bool:
    """Give a process the next job; False where there is none."""
    if not waiting:
        del running[process.pid]
        return False
    running[process.pid] = waiting.pop(0)
    try:
        process.stdin.write(json.dumps(asdict(running[process.pid])).encode() + b"\n")
    except BrokenPipeError:
        pass  # it has ended; its output says so
    return True


def _answer(process: subprocess.Popen, job: Job) -> dict:
    line = process.stdout.readline()
    if not line.endswith(b"\n"):
        status = process.wait()
        how = f"signal {-status} ({signal.Signals(-status).name})" if status < 0 else f"status {status}"
        raise errors.WorkerLost(
            f"the process that quantized {job.source} ended with {how}, expected it to finish; files that are finished "
            "stay, and the same call goes on from there"
        )
    answer = json.loads(line)
    if "error" in answer:
        raise _raised(answer["kind"], answer["error"])
    return answer


def _raised(kind: str, text: str) -> Exception:
    """The error that a process met, in the class that it had there."""
    known = getattr(errors, kind, None)
    return known(text) if isinstance(known, type) else errors.WorkerLost(f"a worker raised {kind}: {text}")
