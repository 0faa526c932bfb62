"""Remuda: Kubernetes clusters provisioned, managed in place and reachable from anywhere."""

__version__ = "0.1.0"
