"""The proxy in the test's own loop, and behind it, through a tunnel of ours, the real kube-apiserver. Callers are
impersonated there, so what they may do is what its RBAC says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab import Upstream
from tests.lab.proxied import AuditLines, ProxiedCluster, proxied

ID = "c-m-lab"


@pytest.fixture
async def proxied_cluster(upstream: Upstream, tmp_path: Path) -> AsyncIterator[ProxiedCluster]:
    config: dict[str, Any] = yaml.safe_load(upstream.kubeconfig.read_text())
    address = config["clusters"][0]["cluster"]["server"].removeprefix("https://")
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"  # there is no other way than the tunnel
    async with proxied(tmp_path / "engine", api=address) as made:
        await made.cluster(ID, config)
        await made.tunnel(ID)
        yield made


@pytest.fixture
def ann(upstream: Upstream, proxied_cluster: ProxiedCluster, tmp_path: Path, run_tag: str) -> Path:
    """The kubeconfig of somebody who may do everything there."""
    return _somebody(upstream, proxied_cluster, tmp_path, f"ann-{run_tag}", "cluster-admin")


@pytest.fixture
def bo(upstream: Upstream, proxied_cluster: ProxiedCluster, tmp_path: Path, run_tag: str) -> Path:
    """… and of somebody who may look."""
    return _somebody(upstream, proxied_cluster, tmp_path, f"bo-{run_tag}", "view")


def _somebody(upstream: Upstream, proxied_cluster: ProxiedCluster, folder: Path, name: str, role: str) -> Path:
    binding = {
        "metadata": {"name": f"proxied-{name}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    }
    reply = upstream.http("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    assert reply.code in (201, 409), reply
    return proxied_cluster.kubeconfig(folder / f"{name}.kubeconfig", ID, proxied_cluster.caller(name))


@pytest.fixture
def audit() -> Iterator[AuditLines]:
    with AuditLines() as lines:
        yield lines
