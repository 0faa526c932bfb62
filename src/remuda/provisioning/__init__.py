"""Clusters declared in one resource: `provisioning.cattle.io` Cluster and `<Driver>Config` → everything below them."""


class ProvisioningError(Exception):
    """Base class of the exceptions of this package."""
