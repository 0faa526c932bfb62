"""Instructions for a host (the installation, and the periodic reports of etcd's members and of the unit), and probes.

Every certificate that a probe meets is verified by a CA of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files as resources
from typing import Any

from remuda.providers.controlplane.planner.observation import ClusterFacts, ObservedHost
from remuda.providers.controlplane.render import layout
from remuda.providers.controlplane.render.config import SECURE_PORTS, argument
from remuda.providers.controlplane.render.plan import INSTALL, Instruction, Probe, compact
from remuda.providers.shared import distros
from remuda.providers.shared.distros.contract import listed

MEMBERS = "etcd-members"
UNIT_STATUS = "unit-status"
RETIRE = "retire"
_MEMBERS_SECONDS = 20
_STATUS_SECONDS = 30

# The environment passes values, so that a path is never interpreted as anything else.
_LIST_MEMBERS = (
    'exec "${REMUDA_PYTHON:-python3}" "${REMUDA_HOST_ROOT:-}$REMUDA_STATE_DIR/host-tool.py"'
    ' members "$REMUDA_DATA_DIR" "$REMUDA_SUPERVISOR_PORT" "$REMUDA_NODE_NAME"'
)
_UNIT_STATUS = (
    'exec "${REMUDA_PYTHON:-python3}" "${REMUDA_HOST_ROOT:-}$REMUDA_STATE_DIR/host-tool.py"'
    ' status "$REMUDA_UNIT" "$REMUDA_CONFIG_DIR"'
)


def install(cluster: ClusterFacts, host: ObservedHost, stamps: Mapping[str, str], profile: str) -> Instruction:
    """Return the installation. Variables of the user never replace ours. `profile`: that of the config file, for which
    the host may have to be prepared; empty: none."""
    ours = dict(stamps) | _environment(cluster, host) | ({"REMUDA_PROFILE": profile} if profile else {})
    variables = {name: value for name, value in user_environment(cluster).items() if name not in ours}
    return Instruction(
        name=INSTALL,
        image=cluster.installer.image,
        args=["-c", _script(cluster.distro.name, bool(cluster.installer.artefacts))],
        env=[f"{name}={value}" for name, value in (*sorted(variables.items()), *sorted(ours.items()))],
    )


def members(cluster: ClusterFacts, host: ObservedHost) -> Instruction:
    place = layout.of(cluster)
    environment = {
        "REMUDA_DATA_DIR": place.data,
        "REMUDA_NODE_NAME": host.node_name,
        "REMUDA_STATE_DIR": place.state,
        "REMUDA_SUPERVISOR_PORT": str(cluster.distro.supervisor_port),
    }
    return Instruction(
        name=MEMBERS,
        args=["-c", _LIST_MEMBERS],
        env=[f"{name}={value}" for name, value in environment.items()],
        period_seconds=_MEMBERS_SECONDS,
    )


def unit_status(cluster: ClusterFacts, host: ObservedHost) -> Instruction:
    """Return the instruction, which must be the last: those of etcd give a server that was just started a moment, so
    that a successful start is not reported.
    """
    place = layout.of(cluster)
    environment = {
        "REMUDA_CONFIG_DIR": place.config,
        "REMUDA_STATE_DIR": place.state,
        "REMUDA_UNIT": cluster.distro.unit(host.roles.server),
    }
    return Instruction(
        name=UNIT_STATUS,
        args=["-c", _UNIT_STATUS],
        env=[f"{name}={value}" for name, value in environment.items()],
        period_seconds=_STATUS_SECONDS,
    )


def retire(cluster: ClusterFacts, host: ObservedHost) -> Instruction:
    distro, data = cluster.distro, layout.of(cluster).data
    environment = {
        "REMUDA_DATA_DIR": data,
        "REMUDA_DISTRO": distro.name,
        "REMUDA_UNIT": cluster.distro.unit(host.roles.server),
        f"{distro.env_prefix}_DATA_DIR": data,
        **_active_file(cluster, host),
    }
    return Instruction(
        name=RETIRE,
        args=["-c", _resource("retire.sh")],
        env=[f"{name}={value}" for name, value in environment.items()],
    )


def user_environment(cluster: ClusterFacts) -> dict[str, str]:
    """Return the user's environment variables, without the agent's directory: only dataDirectories sets that."""
    found = {variable.name: variable.value for variable in cluster.spec.agent_env_vars if variable.value}
    found.pop("CATTLE_AGENT_VAR_DIR", None)
    return found


def source(cluster: ClusterFacts) -> str:
    """Return the source of this version as one string: another source is another installation."""
    installer = cluster.installer
    return _artefacts(cluster) or installer.image or installer.version or cluster.version.text


def _environment(cluster: ClusterFacts, host: ObservedHost) -> dict[str, str]:
    distro, place = cluster.distro, layout.of(cluster)
    role = "server" if host.roles.server else "agent"
    return {
        "REMUDA_AGENT_DIR": place.agent,
        "REMUDA_ARTEFACTS": _artefacts(cluster),
        "REMUDA_CONFIG_DIR": place.config,
        "REMUDA_DATA_DIR": place.data,
        "REMUDA_DISTRO": distro.name,
        "REMUDA_INIT": compact({"cluster-init": True} if distro.needs_cluster_init else {}).decode(),
        "REMUDA_ROLE": role,
        "REMUDA_STATE_DIR": place.state,
        "REMUDA_UNIT": cluster.distro.unit(host.roles.server),
        "REMUDA_VERSION": cluster.version.text,
        f"{distro.env_prefix}_DATA_DIR": place.data,
        f"INSTALL_{distro.env_prefix}_EXEC": role,
        **_active_file(cluster, host),
    }


def _active_file(cluster: ClusterFacts, host: ObservedHost) -> dict[str, str]:
    if not (cluster.distro.components_outlive_unit and host.roles.server):
        return {}
    return {"REMUDA_ACTIVE_FILE": layout.of(cluster).active_file(cluster.distro.server_unit)}


def _artefacts(cluster: ClusterFacts) -> str:
    return "\n".join(
        f"{architecture} {name} {checksum}"
        for architecture, names in sorted(cluster.installer.artefacts.items())
        for name, checksum in sorted(names.items())
    )


@cache
def _script(distro: str, from_artefacts: bool) -> str:
    preparation = _resource(name) if resources(distros).joinpath(name := f"prepare-{distro}.sh").is_file() else ""
    own = _resource(f"install-{distro}.sh") if from_artefacts else ""
    return f"{_resource('install-common.sh')}\n{preparation}{own}\nmain\n"


@cache
def _resource(name: str) -> str:
    return resources(distros).joinpath(name).read_text("utf-8")


# ---- probes -------------------------------------------------------------------------------------------------------


def probes(cluster: ClusterFacts, host: ObservedHost, values: dict[str, Any]) -> dict[str, Probe]:
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


def _authority(place: layout.HostLayout, values: dict[str, Any], component: str) -> str:
    """Return the CA file of the certificate that the component serves. A certificate that the user supplied is trusted
    itself."""
    own = argument(values, component, "tls-cert-file")
    if own and own != f"{place.server}/tls/serving-kube-apiserver.crt":
        return own
    folder = argument(values, component, "cert-dir")
    return f"{folder}/{component}.crt" if folder and not own else f"{place.server}/tls/server-ca.crt"


def _network(cluster: ClusterFacts) -> str:
    """Return the network plugin of the cluster: the last named, since multus comes before the plugin it adds to. The
    config of workers does not name it, so it is read from the global config of all machines."""
    chosen = cluster.spec.machine_global_config.get("cni") or cluster.distro.defaults.get("cni")
    names = [name.strip() for item in listed(chosen) for name in item.split(",")]
    return names[-1] if names else ""
