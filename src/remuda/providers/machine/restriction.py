"""Admission of what uses a driver whose servers run on the manager's own machine: only administrators may.

A script that bootstraps such a server runs there with the rights of the manager (`process`) or of root (`nspawn`), so
whoever may use the driver may do everything. Administrators are the group system:masters, and whom a
ClusterRoleBinding gives the ClusterRole cluster-admin, where bindings are seen; the manager itself is known by its user
name. An administrator opens a driver to all users with the annotation ALLOW_ALL_USERS of its NodeDriver.

A change of metadata or status is nobody's use of a driver and passes. On a cluster whose core is upstream's, its
controllers clone templates into <Driver>Machines under an account of their own, so a service account may create a
machine that names its template. Templates are restricted themselves. Where they are seen, as in the embedded engine,
the machine must have the template's options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET
from remuda.kube.admission import (
    ALLOWED,
    EVERY_KIND,
    AdmissionFunction,
    Operation,
    Registration,
    Review,
    Unseen,
    Verdict,
)
from remuda.kube.client import Target
from remuda.providers import names
from remuda.providers.infrastructure.types import RKE_CLUSTER
from remuda.providers.machine import drivers
from remuda.providers.machine.types import NODE_DRIVER
from remuda.runtime.webhooks import Webhook, unless_user

Json = dict[str, Any]
DriversOf = Callable[[str, Json], Iterable[str]]  # of an object of this kind: the drivers it uses

ALLOW_ALL_USERS = "remuda.dev/allow-all-users"  # annotation of a NodeDriver: "true"

_MASTERS = "system:masters"
_ACCOUNTS = "system:serviceaccounts"
_CLUSTER_ADMIN = "cluster-admin"
_BINDINGS = Target("rbac.authorization.k8s.io/v1", "clusterrolebindings")
_OPERATIONS: tuple[Operation, ...] = ("CREATE", "UPDATE")
_MACHINE, _TEMPLATE, _CONFIG = "Machine", "MachineTemplate", "Config"
_NOT_CONTENT = ("apiVersion", "kind", "metadata", "status")


class Guarded(msgspec.Struct, frozen=True):
    """A resource that can use drivers, and how to find which."""

    name: str  # of its webhook
    target: Target
    drivers_of: DriversOf


def guard(drivers_of: DriversOf, own: str = "") -> AdmissionFunction:
    """`own`: the user that the manager itself is."""

    def admit(review: Review) -> Verdict:
        if review.subresource or review.new is None or _is_trusted(review, own):
            return ALLOWED
        if review.old is not None and _content(review.old) == _content(review.new):
            return ALLOWED
        used = {*drivers_of(review.kind, review.new), *(drivers_of(review.kind, review.old) if review.old else ())}
        closed = sorted(name for name in used if _on_manager(name) and not _is_open(review, name))
        if not closed or _is_clone(review) or _is_cluster_admin(review):
            return ALLOWED
        return Verdict(denied=_why(closed[0]))

    return admit


def registrations(guarded: Iterable[Guarded]) -> list[Registration]:
    return [Registration(one.target.group, one.target.plural, guard(one.drivers_of), _OPERATIONS) for one in guarded]


def webhooks(guarded: Iterable[Guarded], own: str = "") -> list[Webhook]:
    """The same, for an API server elsewhere. It does not ask about writes of the manager and of administrators."""
    masters = f"has(request.userInfo.groups) && '{_MASTERS}' in request.userInfo.groups"
    only = f"!({masters}) && {unless_user(own)}"
    return [
        Webhook(
            kind=f"{one.name}-driver",
            target=one.target,
            function=guard(one.drivers_of, own),
            operations=_OPERATIONS,
            only=only,
        )
        for one in guarded
    ]


# ---- who -------------------------------------------------------------------------------------------------------------


def _is_trusted(review: Review, own: str) -> bool:
    return _MASTERS in review.groups or (bool(own) and review.user == own)


def _is_cluster_admin(review: Review) -> bool:
    try:
        bindings = review.select(_BINDINGS.api_version, _BINDINGS.plural, "", {})
    except Unseen:
        return False
    return any(
        _is_subject(review, subject)
        for binding in bindings
        if _at(binding, "roleRef", "name") == _CLUSTER_ADMIN
        for subject in binding.get("subjects") or ()
    )


def _is_subject(review: Review, subject: Json) -> bool:
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "ServiceAccount":
        return review.user == f"system:serviceaccount:{subject.get('namespace')}:{name}"
    return name in review.groups if kind == "Group" else kind == "User" and name == review.user


def _is_clone(review: Review) -> bool:
    """Whether a controller creates a machine from a template that is there."""
    if review.group != names.MACHINE_GROUP or review.operation != "CREATE" or _ACCOUNTS not in review.groups:
        return False
    if not review.kind.endswith(_MACHINE) or review.new is None:
        return False
    annotations = _at(review.new, "metadata", "annotations")
    template = annotations.get(capi_names.CLONED_FROM_NAME) if isinstance(annotations, Mapping) else None
    if not template:
        return False
    plural = f"{review.kind.removesuffix(_MACHINE)}{_TEMPLATE}s".lower()
    try:
        found = review.lookup(names.MACHINE_API_VERSION, plural, review.namespace, str(template))
    except Unseen:
        return True  # a manager does not watch templates: without this, upstream's core could make no machine
    return found is not None and _includes(_at(review.new, "spec"), _at(found, "spec", "template", "spec"))


def _includes(spec: Any, template: Any) -> bool:
    """Whether all options are the template's; Cluster API and the engine add fields of their own."""
    if not isinstance(spec, Mapping) or not isinstance(template, Mapping):
        return False
    added = {"providerID", "failureDomain"}
    return all(template.get(name) == value for name, value in spec.items() if name not in added)


