"""The tests. Each says in its name what a driver must do; `Conformance` is all of them.

Nothing here knows any infrastructure: what is there is asked of the subject, never of the driver.
"""

from __future__ import annotations

from remuda.lab.driver_conformance.confidence import Confidence
from remuda.lab.driver_conformance.kills import Kills
from remuda.lab.driver_conformance.life import Life
from remuda.lab.driver_conformance.model import Model


class Conformance(Life, Kills, Confidence, Model):
    pass
