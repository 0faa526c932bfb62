"""`remuda machine`: a shell on a machine, and its logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.cli import shell_completion
from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.exit_codes import clean_up_when_terminated
from remuda.cli.options import HELP, namespace_option

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.providers.machine.access import LocalHost, MachineLogin


@click.group(name="machine", context_settings=HELP)
def command() -> None:
    """Open a shell on a machine, or show its logs.

    NAME is the name of a Machine, or of the <Driver>Machine behind it.

    \b
      remuda machine ssh prairie-workers-7x2kq-abcde
      remuda machine logs prairie-workers-7x2kq-abcde --follow
    """


@command.command(context_settings={**HELP, "ignore_unknown_options": True})
@click.argument("name", shell_complete=shell_completion.machines)
@click.argument("words", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@namespace_option("machine")
@kubeconfig_option
def ssh(name: str, words: tuple[str, ...], namespace: str, kubeconfig: Path | None) -> None:
    """Log in to a machine, or run a command there.

    The private key comes from the machine-state Secret and stays on this machine only during the connection. The host
    key must match the one that was pinned when the server was created. Exit code: that of the remote command.

    A host of the driver `process` is a directory of the manager's machine. The command opens a shell there, with the
    environment of the host.

    \b
      remuda machine ssh prairie-workers-7x2kq-abcde
      remuda machine ssh prairie-workers-7x2kq-abcde -- uptime
    """
    from remuda.cli import host_shell, ssh_client
    from remuda.providers.machine import access

    clean_up_when_terminated()

    async def find(client: HttpClient) -> MachineLogin | LocalHost:
        return await access.machine_login(client, await access.find_machine(client, name, namespace))

    async def pin(client: HttpClient) -> None:
        await access.pin(client, found.machine, seen)

    try:
        found = connected(kubeconfig, find)
        if isinstance(found, access.LocalHost):
            raise SystemExit(host_shell.open_shell(found, words))
        code, seen = ssh_client.open_shell(found, words)
    except access.NoAccess as error:
        raise click.ClickException(str(error)) from None
    if seen and not found.known_hosts:
        connected(kubeconfig, pin)
    raise SystemExit(code)


@command.command(context_settings=HELP)
@click.argument("name", shell_complete=shell_completion.machines)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines.")
@click.option(
    "--agent", is_flag=True, help="Show the log of the agent on the machine, as `remuda machine ssh` reaches it."
)
@namespace_option("machine")
@kubeconfig_option
def logs(name: str, follow: bool, agent: bool, namespace: str, kubeconfig: Path | None) -> None:
    """Show the log of the Job that creates or removes a machine's server, or the end of the last one's.

    It stays readable after the Job has succeeded, and after the machine is deleted, until its cluster is.

    \b
      remuda machine logs prairie-workers-7x2kq-abcde --follow
      remuda logs machine prairie-workers-7x2kq-abcde --agent
    """
    from remuda.cli import machine_logs
    from remuda.providers.machine import access

    clean_up_when_terminated()

    async def show(client: HttpClient) -> None:
        await machine_logs.show(client, await access.find_machine(client, name, namespace), follow)

    try:
        if agent:
            ssh.callback(name, machine_logs.agent_command(follow), namespace, kubeconfig)  # type: ignore[misc]
        connected(kubeconfig, show)
    except access.NoAccess as error:
        raise click.ClickException(str(error)) from None
