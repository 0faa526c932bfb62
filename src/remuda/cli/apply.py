"""`remuda apply`: make it so. What is applied, and in which order, is decided in `manifest_apply`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import exit_codes, manifest_files, progress
from remuda.cli.connection import connected, kubeconfig_option, show_warning
from remuda.cli.options import HELP
from remuda.cli.text_wrap import say

if TYPE_CHECKING:
    from remuda.cli.manifest_apply import Applied
    from remuda.kube.http import HttpClient

_MISSING = re.compile(r"there is no (?P<kind>\w+) [^ ]*/(?P<name>[^ ]+) yet")
_COLOURS = {"created": "green", "configured": "yellow"}


@click.command(name="apply", context_settings=HELP)
@manifest_files.files_option()
@click.option("-n", "--namespace", default="", help="Of objects that do not say theirs. Default: the kubeconfig's.")
@click.option("--dry-run", is_flag=True, help="Ask the server what it would do; nothing is changed.")
@click.option("--force-conflicts", is_flag=True, help="Take over fields that somebody else manages.")
@progress.wait_options
@kubeconfig_option
def command(
    files: Sequence[Path],
    namespace: str,
    dry_run: bool,
    force_conflicts: bool,
    wait: bool,
    timeout: float,
    kubeconfig: Path | None,
) -> None:
    """Create what a manifest describes, or change it until it is so (server-side apply).

    All of it is tried first: if the server refuses one object, nothing is applied. Namespaces, definitions and drivers
    go first and clusters last, however the manifest is ordered. --wait waits until its clusters are ready. `remuda
    plan` tells what it would do to the machines.

    \b
      remuda apply -f examples/nano.yaml --wait
      remuda plan -f cluster.yaml && remuda apply -f cluster.yaml
      remuda apply -f pools/ -f cluster.yaml --dry-run
    """
    from remuda.cli.manifest_apply import Applying, ApplyRefused

    objects = manifest_files.read(files)
    warnings = _Warnings(objects)

    async def work(client: HttpClient) -> list[Applied]:
        applying = Applying(client, objects, namespace=namespace, force=force_conflicts)
        try:
            tried = await applying.try_out()
        finally:
            warnings.show()
        if dry_run:
            for one in tried:
                _tell(one, " (server dry run)")
            return []
        return await applying.apply(_tell)

    try:
        applied = connected(kubeconfig, work, warn=warnings)
    except ApplyRefused as refused:
        say(f"refused, and nothing was applied:\n{refused}")
        raise SystemExit(exit_codes.NO) from None
    for one in applied if wait else ():
        if one.resource.is_cluster:
            progress.wait(kubeconfig, *one.key, timeout=timeout)


class _Warnings:
    """The server's. While it is only tried, everything that the manifest brings is missing: that is no news."""

    def __init__(self, objects: Sequence[dict[str, Any]]) -> None:
        self._brought = [(str(obj["kind"]), str(obj["metadata"]["name"])) for obj in objects]
        self._held: list[str] | None = []

    def __call__(self, text: str) -> None:
        if self._held is None:
            show_warning(text)
        else:
            self._held.append(text)

    def show(self) -> None:
        for text in self._held or ():
            missing = _MISSING.search(text)
            if missing is None or (missing["kind"], missing["name"]) not in self._brought:
                show_warning(text)
        self._held = None


def _tell(one: Applied, note: str = "") -> None:
    name, _, outcome = str(one).rpartition(" ")
    click.echo(f"{name} {click.style(outcome, fg=_COLOURS.get(outcome))}{note}")
