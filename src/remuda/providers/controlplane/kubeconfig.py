"""Kubeconfig Secret of a cluster's administrator, signed with the cluster's own CA.

Without a proxy this is the contract's `<cluster>-kubeconfig`. If the manager has a proxy, that Secret leads through it
(`remuda.access.kubeconfigs`), and this one is `<cluster>-kubeconfig-admin`, which the proxy itself uses.

Nothing is fetched from a node. The kubeconfig points to the endpoint in front of the servers, else to one server, and
to another one when that server is deleted. It is renewed when a third of its certificate's lifetime is left, or when
the CA changes. Annotations record what it was made from, so checking it reads no key. A Secret of another owner is left
alone.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence

import msgspec
import yaml
from cryptography import x509

from remuda.capi import names as capi_names
from remuda.capi.cluster.kubeconfig import make_kubeconfig
from remuda.capi.types import Endpoint
from remuda.kube import clock
from remuda.kube.client import Client
from remuda.kube.core import SECRETS
from remuda.kube.objects import Key, Object, ObjectMeta
from remuda.providers.controlplane.authorities import CERTIFICATE
from remuda.providers.controlplane.planner.observation import ObservedHost
from remuda.providers.shared import names
from remuda.providers.shared.secrets import create_owned, owned_secret
from remuda.providers.shared.types.controlplane import RKEControlPlane
from remuda.runtime.informer import Informer
from remuda.runtime.steps import step

CREATE = step("rkecontrolplane.create-kubeconfig", "creates the kubeconfig of a cluster")
RENEW = step("rkecontrolplane.renew-kubeconfig", "renews the kubeconfig of a cluster, or changes its server")

# Annotations of the Secret: its inputs.
SERVER = "remuda.dev/server"
AUTHORITY = "remuda.dev/authority"
RENEW_AT = "remuda.dev/renew-at"


class KubeconfigState(msgspec.Struct, frozen=True):
    """State of the kubeconfig Secret after a reconcile."""

    present: bool = False
    foreign: bool = False  # it has another owner
    renew_in: float | None = None
    written: bool = False  # just now


def secret_name(plane: RKEControlPlane, *, proxied: bool) -> str:
    cluster = plane.spec.cluster_name
    return names.admin_kubeconfig_secret(cluster) if proxied else capi_names.kubeconfig_secret(cluster)


async def keep(
    client: Client,
    secrets: Informer[Object],
    plane: RKEControlPlane,
    endpoint: Endpoint | None,
    signing: Mapping[str, bytes],
    *,
    proxied: bool = False,
) -> KubeconfigState:
    cluster = plane.spec.cluster_name
    key = Key(plane.metadata.namespace, secret_name(plane, proxied=proxied))
    seen = secrets.get(*key)
    # A user may supply this Secret: an existing kubeconfig of another owner is never overwritten.
    if seen is not None and not is_ours(seen.metadata, plane):
        return KubeconfigState(present=True, foreign=True)
    if endpoint is None or not signing:
        return KubeconfigState(present=seen is not None)
    notes = {SERVER: str(endpoint), AUTHORITY: hashlib.sha256(signing[CERTIFICATE]).hexdigest()[:16]}
    if seen is not None and (left := _seconds_good(seen.metadata.annotations, notes)) > 0:
        return KubeconfigState(present=True, renew_in=left)
    config = make_kubeconfig(cluster, endpoint.host, endpoint.port, dict(signing))
    value = yaml.safe_dump(config, sort_keys=False).encode()
    renew_at = _renew_at(base64.b64decode(config["users"][0]["user"]["client-certificate-data"]))
    notes[RENEW_AT] = clock.rfc3339(renew_at)
    wanted = owned_secret(plane, key.name, {capi_names.KUBECONFIG_KEY: value}, annotations=notes)
    if seen is None:
        if not await create_owned(client, plane, wanted, CREATE):
            return KubeconfigState(present=True, renew_in=1.0)  # another writer was faster; the watch brings its Secret
    else:
        version = seen.metadata.resource_version
        async with RENEW:
            await client.patch(
                SECRETS,
                *key,
                {"metadata": {"annotations": notes, "resourceVersion": version}, "data": wanted["data"]},
            )
    return KubeconfigState(present=True, renew_in=renew_at - clock.time(), written=True)


def present_server(secrets: Informer[Object], plane: RKEControlPlane, *, proxied: bool = False) -> str:
    """Return the server that the kubeconfig Secret points to now; empty if there is none."""
    seen = secrets.get(plane.metadata.namespace, secret_name(plane, proxied=proxied))
    return seen.metadata.annotations.get(SERVER, "") if seen is not None else ""


def is_ours(metadata: ObjectMeta, plane: RKEControlPlane) -> bool:
    return SERVER in metadata.annotations and metadata.labels.get(capi_names.CLUSTER_NAME) == capi_names.label_value(
        plane.spec.cluster_name
    )


def _seconds_good(present: Mapping[str, str], wanted: Mapping[str, str]) -> float:
    if any(present.get(name) != value for name, value in wanted.items()):
        return 0.0
    try:
        return clock.parse(present.get(RENEW_AT, "")) - clock.time()
    except ValueError:
        return 0.0


def _renew_at(certificate: bytes) -> float:
    found = x509.load_pem_x509_certificate(certificate)
    begins, ends = found.not_valid_before_utc.timestamp(), found.not_valid_after_utc.timestamp()
    return ends - (ends - begins) / 3


def endpoint(
    standing: Endpoint | None, told: Endpoint | None, serving: Sequence[ObservedHost], port: int, present: str
) -> Endpoint | None:
    """Return the endpoint of the API: the one in front of the servers; else the server that was used last or that the
    infrastructure names, as long as it serves; else any server that does."""
    if standing is not None and standing.valid:
        return standing
    candidates = [Endpoint(host=found, port=port) for host in serving if (found := address(host))]
    kept = next((one for one in candidates if str(one) == present), None)
    if told is not None and told.valid and (not candidates or any(one.host == told.host for one in candidates)):
        return told
    return kept or (candidates[0] if candidates else None)


def address(host: ObservedHost) -> str:
    """Return the address by which clients outside the cluster reach the host; empty if it has none."""
    return next(iter((*host.external_addresses, *host.internal_addresses)), "")
