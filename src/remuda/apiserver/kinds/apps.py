"""The apps group. Nothing here runs pods, so the kinds are plain records, but the server defaults and validates them as
kube-apiserver does.
"""

from __future__ import annotations

from typing import Any

from remuda.apiserver.kinds.columns import (
    AGE,
    NAME,
    at,
    containers,
    format_labels,
    integer,
    selector_column,
    string,
    value,
)
from remuda.apiserver.kinds.core_volumes import validate_claim_spec
from remuda.apiserver.kinds.declare import Rules, declare, non_negative, one_of, unchanged
from remuda.apiserver.kinds.pod_spec import default_pod_spec
from remuda.apiserver.kinds.workloads import (
    amount,
    count_or_percent_errors,
    endless_template_errors,
    mismatch_errors,
    over_hundred_errors,
    selector_errors,
)
from remuda.apiserver.resource import Obj, ScalePaths
from remuda.kube import errors, names
from remuda.kube.errors import FieldError

_REPLICAS = ScalePaths(
    spec_replicas=("spec", "replicas"), status_replicas=("status", "replicas"), selector=("spec", "selector")
)
_STATEFUL_CHANGEABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"  # remains of a field of extensions/v1beta1
_CLAIM_POLICIES = ("Retain", "Delete")


def _default_template(obj: Obj) -> None:
    default_pod_spec(obj["spec"]["template"]["spec"])


def _default_deployment(deployment: Obj) -> None:
    _default_template(deployment)
    strategy = deployment["spec"]["strategy"]
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")


def _common_errors(spec: Obj, kind: str, *, selects_for: str) -> list[FieldError]:
    found = non_negative(spec.get("replicas"), "spec.replicas")
    found += non_negative(spec.get("minReadySeconds"), "spec.minReadySeconds")
    found += non_negative(spec.get("revisionHistoryLimit"), "spec.revisionHistoryLimit")
    # For a DaemonSet without a selector, kube-apiserver reports only the mismatch.
    if spec.get("selector") is not None or kind != "DaemonSet":
        found += selector_errors(spec.get("selector"), "spec.selector", selects_for)
    found += mismatch_errors(spec, "spec")
    return found + endless_template_errors(spec, "spec", kind)


def _validate_deployment(deployment: Obj) -> list[FieldError]:
    spec = deployment["spec"]
    found = _common_errors(spec, "ReplicaSet", selects_for="deployment")
    found += _strategy_errors(spec["strategy"])
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None:
        found += non_negative(deadline, "spec.progressDeadlineSeconds")
        if deadline <= spec.get("minReadySeconds", 0):
            why = "must be greater than minReadySeconds"
            found.append(errors.invalid("spec.progressDeadlineSeconds", deadline, why))
    return found


def _strategy_errors(strategy: Obj) -> list[FieldError]:
    path = "spec.strategy.rollingUpdate"
    rolling: Any = strategy.get("rollingUpdate")
    match strategy["type"]:
        case "Recreate":
            why = "may not be specified when strategy `type` is 'Recreate'"
            return [] if rolling is None else [errors.forbidden(path, why)]
        case "RollingUpdate":
            unavailable, surge = rolling["maxUnavailable"], rolling["maxSurge"]
            found = count_or_percent_errors(unavailable, f"{path}.maxUnavailable")
            found += count_or_percent_errors(surge, f"{path}.maxSurge")
            if not amount(unavailable) and not amount(surge):
                why = "may not be 0 when `maxSurge` is 0"
                found.append(errors.invalid(f"{path}.maxUnavailable", unavailable, why))
            return found + over_hundred_errors(unavailable, f"{path}.maxUnavailable")
    return [errors.not_supported("spec.strategy", strategy, ("Recreate", "RollingUpdate"))]


def _selector_is_fixed(new: Obj, old: Obj) -> list[FieldError]:
    return unchanged(new, old, "spec", "selector")


def _per_desired(status_field: str) -> Any:
    return lambda obj: f"{at(obj, 'status', status_field, default=0)}/{at(obj, 'spec', 'replicas', default=0)}"


DEPLOYMENTS = declare(
    "apps",
    "v1",
    "Deployment",
    "deployments",
    Rules(default=_default_deployment, validate=_validate_deployment, validate_update=_selector_is_fixed),
    short_names=("deploy",),
    categories=("all",),
    has_status=True,
    status_leaves=("spec", "metadata.labels"),
    scale=_REPLICAS,
    columns=(
        NAME,
        string("Ready", _per_desired("readyReplicas")),
        string("Up-to-date", value("status", "updatedReplicas", default=0)),
        string("Available", value("status", "availableReplicas", default=0)),
        AGE,
        *containers("spec", "template", "spec"),
        selector_column(),
    ),
)


