"""The core of Cluster API where another program runs it: our providers stand on its kinds, and cannot work without.

Which program that is makes no difference. That two cores never meet on one cluster is seen to when definitions are
installed: those of somebody else are not touched, and a core of ours does not start beside them.
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
    """Refuses to run without a core where nobody has installed one."""
    if controllers.has_core(chosen) or set(chosen) <= {JOB_RUNNER}:
        return
    served = await _served(client)
    missing = [f"{kind.plural}.{kind.group}" for kind in _NEEDED if kind.plural not in served]
    if missing:
        raise StartRefused(
            f"Cluster API is not installed here: nobody serves {', '.join(missing)} in {names.VERSION}. The chosen "
            "controllers work for a core of it: install upstream's (v1.11 or newer) first, or run ours as well, "
            "with --controllers left out"
        )


async def _served(client: HttpClient) -> set[str]:
    try:
        found = await client.raw_get(f"/apis/{names.API_VERSION}")
    except NotFound:
        return set()
    except StatusError as error:
        raise StartRefused(f"cannot find out whether Cluster API is installed here: {error}") from None
    return {one.name for one in msgspec.json.decode(found, type=_Resources).resources}
