"""Handler of pods/eviction: a delete that respects disruption budgets.

A budget's status says how many disruptions it allows. Each eviction uses one by recording the pod in the status that it
read, so that two evictions can never share the last one. Budgets count only ready pods. A pod that is not ready can be
evicted without using a disruption while enough other pods are ready, or whenever the budget's policy allows it,
provided that the pod has not become ready in the meantime.
"""

from __future__ import annotations

import msgspec

from remuda.apiserver.registry.calls import Call, DeleteOptions, WriteOptions, Written
from remuda.apiserver.registry.objects import decode, metadata
from remuda.apiserver.registry.registry import Registry, answer
from remuda.apiserver.resource import Obj
from remuda.kube import clock
from remuda.kube.errors import (
    Conflict,
    StatusError,
    bad_request,
    conflict,
    forbidden_request,
    not_found,
    too_many_requests,
)
from remuda.kube.selectors import SelectorError, label_selector_from

PODS, BUDGETS = "pods", "poddisruptionbudgets.policy"
_MOST_DISRUPTED = 2000  # evicted pods that the budget's controller has not confirmed yet; upstream's limit
_ATTEMPTS = 20
_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
_VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."


class Evictions:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def evict(self, call: Call, eviction: Obj, options: WriteOptions) -> Written:
        if eviction.get("kind", "Eviction") != "Eviction":
            raise bad_request(f"expected a policy/v1 Eviction, got {eviction.get('kind')}")
        if metadata(eviction).get("name", "") != call.name:
            raise bad_request("name in URL does not match name in Eviction object")
        wanted = _delete_options(eviction.get("deleteOptions") or {}, options)
        for attempt in range(_ATTEMPTS):
            pod = self._registry.read(PODS, call.namespace, call.name)
            if pod is None:
                raise not_found("", PODS, call.name)
            if not _is_free(pod):
                await self._evict_protected(call, pod, wanted)
                break
            try:
                await self._delete(call, wanted if _is_over(pod) else _only_if_still(pod, wanted))
                break
            except Conflict:
                if wanted.precondition_resource_version is not None or attempt + 1 == _ATTEMPTS:
                    raise
        return answer(_SUCCESS)

    async def _evict_protected(self, call: Call, pod: Obj, wanted: DeleteOptions) -> None:
        budget = self._budget_of(call.namespace, pod)
        if budget is None or not _spares(budget, pod):
            if budget is not None:
                await self._take(budget, call.name, wanted.dry_run)
            await self._delete(call, wanted)
            return
        try:
            await self._delete(call, _only_if_still(pod, wanted))
        except Conflict:
            if wanted.precondition_resource_version is not None:
                raise
            raise _still_processed(budget["metadata"]["name"]) from None

    def _budget_of(self, namespace: str, pod: Obj) -> Obj | None:
        labels = pod["metadata"].get("labels") or {}
        budgets = [decode(entry.value) for entry in self._registry.store.scan(BUDGETS, namespace)]
        found = [budget for budget in budgets if _selects(budget, labels)]
        if len(found) > 1:
            why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise StatusError(500, "", why)
        return found[0] if found else None

    async def _take(self, budget: Obj, pod_name: str, dry_run: bool) -> None:
        """Use one of the budget's allowed disruptions; raise an error if there is none left."""
        resource = self._registry.resources.of_table(BUDGETS)
        assert resource is not None
        meta = budget["metadata"]
        # As the server itself: users may evict pods without permission to write budgets.
        call = self._registry.system_call("update", resource, meta["namespace"], meta["name"], "status")
        options = WriteOptions(field_manager="kube-apiserver", dry_run=dry_run)
        await self._registry.modify(call, lambda live: _with_disruption(live, pod_name), options)

    async def _delete(self, call: Call, wanted: DeleteOptions) -> None:
        """Write the reason into the pod's conditions, then delete it."""
        if not wanted.dry_run:
            wanted = await self._announce(call, wanted)
        # Not authorized again: permission to create an eviction includes this delete.
        await self._registry.delete(Call(call.user, "delete", call.resource, call.namespace, call.name), wanted)

    async def _announce(self, call: Call, wanted: DeleteOptions) -> DeleteOptions:
        status = self._registry.system_call("update", call.resource, call.namespace, call.name, "status")

        def announced(live: Obj) -> Obj:
            _check_preconditions(live, wanted)
            return _with_condition(live)

        written = await self._registry.modify(status, announced, WriteOptions(), own=False)
        if wanted.precondition_resource_version is None:
            return wanted
        # The condition has changed the resourceVersion that the delete below must match.
        version = decode(written.value)["metadata"]["resourceVersion"]
        return msgspec.structs.replace(wanted, precondition_resource_version=version)


# ---- pods --------------------------------------------------------------------------------------------------------


def _is_over(pod: Obj) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed") or "deletionTimestamp" in pod["metadata"]


def _is_free(pod: Obj) -> bool:
    """Return whether no budget protects the pod: it is finished, not started, or being deleted."""
    return _is_over(pod) or (pod.get("status") or {}).get("phase") == "Pending"


