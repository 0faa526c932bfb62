"""Cluster infrastructure of `process`: a balancer before the control plane, a process with an address of its own.

It has a directory among those of the hosts, so that no address is assigned twice. Like hosts it needs no root, and
after a restart of this machine nothing starts it again until the cluster's order changes or a user asks for it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Annotated, ClassVar

from remuda.kube.objects import Field
from remuda.providers.shared.drivers import proc
from remuda.providers.shared.drivers.balancer_process import Balancing
from remuda.providers.shared.drivers.process.host import NETWORK, Details, Hosts, ProcessHost, check_address, do
from remuda.providers.shared.drivers.spi import (
    TAG_OWNER,
    TAG_UID,
    BadOptions,
    ClusterDriver,
    ClusterEndpoint,
    ClusterInfrastructure,
    ClusterOrder,
    Needs,
    Options,
)
from remuda.runtime.steps import step

CLAIM = step("processcluster.claim-name", "the `process` driver creates the directory of a cluster's load balancer")
DELETE = step(
    "processcluster.delete-directory", "the `process` driver deletes the directory of a cluster's load balancer"
)

_LABEL = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class ProcessClusterOptions(Options):
    address: Annotated[
        str, Field("The address of the load balancer, from 127.0.0.0/8. If empty, a free address of 127.64.0.0/10.")
    ] = ""


class ProcessCluster(ClusterDriver[ProcessClusterOptions]):
    options_type: ClassVar[type[ProcessClusterOptions]] = ProcessClusterOptions
    local: ClassVar[bool] = True
    needs: ClassVar[Needs] = Needs(host_files=True)

    async def check(self, order: ClusterOrder) -> None:
        if not proc.available():
            raise BadOptions(
                f"process hosts need Linux: {sys.platform} has no /proc, which is needed to tell hosts apart"
            )
        self._host(order)
        if self.options.address:
            check_address(self.options.address)

    async def ensure(self, order: ClusterOrder) -> ClusterInfrastructure:
        await self.check(order)
        wanted = Details(
            name=order.name, hostname=order.name, address=self.options.address, tags=order.tags, balancer=True
        )
        async with CLAIM:
            details = await do(self._hosts.claim, wanted, NETWORK)
        await Balancing(self._host(order).root).ensure(details.address, order.ports, order.backends)
        self.context.say(
            f"the load balancer listens at {details.address}; backends: {', '.join(order.backends) or 'none yet'}"
        )
        return _infrastructure(details, order.ports[0])

    async def remove(self, order: ClusterOrder) -> None:
        host = self._host(order)
        details = await do(host.details)
        if details is not None and details.tags.get(TAG_UID) != order.uid:
            return
        await Balancing(host.root).stop()
        async with DELETE:
            await do(self._hosts.delete, host)

    async def owned(self, owner: str) -> Sequence[ClusterInfrastructure]:
        found = await do(self._details)
        return [_infrastructure(details) for details in found if details.balancer and details.tags[TAG_OWNER] == owner]

    def _details(self) -> list[Details]:
        return [details for host in self._hosts.all() if (details := host.details()) is not None]

    @property
    def _hosts(self) -> Hosts:
        return Hosts(self.context.directory / "process")

    def _host(self, order: ClusterOrder) -> ProcessHost:
        if not _LABEL.fullmatch(order.name):
            raise BadOptions(f"{order.name!r} is not a valid name for a load balancer")
        return self._hosts.host(order.name)


def _infrastructure(details: Details, port: int = 0) -> ClusterInfrastructure:
    return ClusterInfrastructure(
        id=details.name,
        name=details.name,
        endpoint=ClusterEndpoint(details.address, port) if port else None,
        tags=details.tags,
    )
