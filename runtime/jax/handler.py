"""What XLA calls when a program gets to one of our calls: a Python function, as a pointer made by ctypes.

XLA hands over the addresses of its buffers and the text of the call (see `program`). On the CPU its plan there runs on
views of these buffers; on a GPU the plan's kernels are launched on the stream that XLA names.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, byref, c_void_p, sizeof

import jax
import jaxlib

from skuda.jax import xla_ffi
from skuda.jax.program import Program, program_of
from skuda.plans.axis_views import AxisViewPlan

TARGET = "skuda_call"  # the name of the handler in XLA's programs
ATTRIBUTE = "call"  # that of the text

_NOWHERE = 1 << 8  # stands for the address of an array without elements
_ALIGNED = 256  # bytes: whose remainders decide which kernels run
_HANDLER = CFUNCTYPE(c_void_p, POINTER(xla_ffi.CallFrame))
_CREATE_ERROR = CFUNCTYPE(c_void_p, POINTER(xla_ffi.ErrorCreateArgs))
_GET_STREAM = CFUNCTYPE(c_void_p, POINTER(xla_ffi.StreamGetArgs))
_GET_DEVICE = CFUNCTYPE(c_void_p, POINTER(xla_ffi.DeviceOrdinalGetArgs))
_VERSION = xla_ffi.check_header(jax.ffi.include_dir(), jaxlib.__version__)


def run_on_cpu(program: Program, pointers: list[int]) -> None:
    """Runs the plan of the CPU, compiled or the reference, on arrays at some addresses."""
    program.host.execute(program.views(pointers))


def load(program: Program, pointers: list[int], device: int) -> None:
    """Compiles and loads the kernels of a call on a GPU, so that running it can be captured in a graph.

    Which kernels run depends on the alignment of the arrays, so each is loaded once.
    """
    key = device, *(pointer % _ALIGNED for pointer in pointers)
    if key not in program.loaded:
        for launch, _ in _launches(program, program.views(pointers, device), 0):
            launch.kernels(device)
        program.loaded.add(key)


def run_on_gpu(program: Program, pointers: list[int], workspace: int, device: int, stream: int) -> None:
    """Enqueues a call on a stream; nothing waits, and nothing is allocated on the device."""
    for launch, filled in _launches(program, program.views(pointers, device), workspace):
        _memory, parameters = launch.slots.pack(filled)  # which the driver copies
        for kernel, grid, block in launch.kernels(device):
            kernel(grid, block, stream, parameters)


def _launches(program: Program, views: list, workspace: int) -> list:
    target = program.cuda
    plan, operands = target, views
    if isinstance(target, AxisViewPlan):
        plan, operands = target.plan, target.operands(views)
    return plan.launch_for(operands).launches(operands, workspace) if plan.numel else []


# ---- between XLA and these ----


def _on_cpu(frame: xla_ffi.CallFrame) -> None:
    run_on_cpu(_program(frame), _pointers(frame))


def _on_gpu(frame: xla_ffi.CallFrame) -> None:
    program, pointers = _program(frame), _pointers(frame)
    # A workspace is one more result.
    count = len(program.shapes)
    workspace = pointers[count] if len(pointers) > count else 0
    run_on_gpu(program, pointers[:count], workspace, _device(frame), _stream(frame))


def _on_gpu_before(frame: xla_ffi.CallFrame) -> None:
    program, pointers = _program(frame), _pointers(frame)
    missing = len(program.shapes) - len(pointers)  # if XLA names no buffers yet
    load(program, [*pointers, *[_NOWHERE] * missing][: len(program.shapes)], _device(frame))


def _program(frame: xla_ffi.CallFrame) -> Program:
    attrs = frame.attrs
    if attrs.size != 1 or attrs.types[0] != xla_ffi.VALUES["XLA_FFI_AttrType_STRING"]:
        raise TypeError(f"{TARGET} has {attrs.size} attributes, expected one text")
    span = xla_ffi.ByteSpan.from_address(attrs.attrs[0])
    return program_of(ctypes.string_at(span.ptr, span.len).decode())


def _pointers(frame: xla_ffi.CallFrame) -> list[int]:
    """The addresses of the arguments, then of the results."""
    args, rets = frame.args, frame.rets
    buffers = [*args.args[: args.size], *rets.rets[: rets.size]]
    return [xla_ffi.Buffer.from_address(each).data or _NOWHERE for each in buffers]


def _stream(frame: xla_ffi.CallFrame) -> int:
    asked = xla_ffi.StreamGetArgs(struct_size=sizeof(xla_ffi.StreamGetArgs), ctx=frame.ctx)
    _ask(_GET_STREAM(frame.api.contents.XLA_FFI_Stream_Get), asked)
    return asked.stream or 0


def _device(frame: xla_ffi.CallFrame) -> int:
    asked = xla_ffi.DeviceOrdinalGetArgs(struct_size=sizeof(xla_ffi.DeviceOrdinalGetArgs), ctx=frame.ctx)
    _ask(_GET_DEVICE(frame.api.contents.XLA_FFI_DeviceOrdinal_Get), asked)
    return asked.device_ordinal


def _ask(function, asked) -> None:
    if function(byref(asked)):
        raise RuntimeError(f"XLA gives no {type(asked).__name__}")


def _handler(work):
    """What XLA can call: answers its question for metadata, and reports what a Python function raises."""

    @_HANDLER
    def handler(pointer):
        frame = pointer.contents
        try:
            if frame.extension_start:
                extension = frame.extension_start.contents
                if extension.type == xla_ffi.VALUES["XLA_FFI_Extension_Metadata"]:
                    _describe(frame)
                    return None
            work(frame)
        except BaseException as error:  # nothing may pass through XLA
            return _error(frame, error)
        return None

    return handler


def _describe(frame: xla_ffi.CallFrame) -> None:
    found = ctypes.cast(frame.extension_start, POINTER(xla_ffi.MetadataExtension)).contents.metadata.contents
    found.api_version.major_version, found.api_version.minor_version = _VERSION
    found.traits = xla_ffi.COMMAND_BUFFER_COMPATIBLE


def _error(frame: xla_ffi.CallFrame, error: BaseException) -> int | None:
    message = f"{type(error).__name__}: {error}".encode()
    asked = xla_ffi.ErrorCreateArgs(
        struct_size=sizeof(xla_ffi.ErrorCreateArgs),
        message=message,
        errc=xla_ffi.VALUES["XLA_FFI_Error_Code_INTERNAL"],
    )
    return _CREATE_ERROR(frame.api.contents.XLA_FFI_Error_Create)(byref(asked))


_HANDLERS = {work: _handler(work) for work in (_on_cpu, _on_gpu, _on_gpu_before)}  # XLA keeps their addresses alone


def register() -> None:
    """Makes the handler known to XLA. Kernels are loaded before a program runs, for it may be captured as it runs."""
    capsules = {work: jax.ffi.pycapsule(handler) for work, handler in _HANDLERS.items()}
    jax.ffi.register_ffi_target(TARGET, capsules[_on_cpu], platform="cpu")
    bundle = {"initialize": capsules[_on_gpu_before], "execute": capsules[_on_gpu]}
    jax.ffi.register_ffi_target(TARGET, bundle, platform="CUDA")
