"""Settings that RKE2 does not start with, in its words."""

from __future__ import annotations

from remuda.lab.nano.configuration import Configuration, FatalError


def check(configuration: Configuration) -> None:
    """Raises FatalError."""
    if not configuration.flavour.excludes_cloud_addresses:
        return
    provider = configuration.text("cloud-provider-name")
    settings = configuration.text("cloud-provider-config")
    if (provider or settings) and configuration.split("node-external-ip"):
        raise FatalError("can't set node-external-ip while using cloud provider")
    if settings and not provider:
        raise FatalError("--cloud-provider-config requires --cloud-provider-name")
