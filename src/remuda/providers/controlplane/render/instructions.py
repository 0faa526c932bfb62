"""What is run on a host: the installation, and a look at etcd's members again and again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files as resources

from remuda.providers.controlplane import distros
from remuda.providers.controlplane.planner.observed import Cluster, Host
from remuda.providers.controlplane.render import layout
from remuda.providers.controlplane.render.plan import INSTALL, Instruction, compact

MEMBERS = "etcd-members"
RETIRE = "retire"
_MEMBERS_SECONDS = 20

# Values are given by the environment, so that no path can be anything but a path.
_LIST_MEMBERS = (
    'exec "${REMUDA_PYTHON:-python3}" "${REMUDA_HOST_ROOT:-}$REMUDA_STATE_DIR/host-tool.py"'
    ' members "$REMUDA_DATA_DIR" "$REMUDA_SUPERVISOR_PORT" "$REMUDA_NODE_NAME"'
)


def install(cluster: Cluster, host: Host, stamps: Mapping[str, str]) -> Instruction:
    """What the user adds to the environment never changes what we say in it."""
    ours = dict(stamps) | _environment(cluster, host)
    variables = {name: value for name, value in user_environment(cluster).items() if name not in ours}
    return Instruction(
        name=INSTALL,
        image=cluster.installer.image,
        args=["-c", _script(cluster.distro.name, bool(cluster.installer.artefacts))],
        env=[f"{name}={value}" for name, value in (*sorted(variables.items()), *sorted(ours.items()))],
    )


def members(cluster: Cluster, host: Host) -> Instruction:
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


def retire(cluster: Cluster, host: Host) -> Instruction:
    return Instruction(
        name=RETIRE,
        args=["-c", _resource("retire.sh")],
        env=[f"REMUDA_DISTRO={cluster.distro.name}", f"REMUDA_UNIT={_unit(cluster, host)}"],
    )


def user_environment(cluster: Cluster) -> dict[str, str]:
    """Where the agent is kept is set by dataDirectories alone."""
    found = {variable.name: variable.value for variable in cluster.spec.agent_env_vars if variable.value}
    found.pop("CATTLE_AGENT_VAR_DIR", None)
    return found


def source(cluster: Cluster) -> str:
    """Where this version comes from, as one text: another one is another installation."""
    installer = cluster.installer
    return _artefacts(cluster) or installer.image or installer.version or cluster.version.text


def _environment(cluster: Cluster, host: Host) -> dict[str, str]:
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
        "REMUDA_UNIT": _unit(cluster, host),
        "REMUDA_VERSION": cluster.version.text,
        f"{distro.env_prefix}_DATA_DIR": place.data,
        f"INSTALL_{distro.env_prefix}_EXEC": role,
    }


def _unit(cluster: Cluster, host: Host) -> str:
    return cluster.distro.server_unit if host.roles.server else cluster.distro.agent_unit


def _artefacts(cluster: Cluster) -> str:
    return "\n".join(
        f"{architecture} {name} {checksum}"
        for architecture, names in sorted(cluster.installer.artefacts.items())
        for name, checksum in sorted(names.items())
    )


@cache
def _script(distro: str, from_artefacts: bool) -> str:
    own = _resource(f"install-{distro}.sh") if from_artefacts else ""
    return f"{_resource('install-common.sh')}\n{own}\nmain\n"


@cache
def _resource(name: str) -> str:
    return resources(distros).joinpath(name).read_text("utf-8")
