"""The files of a checkpoint as tasks of a Ray cluster, whose machines see the same folders."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from types import ModuleType
from urllib.parse import urlsplit

from skuda.checkpoints.weights import backend
from skuda.checkpoints.workers import Job, Step
from skuda.errors import SkudaError, WorkerLost, optional_module


def import_ray() -> ModuleType:
    """Import ray.

    Raises:
        MissingDependency: it is not installed; the message names the extra.
    """
    return optional_module("ray", "skuda quantize --ray", "ray")


def _steps(job: Job) -> Iterator[int]:
    """What a task does. Ray shows it the GPU that is its own, and no other."""
    yield from job.steps(backend(job.device))


def _knock(address: str) -> None:
    """Connect to the port that an address names, if it names one: `ray.init` would try a silent one for minutes."""
    found = urlsplit(address if "://" in address else f"//{address}")
    if found.hostname and found.port:
        socket.create_connection((found.hostname, found.port), timeout=10).close()


def in_ray(jobs: Sequence[Job], count: int, address: str) -> Iterator[Step]:
    """Do the jobs as tasks, so many at once, with a GPU each where the cluster has any.

    Args:
        jobs: what to do.
        count: tasks at once; Ray starts fewer where it has fewer GPUs or processors.
        address: of the cluster, as `ray.init` takes it: `auto`, `host:port`, `ray://host:port`; `local` starts one.

    Raises:
        MissingDependency: ray is not installed.
        WorkerLost: the cluster cannot be reached, or lost a task.
        SkudaError: what a task raised. The others are cancelled.
    """
    ray = import_ray()
    try:
        _knock(address)
        ray.init(address=address, log_to_driver=False)
    except (OSError, ValueError, RuntimeError) as error:
        raise WorkerLost(f"ray cluster {address}: cannot be reached: {error}") from error
    try:
        yield from _tasks(ray, list(jobs), count)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, SkudaError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        raise WorkerLost(f"a task of ray ended in the middle of its work: {error}") from error
    finally:
        ray.shutdown()


def _tasks(ray: ModuleType, waiting: list[Job], count: int) -> Iterator[Step]:
    gpus = 0 if waiting and waiting[0].device == "cpu" else min(1, ray.cluster_resources().get("GPU", 0))
    task = ray.remote(num_cpus=1, num_gpus=gpus)(_steps).options(num_returns="streaming")
    running: dict[object, str] = {}
    try:
        while waiting or running:
            while waiting and len(running) < count:
                job = waiting.pop(0)
                running[task.remote(job)] = job.name
            (ready,), _ = ray.wait(list(running), num_returns=1)
            try:
                done = ray.get(next(ready))
            except StopIteration:
                yield running.pop(ready), None
            else:
                yield running[ready], done
    finally:
        for each in running:
            ray.cancel(each)
