"""`remuda delete`: delete objects by name, or those in a manifest.

Deleting a cluster deletes its machines: the command prints this first and, on a terminal, asks for confirmation. The
server does the work: Ctrl-C only stops the waiting.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from remuda.cli import exit_codes, manifest_files, progress, shell_completion
from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP
from remuda.cli.text_wrap import print_note

if TYPE_CHECKING:
    from remuda.cli.kinds import Kinds, Resource
    from remuda.kube.http import HttpClient
    from remuda.kube.objects import Key

_POLL_SECONDS = 0.5


class _Found(NamedTuple):
    resource: Resource
    key: Key
    uid: str

    def __str__(self) -> str:
        return f"{self.resource.full_name}/{self.key.name}"


@click.command(name="delete", context_settings=HELP)
@click.argument("kind", required=False, metavar="[KIND[/NAME]]", shell_complete=shell_completion.kinds)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=shell_completion.names)
@manifest_files.files_option(required=False)
@click.option(
    "-n",
    "--namespace",
    default="",
    help="Namespace of the objects. Default: search all namespaces.",
    shell_complete=shell_completion.namespaces,
)
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the objects are removed.")
@progress.timeout_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--ignore-not-found", is_flag=True, help="Treat missing objects as deleted.")
@kubeconfig_option
def command(
    kind: str | None,
    names: tuple[str, ...],
    files: Sequence[Path],
    namespace: str,
    wait: bool,
    timeout: float,
    yes: bool,
    ignore_not_found: bool,
    kubeconfig: Path | None,
) -> None:
    """Delete objects: a KIND and names, or all objects in a manifest.

    Deleting a cluster deletes its machines and all data on them. The command first prints how many machines that are,
    and on a terminal asks for confirmation; in a pipe it does not ask. The deletion continues if you stop waiting.

    \b
      remuda delete cluster prairie
      remuda delete machine/prairie-workers-7x2kq-abcde
      remuda delete -f cluster.yaml --yes --timeout 10m
      remuda delete machines prairie-workers-7x2kq --no-wait
    """
    from remuda.cli.kinds import named_objects

    if bool(files) == bool(kind):
        raise click.UsageError("name what to delete: KIND and NAME, or -f FILE")
    asked = named_objects((kind, *names)) if kind else []
    if any(not own for _, own in asked):
        raise click.UsageError(f"missing NAME; `remuda get {kind}` lists the names")
    objects = manifest_files.read(files) if files else []

    async def look(client: HttpClient) -> tuple[list[_Found], list[str]]:
        from remuda.cli.kinds import discover

        kinds = await discover(client)
        if kind:
            found = [
                await _named(client, kinds, word, name, namespace, ignore_not_found)
                for word, own in asked
                for name in own
            ]
        else:
            found = [await _declared(client, kinds, obj, namespace) for obj in _in_reverse_order(objects)]
        existing = [one for one in found if one is not None]
        return existing, [await _consequence(client, one) for one in existing if one.resource.is_cluster]

    found, consequences = connected(kubeconfig, look)
    _confirm(consequences, yes)

    async def remove(client: HttpClient) -> None:
        for one in found:
            await _delete(client, one)
            click.echo(f"{one} deleted")

    connected(kubeconfig, remove)
    if wait:
        _wait(kubeconfig, found, timeout)


def _in_reverse_order(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return clusters first, and the objects that they need after them."""
    from remuda.cli.manifest_apply import in_order

    return in_order(objects)[::-1]


async def _named(
    client: HttpClient, kinds: Kinds, kind: str, name: str, namespace: str, ignore_not_found: bool
) -> _Found | None:
    from remuda.cli import tables

    meanings = kinds.meanings(kind)
    for resource in meanings:
        selection = tables.Selection(namespace if resource.namespaced else "", fields=f"metadata.name={name}")
        rows = (await tables.listed(client, resource, selection)).rows or []
        if len(rows) > 1:
            places = ", ".join(row.object.key.namespace for row in rows)
            raise click.ClickException(
                f"{resource.full_name} {name} exists in several namespaces ({places}): choose one with -n"
            )
        if rows:
            return _Found(resource, rows[0].object.key, rows[0].object.metadata.uid)
    if ignore_not_found:
        return None
    from remuda.cli.kinds import names_of
    from remuda.kube.similar_names import did_you_mean, similar

    where = f" in namespace {namespace}" if namespace else ""
    known = [other for one in meanings for other in await names_of(client, one, namespace)]
    close = did_you_mean(similar(name, known)) or "."
    raise click.ClickException(f"{meanings[0].full_name} {name} not found{where}{close} Nothing was deleted")


