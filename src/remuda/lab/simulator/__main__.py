"""The simulated provider as a separate process, beside any core on any Kubernetes.

    python -m remuda.lab.simulator --kubeconfig FILE --cloud DIR

Servers and workload clusters live in DIR; the process may be killed and started again, or moved to another management
cluster, and finds them as they were.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
from pathlib import Path

import remuda
from remuda.capi import inventory
from remuda.kube import kubeconfig
from remuda.kube.http import HttpClient
from remuda.lab.simulator.file_cloud import FileCloud
from remuda.lab.simulator.kinds import definitions
from remuda.lab.simulator.served import ServedWorkloads
from remuda.lab.simulator.setup import add_providers
from remuda.runtime.definitions import install
from remuda.runtime.log_format import ContextFilter, TextFormatter
from remuda.runtime.manager import Manager

PROVIDER = inventory.ProviderEntry("InfrastructureProvider", "simulator", f"v{remuda.__version__}")


async def serve(config: Path, cloud_directory: Path, namespace: str, stop: asyncio.Event) -> None:
    cloud = FileCloud(cloud_directory)
    workloads = ServedWorkloads(cloud_directory / "workloads")
    client = HttpClient(kubeconfig.load(config))
    try:
        await install(client, definitions())
        await inventory.install(client, PROVIDER)
        manager = Manager(client, namespace=namespace, name="simulator")
        add_providers(manager, cloud, workloads)
        print(f"the simulated provider is ready, pid {os.getpid()}", flush=True)
        await manager.run(stop)
    finally:
        await workloads.close()
        await client.close()
        cloud.close()


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m remuda.lab.simulator", description="Runs the simulated provider.")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="kubeconfig of the management cluster")
    parser.add_argument("--cloud", type=Path, required=True, help="directory with the servers and workloads")
    parser.add_argument("--namespace", default="", help="reconcile this namespace only")
    parser.add_argument("--verbose", action="store_true", help="log more")
    options = parser.parse_args()
    lines = logging.StreamHandler()
    lines.setFormatter(TextFormatter())
    lines.addFilter(ContextFilter())
    logging.basicConfig(level=logging.INFO if options.verbose else logging.WARNING, handlers=[lines])
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(options.kubeconfig, options.cloud, options.namespace, stop)


if __name__ == "__main__":
    asyncio.run(main())
