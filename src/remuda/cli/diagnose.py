"""`remuda diagnose`: what somebody who helps needs to see, in one file, without secrets."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

import remuda
from remuda.cli import shell_completion
from remuda.cli.connection import chosen_kubeconfig, connected, kubeconfig_option
from remuda.cli.describe import no_such_cluster
from remuda.cli.options import HELP, namespace_option
from remuda.cli.output import terminal_width
from remuda.cli.signals import clean_up_when_terminated
from remuda.cli.text_wrap import wrapped

if TYPE_CHECKING:
    from remuda.cli.support_data import Found
    from remuda.kube.http import HttpClient

_MOST_LOG = 2 << 20  # bytes of a log: its end
_NEVER = (
    "values of Secrets and ConfigMaps (their keys and sizes are there)",
    "contents of files in plans, and what instructions printed, but for the last error of the distribution's unit",
    "everything that looks like a token, a password, a key, a kubeconfig or a bootstrap script: *** stands for it",
)


@click.command(name="diagnose", context_settings=HELP)
@click.argument("name", default="", shell_complete=shell_completion.clusters)
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file. Default: remuda-diagnose-NAME-TIME.tar.gz, here.",
)
@click.option("--force", is_flag=True, help="Overwrite it, if it is there.")
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="A log of the management plane, whose end goes along. Default: those beside its kubeconfig, if any.",
)
@namespace_option("cluster")
@kubeconfig_option
def command(
    name: str, path: Path | None, force: bool, logs: tuple[Path, ...], namespace: str, kubeconfig: Path | None
) -> None:
    """Gather what is known of a cluster, or of everything, in one file for whoever helps: objects, events, logs of
    Jobs, plans, what `describe` and `why` say, versions, health and metrics of the server.

    Secrets stay here: every value of a Secret, and whatever looks like a token, a password or a key, is replaced by
    ***. It is a net, not a promise, for what somebody wrote into a name or a label: look before you send it. The file
    can be read by you alone (0600).

    \b
      remuda diagnose prairie
      remuda diagnose -o everything.tar.gz
      remuda diagnose prairie --log /var/log/remuda.log -o prairie.tar.gz --force
      tar -tzf prairie.tar.gz
    """
    from remuda.cli import bundle
    from remuda.cli.support_data import Gathering
    from remuda.kube import clock
    from remuda.kube.objects import Key
    from remuda.provisioning import tree_loader

    clean_up_when_terminated()
    moment = clock.time()
    folder = f"remuda-diagnose-{name or 'everything'}-{_stamp(moment)}"
    path = path or Path(f"{folder}.tar.gz")
    _check(path, force)
    own = _logs(logs, kubeconfig)

    async def gather(client: HttpClient) -> Found:
        cluster = Key(await tree_loader.find(client, namespace, name), name) if name else None
        return await Gathering(client, cluster).gather(own)

    try:
        found = connected(kubeconfig, gather)
    except tree_loader.NoSuchCluster as error:
        raise no_such_cluster(error) from None
    if not own:
        found.left_out.append("the log of the management plane: it is not at hand; --log FILE takes it along")
    texts = {"contents.txt": _contents(name, moment, found), **found.texts}
    try:
        size = bundle.write(path, folder, texts, moment=moment, force=force)
    except bundle.AlreadyThere:
        raise _already_there(path) from None
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror or error}") from None
    click.echo(f"{path}: {size:,} bytes, {len(texts)} files")
    _tell(_summary(found))
    click.echo("left out:")
    _tell([*_NEVER, *found.left_out])


def _tell(lines: Sequence[str]) -> None:
    for line in lines:
        click.echo("\n".join(wrapped(line, terminal_width(), "  ")))


def _check(path: Path, force: bool) -> None:
    """Before anything is asked of anybody. Raises ClickException."""
    if path.exists() and not force:
        raise _already_there(path)
    if not path.absolute().parent.is_dir():
        raise click.ClickException(f"there is no folder {path.absolute().parent}")
    if not os.access(path.absolute().parent, os.W_OK):
        raise click.ClickException(f"nothing can be written to {path.absolute().parent}: choose another place with -o")


def _already_there(path: Path) -> click.ClickException:
    return click.ClickException(f"{path} is there already: --force overwrites it, -o names another one")


def _logs(named: Sequence[Path], kubeconfig: Path | None) -> dict[str, str]:
    """The ends of them. Raises ClickException for one that was named and cannot be read."""
    found = {}
    for path in named or _beside(kubeconfig):
        try:
            with path.open("rb") as file:
                file.seek(max(path.stat().st_size - _MOST_LOG, 0))
                found[f"management/{path.name}"] = file.read().decode("utf-8", "replace")
        except OSError as error:
            if named:
                raise click.ClickException(f"{path} cannot be read: {error.strerror}") from None
    return found


def _beside(kubeconfig: Path | None) -> list[Path]:
    from remuda.kube.kubeconfig import KubeconfigError

    try:
        path, _ = chosen_kubeconfig(kubeconfig)
    except (KubeconfigError, click.ClickException):
        return []
    if path.name != "admin.kubeconfig" or not (path.parent / "state.db").exists():  # not a data directory of ours
        return []
    return sorted(path.parent.glob("*.log"))


def _stamp(moment: float) -> str:
    from remuda.kube import clock

    return "".join(char for char in clock.rfc3339(moment) if char.isalnum())


def _summary(found: Found) -> list[str]:
    kinds = Counter(name.partition("/")[0] for name in found.texts)
    return [f"{name}{f' ({count} files)' if count > 1 else ''}" for name, count in sorted(kinds.items())]


def _contents(name: str, moment: float, found: Found) -> str:
    import platform

    from remuda.kube import clock

    lines = [
        f"remuda diagnose {name}".rstrip() + f", {clock.rfc3339(moment)}",
        f"remuda {remuda.__version__}, Python {platform.python_version()}, {platform.platform()}",
        "",
        *found.texts,
        "",
        "left out:",
        *(f"  {line}" for line in (*_NEVER, *found.left_out)),
    ]
    return "\n".join(lines) + "\n"
