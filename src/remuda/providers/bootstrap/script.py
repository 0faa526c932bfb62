"""The script that makes a server a managed host: lines that name its manager, then `install.sh`, which never changes.

The lines quote every value, so that no value can become code; a name that cannot be a variable's is refused.

The environment of the agent (proxies and the like, and its state directory) comes from the cluster's control plane. A
host receives it once, with the script. Later changes apply only to hosts created afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from remuda.capi.types import Cluster
from remuda.kube.objects import Key
from remuda.providers.bootstrap import assets
from remuda.providers.shared.manager_address import Site
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE, RKEControlPlane

_NOTHING: Mapping[str, str] = MappingProxyType({})
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PLAIN = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")  # no line breaks: units and environment files have one value a line
Environment = dict[str, str]

_STATE_VARIABLE = "CATTLE_AGENT_VAR_DIR"


def for_machine(site: Site, token: str, environment: Mapping[str, str] = _NOTHING) -> str:
    """Return the script that one server runs once. `environment` is the user's, for the agent (proxies, directories,
    log level). Raises ValueError, with a text for users, for a value that the script cannot contain."""
    return _script({**environment, **_site(site), "CATTLE_ROLE_NONE": "true", "CATTLE_TOKEN": token})


def public(site: Site, environment: Mapping[str, str] = _NOTHING) -> str:
    """Return the public install script: token and roles are passed as arguments."""
    return _script({**environment, **_site(site)})


@cache
def uninstall() -> bytes:
    """Return the script that removes upstream's agent from a host."""
    return files(__package__).joinpath("uninstall.sh").read_bytes()


def _site(site: Site) -> dict[str, str]:
    return {
        "CATTLE_SERVER": site.server_url,
        "CATTLE_CA_CHECKSUM": site.ca_checksum,
        "REMUDA_AGENT_CHECKSUM": assets.agent_checksum(),
    }


def _script(variables: Mapping[str, str]) -> str:
    lines = [f"export {_name(name)}={_quoted(name, value)}\n" for name, value in variables.items()]
    return "#!/bin/sh\n" + "".join(lines) + _body()


@cache
def _body() -> str:
    return files(__package__).joinpath("install.sh").read_text("utf-8")


def _name(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of an environment variable")
    return name


def _quoted(name: str, value: str) -> str:
    if not _PLAIN.fullmatch(value):
        raise ValueError(f"the value of the environment variable {name} has a line break or another control character")
    return "'" + value.replace("'", "'\\''") + "'"


# ---- environment of the agent -------------------------------------------------------------------------------------


def control_plane_of(cluster: Cluster) -> Key | None:
    """Return the RKEControlPlane of a Cluster; None if its control plane is of another provider."""
    reference = cluster.spec.control_plane_ref
    if reference is None or (reference.api_group, reference.kind) != (RKE_CONTROL_PLANE.group, RKE_CONTROL_PLANE.name):
        return None
    return Key(cluster.metadata.namespace, reference.name)


def environment_of(control_plane: RKEControlPlane) -> Environment:
    """Return the agents' environment. Only dataDirectories sets the state directory, as in plans."""
    spec = control_plane.spec
    found = {variable.name: variable.value for variable in spec.agent_env_vars if variable.value}
    found.pop(_STATE_VARIABLE, None)
    if spec.data_directories.system_agent:
        found[_STATE_VARIABLE] = spec.data_directories.system_agent
    return found
