"""Commands that speak to a management plane: which one, and how errors of it are told."""

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
    help="Of the management plane. Default: $KUBECONFIG, ./remuda-data/admin.kubeconfig, ~/.kube/config.",
)


_WHICH = (
    "Say which management plane with --kubeconfig FILE or $KUBECONFIG. `remuda up` starts one on this machine, and "
    "writes DATA_DIR/admin.kubeconfig."
)


class NoManagementPlane(click.ClickException):
    exit_code = exit_codes.UNREACHABLE


def show_warning(text: str) -> None:
    head = "Warning:"
    told = "\n".join(wrapped(f"{head} {text}", errors_width()))
    click.echo(told.replace(head, click.style(head, fg="yellow"), 1), err=True)


def connected(
    kubeconfig: Path | None,
    work: Callable[[HttpClient], Awaitable[T]],
    *,
    context: str = "",
    warn: Callable[[str], None] = show_warning,
    timeout_seconds: float = 60.0,
) -> T:
    """Run `work` with a client and return its result; server and connection errors become those of the command.

    `warn` is called with each of the server's warnings once.
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
    from remuda.kube import kubeconfig
    from remuda.kube.http import HttpClient

    client = HttpClient(kubeconfig.load(_usual(path), context), warn=warn, timeout_seconds=timeout_seconds)
    try:
        return await work(client)
    finally:
        await client.close()


def _usual(path: Path | None) -> Path | None:
    usual = DATA_DIR / "admin.kubeconfig"
    return usual if path is None and not os.environ.get("KUBECONFIG") and usual.exists() else path


def chosen_kubeconfig(path: Path | None) -> tuple[Path, str]:
    """The one file that `connected` reads, and its current context: for somebody who is to read the same later, from
    elsewhere. Raises ClickException where there are several files."""
    from remuda.kube.kubeconfig.files import merge_files

    path = _usual(path)
    if path is None:
        named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
        if len(named) > 1:
            raise click.ClickException("$KUBECONFIG names several files: say with --kubeconfig which one is meant")
        path = named[0] if named else Path.home() / ".kube" / "config"
    return path.absolute(), merge_files([path]).current_context
