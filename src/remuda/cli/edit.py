"""`remuda edit`: change a declared Cluster in an editor.

The change is checked by the server and shown as a plan before anything is written. Changes that other users make in the
meantime are kept: only fields that were edited are sent, and an edit of a spec that has changed is refused.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli import cluster_edits, exit_codes, manifest_files, plan, progress, yaml_output
from remuda.cli.confirmation import confirm_losses, yes_option
from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP, namespace_option
from remuda.cli.subjects import CommandSubject, subject_argument
from remuda.cli.text_wrap import print_note

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.provisioning.preview import Preview

Json = dict[str, Any]

_OTHERWISE = "edit them one by one: kubectl edit clusters.cluster.x-k8s.io {name} -n {namespace}"
_HEAD = """\
# Edit the cluster, save and close the editor. The effect on each machine is shown before anything is changed.
# Close it without a change, or leave an empty file, to stop.
"""
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@click.command(name="edit", context_settings=HELP)
@subject_argument("cluster")
@namespace_option("cluster")
@progress.wait_options
@yes_option
@kubeconfig_option
def command(
    subject: CommandSubject, namespace: str, wait: bool, timeout: float, yes: bool, kubeconfig: Path | None
) -> None:
    """Edit a declared cluster in $VISUAL or $EDITOR, as `kubectl edit` does.

    The server checks the change, and the command shows its effect on each machine. If machines are deleted or replaced,
    it asks for confirmation; without a terminal it then needs --yes (otherwise exit code 3). A change that the server
    refuses is opened again.

    \b
      remuda edit prairie
      EDITOR=nano remuda edit cluster/prairie --wait
    """
    cluster = connected(kubeconfig, lambda client: cluster_edits.find(client, namespace, subject.name, _OTHERWISE))
    before = manifest(cluster)
    text = yaml_output.dump(before)
    while True:
        text = _edited(text)
        try:
            wanted = _read(text, before)
            found = _checked(kubeconfig, cluster, edit_patch(cluster, before, wanted))
        except click.ClickException as error:
            print_note(f"Error: {error.format_message()}")
            if sys.stdin.isatty() and click.confirm("Edit again?", default=True, err=True):
                continue
            raise click.ClickException(f"nothing was changed; your edit is saved in {_saved(text)}") from None
        break
    if found is None:
        print_note("nothing was changed")
        return
    plan.show_preview(found, changes_only=True)
    try:
        confirm_losses(plan.losses([found]), yes=yes)
    except SystemExit:
        print_note(f"your edit is saved in {_saved(text)}")
        raise
    connected(kubeconfig, lambda client: _carry_out(client, cluster, before, wanted), warn=lambda text: None)
    key = before["metadata"]["namespace"], before["metadata"]["name"]
    click.echo(f"Cluster {'/'.join(key)} edited")
    if wait:
        progress.wait(kubeconfig, *key, timeout=timeout)


def manifest(cluster: Json) -> Json:
    """Return the parts of a Cluster that a user edits."""
    given = cluster["metadata"]
    metadata = {key: given[key] for key in ("name", "namespace", "labels") if given.get(key)}
    notes = {key: value for key, value in (given.get("annotations") or {}).items() if key != _LAST_APPLIED}
    if notes:
        metadata["annotations"] = notes
    return {
        "apiVersion": cluster["apiVersion"],
        "kind": cluster["kind"],
        "metadata": metadata,
        "spec": cluster.get("spec") or {},
    }


def edit_patch(cluster: Json, before: Json, wanted: Json) -> list[Json]:
    """Return the JSON patch from one manifest to another; empty if they are equal.

    It tests that the spec is still the one that was edited.
    """
    found: list[Json] = []
    if before["spec"] != wanted.get("spec"):
        found += [
            {"op": "test", "path": "/spec", "value": cluster.get("spec") or {}},
            {"op": "replace", "path": "/spec", "value": wanted.get("spec") or {}},
        ]
    for part in ("labels", "annotations"):
        old, new = before["metadata"].get(part) or {}, wanted["metadata"].get(part) or {}
        if old == new:
            continue
        if part not in cluster["metadata"]:
            found.append({"op": "add", "path": f"/metadata/{part}", "value": {}})
        for key in sorted(old.keys() | new.keys()):
            path = f"/metadata/{part}/{key.replace('~', '~0').replace('/', '~1')}"
            if key not in new:
                found.append({"op": "remove", "path": path})
            elif old.get(key) != new[key]:
                found.append({"op": "add", "path": path, "value": new[key]})
    same = {"op": "test", "path": "/metadata/uid", "value": cluster["metadata"]["uid"]}
    return [same, *found] if found else []


def _checked(kubeconfig: Path | None, cluster: Json, patch: list[Json]) -> Preview | None:
    """Return what the patch does; None if it is empty. Raises ClickException if the server refuses it."""
    return connected(kubeconfig, lambda client: cluster_edits.preview(client, cluster, patch)) if patch else None


async def _carry_out(client: HttpClient, cluster: Json, before: Json, wanted: Json) -> None:
    """Apply the edit to the current object. Raises ClickException if its spec has changed meanwhile."""

    def change(current: Json) -> list[Json]:
        if before["spec"] != wanted.get("spec") and (current.get("spec") or {}) != (cluster.get("spec") or {}):
            raise click.ClickException(
                f"cluster {before['metadata']['name']} was changed by somebody else in the meantime; nothing was "
                f"changed, and your edit is saved in {_saved(yaml_output.dump(wanted))}"
            )
        return edit_patch(current, before, wanted)

    await cluster_edits.carry_out(client, cluster, change)


def _edited(text: str) -> str:
    """Return the text as the user saved it; stop if it is empty or was not saved."""
    found = click.edit(_HEAD + text, extension=".yaml", require_save=False)
    lines = [line for line in (found or "").splitlines(keepends=True) if not line.startswith("#")]
    if not "".join(lines).strip():
        print_note("nothing was changed")
        raise SystemExit(exit_codes.NO)
    return "".join(lines)


def _read(text: str, before: Json) -> Json:
    """Return the edited manifest. Raises ClickException."""
    objects = manifest_files.parse(text, "the edited manifest")
    if len(objects) != 1:
        raise click.ClickException("the edited manifest must have one object: the Cluster")
    (found,) = objects
    for path in (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")):
        old: Any = before
        new: Any = found
        for key in path:
            old, new = old[key], new.get(key)
        if old != new:
            raise click.ClickException(f"{'.'.join(path)} cannot be changed: it is {old}")
    return found


def _saved(text: str) -> Path:
    handle, path = tempfile.mkstemp(prefix="remuda-edit-", suffix=".yaml")  # readable by its owner only
    with os.fdopen(handle, "w") as file:
        file.write(text)
    return Path(path)
