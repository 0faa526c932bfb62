"""Implementation of `nano server`: assembles a server, and runs it until it is stopped or removed from the cluster.

The first server starts a cluster and has its data. Every other one joins through the configured server, reports to the
leader, and forwards requests to it. At later starts, a server reads from its disk which of the two it is.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import logging
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any

from remuda.apiserver.http.listener import Listener
from remuda.kube import kubeconfig
from remuda.kube.http import HttpClient
from remuda.kube.http.tls import client_context
from remuda.kube.kubeconfig import ClientConfig
from remuda.kube.web import Handler
from remuda.lab.nano import (
    arguments,
    authorities,
    credentials,
    facts,
    join,
    membership_client,
    ports,
    service,
    serving_certificates,
)
from remuda.lab.nano.configuration import Configuration, FatalError, check_cloud_settings
from remuda.lab.nano.facts import NodeDescription
from remuda.lab.nano.follower import REMOVED, Follower
from remuda.lab.nano.forwarder import Forwarder
from remuda.lab.nano.handover import HandoverReceiver
from remuda.lab.nano.host import NanoHost
from remuda.lab.nano.identity import TlsIdentity
from remuda.lab.nano.kubelet import ApiAccess, Kubelet
from remuda.lab.nano.layout import NanoLayout
from remuda.lab.nano.leader import Leader
from remuda.lab.nano.manifests import Manifests
from remuda.lab.nano.members import MemberList, shown
from remuda.lab.nano.membership_client import ClusterMember, Heartbeat
from remuda.lab.nano.ports import Ports
from remuda.lab.nano.request_router import RequestRouter
from remuda.lab.nano.service import until
from remuda.lab.nano.supervisor import Supervisor, SupervisorCredentials
from remuda.lab.nano.supervisor_client import Caller, NoAnswer, UnexpectedAnswer
from remuda.lab.nano.tokens import NODE, SERVER, JoinToken

log = logging.getLogger(__name__)

_GRACE_SECONDS = 5.0


class NanoServer:
    def __init__(self, configuration: Configuration, host: NanoHost, version: str) -> None:
        """Read the configuration. Raise FatalError."""
        self.configuration = configuration
        self.host = host
        self.version = version
        self.facts: NodeDescription = facts.gather(configuration, host, version)
        self.layout = NanoLayout(host.path(configuration.data_dir), configuration.flavour)
        flavour = configuration.flavour
        self.port = _port(configuration)  # API port
        self.peer_port = flavour.peer_port if flavour.static_pods else self.port
        self.supervisor_port = flavour.supervisor_port if flavour.static_pods else self.port
        self.intervals = membership_client.intervals(configuration)
        self._closing = AsyncExitStack()
        self._work: list[Coroutine[Any, Any, None]] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Run the server. Raise FatalError: at the start for an invalid configuration, later when it was removed from
        the cluster.
        """
        _check(self.configuration)
        check_cloud_settings(self.configuration)
        self.layout.make(server=True)
        if self.layout.tombstone.exists():
            raise FatalError(REMOVED.format(self.layout.db))
        async with self._closing:
            await self._start()
            await until(stop, self._work)

    # -- the start -----------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        own = self._report()
        members = membership_client.load(self.layout.cluster)
        passwords = credentials.of_server(self.configuration, self.host, self.layout)
        if members is None:
            members = await self._enter(own, passwords)
        identity = await asyncio.to_thread(self._prepare_keys)
        credentials.write(self.layout, passwords, identity.server_ca_pem)
        caller = Caller(client_context(ca_pem=identity.server_ca_pem), JoinToken(passwords.server), SERVER)
        self._closing.push_async_callback(caller.close)
        place = await self._take_place(members, own, identity, passwords, caller)
        await self._open_kubelet()
        await self._open_ports(place, identity)
        self._write_kubeconfig(identity)
        self._work.append(self._be_a_node(own, lambda: place.standing().apiservers, identity, passwords))

    async def _take_place(
        self,
        members: MemberList,
        own: Heartbeat,
        identity: TlsIdentity,
        passwords: SupervisorCredentials,
        caller: Caller,
    ) -> ClusterMember:
        """Serve the cluster's API: with the data, or through the server that has it."""
        if members.leader == own.member and own.member:
            # Only one server of a cluster loads the engine.
            from remuda.lab.nano.leader_services import LeaderServices

            leader = Leader(self.layout, members, own, self.intervals)
            services = LeaderServices(self, leader, identity, passwords, caller)
            await services.start(self._closing)
            self._work += services.work()
            return leader
        return await self._follow(members, own, identity, passwords, caller)

    async def _enter(self, own: Heartbeat, passwords: SupervisorCredentials) -> MemberList:
        """Start a cluster, or join one."""
        server = self.configuration.text("server").rstrip("/")
        if not server:
            if not own.member:  # RKE2 then starts a cluster on the server's own database
                raise FatalError("invalid flag use; --server is required with --disable-etcd")
            authorities.prepare(self.layout)
            members = MemberList(leader=own.member, members=(own.as_member(),))
            membership_client.save(self.layout.cluster, members)
            return members
        if not server.startswith("https://"):
            raise FatalError(f"--server {server}: must be an https URL")
        token = credentials.configured(self.configuration, self.host, "token")
        if token is None:
            raise FatalError("--token is required to join a cluster")
        return await join.join_as_server(server, token, self.layout, own, self.common())

    def _prepare_keys(self) -> TlsIdentity:
        found = authorities.prepare(self.layout)
        made = serving_certificates.ensure(
            serving_certificates.of_server(self.layout, found, self.names()), datetime.datetime.now(datetime.UTC)
        )
        if made:
            log.info("certificates made: %s", ", ".join(path.name for path in made))
        return TlsIdentity(self.layout, found)

    async def _follow(
        self,
        members: MemberList,
        own: Heartbeat,
        identity: TlsIdentity,
        passwords: SupervisorCredentials,
        caller: Caller,
    ) -> Follower:
        follower = Follower(self.layout, members, own, self.intervals, caller)
        forwarder = Forwarder(identity, lambda: follower.leader_url)
        self._closing.push_async_callback(forwarder.close)
        supervisor = Supervisor(self.layout.flavour, follower, identity.server_ca_pem, passwords, forwarder.handle)
        if own.member:
            inheriting = HandoverReceiver(follower, self.layout, caller)
            supervisor.take_over = inheriting.take_over
            self._work.append(inheriting.run())
        gate = RequestRouter(identity, follower, supervisor, self.version)
        gate.open = True
        await self.listen(self.peer_port, gate.before(forwarder.handle), identity)
        if own.api and self.port != self.peer_port:
            await self.listen(self.port, gate.api_alone(forwarder.handle), identity)
        await follower.report()
        self._work.append(follower.run())
        return follower

    async def listen(self, port: int, handler: Handler, identity: TlsIdentity) -> None:
        """Listen on the ports. Raise FatalError."""
        listener = Listener(handler)
        try:
            await listener.start(self.address, port, identity.server_context())
        except OSError as error:
            raise FatalError(f"cannot listen on {self.address}:{port}: {error.strerror}") from None
        self._closing.push_async_callback(listener.stop, _GRACE_SECONDS)

    def _ports(self) -> Ports:
        opened = Ports()
        self._closing.push_async_callback(opened.close)
        return opened

    async def _open_kubelet(self) -> None:
        await ports.open_kubelet(self._ports(), self.host, lambda: True)

    async def _open_ports(self, place: ClusterMember, identity: TlsIdentity) -> None:
        opened = self._ports()
        if self.facts.etcd:
            await ports.open_etcd(opened, self.host, self.layout, place, identity.authorities.pem("etcd/server-ca"))
        for name, off in (
            ("kube-controller-manager", "disable-controller-manager"),
            ("kube-scheduler", "disable-scheduler"),
        ):
            if not place.own.api or self.configuration.flag(off):
                continue
            if ports.is_probed(self.configuration, name):
                await ports.open_component(opened, name, self.configuration, self.host, self.layout, self.names())
            else:
                self._work.append(
                    ports.kill_again_and_again(name, self.configuration, self.host, self.layout, self.names())
                )

    # -- the node on this server ---------------------------------------------------------------------------------

    async def _be_a_node(
        self,
        own: Heartbeat,
        apiservers: Callable[[], Sequence[str]],
        identity: TlsIdentity,
        passwords: SupervisorCredentials,
    ) -> None:
        if not own.api and not self.layout.flavour.static_pods:
            service.ready()  # a server with only etcd is up before there is an API for its Node
        if self.configuration.flag("disable-agent"):
            service.ready()
            print(f"{self.layout.flavour.name} {self.version} is up: no node at {self.url}", flush=True)
            await (self._deploy(identity) if own.api else asyncio.Event().wait())
            return
        await self._certify(identity, passwords)

        def access() -> ApiAccess:
            return ApiAccess(
                lambda: [self.url] if own.api else apiservers(),
                identity.server_ca_pem,
                self.layout.agent / "client-kubelet.crt",
                self.layout.agent / "client-kubelet.key",
            )

        kubelet = Kubelet(self.facts, access)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kubelet.run())
            await kubelet.registered.wait()
            service.ready()
            print(f"{self.layout.flavour.name} {self.version} is up: node {self.facts.name} at {self.url}", flush=True)
            if own.api:
                await self._deploy(identity)

    async def _certify(self, identity: TlsIdentity, passwords: SupervisorCredentials) -> None:
        """Get the node's certificates from this server, or through it."""
        caller = Caller(client_context(ca_pem=identity.server_ca_pem), JoinToken(passwords.agent), NODE)
        password = facts.node_password(self.host)
        try:
            while True:
                try:
                    await join.node_certificates(caller, self.supervisor_url, self.facts, self.layout, password)
                    return
                except (UnexpectedAnswer, NoAnswer) as error:
                    log.warning("cannot get certificates for the node of this server yet: %s", error)
                await asyncio.sleep(join.AGAIN_SECONDS)
        finally:
            await caller.close()

    async def _deploy(self, identity: TlsIdentity) -> None:
        client = HttpClient(self._admin(identity), field_manager="deploy@" + self.facts.name)
        try:
            disabled = self.configuration.split("disable")
            await Manifests(self.layout.manifests, client, disabled, "deploy@" + self.facts.name).run()
        finally:
            await client.close()

    def _admin(self, identity: TlsIdentity) -> ClientConfig:
        tls = self.layout.tls
        return ClientConfig(
            server=self.url,
            origin="server/tls",
            ca=identity.server_ca_pem,
            client_certificate=tls / "client-admin.crt",
            client_key=tls / "client-admin.key",
        )

    # -- names ---------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return self.host.address or self.configuration.text("bind-address") or self.host.everywhere

    @property
    def url(self) -> str:
        """Return the URL at which this host reaches the server."""
        return f"https://{shown(self.host.loopback)}:{self.port}"

    @property
    def supervisor_url(self) -> str:
        return f"https://{shown(self.host.loopback)}:{self.supervisor_port}"

    def names(self) -> list[str]:
        domain = self.configuration.text("cluster-domain", "cluster.local")
        service = next(iter(self.configuration.split("service-cidr")), "10.43.0.0/16")
        named = [
            "localhost",
            "127.0.0.1",
            "::1",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            f"kubernetes.default.svc.{domain}",
            str(ipaddress.ip_network(service, strict=False)[1]),
            socket.gethostname().lower(),
            self.facts.name,
            self.host.loopback,
            *self.facts.addresses,
            *self.facts.external_addresses,
            *self.configuration.split("tls-san"),
            *self.configuration.split("advertise-address"),
        ]
        return list(dict.fromkeys(named))

    def common(self) -> dict[str, tuple[str, ...]]:
        """Return the settings that must be the same on all servers."""
        return {key: tuple(self.configuration.items(key)) for key in arguments.COMMON}

    def _report(self) -> Heartbeat:
        keeps_data = self.facts.etcd or self._begins_without_etcd()
        member = join.member_name(self.layout, self.facts.name) if keeps_data else ""
        address = self.configuration.text("advertise-address") or self.facts.address
        return Heartbeat(
            node=self.facts.name,
            address=address,
            port=self.peer_port,
            api_port=self.port,
            member=member,
            api=self.facts.control_plane,
            version=self.version,
        )

    def _begins_without_etcd(self) -> bool:
        """Return whether this server started a cluster without etcd, on its own database."""
        if self.layout.cluster.exists():
            return self.layout.flavour.begins_without_etcd and self.layout.member_name.exists()
        return self.layout.flavour.begins_without_etcd and not self.configuration.text("server")

    def _write_kubeconfig(self, identity: TlsIdentity) -> None:
        tls = self.layout.tls
        config = kubeconfig.build(
            self.url,
            ca_pem=identity.server_ca_pem,
            client_certificate_pem=(tls / "client-admin.crt").read_bytes(),
            client_key_pem=(tls / "client-admin.key").read_bytes(),
            name=self.configuration.text("write-kubeconfig-name", "default"),
            user="default",
        )
        path = self.host.path(self.configuration.text("write-kubeconfig") or self.layout.flavour.kubeconfig)
        path.parent.mkdir(parents=True, exist_ok=True)
        kubeconfig.write(path, config)
        if mode := self.configuration.text("write-kubeconfig-mode"):
            path.chmod(int(mode, 8))


def _port(configuration: Configuration) -> int:
    text = configuration.text("https-listen-port", "6443")
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise FatalError(f"https-listen-port: {text} is not a port")
    return int(text)


def _check(configuration: Configuration) -> None:
    for key in ("cluster-reset", "cluster-reset-restore-path", "datastore-endpoint"):
        if configuration.text(key) and configuration.text(key) != "false":
            raise FatalError(f"--{key}: nano supports neither snapshots nor other datastores")
    try:
        for key in ("service-cidr", "cluster-cidr"):
            for network in configuration.split(key):
                ipaddress.ip_network(network, strict=False)
    except ValueError as error:
        raise FatalError(f"{key}: {error}") from None
