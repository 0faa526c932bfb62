"""Creation logs of a machine's server: the log of its Job, the kept log of the last one, or the last failure."""

from __future__ import annotations

import sys
from contextlib import aclosing
from typing import Any

import click
import msgspec

from remuda.cli.text_wrap import print_note
from remuda.kube.client import list_all
from remuda.kube.core import JOBS, PODS, SECRET, SECRETS
from remuda.kube.errors import Forbidden, NotFound, StatusError
from remuda.kube.http import HttpClient
from remuda.kube.objects import Key
from remuda.providers.machine.access import NoAccess, removals
from remuda.providers.shared import names
from remuda.providers.shared.drivers.proc import ROOT_VARIABLE
from remuda.providers.shared.jobs import kept_log
from remuda.providers.shared.types.machine import NODE_DRIVER, machine_kind

Json = dict[str, Any]

_BAD_REQUEST = 400


def agent_command(follow: bool) -> tuple[str, ...]:
    """Return the command that prints the log of either agent: from the journal, or without systemd from a file."""
    # On hosts that are a directory of this machine, this machine's journal is not theirs.
    journal = f"journalctl -u remuda-agent -u rancher-system-agent --no-pager -n 1000{' -f' if follow else ''}"
    file = f'tail -n 1000{" -f" if follow else ""} "${ROOT_VARIABLE}/var/lib/rancher/agent/agent.log"'
    return (f'if [ -z "${ROOT_VARIABLE}" ] && [ -d /run/systemd/system ]; then {journal}; else {file}; fi',)


async def show(client: HttpClient, machine: Key, follow: bool, prefix: str = "") -> None:
    """Print the log of a machine. `prefix`: printed before each line. Raises NoAccess if there is no log."""
    pod = await _newest_pod(client, machine)
    if pod is not None and await _show_log(client, pod, follow, prefix):
        return
    if pod is not None and _show_end(pod, prefix):
        return
    if log := await _kept_log(client, machine):
        _write(log.encode(), prefix)
        return
    await _show_status(client, machine, prefix)


async def _kept_log(client: HttpClient, machine: Key) -> str:
    """Return the logs of the machine's last Jobs, from the Secret of the machine or the one that outlives it."""
    for name in (names.state_secret(machine.name), names.machine_log(machine.name)):
        try:
            data = SECRET.decode(await client.get(SECRETS, machine.namespace, name)).data
        except (NotFound, Forbidden):
            continue
        if log := kept_log.in_secret(data):
            return log
    return ""


async def _newest_pod(client: HttpClient, machine: Key) -> Json | None:
    """Return the newest Pod of the machine's Jobs. A Job is in another namespace if the machine's is being deleted."""
    pods: list[Json] = []
    for job in await _jobs(client, machine):
        listing = await list_all(client, PODS, job.namespace, label_selector=f"job-name={job.name}")
        pods += [msgspec.json.decode(value) for value in listing.items]
    return max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)


async def _jobs(client: HttpClient, machine: Key) -> list[Key]:
    found = [job for one, job in await removals(client) if one == machine]
    own = Key(machine.namespace, names.provision(machine.name))
    try:
        await client.get(JOBS, *own)
    except NotFound:
        return found
    return [own, *found]


async def _show_log(client: HttpClient, pod: Json, follow: bool, prefix: str) -> bool:
    """Print the log of a Pod and return whether there is one: not if the Pod has not started, has no node, or its node
    cannot be reached by the server."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log{'?follow=true' if follow else ''}"
    pending, found = bytearray(), False
    try:
        async with aclosing(client.raw_stream(path)) as chunks:
            async for chunk in chunks:
                found = True
                pending += chunk
                # Print complete lines only, because the prefix precedes each line.
                whole, newline, rest = pending.rpartition(b"\n")
                _write(bytes(whole + newline), prefix)
                pending = bytearray(rest)
    except StatusError as error:
        if not isinstance(error, NotFound) and error.code != _BAD_REQUEST:
            raise
        click.echo(f"cannot show the log of the Job: {error.message}", err=True)
        return False
    finally:
        _write(bytes(pending), prefix)
    return found


def _write(lines: bytes, prefix: str) -> None:
    for line in lines.splitlines(keepends=True):
        sys.stdout.buffer.write(prefix.encode() + line)
    sys.stdout.buffer.flush()


def _show_end(pod: Json, prefix: str) -> bool:
    for container in pod.get("status", {}).get("containerStatuses") or ():
        if ended := container.get("state", {}).get("terminated"):
            click.echo(f"{prefix}the Job ended with exit code {ended['exitCode']}: {ended.get('message', '')}")
            return True
    return False


async def _show_status(client: HttpClient, machine: Key, prefix: str) -> None:
    found = await _driver_machine(client, machine)
    if found is None:
        raise NoAccess(f"{machine} has no Job, and no status of an earlier one")
    status = found.get("status") or {}
    if status.get("failureMessage"):
        click.echo(f"{prefix}{status.get('failureReason') or 'failed'}: {status['failureMessage']}")
        return
    print_note(f"{prefix}no Job is running, and no log is kept. Conditions of the machine:")
    for condition in status.get("conditions") or ():
        message = f": {condition['message']}" if condition["message"] else ""
        click.echo(f"{prefix}{condition['type']}={condition['status']} {condition['reason']}{message}")


async def _driver_machine(client: HttpClient, machine: Key) -> Json | None:
    for value in (await list_all(client, NODE_DRIVER.target)).items:
        kind = machine_kind(NODE_DRIVER.decode(value).metadata.name)
        try:
            found: Json = msgspec.json.decode(await client.get(kind.target, *machine))
        except NotFound:
            continue
        return found
    return None
