"""Desired MachineSets of a MachineDeployment: pure functions on raw JSON.

The set of the current template gets all in-place changes. Sets of earlier revisions only get those that concern the
deletion of their Machines.
"""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.capi import names, propagation, revisions
from remuda.capi.cluster_index import controlled_by
from remuda.capi.machinedeployment.rollout import RolloutLimits
from remuda.capi.propagation import Keys
from remuda.capi.revisions import MachineSetRevision
from remuda.capi.types import MACHINE_DEPLOYMENT, MACHINE_SET, MachineDeployment
from remuda.runtime.draft import Draft

Json = dict[str, Any]

# The first two describe the MachineDeployment object itself. The others have a value of their own in each set.
_NOT_COPIED = frozenset(
    {
        names.LAST_APPLIED,
        names.CONVERSION_DATA,
        names.REVISION,
        names.REVISION_HISTORY,
        names.DESIRED_REPLICAS,
        names.MAX_REPLICAS,
    }
)
BOOKKEEPING = (
    names.REVISION,
    names.REVISION_HISTORY,
    names.DESIRED_REPLICAS,
    names.MAX_REPLICAS,
    names.DISABLE_MACHINE_CREATE,
)
_COPIED_SPEC = ("machineNaming", "deletion")


def labels(deployment: MachineDeployment, hash: str) -> dict[str, str]:
    return {
        **deployment.spec.template.metadata.labels,
        names.CLUSTER_NAME: names.label_value(deployment.spec.cluster_name),
        names.DEPLOYMENT_NAME: names.label_value(deployment.metadata.name),
        names.TEMPLATE_HASH: hash,
    }


def copied_annotations(deployment: MachineDeployment) -> dict[str, str]:
    return {key: value for key, value in deployment.metadata.annotations.items() if key not in _NOT_COPIED}


def made(
    deployment: MachineDeployment,
    raw: Json,
    identity: MachineSetRevision,
    size: int,
    limits: RolloutLimits,
    number: int,
) -> Json:
    """Return a new MachineSet. `raw`: the MachineDeployment as read."""
    spec = _copied(raw["spec"])
    template = spec["template"]
    template.setdefault("metadata", {})["labels"] = labels(deployment, identity.hash)
    selector = spec.get("selector") or {}
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), names.TEMPLATE_HASH: identity.hash}
    kept = {name: spec[name] for name in _COPIED_SPEC if spec.get(name)}
    return {
        "apiVersion": MACHINE_SET.api_version,
        "kind": MACHINE_SET.name,
        "metadata": {
            "name": identity.name,
            "namespace": deployment.metadata.namespace,
            "labels": labels(deployment, identity.hash),
            "annotations": {
                **copied_annotations(deployment),
                names.REVISION: str(number),
                names.DISABLE_MACHINE_CREATE: "false",
                **sized(limits),
            },
            "finalizers": [names.MACHINE_SET_FINALIZER],
            "ownerReferences": [msgspec.to_builtins(controlled_by(MACHINE_DEPLOYMENT, deployment.metadata))],
        },
        "spec": {
            "clusterName": deployment.spec.cluster_name,
            "replicas": size,
            "selector": selector,
            "template": template,
            **kept,
        },
    }


def renew(draft: Draft, deployment: MachineDeployment, raw: Json, number: int, stale: Keys) -> None:
    """Update the set of the current template in place, without resizing it. Remove `stale`."""
    hash = draft.metadata.get("labels", {}).get(names.TEMPLATE_HASH, "")
    wanted = labels(deployment, hash)
    if not hash:  # an adopted one: its own selector identifies its Machines
        del wanted[names.TEMPLATE_HASH]
    propagation.propagate(draft, wanted, copied_annotations(deployment), stale)
    notes = draft.metadata.setdefault("annotations", {})
    notes.update(revisions.bookkeeping(notes, number))
    draft.set_annotation(names.DISABLE_MACHINE_CREATE, "false")
    own = _copied(raw["spec"])
    template = draft.spec["template"]
    metadata = {**(own["template"].get("metadata") or {}), "labels": wanted}
    template["metadata"] = metadata
    propagation.propagate_fields(own["template"]["spec"], template["spec"])
    for name in _COPIED_SPEC:
        _replace(draft.spec, name, own.get(name))


def retire(draft: Draft, raw: Json, *, on_delete: bool) -> None:
    """Update a set of an earlier revision: how its Machines are deleted, and whether lost Machines are created
    again."""
    draft.set_annotation(names.DISABLE_MACHINE_CREATE, "true" if on_delete else "false")
    propagation.propagate_timeouts(raw["spec"]["template"]["spec"], draft.spec["template"]["spec"])
    _replace(draft.spec, "deletion", raw["spec"].get("deletion"))


def resize(draft: Draft, size: int, limits: RolloutLimits) -> None:
    """Set the size, and the total size for which it was chosen, if that matters."""
    draft.spec["replicas"] = size
    if size or draft.base["spec"].get("replicas"):
        draft.metadata.setdefault("annotations", {}).update(sized(limits))


def sized(limits: RolloutLimits) -> dict[str, str]:
    return {names.DESIRED_REPLICAS: str(limits.replicas), names.MAX_REPLICAS: str(limits.ceiling)}


def _replace(obj: Json, name: str, value: Any) -> None:
    if value:
        obj[name] = value
    else:
        obj.pop(name, None)


def _copied(value: Json) -> Json:
    return msgspec.json.decode(msgspec.json.encode(value))  # type: ignore[no-any-return]
