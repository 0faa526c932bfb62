"""Nodes. A node registers itself with its status in one write, so a create keeps the given status."""

from __future__ import annotations

from typing import Any

from remuda.apiserver.kinds.columns import AGE, NAME, Cell, at, string
from remuda.apiserver.kinds.declare import Rules, declare, join_list, one_of
from remuda.apiserver.resource import Obj
from remuda.kube import errors, names
from remuda.kube.errors import FieldError
from remuda.kube.quantity import Quantity

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _default(node: Obj) -> None:
    status = node["status"]
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])
    join_list(node["spec"], "podCIDR", "podCIDRs")


def _validate(node: Obj) -> list[FieldError]:
    return _taint_errors(node["spec"].get("taints") or ()) + _resource_errors(node["status"])


def _taint_errors(taints: Any) -> list[FieldError]:
    found: list[FieldError] = []
    used: set[tuple[Any, Any]] = set()
    for index, taint in enumerate(taints):
        path = f"metadata.taints[{index}]"  # upstream names the wrong parent; people may grep for it
        key, value, effect = taint.get("key") or "", taint.get("value") or "", taint.get("effect") or ""
        found += [errors.invalid(f"{path}.key", key, why) for why in names.qualified_name(key)]
        if complaints := names.label_value(value):
            found.append(errors.invalid(f"{path}.value", value, ";".join(complaints)))
        found += one_of(effect, f"{path}.effect", _EFFECTS) if effect else [errors.required(f"{path}.effect")]
        if (key, effect) in used:
            why = "taints must be unique by key and effect pair"
            found.append(FieldError(errors.DUPLICATE, path, taint, why))
        used.add((key, effect))
    return found


def _resource_errors(status: Obj) -> list[FieldError]:
    return [
        errors.invalid(f"status.{field}.{name}", amount, "must be greater than or equal to 0")
        for field in ("capacity", "allocatable")
        for name, amount in (status.get(field) or {}).items()
        if Quantity.parse(amount).nanos < 0
    ]


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    found = []
    for field in ("podCIDRs", "providerID"):
        before = old["spec"].get(field)
        if before and before != new["spec"].get(field):
            shown = field.removesuffix("s")
            why = f'node updates may not change {shown} except from "" to valid'
            found.append(errors.forbidden(f"spec.{field}", why))
    return found + _validate_status(new, old)


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    found = _resource_errors(new["status"])
    used: list[Obj] = []
    for index, address in enumerate(new["status"].get("addresses") or ()):
        if address in used:
            found.append(errors.duplicate(f"status.addresses[{index}]", address))
        used.append(address)
    return found


def _status(node: Obj) -> str:
    conditions = at(node, "status", "conditions", default=())
    ready = next((c.get("status") for c in conditions if c.get("type") == "Ready"), None)
    word = "Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"
    return f"{word},SchedulingDisabled" if at(node, "spec", "unschedulable") else word


def _roles(node: Obj) -> str:
    labels = at(node, "metadata", "labels", default={})
    roles = {key[len(_ROLE_PREFIX) :] for key in labels if key.startswith(_ROLE_PREFIX)} | {labels.get(_ROLE_LABEL)}
    return ",".join(sorted(role for role in roles if role)) or "<none>"


def _address(type_: str) -> Cell:
    def cell(node: Obj) -> str:
        addresses = at(node, "status", "addresses", default=())
        return next((str(a.get("address")) for a in addresses if a.get("type") == type_), "<none>")

    return cell


def _info(field: str) -> Cell:
    return lambda node: at(node, "status", "nodeInfo", field) or "<unknown>"


def _kernel(node: Obj) -> str:
    architecture = at(node, "status", "nodeInfo", "architecture")
    version = str(_info("kernelVersion")(node))
    return f"{version} ({architecture})" if architecture else version


NODES = declare(
    "",
    "v1",
    "Node",
    "nodes",
    Rules(default=_default, validate=_validate, validate_update=_validate_update, validate_status=_validate_status),
    namespaced=False,
    short_names=("no",),
    has_status=True,
    keeps_status_on_create=True,
    has_generation=False,
    selectable={"spec.unschedulable": ("spec", "unschedulable")},
    selectable_zero={"spec.unschedulable": "false"},
    columns=(
        NAME,
        string("Status", _status),
        string("Roles", _roles),
        AGE,
        string("Version", lambda node: at(node, "status", "nodeInfo", "kubeletVersion")),
        string("Internal-IP", _address("InternalIP"), wide=True),
        string("External-IP", _address("ExternalIP"), wide=True),
        string("OS-Image", _info("osImage"), wide=True),
        string("Kernel-Version", _kernel, wide=True),
        string("Container-Runtime", _info("containerRuntimeVersion"), wide=True),
    ),
)
