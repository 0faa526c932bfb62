"""Handler of pods/binding: writes a scheduler's choice of a node into the pod.

The node's name is an immutable part of the spec, and the condition is part of the status. Both are written at once,
past the checks of ordinary updates, and no manager owns them. A pod is bound only once.
"""

from __future__ import annotations

from remuda.apiserver.registry.calls import Call, WriteOptions, Written
from remuda.apiserver.registry.objects import decode, encode_at, metadata
from remuda.apiserver.registry.registry import Registry, answer
from remuda.apiserver.resource import Obj
from remuda.apiserver.storage.types import WriteConflict
from remuda.kube import clock
from remuda.kube.errors import FieldError, StatusError, bad_request, conflict, not_found, not_supported, required

PODS = "pods"
_ATTEMPTS = 20
_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


class Bindings:
    def __init__(self, registry: Registry) -> None:
        self._store = registry.store

    async def bind(self, call: Call, binding: Obj, options: WriteOptions) -> Written:
        if metadata(binding).get("name", "") != call.name:
            raise bad_request("name in URL does not match name in Binding object")
        if problems := [str(problem) for problem in _target_errors(binding.get("target") or {})]:
            raise StatusError(500, "", problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
        for _ in range(_ATTEMPTS):
            try:
                await self._bind_once(call, binding, options)
                return answer(_SUCCESS)
            except WriteConflict:
                continue
        raise conflict("", PODS, call.name)

    async def _bind_once(self, call: Call, binding: Obj, options: WriteOptions) -> None:
        entry = self._store.latest(PODS, call.namespace, call.name)
        if entry is None:
            raise not_found("", PODS, call.name)
        live = decode(entry.value)
        _check_preconditions(live, metadata(binding))
        if why := _why_not(live):
            raise conflict("", "pods/binding", call.name, why)
        bound = _bound(live, binding)
        if not options.dry_run:
            key = (PODS, call.namespace, call.name)
            await self._store.put(*key, lambda revision: encode_at(bound, revision), expect=entry)


def _target_errors(target: Obj) -> list[FieldError]:
    found = []
    if target.get("kind") not in (None, "", "Node"):
        found.append(not_supported("target.kind", target["kind"], ["Node", "<empty>"]))
    if not target.get("name"):
        found.append(required("target.name", ""))
    return found


def _check_preconditions(pod: Obj, wanted: Obj) -> None:
    meta = pod["metadata"]
    for field, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        given = wanted.get(field)
        if given and given != meta[field]:
            why = f"Precondition failed: {word} in precondition: {given}, {word} in object meta: {meta[field]}"
            raise conflict("", PODS, meta["name"], why)


def _why_not(pod: Obj) -> str:
    name, spec = pod["metadata"]["name"], pod["spec"]
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    return f"pod {name} has non-empty .spec.schedulingGates" if spec.get("schedulingGates") else ""


def _bound(pod: Obj, binding: Obj) -> Obj:
    meta = dict(pod["metadata"])
    for field in ("annotations", "labels"):
        if more := metadata(binding).get(field):
            meta[field] = {**(meta.get(field) or {}), **more}
    status = {**(pod.get("status") or {}), "conditions": _scheduled(pod)}
    status.pop("nominatedNodeName", None)
    spec = {**pod["spec"], "nodeName": binding["target"]["name"]}
    return {**pod, "metadata": meta, "spec": spec, "status": status}


def _scheduled(pod: Obj) -> list[Obj]:
    """Return the pod's conditions with PodScheduled true; the transition time stays if it was already true."""
    present = {one["type"]: one for one in (pod.get("status") or {}).get("conditions") or ()}
    old = present.get("PodScheduled")
    since = old.get("lastTransitionTime") if old is not None and old["status"] == "True" else clock.now()
    new = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": since}
    return list({**present, "PodScheduled": new}.values())
