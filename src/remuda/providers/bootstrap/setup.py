"""Puts the bootstrap provider together."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from remuda.providers.bootstrap import tokens
from remuda.providers.bootstrap.registration import Registration
from remuda.providers.bootstrap.site import Site
from remuda.runtime.manager import Manager

CONTROLLERS = ("rkebootstrap", "custommachine", "machinerequest", "clusterregistration")


class BootstrapSettings(msgspec.Struct, frozen=True, kw_only=True):
    token_ttl_seconds: float = tokens.DEFAULT_TTL_SECONDS  # how long a server may take from its order to its first call


def add(
    manager: Manager,
    site: Site,
    *,
    settings: BootstrapSettings | None = None,
    only: Collection[str] = CONTROLLERS,
) -> Registration:
    """Adds the controllers to a manager that has not started yet. The Registration works whether or not it leads."""
    return Registration(manager.client, manager.events, site)
