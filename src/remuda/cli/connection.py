"""Connection of a command to its management plane: choice of the kubeconfig, and error messages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from remuda.cli import exit_codes
from remuda.cli.text_wrap import errors_width, wrapped

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

T = TypeVar("T")

DATA_DIR = Path("remuda-data")

kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Kubeconfig of the management plane. Default: $KUBECONFIG, ./remuda-data/admin.kubeconfig, ~/.kube/config.",
)


_WHICH = (
    "Choose a management plane with --kubeconfig FILE or $KUBECONFIG. `remuda up` starts one on this machine and "
    "writes DATA_DIR/admin.kubeconfig."
)


class NoManagementPlane(click.ClickException):
    exit_code = exit_codes.UNREACHABLE


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

    try:
        return asyncio.run(_connected(kubeconfig, work, context, warn, timeout_seconds))
    except KubeconfigError as error:
        raise NoManagementPlane(f"{error}\n{_WHICH}") from None
    except Unreachable as error:
        raise NoManagementPlane(f"{error}\nIs it running? `remuda up` starts one on this machine.") from None
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

    client = HttpClient(kubeconfig.load(_default_path(path), context), warn=warn, timeout_seconds=timeout_seconds)
    try:
        return await work(client)
    except (NotFound, ClusterNotFound, ProvisioningError, ProviderError):
        await refuse_workload_cluster(client)
        raise
    finally:
        await client.close()


def _default_path(path: Path | None) -> Path | None:
    local = DATA_DIR / "admin.kubeconfig"
    return local if path is None and not os.environ.get("KUBECONFIG") and local.exists() else path


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
