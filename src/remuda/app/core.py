"""Check for a Cluster API core that another program runs: our providers need its kinds.

Any core will do. The installation of CRDs ensures that two cores never run on one cluster: CRDs of another program are
left alone, and our core does not start next to them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from remuda.app import controllers
from remuda.app.process import StartRefused
from remuda.capi import names
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_DEPLOYMENT, MACHINE_HEALTH_CHECK, MACHINE_SET
from remuda.jobs.runner import CONTROLLER as JOB_RUNNER
from remuda.kube.errors import NotFound, StatusError
from remuda.kube.http import HttpClient

_NEEDED = (CLUSTER, MACHINE, MACHINE_SET, MACHINE_DEPLOYMENT, MACHINE_HEALTH_CHECK)


class _Served(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Served] = []


async def require(client: HttpClient, chosen: Sequence[str]) -> None:
    """Raise StartRefused if the chosen controllers need a core and none is installed."""
    if controllers.has_core(chosen) or set(chosen) <= {JOB_RUNNER}:
        return
    served = await _served(client)
    missing = [f"{kind.plural}.{kind.group}" for kind in _NEEDED if kind.plural not in served]
    if missing:
        raise StartRefused(
            f"Cluster API is not installed on this cluster: {', '.join(missing)} not served in {names.VERSION}. The "
            "chosen controllers need a Cluster API core: install upstream's (v1.11 or newer) first, or run Remuda's by "
            "omitting --controllers"
        )


async def _served(client: HttpClient) -> set[str]:
    try:
        found = await client.raw_get(f"/apis/{names.API_VERSION}")
    except NotFound:
        return set()
    except StatusError as error:
        raise StartRefused(f"cannot check whether Cluster API is installed: {error}") from None
    return {one.name for one in msgspec.json.decode(found, type=_Resources).resources}
