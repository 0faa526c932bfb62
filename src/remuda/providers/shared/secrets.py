"""Secrets of the providers: the one cache of those of machines, and the creation of those that belong to an
RKEControlPlane.

The cache selects by the label that all Secrets of machines carry. What is large or opens doors is not kept: bootstrap
scripts, tokens, private keys, machine stores and outputs of plans are read from the server by whoever needs them, when
they do. Of a plan, which is both, its sha256 is kept in its place (`providers.controlplane.plan_secrets` has the bytes
of those looked at last).

A Secret of an RKEControlPlane is created together with its owner reference, and never taken over.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.agent import rules
from remuda.capi import names as capi_names
from remuda.capi.cluster_index import controlled_by
from remuda.kube.client import Client
from remuda.kube.core import SECRET, SECRETS, Secret
from remuda.kube.errors import AlreadyExists
from remuda.providers.shared import names
from remuda.providers.shared.jobs.state import EXTRACTED_CONFIG, PRIVATE_KEY
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE, RKEControlPlane
from remuda.runtime.caches import Caches, Informer
from remuda.runtime.steps import Step

LABEL = names.CLUSTER_NAME  # on every Secret the providers write, with the name of the Cluster

APPLIED_PLAN = "appliedPlan"  # the plan that had succeeded when another one was given

_DROPPED = ("value", PRIVATE_KEY, EXTRACTED_CONFIG, "token", "command", rules.APPLIED_OUTPUT, rules.FAILED_OUTPUT)
_DIGESTED = (rules.PLAN, APPLIED_PLAN)
_MARKS = tuple(f'"{name}"'.encode() for name in (*_DROPPED, *_DIGESTED))


def informer(caches: Caches) -> Informer[Secret]:
    return caches.of(SECRET, label_selector=LABEL, transform=_without_doors)


def digest(plan: bytes) -> bytes:
    """Return the checksum that the cache holds in place of a plan."""
    return hashlib.sha256(plan).hexdigest().encode()


def _without_doors(value: bytes) -> bytes:
    if not any(mark in value for mark in _MARKS):
        return value
    secret: dict[str, Any] = msgspec.json.decode(value)
    secret["metadata"].pop("managedFields", None)
    data = secret.get("data") or {}
    for name in _DROPPED:
        data.pop(name, None)
    for name in _DIGESTED:
        if data.get(name):
            data[name] = base64.b64encode(digest(base64.b64decode(data[name]))).decode()
    return msgspec.json.encode(secret)


def owned_secret(
    plane: RKEControlPlane,
    name: str,
    data: Mapping[str, bytes],
    *,
    type: str = capi_names.SECRET_TYPE,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """With the label of Cluster API, not that of the providers, whose cache holds data and must not hold keys."""
    metadata: dict[str, Any] = {
        "name": name,
        "labels": {capi_names.CLUSTER_NAME: capi_names.label_value(plane.spec.cluster_name)},
        "ownerReferences": [msgspec.to_builtins(controlled_by(RKE_CONTROL_PLANE, plane.metadata))],
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": "v1", "kind": "Secret", "type": type, "metadata": metadata, "data": encoded(data)}


def encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in data.items()}


async def create_owned(client: Client, plane: RKEControlPlane, obj: dict[str, Any], step: Step) -> bool:
    """Create the Secret and return whether this call created it; False if another writer was faster."""
    try:
        async with step:
            await client.create(SECRETS, plane.metadata.namespace, obj)
    except AlreadyExists:
        return False
    return True
