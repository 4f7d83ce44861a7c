"""What XLA calls, given frames as XLA makes them. Kernels only note how they are launched, as there is no GPU."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_void_p, pointer
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import skuda
from skuda.jax import handler, xla_ffi
from skuda.jax.program import Program
from skuda.jax.selection import select

STREAM, DEVICE, WORKSPACE = 0x5EED, 3, 0xBEEF00
VALUES = np.random.default_rng(2).normal(0, 1, (6, 8)).astype(np.float32)


class Frame:
    """A call frame of a program, whose functions of XLA are these."""

    def __init__(self, program: Program, arrays, extra=(), stage="EXECUTE"):
        self.said: list[str] = []
        self.kept = [*arrays]

        @CFUNCTYPE(c_void_p, POINTER(xla_ffi.ErrorCreateArgs))
        def error(asked):
            self.said.append(asked.contents.message.decode())
            return 0xE44

        @CFUNCTYPE(c_void_p, POINTER(xla_ffi.StreamGetArgs))
        def stream(asked):
            asked.contents.stream = STREAM

        @CFUNCTYPE(c_void_p, POINTER(xla_ffi.DeviceOrdinalGetArgs))
        def device(asked):
            asked.contents.device_ordinal = DEVICE

        def address(function):
            return ctypes.cast(function, c_void_p).value

        api = xla_ffi.Api(
            XLA_FFI_Error_Create=address(error),
            XLA_FFI_Stream_Get=address(stream),
            XLA_FFI_DeviceOrdinal_Get=address(device),
        )
        addresses = [array.ctypes.data for array in arrays] + [*extra]
        buffers = [xla_ffi.Buffer(data=each) for each in addresses]
        pointers = [ctypes.addressof(each) for each in buffers]
        inputs = len(program.operation.inputs)
        text = program.text.encode()
        memory = ctypes.create_string_buffer(text)
        span = xla_ffi.ByteSpan(ctypes.addressof(memory), len(text))
        self.kept += [error, stream, device, api, buffers, memory, span]
        self.frame = xla_ffi.CallFrame(
            api=pointer(api),
            stage=xla_ffi.VALUES[f"XLA_FFI_ExecutionStage_{stage}"],
            args=xla_ffi.Args(size=inputs, args=(c_void_p * inputs)(*pointers[:inputs])),
            rets=xla_ffi.Rets(size=len(pointers) - inputs, rets=(c_void_p * len(pointers))(*pointers[inputs:])),
            attrs=xla_ffi.Attrs(
                size=1,
                types=(ctypes.c_int * 1)(xla_ffi.VALUES["XLA_FFI_AttrType_STRING"]),
                attrs=(c_void_p * 1)(ctypes.addressof(span)),
            ),
        )

    def run(self, work) -> int | None:
        return handler._HANDLERS[work](pointer(self.frame))


class Noted:
    """Stands for the launches of a plan on a GPU."""

    def __init__(self):
        self.calls: list[tuple] = []
        self.loaded: list[int] = []
        self.numel = 1
        self.slots = self

    def launch_for(self, operands):
        self.operands = operands
        return self

    def launches(self, operands, workspace):
        assert operands is self.operands
        self.workspace = workspace
        return [(self, ["first"]), (self, ["second"])]

    def pack(self, filled):
        return object(), filled[0]

    def kernels(self, device):
        self.loaded.append(device)
        return [(lambda *launched: self.calls.append(launched), 7, 128)]


@pytest.fixture
def program(monkeypatch):
    found, _ = select(skuda.SoftmaxPlan, [VALUES], (-1,))
    monkeypatch.setitem(vars(found), "cuda", Noted())
    monkeypatch.setattr(found, "loaded", set())
    return found


def test_a_gpu_gets_the_launches_in_order(program):
    out = np.empty_like(VALUES)
    frame = Frame(program, [VALUES, out], extra=[WORKSPACE])
    assert frame.run(handler._on_gpu) is None and frame.said == []
    noted = program.cuda
    assert noted.calls == [(7, 128, STREAM, "first"), (7, 128, STREAM, "second")]
    assert noted.workspace == WORKSPACE and noted.loaded == [DEVICE, DEVICE]
    given, written = noted.operands
    assert (given.pointer, given.shape, given.device, given.readonly) == (VALUES.ctypes.data, (6, 8), DEVICE, True)
    assert (written.pointer, written.contiguous, written.readonly) == (out.ctypes.data, True, False)


def test_kernels_are_loaded_before_a_program_runs(program):
    frame = Frame(program, [VALUES, np.empty_like(VALUES)], stage="INITIALIZE")
    assert frame.run(handler._on_gpu_before) is None
    assert program.cuda.loaded == [DEVICE, DEVICE] and program.cuda.calls == []
    assert frame.run(handler._on_gpu_before) is None
    assert program.cuda.loaded == [DEVICE, DEVICE]
    shifted = np.empty(VALUES.size + 1, np.float32)[1:].reshape(VALUES.shape)
    assert Frame(program, [VALUES, shifted], stage="INITIALIZE").run(handler._on_gpu_before) is None
    assert program.cuda.loaded == [DEVICE] * 4


def test_a_workspace_is_one_more_result(monkeypatch):
    found, _ = select(skuda.SoftmaxPlan, [VALUES], (0,))
    monkeypatch.setitem(vars(found), "cuda", SimpleNamespace(workspace_size=4096))
    traced = jax.jit(lambda x: skuda.softmax(x, axis=0)).trace(VALUES)
    lines = traced.lower(lowering_platforms=("cuda",)).as_text().splitlines()
    (line,) = [line for line in lines if "skuda_call" in line]
    assert line.endswith("(tensor<6x8xf32>) -> (tensor<6x8xf32>, tensor<4096xui8>)")
    assert "ui8" not in traced.lower(lowering_platforms=("cpu",)).as_text()


def test_nothing_is_launched_without_elements(program):
    program.cuda.numel = 0
    assert Frame(program, [VALUES, np.empty_like(VALUES)]).run(handler._on_gpu) is None
    assert program.cuda.calls == []


def test_the_cpu_writes_the_results(program):
    out = np.empty_like(VALUES)
    assert Frame(program, [VALUES, out]).run(handler._on_cpu) is None
    assert np.array_equal(out, skuda.softmax(VALUES))


def test_an_exception_becomes_an_error_of_xla(program, monkeypatch):
    monkeypatch.setitem(vars(program), "cuda", None)
    frame = Frame(program, [VALUES, np.empty_like(VALUES)])
    assert frame.run(handler._on_gpu) == 0xE44
    assert frame.said[0].startswith("AttributeError: ")


def test_the_handler_says_that_graphs_may_capture_it(program):
    metadata = xla_ffi.Metadata()
    extension = xla_ffi.MetadataExtension(
        extension_base=xla_ffi.ExtensionBase(type=xla_ffi.VALUES["XLA_FFI_Extension_Metadata"]),
        metadata=pointer(metadata),
    )
    frame = Frame(program, [VALUES, np.empty_like(VALUES)])
    frame.frame.extension_start = ctypes.cast(pointer(extension), POINTER(xla_ffi.ExtensionBase))
    assert frame.run(handler._on_gpu) is None and program.cuda.calls == []
    assert metadata.traits == xla_ffi.COMMAND_BUFFER_COMPATIBLE
    assert (metadata.api_version.major_version, metadata.api_version.minor_version) == handler._VERSION
