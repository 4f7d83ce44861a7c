"""Frameworks are imported when their arrays come, and a missing one is named with the extra that installs it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import SimpleNamespace

import pytest

from skuda.errors import MissingDependency, Unsupported


@pytest.fixture
def jax_is(monkeypatch):
    """Makes `import jax` give something else, for an import of skuda.jax anew."""

    def becomes(module):
        for name in [name for name in sys.modules if name.partition(".")[0] == "jax" or name.startswith("skuda.jax")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "jax", module)

    return becomes


def test_a_missing_jax_is_named(jax_is):
    jax_is(None)
    with pytest.raises(MissingDependency, match=r"skuda.jax needs JAX: pip install 'skuda\[jax\]'"):
        importlib.import_module("skuda.jax")


def test_an_old_jax_is_named(jax_is):
    jax_is(SimpleNamespace(__version__="0.9.2", __version_info__=(0, 9, 2)))
    with pytest.raises(Unsupported, match=r"needs JAX 0\.10 or newer, found 0\.9\.2"):
        importlib.import_module("skuda.jax")


def test_calls_of_numpy_arrays_import_no_framework():
    code = (
        "import sys, numpy as np, skuda; skuda.softmax(np.ones((2, 8)));"
        "print({'jax', 'torch', 'skuda.jax', 'skuda.frameworks'} & sys.modules.keys())"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"
