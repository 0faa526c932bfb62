"""List the rights that a user needs for a driver whose servers run on the manager's own machine.

A script that bootstraps such a server runs there with the rights of the manager (`process`) or of root (`nspawn`), so
whoever may use the driver may do everything. Using it is the verb `use` on its NodeDriver, which administrators have by
`*` and can give to others. An administrator opens a driver to all users with the annotation ALLOW_ALL_USERS of its
NodeDriver.

A change of metadata or status is nobody's use of a driver and passes. On a cluster whose core is upstream's, its
controllers clone templates into <Driver>Machines under an account of their own, so a service account may create a
machine that names its template. Templates are restricted themselves. Where they are seen, as in the embedded engine,
the machine must have the template's options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from remuda.capi import names as capi_names
from remuda.kube.admission import Needs, Review, Unseen
from remuda.kube.authorization import RequiredAccess
from remuda.kube.objects import value_at
from remuda.providers.shared import drivers, names
from remuda.providers.shared.types.machine import NODE_DRIVER

Json = dict[str, Any]
DriversOf = Callable[[str, Json], Iterable[tuple[str, str]]]  # of an object of this kind: fields and the drivers there

USE = "use"  # the verb
ALLOW_ALL_USERS = "remuda.dev/allow-all-users"  # annotation of a NodeDriver: "true"

_ACCOUNTS = "system:serviceaccounts"
_MACHINE, _TEMPLATE, _CONFIG = "Machine", "MachineTemplate", "Config"
_NOT_CONTENT = ("apiVersion", "kind", "metadata", "status")


def uses_driver(drivers_of: DriversOf) -> Needs:
    """Return the rights to use the restricted drivers of an object, where a write changes more than metadata."""

    def needs(review: Review) -> list[RequiredAccess]:
        if review.subresource or review.new is None or review.by_manager:
            return []
        if review.old is not None and _content(review.old) == _content(review.new):
            return []
        used = dict(_named(drivers_of, review, review.old)) | dict(_named(drivers_of, review, review.new))
        restricted = filter(_on_manager, used)
        closed = sorted(name for name in restricted if not has_annotation(review, name, ALLOW_ALL_USERS))
        if not closed or is_clone(review):
            return []
        return [_use(name, used[name]) for name in closed]

    return needs


def _named(drivers_of: DriversOf, review: Review, obj: Json | None) -> Iterator[tuple[str, str]]:
    for field, name in drivers_of(review.kind, obj) if obj is not None else ():
        yield name, field


def _use(driver: str, field: str) -> RequiredAccess:
    advice = (
        f"driver {driver} creates hosts on the manager's own machine, so only administrators may use it. Choose "
        "another driver, or ask an administrator to create the object, to grant you the right, or to allow all users: "
        f"kubectl annotate nodedriver {driver} {ALLOW_ALL_USERS}=true"
    )
    return RequiredAccess(
        verb=USE, group=NODE_DRIVER.group, resource=NODE_DRIVER.plural, name=driver, field=field, advice=advice
    )


def is_clone(review: Review) -> bool:
    """Return whether a controller creates a machine from an existing template."""
    if review.group != names.MACHINE_GROUP or review.operation != "CREATE" or _ACCOUNTS not in review.groups:
        return False
    if not review.kind.endswith(_MACHINE) or review.new is None:
        return False
    annotations = value_at(review.new, "metadata", "annotations")
    template = annotations.get(capi_names.CLONED_FROM_NAME) if isinstance(annotations, Mapping) else None
    if not template:
        return False
    plural = f"{review.kind.removesuffix(_MACHINE)}{_TEMPLATE}s".lower()
    try:
        found = review.lookup(names.MACHINE_API_VERSION, plural, review.namespace, str(template))
    except Unseen:
        return True  # a manager does not watch templates: without this, upstream's core could make no machine
    return found is not None and _includes(value_at(review.new, "spec"), value_at(found, "spec", "template", "spec"))


def _includes(spec: Any, template: Any) -> bool:
    """Return whether all options equal the template's; Cluster API and the engine add fields of their own."""
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


def has_annotation(review: Review, driver: str, annotation: str) -> bool:
    """Return True if an administrator has set an annotation of the NodeDriver to "true"."""
    try:
        found = review.lookup(NODE_DRIVER.api_version, NODE_DRIVER.plural, "", driver)
    except Unseen:
        return False
    annotations = value_at(found or {}, "metadata", "annotations")
    return isinstance(annotations, Mapping) and annotations.get(annotation) == "true"


def driver_of_kind(kind: str) -> str:
    """`ProcessMachineTemplate`: process."""
    for suffix in (_TEMPLATE, _MACHINE, _CONFIG):
        if kind.endswith(suffix):
            return kind.removesuffix(suffix).lower()
    return ""


def by_kind(kind: str, obj: Json) -> Iterator[tuple[str, str]]:
    yield "kind", driver_of_kind(kind)


def by_infrastructure(kind: str, obj: Json) -> Iterator[tuple[str, str]]:
    yield "spec.infrastructure.driver", str(value_at(obj, "spec", "infrastructure", "driver") or "")


def by_reference(kind: str, obj: Json) -> Iterator[tuple[str, str]]:
    for path in (("spec",), ("spec", "template", "spec")):
        reference = value_at(obj, *path, "infrastructureRef")
        if isinstance(reference, Mapping) and reference.get("apiGroup") == names.MACHINE_GROUP:
            yield ".".join((*path, "infrastructureRef")), driver_of_kind(str(reference.get("kind")))


# ---- objects, as users have sent them --------------------------------------------------------------------------------


def _content(obj: Json) -> Json:
    """All that matters to servers. Numbers of machines do not: scaling repeats what an administrator has allowed."""
    found = {name: value for name, value in obj.items() if name not in _NOT_CONTENT}
    spec = found.get("spec")
    if isinstance(spec, Mapping) and "replicas" in spec:
        found["spec"] = {name: value for name, value in spec.items() if name != "replicas"}
    return found
