"""Health probes of a host. Every certificate is verified by a CA of the cluster."""

from __future__ import annotations

from typing import Any

from remuda.providers.controlplane.planner.observation import Cluster, Host
from remuda.providers.controlplane.render import layout
from remuda.providers.controlplane.render.config import SECURE_PORTS, argument
from remuda.providers.controlplane.render.plan import Probe
from remuda.providers.shared.distros.contract import listed


def probes(cluster: Cluster, host: Host, values: dict[str, Any]) -> dict[str, Probe]:
    place, here, roles = layout.of(cluster), layout.loopback(cluster), host.roles
    found: dict[str, Probe] = {}
    if roles.server and cluster.distro.components_outlive_unit:
        # All others may be answered by components that the process before has started.
        unit = cluster.distro.server_unit
        found[unit] = Probe(
            url=f"https://{here}:{cluster.distro.supervisor_port}/ping", authority=place.active_file(unit)
        )
    if roles.etcd:
        found["etcd"] = Probe(url=f"http://{here}:2381/health")
    if roles.control_plane:
        client = f"{place.server}/tls/client-kube-apiserver"
        found["kube-apiserver"] = Probe(
            url=f"https://{here}:{cluster.distro.api_port}/readyz",
            authority=f"{place.server}/tls/server-ca.crt",
            certificate=f"{client}.crt",
            key=f"{client}.key",
        )
        for component, port in SECURE_PORTS.items():
            port = argument(values, component, "secure-port") or port
            found[component] = Probe(
                url=f"https://{here}:{port}/healthz", authority=_authority(place, values, component)
            )
    if not roles.only_etcd or cluster.distro.kubelet_without_api:
        found["kubelet"] = Probe(url=f"http://{here}:10248/healthz")
    if cluster.distro.network_probe and not roles.only_etcd and _network(cluster) in cluster.distro.probed_networks:
        found["calico"] = Probe(url=f"http://{here}{cluster.distro.network_probe}")
    return found


def _authority(place: layout.Layout, values: dict[str, Any], component: str) -> str:
    """Return the CA file of the certificate that the component serves. A certificate that the user supplied is trusted
    itself."""
    own = argument(values, component, "tls-cert-file")
    if own and own != f"{place.server}/tls/serving-kube-apiserver.crt":
        return own
    folder = argument(values, component, "cert-dir")
    return f"{folder}/{component}.crt" if folder and not own else f"{place.server}/tls/server-ca.crt"


def _network(cluster: Cluster) -> str:
    """Return the network plugin of the cluster: the last named, since multus comes before the plugin it adds to. The
    config of workers does not name it, so it is read from the global config of all machines."""
    chosen = cluster.spec.machine_global_config.get("cni") or cluster.distro.defaults.get("cni")
    names = [name.strip() for item in listed(chosen) for name in item.split(",")]
    return names[-1] if names else ""
