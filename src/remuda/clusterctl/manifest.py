"""Manifest that installs all of Remuda on Kubernetes: core, providers, declared clusters and access. Pure.

Its RBAC rules are those of rbac.yaml, without the simulated provider's; tests compare them with the requests that the
program sends. The ClusterRoles for tenants come from `access.roles`. The manifest has no CRDs: the program installs and
updates its own.
"""

from __future__ import annotations

import msgspec

from remuda.access import roles
from remuda.clusterctl import program
from remuda.clusterctl.program import Json, Mount

IMAGE = "registry.example.com/remuda"  # in deploy/kubernetes.yaml, which adds a version
SERVER_URL = "https://remuda.example.com"

_SIMULATOR = ("ClusterRole", "remuda-manager-simulator")
_TLS = "/run/remuda/tls"
_ARTEFACTS = "/var/lib/remuda-artefacts"
_OWNER_AND_GROUP = 0o440  # a private key: only the owner and the Pod's group may read it
_HEAD = """\
# Remuda on Kubernetes, as printed by `remuda manifest`. Change the image and --server-url to your own.
"""


class ManifestOptions(msgspec.Struct, frozen=True, kw_only=True):
    image: str
    server_url: str
    service_type: str = ""
    tls_secret: str = ""  # a Secret with tls.crt, tls.key and ca.crt, as cert-manager makes them
    artefacts_claim: str = ""  # a PersistentVolumeClaim with binaries and images for nodes


def render(wanted: ManifestOptions) -> str:
    return _HEAD + program.text(objects(wanted))


def objects(wanted: ManifestOptions) -> list[Json]:
    mounts, more = _extras(wanted)
    arguments = program.arguments("", wanted.server_url, wanted.image)
    return [
        _namespace(),
        *(one for key, one in program.rights().items() if key != _SIMULATOR and one["kind"] != "Namespace"),
        *roles.cluster_roles(),
        *program.services(wanted.service_type),
        program.deployment(wanted.image, [*arguments, *more], mounts),
    ]


def _namespace() -> Json:
    found = program.named("v1", "Namespace", program.NAMESPACE, namespace="")
    found["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "restricted"
    return found


def _extras(wanted: ManifestOptions) -> tuple[list[Mount], list[str]]:
    mounts, arguments = [], []
    if wanted.tls_secret:
        secret = {"secretName": wanted.tls_secret, "defaultMode": _OWNER_AND_GROUP}
        mounts.append(Mount("tls", _TLS, {"secret": secret}))
        arguments += [f"--tls-cert={_TLS}/tls.crt", f"--tls-key={_TLS}/tls.key", f"--server-ca={_TLS}/ca.crt"]
    if wanted.artefacts_claim:
        claim = {"claimName": wanted.artefacts_claim}
        mounts.append(Mount("artefacts", _ARTEFACTS, {"persistentVolumeClaim": claim}, False))
        arguments.append(f"--artefacts={_ARTEFACTS}")
    return mounts, arguments
