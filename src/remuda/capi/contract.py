"""Contract between Cluster API and providers' objects: access to the fields of either contract version, and no others.

A label on a provider's kind names the contract that its versions follow. v1beta2 and v1beta1 store the same fact in
different places, and only this module knows where. All functions are pure. A missing field is a fact not reported yet.
A field of the wrong type raises a `ContractError` that names it, because acting on nonsense is worse than waiting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from remuda.capi import versions
from remuda.capi.types.cluster import Endpoint
from remuda.kube import clock
from remuda.kube.client import Target
from remuda.kube.conditions import FALSE, TRUE, UNKNOWN
from remuda.kube.objects import Condition, Key, ObjectMeta
from remuda.runtime.draft import Draft
from remuda.runtime.outcome import Retryable

Json = dict[str, Any]
T = TypeVar("T")

V1BETA1 = "v1beta1"
V1BETA2 = "v1beta2"

TEMPLATE_SUFFIX = "Template"


class ContractError(Retryable):
    """Object of a provider that breaks the contract; only the provider can repair it."""


class ProviderObject:
    """Object of a provider, as read: do not change it in place, use `draft`."""

    __slots__ = ("contract", "metadata", "raw", "target", "value")

    def __init__(self, value: bytes, target: Target, contract: str) -> None:
        self.value = value
        self.target = target
        self.contract = contract
        self.raw: Json = msgspec.json.decode(value)
        self.metadata = msgspec.convert(self.raw.get("metadata", {}), ObjectMeta)

    @property
    def kind(self) -> str:
        return str(self.raw.get("kind", ""))

    @property
    def group_kind(self) -> str:
        return f"{self.kind}.{self.target.group}"

    @property
    def key(self) -> Key:
        return self.metadata.key

    @property
    def deleting(self) -> bool:
        return self.metadata.deleting

    @property
    def old(self) -> bool:
        return self.contract == V1BETA1

    def draft(self) -> Draft:
        return Draft(self.target, self.value)

    def field(self, type: type[T], *path: str) -> T | None:
        """Return the value at a path; None if it, or a part of the path, is missing or null."""
        value: Any = self.raw
        for depth, name in enumerate(path):
            if not isinstance(value, dict):
                raise self.broken(f"{'.'.join(path[:depth])} is not an object")
            value = value.get(name)
            if value is None:
                return None
        try:
            return msgspec.convert(value, type)
        except msgspec.ValidationError as error:
            raise self.broken(f"{'.'.join(path)}: {error}") from None

    def broken(self, what: str) -> ContractError:
        return ContractError(f"{self} does not follow the {self.contract} contract: {what}")

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


# All kinds


def condition(obj: ProviderObject, type: str) -> Condition | None:
    """Return one of the object's own conditions, in either style. Raise ContractError."""
    found = next((one for one in _raw_conditions(obj) if one.get("type") == type), None)
    return None if found is None else _condition(obj, found)


def conditions(obj: ProviderObject) -> list[Condition]:
    """Return all its readable conditions."""
    readable = []
    try:
        written = _raw_conditions(obj)
    except ContractError:
        return []
    for one in written:
        try:
            readable.append(_condition(obj, one))
        except ContractError:
            continue
    return readable


def _raw_conditions(obj: ProviderObject) -> Sequence[Json]:
    """Return the raw conditions. Some providers have metav1 conditions under status.v1beta2, and old ones under
    status.conditions.
    """
    new = obj.field(list[Json], "status", "v1beta2", "conditions")
    return new if new is not None else obj.field(list[Json], "status", "conditions") or ()


# Limits of metav1.Condition. If a provider's reason breaks them, the API server would reject a status with a copy.
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_LONGEST_REASON = 1024


def _condition(obj: ProviderObject, raw: Json) -> Condition:
    try:
        found = msgspec.convert({name: value for name, value in raw.items() if value is not None}, Condition)
    except msgspec.ValidationError as error:
        raise obj.broken(f"cannot decode its condition {raw.get('type')}: {error}") from None
    if found.status not in (TRUE, FALSE, UNKNOWN):
        raise obj.broken(f"its condition {found.type} has the invalid status {found.status!r}")
    return msgspec.structs.replace(
        found,
        reason=found.reason if len(found.reason) <= _LONGEST_REASON and _REASON.fullmatch(found.reason) else "",
        last_transition_time=_whole_seconds(found.last_transition_time),
    )


def _whole_seconds(time: str) -> str:
    """Return the time in whole seconds, as conditions have it; empty if the text is not a time."""
    try:
        return clock.rfc3339(clock.parse(time))
    except ValueError:
        return ""


def failure(obj: ProviderObject) -> tuple[str, str]:
    """Return reason and message of what the v1beta1 contract calls a terminal failure. No controller acts on it."""
    return obj.field(str, "status", "failureReason") or "", obj.field(str, "status", "failureMessage") or ""


# Infrastructure


def provisioned(obj: ProviderObject) -> bool:
    """Return whether an infrastructure cluster or machine exists and can be used."""
    return bool(obj.field(bool, *provisioned_path(obj)))


def provisioned_path(obj: ProviderObject) -> tuple[str, ...]:
    return ("status", "ready") if obj.old else ("status", "initialization", "provisioned")


def endpoint(obj: ProviderObject) -> Endpoint:
    """Return the API endpoint that an infrastructure cluster or a control plane reports; empty if it reports none."""
    return obj.field(Endpoint, "spec", "controlPlaneEndpoint") or Endpoint()


class _FailureDomain(msgspec.Struct, omit_defaults=True, rename="camel"):
    name: str = ""
    control_plane: bool | None = None
    attributes: Mapping[str, str] | None = None


