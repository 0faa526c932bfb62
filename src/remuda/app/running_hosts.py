"""Machines that go on running when the management plane stops, by cluster, and how to delete them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from remuda.app import DATA_DIR
from remuda.capi.types.machine import MACHINE
from remuda.kube.client import Client, list_all
from remuda.kube.errors import NotFound

_SUFFIX = "Machine"  # of the kinds of drivers: ProcessMachine
_REGISTERED = "CustomMachine"  # a host that registered itself


class ClusterHosts(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts of one cluster."""

    namespace: str
    name: str
    hosts: dict[str, int]  # number of hosts by driver; "" for hosts that registered themselves

    def __str__(self) -> str:
        amounts = (
            f"{amount} {'host' if amount == 1 else 'hosts'} {f'of driver {driver}' if driver else 'that registered'}"
            for driver, amount in sorted(self.hosts.items())
        )
        return f"cluster {self.namespace}/{self.name}: {', '.join(amounts)}"


async def find(client: Client) -> list[ClusterHosts]:
    """Return the clusters that have machines, ordered by name. Raises StatusError.

    A machine counts before its host is ready: the Job that creates it may have begun.
    """
    try:
        listing = await list_all(client, MACHINE.target)
    except NotFound:  # an API server without the kinds of Cluster API
        return []
    found: dict[tuple[str, str], Counter[str]] = {}
    for item in listing.items:
        machine = MACHINE.decode(item)
        kind = machine.spec.infrastructure_ref.kind
        driver = "" if kind == _REGISTERED else kind.removesuffix(_SUFFIX).lower()
        found.setdefault((machine.metadata.namespace, machine.spec.cluster_name), Counter())[driver] += 1
    return [ClusterHosts(namespace=key[0], name=key[1], hosts=dict(found[key])) for key in sorted(found)]


def text(found: Sequence[ClusterHosts], data_dir: Path) -> list[str]:
    """Return lines for the user who stops the management plane: the hosts, and the commands that delete them."""
    lines = ["These hosts go on running without the management plane:", *(f"  {one}" for one in found)]
    lines += ["To delete them, start it again and delete their clusters:", f"  remuda up --detach{_flag(data_dir)}"]
    kubeconfig = "" if data_dir == DATA_DIR else f" --kubeconfig {data_dir.absolute() / 'admin.kubeconfig'}"
    return [*lines, *(f"  remuda delete cluster {one.name} -n {one.namespace}{kubeconfig}" for one in found)]


def _flag(data_dir: Path) -> str:
    return "" if data_dir == DATA_DIR else f" --data-dir {data_dir.absolute()}"
