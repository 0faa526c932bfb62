"""Kubeconfigs: written for other users, and read to access a cluster.

`load` finds and merges files as kubectl does, `parse` reads one from another source (a Secret), `in_cluster` is for a
process inside a Pod. Each returns a `ClientConfig`: all that `kube.http` needs to reach a server.
"""

from remuda.kube.kubeconfig.access import ClientConfig, ExecPlugin, Impersonation, KubeconfigError
from remuda.kube.kubeconfig.loader import in_cluster, load, parse
from remuda.kube.kubeconfig.writer import build, write

__all__ = [
    "ClientConfig",
    "ExecPlugin",
    "Impersonation",
    "KubeconfigError",
    "build",
    "in_cluster",
    "load",
    "parse",
    "write",
]
