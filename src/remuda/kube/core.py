"""Kubernetes' own kinds that controllers use, with the fields that they read."""

from __future__ import annotations

from collections.abc import Mapping

from remuda.kube.client import Target
from remuda.kube.objects import Kind, Object

NAMESPACES = Target("v1", "namespaces")
SECRETS = Target("v1", "secrets")
CONFIG_MAPS = Target("v1", "configmaps")
SERVICE_ACCOUNTS = Target("v1", "serviceaccounts")
PODS = Target("v1", "pods")
JOBS = Target("batch/v1", "jobs")
ROLES = Target("rbac.authorization.k8s.io/v1", "roles")
ROLE_BINDINGS = Target("rbac.authorization.k8s.io/v1", "rolebindings")


class Secret(Object):
    type: str = ""
    data: Mapping[str, bytes] = {}  # base64 in JSON


SECRET: Kind[Secret] = Kind("v1", "Secret", "secrets", Secret)
