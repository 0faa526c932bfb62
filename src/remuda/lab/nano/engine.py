"""The engine on the server that has the data: started with the cluster's keys and nano's standard objects."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from typing import Any

from remuda.apiserver.auth import pki
from remuda.apiserver.server import ApiServer, ServerSettings, StartRefused
from remuda.kube.admission import ALLOWED, AdmissionRegistration, AdmissionResult, Review
from remuda.kube.client import Client, Target
from remuda.kube.errors import AlreadyExists
from remuda.kube.web import Handler
from remuda.lab.nano.configuration import FatalError
from remuda.lab.nano.identity import NODE_GROUP, NODE_USER_PREFIX, TlsIdentity

_RBAC = "rbac.authorization.k8s.io"
_DEFINITIONS = Target("apiextensions.k8s.io/v1", "customresourcedefinitions")

_READ = ["get", "list", "watch"]
_WRITE = ["create", "update", "patch", "delete"]
_NODE_RULES = [
    {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": _READ + _WRITE[:3]},
    {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": [*_READ, *_WRITE]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": _READ + _WRITE},
    {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": _WRITE[:3]},
    {"apiGroups": [""], "resources": ["services", "configmaps"], "verbs": _READ},
]


class _Keys(pki.Pki):
    """Keys of the cluster, in the form that the engine needs."""

    def __init__(self, identity: TlsIdentity) -> None:
        authorities = identity.authorities
        super().__init__(identity.layout.tls, authorities.client, authorities.service_key)
        self.ca_certificate_pem = identity.server_ca_pem
        self._identity = identity

    @property
    def admin(self) -> pki.KeyPair:
        return pki.KeyPair(
            (self.folder / "client-admin.crt").read_bytes(), (self.folder / "client-admin.key").read_bytes()
        )

    def server_context(self) -> ssl.SSLContext:
        return self._identity.server_context()


async def start(identity: TlsIdentity, address: str, port: int, before: Callable[[Handler], Handler]) -> ApiServer:
    """Start the engine. Raise FatalError."""
    layout = identity.layout
    layout.engine.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = ServerSettings(data_dir=layout.engine, host=address, port=port)
    try:
        return await ApiServer.start(settings, pki=_Keys(identity), admission=_ADMISSION, before=before)
    except StartRefused as refused:
        raise FatalError(str(refused)) from None


async def create_standard_objects(client: Client) -> None:
    """Create the objects that every nano cluster has. Existing objects stay unchanged."""
    role = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "nano:node"},
        "rules": _NODE_RULES,
    }
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "nano:node"},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "nano:node"},
        "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": NODE_GROUP}],
    }
    await _create(client, Target(f"{_RBAC}/v1", "clusterroles"), role)
    await _create(client, Target(f"{_RBAC}/v1", "clusterrolebindings"), binding)
    for kind, plural in (("HelmChart", "helmcharts"), ("HelmChartConfig", "helmchartconfigs")):
        await _create(client, _DEFINITIONS, _chart_definition(kind, plural))


async def _create(client: Client, target: Target, obj: dict[str, Any]) -> None:
    with contextlib.suppress(AlreadyExists):
        await client.create(target, "", obj)


def _chart_definition(kind: str, plural: str) -> dict[str, Any]:
    """Return the CRD of Helm charts. As in K3s they are stored, but nothing installs them, because nothing here runs
    them.
    """
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.helm.cattle.io"},
        "spec": {
            "group": "helm.cattle.io",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


def restrict_nodes(review: Review) -> AdmissionResult:
    """Allow a node to write only its own Node, its own Lease and the Pods on it."""
    if not review.user.startswith(NODE_USER_PREFIX) or NODE_GROUP not in review.groups:
        return ALLOWED
    node = review.user.removeprefix(NODE_USER_PREFIX)
    if review.resource == "pods":
        pod = review.old or review.new or {}
        allowed = (pod.get("spec") or {}).get("nodeName") == node
    else:
        allowed = review.name == node
    return (
        ALLOWED
        if allowed
        else AdmissionResult(denied=f'node "{node}" is not allowed to modify {review.resource} of others')
    )


_ADMISSION = tuple(
    AdmissionRegistration(group, plural, restrict_nodes, ("CREATE", "UPDATE", "DELETE"))
    for group, plural in (("", "nodes"), ("", "pods"), ("coordination.k8s.io", "leases"))
)
