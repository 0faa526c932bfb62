"""The part of a Machine's spec that changes on running Machines, without replacing them.

It goes down from a MachineDeployment's template to those of its MachineSets, and from there to the Machines; what else
a template says only applies to Machines made from it later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

_TIMEOUTS = ("nodeDrainTimeoutSeconds", "nodeVolumeDetachTimeoutSeconds", "nodeDeletionTimeoutSeconds")
_OTHERS = ("minReadySeconds", "readinessGates", "taints")
# The default that admission sets: there is no point in removing it.
_FILLED_IN = ("nodeDeletionTimeoutSeconds", 10)


def hand_down(source: Mapping[str, Any], target: Json) -> None:
    """Copy the fields that change in place from the spec `source` to the spec `target`."""
    for name in _OTHERS:
        if source.get(name) is not None:
            target[name] = source[name]
        else:
            target.pop(name, None)
    hand_down_timeouts(source, target)


def hand_down_timeouts(source: Mapping[str, Any], target: Json) -> None:
    """Only what matters to Machines on their way out."""
    wanted = source.get("deletion") or {}
    present = dict(target.get("deletion") or {})
    for name in _TIMEOUTS:
        if wanted.get(name) is not None:
            present[name] = wanted[name]
        elif (name, present.get(name)) != _FILLED_IN:
            present.pop(name, None)
    if present:
        target["deletion"] = present
    else:
        target.pop("deletion", None)