def _is_ready(pod: Obj) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _only_if_still(pod: Obj, wanted: DeleteOptions) -> DeleteOptions:
    version = wanted.precondition_resource_version or pod["metadata"]["resourceVersion"]
    return msgspec.structs.replace(wanted, precondition_resource_version=version)


def _check_preconditions(pod: Obj, wanted: DeleteOptions) -> None:
    meta = pod["metadata"]
    uid, version = wanted.precondition_uid, wanted.precondition_resource_version
    if uid and uid != meta["uid"]:
        why = f"the UID in the precondition ({uid}) does not match the UID in record ({meta['uid']})"
        raise conflict("", "Pod", meta["name"], f"{why}. The object might have been deleted and then recreated")
    if version and version != meta["resourceVersion"]:
        why = f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record"
        raise conflict(
            "", "Pod", meta["name"], f"{why} ({meta['resourceVersion']}). The object might have been modified"
        )


def _with_condition(pod: Obj) -> Obj:
    why = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
    new = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": clock.now(),
        **why,
    }
    status = dict(pod.get("status") or {})
    present = {one["type"]: one for one in status.get("conditions") or ()}
    old = present.get("DisruptionTarget")
    if old is not None and old["status"] == "True":
        new["lastTransitionTime"] = old.get("lastTransitionTime")
    status["conditions"] = list({**present, "DisruptionTarget": new}.values())
    return {**pod, "metadata": dict(pod["metadata"]), "status": status}


# ---- budgets -----------------------------------------------------------------------------------------------------


def _selects(budget: Obj, labels: dict[str, str]) -> bool:
    try:
        return label_selector_from(budget["spec"].get("selector")).matches(labels)
    except SelectorError:
        return False  # an invalid selector selects nothing


def _spares(budget: Obj, pod: Obj) -> bool:
    """Return whether the pod may be evicted without using up an allowed disruption."""
    if _is_ready(pod):
        return False
    status = budget.get("status") or {}
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    desired = status.get("desiredHealthy") or 0
    return bool(desired > 0 and (status.get("currentHealthy") or 0) >= desired)


def _with_disruption(budget: Obj, pod_name: str) -> Obj:
    status = dict(budget.get("status") or {})
    _check_budget(budget, status)
    status["disruptionsAllowed"] -= 1
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod_name: clock.now()}
    if status["disruptionsAllowed"] == 0:
        status["conditions"] = _exhausted(status)
    return {**budget, "metadata": dict(budget["metadata"]), "status": status}


def _exhausted(status: Obj) -> list[Obj]:
    conditions = list(status.get("conditions") or ())
    new = {"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": ""}
    if status.get("observedGeneration"):
        new["observedGeneration"] = status["observedGeneration"]
    for i, old in enumerate(conditions):
        if old["type"] == "DisruptionAllowed":
            time = old["lastTransitionTime"] if old["status"] == "False" else clock.now()
            return [*conditions[:i], {**new, "lastTransitionTime": time}, *conditions[i + 1 :]]
    return [*conditions, {**new, "lastTransitionTime": clock.now()}]


def _check_budget(budget: Obj, status: Obj) -> None:
    name = budget["metadata"]["name"]
    if (status.get("observedGeneration") or 0) < (budget["metadata"].get("generation") or 0):
        raise _still_processed(name)
    allowed = status.get("disruptionsAllowed") or 0
    if allowed < 0:
        raise forbidden_request("policy", "poddisruptionbudget", name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or ()) > _MOST_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden_request("policy", "poddisruptionbudget", name, why)
    if allowed == 0:
        raise StatusError(429, "TooManyRequests", _VIOLATION, details=_cause(_why_not(name, status)))


def _still_processed(name: str) -> StatusError:
    error = too_many_requests(_VIOLATION, 10)
    error.details |= _cause(f"The disruption budget {name} is still being processed by the server.")
    return error


def _cause(message: str) -> Obj:
    return {"causes": [{"reason": "DisruptionBudget", "message": message}]}


def _why_not(name: str, status: Obj) -> str:
    refused = next(
        (
            one
            for one in status.get("conditions") or ()
            if one["type"] == "DisruptionAllowed" and one["status"] == "False" and one.get("message")
        ),
        None,
    )
    says = f"The disruption budget {name}"
    if refused and refused.get("reason") == "SyncFailed":
        return f"{says} does not allow evicting pods currently because it failed sync: {refused['message']}"
    current, desired = status.get("currentHealthy") or 0, status.get("desiredHealthy") or 0
    if current <= desired:
        return f"{says} needs {desired} healthy pods and has {current} currently"
    if refused:
        return f"{says} does not allow evicting pods currently ({refused.get('reason')}): {refused['message']}"
    return f"{says} does not allow evicting pods currently"


def _delete_options(body: Obj, options: WriteOptions) -> DeleteOptions:
    preconditions = body.get("preconditions") or {}
    return DeleteOptions(
        grace_period_seconds=body.get("gracePeriodSeconds"),
        propagation_policy=body.get("propagationPolicy") or "",
        precondition_uid=preconditions.get("uid"),
        precondition_resource_version=preconditions.get("resourceVersion"),
        dry_run=options.dry_run or "All" in (body.get("dryRun") or ()),
    )
