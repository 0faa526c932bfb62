"""`remuda channels`: the versions that names such as `stable` stand for; and the lookup of the channels to use.

A file given by --channels or $REMUDA_CHANNELS wins, then the ConfigMap of the management plane, then the channels that
this package ships.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli.connection import connected, kubeconfig_option
from remuda.cli.options import HELP
from remuda.cli.output import JSON, TABLE, YAML, output_option, print_table, print_value
from remuda.cli.text_wrap import print_note

if TYPE_CHECKING:
    from remuda.kube.client import Target
    from remuda.kube.http import HttpClient
    from remuda.providers.shared.distros.channels import Channels

Json = dict[str, Any]

NAMESPACE, NAME, KEY = "kube-public", "remuda-channels", "channels.yaml"
_ANSWER_SECONDS = 10.0
_SHIPPED = "this installation of remuda"

channels_option = click.option(
    "--channels",
    "channels_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="REMUDA_CHANNELS",
    show_envvar=True,
    help="File of channels to use. Default: those of the management plane, else those of this installation.",
)


def from_file(path: Path) -> Channels:
    """Raises ClickException."""
    from remuda.providers.shared.distros.channels import BadChannels, parse

    try:
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        raise click.ClickException(f"cannot read {path}: {error.strerror}") from None
    except BadChannels as error:
        raise click.ClickException(str(error)) from None


def load(kubeconfig: Path | None, file: Path | None) -> Channels:
    """Return the channels to use. A management plane that does not answer is no error."""
    return _found(kubeconfig, file)[0]


def _found(kubeconfig: Path | None, file: Path | None) -> tuple[Channels, str]:
    """Return the channels, and where they come from."""
    from remuda.cli.connection import NoManagementPlane

    if file is not None:
        return from_file(file), str(file)
    try:
        found = connected(kubeconfig, of_server, timeout_seconds=_ANSWER_SECONDS)
    except NoManagementPlane:
        found = None
    if found is not None:
        return found, f"ConfigMap {NAMESPACE}/{NAME}"
    from remuda.providers.shared.distros.channels import shipped

    return shipped(), _SHIPPED


async def of_server(client: HttpClient) -> Channels | None:
    """Return the channels that an administrator has set; None if there are none. Raises ClickException."""
    import msgspec

    from remuda.kube.core import CONFIG_MAPS
    from remuda.kube.errors import StatusError
    from remuda.providers.shared.distros.channels import BadChannels, parse

    try:
        found = msgspec.json.decode(await client.get(CONFIG_MAPS, NAMESPACE, NAME))
    except StatusError:  # it does not exist, or this user may not read it
        return None
    try:
        return parse(((found.get("data") or {}).get(KEY) or "").encode(), f"ConfigMap {NAMESPACE}/{NAME}: {KEY}")
    except BadChannels as error:
        raise click.ClickException(f"{error}. Replace it with `remuda channels update FILE`") from None


@click.group(name="channels", context_settings=HELP)
def command() -> None:
    """Manage the versions that names such as `stable` stand for.

    Commands that take a Kubernetes version also take a channel: `stable`, `latest`, or a minor version such as
    `v1.36`. They resolve it when they run; a cluster keeps its version until you upgrade it.

    \b
      remuda channels list
      remuda channels list -o yaml > channels.yaml
      remuda channels update channels.yaml
    """


@command.command(name="list", context_settings=HELP)
@channels_option
@output_option(TABLE, JSON, YAML)
@kubeconfig_option
def list_channels(channels_file: Path | None, output: str, kubeconfig: Path | None) -> None:
    """List the channels in use, and where they come from.

    \b
      remuda channels list
      remuda channels list -o yaml > channels.yaml
    """
    import msgspec

    found, origin = _found(kubeconfig, channels_file)
    if output != TABLE:
        print_value(msgspec.to_builtins(found), output)
        return
    rows = [
        [distro, channel, version]
        for distro, one in found.distributions.items()
        for channel, version in one.channels.items()
    ]
    print_table(["DISTRIBUTION", "CHANNEL", "VERSION"], rows)
    date = f" of {found.date}" if found.date else ""
    print_note(f"from {origin}{date}" + (f": {found.source}" if found.source else ""))


@command.command(context_settings=HELP)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@kubeconfig_option
def update(file: Path, kubeconfig: Path | None) -> None:
    """Replace the channels of the management plane with those of FILE, for all its users.

    They are stored in the ConfigMap remuda-channels of the namespace kube-public, which every user may read.

    \b
      remuda channels list -o yaml > channels.yaml
      remuda channels update channels.yaml
    """
    text = file.read_bytes()
    from_file(file)

    async def write(client: HttpClient) -> None:
        from remuda.cli.manifest_apply import MANAGER

        for obj in _objects(text.decode()):
            await client.patch(_target(obj), NAMESPACE, NAME, obj, kind="apply", field_manager=MANAGER, force=True)

    connected(kubeconfig, write)
    click.echo(f"channels updated from {file}")


@command.command(context_settings=HELP)
@kubeconfig_option
def reset(kubeconfig: Path | None) -> None:
    """Remove the channels of the management plane: commands use those of their installation again.

    \b
      remuda channels reset
    """

    async def remove(client: HttpClient) -> None:
        from remuda.kube.errors import ignore_not_found

        for obj in reversed(_objects("")):
            with ignore_not_found():
                await client.delete(_target(obj), NAMESPACE, NAME)

    connected(kubeconfig, remove)
    click.echo("channels reset: commands use those of their installation")


def _target(obj: Json) -> Target:
    from remuda.kube.client import Target

    return Target(obj["apiVersion"], f"{obj['kind'].lower()}s")


def _objects(text: str) -> list[Json]:
    """Return the ConfigMap, and the right of every user to read it."""
    rbac, metadata = "rbac.authorization.k8s.io", {"name": NAME, "namespace": NAMESPACE}
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [NAME], "verbs": ["get"]}]
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: text}},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": NAME},
            "subjects": [{"apiGroup": rbac, "kind": "Group", "name": "system:authenticated"}],
        },
    ]
