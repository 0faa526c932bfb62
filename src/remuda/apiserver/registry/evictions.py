"""pods/eviction: a delete that respects disruption budgets.

The budget's status says how many disruptions it allows; each eviction takes one by recording the pod there, with the
revision it was read at, so that two evictions can never share the last one.
"""

from __future__ import annotations

from remuda.apiserver.registry.calls import Call, DeleteOptions, WriteOptions, Written
from remuda.apiserver.registry.objects import decode, metadata, timestamp
from remuda.apiserver.registry.registry import Registry, answer
from remuda.apiserver.resource import Obj
from remuda.kube.errors import StatusError, bad_request, internal, not_found, too_many_requests
from remuda.kube.selectors import label_selector_from

PODS, BUDGETS = "pods", "poddisruptionbudgets.policy"
_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


class Evictions:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def evict(self, call: Call, eviction: Obj, options: WriteOptions) -> Written:
        if eviction.get("kind", "Eviction") != "Eviction":
            raise bad_request(f"expected a policy/v1 Eviction, got {eviction.get('kind')}")
        name = metadata(eviction).get("name") or call.name
        if name != call.name:
            raise bad_request("name in URL does not match name in Eviction object")
        pod = self._registry.read(PODS, call.namespace, call.name)
        if pod is None:
            raise not_found("", PODS, call.name)
        wanted = _delete_options(eviction.get("deleteOptions") or {}, options)
        if not _is_free(pod):
            await self._take_budget(call.namespace, pod, wanted.dry_run)
        await self._registry.delete(Call(call.user, "delete", call.resource, call.namespace, call.name), wanted)
        return answer(_SUCCESS)

    async def _take_budget(self, namespace: str, pod: Obj, dry_run: bool) -> None:
        budgets = self._budgets_of(namespace, pod)
        if len(budgets) > 1:
            raise internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            )
        for budget in budgets:
            _check_budget(budget)
            if not dry_run:
                await self._record(budget, pod)

    def _budgets_of(self, namespace: str, pod: Obj) -> list[Obj]:
        labels = pod["metadata"].get("labels") or {}
        budgets = [decode(entry.value) for entry in self._registry.store.scan(BUDGETS, namespace)]
        return [b for b in budgets if label_selector_from(b["spec"].get("selector")).matches(labels)]

    async def _record(self, budget: Obj, pod: Obj) -> None:
        resource = self._registry.resources.of_table(BUDGETS)
        assert resource is not None
        meta = budget["metadata"]
        call = self._registry.system_call("update", resource, meta["namespace"], meta["name"], "status")

        def change(live: Obj) -> Obj:
            _check_budget(live)
            status = dict(live.get("status") or {})
            status["disruptionsAllowed"] = status.get("disruptionsAllowed", 0) - 1
            status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: timestamp()}
            return {**live, "metadata": dict(live["metadata"]), "status": status}

        await self._registry.modify(call, change, WriteOptions(field_manager="kube-apiserver"))


def _is_free(pod: Obj) -> bool:
    """Pods that no budget protects: finished, not yet started, or already going."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def _check_budget(budget: Obj) -> None:
    status = budget.get("status") or {}
    meta = budget["metadata"]
    name = meta["name"]
    if status.get("observedGeneration", 0) < meta.get("generation", 0):
        raise too_many_requests(
            f"Cannot evict pod as it would violate the pod's disruption budget. "
            f"The disruption budget {name} is still being processed by the server.",
            10,
        )
    if status.get("disruptionsAllowed", 0) <= 0:
        raise _violates(name, status)


def _violates(name: str, status: Obj) -> StatusError:
    error = too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.")
    error.details = {
        "causes": [
            {
                "reason": "DisruptionBudget",
                "message": f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods and has "
                f"{status.get('currentHealthy', 0)} currently",
            }
        ]
    }
    error.headers.clear()
    return error


def _delete_options(body: Obj, options: WriteOptions) -> DeleteOptions:
    preconditions = body.get("preconditions") or {}
    return DeleteOptions(
        grace_period_seconds=body.get("gracePeriodSeconds"),
        propagation_policy=body.get("propagationPolicy") or "",
        precondition_uid=preconditions.get("uid"),
        precondition_resource_version=preconditions.get("resourceVersion"),
        dry_run=options.dry_run or "All" in (body.get("dryRun") or ()),
    )
