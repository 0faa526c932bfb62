"""Problems that block an object until a user acts, and advice for that user. Pure.

All of it is read from the object alone: finalizers, the pause, and the words in which API servers refuse a request,
because Kubernetes has no other sign of those. Advice is a command or an act that works as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from remuda.capi import names as capi_names
from remuda.capi.inflection import plural
from remuda.kube.names import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from remuda.kube.quotas import find_exceeded
from remuda.providers.shared.jobs.budget import RETRY
from remuda.providers.shared.types.machine import NEEDS_USER, STALLED

Json = Mapping[str, Any]

ABANDON = "provisioning.cattle.io/force-machine-remove"  # annotation: gives up a server that cannot be removed

_OF_KUBERNETES = (FOREGROUND_FINALIZER, ORPHAN_FINALIZER, "kubernetes")
_OURS = ("remuda.dev", "cluster.x-k8s.io")  # domains whose finalizers this manager removes
_DENIED = re.compile(r'admission webhook "([^"]+)" denied the request')
_UNANSWERED = re.compile(r'failed calling webhook "([^"]+)"')
_NO_DEFINITION = re.compile(r"there is no CustomResourceDefinition ([^\s:]+)")
_NO_TEMPLATE = re.compile(r"(\w+Template) (\S+) does not exist")

_CONTENT = re.compile(r"([a-z0-9-]+)\.(\S*) has \d+ resource instances")


def foreign_finalizers(obj: Json) -> list[str]:
    """Return the finalizers of an object that is being deleted, if only other programs' are left."""
    metadata = obj.get("metadata") or {}
    found = [str(one) for one in metadata.get("finalizers") or ()]
    if not metadata.get("deletionTimestamp") or (obj.get("spec") or {}).get("finalizers"):
        return []  # a Namespace has finalizers in its spec until it is empty
    group = api_group(obj)
    return [] if any(_is_known(one, group) for one in found) else found


def _is_known(finalizer: str, group: str) -> bool:
    """Return True if the controller of its kind, or Kubernetes itself, removes it."""
    domain = finalizer.partition("/")[0]
    domains = (*_OURS, group) if group else _OURS
    return finalizer in _OF_KUBERNETES or any(domain == one or domain.endswith(f".{one}") for one in domains)


def advice_on_finalizers(obj: Json, finalizers: Sequence[str]) -> str:
    return (
        f"the program that set {', '.join(finalizers)} must remove it: start that program, or ask its operator. If the "
        f"program no longer exists: kubectl patch {command_words(obj)} --type merge -p "
        f'\'{{"metadata":{{"finalizers":null}}}}\''
    )


def advice_on_pause(obj: Json) -> str:
    """Return how to take back the object's own pause; empty if the pause is its Cluster's."""
    if capi_names.PAUSED in ((obj.get("metadata") or {}).get("annotations") or {}):
        return f"resume it: kubectl annotate {command_words(obj)} {capi_names.PAUSED}-"
    if obj.get("kind") == "Cluster" and (obj.get("spec") or {}).get("paused"):
        return f'resume it: kubectl patch {command_words(obj)} --type merge -p \'{{"spec":{{"paused":false}}}}\''
    return ""


def advice_on_removal(obj: Json) -> str:
    return (
        "the controller retries; fix the cause, or abandon what cannot be removed: "
        f"kubectl annotate {command_words(obj)} {ABANDON}=true"
    )


def advice_on_stall(obj: Json, reason: str) -> str:
    if not str(obj.get("kind") or "").endswith(("Machine", "RKECluster")):
        return ""
    if reason in NEEDS_USER - {STALLED}:  # the controller looks again by itself
        return "fix the cause that the message names; the controller then continues"
    return f"fix the cause, then request a retry: kubectl annotate {command_words(obj)} --overwrite {RETRY}=$(date +%s)"


class Refusal(NamedTuple):
    """A request of a controller that an API server refused."""

    advice: str
    permanent: bool = True  # the next attempt is refused, too, until a user acts


def refusal(message: str, namespace: str) -> Refusal | None:
    """Return what helps where a request was refused, or a kind is not installed; None: the message tells neither."""
    if (quota := find_exceeded(message)) is not None:
        return Refusal(
            f"delete machines, or ask an administrator to raise the ResourceQuota {quota.name} of namespace "
            f"{namespace}; the missing machines are then created by themselves"
        )
    if found := _DENIED.search(message):
        return Refusal(f"change what webhook {found[1]} denies, or ask its operator; the controller retries")
    if found := _UNANSWERED.search(message):
        advice = f"make webhook {found[1]} answer again, or ask its operator; the controller retries"
        return Refusal(advice, permanent=False)
    if found := _NO_DEFINITION.search(message):
        return Refusal(f"install the provider that has {found[1]}, or change what refers to it; the controller retries")
    if found := _NO_TEMPLATE.search(message):
        return Refusal(f"create {found[1]} {found[2]}, or change the pool that refers to it; the controller retries")
    return None


def remaining(namespace: Json) -> list[tuple[str, str]]:
    """Return what a Namespace that is being deleted still holds, as (resource, group), from its conditions."""
    said = {one.get("type"): one for one in (namespace.get("status") or {}).get("conditions") or ()}
    one = said.get("NamespaceContentRemaining") or {}
    return _CONTENT.findall(str(one.get("message") or "")) if one.get("status") == "True" else []


def api_group(obj: Json) -> str:
    return str(obj.get("apiVersion") or "").rpartition("/")[0]


def command_words(obj: Json) -> str:
    """Return the object as kubectl takes it: resource, name and namespace."""
    metadata, group = obj.get("metadata") or {}, api_group(obj)
    resource = plural(str(obj.get("kind") or "")).lower() + (f".{group}" if group else "")
    namespace = metadata.get("namespace")
    return f"{resource} {metadata.get('name')}" + (f" -n {namespace}" if namespace else "")
