"""Settings every test shares: on a busy machine a slow example is no finding, and programs keep their bytecode, as
installed ones do. Without it each of the hundreds of programs that tests start would compile all of itself again."""

import gc
import os
import sys

from hypothesis import HealthCheck, settings

from tests.lab.repeatable import repeatable

__all__ = ["repeatable"]

pytest_plugins = ["tests.lab.progress", "tests.lab.quarantine"]

# Objects made by collection live as long as the run. If the garbage collector visits them again and again, tests take a
# tenth more processor time.
gc.disable()

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()
