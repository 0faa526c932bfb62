"""Plans of a cluster of nano, for hosts whose Secrets somebody writes by hand."""

from __future__ import annotations

import datetime
import json
import ssl
import urllib.request
from pathlib import Path
from typing import Any

from remuda.kube import certificates
from remuda.providers.controlplane.artefacts import Artefacts, nano_bundles
from remuda.providers.controlplane.planner.observation import ClusterFacts, ObservedHost, Roles, Tokens
from remuda.providers.shared import distros
from remuda.providers.shared.types.controlplane import Installer, RKEControlPlaneSpec
from tests.lab.limits import LIMIT_SECONDS

Json = dict[str, Any]


class Authorities:
    """Of a cluster, as the control plane's controller makes them."""

    def __init__(self) -> None:
        now = datetime.datetime.now(datetime.UTC)
        self.files: dict[str, bytes] = {}
        for name, places in {
            "ca": ("server/tls/server-ca", "server/tls/client-ca"),
            "etcd": ("server/tls/etcd/server-ca", "server/tls/etcd/peer-ca"),
            "proxy": ("server/tls/request-header-ca",),
        }.items():
            key = certificates.new_key()
            certificate = certificates.make_ca(key, name, 10, now)
            for place in places:
                self.files[f"{place}.crt"] = certificates.certificate_pem(certificate)
                self.files[f"{place}.key"] = certificates.key_pem(key)
        for name in ("server/tls/service.key", "server/tls/service.current.key"):
            self.files[name] = certificates.key_pem(certificates.new_key())


class Plans:
    """What they are rendered from. The artefacts are in the store from now on."""

    def __init__(self, store: Artefacts, bundles: dict[str, Path]) -> None:
        self._store = store
        for version, path in bundles.items():
            store.add("nano", version, nano_bundles.architecture(), {nano_bundles.NAME: path})
        self._authorities = Authorities().files

    def cluster(self, version: str, **config: object) -> ClusterFacts:
        parsed = distros.parse_version(version)
        return ClusterFacts(
            name="prairie",
            namespace="default",
            uid="prairie",
            created=0,
            spec=RKEControlPlaneSpec(
                kubernetes_version=version, cluster_name="prairie", machine_global_config=dict(config)
            ),
            distro=distros.of(parsed),
            version=parsed,
            renderer=1,
            installer=Installer(version=version, artefacts=self._store.lookup("nano", version)),
            tokens=Tokens("the-token-of-servers", "the-token-of-agents"),
            authorities=self._authorities,
        )


def host_of(machine: Json, roles: Roles) -> ObservedHost:
    """From a driver's machine that has an address."""
    name = machine["metadata"]["name"]
    return ObservedHost(
        name=name,
        namespace="default",
        uid=name,
        created=0,
        roles=roles,
        node_name=name,
        provider_id=machine["spec"]["providerID"],
        internal_addresses=[address(machine)],
    )


def address(machine: Json) -> str:
    found = (machine.get("status") or {}).get("addresses") or ()
    return next((str(one["address"]) for one in found if one["type"] == "InternalIP"), "")


def node(server: ObservedHost, root: Path, name: str) -> Json:
    """As the cluster's own API shows it to its administrator; {} when it does not. `root`: of the server's files."""
    tls = root / "var/lib/rancher/nano/server/tls"
    url = f"https://{server.internal_addresses[0]}:6443/api/v1/nodes/{name}"
    try:
        trust = ssl.create_default_context(cafile=str(tls / "server-ca.crt"))
        trust.load_cert_chain(str(tls / "client-admin.crt"), str(tls / "client-admin.key"))
        with urllib.request.urlopen(url, context=trust, timeout=LIMIT_SECONDS) as answer:
            return dict(json.load(answer))
    except OSError:
        return {}


def is_ready(found: Json) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def version_of(found: Json) -> str:
    return str(((found.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion"))
