"""`skuda doctor`: what is installed here, what is missing, and how to get it."""

from __future__ import annotations

import argparse
import json
import platform
from dataclasses import asdict, dataclass
from importlib import metadata, resources
from pathlib import Path

import skuda
from skuda.codegen import output
from skuda.codegen.commands import gpus
from skuda.cpu import library
from skuda.launch import cubin_cache, registry

_NEWEST, _OLDEST = 13, 12  # CUDA majors that there is an extra for


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        name: what it is about.
        found: what is there, in words.
        missing: whether it is wanted here and is not there.
        help: how to get it.
    """

    name: str
    found: str
    missing: bool = False
    help: str | None = None


def add_parser(subparsers) -> None:
    """Adds `doctor`."""
    parser = subparsers.add_parser(
        "doctor",
        help="what is installed here, what is missing, and how to get it",
        description="Say what is installed here and what is missing. The exit status is 1 where there is a "
        "GPU that plans cannot use; without a GPU they run on the CPU, and it is 0.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Runs `skuda doctor`."""
    found = findings()
    if args.json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        width = max(len(finding.name) for finding in found)
        for finding in found:
            print(f"{finding.name.ljust(width)}  {finding.found}")
            if finding.help:
                print(f"{' ' * width}  -> {finding.help}")
    return int(any(finding.missing for finding in found))


def findings() -> list[Finding]:
    """The whole report."""
    machine = gpus.find()
    return [
        Finding("skuda", f"{skuda.__version__}, {resources.files('skuda')}"),
        Finding("Python", f"{platform.python_version()} on {platform.platform()}"),
        *(Finding(name, metadata.version(name)) for name in ("numpy", "ml-dtypes")),
        *_machine(machine),
        _cupy(machine),
        _nvrtc(machine),
        _compiler(),
        _cache(),
        *map(_catalog, registry.catalogs()),
    ]


def _machine(machine: gpus.Gpus) -> list[Finding]:
    if not machine.devices:
        return [Finding("GPU", f"no GPU ({machine.problem}): plans run on the CPU")]
    names = [f"{index}: {name} ({arch})" for index, (name, arch) in enumerate(machine.devices)]
    found = [Finding("GPU", ", ".join(names))]
    old = machine.cuda is not None and _major(machine) < _OLDEST
    help = f"a driver that runs CUDA {_OLDEST} or newer is needed (525 or newer)" if old else None
    driver = f"{machine.driver or 'of unknown version'}, runs CUDA up to {machine.cuda}"
    return [*found, Finding("driver", driver, old, help)]


def _cupy(machine: gpus.Gpus) -> Finding:
    try:
        import cupy
    except ImportError as error:
        wanted = bool(machine.devices)
        reason = (
            "not installed" if isinstance(error, ModuleNotFoundError) else f"broken: {_first_line(error)}"
        )
        return Finding("CuPy", reason, wanted, _install(machine, "arrays on a GPU"))
    problem = None
    if machine.devices:
        try:
            cupy.zeros(1)
        except Exception as error:  # whatever a CuPy for another CUDA raises
            problem = f"{type(error).__name__}: {_first_line(error)}"
    if problem:
        return Finding(
            "CuPy", f"{cupy.__version__}, cannot use the GPU ({problem})", True, _install(machine, "the GPU")
        )
    return Finding("CuPy", cupy.__version__)


def _nvrtc(machine: gpus.Gpus) -> Finding:
    try:
        from cuda import bindings
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError) as error:
        reason = (
            "not installed" if isinstance(error, ModuleNotFoundError) else f"broken: {_first_line(error)}"
        )
        return Finding("NVRTC", reason, bool(machine.devices), _install(machine, "compiling kernels"))
    version = f"{major}.{minor} (cuda.bindings {bindings.__version__})"
    if machine.devices and machine.cuda and major > _major(machine):
        found = f"{version}, newer than the driver's CUDA {machine.cuda}"
        return Finding("NVRTC", found, True, _install(machine, "kernels that the driver loads"))
    return Finding("NVRTC", version)


def _compiler() -> Finding:
    """For the CPU: nothing is missing without one."""
    found = f"{library.compiler()}, {library.version()}" if library.compiler() else ""
    return Finding("C++ compiler", found or "none (g++, or what CXX names): large calls on the CPU are NumPy's")


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _major(machine: gpus.Gpus) -> int:
    return int(machine.cuda.partition(".")[0])


def _install(machine: gpus.Gpus, purpose: str) -> str:
    """The extra for this driver."""
    major = min(_major(machine), _NEWEST) if machine.cuda else _NEWEST
    return f"for {purpose}: pip install 'skuda[cuda{max(major, _OLDEST)}]'"


def _cache() -> Finding:
    folder = cubin_cache.cache_dir()
    kept = [path for path in folder.iterdir() if path.suffix in (".cubin", ".so")] if folder.is_dir() else []
    sizes = [path.stat().st_size for path in kept]
    entries = "1 entry" if len(sizes) == 1 else f"{len(sizes)} entries"
    return Finding("kernel cache", f"{folder}, {entries}, {sum(sizes) / 1e6:.1f} MB")


def _catalog(catalog: registry.Catalog) -> Finding:
    folder = Path(str(resources.files(catalog.package)))
    edited = output.touched(folder)
    kernels = sum(registry.entry_of(sku).catalog is catalog for sku in registry.skus())
    found = f"{len(catalog.modules)} operations, {kernels} kernels"
    if edited:
        help = "make them anew from the spec: skuda generate"
        return Finding(
            catalog.package, f"{found}; {len(edited)} files are not as generated: {edited[0]}", False, help
        )
    return Finding(catalog.package, f"{found}, every file as generated")
