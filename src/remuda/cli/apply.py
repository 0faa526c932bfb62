"""`remuda apply`: create or update the objects in a manifest. `manifest_apply` decides the order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import exit_codes, manifest_files, plan, progress
from remuda.cli.confirmation import confirm_losses, yes_option
from remuda.cli.connection import connected, kubeconfig_option, show_warning
from remuda.cli.options import HELP
from remuda.cli.text_wrap import print_note

if TYPE_CHECKING:
    from remuda.cli.manifest_apply import Applied
    from remuda.kube.http import HttpClient
    from remuda.provisioning.preview import Preview

_MISSING = (
    re.compile(r"there is no (?P<kind>\w+) [^ ]*/(?P<name>[^ ]+) yet"),
    re.compile(r"(?P<kind>NodeDriver) (?P<name>[^ ]+) is not registered"),
)
_COLOURS = {"created": "green", "configured": "yellow"}


@click.command(name="apply", context_settings=HELP)
@manifest_files.files_option()
@click.option("-n", "--namespace", default="", help="Namespace of objects that name none. Default: the kubeconfig's.")
@click.option("--dry-run", is_flag=True, help="Only let the server check the objects; change nothing.")
@click.option("--force-conflicts", is_flag=True, help="Take over fields that another field manager owns.")
@yes_option
@progress.wait_options
@kubeconfig_option
def command(
    files: Sequence[Path],
    namespace: str,
    dry_run: bool,
    force_conflicts: bool,
    yes: bool,
    wait: bool,
    timeout: float,
    kubeconfig: Path | None,
) -> None:
    """Create or update the objects in a manifest (server-side apply).

    A dry run of all objects comes first: if the server refuses one object, nothing is applied. Namespaces, CRDs and
    drivers are applied first and clusters last, whatever their order in the manifest. --wait waits until its clusters
    are ready.

    If machines would be deleted or replaced, or etcd would tolerate fewer failures, the command shows the plan and
    asks.
    Without a terminal it applies nothing then and exits with code 3, unless you give --yes. To see the plan of any
    manifest, use `remuda plan`; to get the manifest of what runs, use `remuda export`.

    \b
      remuda apply -f examples/nano.yaml --wait
      remuda plan -f cluster.yaml && remuda apply -f cluster.yaml --yes
      remuda apply -f pools/ -f cluster.yaml --dry-run
    """
    from remuda.cli.manifest_apply import Applying, ApplyRefused

    objects = manifest_files.read(files)
    warnings = _Warnings(objects)

    async def look(client: HttpClient) -> tuple[list[Applied], list[Preview], str]:
        try:
            tried = await Applying(client, objects, namespace=namespace, force=force_conflicts).try_out()
        finally:
            warnings.show()
        return tried, *await _previews(client, tried)

    async def work(client: HttpClient) -> list[Applied]:
        return await Applying(client, objects, namespace=namespace, force=force_conflicts).apply(_print_outcome)

    try:
        tried, previews, unknown = connected(kubeconfig, look, warn=warnings)
    except ApplyRefused as refused:
        print_note(f"the server refused the manifest; nothing was applied:\n{refused}")
        raise SystemExit(exit_codes.NO) from None
    for each in previews:
        if each.destroys:
            plan.show_preview(each, changes_only=True, err=True)
    if dry_run:
        for one in tried:
            _print_outcome(one, " (server dry run)")
        return
    confirm_losses("; ".join(text for text in (plan.losses(previews), unknown) if text), yes=yes)
    applied = connected(kubeconfig, work, warn=warnings)
    for one in applied if wait else ():
        if one.resource.is_cluster:
            progress.wait(kubeconfig, *one.key, timeout=timeout)


async def _previews(client: HttpClient, tried: Sequence[Applied]) -> tuple[list[Preview], str]:
    """Return what the manifest does to the machines of existing clusters, and why that is not known, if so."""
    from remuda.kube.errors import Forbidden
    from remuda.provisioning.preview_loader import PreviewRefused, Previews

    # A cluster that does not exist yet has nothing to lose, and the kinds that it needs may not be served yet.
    known = [one for one in tried if not (one.resource.is_cluster and one.outcome == "created")]
    if all(one.outcome == "unchanged" for one in known):
        return [], ""
    try:
        return await Previews(client).of_objects([one.obj for one in known]), ""
    except (PreviewRefused, Forbidden) as error:
        return [], f"may delete or replace machines, which cannot be predicted: {error}"


class _Warnings:
    """Warnings of the server, each printed once. In the dry run, those about objects that the manifest itself creates
    are dropped."""

    def __init__(self, objects: Sequence[dict[str, Any]]) -> None:
        self._created = [(str(obj["kind"]), str(obj["metadata"]["name"])) for obj in objects]
        self._held: list[str] = []
        self._shown = False

    def __call__(self, text: str) -> None:
        if text in self._held:
            return
        self._held.append(text)
        if self._shown:
            show_warning(text)

    def show(self) -> None:
        """Print the warnings of the dry run; from now on, print others at once."""
        for text in self._held:
            missing = next(filter(None, (pattern.search(text) for pattern in _MISSING)), None)
            if missing is None or (missing["kind"], missing["name"]) not in self._created:
                show_warning(text)
        self._shown = True


def _print_outcome(one: Applied, note: str = "") -> None:
    name, _, outcome = str(one).rpartition(" ")
    click.echo(f"{name} {click.style(outcome, fg=_COLOURS.get(outcome))}{note}")
