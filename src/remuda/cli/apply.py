"""`remuda apply`: create or update the objects in a manifest. `manifest_apply` decides the order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import exit_codes, manifest_files, progress
from remuda.cli.connection import connected, kubeconfig_option, show_warning
from remuda.cli.options import HELP
from remuda.cli.text_wrap import print_note

if TYPE_CHECKING:
    from remuda.cli.manifest_apply import Applied
    from remuda.kube.http import HttpClient

_MISSING = re.compile(r"there is no (?P<kind>\w+) [^ ]*/(?P<name>[^ ]+) yet")
_COLOURS = {"created": "green", "configured": "yellow"}


@click.command(name="apply", context_settings=HELP)
@manifest_files.files_option()
@click.option("-n", "--namespace", default="", help="Namespace of objects that name none. Default: the kubeconfig's.")
@click.option("--dry-run", is_flag=True, help="Only let the server check the objects; change nothing.")
@click.option("--force-conflicts", is_flag=True, help="Take over fields that another field manager owns.")
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
    """Create or update the objects in a manifest (server-side apply).

    A dry run of all objects comes first: if the server refuses one object, nothing is applied. Namespaces, CRDs and
    drivers are applied first and clusters last, whatever their order in the manifest. --wait waits until its clusters
    are ready. To see what a manifest would do to machines, use `remuda plan`.

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
                _print_outcome(one, " (server dry run)")
            return []
        return await applying.apply(_print_outcome)

    try:
        applied = connected(kubeconfig, work, warn=warnings)
    except ApplyRefused as refused:
        print_note(f"the server refused the manifest; nothing was applied:\n{refused}")
        raise SystemExit(exit_codes.NO) from None
    for one in applied if wait else ():
        if one.resource.is_cluster:
            progress.wait(kubeconfig, *one.key, timeout=timeout)


class _Warnings:
    """Warnings of the server. In the dry run, those about objects that the manifest itself creates are dropped."""

    def __init__(self, objects: Sequence[dict[str, Any]]) -> None:
        self._created = [(str(obj["kind"]), str(obj["metadata"]["name"])) for obj in objects]
        self._held: list[str] | None = []

    def __call__(self, text: str) -> None:
        if self._held is None:
            show_warning(text)
        else:
            self._held.append(text)

    def show(self) -> None:
        for text in self._held or ():
            missing = _MISSING.search(text)
            if missing is None or (missing["kind"], missing["name"]) not in self._created:
                show_warning(text)
        self._held = None


def _print_outcome(one: Applied, note: str = "") -> None:
    name, _, outcome = str(one).rpartition(" ")
    click.echo(f"{name} {click.style(outcome, fg=_COLOURS.get(outcome))}{note}")
