"""The controllers of access as a process that can be killed: python -m tests.lab.access_manager KUBECONFIG NAMESPACE

Every cluster of that namespace is reached by the same kubeconfig.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from remuda.access import roles, setup, users
from remuda.access.clusters import Clusters
from remuda.kube import kubeconfig
from remuda.kube.client import Client
from remuda.kube.http import HttpClient
from remuda.kube.objects import Key
from remuda.providers.shared.manager_address import Site
from remuda.runtime.manager import Manager
from remuda.runtime.remote import RemoteClusters

SITE = Site(server_url="https://ranch.example:6443", ca_pem=b"-- the ranch's --\n")


async def main(path: Path, namespace: str) -> None:
    users.EXPIRED_SECONDS = 0.5
    access = kubeconfig.load(path)

    async def dial(cluster: Key) -> Client:
        return HttpClient(access)

    client = HttpClient(access)
    await setup.allow_own_tokens(client)
    await roles.install(client)
    manager = Manager(client, name="test", interval=0.02)
    remote = RemoteClusters(dial)
    manager.at_end(remote.close)
    clusters = Clusters(manager.caches)
    setup.add(manager, remote, clusters, SITE)
    manager.at_lead(lambda: remote.want(Key(namespace, "c")))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await manager.run(stop)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
