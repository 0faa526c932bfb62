"""`remuda status`: the server of a data directory of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import exit_codes, local_server
from remuda.cli.options import HELP
from remuda.cli.output import JSON, TABLE, YAML, output_option, print_value
from remuda.cli.server_config import data_dir_option

if TYPE_CHECKING:
    from remuda.app.server_record import LocalServer
    from remuda.kube.http import HttpClient

_READY_SECONDS = 10.0
_TITLES = {"dataDirectory": "data directory", "url": "URL"}


@click.command(name="status", context_settings=HELP)
@data_dir_option("Data directory of the server.")
@output_option(TABLE, JSON, YAML)
def command(data_dir: Path, output: str) -> None:
    """Show whether the server of a data directory runs: its state, process, URL, version and log.

    Exit code 0: it is ready; 1: it is not running, or not ready.

    \b
      remuda status
      remuda status --data-dir /var/lib/remuda -o json
    """
    from remuda.app import server_record

    found = server_record.find(data_dir)
    troubles = _troubles(data_dir) if found.state == "ready" else []
    state = "not ready" if troubles else {"stopped": "not running"}.get(found.state, found.state)
    shown = _facts(state, troubles, data_dir, found)
    if output == TABLE:
        widest = max(len(_TITLES.get(name, name)) for name in shown)
        for name, value in shown.items():
            text = "; ".join(value) if isinstance(value, list) else value
            click.echo(f"{_TITLES.get(name, name) + ':':{widest + 1}} {text}")
    else:
        print_value(shown, output)
    if found.state == "stopped":
        click.echo(f"Start it with: remuda up --detach{local_server.flag(data_dir)}", err=True)
    raise SystemExit(0 if state == "ready" else exit_codes.NO)


def _facts(state: str, troubles: list[str], data_dir: Path, found: LocalServer) -> dict[str, Any]:
    """Return the facts that are known, in the order in which they are shown."""
    record = found.record
    log = (record.log_file or "standard error of its process") if record else ""
    facts: dict[str, Any] = {
        "server": state,
        "reasons": troubles,
        "pid": found.pid,
        "since": record.since if record else "",
        "url": record.url if record else "",
        "version": record.version if record else "",
        "dataDirectory": str(data_dir.absolute()),
        "kubeconfig": str(data_dir.absolute() / local_server.ADMIN) if record else "",
        "log": log,
    }
    return {name: value for name, value in facts.items() if value}


def _troubles(data_dir: Path) -> list[str]:
    """Return what the readiness checks of the server complain about."""
    from remuda.cli.connection import NoManagementPlane, connected

    async def ask(client: HttpClient) -> list[str]:
        from remuda.kube.errors import StatusError, Unreachable

        try:
            await client.raw_get("/readyz?verbose")
        except Unreachable:
            raise
        except StatusError as error:
            return [line for line in str(error).splitlines() if "[-]" in line] or [str(error)]
        return []

    try:
        return connected(data_dir / local_server.ADMIN, ask, timeout_seconds=_READY_SECONDS)
    except NoManagementPlane as error:
        return [error.message.splitlines()[0]]
