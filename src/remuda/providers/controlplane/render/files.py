"""The files of a host, in the order they are written; and those it has had and shall have no more."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cache
from importlib.resources import files as resources

from remuda.providers.controlplane.planner.observation import Cluster, ExtraFile, Host
from remuda.providers.controlplane.render import layout, manifests, registries, tunnel
from remuda.providers.controlplane.render.config import Configuration
from remuda.providers.controlplane.render.plan import DELETE, File, Plan, indented
from remuda.providers.controlplane.render.tokens import SERVER_AUTHORITY
from remuda.providers.shared import distros

INIT = "init"  # what the host that begins the cluster has in place of a list of servers


def files(cluster: Cluster, host: Host, configuration: Configuration, servers: Sequence[str]) -> list[File]:
    place = layout.of(cluster)
    found = [
        *registries.files(cluster),
        *configuration.files,
        *_extra(cluster, host),
        File(path=place.settings, content=indented(configuration.values)),
        *_authorities(cluster, host, place),
        File(path=place.servers, content="".join(f"{url}\n" for url in servers).encode(), dynamic=True, minor=True),
        *manifests.files(cluster, host),
        File(path=place.tool, content=_tool(), dynamic=True, minor=True),
        *tunnel.files(cluster, host),
        *_manager(cluster, place),
    ]
    return list({file.path: file for file in found}.values())  # a file of the user's that is ours too is ours


def vanished(before: Plan, now: Sequence[File], place: layout.Layout) -> list[File]:
    """Return deletions of the files that the previous plan wrote or deleted and the new one lacks. Files below the
    server's own directory and the CA directory are never deleted: certificates and manifests outlive their delivery."""
    present = {file.path for file in now}
    lasting = (f"{place.server}/", f"{place.authorities}/")
    gone = (file for file in before.files if file.path not in present and not file.path.startswith(lasting))
    return [
        File(path=file.path, action=DELETE, dynamic=file.dynamic, minor=file.minor)
        for file in sorted(gone, key=lambda file: file.path)
    ]


def _extra(cluster: Cluster, host: Host) -> list[File]:
    chosen = (entry for entry in cluster.files if entry.selector is None or entry.selector.matches(host.labels))
    return [_written(file) for entry in chosen for file in entry.files]


def _written(file: ExtraFile) -> File:
    digits = file.permissions or "600"
    return File(path=file.path, content=file.content, permissions=digits.rjust(4, "0"), dynamic=file.dynamic)


def _authorities(cluster: Cluster, host: Host, place: layout.Layout) -> list[File]:
    """Servers get the cluster's authorities before their first start; everybody else only whom to trust.

    They are staged: an agent resets owner and mode of the files it writes, and RKE2 gives some of these to user etcd.
    """
    trusted = File(
        path=place.authority, content=cluster.authorities.get(SERVER_AUTHORITY, b""), dynamic=True, minor=True
    )
    if not host.roles.server:
        return [trusted]
    return [
        trusted,
        *(
            File(path=f"{place.authorities}/{path}", content=content, dynamic=True, minor=True)
            for path, content in sorted(cluster.authorities.items())
        ),
    ]


def _manager(cluster: Cluster, place: layout.Layout) -> list[File]:
    """While several authorities vouch for the manager, hosts are told of all: those that registered when there was one
    go on when its certificate becomes another's."""
    at = cluster.tunnel
    if at is None or at.authority.count(b"BEGIN CERTIFICATE") < 2:
        return []
    known = {"certificate-authority-data": base64.b64encode(at.authority).decode(), "server": at.manager}
    return [File(path=place.manager, content=indented(known), dynamic=True, minor=True)]


@cache
def _tool() -> bytes:
    return resources(distros).joinpath("host_tool.py").read_bytes()
