"""Settings every test shares: on a busy machine a slow example is no finding, and programs keep their bytecode, as
installed ones do. Without it each of the hundreds of programs that tests start would compile all of itself again.

Scripts find the Python that runs the tests first. A wrapper of it (pyenv) takes eight times as long to start.

Garbage is collected less often, as in our own servers.
"""

import gc
import os
import sys
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.lab.repeatable import repeatable

__all__ = ["repeatable"]

pytest_plugins = ["tests.lab.progress", "tests.lab.quarantine"]

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ["PATH"] = f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', os.defpath)}"
gc.set_threshold(20_000, 20, 50)

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Hide what collection makes from the garbage collector: it lives as long as the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
