"""`remuda events`: events in chronological order, of all objects, one object or one cluster."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import shell_completion
from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP
from remuda.cli.output import JSON, TABLE, YAML, output_option, print_value, terminal_width

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

Json = dict[str, Any]

_INDENT = " " * 8


@click.command(name="events", context_settings=HELP)
@click.option(
    "--for",
    "about",
    metavar="KIND/NAME",
    default="",
    help="Only events of this object, for example machine/prairie-servers-x2b4q.",
)
@click.option(
    "--cluster",
    default="",
    metavar="NAME",
    help="Only events of this cluster and its objects.",
    shell_complete=shell_completion.clusters,
)
@click.option(
    "-n", "--namespace", default="", help="Only events in this namespace.", shell_complete=shell_completion.namespaces
)
@click.option("-w", "--watch", is_flag=True, help="Keep printing new events.")
@output_option(TABLE, JSON, YAML)
@kubeconfig_option
def command(about: str, cluster: str, namespace: str, watch: bool, output: str, kubeconfig: Path | None) -> None:
    """List events, the latest last. Servers delete events after about an hour.

    \b
      remuda events --cluster prairie
      remuda events --for machine/prairie-servers-x2b4q-7tkdz
      remuda events -n fleet-default --watch
    """
    if about and cluster:
        raise click.UsageError("--for and --cluster exclude each other")
    if about and "/" not in about:
        raise click.UsageError(f"--for {about!r}: must be KIND/NAME")
    if watch and output != TABLE:
        raise click.UsageError("--watch prints lines; it cannot be combined with -o")

    async def show(client: HttpClient) -> None:
        concerned = await _concerned(client, about, cluster, namespace)
        events, revision = await _listed(client, namespace)
        events = [one for one in events if concerned(_object(one))]
        if output != TABLE:
            print_value({"apiVersion": "v1", "kind": "List", "items": events}, output)
            return
        for one in events:
            click.echo(event_text(one, terminal_width()))
        if not events:
            click.echo("no events", err=True)
        if watch:
            await _follow(client, namespace, concerned, revision)

    connected(kubeconfig, show)


async def _concerned(client: HttpClient, about: str, cluster: str, namespace: str) -> Callable[[Json], bool]:
    """Return a filter for the objects that the command line asks for."""
    if about:
        from remuda.cli.kinds import discover

        word, _, name = about.partition("/")
        kinds = {resource.kind for resource in (await discover(client)).meanings(word)}
        return lambda obj: obj.get("kind") in kinds and obj.get("name") == name
    if cluster:
        from remuda.cli.describe import no_such_cluster
        from remuda.provisioning import tree_loader

        try:
            place = await tree_loader.find(client, namespace, cluster)
        except tree_loader.NoSuchCluster as error:
            raise no_such_cluster(error) from None
        others = await _clusters(client, place)
        return lambda obj: obj.get("namespace") == place and belongs(str(obj.get("name", "")), cluster, others)
    return lambda obj: True


async def _clusters(client: HttpClient, namespace: str) -> list[str]:
    from remuda.capi.types import CLUSTER
    from remuda.kube.client import list_all

    listing = await list_all(client, CLUSTER.target, namespace, metadata_only=True)
    return [CLUSTER.decode(value).metadata.name for value in listing.items]


def belongs(name: str, cluster: str, clusters: Collection[str]) -> bool:
    """Return whether an object belongs to the cluster, judged by its name: deleted objects have no labels to read.

    The name of an object starts with its cluster's. If several clusters match, it belongs to the longest name.
    """
    fitting = [one for one in {*clusters, cluster} if name == one or name.startswith(f"{one}-")]
    return max(fitting, key=len, default="") == cluster


async def _listed(client: HttpClient, namespace: str) -> tuple[list[Json], str]:
    import msgspec

    from remuda.kube.client import Target, list_all

    listing = await list_all(client, Target("v1", "events"), namespace)
    return sorted((msgspec.json.decode(value) for value in listing.items), key=when), listing.resource_version


async def _follow(client: HttpClient, namespace: str, concerned: Callable[[Json], bool], since: str) -> None:
    import msgspec

    from remuda.kube.client import Target
    from remuda.kube.errors import Gone

    while True:
        try:
            async with aclosing(client.watch(Target("v1", "events"), namespace, resource_version=since)) as changes:
                async for change in changes:
                    event = msgspec.json.decode(change.value)
                    since = event["metadata"]["resourceVersion"]
                    if change.type in ("ADDED", "MODIFIED") and concerned(_object(event)):
                        click.echo(event_text(event, terminal_width()))
        except Gone:
            since = (await _listed(client, namespace))[1]


def _object(event: Json) -> Json:
    found: Json = event.get("involvedObject") or {}
    return found


def when(event: Json) -> str:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((str(time) for time in times if time), str(event["metadata"].get("creationTimestamp") or ""))


def event_text(event: Json, width: int | None) -> str:
    """Return the text of an event: one line in a pipe; on a terminal the message is wrapped beneath."""
    from remuda.apiserver.kinds.columns import human_duration
    from remuda.kube import clock

    age = human_duration(clock.time() - clock.parse(when(event)))
    about = _object(event)
    reason = str(event.get("reason", ""))
    if event.get("type") == "Warning":
        reason = click.style(reason, fg="yellow")
    times = (event.get("series") or {}).get("count") or event.get("count") or 1
    often = f" ({times} times)" if times > 1 else ""
    head = f"{age:<7} {about.get('kind')}/{about.get('name')}  {reason}{often}"
    message = " ".join(str(event.get("message", "")).split())
    if width is None:
        return f"{head}  {message}"
    beneath = textwrap.wrap(message, width, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False)
    return "\n".join([head, *beneath])
