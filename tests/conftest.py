"""The `backend` fixture: conformance tests run on the NumPy reference and, where there is a GPU, on CUDA."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest
import turns
from catalogs import forget_defined

from skuda.launch import kernel, registry
from skuda.plans import selection

selection.PATIENCE = float("inf")  # what computes a call does not depend on how long earlier tests took

# On a machine with several GPUs, each worker of pytest-xdist takes one, before anything asks the driver.
WORKER, GPUS = os.environ.get("PYTEST_XDIST_WORKER", ""), len([*Path("/dev").glob("nvidia[0-9]*")])
if WORKER.startswith("gw") and GPUS > 1:
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", str(int(WORKER[2:]) % GPUS))


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="every test and every kernel, not those whose turn it is")
    parser.addoption("--turn", type=int, metavar="N", help="the turn that is taken, if not the commit's")


def pytest_configure(config):
    config.addinivalue_line("markers", "turns(count): of these tests a run takes one in so many (tests/turns.py)")


def pytest_collection_modifyitems(config, items):
    items[:], waiting = turns.divided(config, items)
    if waiting:
        config.hook.pytest_deselected(items=waiting)


def pytest_collection_finish(session):
    """What was imported and collected stays: the collector of garbage need not look at it again and again."""
    if not hasattr(session.config, "workerinput") and session.config.getoption("numprocesses", default=None):
        return
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    if not turns.every(terminalreporter.config):
        said = "some tests wait for another commit's turn (tests/turns.py): --all runs every one"
        terminalreporter.write_line(said)


@pytest.fixture(scope="module", autouse=True)
def _forgets_what_is_defined():
    """Tests that count operations or kernels do not depend on what another file has defined in this process."""
    before = registry.catalogs()
    yield
    forget_defined(before)
    left = [catalog.package for catalog in registry.catalogs() if catalog not in before]
    assert not left, f"catalogs that this file leaves to the files after it: {left}"


class Reference:
    """NumPy arrays, computed by the generated NumPy reference."""

    name = "reference"
    xp = np

    def array(self, array: np.ndarray):
        """A new contiguous array of this backend with the same elements."""
        return np.array(array, order="C")

    def numpy(self, array) -> np.ndarray:
        """The elements of one of this backend's arrays."""
        assert type(array) is np.ndarray
        return array

    def at_odd_address(self, array: np.ndarray):
        """A copy that starts one byte after an aligned address."""
        memory = np.zeros(array.nbytes + 1, dtype=np.uint8)
        shifted = memory[1:].view(array.dtype).reshape(array.shape)
        shifted[...] = array
        return shifted


class Cuda:
    """CuPy arrays, computed on the GPU."""

    name = "cuda"

    def __init__(self):
        import cupy

        self.xp = cupy

    def array(self, array: np.ndarray):
        raw = self.xp.asarray(np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8))  # CuPy copies no fp8
        return self.xp.ndarray(np.shape(array), array.dtype, raw.data)

    def numpy(self, array) -> np.ndarray:
        assert type(array) is self.xp.ndarray
        if array.dtype.itemsize == 1:  # CuPy copies no fp8
            return array.view(np.uint8).get().view(array.dtype)
        return array.get()

    def at_odd_address(self, array: np.ndarray):
        memory = self.xp.zeros(array.nbytes + 1, dtype=np.uint8)
        memory[1:] = self.xp.asarray(np.frombuffer(array.tobytes(), dtype=np.uint8))
        return self.xp.ndarray(array.shape, array.dtype, memory.data + 1)


BACKENDS = {"reference": Reference, "cuda": Cuda}


@pytest.fixture(scope="session", params=["reference", "cuda"] if kernel.cuda_available() else ["reference"])
def backend(request):
    """Where the arrays live and the operation runs."""
    return BACKENDS[request.param]()
