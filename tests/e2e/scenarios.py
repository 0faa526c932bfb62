"""What scenarios share: a cluster that is there for a while, and what its nodes say of themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.lab.clusters import DeclaredCluster
from tests.lab.up import Json


@contextmanager
def declared(cluster: DeclaredCluster, nodes: int) -> Iterator[DeclaredCluster]:
    """Comes up; at the end it is deleted, and nothing is left of it."""
    try:
        cluster.apply()
        cluster.has_nodes(nodes)
        yield cluster
    finally:
        cluster.delete()
    cluster.leaves_nothing()


def roles(node: Json) -> str:
    found = {"etcd": "e", "control-plane": "c"}
    return "".join(letter for role, letter in found.items() if f"node-role.kubernetes.io/{role}" in labels(node))


def labels(node: Json) -> dict[str, str]:
    return dict(node["metadata"]["labels"])
