"""What drivers have with the tag of this management plane, and nobody owns: servers without a machine, and what was
made for a cluster whose RKECluster is gone.

A driver can only list what its options and credentials open, so all that are in use are tried: those of every Config,
MachineTemplate, machine and RKECluster, each distinct set once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from remuda.kube.client import Client, list_all
from remuda.kube.core import NAMESPACES, SECRET, SECRETS
from remuda.kube.errors import StatusError
from remuda.kube.objects import Kind, Object
from remuda.providers.infrastructure.types import RKE_CLUSTER
from remuda.providers.machine import credentials, drivers, orders
from remuda.providers.machine.execution import convert, options
from remuda.providers.machine.spi import (
    TAG_CLUSTER,
    TAG_MACHINE,
    TAG_UID,
    Address,
    BadOptions,
    Context,
    Driver,
    DriverError,
    Order,
    ServerState,
)
from remuda.providers.machine.types import NODE_DRIVER, config_kind, machine_kind, options_of, template_kind

Json = dict[str, Any]

_NOT_FOUND = 404
_OBJECT: Kind[Object] = Kind("", "", "", Object)
_CREDENTIAL = "cloudCredentialSecretName"
_META = ("apiVersion", "kind", "metadata", "common", "providerID", "status")


class Leak(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    driver: str
    id: str
    name: str
    what: Literal["server", "cluster infrastructure"] = "server"
    state: ServerState | Literal[""] = ""  # of a server
    machine: str = ""  # namespace/name of the machine it was made for; empty: for the cluster as a whole
    cluster: str
    addresses: Sequence[Address] = ()


class Found(msgspec.Struct, frozen=True):
    leaks: Sequence[Leak]
    unknown: Sequence[str]  # where nobody could look, and why


class _Use(msgspec.Struct, frozen=True):
    """One way in which a driver is used."""

    namespace: str
    options: Json
    credential: str


_NO_USE = _Use("", {}, "")
_Look = Callable[[Client, type[Driver[Any]], str, _Use, str, Path], Awaitable[list[tuple[str, Leak]]]]


async def find(client: Client, directory: Path, only: Sequence[str] = ()) -> Found:
    """`directory`: where drivers keep servers that live on this machine. `only`: these drivers."""
    owner = _OBJECT.decode(await client.get(NAMESPACES, "", "kube-system")).metadata.uid
    leaks: dict[tuple[str, str], Leak] = {}
    unknown: list[str] = []
    for name in await _names(client, only):
        owned, uses = await _in_use(client, name)
        try:
            driver = drivers.find(name)
        except drivers.NoSuchDriver:
            if uses:
                unknown.append(f"{name}: a driver that is a program cannot tell which servers there are")
            continue
        shared, shares = await _shared(client, name)
        owned |= shared
        looks: list[tuple[_Use, _Look]] = [(use, _look) for use in uses or [_NO_USE]]  # without any: the defaults
        if driver.cluster is not None:
            looks += [(use, _look_at_clusters) for use in shares or [_NO_USE]]
        for use, look in looks:
            try:
                for leak in await look(client, driver, name, use, owner, directory):
                    leaks[name, leak[0]] = leak[1]
            except BadOptions as error:
                if use is not _NO_USE:  # a driver that needs options, and that nobody gives any, is not in use
                    unknown.append(f"{name}: {error}")
            except (DriverError, credentials.BadReference, StatusError, OSError) as error:
                unknown.append(f"{name}: {error}")
        for key in [key for key in leaks if key[0] == name and key[1] in owned]:
            del leaks[key]
    return Found(sorted(leaks.values(), key=lambda leak: (leak.driver, leak.name, leak.id)), unknown)


async def _names(client: Client, only: Sequence[str]) -> list[str]:
    listing = await list_all(client, NODE_DRIVER.target)
    known = [NODE_DRIVER.decode(value) for value in listing.items]
    names = [driver.metadata.name for driver in known if driver.spec.active or driver.metadata.deleting]
    return [name for name in names if not only or name in only]


async def _in_use(client: Client, driver: str) -> tuple[set[str], list[_Use]]:
    """The tags of servers that have a machine, and every way in which the driver is used."""
    machines = await _all(client, machine_kind(driver))
    templates = await _all(client, template_kind(driver))
    configs = await _all(client, config_kind(driver))
    owned = {orders.identity(_OBJECT.decode(msgspec.json.encode(one)).metadata).rpartition("/")[2] for one in machines}
    specs = [(one, one.get("spec") or {}) for one in machines]
    specs += [(one, one.get("spec", {}).get("template", {}).get("spec") or {}) for one in templates]
    specs += [(one, {name: value for name, value in one.items() if name not in _META[:3]}) for one in configs]
    uses = [_use(one["metadata"]["namespace"], spec) for one, spec in specs]
    distinct = {msgspec.json.encode(use, order="sorted"): use for use in uses}
    return owned, list(distinct.values())


async def _shared(client: Client, driver: str) -> tuple[set[str], list[_Use]]:
    """The same of what was made for clusters. Which driver that was is remembered when it is not asked for any more."""
    owned: set[str] = set()
    uses: dict[bytes, _Use] = {}
    for obj in await _all(client, RKE_CLUSTER):
        wanted = (obj.get("spec") or {}).get("infrastructure") or {}
        made = (obj.get("status") or {}).get("infrastructure") or {}
        if driver in (wanted.get("driver"), made.get("driver")):
            owned.add(orders.identity(_OBJECT.decode(msgspec.json.encode(obj)).metadata).rpartition("/")[2])
            same = wanted if wanted.get("driver") == driver else {}
            use = _Use(obj["metadata"]["namespace"], same.get("options") or {}, same.get(_CREDENTIAL) or "")
            uses[msgspec.json.encode(use, order="sorted")] = use
    return owned, list(uses.values())


def _use(namespace: str, spec: Json) -> _Use:
    credential = (spec.get("common") or {}).get(_CREDENTIAL) or ""
    chosen = {name: value for name, value in options_of(spec).items() if name not in _META}
    return _Use(namespace, chosen, credential)


async def _all(client: Client, kind: Kind[Any]) -> list[Json]:
    try:
        listing = await list_all(client, kind.target)
    except StatusError as error:
        if error.code == _NOT_FOUND:  # the driver's kinds are not there, and so is nothing of them
            return []
        raise
    return [msgspec.json.decode(value) for value in listing.items]


async def _look(
    client: Client, driver: type[Driver[Any]], name: str, use: _Use, owner: str, directory: Path
) -> list[tuple[str, Leak]]:
    """Servers by the tag of the machine they were made for, or by their own id where they have none."""
    order = Order(
        driver=name, action="remove", name="", hostname="", namespace=use.namespace, machine="", uid="", cluster="",
        owner=owner, options=use.options,
    )  # fmt: skip
    context = Context(
        credentials=await _credentials(client, use), record=_NoRecord(), say=lambda text: None, directory=directory
    )
    servers = await driver(options(order, driver), context).owned(owner)
    return [
        (
            server.tags.get(TAG_UID) or server.id,
            Leak(
                driver=name,
                id=server.id,
                name=server.name,
                state=server.state,
                machine=server.tags.get(TAG_MACHINE, ""),
                cluster=server.tags.get(TAG_CLUSTER, ""),
                addresses=server.addresses,
            ),
        )
        for server in servers
    ]


async def _look_at_clusters(
    client: Client, driver: type[Driver[Any]], name: str, use: _Use, owner: str, directory: Path
) -> list[tuple[str, Leak]]:
    """What was made for clusters, by the tag of the RKECluster it was made for."""
    assert driver.cluster is not None
    context = Context(
        credentials=await _credentials(client, use), record=_NoRecord(), say=lambda text: None, directory=directory
    )
    options = convert(name, use.options, driver.cluster.options_type)
    return [
        (
            found.tags.get(TAG_UID) or found.id,
            Leak(
                driver=name,
                id=found.id,
                name=found.name,
                what="cluster infrastructure",
                cluster=found.tags.get(TAG_CLUSTER, ""),
            ),
        )
        for found in await driver.cluster(options, context).owned(owner)
    ]


async def _credentials(client: Client, use: _Use) -> dict[str, str]:
    if not use.credential:
        return {}
    place = credentials.place(use.credential, use.namespace)
    data = SECRET.decode(await client.get(SECRETS, *place)).data
    return {name: value.decode("utf-8", "replace") for name, value in credentials.fields(data).items()}


class _NoRecord:
    """Of a driver that only looks."""

    @property
    def value(self) -> Mapping[str, Any]:
        return {}

    private_key = ""

    async def save_private_key(self, private_key: str) -> None:
        raise DriverError("nothing is written down by looking")

    async def save(self, value: Mapping[str, Any]) -> None:
        raise DriverError("nothing is written down by looking")
