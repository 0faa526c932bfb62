"""Setup of the simulated provider's controllers in a manager, for both contracts."""

from __future__ import annotations

from remuda.capi.external import Externals
from remuda.capi.types import CLUSTER
from remuda.kube.objects import Key
from remuda.lab.simulator.cloud import Cloud
from remuda.lab.simulator.kinds import FAMILIES
from remuda.lab.simulator.providers.bootstrap import BootstrapProvider
from remuda.lab.simulator.providers.cluster import ClusterProvider
from remuda.lab.simulator.providers.controlplane import ControlPlaneProvider
from remuda.lab.simulator.providers.machine import MachineProvider
from remuda.lab.simulator.providers.remediation import RemediationProvider
from remuda.lab.simulator.workload_registry import Workloads
from remuda.runtime.manager import Manager


def add_providers(manager: Manager, cloud: Cloud, workloads: Workloads, externals: Externals | None = None) -> None:
    """Add the controllers; call this before the manager starts. `externals` is core's, if core runs in the same
    manager.
    """
    found = externals or Externals(manager.caches, manager.client)
    control_planes = [ControlPlaneProvider(manager, family, workloads, found) for family in FAMILIES]
    clusters = manager.caches.of(CLUSTER)

    def registered(key: Key) -> None:
        cluster = clusters.get(*key)
        if cluster is not None:
            for control_plane in control_planes:
                control_plane.look_again(cluster)

    for family in FAMILIES:
        ClusterProvider(manager, family, workloads)
        BootstrapProvider(manager, family)
        MachineProvider(manager, family, cloud, workloads, registered)
        RemediationProvider(manager, family, workloads)
