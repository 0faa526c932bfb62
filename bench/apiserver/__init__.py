"""The API server's budgets, beside etcd and kube-apiserver."""

from bench.apiserver.run import names, run

__all__ = ["names", "run"]
