"""`remuda down`: stop the server of a data directory of this machine.

The process is signalled through a pidfd that was opened before the last look at the lock, so a process that has been
given the same id in the meantime is never hit.
"""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.cli import exit_codes, local_server
from remuda.cli.options import HELP
from remuda.cli.server_config import data_dir_option
from remuda.cli.text_wrap import print_note

if TYPE_CHECKING:
    from remuda.app.running_hosts import ClusterHosts

_ASK_SECONDS = 10.0


class _StillStopping(click.ClickException):
    exit_code = exit_codes.IN_VAIN


class _Ended(Exception):
    """The server ended by itself meanwhile."""


@click.command(name="down", context_settings=HELP)
@data_dir_option("Data directory of the server.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until the server has stopped.",
)
def command(data_dir: Path, timeout: float) -> None:
    """Stop the server of a data directory, and wait until it has stopped.

    Running work ends cleanly and all state stays on disk: the next `remuda up` continues from there. Hosts go on
    running; the command lists them. Exit code 5: the server has not stopped within the timeout.

    \b
      remuda down
      remuda down --data-dir /var/lib/remuda
    """
    from remuda.app import running_hosts

    local_server.wait_while_starting(data_dir)
    hosts = _hosts(data_dir) if local_server.is_running(data_dir) else []
    try:
        pid = _stop(data_dir, timeout)
    except _Ended:
        print_note(f"no server is running on the data directory {data_dir}")
        return
    click.echo(f"remuda (pid {pid}) has stopped; its state is in {data_dir}")
    if hosts:
        print_note("\n".join(running_hosts.text(hosts, data_dir)))


def _hosts(data_dir: Path) -> list[ClusterHosts]:
    """Return the hosts that go on running. A server that does not answer is stopped all the same."""
    from remuda.app import running_hosts
    from remuda.cli.connection import connected

    try:
        return connected(data_dir / local_server.ADMIN, running_hosts.find, timeout_seconds=_ASK_SECONDS)
    except click.ClickException as error:
        print_note(f"cannot list the hosts that go on running: {error.message.splitlines()[0]}")
        return []


def _stop(data_dir: Path, timeout: float) -> int:
    """Terminate the server and return its process id. Raises _Ended, and ClickException."""
    from remuda.app import server_record

    found = server_record.find(data_dir)
    pid = found.pid
    if not pid:
        raise _Ended
    if found.record is None:
        raise click.ClickException(
            f"process {pid} uses the data directory {data_dir}, but has not reported that it serves: it may be "
            f"`remuda fsck`. If it is a server, stop it with: kill {pid}"
        )
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        raise _Ended from None
    try:
        if server_record.find(data_dir).pid != pid:
            raise _Ended
        signal.pidfd_send_signal(process, signal.SIGTERM)
        if not select.select([process], [], [], timeout)[0]:
            raise _StillStopping(
                f"the server (pid {pid}) has not stopped within {timeout:.0f} s; it continues to stop"
                f"{local_server.log_advice(data_dir)}"
            )
    except ProcessLookupError:
        raise _Ended from None
    except PermissionError:
        raise click.ClickException(f"the server (pid {pid}) belongs to another user; run `remuda down` as it") from None
    finally:
        os.close(process)
    return pid
