"""Kubeconfig of a Job, with a token of its ServiceAccount that is bound to its Pod and expires with its deadline."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from remuda.jobs.pod_inputs import NotReady
from remuda.jobs.types import Job, Pod
from remuda.kube import kubeconfig as kubeconfigs
from remuda.kube.client import Client
from remuda.kube.core import SERVICE_ACCOUNTS
from remuda.kube.errors import NotFound

_SHORTEST_SECONDS = 600  # what the API server allows
_USUAL_SECONDS = 24 * 3600
_SPARE_SECONDS = 300


async def kubeconfig(client: Client, server_url: str, ca_pem: bytes, job: Job, pod: Pod) -> bytes:
    """Nothing for a Pod that wants no token. Raises NotReady while there is no such account."""
    spec = job.spec.template.spec
    if not spec.automount_service_account_token:
        return b""
    account = spec.service_account_name or "default"
    deadline = job.spec.active_deadline_seconds
    seconds = _USUAL_SECONDS if deadline is None else max(_SHORTEST_SECONDS, deadline + _SPARE_SECONDS)
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds, "boundObjectRef": bound},
    }
    try:
        answer: dict[str, Any] = msgspec.json.decode(
            await client.create(SERVICE_ACCOUNTS, job.metadata.namespace, request, name=account, subresource="token")
        )
    except NotFound:
        raise NotReady(f"serviceaccount {account!r} not found") from None
    config = kubeconfigs.build(
        server_url, ca_pem=ca_pem, token=answer["status"]["token"], user=account, namespace=job.metadata.namespace
    )
    return yaml.safe_dump(config, sort_keys=False).encode()
