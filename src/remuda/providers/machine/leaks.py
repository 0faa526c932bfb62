"""Leaks: resources of drivers that carry the tag of this management plane and have no owner.

They are servers without a machine, and infrastructure made for a cluster whose RKECluster is deleted.

A driver can only list what its options and credentials give access to, so all that are in use are tried: those of every
Config, MachineTemplate, machine and RKECluster, each distinct set once. Servers of local drivers live on the manager's
own machine: only the manager can look there (`LeakSearchScope`), and clients elsewhere ask the manager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from remuda.kube.client import Client, list_all
from remuda.kube.core import NAMESPACES, SECRET, SECRETS
from remuda.kube.errors import NotFound, StatusError
from remuda.kube.objects import Kind, Object
from remuda.providers.shared import credentials, drivers
from remuda.providers.shared.drivers.spi import (
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
from remuda.providers.shared.jobs import job_spec
from remuda.providers.shared.jobs.execution import convert, options
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.providers.shared.types.machine import NODE_DRIVER, config_kind, machine_kind, options_of, template_kind

Json = dict[str, Any]

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


class LeakSearchResult(msgspec.Struct, frozen=True):
    leaks: Sequence[Leak]
    unknown: Sequence[str]  # drivers that could not be searched, and why
    looked: Sequence[str] = ()  # drivers that were searched


class LeakSearchScope(msgspec.Struct, frozen=True):
    """Scope of a search: which drivers are asked from here, and where the servers of local ones are."""

    hosts: Path | None = None  # a folder of this machine; None: local drivers keep nothing here
    local: bool = True  # ask drivers whose servers live on the manager's machine
    remote: bool = True  # ask all others


class _Use(msgspec.Struct, frozen=True):
    """One set of options and credential that a driver is used with."""

    namespace: str
    options: Json
    credential: str


_NO_USE = _Use("", {}, "")
_Look = Callable[[Client, type[Driver[Any]], str, _Use, str, Path], Awaitable[list[tuple[str, Leak]]]]


async def find(client: Client, place: LeakSearchScope, only: Sequence[str] = ()) -> LeakSearchResult:
    """`only`: these drivers."""
    owner = _OBJECT.decode(await client.get(NAMESPACES, "", "kube-system")).metadata.uid
    leaks: dict[tuple[str, str], Leak] = {}
    looked: list[str] = []
    names, unknown = await _names(client, only, place)
    for name in names:
        owned, uses = await _in_use(client, name)
        try:
            driver = drivers.find(name)
        except drivers.NoSuchDriver:
            if place.remote and (uses or name in only):
                unknown.append(
                    f"{name}: cannot list servers: the driver is a rancher-machine program, which has no list command"
                )
            continue
        if not (place.local if driver.local else place.remote):
            continue
        if driver.local and place.hosts is None:
            if uses or name in only:
                unknown.append(
                    f"{name}: cannot list servers: they are where its Jobs run, and this manager runs no Jobs"
                )
            continue
        directory = place.hosts or Path()
        looked.append(f"{name} in {directory}" if driver.local else name)
        shared, shares = await _shared(client, name)
        owned |= shared
        looks: list[tuple[_Use, _Look]] = [(use, _look) for use in uses or [_NO_USE]]  # unused drivers: default options
        if driver.cluster is not None:
            looks += [(use, _look_at_clusters) for use in shares or [_NO_USE]]
        for use, look in looks:
            try:
                for leak in await look(client, driver, name, use, owner, directory):
                    leaks[name, leak[0]] = leak[1]
            except BadOptions as error:
                if use is not _NO_USE:  # an unused driver may lack required options
                    unknown.append(f"{name}: {error}")
            except (DriverError, credentials.BadReference, StatusError, OSError) as error:
                unknown.append(f"{name}: {error}")
        _drop(leaks, name, owned)
        if any(key[0] == name for key in leaks):
            # A machine that was created since its owners were listed may have its server already. Owners listed only
            # after the servers would miss those that were removed meanwhile, with their server.
            _drop(leaks, name, (await _in_use(client, name))[0] | (await _shared(client, name))[0])
    return LeakSearchResult(in_order(leaks.values()), unknown, looked)


def _drop(leaks: dict[tuple[str, str], Leak], driver: str, owned: Collection[str]) -> None:
    for key in [key for key in leaks if key[0] == driver and key[1] in owned]:
        del leaks[key]


async def has_local_drivers(client: Client, only: Sequence[str] = ()) -> bool:
    """Return whether any of the drivers to ask has its servers on the manager's own machine."""
    names, _ = await _names(client, only, LeakSearchScope())
    return any(drivers.find(name).local for name in names if name in drivers.names())


