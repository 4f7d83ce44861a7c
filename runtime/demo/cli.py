"""`skuda demo quantize`, `skuda demo dequantize` and `skuda demo activations`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from skuda.checkpoints import files
from skuda.checkpoints.scheme import ELEMENTS, GRANULARITIES, Scheme
from skuda.checkpoints.weights import DEVICES, backend
from skuda.demo import checkpoint, report
from skuda.demo.run import dequantize_checkpoint, quantize_checkpoint
from skuda.errors import InvalidProblem

DEFAULT_FOLDER = Path("build") / "demo"
DEFAULT_SCHEMES = ("per_channel:s8", "per_group:s4")
_PLAIN = {
    "markup": False,
    "highlight": False,
    "soft_wrap": True,
}  # a line for rich to leave alone: names, paths
_WRAPPED = _PLAIN | {"soft_wrap": False}  # prose, broken where the terminal ends


def add_parser(subparsers) -> None:
    """Add `demo` to the commands of a parser. Sets `handler`, a function from arguments to exit status.

    Args:
        subparsers: what `argparse.ArgumentParser.add_subparsers` returned.
    """
    demo = subparsers.add_parser("demo", help="quantize a real checkpoint and show what it costs")
    commands = demo.add_subparsers(title="commands", metavar="COMMAND", required=True)

    quantize = commands.add_parser(
        "quantize",
        help="quantize the weights of a safetensors checkpoint",
        description="Quantize every weight of two axes or more of a safetensors checkpoint (f64, f32, f16 or "
        "bf16). Biases, norms and integers are kept as they are.",
    )
    _add_checkpoint(quantize)
    quantize.add_argument(
        "--scheme", metavar="GRANULARITY:TYPE", action="append", dest="schemes",
        help=f"{', '.join(GRANULARITIES)} with {', '.join(ELEMENTS)}; may be given more than once "
        f"(default: {' and '.join(DEFAULT_SCHEMES)})",
    )  # fmt: skip
    quantize.add_argument(
        "--group-size", type=int, default=128, help="elements of a group of per_group (default: 128)"
    )
    quantize.add_argument(
        "--out", metavar="OUT.safetensors", type=Path,
        help="the quantized checkpoint; with several schemes OUT.SCHEME.safetensors, one each "
        f"(default: in {DEFAULT_FOLDER}, the chart too)",
    )  # fmt: skip
    quantize.add_argument(
        "--plot", metavar="PNG", type=Path, help="draw sizes, signal-to-noise ratios and errors"
    )
    quantize.set_defaults(handler=quantize_command)

    dequantize = commands.add_parser(
        "dequantize", help="turn a quantized checkpoint back into an ordinary one"
    )
    dequantize.add_argument("file", metavar="OUT.safetensors", type=Path, help="what quantize wrote")
    dequantize.add_argument(
        "--out", metavar="BACK.safetensors", type=Path, required=True, help="the file to write"
    )
    dequantize.set_defaults(handler=dequantize_command)

    activations = commands.add_parser(
        "activations",
        help="quantize what a sentence encoder computes from some sentences",
        description="Run sentences through a BERT encoder in NumPy, quantize what its linear layers read, with scales "
        "found row by row (dynamic_quantize_per_token), and show what that loses. Needs config.json and vocab.txt "
        "beside the checkpoint.",
    )
    _add_checkpoint(activations)
    activations.add_argument(
        "--sentence", metavar="TEXT", action="append", dest="sentences",
        help="may be given more than once (default: some of everything)",
    )  # fmt: skip
    activations.set_defaults(handler=activations_command)

    for command in (quantize, dequantize, activations):
        command.add_argument(
            "--device",
            choices=DEVICES,
            default="auto",
            help="where to run (default: the GPU, if any)",
        )


def _add_checkpoint(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file", metavar="FILE", nargs="?", type=Path,
        help=f"the checkpoint; without it the sentence model of the package {checkpoint.DEFAULT_PACKAGE}",
    )  # fmt: skip


def quantize_command(args: argparse.Namespace) -> int:
    """Run `skuda demo quantize`. The exit status is 0; every failure is raised as a SkudaError."""
    texts = args.schemes or DEFAULT_SCHEMES
    schemes = [Scheme.parse(text, args.group_size) for text in texts]
    if len(set(schemes)) < len(schemes):
        raise InvalidProblem(f"a scheme is given twice: {' '.join(texts)}")
    console = checkpoint.require("rich.console").Console()
    source = args.file or checkpoint.default_model()
    model = source.stem if args.file else checkpoint.DEFAULT_MODEL
    outputs = output_paths(args.out, model, schemes)
    picture = args.plot or (None if args.out else DEFAULT_FOLDER / f"{model}.png")
    for path in outputs:
        files.check_output(path, source)
    if picture:
        checkpoint.require("matplotlib")
        files.check_output(picture, source, *outputs)

    start = time.perf_counter()
    content = files.read(source)
    on = backend(args.device)
    values = sum(array.size for array in content.tensors.values())
    console.print(
        f"{model}: {values / 1e6:.1f} M values in {len(content.tensors)} tensors, "
        f"{report.size_text(content.nbytes)}. Runs on: {on.name}.",
        **_WRAPPED,
    )
    results = []
    for scheme, output in zip(schemes, outputs, strict=True):
        with progress(console, str(scheme), values) as advance:
            results.append(quantize_checkpoint(source, content, scheme, output, on, advance))
        console.print(report.table(results[-1]))
    for line in report.notes(results):
        console.print(line, **_WRAPPED)
    if picture:
        from skuda.demo import plot  # matplotlib takes a while to import

        plot.draw(picture, results, model)
    for path in (*outputs, *([picture] if picture else [])):
        console.print(f"wrote {path} ({report.size_text(path.stat().st_size)})", **_PLAIN)
    console.print(f"{time.perf_counter() - start:.1f} s in all", **_PLAIN)
    return 0


def dequantize_command(args: argparse.Namespace) -> int:
    """Run `skuda demo dequantize`. The exit status is 0; every failure is raised as a SkudaError."""
    console = checkpoint.require("rich.console").Console()
    on = backend(args.device)
    back = dequantize_checkpoint(args.file, args.out, on)
    console.print(
        f"{len(back.tensors)} tensors, {report.size_text(back.nbytes)}. Ran on: {on.name}. wrote {args.out}",
        **_PLAIN,
    )
    return 0


def activations_command(args: argparse.Namespace) -> int:
    """Run `skuda demo activations`. The exit status is 0; every failure is raised as a SkudaError."""
    from skuda.demo import activations
    from skuda.demo.encoder import Encoder

    console = checkpoint.require("rich.console").Console()
    source = args.file or checkpoint.default_model()
    start = time.perf_counter()
    encoder, on = Encoder.read(source), backend(args.device)
    sentences = args.sentences or activations.SENTENCES
    found = activations.run(encoder, on, sentences)
    model = source.stem if args.file else checkpoint.DEFAULT_MODEL
    counts = f"{len(sentences)} sentences, {found.tokens} tokens, {encoder.layers} layers"
    console.print(f"{model}: {counts}. Runs on: {on.name}.", **_WRAPPED)
    console.print(report.activation_table(found))
    for line in report.activation_notes(found):
        console.print(line, **_WRAPPED)
    console.print(f"{time.perf_counter() - start:.1f} s in all", **_PLAIN)
    return 0


def output_paths(out: Path | None, model: str, schemes: Sequence[Scheme]) -> list[Path]:
    """Where each scheme's checkpoint goes: `out` itself if it is named and there is one scheme."""
    if out and len(schemes) == 1:
        return [out]
    base = out.with_suffix("") if out and out.suffix == ".safetensors" else out or DEFAULT_FOLDER / model
    return [base.with_name(f"{base.name}.{str(scheme).replace(':', '-')}.safetensors") for scheme in schemes]


@contextmanager
def progress(console, label: str, values: int) -> Iterator[Callable[[int], None]]:
    """A bar that goes away when the work is done; none where the output is not a terminal.

    Args:
        console: rich's.
        label: what stands before the bar.
        values: what the calls of the function that is given add up to.
    """
    bars = checkpoint.require("rich.progress").Progress(
        console=console, transient=True, disable=not console.is_terminal
    )
    with bars:
        task = bars.add_task(label, total=values)
        yield lambda done: bars.advance(task, done)
