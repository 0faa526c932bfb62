"""Endpoints of a manager for administrators (`access.administration`): its artefacts, and leaks on its own machine."""

from __future__ import annotations

import platform
from pathlib import Path

import msgspec

from remuda.access.administration import Endpoint
from remuda.kube.client import Client
from remuda.kube.errors import no_such_path
from remuda.kube.web import Request
from remuda.providers.controlplane.artefacts.administration import ArtefactAdministration, Uploads
from remuda.providers.controlplane.artefacts.nano_bundles import Packing
from remuda.providers.machine import leaks
from remuda.providers.machine.leaks import Found, Place

_MOST_DRIVERS = 100


def endpoints(client: Client, store: Packing | None, hosts: Path | None) -> dict[str, Endpoint]:
    """Return the endpoints by name. `hosts`: directory of local drivers' servers; None: this process runs no Jobs."""

    async def look_for_leaks(request: Request, path: str) -> Found:
        if path or request.method != "GET":
            raise no_such_path()
        only = request.query.get("driver", [])[:_MOST_DRIVERS]
        found = await leaks.find(client, Place(hosts, remote=False), only)
        return msgspec.structs.replace(found, looked=[f"{one} of {platform.node()}" for one in found.looked])

    found: dict[str, Endpoint] = {"leaks": look_for_leaks}
    if store is not None:
        found["artefacts"] = ArtefactAdministration(store, Uploads(store.directory)).answer
    return found
