"""The tests. Each says in its name what a driver must do; `Conformance` is all of them.

Nothing here knows any infrastructure: what is there is asked of the subject, never of the driver.
"""

from __future__ import annotations

from remuda.providers.machine.conformance.confidence import Confidence
from remuda.providers.machine.conformance.kills import Kills
from remuda.providers.machine.conformance.life import Life
from remuda.providers.machine.conformance.model import Model


class Conformance(Life, Kills, Confidence, Model):
    pass
