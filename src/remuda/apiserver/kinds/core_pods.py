"""Pods and pod templates.

The engine runs no pods: a pod stays Pending until a client writes its status. Deletion waits for the grace period only
if the pod has a node and has not finished.
"""

from __future__ import annotations

import time
from typing import Any

from remuda.apiserver.kinds.columns import (
    AGE,
    NAME,
    at,
    condition_is_true,
    format_labels,
    human_duration,
    string,
)
from remuda.apiserver.kinds.declare import Rules, declare, join_list, schema
from remuda.apiserver.kinds.pod_spec import default_pod_spec, validate_pod_spec, validate_template, validate_tolerations
from remuda.apiserver.resource import Obj, Subresource, TableColumn
from remuda.kube import clock, errors
from remuda.kube.errors import FieldError

_CHANGEABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_QOS_RESOURCES = ("cpu", "memory")


def _default_pod(pod: Obj) -> None:
    spec = pod["spec"]
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for field in ("containers", "initContainers"):
        for container in spec.get(field) or ():
            _default_container(container, host_network=spec.get("hostNetwork", False))
    join_list(pod["status"], "podIP", "podIPs", "ip")


def _default_container(container: Obj, *, host_network: bool) -> None:
    resources = container.get("resources") or {}
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}
    if host_network:
        for port in container.get("ports") or ():
            port.setdefault("hostPort", port.get("containerPort"))


def _create(pod: Obj) -> None:
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(pod["spec"])}


