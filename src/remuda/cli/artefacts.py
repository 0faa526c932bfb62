"""`remuda artefacts`: files that nodes install distributions from, kept where the manager serves them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli.connection import kubeconfig_option
from remuda.cli.options import HELP
from remuda.cli.output import JSON, TABLE, YAML, output_option, print_value
from remuda.cli.text_wrap import say

if TYPE_CHECKING:
    from remuda.cli.artefact_stores import Store
    from remuda.providers.controlplane.artefacts.administration import Kept

_SUM = re.compile("[0-9a-fA-F]{64}", re.ASCII)


def _place(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say which store."""
    options = (
        kubeconfig_option,
        click.option(
            "--data-dir",
            type=click.Path(file_okay=False, path_type=Path),
            help="Work on this folder of a server that does not run, not on the server of the kubeconfig.",
        ),
        click.option(
            "--artefacts",
            "directory",
            type=click.Path(file_okay=False, path_type=Path),
            help="The same, where the manager's option --artefacts names a folder.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _store(kubeconfig: Path | None, data_dir: Path | None, directory: Path | None) -> Store:
    from remuda.cli.artefact_stores import LocalStore, ServerStore
    from remuda.providers.controlplane.artefacts import Artefacts

    if sum(one is not None for one in (kubeconfig, data_dir, directory)) > 1:
        raise click.UsageError("only one of --kubeconfig, --data-dir and --artefacts says where artefacts are kept")
    place = directory or (data_dir / "artefacts" if data_dir is not None else None)
    return ServerStore(kubeconfig) if place is None else LocalStore(Artefacts(place))


@click.group(name="artefacts", context_settings=HELP)
def command() -> None:
    """Manage the binaries and images that the manager serves to nodes.

    The server that the kubeconfig names keeps them, and you must be an administrator there. A version whose artefacts
    it has is installed from them; any other by the distribution's own installer image. A cluster keeps to what there
    was when its version was chosen.

    \b
      remuda artefacts add k3s v1.36.4+k3s1 k3s sha256sum-amd64.txt
      remuda artefacts list
      remuda artefacts verify
    """


@command.command(context_settings=HELP)
@click.argument("distro")
@click.argument("version", default="")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="[FILE]...")
@_place
@click.option(
    "--arch", default="", help="amd64, arm64, …. Default: what the names of the files say, else this machine's."
)
@click.option("--sha256", default="", metavar="SUM", help="What the checksum of the one FILE must be.")
@click.option("--replace", is_flag=True, help="Also where other bytes are kept under the same name and version.")
def add(
    distro: str,
    version: str,
    files: tuple[Path, ...],
    kubeconfig: Path | None,
    data_dir: Path | None,
    directory: Path | None,
    arch: str,
    sha256: str,
    replace: bool,
) -> None:
    """Keep files of a distribution, under one version and architecture.

    Files are known by the names they have where they are released. With a release's sha256sum-ARCH.txt among them, they
    are checked against it. `add nano [VERSION]` needs no file: the server makes the bundle of its own installation, as
    it does by itself when a cluster wants it.

    \b
      remuda artefacts add k3s v1.36.4+k3s1 \\
        k3s k3s-airgap-images-amd64.tar.zst sha256sum-amd64.txt
      remuda artefacts add nano
    """
    from remuda.cli.signals import clean_up_when_terminated
    from remuda.providers.controlplane.artefacts import BadArtefact, nano_bundles
    from remuda.providers.controlplane.artefacts.administration import check_version
    from remuda.providers.controlplane.artefacts.file_names import Unknown
    from remuda.providers.shared.distros import BadVersion

    clean_up_when_terminated()
    store = _store(kubeconfig, data_dir, directory)
    try:
        check_version(distro, version or _default_version(distro))
        if distro == nano_bundles.DISTRO and not files:
            added = store.pack(version or nano_bundles.VERSION, replace=replace)
        else:
            added = _add_files(store, distro, version, files, arch, sha256, replace)
    except (BadArtefact, BadVersion, Unknown) as error:
        raise click.ClickException(str(error)) from None
    for artefact in added:
        click.echo(_line(artefact))


def _default_version(distro: str) -> str:
    from remuda.providers.controlplane.artefacts import nano_bundles

    if distro != nano_bundles.DISTRO:
        raise click.UsageError("the version is missing, for example v1.36.4+k3s1")
    return nano_bundles.VERSION


def _add_files(
    store: Store, distro: str, version: str, files: tuple[Path, ...], arch: str, sha256: str, replace: bool
) -> list[Kept]:
    from remuda.providers.controlplane.artefacts import bundle, file_names

    lists = [file for file in files if file_names.is_list_of_sums(file.name)]
    given = [file for file in files if file not in lists]
    if not given:
        raise click.UsageError("which files?")
    if sha256 and (len(given) > 1 or not _SUM.fullmatch(sha256)):
        raise click.UsageError("--sha256 is 64 hexadecimal digits, and for one file")
    promised = {
        name: value for file in lists for name, value in file_names.sums(file.read_text("utf-8", "replace")).items()
    }
    wanted: dict[str, Path] = {}
    sums: dict[str, str] = {}
    told: set[str] = {file_names.architecture(arch)} if arch else set()
    for file in given:
        found = file_names.named(distro, file.name)
        if found.name in wanted:
            raise click.UsageError(f"{wanted[found.name]} and {file} are both {found.name}")
        told |= {found.arch} - {""}
        wanted[found.name] = file
        if lists and file.name not in promised:
            raise click.ClickException(f"{file.name} is not in {', '.join(map(str, lists))}")
        if sha256 or file.name in promised:
            sums[found.name] = sha256 or promised[file.name]
    if len(told) > 1:
        raise click.UsageError(f"the files, or --arch, are of more than one architecture: {', '.join(sorted(told))}")
    return store.add(distro, version, next(iter(told), bundle.architecture()), wanted, sums, replace=replace)


@command.command(name="list", context_settings=HELP)
@_place
@output_option(TABLE, JSON, YAML)
def list_artefacts(kubeconfig: Path | None, data_dir: Path | None, directory: Path | None, output: str) -> None:
    """List all that is kept, each in a line.

    \b
      remuda artefacts list
      remuda artefacts list -o json
    """
    import msgspec

    found = _store(kubeconfig, data_dir, directory).listing()
    if output != TABLE:
        print_value(msgspec.to_builtins(found.items), output)
        return
    for artefact in found.items:
        click.echo(_line(artefact))
    if not found.items:
        say(f"nothing is kept in {found.directory}: `remuda artefacts add` puts something there")


@command.command(context_settings=HELP)
@_place
def verify(kubeconfig: Path | None, data_dir: Path | None, directory: Path | None) -> None:
    """Compute every checksum anew. Ends with 1 if anything is not what it was.

    \b
      remuda artefacts verify
    """
    store = _store(kubeconfig, data_dir, directory)
    wrong = 0
    for artefact in store.listing().items:
        trouble = store.verify(artefact)
        wrong += bool(trouble)
        click.echo(f"{artefact}: {trouble or 'as it was'}")
    if wrong:
        raise click.ClickException(f"{wrong} of them would be refused by nodes: add them again with --replace")


def _line(artefact: Kept) -> str:
    return f"{artefact}  {artefact.bytes / 1e6:.1f} MB  sha256 {artefact.sha256}"