def failure_domains(obj: ProviderObject) -> list[Json]:
    """Return the failure domains of an infrastructure cluster, sorted by name; a list under v1beta2, a map under
    v1beta1."""
    found: list[_FailureDomain]
    if obj.old:
        by_name = obj.field(dict[str, _FailureDomain], "status", "failureDomains") or {}
        found = [msgspec.structs.replace(domain, name=name) for name, domain in by_name.items()]
    else:
        found = obj.field(list[_FailureDomain], "status", "failureDomains") or []
    return [msgspec.to_builtins(domain) for domain in sorted(found, key=lambda domain: domain.name)]


def provider_id(obj: ProviderObject) -> str:
    return obj.field(str, "spec", "providerID") or ""


def addresses(obj: ProviderObject) -> list[Json]:
    return [
        {"type": one["type"], "address": one["address"]}
        for one in obj.field(list[Mapping[str, str]], "status", "addresses") or ()
        if one.get("type") and one.get("address")
    ]


def failure_domain(obj: ProviderObject) -> str:
    """Return the failure domain in which a machine was placed, for the Machine's status."""
    return obj.field(str, "status", "failureDomain") or ""


def chosen_failure_domain(obj: ProviderObject) -> str:
    """Return the failure domain that the provider chose for a machine, for the Machine's spec; some providers set it
    under either contract."""
    return obj.field(str, "spec", "failureDomain") or ""


def interruptible(obj: ProviderObject) -> bool:
    return bool(obj.field(bool, "status", "interruptible"))


# Bootstrap


def data_secret_created(obj: ProviderObject) -> bool:
    return bool(obj.field(bool, *data_secret_created_path(obj)))


def data_secret_created_path(obj: ProviderObject) -> tuple[str, ...]:
    return ("status", "ready") if obj.old else ("status", "initialization", "dataSecretCreated")


def data_secret_name(obj: ProviderObject) -> str:
    return obj.field(str, "status", "dataSecretName") or ""


# Control plane


def initialized(obj: ProviderObject) -> bool:
    """Return whether the API of the cluster answers, or has answered once."""
    return bool(obj.field(bool, *initialized_path(obj)))


def initialized_path(obj: ProviderObject) -> tuple[str, ...]:
    return ("status", "initialized") if obj.old else ("status", "initialization", "controlPlaneInitialized")


class ControlPlaneCounts(NamedTuple):
    """Numbers of a control plane's Machines; None for a number that it does not report."""

    desired: int | None
    current: int | None
    ready: int | None
    available: int | None
    up_to_date: int | None


def counts(obj: ProviderObject) -> ControlPlaneCounts:
    desired = obj.field(int, "spec", "replicas")
    if obj.old:
        unavailable = obj.field(int, "status", "unavailableReplicas")
        available = None if desired is None or unavailable is None else max(0, desired - unavailable)
    else:
        available = obj.field(int, "status", "availableReplicas")
    return ControlPlaneCounts(
        desired=desired,
        current=obj.field(int, "status", "replicas"),
        ready=obj.field(int, "status", "readyReplicas"),
        available=available,
        up_to_date=obj.field(int, "status", "updatedReplicas" if obj.old else "upToDateReplicas"),
    )


class VersionCount(msgspec.Struct, frozen=True):
    version: str
    replicas: int | None = None


def desired_version(obj: ProviderObject) -> str:
    return obj.field(str, "spec", "version") or ""


def running_versions(obj: ProviderObject) -> list[VersionCount]:
    """Return the running versions, oldest first; only the oldest for providers that report no others."""
    listed = None if obj.old else obj.field(list[VersionCount], "status", "versions")
    if listed:
        return listed
    lowest = obj.field(str, "status", "version")
    return [VersionCount(lowest)] if lowest else []


def is_provisioning(obj: ProviderObject) -> bool:
    """Return whether the control plane has a desired version but does not report a running one yet."""
    return bool(desired_version(obj)) and not running_versions(obj)


def is_upgrading(obj: ProviderObject) -> bool:
    """Return whether a Machine still runs a lower version than desired. Raise ContractError for an invalid version."""
    if not desired_version(obj):
        return False
    try:
        desired = versions.semantic(desired_version(obj))
        return any(versions.semantic(running.version) < desired for running in running_versions(obj))
    except ValueError as error:
        raise obj.broken(str(error)) from None


def externally_managed_control_plane(obj: ProviderObject) -> bool:
    """Return whether the control plane is managed externally, without Machines of ours."""
    return bool(obj.field(bool, "status", "externalManagedControlPlane"))


# Templates


def template_spec(obj: ProviderObject) -> Json:
    """Return the initial spec of objects created from this template."""
    spec = obj.field(dict[str, Any], "spec", "template", "spec")
    return {} if spec is None else spec


def template_labels(obj: ProviderObject) -> dict[str, str]:
    return obj.field(dict[str, str], "spec", "template", "metadata", "labels") or {}


def template_annotations(obj: ProviderObject) -> dict[str, str]:
    return obj.field(dict[str, str], "spec", "template", "metadata", "annotations") or {}


def capacity(obj: ProviderObject) -> dict[str, str]:
    """Return the capacity of a machine created from this template, as quantities; autoscalers that scale from zero read
    it."""
    return {name: str(value) for name, value in (obj.field(dict[str, str | int], "status", "capacity") or {}).items()}


def base_kind(template_kind: str) -> str:
    """Return the kind of the objects that a template creates. Raise ContractError if its name does not end
    in Template.
    """
    if not template_kind.endswith(TEMPLATE_SUFFIX) or template_kind == TEMPLATE_SUFFIX:
        raise ContractError(f"{template_kind} is not the kind of a template: its name does not end in Template")
    return template_kind.removesuffix(TEMPLATE_SUFFIX)
