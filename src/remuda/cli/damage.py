"""Warning about objects that are damaged on the disk of the management plane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.cli.connection import show_warning

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

_PATH = "/readyz/objects"  # needs a permission of its own, because it names other users' objects
_FAILED = 500


async def warn_of_damage(client: HttpClient) -> None:
    from remuda.kube.errors import StatusError

    try:
        await client.raw_get(_PATH)
    except StatusError as error:
        if error.code == _FAILED:  # else: no permission, or not our API server
            show_warning(f"controllers are blocked: {str(error).removeprefix('internal server error: ').strip()}")