# ---- which driver ----------------------------------------------------------------------------------------------------


@cache
def _on_manager(name: str) -> bool:
    try:
        return name in drivers.names() and drivers.find(name).on_manager
    except drivers.NoSuchDriver:
        return False


def _is_open(review: Review, name: str) -> bool:
    try:
        driver = review.lookup(NODE_DRIVER.api_version, NODE_DRIVER.plural, "", name)
    except Unseen:
        return False
    annotations = _at(driver or {}, "metadata", "annotations")
    return isinstance(annotations, Mapping) and annotations.get(ALLOW_ALL_USERS) == "true"


def driver_of_kind(kind: str) -> str:
    """`ProcessMachineTemplate`: process."""
    for suffix in (_TEMPLATE, _MACHINE, _CONFIG):
        if kind.endswith(suffix):
            return kind.removesuffix(suffix).lower()
    return ""


def _by_kind(kind: str, obj: Json) -> Iterator[str]:
    yield driver_of_kind(kind)


def _by_infrastructure(kind: str, obj: Json) -> Iterator[str]:
    yield str(_at(obj, "spec", "infrastructure", "driver") or "")


def _by_reference(kind: str, obj: Json) -> Iterator[str]:
    for path in (("spec",), ("spec", "template", "spec")):
        reference = _at(obj, *path, "infrastructureRef")
        if isinstance(reference, Mapping) and reference.get("apiGroup") == names.MACHINE_GROUP:
            yield driver_of_kind(str(reference.get("kind")))


GUARDED = (
    Guarded("MachineConfig", Target(names.CONFIG_API_VERSION, EVERY_KIND), _by_kind),
    Guarded("DriverMachine", Target(names.MACHINE_API_VERSION, EVERY_KIND), _by_kind),
    Guarded(RKE_CLUSTER.name, RKE_CLUSTER.target, _by_infrastructure),
)
# Of Cluster API, where its core is ours: with a template that is there, they make machines.
GUARDED_CORE = tuple(
    Guarded(kind.name, kind.target, _by_reference) for kind in (MACHINE, MACHINE_SET, MACHINE_DEPLOYMENT)
)


# ---- objects, as users have sent them --------------------------------------------------------------------------------


def _at(obj: Any, *path: str) -> Any:
    for name in path:
        obj = obj.get(name) if isinstance(obj, Mapping) else None
    return obj


def _content(obj: Json) -> Json:
    """All that matters to servers. Numbers of machines do not: scaling repeats what an administrator has allowed."""
    found = {name: value for name, value in obj.items() if name not in _NOT_CONTENT}
    spec = found.get("spec")
    if isinstance(spec, Mapping) and "replicas" in spec:
        found["spec"] = {name: value for name, value in spec.items() if name != "replicas"}
    return found


def _why(driver: str) -> str:
    return (
        f"the driver {driver} creates hosts on the manager's own machine, so only administrators ({_CLUSTER_ADMIN}) "
        "may use it; ask an administrator to do this, choose another driver, or have an administrator allow all users: "
        f"kubectl annotate nodedriver {driver} {ALLOW_ALL_USERS}=true"
    )
