"""`remuda diagnose`: a support bundle in one file, with secrets redacted."""

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
from remuda.cli.exit_codes import clean_up_when_terminated
from remuda.cli.options import HELP, namespace_option
from remuda.cli.output import terminal_width
from remuda.cli.text_wrap import wrapped

if TYPE_CHECKING:
    from remuda.cli.support_data import Found
    from remuda.kube.http import HttpClient

_MOST_LOG = 2 << 20  # bytes from the end of a log
_NEVER = (
    "values of Secrets and ConfigMaps (their keys and sizes are included)",
    "contents of files in plans, and output of instructions, except the last error of the distribution's unit",
    "everything that looks like a token, a password, a key, a kubeconfig or a bootstrap script: replaced by ***",
)


@click.command(name="diagnose", context_settings=HELP)
@click.argument("name", default="", shell_complete=shell_completion.clusters)
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write. Default: remuda-diagnose-NAME-TIME.tar.gz in the current directory.",
)
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Log of the management plane, whose end is included. Repeatable. Default: logs next to its kubeconfig.",
)
@namespace_option("cluster")
@kubeconfig_option
def command(
    name: str, path: Path | None, force: bool, logs: tuple[Path, ...], namespace: str, kubeconfig: Path | None
) -> None:
    """Collect a redacted support bundle of one cluster, or of everything: objects, events, logs of Jobs, plans, output
    of `describe` and `why`, and the versions, health and metrics of the server.

    Every value of a Secret, and everything that looks like a token, a password or a key, is replaced by ***. This
    cannot catch a secret in a name or a label: review the file before you send it. Only you can read it (mode 0600).

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
        found.left_out.append("the log of the management plane: not found; add it with --log FILE")
    texts = {"contents.txt": _contents(name, moment, found), **found.texts}
    try:
        size = bundle.write(path, folder, texts, moment=moment, force=force)
    except bundle.AlreadyThere:
        raise _already_there(path) from None
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror or error}") from None
    click.echo(f"{path}: {size:,} bytes, {len(texts)} files")
    _print_lines(_summary(found))
    click.echo("left out:")
    _print_lines([*_NEVER, *found.left_out])


def _print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        click.echo("\n".join(wrapped(line, terminal_width(), "  ")))


def _check(path: Path, force: bool) -> None:
    """Check that the file can be written, before anything is collected. Raises ClickException."""
    if path.exists() and not force:
        raise _already_there(path)
    if not path.absolute().parent.is_dir():
        raise click.ClickException(f"folder {path.absolute().parent} does not exist")
    if not os.access(path.absolute().parent, os.W_OK):
        raise click.ClickException(f"cannot write to {path.absolute().parent}: choose another file with -o")


def _already_there(path: Path) -> click.ClickException:
    return click.ClickException(f"{path} already exists: overwrite it with --force, or choose another file with -o")


def _logs(named: Sequence[Path], kubeconfig: Path | None) -> dict[str, str]:
    """Return the ends of the logs. Raises ClickException for a log that was named and cannot be read."""
    found = {}
    for path in named or _beside(kubeconfig):
        try:
            with path.open("rb") as file:
                file.seek(max(path.stat().st_size - _MOST_LOG, 0))
                found[f"management/{path.name}"] = file.read().decode("utf-8", "replace")
        except OSError as error:
            if named:
                raise click.ClickException(f"cannot read {path}: {error.strerror}") from None
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
