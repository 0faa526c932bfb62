"""Commands that speak to a management plane: which one, and how errors of it are told."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

T = TypeVar("T")

DATA_DIR = Path("remuda-data")

kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Of the management plane. Default: $KUBECONFIG, ./remuda-data/admin.kubeconfig, ~/.kube/config.",
)


def connected(kubeconfig: Path | None, work: Callable[[HttpClient], Awaitable[T]]) -> T:
    """What `work` returns; errors of the server and of the way to it become the command's own."""
    from remuda.kube.errors import StatusError
    from remuda.kube.kubeconfig import KubeconfigError

    try:
        return asyncio.run(_connected(kubeconfig, work))
    except (KubeconfigError, StatusError) as error:
        raise click.ClickException(str(error)) from None


async def _connected(path: Path | None, work: Callable[[HttpClient], Awaitable[T]]) -> T:
    from remuda.kube import kubeconfig
    from remuda.kube.http import HttpClient

    usual = DATA_DIR / "admin.kubeconfig"
    if path is None and not os.environ.get("KUBECONFIG") and usual.exists():
        path = usual
    client = HttpClient(kubeconfig.load(path))
    try:
        return await work(client)
    finally:
        await client.close()
