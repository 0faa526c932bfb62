"""Objects that are damaged on the disk of the management plane: whoever looks into a cluster is told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.cli.connection import show_warning

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

_PATH = "/readyz/objects"  # its own right: those who may not read it are not told what others have
_FAILED = 500


async def warn_of_damage(client: HttpClient) -> None:
    from remuda.kube.errors import StatusError

    try:
        await client.raw_get(_PATH)
    except StatusError as error:
        if error.code == _FAILED:  # else: not allowed, or another server than ours
            show_warning(f"controllers wait: {str(error).removeprefix('internal server error: ').strip()}")
