"""`remuda plan`: preview of what a manifest would do to each machine.

The preview is a table with one row per machine; commands that edit clusters show it, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import exit_codes, manifest_files
from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP
from remuda.cli.output import TABLE, output_option, print_value, table_with_reasons, terminal_width
from remuda.cli.text_wrap import counted, print_note

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.provisioning.preview import Preview, Step

_COLUMNS = ("TURN", "ACTION", "POOL", "MACHINE", "WHY")
_COLOURS = {"replace": "red", "held": "red", "delete": "red", "drain": "yellow", "restart": "yellow", "create": "green"}
_KEEP = "keep"


@click.command(name="plan", context_settings=HELP)
@manifest_files.files_option()
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of objects that name none.")
@click.option("--no-replace", is_flag=True, help="Fail if a machine would be replaced.")
@output_option()
@kubeconfig_option
def command(files: Sequence[Path], namespace: str, no_replace: bool, output: str, kubeconfig: Path | None) -> None:
    """Show what a manifest would do to each machine, in which order, and why. Change nothing.

    \b
    keep         the machine does not change
    reconfigure  files change, nothing restarts
    restart      the distribution's service restarts
    drain        the node is drained, then the service restarts
    replace      the machine is deleted and a new one created
    held         it would be replaced, but its pool forbids that: it stays
    create       a machine is created
    delete       a machine is deleted

    Machines of the same turn change together; turns follow one after another. Exit code 0: the manifest can be applied;
    1: the server refuses it; 3: a machine would be replaced, with --no-replace.

    \b
      remuda plan -f cluster.yaml
      remuda plan -f cluster.yaml --no-replace && remuda apply -f cluster.yaml
    """
    from remuda.provisioning.preview_loader import PreviewRefused, Previews

    objects = _read(files, namespace)

    async def look(client: HttpClient) -> list[Preview]:
        return await Previews(client, objects).make()

    try:
        found = connected(kubeconfig, look)
    except PreviewRefused as refused:
        print_note(f"the server refuses the manifest:\n{refused}")
        raise SystemExit(exit_codes.NO) from None
    if output != TABLE:
        print_value(found, output)
    else:
        for each in found:
            show_preview(each)
        if not found:
            click.echo("no clusters affected", err=True)
    if no_replace and any(each.replaces for each in found):
        click.echo("machines would be replaced", err=True)
        raise SystemExit(exit_codes.DESTROYS)


def _read(files: Sequence[Path], namespace: str) -> list[dict[str, Any]]:
    found = manifest_files.read(files)
    for obj in found:
        if obj["kind"] not in ("Namespace", "NodeDriver"):
            obj["metadata"].setdefault("namespace", namespace)
    return found


def show_preview(found: Preview, *, changes_only: bool = False, err: bool = False) -> None:
    """Print a preview. `changes_only`: count unchanged machines instead of listing them. `err`: to standard error."""
    click.echo(click.style(f"Cluster {found.cluster}{' (new)' if found.new else ''}", bold=True), err=err)
    for wait in found.waits:
        click.echo(f"blocked: {wait}", err=err)
    steps = [step for step in found.steps if not (changes_only and step.action == _KEEP)]
    unchanged = len(found.steps) - len(steps)
    if steps:
        _table([_row(step) for step in steps], err)
    elif not unchanged:
        click.echo("no machines affected", err=err)
    if unchanged:
        click.echo(f"{counted(unchanged, 'machine')} unchanged", err=err)
    if found.etcd.loses_margin:
        click.echo(click.style(_margin(found), fg="red"), err=err)


def losses(previews: Sequence[Preview]) -> str:
    """Return what a change destroys, as the subject of a question; empty if it destroys nothing."""
    steps = [step for each in previews for step in each.steps]
    counts = {
        words: count
        for action, words in (("delete", "deletes"), ("replace", "replaces"))
        if (count := sum(1 for step in steps if step.action == action))
    }
    found = [f"{words} {counted(count, 'machine')}" for words, count in counts.items()]
    found += [_margin(each) for each in previews if each.etcd.loses_margin]
    return "; ".join(found)


def _margin(found: Preview) -> str:
    from remuda.provisioning.preview import tolerated

    before, after = found.etcd.before, found.etcd.after
    return (
        f"etcd of {found.cluster} shrinks from {before} to {counted(after, 'member')}, which "
        f"tolerate{'s' if after == 1 else ''} the failure of {tolerated(after)} instead of {tolerated(before)}"
    )


def _table(rows: list[tuple[str, ...]], err: bool) -> None:
    lines = table_with_reasons(_COLUMNS, rows, terminal_width())
    for text, (_, action, *_) in zip(lines, (_COLUMNS, *rows), strict=True):
        click.echo(text.replace(action, click.style(action, fg=_COLOURS.get(action)), 1), err=err)


def _row(step: Step) -> tuple[str, ...]:
    return (str(step.turn or "-"), step.action, step.pool, step.machine or "(new)", step.why)
