"""Secrets that belong to an RKEControlPlane: created together with their owner reference, never taken over."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.cluster_index import controlled_by
from remuda.kube.client import Client
from remuda.kube.core import SECRETS
from remuda.kube.errors import AlreadyExists
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE, RKEControlPlane
from remuda.runtime.steps import Step


def secret(
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


async def create(client: Client, plane: RKEControlPlane, obj: dict[str, Any], step: Step) -> bool:
    """Create the Secret and return whether this call created it; False if another writer was faster."""
    try:
        async with step:
            await client.create(SECRETS, plane.metadata.namespace, obj)
    except AlreadyExists:
        return False
    return True
