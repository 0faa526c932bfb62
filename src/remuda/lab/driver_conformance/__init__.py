"""Conformance tests that every driver must pass: our drivers, and those of other packages.

    class TestMine(Conformance):
        @pytest.fixture
        async def subject(self, tmp_path):
            yield MySubject(tmp_path)

A `Subject` names its driver and the options, and inspects the infrastructure without the driver's help. The tests are
plain coroutines and need a runner for them (pytest with pytest-asyncio in its automatic mode).

A driver that also creates infrastructure for clusters has a `ClusterConformance` for it, with a `ClusterSubject`.

A driver marks each of its acts on the infrastructure as a step (`async with ACT:`, see `runtime.steps`). That one line
is where the suite kills: a real process, with SIGKILL, before and after every act, the first, the second, until one run
completes; and a few times somewhere in between, by the clock.
"""

from remuda.lab.driver_conformance.clusters import ClusterConformance, ClusterSubject
from remuda.lab.driver_conformance.confidence import Confidence
from remuda.lab.driver_conformance.kills import Kills
from remuda.lab.driver_conformance.life import Life
from remuda.lab.driver_conformance.model import Model
from remuda.lab.driver_conformance.subject import Subject

__all__ = ["ClusterConformance", "ClusterSubject", "Conformance", "Subject"]


class Conformance(Life, Kills, Confidence, Model):
    """All tests of a driver. They know no infrastructure: they ask the subject what exists, never the driver."""
