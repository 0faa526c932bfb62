"""The core group: its kinds in discovery's order, and the two that are plain records."""

from __future__ import annotations

from remuda.apiserver.kinds.columns import (
    AGE,
    NAME,
    PLAIN,
    at,
    containers,
    format_labels,
    integer,
    string,
    value,
)
from remuda.apiserver.kinds.core_config import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS
from remuda.apiserver.kinds.core_namespaces import NAMESPACES
from remuda.apiserver.kinds.core_nodes import NODES
from remuda.apiserver.kinds.core_pods import POD_TEMPLATES, PODS
from remuda.apiserver.kinds.core_quotas import RESOURCE_QUOTAS
from remuda.apiserver.kinds.core_services import ENDPOINTS, SERVICES
from remuda.apiserver.kinds.core_volumes import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from remuda.apiserver.kinds.declare import Rules, declare, non_negative
from remuda.apiserver.kinds.events import CORE_EVENTS
from remuda.apiserver.kinds.pod_spec import default_pod_spec
from remuda.apiserver.kinds.workloads import endless_template_errors, shown_labels, template_labels
from remuda.apiserver.resource import Obj, ScalePaths
from remuda.kube import errors
from remuda.kube.errors import FieldError


def _default_controller(controller: Obj) -> None:
    spec = controller["spec"]
    if "template" in spec:
        default_pod_spec(spec["template"]["spec"])
    if labels := template_labels(spec):
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        if not controller["metadata"].get("labels"):
            controller["metadata"]["labels"] = dict(labels)


def _validate_controller(controller: Obj) -> list[FieldError]:
    spec = controller["spec"]
    found = non_negative(spec.get("replicas"), "spec.replicas")
    found += non_negative(spec.get("minReadySeconds"), "spec.minReadySeconds")
    selector = spec.get("selector")
    if not selector:
        found.append(errors.required("spec.selector"))
    if "template" not in spec:
        return [*found, errors.required("spec.template")]
    labels = template_labels(spec)
    if selector and not selector.items() <= labels.items():
        why = "`selector` does not match template `labels`"
        found.append(errors.invalid("spec.template.metadata.labels", shown_labels(labels), why))
    return found + endless_template_errors(spec, "spec", "ReplicationController")


REPLICATION_CONTROLLERS = declare(
    "",
    "v1",
    "ReplicationController",
    "replicationcontrollers",
    Rules(default=_default_controller, validate=_validate_controller),
    short_names=("rc",),
    categories=("all",),
    has_status=True,
    default_propagation="Orphan",
    scale=ScalePaths(spec_replicas=("spec", "replicas"), status_replicas=("status", "replicas")),
    selectable={"status.replicas": ("status", "replicas")},
    selectable_zero={"status.replicas": "0"},
    columns=(
        NAME,
        integer("Desired", value("spec", "replicas", default=0)),
        integer("Current", value("status", "replicas", default=0)),
        integer("Ready", value("status", "readyReplicas", default=0)),
        AGE,
        *containers("spec", "template", "spec"),
        string("Selector", lambda rc: format_labels(at(rc, "spec", "selector", default=None)), wide=True),
    ),
)


def _default_limits(limit_range: Obj) -> None:
    """Set the defaults of container limits: limit from maximum, request from limit, or else from minimum."""
    for limit in limit_range["spec"].get("limits") or ():
        if limit.get("type") != "Container":
            continue
        default = {**(limit.get("max") or {}), **(limit.get("default") or {})}
        requests = {**(limit.get("min") or {}), **default, **(limit.get("defaultRequest") or {})}
        limit.update({key: found for key, found in (("default", default), ("defaultRequest", requests)) if found})


LIMIT_RANGES = declare(
    "",
    "v1",
    "LimitRange",
    "limitranges",
    Rules(default=_default_limits),
    short_names=("limits",),
    has_generation=False,
    allow_create_on_update=True,
    columns=PLAIN,
)

RESOURCES = (
    CONFIG_MAPS,
    ENDPOINTS,
    CORE_EVENTS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    POD_TEMPLATES,
    REPLICATION_CONTROLLERS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
