"""Workload clusters by name: the endpoint, start and credentials of their APIs.

Providers use only this interface, so the same providers run on models in memory or on real API servers
(`simulator.served`). The control plane's etcd is always the model, which judges how members are treated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from remuda.capi.types.cluster import Endpoint
from remuda.kube import kubeconfig
from remuda.kube.client import Client
from remuda.kube.errors import Unreachable
from remuda.kube.objects import Key
from remuda.lab.simulator.etcd import Etcd
from remuda.lab.simulator.workload import ModelWorkload


class Workloads(Protocol):
    async def endpoint(self, cluster: Key) -> Endpoint:
        """Return the endpoint at which the API is or will be; it stays the same for as long as the cluster exists."""

    async def start(self, cluster: Key) -> Client:
        """Start the API if it is not running."""

    async def dial(self, cluster: Key) -> Client:
        """Return a client. Raise Unreachable while the API is not running."""

    async def kubeconfig(self, cluster: Key) -> dict[str, Any]:
        """Return an administrator's kubeconfig for the API, once it is up."""

    def etcd(self, cluster: Key) -> Etcd: ...

    async def remove(self, cluster: Key) -> None:
        """Remove the cluster with all its data; a missing one is ignored."""

    async def close(self) -> None: ...


def admin_kubeconfig(cluster: Key, server: str, **credentials: Any) -> dict[str, Any]:
    """Return a kubeconfig with the names that Cluster API's tools expect."""
    return kubeconfig.build(server, name=cluster.name, user=f"{cluster.name}-admin", **credentials)


class EtcdClusters:
    """Model etcds, one per cluster, created at first use."""

    def __init__(self, catch_up_seconds: float = 0.0, witness: Callable[[str], None] | None = None) -> None:
        self._etcds: dict[Key, Etcd] = {}
        self._catch_up_seconds = catch_up_seconds
        self._witness = witness

    def of(self, cluster: Key) -> Etcd:
        etcd = self._etcds.get(cluster)
        if etcd is None:
            etcd = self._etcds[cluster] = Etcd(self._catch_up_seconds, lambda how: self._tell(cluster, how))
        return etcd

    def _tell(self, cluster: Key, how: str) -> None:
        if self._witness is not None:
            self._witness(f"{cluster}: {how}")

    def remove(self, cluster: Key) -> None:
        self._etcds.pop(cluster, None)

    @property
    def violations(self) -> list[str]:
        return [f"{key}: {violation}" for key, etcd in sorted(self._etcds.items()) for violation in etcd.violations]


class ModelWorkloads:
    """Workload clusters in memory. `violations` outlive their clusters."""

    def __init__(self, catch_up_seconds: float = 0.0) -> None:
        self._workloads: dict[Key, ModelWorkload] = {}
        self._members = EtcdClusters(catch_up_seconds)
        self._past_violations: list[str] = []

    async def endpoint(self, cluster: Key) -> Endpoint:
        return Endpoint(host=f"{cluster.name}.{cluster.namespace}.simulated", port=6443)

    async def start(self, cluster: Key) -> ModelWorkload:
        found = self._workloads.get(cluster)
        if found is None:
            found = self._workloads[cluster] = ModelWorkload()
            found.frozen = self.etcd(cluster).refusal
        return found

    async def dial(self, cluster: Key) -> ModelWorkload:
        found = self._workloads.get(cluster)
        if found is None:
            raise Unreachable(f"the API of {cluster} is not up", sent=False)
        return found

    def find(self, cluster: Key) -> ModelWorkload | None:
        return self._workloads.get(cluster)

    async def kubeconfig(self, cluster: Key) -> dict[str, Any]:
        return admin_kubeconfig(cluster, f"https://{await self.endpoint(cluster)}", token="simulated")  # noqa: S106

    def etcd(self, cluster: Key) -> Etcd:
        return self._members.of(cluster)

    async def remove(self, cluster: Key) -> None:
        workload = self._workloads.pop(cluster, None)
        if workload is not None:
            workload.cut = True
        self._past_violations += [f"{cluster}: {violation}" for violation in self.etcd(cluster).violations]
        self._members.remove(cluster)

    @property
    def violations(self) -> list[str]:
        """Return the violations that the models of etcd recorded against the controllers that managed them."""
        return [*self._past_violations, *self._members.violations]

    async def close(self) -> None:
        for workload in self._workloads.values():
            workload.cut = True
