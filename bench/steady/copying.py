"""More clusters out of those that controllers have made: the same objects under other names.

What differs between two clusters of one shape is put in anew: names, uids, ids, addresses, what follows from them
(names of templates, tunnel tokens, checksums of plans) and the signatures over them (tokens of accounts). Certificates
are those of the pattern, and digests of what was applied last are wrong: controllers notice, and apply it once more.
Whether a copy is as it should be is theirs to say: one that is not as they want it does not come to rest.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench.report import Broken
from bench.steady.signs import Signs, put
from bench.steady.world import DATA, Host, Known, Workload, address, name, read, read_servers, write
from remuda.access.system_users import system_user
from remuda.agent import rules
from remuda.apiserver.auth import pki
from remuda.apiserver.auth.jws import Signer
from remuda.apiserver.auth.tokens import Ref, legacy_token
from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.apiserver.storage.types import Revision, StoreEntry
from remuda.kube.objects import Key
from remuda.lab.simulator.declared import NAMESPACE
from remuda.providers.controlplane.planner.observation import ClusterFacts, Tokens
from remuda.providers.controlplane.render import tunnel as tunnel_tokens
from remuda.providers.controlplane.render.consequence import stamps
from remuda.providers.controlplane.render.plan import read as read_plan
from remuda.providers.shared import distros, names
from remuda.providers.shared.drivers.simcloud import SimServer
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE, RKEControlPlane
from remuda.provisioning import machine_templates

Json = dict[str, Any]

_TEMPLATES, _MANAGED = "simmachinetemplates.rke-machine.cattle.io", "clusters.management.cattle.io"
_PLANES = "rkecontrolplanes.rke.cattle.io"
_MACHINES, _ACCOUNTS = "machines.cluster.x-k8s.io", "serviceaccounts"
_ACCOUNT_TOKEN, _PLAN = "kubernetes.io/service-account-token", "rke.cattle.io/machine-plan"


class Copy(NamedTuple):
    objects: list[tuple[str, str, Json]]  # table, namespace, object
    servers: list[SimServer]
    workload: Workload
    hosts: list[Host]


class Pattern:
    """A cluster that is copied."""

    def __init__(
        self, known: Workload, hosts: Sequence[Host], found: Sequence[StoreEntry], servers: Sequence[SimServer]
    ):
        self._known, self._hosts, self._servers = known, hosts, servers
        self._objects = {(entry.table, entry.name): msgspec.json.decode(entry.value, type=Json) for entry in found}
        [self._id] = [name for table, name in self._objects if table == _MANAGED]
        self._key = base64.b64decode(self._objects["secrets", f"{known.name}-rke-state"]["data"]["tunnelKey"])
        [plane] = [entry.value for entry in found if entry.table == _PLANES]
        self._subject = _subject(RKE_CONTROL_PLANE.decode(plane))
        for one in self._objects.values():
            if one.get("type") == _PLAN:
                plan = base64.b64decode(one["data"]["plan"])
                if self._stamped(plan) != plan:
                    raise Broken(f"stamps of {one['metadata']['name']} follow from something that is not known here")
        signs = Signs(self._signs(known.name, self._id, lambda uid: uid, 0))
        self._entries = [(entry, signs.find(entry.value.decode())) for entry in found]
        self._outside = signs.find(msgspec.json.encode((servers, known.nodes, hosts)).decode())

    def copy(self, number: int, further: int, signer: Signer) -> Copy:
        """`further`: how far the numbers of its servers are from those of this one's."""
        id, place = f"c-m-{number:08d}", address(number)
        signs = self._signs(name(number), id, lambda uid: str(uuid.uuid4()), further)
        objects = [
            (entry.table, signs.get(entry.namespace, entry.namespace), msgspec.json.decode(put(parts, signs)))
            for entry, parts in self._entries
        ]
        tokens = self._signed(objects, signer)
        servers, nodes, hosts = msgspec.json.decode(
            put(self._outside, signs), type=tuple[list[SimServer], list[Json], list[Host]]
        )
        return Copy(
            objects,
            [msgspec.structs.replace(server, number=server.number + further) for server in servers],
            Workload(name(number), place, self._known.certificate, self._known.key, nodes),
            [msgspec.structs.replace(host, token=tokens[host.secret], address=place) for host in hosts],
        )

    def _signs(self, cluster: str, id: str, uid: Callable[[str], str], further: int) -> dict[str, str]:
        """This cluster's, each with that of the other."""
        here = self._known.name
        uids = {old: uid(old) for old in (one["metadata"]["uid"] for one in self._objects.values())}
        signs = {here: cluster, self._id: id, **uids}
        signs[system_user(Key(NAMESPACE, here))] = system_user(Key(NAMESPACE, cluster))
        for server in self._servers:
            signs[server.address] = str(ipaddress.ip_address(server.address) + further)
        for (table, called), one in self._objects.items():
            if table == _TEMPLATES:
                deployment, _, digest = called.rpartition("-")
                options = one["spec"]["template"]["spec"]
                if machine_templates.digest(deployment, options) != digest:
                    raise Broken(f"the name of template {called} follows from something that is not known here")
                signs[digest] = machine_templates.digest(deployment.replace(here, cluster), options)
            if table == _MACHINES:
                old = one["metadata"]["uid"]
                signs[self._mac(self._id, called, old)] = self._mac(id, called.replace(here, cluster), uids[old])
                host = one["metadata"]["labels"][names.MACHINE_ID]
                signs[host] = f"{int(host, 16) + further:0{len(host)}x}"
        return signs

    def _mac(self, id: str, machine: str, uid: str) -> str:
        shown = tunnel_tokens.parse(tunnel_tokens.token(self._key, id, machine, uid))
        assert shown is not None
        return shown.mac

    def _signed(self, objects: Sequence[tuple[str, str, Json]], signer: Signer) -> dict[str, str]:
        """Checksums and tokens over what is new. Tokens are returned, by the Secret with the plan they open."""
        accounts = {one["metadata"]["name"]: one["metadata"]["uid"] for table, _, one in objects if table == _ACCOUNTS}
        tokens = {}
        for _, namespace, one in objects:
            data = one.get("data")
            if one.get("type") == _ACCOUNT_TOKEN:
                account = one["metadata"]["annotations"]["kubernetes.io/service-account.name"]
                tokens[account] = legacy_token(
                    signer, namespace, Ref(account, accounts[account]), one["metadata"]["name"]
                )
                data["token"] = _encoded(tokens[account].encode())
            if one.get("type") == _PLAN:
                plan = self._stamped(base64.b64decode(data["plan"]))
                data |= {"plan": _encoded(plan), "applied-checksum": _encoded(rules.checksum(plan).encode())}
        return tokens

    def _stamped(self, plan: bytes) -> bytes:
        """Without the right stamps it would be one that restarts its host."""
        found = read_plan(plan)
        for stamp, value in stamps(self._subject, found.files).items():
            plan = plan.replace(found.environment()[stamp].encode(), value.encode())
        return plan


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _subject(plane: RKEControlPlane) -> ClusterFacts:
    """As much of it as stamps are made from."""
    version = distros.parse_version(plane.spec.kubernetes_version)
    return ClusterFacts(
        name="",
        namespace="",
        uid="",
        created=0.0,
        spec=plane.spec,
        distro=distros.of(version),
        version=version,
        renderer=plane.status.renderer.version,
        installer=plane.status.installer,
        tokens=Tokens("", ""),
        authorities={},
        config_generation=plane.status.config_generation,
    )


