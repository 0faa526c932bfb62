"""`remuda artefacts`: what nodes install distributions from, kept where the manager serves it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.cli.connection import DATA_DIR
from remuda.cli.options import HELP
from remuda.cli.output import JSON, TABLE, YAML, output_option, print_value
from remuda.cli.wording import say

if TYPE_CHECKING:
    from remuda.providers.controlplane.artefacts import Artefact, Artefacts

_SUM = re.compile("[0-9a-fA-F]{64}", re.ASCII)

_place = (
    click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help=f"Of `remuda up`, or of a manager: they are in its folder artefacts. Default: ./{DATA_DIR}.",
    ),
    click.option(
        "--artefacts",
        "directory",
        type=click.Path(file_okay=False, path_type=Path),
        help="The folder itself, as the manager's option of the same name says it.",
    ),
)


def _store(data_dir: Path | None, directory: Path | None) -> Artefacts:
    from remuda.providers.controlplane.artefacts import Artefacts

    if data_dir is not None and directory is not None:
        raise click.UsageError("either --data-dir or --artefacts says where artefacts are kept")
    return Artefacts(_folder(data_dir, directory))


def _folder(data_dir: Path | None, directory: Path | None) -> Path:
    return directory or (data_dir or DATA_DIR) / "artefacts"


@click.group(name="artefacts", context_settings=HELP)
def command() -> None:
    """What nodes install distributions from: binaries and images that the manager serves.

    A version whose artefacts are here is installed from them; any other by the distribution's own installer image. The
    manager may be running: it notices what comes. A cluster keeps to what there was when its version was chosen.

    \b
      remuda artefacts add k3s v1.36.4+k3s1 k3s sha256sum-amd64.txt
      remuda artefacts list
      remuda artefacts verify
    """


@command.command(context_settings=HELP)
@click.argument("distro")
@click.argument("version", default="")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="[FILE]...")
@_place[0]
@_place[1]
@click.option(
    "--arch", default="", help="amd64, arm64, …. Default: what the names of the files say, else this machine's."
)
@click.option("--sha256", default="", metavar="SUM", help="What the checksum of the one FILE must be.")
@click.option("--replace", is_flag=True, help="Also where other bytes are kept under the same name and version.")
def add(
    distro: str,
    version: str,
    files: tuple[Path, ...],
    data_dir: Path | None,
    directory: Path | None,
    arch: str,
    sha256: str,
    replace: bool,
) -> None:
    """Keep files of a distribution, under one version and architecture.

    Files are known by the names they have where they are released. With a release's sha256sum-ARCH.txt among them, they
    are checked against it. `add nano [VERSION]` needs no file: the bundle is made of this installation, as it is by
    itself when a cluster wants it.

    \b
      remuda artefacts add k3s v1.36.4+k3s1 \\
        k3s k3s-airgap-images-amd64.tar.zst sha256sum-amd64.txt
      remuda artefacts add nano
    """
    from remuda.cli.signals import clean_up_when_terminated
    from remuda.providers.controlplane.artefacts import BadArtefact, packing
    from remuda.providers.controlplane.artefacts.naming import Unknown
    from remuda.providers.controlplane.distros import BadVersion

    clean_up_when_terminated()
    store = _store(data_dir, directory)
    try:
        _check_version(distro, version or _default_version(distro))
        if distro == packing.DISTRO and not files:
            added = packing.pack(store, version or packing.VERSION, replace=replace)
        else:
            added = _add_files(store, distro, version, files, arch, sha256, replace)
    except (BadArtefact, BadVersion, Unknown) as error:
        raise click.ClickException(str(error)) from None
    for artefact in added:
        click.echo(_line(store, artefact))


def _default_version(distro: str) -> str:
    from remuda.providers.controlplane.artefacts import packing

    if distro != packing.DISTRO:
        raise click.UsageError("the version is missing, for example v1.36.4+k3s1")
    return packing.VERSION


def _check_version(distro: str, version: str) -> None:
    from remuda.providers.controlplane.distros import BadVersion, parse_version

    parsed = parse_version(version)
    if parsed.distro != distro:
        raise BadVersion(f"{version} is a version of {parsed.distro}, not of {distro}")


def _add_files(
    store: Artefacts, distro: str, version: str, files: tuple[Path, ...], arch: str, sha256: str, replace: bool
) -> list[Artefact]:
    from remuda.providers.controlplane.artefacts import bundle, naming

    lists = [file for file in files if naming.is_list_of_sums(file.name)]
    given = [file for file in files if file not in lists]
    if not given:
        raise click.UsageError("which files?")
    if sha256 and (len(given) > 1 or not _SUM.fullmatch(sha256)):
        raise click.UsageError("--sha256 is 64 hexadecimal digits, and for one file")
    promised = {
        name: value for file in lists for name, value in naming.sums(file.read_text("utf-8", "replace")).items()
    }
    wanted: dict[str, Path] = {}
    sums: dict[str, str] = {}
    told: set[str] = {naming.architecture(arch)} if arch else set()
    for file in given:
        found = naming.named(distro, file.name)
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
    return store.add(distro, version, next(iter(told), bundle.architecture()), wanted, sums=sums, replace=replace)


@command.command(name="list", context_settings=HELP)
@_place[0]
@_place[1]
@output_option(TABLE, JSON, YAML)
def list_artefacts(data_dir: Path | None, directory: Path | None, output: str) -> None:
    """All that is kept, each in a line.

    \b
      remuda artefacts list
      remuda artefacts list -o json
    """
    import msgspec

    store = _store(data_dir, directory)
    found = list(store.every())
    if output != TABLE:
        print_value([{**msgspec.to_builtins(one), "bytes": store.size(one)} for one in found], output)
        return
    for artefact in found:
        click.echo(_line(store, artefact))
    if not found:
        say(f"nothing is kept in {_folder(data_dir, directory)}: `remuda artefacts add` puts something there")


@command.command(context_settings=HELP)
@_place[0]
@_place[1]
def verify(data_dir: Path | None, directory: Path | None) -> None:
    """Compute every checksum anew. Ends with 1 if anything is not what it was.

    \b
      remuda artefacts verify --data-dir /var/lib/remuda
    """
    store = _store(data_dir, directory)
    wrong = 0
    for artefact in store.every():
        trouble = store.verify(artefact)
        wrong += bool(trouble)
        click.echo(f"{artefact}: {trouble or 'as it was'}")
    if wrong:
        raise click.ClickException(f"{wrong} of them would be refused by nodes: add them again with --replace")


def _line(store: Artefacts, artefact: Artefact) -> str:
    return f"{artefact}  {store.size(artefact) / 1e6:.1f} MB  sha256 {artefact.sha256}"
