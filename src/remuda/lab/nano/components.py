"""The components of a server whose static Pods outlive it: etcd, API server, controller manager and scheduler.

They begin and join nothing: the program has done that, and has left keys, members and their manifest on disk. Servers
reach each other by etcd's peer port, so a stopped program takes no member from etcd. When etcd removes this member, the
ports close and the process stays, as other Pods than etcd's would: a script or the next start ends it.
"""

from __future__ import annotations

import asyncio
import logging

from remuda.kube.http.tls import client_context
from remuda.lab.nano import component_process, credentials, etcd_user, membership_client
from remuda.lab.nano.authorities import Authorities
from remuda.lab.nano.configuration import FatalError
from remuda.lab.nano.identity import Identity
from remuda.lab.nano.server import Server
from remuda.lab.nano.supervisor_client import Caller
from remuda.lab.nano.tokens import SERVER, Token

log = logging.getLogger(__name__)


class Components(Server):
    async def run(self, stop: asyncio.Event) -> None:
        """Raises FatalError."""
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
        identity = Identity(self.layout, Authorities(self.layout))
        caller = Caller(client_context(ca_pem=identity.server_ca_pem), Token(passwords.server), SERVER)
        self._closing.push_async_callback(caller.close)
        place = await self._take_place(members, own, identity, passwords, caller)
        await self._open_ports(place, identity)
