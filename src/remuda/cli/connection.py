"""Connection of a command to its management plane: choice of the kubeconfig, and error messages.

A command waits for a server of this machine that is starting. If none runs, it fails at once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from remuda.app import DATA_DIR
from remuda.cli import local_server, server_config
from remuda.cli.local_server import NoManagementPlane
from remuda.cli.text_wrap import errors_width, wrapped

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

__all__ = ["DATA_DIR", "NoManagementPlane", "chosen_kubeconfig", "connected", "kubeconfig_option", "show_warning"]

T = TypeVar("T")

kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Kubeconfig of the management plane. Default: $KUBECONFIG, ./remuda-data/admin.kubeconfig, ~/.kube/config.",
)


_WHICH = (
    "Choose a management plane with --kubeconfig FILE or $KUBECONFIG. `remuda up --detach` starts one on this machine "
    "and writes DATA_DIR/admin.kubeconfig."
)


def show_warning(text: str) -> None:
    head = "Warning:"
    shown = "\n".join(wrapped(f"{head} {text}", errors_width()))
    click.echo(shown.replace(head, click.style(head, fg="yellow"), 1), err=True)


def connected(
    kubeconfig: Path | None,
    work: Callable[[HttpClient], Awaitable[T]],
    *,
    context: str = "",
    warn: Callable[[str], None] = show_warning,
    timeout_seconds: float = 60.0,
) -> T:
    """Run `work` with a client and return its result; turn server and connection errors into ClickException.

    `warn` is called once for each distinct warning of the server.
    """
    from remuda.kube.errors import StatusError, Unreachable
    from remuda.kube.kubeconfig import KubeconfigError

    path = _default_path(kubeconfig)
    local = _data_dir_of(path)
    if local is not None:
        local_server.wait_while_starting(local)
    try:
        return asyncio.run(_connected(path, work, context, warn, timeout_seconds))
    except KubeconfigError as error:
        raise NoManagementPlane(f"{error}\n{_WHICH}") from None
    except Unreachable as error:
        if local is not None and not local_server.is_running(local):
            raise NoManagementPlane(f"{error}\n{local_server.not_running(local)}") from None
        raise NoManagementPlane(f"{error}\nIs it running? `remuda up --detach` starts one on this machine.") from None
    except StatusError as error:
        raise click.ClickException(str(error)) from None


async def _connected(
    path: Path | None,
    work: Callable[[HttpClient], Awaitable[T]],
    context: str,
    warn: Callable[[str], None],
    timeout_seconds: float,
) -> T:
    from remuda.cli.workload_cluster import ClusterNotFound, refuse_workload_cluster
    from remuda.kube import kubeconfig
    from remuda.kube.errors import NotFound
    from remuda.kube.http import HttpClient
    from remuda.providers import ProviderError
    from remuda.provisioning import ProvisioningError

    client = HttpClient(kubeconfig.load(path, context), warn=warn, timeout_seconds=timeout_seconds)
    try:
        return await work(client)
    except (NotFound, ClusterNotFound, ProvisioningError, ProviderError):
        await refuse_workload_cluster(client)
        raise
    finally:
        await client.close()


def _default_path(path: Path | None) -> Path | None:
    """Return the kubeconfig of this machine's server, if the user named none, and the server has run or is starting."""
    if path is not None or os.environ.get("KUBECONFIG"):
        return path
    directory = server_config.data_dir()
    local = directory / local_server.ADMIN
    return local if local.exists() or local_server.is_starting(directory) else None


def _data_dir_of(path: Path | None) -> Path | None:
    """Return the data directory that a kubeconfig lies in, if it is one of a server."""
    named = path or Path(os.environ.get("KUBECONFIG", ""))
    return named.parent if named.name == local_server.ADMIN else None


def chosen_kubeconfig(path: Path | None) -> tuple[Path, str]:
    """Return the absolute path of the file that `connected` reads, and its current context.

    The result stays valid in another directory and environment. Raises ClickException if $KUBECONFIG names several
    files.
    """
    from remuda.kube.kubeconfig.files import merge_files

    path = _default_path(path)
    if path is None:
        named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
        if len(named) > 1:
            raise click.ClickException("$KUBECONFIG names several files: choose one with --kubeconfig")
        path = named[0] if named else Path.home() / ".kube" / "config"
    return path.absolute(), merge_files([path]).current_context