def _validate_replica_set(replica_set: Obj) -> list[FieldError]:
    return _common_errors(replica_set["spec"], "ReplicaSet", selects_for="deployment")


REPLICA_SETS = declare(
    "apps",
    "v1",
    "ReplicaSet",
    "replicasets",
    Rules(default=_default_template, validate=_validate_replica_set, validate_update=_selector_is_fixed),
    short_names=("rs",),
    categories=("all",),
    has_status=True,
    scale=_REPLICAS,
    selectable={"status.replicas": ("status", "replicas")},
    selectable_zero={"status.replicas": "0"},
    columns=(
        NAME,
        integer("Desired", value("spec", "replicas", default=0)),
        integer("Current", value("status", "replicas", default=0)),
        integer("Ready", value("status", "readyReplicas", default=0)),
        AGE,
        *containers("spec", "template", "spec"),
        selector_column(),
    ),
)


def _default_stateful_set(stateful: Obj) -> None:
    _default_template(stateful)
    strategy = stateful["spec"]["updateStrategy"]
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and strategy.get("rollingUpdate") is not None:
        strategy["rollingUpdate"].setdefault("partition", 0)
    for claim in stateful["spec"].get("volumeClaimTemplates") or ():
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")


def _validate_stateful_set(stateful: Obj) -> list[FieldError]:
    spec = stateful["spec"]
    found = _stateful_policy_errors(spec)
    found += non_negative(at(spec, "ordinals", "start", default=None), "spec.ordinals.start")
    if service := spec.get("serviceName"):
        found += [errors.invalid("spec.serviceName", service, why) for why in names.dns1123_label(service)]
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        found += validate_claim_spec(claim["spec"], f"spec.volumeClaimTemplates[{index}].spec")
    return found + _common_errors(_with_claimed_volumes(spec), "StatefulSet", selects_for="statefulset")


def _stateful_policy_errors(spec: Obj) -> list[FieldError]:
    found = []
    policy, strategy = spec["podManagementPolicy"], spec["updateStrategy"]
    if policy not in ("OrderedReady", "Parallel"):
        found.append(errors.invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    if strategy["type"] not in ("RollingUpdate", "OnDelete"):
        found.append(errors.invalid("spec.updateStrategy", strategy, "must be 'RollingUpdate' or 'OnDelete'"))
    rolling = strategy.get("rollingUpdate")
    if rolling is not None and strategy["type"] == "OnDelete":
        why = "only allowed for updateStrategy 'RollingUpdate'"
        found.append(errors.invalid("spec.updateStrategy.rollingUpdate", rolling, why))
    elif rolling is not None:
        found += non_negative(rolling.get("partition"), "spec.updateStrategy.rollingUpdate.partition")
    retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for field in ("whenDeleted", "whenScaled"):
        path = f"spec.persistentVolumeClaimRetentionPolicy.{field}"
        found += one_of(retention.get(field), path, _CLAIM_POLICIES)
    return found


def _with_claimed_volumes(spec: Obj) -> Obj:
    """Return the spec with the volumes that its claim templates add to each pod, so that mounts refer to existing
    volumes.
    """
    claimed = [at(claim, "metadata", "name") for claim in spec.get("volumeClaimTemplates") or ()]
    if not claimed:
        return spec
    pod = spec["template"]["spec"]
    own = [volume for volume in pod.get("volumes") or () if volume.get("name") not in claimed]
    volumes = own + [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claimed]
    return {**spec, "template": {**spec["template"], "spec": {**pod, "volumes": volumes}}}


def _validate_stateful_update(new: Obj, old: Obj) -> list[FieldError]:
    def fixed(obj: Obj) -> Obj:
        return {key: value for key, value in obj["spec"].items() if key not in _STATEFUL_CHANGEABLE}

    if fixed(new) == fixed(old):
        return []
    why = (
        "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
        "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
    )
    return [errors.forbidden("spec", why)]


STATEFUL_SETS = declare(
    "apps",
    "v1",
    "StatefulSet",
    "statefulsets",
    Rules(
        default=_default_stateful_set,
        validate=_validate_stateful_set,
        validate_update=_validate_stateful_update,
        validate_name=names.label_name,
    ),
    short_names=("sts",),
    categories=("all",),
    has_status=True,
    scale=_REPLICAS,
    columns=(NAME, string("Ready", _per_desired("readyReplicas")), AGE, *containers("spec", "template", "spec")),
)


def _default_daemon_set(daemon: Obj) -> None:
    _default_template(daemon)
    # kube-apiserver stores this field as an annotation. It exists from creation, so the writer owns it.
    _set_template_generation(daemon, _template_generation(daemon))
    strategy = daemon["spec"]["updateStrategy"]
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)