def qos_class(spec: Obj) -> str:
    """Return the QoS class: Guaranteed if every container's requests equal its limits, BestEffort if none has any."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    amounts = [container.get("resources") or {} for container in containers]
    asked = [_compute(r.get("requests")) for r in amounts]
    limited = [_compute(r.get("limits")) for r in amounts]
    if not any(asked) and not any(limited):
        return "BestEffort"
    is_guaranteed = all(
        len(limit) == 2 and (not ask or ask == limit) for ask, limit in zip(asked, limited, strict=True)
    )
    return "Guaranteed" if is_guaranteed else "Burstable"


def _compute(amounts: dict[str, str] | None) -> dict[str, str]:
    return {name: amounts[name] for name in _QOS_RESOURCES if amounts.get(name, "0") != "0"} if amounts else {}


def _validate(pod: Obj) -> list[FieldError]:
    return validate_pod_spec(pod["spec"], "spec")


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update. Only images, the deadline, gates and additional tolerations may change in a pod's
    spec.
    """
    spec, before = new["spec"], old["spec"]
    for field in ("containers", "initContainers"):
        if len(spec.get(field) or ()) != len(before.get(field) or ()):
            return [errors.forbidden(f"spec.{field}", "pod updates may not add or remove containers")]
    found = _deadline_errors(spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"))
    found += _toleration_errors(spec.get("tolerations") or [], before.get("tolerations") or [])
    found += _gate_errors(spec.get("schedulingGates") or [], before.get("schedulingGates") or [])
    if _fixed_part(spec, before) != _fixed_part(before, before):
        found.append(errors.forbidden("spec", f"pod updates may not change fields other than {_CHANGEABLE}"))
    return found


def _deadline_errors(new: int | None, old: int | None) -> list[FieldError]:
    path = "spec.activeDeadlineSeconds"
    if new is None:
        why = "must not update from a positive integer to nil value"
        return [] if old is None else [errors.invalid(path, None, why)]
    if old is not None and old < new:
        return [errors.invalid(path, new, "must be less than or equal to previous value")]
    return []


def _toleration_errors(new: list[Obj], old: list[Obj]) -> list[FieldError]:
    def timeless(toleration: Obj) -> Obj:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    present = [timeless(toleration) for toleration in new]
    if any(timeless(toleration) not in present for toleration in old):
        why = "existing toleration can not be modified except its tolerationSeconds"
        return [errors.forbidden("spec.tolerations", why)]
    return validate_tolerations(new, "spec.tolerations") if new != old else []


def _gate_errors(new: list[Obj], old: list[Obj]) -> list[FieldError]:
    kept = {gate.get("name") for gate in old}
    why = "only deletion is allowed, but found new scheduling gate"
    return [
        errors.forbidden(f"spec.schedulingGates[{index}].name", f"{why} '{gate.get('name')}'")
        for index, gate in enumerate(new)
        if gate.get("name") not in kept
    ]


_FREE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")


def _fixed_part(spec: Obj, before: Obj) -> Obj:
    fixed = {key: value for key, value in spec.items() if key not in _FREE}
    for field in ("containers", "initContainers"):
        if spec.get(field):
            fixed[field] = [{k: v for k, v in container.items() if k != "image"} for container in spec[field]]
    if (before.get("terminationGracePeriodSeconds") or 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        fixed["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    if before.get("schedulingGates"):
        fixed.pop("nodeSelector", None)
        fixed.pop("affinity", None)
    return fixed


def _graceful_seconds(pod: Obj, asked: int | None) -> int:
    spec = pod["spec"]
    if not spec.get("nodeName") or at(pod, "status", "phase") in ("Failed", "Succeeded"):
        return 0
    seconds: int = asked if asked is not None else spec.get("terminationGracePeriodSeconds") or 0
    return 1 if seconds < 0 else seconds


# -- columns ----------------------------------------------------------------------------------------------------------


def _is_sidecar(container: Obj | None) -> bool:
    return container is not None and container.get("restartPolicy") == "Always"


class _Summary:
    """Values of the columns READY, STATUS and RESTARTS, collected in one walk over the container statuses."""

    def __init__(self, pod: Obj) -> None:
        spec, status = pod.get("spec") or {}, pod.get("status") or {}
        self.ready = 0
        self.restarts = 0
        self.restarted_at = ""
        init = {container.get("name"): container for container in spec.get("initContainers") or ()}
        self.total = len(spec.get("containers") or ()) + sum(map(_is_sidecar, init.values()))
        self.reason = status.get("reason") or status.get("phase") or ""
        if any(
            c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated"
            for c in status.get("conditions") or ()
        ):
            self.reason = "SchedulingGated"
        initializing = self._init_containers(init, status)
        if not initializing or condition_is_true(pod, "Initialized"):
            self._containers(pod, init, status)
        if at(pod, "metadata", "deletionTimestamp"):
            if status.get("reason") == "NodeLost":
                self.reason = "Unknown"
            elif status.get("phase") not in ("Succeeded", "Failed"):
                self.reason = "Terminating"

    def _count(self, container: Obj) -> None:
        self.restarts += container.get("restartCount") or 0
        self.restarted_at = max(self.restarted_at, at(container, "lastState", "terminated", "finishedAt"))

    def _init_containers(self, init: dict[Any, Obj], status: Obj) -> bool:
        for index, container in enumerate(status.get("initContainerStatuses") or ()):
            self._count(container)
            terminated = at(container, "state", "terminated", default=None)
            if terminated is not None and not terminated.get("exitCode"):
                continue
            if _is_sidecar(init.get(container.get("name"))) and container.get("started"):
                self.ready += bool(container.get("ready"))
                continue
            waiting = at(container, "state", "waiting", "reason")
            if terminated is not None:
                self.reason = "Init:" + _why_terminated(terminated)
            elif waiting and waiting != "PodInitializing":
                self.reason = f"Init:{waiting}"
            else:
                self.reason = f"Init:{index}/{len(init)}"
            return True
        return False

    def _containers(self, pod: Obj, init: dict[Any, Obj], status: Obj) -> None:
        self.restarts, self.restarted_at = 0, ""
        for container in status.get("initContainerStatuses") or ():
            if _is_sidecar(init.get(container.get("name"))):
                self._count(container)
        is_running, failure = False, ""
        for container in reversed(status.get("containerStatuses") or ()):
            self._count(container)
            state = container.get("state") or {}
            if at(state, "waiting", "reason"):
                self.reason = state["waiting"]["reason"]
            elif (terminated := state.get("terminated")) is not None:
                self.reason = _why_terminated(terminated)
                if terminated.get("exitCode"):
                    failure = self.reason
            elif container.get("ready") and state.get("running") is not None:
                is_running = True
                self.ready += 1
        if self.reason == "Completed" and (is_running or failure):
            is_ready = is_running and condition_is_true(pod, "Ready")
            self.reason = "Running" if is_ready else failure or "NotReady"

    def restarts_text(self) -> str:
        if not self.restarts or not self.restarted_at:
            return str(self.restarts)
        return f"{self.restarts} ({human_duration(time.time() - clock.parse(self.restarted_at))} ago)"


def _why_terminated(terminated: Obj) -> str:
    if reason := terminated.get("reason"):
        return str(reason)
    signal = terminated.get("signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode') or 0}"


def _pod_ip(pod: Obj) -> str:
    ips = at(pod, "status", "podIPs", default=())
    return (ips[0].get("ip") if ips else "") or "<none>"


def _readiness_gates(pod: Obj) -> str:
    gates = at(pod, "spec", "readinessGates", default=())
    if not gates:
        return "<none>"
    return f"{sum(condition_is_true(pod, gate.get('conditionType', '')) for gate in gates)}/{len(gates)}"


def _or_none(*path: str) -> TableColumn:
    names = {"nodeName": "Node", "nominatedNodeName": "Nominated Node"}
    return string(names[path[-1]], lambda pod: at(pod, *path) or "<none>", wide=True)


def _ready(pod: Obj) -> str:
    summary = _Summary(pod)
    return f"{summary.ready}/{summary.total}"


PODS = declare(
    "",
    "v1",
    "Pod",
    "pods",
    Rules(
        default=_default_pod,
        create=_create,
        validate=_validate,
        validate_update=_validate_update,
        graceful_seconds=_graceful_seconds,
    ),
    short_names=("po",),
    categories=("all",),
    has_status=True,
    status_leaves=("spec", "metadata.deletionTimestamp", "metadata.ownerReferences"),
    returns_deleted=True,
    selectable={
        "spec.nodeName": ("spec", "nodeName"),
        "spec.host": ("spec", "nodeName"),
        "spec.restartPolicy": ("spec", "restartPolicy"),
        "spec.schedulerName": ("spec", "schedulerName"),
        "spec.serviceAccountName": ("spec", "serviceAccountName"),
        "spec.hostNetwork": ("spec", "hostNetwork"),
        "status.phase": ("status", "phase"),
        "status.podIP": ("status", "podIP"),
        "status.nominatedNodeName": ("status", "nominatedNodeName"),
    },
    selectable_zero={"spec.hostNetwork": "false"},
    columns=(
        NAME,
        string("Ready", _ready),
        string("Status", lambda pod: _Summary(pod).reason),
        string("Restarts", lambda pod: _Summary(pod).restarts_text()),
        AGE,
        string("IP", _pod_ip, wide=True),
        _or_none("spec", "nodeName"),
        _or_none("status", "nominatedNodeName"),
        string("Readiness Gates", _readiness_gates, wide=True),
    ),
    subresources={
        "binding": Subresource(kind="Binding", verbs=("create",), schema=schema("", "v1", "Binding")),
        "eviction": Subresource(
            kind="Eviction", verbs=("create",), group="policy", version="v1", schema=schema("policy", "v1", "Eviction")
        ),
        "log": Subresource(kind="Pod", verbs=("get",)),
    },
)


def _default_template(template: Obj) -> None:
    default_pod_spec(template["template"]["spec"])


def _container_names(key: str) -> TableColumn:
    title = {"name": "Containers", "image": "Images"}[key]

    def cell(obj: Obj) -> str:
        return ",".join(str(c.get(key, "")) for c in at(obj, "template", "spec", "containers", default=()))

    return string(title, cell)


POD_TEMPLATES = declare(
    "",
    "v1",
    "PodTemplate",
    "podtemplates",
    Rules(default=_default_template, validate=lambda obj: validate_template(obj["template"], "template")),
    returns_deleted=True,
    columns=(
        NAME,
        _container_names("name"),
        _container_names("image"),
        string("Pod Labels", lambda obj: format_labels(at(obj, "template", "metadata", "labels", default=None))),
    ),
)