def in_order(leaks: Iterable[Leak]) -> list[Leak]:
    return sorted(leaks, key=lambda leak: (leak.driver, leak.name, leak.id))


async def _names(client: Client, only: Sequence[str], place: LeakSearchScope) -> tuple[list[str], list[str]]:
    """Return the drivers to ask, and why not all that were asked for. One that is named is asked also while it is not
    active: it may have been."""
    listing = await list_all(client, NODE_DRIVER.target)
    known = [NODE_DRIVER.decode(value) for value in listing.items]
    if not only:
        return [driver.metadata.name for driver in known if driver.spec.active or driver.metadata.deleting], []
    names = [driver.metadata.name for driver in known]
    there = ", ".join(sorted(names)) or "none"
    wrong = [f"{name}: NodeDriver not found; known drivers: {there}" for name in only if name not in names]
    return [name for name in names if name in only], wrong if place.remote else []


async def _in_use(client: Client, driver: str) -> tuple[set[str], list[_Use]]:
    """Return the tags of servers that have a machine, and each set of options and credential in use."""
    machines = await _all(client, machine_kind(driver))
    templates = await _all(client, template_kind(driver))
    configs = await _all(client, config_kind(driver))
    owned = {
        job_spec.identity(_OBJECT.decode(msgspec.json.encode(one)).metadata).rpartition("/")[2] for one in machines
    }
    specs = [(one, one.get("spec") or {}) for one in machines]
    specs += [(one, one.get("spec", {}).get("template", {}).get("spec") or {}) for one in templates]
    specs += [(one, {name: value for name, value in one.items() if name not in _META[:3]}) for one in configs]
    uses = [_use(one["metadata"]["namespace"], spec) for one, spec in specs]
    distinct = {msgspec.json.encode(use, order="sorted"): use for use in uses}
    return owned, list(distinct.values())


async def _shared(client: Client, driver: str) -> tuple[set[str], list[_Use]]:
    """Return the same for cluster infrastructure, including RKEClusters that no longer ask for it."""
    owned: set[str] = set()
    uses: dict[bytes, _Use] = {}
    for obj in await _all(client, RKE_CLUSTER):
        wanted = (obj.get("spec") or {}).get("infrastructure") or {}
        made = (obj.get("status") or {}).get("infrastructure") or {}
        if driver in (wanted.get("driver"), made.get("driver")):
            owned.add(job_spec.identity(_OBJECT.decode(msgspec.json.encode(obj)).metadata).rpartition("/")[2])
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
    except NotFound:  # the driver's kinds are not installed
        return []
    return [msgspec.json.decode(value) for value in listing.items]


async def _look(
    client: Client, driver: type[Driver[Any]], name: str, use: _Use, owner: str, directory: Path
) -> list[tuple[str, Leak]]:
    """Return servers by the tag of their machine, or by their own id if they have no tag."""
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
    """Return the infrastructure made for clusters, by the tag of the RKECluster it was made for."""
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
    """Empty record of a driver that only lists."""

    @property
    def value(self) -> Mapping[str, Any]:
        return {}

    private_key = ""

    async def save_private_key(self, private_key: str) -> None:
        raise DriverError("a search for leaks records nothing")

    async def save(self, value: Mapping[str, Any]) -> None:
        raise DriverError("a search for leaks records nothing")
