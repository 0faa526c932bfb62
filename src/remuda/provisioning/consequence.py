"""Consequences of a change for the machines of each pool, reported before anything is done. Pure.

Machines are replaced when their pool needs another template, that is, when a driver's option changes; all other changes
reach them in place. A pool that allows no replacement is held then: it keeps the template its machines were made from,
until the option is put back or the user allows the replacement. Admission, `remuda plan` and the condition Held use the
same text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from remuda.provisioning import machine_templates
from remuda.provisioning.generate import Desired, DesiredPool
from remuda.provisioning.types import IN_PLACE_ONLY, REPLACE

Json = dict[str, Any]
Action = Literal["create", "keep", "replace", "remove"]

_MOST_NAMES = 10


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A pool as it is: its MachineDeployment, the template that one refers to, and the names of its Machines."""

    deployment: Mapping[str, Any]
    template: Mapping[str, Any] | None = None  # None: it is gone, or somebody else's
    machines: Sequence[str] = ()

    @property
    def infrastructure(self) -> Json:
        spec = self.deployment.get("spec", {}).get("template", {}).get("spec", {})
        found: Json = spec.get("infrastructureRef") or {}
        return found


class Consequence(msgspec.Struct, frozen=True, kw_only=True):
    pool: str
    action: Action
    machines: Sequence[str] = ()
    options: Sequence[str] = ()  # what differs, where that is known
    held: bool = False  # it would replace machines, and may not

    def __str__(self) -> str:
        if self.action == "create":
            return f"machine pool {self.pool} is created"
        if self.action == "remove":
            return f"machine pool {self.pool} is deleted, with {_named(self.machines)}"
        if self.action == "keep":
            return f"machine pool {self.pool} keeps {_named(self.machines)}"
        because = f"because of {', '.join(self.options)}" if self.options else "because it refers to another template"
        text = f"machine pool {self.pool} would replace {_named(self.machines)}, {because}"
        if not self.held:
            return text
        return (
            f"{text}; the change is held, because the pool's replacement is {IN_PLACE_ONLY}: revert the change, or set "
            f"replacement to {REPLACE}"
        )


def consequences(desired: Desired, present: Mapping[str, Standing]) -> list[Consequence]:
    """`present`: by the name of the MachineDeployment."""
    wanted = {pool.deployment_name for pool in desired.pools}
    gone = [
        Consequence(pool=name, action="remove", machines=standing.machines)
        for name, standing in sorted(present.items())
        if name not in wanted
    ]
    return [*(of_pool(pool, present.get(pool.deployment_name)) for pool in desired.pools), *gone]


def of_pool(pool: DesiredPool, standing: Standing | None) -> Consequence:
    if standing is None:
        return Consequence(pool=pool.name, action="create")
    if _same(pool.infrastructure, standing.infrastructure):
        return Consequence(pool=pool.name, action="keep", machines=standing.machines)
    options: tuple[str, ...] = ()
    if pool.template is not None and standing.template is not None:
        options = machine_templates.differing(standing.template, pool.template)
    return Consequence(
        pool=pool.name,
        action="replace",
        machines=standing.machines,
        options=options,
        held=pool.in_place_only and bool(standing.machines),
    )


def hold(pool: DesiredPool, standing: Standing) -> DesiredPool:
    """Return the pool with the template of its existing machines; everything else is as desired."""
    deployment = msgspec.json.decode(msgspec.json.encode(pool.deployment))
    deployment["spec"]["template"]["spec"]["infrastructureRef"] = standing.infrastructure
    return msgspec.structs.replace(pool, deployment=deployment, template=None)


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(key) == other.get(key) for key in ("apiGroup", "kind", "name"))


def _named(machines: Sequence[str]) -> str:
    if not machines:
        return "no machines"
    shown = ", ".join(machines[:_MOST_NAMES])
    more = len(machines) - _MOST_NAMES
    return f"{'Machine' if len(machines) == 1 else 'Machines'} {shown}{f' and {more} more' if more > 0 else ''}"
