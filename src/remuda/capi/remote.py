"""Connection to a workload cluster, with the kubeconfig in its Secret, which its control plane keeps up to date.

Every attempt to connect reads the Secret again, so replaced credentials are used at once, and none of its data is
stored. Users who may write the Secret must not be able to run programs here or to read files, so a kubeconfig that asks
for either is refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

import msgspec

from remuda.capi import names
from remuda.kube import kubeconfig
from remuda.kube.client import Client
from remuda.kube.errors import NotFound
from remuda.kube.kubeconfig import ClientConfig, KubeconfigError
from remuda.kube.objects import Key, Kind, Object
from remuda.runtime.caches import Caches, Informer
from remuda.runtime.outcome import Retryable
from remuda.runtime.remote import MOST_ANSWER_BYTES, Dial

SECRET = Kind("v1", "Secret", "secrets", Object)


Connect = Callable[[ClientConfig], Client]


class _Secret(msgspec.Struct):
    data: dict[str, str] | None = None


async def secret_data(client: Client, namespace: str, name: str) -> dict[str, bytes] | None:
    """Return the data of a Secret, or None if it does not exist. Raises Retryable if the data is not base64."""
    try:
        value = await client.get(SECRET.target, namespace, name)
    except NotFound:
        return None
    data = msgspec.json.decode(value, type=_Secret).data or {}
    try:
        return {key: base64.b64decode(text, validate=True) for key, text in data.items()}
    except binascii.Error as error:
        raise Retryable(f"cannot decode the Secret {namespace}/{name}: {error}") from None


def dialer(client: Client, connect: Connect | None = None) -> Dial:
    """Dials workload clusters of the Clusters `client` sees."""

    async def dial(cluster: Key) -> Client:
        name = names.kubeconfig_secret(cluster.name)
        data = await secret_data(client, cluster.namespace, name)
        if data is None:
            raise Retryable(f"the Secret {cluster.namespace}/{name} does not exist yet")
        if names.KUBECONFIG_KEY not in data:
            raise Retryable(f"the Secret {cluster.namespace}/{name} has no key {names.KUBECONFIG_KEY}")
        try:
            access = kubeconfig.parse(data[names.KUBECONFIG_KEY], origin=f"Secret {cluster.namespace}/{name}")
        except KubeconfigError as error:
            raise Retryable(str(error)) from None
        return (connect or _over_http)(access)

    return dial


def _over_http(access: ClientConfig) -> Client:
    from remuda.kube.http import HttpClient

    # Workload clusters are not trusted: an endless response must not exhaust the manager's memory.
    return HttpClient(access, most_bytes=MOST_ANSWER_BYTES)


def cluster_secrets(caches: Caches) -> Informer[Object]:
    """Return an informer of the Clusters' Secrets that caches their metadata only, never their data."""
    return caches.of(SECRET, label_selector=names.CLUSTER_NAME, metadata_only=True, transform=without_data)


def without_data(value: bytes) -> bytes:
    """Drop what a Secret holds: a transform of caches that only look at metadata."""
    secret = msgspec.json.decode(value)
    secret.pop("data", None)
    secret["metadata"].pop("managedFields", None)
    return msgspec.json.encode(secret)
