"""`remuda plan`: what a manifest would do to each machine, before it is applied."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli.connection import connected, kubeconfig_option

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.provisioning.preview import Preview, Step

_REFUSED, _REPLACES = 1, 3
_COLUMNS = ("TURN", "ACTION", "POOL", "MACHINE", "WHY")
_COLOURS = {"replace": "red", "held": "red", "delete": "red", "drain": "yellow", "restart": "yellow", "create": "green"}


@click.command(name="plan", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="A manifest; - for standard input. May be given several times.",
)
@click.option("-n", "--namespace", default="default", show_default=True, help="Of objects that do not say theirs.")
@click.option("--no-replace", is_flag=True, help="Fail if a machine would be replaced.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@kubeconfig_option
def command(files: Sequence[Path], namespace: str, no_replace: bool, output: str, kubeconfig: Path | None) -> None:
    """Show what a manifest would do to each machine, in which order, and why. Nothing is changed.

    \b
    keep         nothing
    reconfigure  files change, nothing restarts
    restart      the distribution's service restarts
    drain        the same, after Pods have been moved away
    replace      the machine is deleted, another one takes its place
    held         it would be replaced, but its pool allows no replacement: it stays as it is
    create       a machine is made
    delete       a machine is deleted

    Machines of one turn are changed together, turn after turn. Exit code 0: it can be done; 1: the server refuses it;
    3: a machine would be replaced, and --no-replace is given.
    """
    import msgspec

    from remuda.provisioning.previewing import Previews, Refused

    manifests = _read(files, namespace)

    async def look(client: HttpClient) -> list[Preview]:
        return await Previews(client, manifests).make()

    try:
        found = connected(kubeconfig, look)
    except Refused as refused:
        click.echo(f"refused:\n{refused}", err=True)
        raise SystemExit(_REFUSED) from None
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        for each in found:
            _show(each)
        if not found:
            click.echo("no cluster is concerned", err=True)
    if no_replace and any(each.replaces for each in found):
        click.echo("machines would be replaced", err=True)
        raise SystemExit(_REPLACES)


def _read(files: Sequence[Path], namespace: str) -> list[dict[str, Any]]:
    import yaml

    found: list[Any] = []
    for path in files:
        try:
            text = sys.stdin.read() if str(path) == "-" else path.read_text()
            found += [obj for obj in yaml.safe_load_all(text) if obj is not None]
        except (OSError, UnicodeDecodeError) as error:
            raise click.ClickException(f"{path} cannot be read: {error}") from None
        except yaml.YAMLError as error:
            raise click.ClickException(f"{path} is no YAML: {error}") from None
    for obj in found:
        metadata = obj.get("metadata") if isinstance(obj, dict) else None
        if not isinstance(metadata, dict) or not all((obj.get("apiVersion"), obj.get("kind"), metadata.get("name"))):
            raise click.ClickException("every object needs apiVersion, kind and metadata.name")
        if obj["kind"] not in ("Namespace", "NodeDriver"):
            metadata.setdefault("namespace", namespace)
    return found


def _show(found: Preview) -> None:
    click.echo(click.style(f"Cluster {found.cluster}{' (new)' if found.new else ''}", bold=True))
    for wait in found.waits:
        click.echo(f"waits: {wait}")
    if not found.steps:
        click.echo("no machine is concerned")
        return
    rows = [_row(step) for step in found.steps]
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    for row in (_COLUMNS, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        cells[1] = click.style(cells[1], fg=_COLOURS.get(row[1]))
        click.echo("   ".join(cells).rstrip())


def _row(step: Step) -> tuple[str, ...]:
    return (str(step.turn or "-"), step.action, step.pool, step.machine or "(new)", step.why)
