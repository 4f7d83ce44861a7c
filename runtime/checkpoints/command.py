"""`skuda quantize`: a checkpoint that may be larger than the machine's memory, file by file."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TextIO

from skuda.checkpoints.convert import Progress, quantize
from skuda.checkpoints.scheme import ELEMENTS, GRANULARITIES
from skuda.checkpoints.weights import DEVICES

_GB = 1e9
_REFRESH = 0.2  # seconds between two states of the line


def add_parser(subparsers) -> None:
    """Add `quantize` to the commands of a parser. Sets `handler`, a function from arguments to exit status.

    Args:
        subparsers: what `argparse.ArgumentParser.add_subparsers` returned.
    """
    parser = subparsers.add_parser(
        "quantize",
        help="quantize a checkpoint of any size, file by file",
        description="Quantize every weight of two axes or more of a safetensors checkpoint (f64, f32, f16 or bf16), a "
        "file for each of its files, and write an index. The same command goes on where an earlier one was ended. The "
        "bytes do not depend on the device or the number of workers.",
    )
    parser.add_argument(
        "source", metavar="FILE_OR_FOLDER_OR_INDEX",
        help="FILE.safetensors, a folder of such files, or model.safetensors.index.json",
    )  # fmt: skip
    parser.add_argument(
        "--scheme", metavar="GRANULARITY:TYPE", default="per_channel:s8",
        help=f"{', '.join(GRANULARITIES)} with {', '.join(ELEMENTS)} (default: per_channel:s8)",
    )  # fmt: skip
    parser.add_argument("--group-size", type=int, default=128, help="elements of a group of per_group (default: 128)")
    parser.add_argument("--out", metavar="FOLDER", required=True, help="the folder to write into")
    parser.add_argument(
        "--keep", metavar="PATTERN", action="append", default=[],
        help="leave weights of such names (`*`, `?`) as they are; may be given more than once",
    )  # fmt: skip
    parser.add_argument(
        "--workers", metavar="N", type=int, default=1, help="processes, each with a GPU if there are any (default: 1)"
    )
    parser.add_argument(
        "--ray", metavar="ADDRESS",
        help="run N tasks of a Ray cluster whose machines see both folders: auto, HOST:PORT, or local to start one",
    )  # fmt: skip
    parser.add_argument(
        "--device", choices=DEVICES, default="auto", help="where to run (default: GPUs, if any)"
    )
    parser.set_defaults(handler=command)


def command(args: argparse.Namespace) -> int:
    """Run `skuda quantize`. The exit status is 0; every failure is raised as a SkudaError."""
    start = time.perf_counter()
    with Line(args.scheme, sys.stderr) as line:
        result = quantize(
            args.source, args.out, args.scheme, group_size=args.group_size, keep=args.keep, workers=args.workers,
            ray=args.ray, device=args.device, progress=line.show,
        )  # fmt: skip
    resumed = f", {result.resumed} of them by an earlier run" if result.resumed else ""
    print(
        f"wrote {len(result.files)} files into {result.out}{resumed}: {result.bytes_before / _GB:.2f} GB became "
        f"{result.bytes_after / _GB:.2f} GB in {time.perf_counter() - start:.1f} s"
    )
    return 0


class Line:
    """How far all workers are, in one line that is written again and again; a line for each file elsewhere.

    Args:
        label: what stands first.
        stream: where it goes.
    """

    def __init__(self, label: str, stream: TextIO):
        self.label, self.stream = label, stream
        self.start, self.shown = time.perf_counter(), -_REFRESH
        self.before: int | None = None  # bytes that were done when this run began
        self.length = 0

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *exception) -> None:
        if self.length:
            print(file=self.stream)

    def show(self, progress: Progress) -> None:
        """Show it, unless it has just been shown."""
        now = time.perf_counter()
        if self.before is None:
            self.before = progress.bytes
        text = self.text(progress, now - self.start)
        if not self.stream.isatty():
            if progress.finished:
                print(f"{text}, finished {progress.finished}", file=self.stream, flush=True)
        elif now - self.shown >= _REFRESH or progress.finished:
            self.stream.write("\r" + text.ljust(self.length))
            self.stream.flush()
            self.shown, self.length = now, len(text)

    def text(self, progress: Progress, seconds: float) -> str:
        """The line, such as `per_group:s4: 3 of 30 files, 12.10 of 140.55 GB (8 %), 1.21 GB/s`."""
        share = 100 * progress.bytes // max(progress.total, 1)
        speed = (progress.bytes - (self.before or 0)) / _GB / max(seconds, 1e-9)
        return (
            f"{self.label}: {progress.files} of {progress.count} files, {progress.bytes / _GB:.2f} of "
            f"{progress.total / _GB:.2f} GB ({share} %), {speed:.2f} GB/s"
        )
