"""Reports of Machines that MachineSets and MachineDeployments derive their conditions from. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.capi.conditions import Reporter
from remuda.capi.types import Machine
from remuda.kube import clock, conditions

_SETTLING_SECONDS = 10.0  # a Machine just made has not been judged up to date or not
_LONG_SECONDS = 15 * 60.0


def reporter(machine: Machine) -> Reporter:
    return Reporter("Machine", machine.metadata.name, machine.status.conditions, machine.is_control_plane)


def judged(machines: Sequence[Machine], now: float) -> list[Reporter]:
    """Machines of which it is known, or should be by now, whether they are up to date."""
    return [
        reporter(machine)
        for machine in machines
        if conditions.find(machine.status.conditions, "UpToDate") is not None
        or _age(machine.metadata.creation_timestamp, now) > _SETTLING_SECONDS
    ]


def late(machines: Sequence[Machine], now: float) -> list[str]:
    """Return a line that names Machines whose deletion takes long; empty if there are none."""
    found = [m.metadata.name for m in machines if _age(m.metadata.deletion_timestamp, now) > _LONG_SECONDS]
    if not found:
        return []
    shown = ", ".join(found[:3]) + (f", ... ({len(found) - 3} more)" if len(found) > 3 else "")
    noun, verb = ("Machine", "is") if len(found) == 1 else ("Machines", "are")
    return [f"* {noun} {shown} {verb} in deletion since more than 15m"]


def becomes_late_at(machines: Sequence[Machine], now: float) -> float | None:
    """Return the time at which `late` will report another Machine; None if no further one is due."""
    moments = [clock.parse(m.metadata.deletion_timestamp) for m in machines if m.metadata.deletion_timestamp]
    due = [moment + _LONG_SECONDS + 1 for moment in moments]
    return min((moment for moment in due if moment > now), default=None)


def _age(moment: str | None, now: float) -> float:
    return now - clock.parse(moment) if moment else 0.0
