"""`remuda describe cluster` and `remuda why`: what the objects of a cluster say, and which one is waited for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP, namespace_option

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.provisioning.tree import Branch

_NOT_WELL = 1
_COLOURS = {"well": "green", "waiting": "yellow", "unknown": "yellow", "held": "red", "deleting": "magenta"}

output_option = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)


@click.group(name="describe", context_settings=HELP)
def command() -> None:
    """Show something with everything that belongs to it."""


@command.command(context_settings=HELP)
@click.argument("name")
@namespace_option("cluster")
@kubeconfig_option
@output_option
def cluster(name: str, namespace: str, kubeconfig: Path | None, output: str) -> None:
    """Show a cluster as a tree; what holds it up is marked with »."""
    from remuda.provisioning import tree

    root = _look(kubeconfig, namespace, name)
    if output == "json":
        _print_json(root)
        return
    leaf = next(reversed(tree.blocking(root)), None)
    for depth, one in tree.walk(root):
        mark = "»" if one is leaf else " "
        note = f"  {one.note}" if one.note else ""
        head = click.style(f"{one}", bold=one is leaf)
        click.echo(f"{mark} {'  ' * depth}{head}{note}  {_judgement(one, depth + 1, whole=one is leaf)}")


@click.command(name="why", context_settings=HELP)
@click.argument("name")
@namespace_option("cluster")
@kubeconfig_option
@output_option
def why(name: str, namespace: str, kubeconfig: Path | None, output: str) -> None:
    """Say why a cluster is not ready: the chain from it down to what is waited for.

    Exit code 0: it is ready; 1: it is not.
    """
    from remuda.provisioning import tree

    root = _look(kubeconfig, namespace, name)
    chain = tree.blocking(root)
    if output == "json":
        import msgspec

        links = [msgspec.structs.replace(one, branches=()) for one in chain]
        click.echo(msgspec.json.format(msgspec.json.encode(links), indent=2))
    elif not chain:
        click.echo(f"{root} is ready")
    else:
        for depth, one in enumerate(chain):
            click.echo(f"{'  ' * depth}{one}  {_judgement(one, depth, whole=one is chain[-1])}")
    raise SystemExit(_NOT_WELL if chain else 0)


def _look(kubeconfig: Path | None, namespace: str, name: str) -> Branch:
    from remuda.provisioning import looking

    async def look(client: HttpClient) -> Branch:
        place = await looking.find(client, namespace, name)
        return await looking.look(client, place, name)

    try:
        return connected(kubeconfig, look)
    except looking.NoSuchCluster as error:
        raise click.ClickException(str(error)) from None


def _judgement(one: Branch, depth: int, *, whole: bool) -> str:
    """Of an object that only waits for another one the first line is enough."""
    said = one.judgement
    word = click.style(said.state, fg=_COLOURS.get(said.state))
    if said.well:
        return word
    since = f" since {said.since}" if said.since else ""
    reason = f" {said.reason}" if said.reason else ""
    lines = said.message.splitlines() if whole else said.message.splitlines()[:1]
    return f"{word}{since}{reason}{': ' if lines else ''}" + f"\n{'  ' * (depth + 2)}".join(lines)


def _print_json(root: Branch) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(root), indent=2))