async def _declared(client: HttpClient, kinds: Kinds, obj: dict[str, Any], namespace: str) -> _Found | None:
    """Return the object of a manifest; None if it does not exist, which counts as deleted."""
    import msgspec

    from remuda.kube.errors import NotFound
    from remuda.kube.objects import Key, Object

    resource = kinds.of(obj["apiVersion"], obj["kind"])
    if resource is None:
        return None
    place = obj["metadata"].get("namespace") or namespace or client.access.namespace or "default"
    key = Key(place if resource.namespaced else "", obj["metadata"]["name"])
    try:
        live = msgspec.json.decode(await client.get(resource.target, *key), type=Object)
    except NotFound:
        return None
    return _Found(resource, key, live.metadata.uid)


async def _consequence(client: HttpClient, one: _Found) -> str:
    """Return the warning that lists the machines deleted with a cluster, by their kind."""
    from remuda.capi import names
    from remuda.capi.types import MACHINE
    from remuda.kube.client import list_all

    label = f"{names.CLUSTER_NAME}={names.label_value(one.key.name)}"
    listing = await list_all(client, MACHINE.target, one.key.namespace, label_selector=label)
    references = (MACHINE.decode(value).spec.infrastructure_ref for value in listing.items)
    counts = Counter("Machine" if one is None else one.kind for one in references)
    what = " and ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in sorted(counts.items()))
    lost = f" and its {what} (all data on them is lost)" if what else ", which has no machines"
    return f"Deleting cluster {one.key}{lost}"


def _confirm(consequences: list[str], yes: bool) -> None:
    for text in consequences:
        print_note(text)
    if consequences and not yes and sys.stdin.isatty() and not click.confirm("Delete?", err=True):
        click.echo("nothing was deleted", err=True)
        raise SystemExit(exit_codes.NO)


async def _delete(client: HttpClient, one: _Found) -> None:
    from remuda.kube.errors import ignore_not_found

    with ignore_not_found():
        # With the uid that was found before the confirmation: an object that was created again since is not deleted.
        await client.delete(one.resource.target, *one.key, uid=one.uid or None, propagation="Background")


# ---- waiting ---------------------------------------------------------------------------------------------------------


def _wait(kubeconfig: Path | None, found: list[_Found], timeout: float) -> None:
    for one in found:
        if one.resource.is_cluster:
            progress.wait(kubeconfig, *one.key, timeout=timeout, wanted=progress.GONE)
    others = [one for one in found if not one.resource.is_cluster]

    async def gone(client: HttpClient) -> bool:
        try:
            async with asyncio.timeout(timeout):
                for one in others:
                    await _gone(client, one)
        except TimeoutError:
            return False
        return True

    try:
        if not connected(kubeconfig, gone):
            click.echo("not deleted yet; the deletion continues", err=True)
            raise SystemExit(exit_codes.IN_VAIN)
    except KeyboardInterrupt:
        click.echo("stopped waiting; the deletion continues", err=True)
        raise SystemExit(exit_codes.INTERRUPTED) from None


async def _gone(client: HttpClient, one: _Found) -> None:
    """Wait until the object is removed, and print what blocks its deletion whenever that changes."""
    import msgspec

    from remuda.kube.errors import NotFound

    printed = ""
    while True:
        try:
            obj = msgspec.json.decode(await client.get(one.resource.target, *one.key))
        except NotFound:
            return
        if obj["metadata"]["uid"] != one.uid:  # a new object with the same name
            return
        if (blocker := holding(obj)) != printed:
            printed = blocker
            click.echo(f"{one}: {printed}", err=True)
        await asyncio.sleep(_POLL_SECONDS)


def holding(obj: dict[str, Any]) -> str:
    """Return what blocks the deletion of an object, as its status or its finalizers report it."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Deleting" and condition.get("message"):
            return str(condition["message"])
    held = ", ".join(metadata.get("finalizers") or ())
    return f"waiting for controllers to remove the finalizers {held}" if held else "waiting for the server to remove it"