def _template_generation(daemon: Obj) -> int:
    text = at(daemon, "metadata", "annotations", _TEMPLATE_GENERATION)
    return int(text) if text.isdecimal() and len(text) < 19 else 0


def _set_template_generation(daemon: Obj, number: int) -> None:
    meta = daemon["metadata"]
    meta["annotations"] = {**(meta.get("annotations") or {}), _TEMPLATE_GENERATION: str(number)}


def _create_daemon_set(daemon: Obj) -> None:
    _set_template_generation(daemon, max(_template_generation(daemon), 1))


def _update_daemon_set(new: Obj, old: Obj) -> None:
    is_changed = new["spec"]["template"] != old["spec"]["template"]
    _set_template_generation(new, _template_generation(old) + is_changed)


def _validate_daemon_set(daemon: Obj) -> list[FieldError]:
    spec = daemon["spec"]
    found = _common_errors(spec, "DaemonSet", selects_for="daemonset")
    return found + _daemon_strategy_errors(spec["updateStrategy"])


def _daemon_strategy_errors(strategy: Obj) -> list[FieldError]:
    path = "spec.updateStrategy.rollingUpdate"
    if strategy["type"] == "OnDelete":
        return []
    if strategy["type"] != "RollingUpdate":
        return [errors.not_supported("spec.updateStrategy", strategy, ("RollingUpdate", "OnDelete"))]
    unavailable, surge = strategy["rollingUpdate"]["maxUnavailable"], strategy["rollingUpdate"]["maxSurge"]
    found: list[FieldError] = []
    for field, given in (("maxUnavailable", unavailable), ("maxSurge", surge)):
        found += count_or_percent_errors(given, f"{path}.{field}")
        found += over_hundred_errors(given, f"{path}.{field}")
    if amount(unavailable) and amount(surge):
        found.append(errors.invalid(f"{path}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    elif not amount(unavailable) and not amount(surge):
        found.append(errors.required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return found


def _daemon_node_selector(daemon: Obj) -> str:
    return format_labels(at(daemon, "spec", "template", "spec", "nodeSelector", default=None))


DAEMON_SETS = declare(
    "apps",
    "v1",
    "DaemonSet",
    "daemonsets",
    Rules(
        default=_default_daemon_set,
        create=_create_daemon_set,
        update=_update_daemon_set,
        validate=_validate_daemon_set,
        validate_update=_selector_is_fixed,
    ),
    short_names=("ds",),
    categories=("all",),
    has_status=True,
    columns=(
        NAME,
        integer("Desired", value("status", "desiredNumberScheduled", default=0)),
        integer("Current", value("status", "currentNumberScheduled", default=0)),
        integer("Ready", value("status", "numberReady", default=0)),
        integer("Up-to-date", value("status", "updatedNumberScheduled", default=0)),
        integer("Available", value("status", "numberAvailable", default=0)),
        string("Node Selector", _daemon_node_selector),
        AGE,
        *containers("spec", "template", "spec"),
        selector_column(),
    ),
)


def _validate_revision(revision: Obj) -> list[FieldError]:
    found = [] if revision.get("data") is not None else [errors.required("data", "data is mandatory")]
    return found + non_negative(revision.get("revision"), "revision")


def _controller(revision: Obj) -> str:
    for owner in at(revision, "metadata", "ownerReferences", default=()):
        if owner.get("controller"):
            group = str(owner.get("apiVersion", "")).rpartition("/")[0]
            kind = str(owner.get("kind", "")).lower()
            return f"{kind}.{group}/{owner.get('name')}" if group else f"{kind}/{owner.get('name')}"
    return "<none>"


CONTROLLER_REVISIONS = declare(
    "apps",
    "v1",
    "ControllerRevision",
    "controllerrevisions",
    Rules(validate=_validate_revision, validate_update=lambda new, old: unchanged(new, old, "data")),
    has_generation=False,
    columns=(
        NAME,
        string("Controller", _controller),
        string("Revision", value("revision", default=0)),
        AGE,
    ),
)

RESOURCES = (CONTROLLER_REVISIONS, DAEMON_SETS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS)