async def multiply(folder: Path, count: int) -> None:
    """The fleet in the folder becomes one of so many clusters."""
    known, servers = read(folder), read_servers(folder)
    signer = Signer(pki.prepare(folder / DATA).token_key)
    store = await SqliteStore.open(folder / DATA)
    try:
        patterns = _patterns(known, servers, [entry async for entry in store.scan_all()])
        clusters, hosts, copied = list(known.clusters), list(known.hosts), list(servers)
        for number in range(len(patterns), count):
            turn, which = divmod(number, len(patterns))
            copy = patterns[which].copy(number, turn * len(servers), signer)
            await asyncio.gather(*(_create(store, *one) for one in copy.objects))
            clusters.append(copy.workload)
            hosts += copy.hosts
            copied += copy.servers
    finally:
        await store.close()
    write(folder, Known(known.url, clusters, hosts), copied)


def _patterns(known: Known, servers: Sequence[SimServer], entries: Sequence[StoreEntry]) -> list[Pattern]:
    """Each with the objects that name it, and nobody else."""
    signs = {cluster.name: cluster.name for cluster in known.clusters}
    signs |= {system_user(Key(NAMESPACE, cluster.name)): cluster.name for cluster in known.clusters}
    for entry in entries:
        if entry.table == _MANAGED:
            signs[entry.name] = msgspec.json.decode(entry.value)["spec"]["displayName"]
    anything = re.compile("|".join(map(re.escape, signs)))
    found: defaultdict[str, list[StoreEntry]] = defaultdict(list)
    for entry in entries:
        whose = {signs[sign] for sign in anything.findall(f"{entry.namespace}/{entry.name} {entry.value.decode()}")}
        if len(whose) > 1:
            raise Broken(f"{entry} is of {len(whose)} clusters: it cannot be copied with one of them")
        for cluster in whose:
            found[cluster].append(entry)
    return [
        Pattern(
            cluster,
            [host for host in known.hosts if host.address == cluster.address],
            found[cluster.name],
            [server for server in servers if server.name.startswith(f"{cluster.name}-")],
        )
        for cluster in known.clusters
    ]


async def _create(store: SqliteStore, table: str, namespace: str, obj: Json) -> None:
    def encode(revision: Revision) -> bytes:
        obj["metadata"]["resourceVersion"] = str(revision)
        return msgspec.json.encode(obj)

    await store.put(table, namespace, obj["metadata"]["name"], encode, expect=None)
