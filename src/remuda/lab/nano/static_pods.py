"""`rke2 server`: a server whose components are in a process of their own, which outlives it as static Pods do.

`StaticPodServer` is the supervisor and the node. When it stops, the components go on. When it starts, it serves
supervisor and kubelet first. A moment later it replaces the components, if anything they run with has changed. It
notifies systemd last: when they are healthy and the node is registered.

`Components` is the other process: etcd, API server, controller manager and scheduler. They begin and join nothing: the
program has done that, and has left keys, members and their manifest on disk. Servers reach each other by etcd's peer
port, so a stopped program takes no member from etcd. When etcd removes this member, the ports close and the process
stays, as other Pods than etcd's would: a script or the next start ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from remuda.kube.errors import StatusError
from remuda.kube.http import HttpClient
from remuda.kube.http.tls import client_context
from remuda.kube.web import Request, Result, text
from remuda.lab.nano import component_process, credentials, etcd_user, membership_client, ports
from remuda.lab.nano.authorities import Authorities
from remuda.lab.nano.component_process import ComponentProcess, manifest_of
from remuda.lab.nano.configuration import FatalError
from remuda.lab.nano.follower import REMOVED
from remuda.lab.nano.forwarder import Forwarder
from remuda.lab.nano.identity import TlsIdentity
from remuda.lab.nano.members import shown
from remuda.lab.nano.membership_client import Heartbeat
from remuda.lab.nano.server import NanoServer
from remuda.lab.nano.service import until
from remuda.lab.nano.supervisor import Supervisor, SupervisorCredentials
from remuda.lab.nano.supervisor_client import Caller, NoAnswer, UnexpectedAnswer
from remuda.lab.nano.tokens import SERVER, JoinToken

log = logging.getLogger(__name__)

SYNC_SECONDS = 2.0  # until the kubelet notices that the static Pods have changed
_LOOK_SECONDS = 0.5
_LEARN_SECONDS = 5.0
_BACK_OFF_SECONDS = 2.0


class StaticPodServer(NanoServer):
    async def _start(self) -> None:
        account = etcd_user.find(self.host) if etcd_user.required(self.configuration) else None
        own = self._report()
        passwords = credentials.of_server(self.configuration, self.host, self.layout)
        if membership_client.load(self.layout.cluster) is None:
            await self._enter(own, passwords)
        identity = await asyncio.to_thread(self._prepare_keys)
        if account is not None:
            etcd_user.give_authorities(self.layout, account)
        credentials.write(self.layout, passwords, identity.server_ca_pem)
        await self._supervise(identity, passwords)
        await self._open_kubelet()
        self._write_kubeconfig(identity)
        manifest = manifest_of(self.configuration, self.layout, self.version)
        self._work.append(self._run_pods(ComponentProcess(self.host, self.layout, manifest), own, identity, passwords))

    async def _supervise(self, identity: TlsIdentity, passwords: SupervisorCredentials) -> None:
        components = f"https://{shown(self.host.loopback)}:{self.peer_port}"
        forwarder = Forwarder(identity, lambda: components, same_host=True)
        self._closing.push_async_callback(forwarder.close)
        supervisor = Supervisor(self.layout.flavour, None, identity.server_ca_pem, passwords, forwarder.handle)

        def handle(request: Request) -> Result | Awaitable[Result]:
            if supervisor.answers(request.path):
                return supervisor.handle(request, passed_on=False)
            return text(404, "404 page not found\n")

        await self.listen(self.supervisor_port, handle, identity)

    # -- static Pods ---------------------------------------------------------------------------------------------

    async def _run_pods(
        self, process: ComponentProcess, own: Heartbeat, identity: TlsIdentity, passwords: SupervisorCredentials
    ) -> None:
        await asyncio.sleep(SYNC_SECONDS)
        if not process.is_current():
            log.warning("replacing static Pods")
            await process.replace()
        apiservers: list[str] = []
        work = [self._keep_running(process), self._register(own, apiservers, identity, passwords)]
        if not own.api:
            work.append(self._learn(identity, passwords, apiservers))
        await until(asyncio.Event(), work)

    async def _register(
        self, own: Heartbeat, apiservers: list[str], identity: TlsIdentity, passwords: SupervisorCredentials
    ) -> None:
        await self._wait_for_health(own, identity)
        await self._be_a_node(own, lambda: apiservers, identity, passwords)

    async def _keep_running(self, process: ComponentProcess) -> None:
        """Start the components again whenever they have ended, as a kubelet does. Raises FatalError once this server
        was removed from the cluster."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if self.layout.tombstone.exists():
                raise FatalError(REMOVED.format(self.layout.db))
            if process.lives():
                continue
            log.warning("static Pods have ended; restarting them")
            await asyncio.sleep(_BACK_OFF_SECONDS)
            process.start()

    async def _wait_for_health(self, own: Heartbeat, identity: TlsIdentity) -> None:
        said = ""
        while True:
            try:
                await (self._ask_api(identity) if own.api else self._ask_etcd(identity))
                return
            except (StatusError, NoAnswer, UnexpectedAnswer) as error:
                if str(error) != said:
                    said = str(error)
                    log.warning("waiting for static Pods: %s", said)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _ask_api(self, identity: TlsIdentity) -> None:
        """Check the API. Raise StatusError."""
        client = HttpClient(self._admin(identity), field_manager=self.layout.flavour.name)
        try:
            await client.raw_get("/readyz")
        finally:
            await client.close()

    async def _ask_etcd(self, identity: TlsIdentity) -> None:
        """Check etcd. Raise NoAnswer, UnexpectedAnswer."""
        caller = Caller(client_context(ca_pem=identity.server_ca_pem))
        try:
            await caller.ask("GET", f"http://{shown(self.host.loopback)}:{ports.ETCD_METRICS}/health")
        finally:
            await caller.close()

    async def _learn(self, identity: TlsIdentity, passwords: SupervisorCredentials, apiservers: list[str]) -> None:
        """Keep the list of API servers up to date, for a server that has none."""
        caller = Caller(client_context(ca_pem=identity.server_ca_pem), JoinToken(passwords.server), SERVER)
        url = f"{self.supervisor_url}{self.layout.flavour.prefix}/apiservers"
        try:
            while True:
                try:
                    apiservers[:] = [f"https://{address}" for address in await caller.ask_json("GET", url)]
                except (NoAnswer, UnexpectedAnswer) as error:
                    log.info("%s", error)
                await asyncio.sleep(_LEARN_SECONDS if apiservers else _LOOK_SECONDS)
        finally:
            await caller.close()


class Components(NanoServer):
    async def run(self, stop: asyncio.Event) -> None:
        """Run the components. Raise FatalError."""
        try:
            await super().run(stop)
        except FatalError as refused:
            if not self.layout.tombstone.exists():
                raise
            log.warning("%s", refused)
            component_process.outdate(self.layout)
            await stop.wait()

    async def _start(self) -> None:
        members = membership_client.load(self.layout.cluster)
        if members is None:
            raise FatalError(f"{self.layout.cluster} is missing: this host belongs to no cluster")
        if self.facts.etcd and etcd_user.required(self.configuration):
            etcd_user.check_authorities(self.layout, etcd_user.find(self.host))
        own = self._report()
        passwords = credentials.of_server(self.configuration, self.host, self.layout)
        identity = TlsIdentity(self.layout, Authorities(self.layout))
        caller = Caller(client_context(ca_pem=identity.server_ca_pem), JoinToken(passwords.server), SERVER)
        self._closing.push_async_callback(caller.close)
        place = await self._take_place(members, own, identity, passwords, caller)
        await self._open_ports(place, identity)
