"""`remuda artefacts`: the binaries and images of distributions that the manager serves to nodes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli.channels import channels_option
from remuda.cli.connection import kubeconfig_option
from remuda.cli.options import HELP
from remuda.cli.output import JSON, TABLE, YAML, output_option, print_value
from remuda.cli.text_wrap import print_note

if TYPE_CHECKING:
    from remuda.cli.artefact_stores import Store
    from remuda.providers.controlplane.artefacts.administration import StoredArtefact
    from remuda.providers.shared.distros.channels import Channels

_SUM = re.compile("[0-9a-fA-F]{64}", re.ASCII)


def _place(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose the store."""
    options = (
        kubeconfig_option,
        click.option(
            "--data-dir",
            type=click.Path(file_okay=False, path_type=Path),
            help="Use the store in this data directory of a stopped server, instead of the server in the kubeconfig.",
        ),
        click.option(
            "--artefacts",
            "directory",
            type=click.Path(file_okay=False, path_type=Path),
            help="Use this store, which a manager is given with --artefacts, instead of the server in the kubeconfig.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _store(kubeconfig: Path | None, data_dir: Path | None, directory: Path | None) -> Store:
    from remuda.cli.artefact_stores import LocalStore, ServerStore
    from remuda.providers.controlplane.artefacts import Artefacts

    if sum(one is not None for one in (kubeconfig, data_dir, directory)) > 1:
        raise click.UsageError("--kubeconfig, --data-dir and --artefacts exclude each other")
    place = directory or (data_dir / "artefacts" if data_dir is not None else None)
    return ServerStore(kubeconfig) if place is None else LocalStore(Artefacts(place))


@click.group(name="artefacts", context_settings=HELP)
def command() -> None:
    """Manage the binaries and images that the manager serves to nodes.

    The server in the kubeconfig stores them; you must be an administrator there. Nodes install a version from its
    artefacts if the server has them, and otherwise with the distribution's own installer image. For each cluster, this
    is decided when its version is set.

    \b
      remuda artefacts add k3s stable
      remuda artefacts list
      remuda artefacts verify
    """


@command.command(context_settings=HELP)
@click.argument("distro")
@click.argument("version", default="")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="[FILE]...")
@_place
@click.option(
    "--arch",
    default="",
    help="Architecture: amd64, arm64, …. Default: from the names of the files, else this machine's.",
)
@click.option("--sha256", default="", metavar="SUM", help="Expected checksum, if there is one FILE.")
@click.option("--replace", is_flag=True, help="Overwrite a stored file of the same name and version that differs.")
@click.option("--images/--no-images", default=True, show_default=True, help="Download the images of the release, too.")
@channels_option
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
    images: bool,
    channels_file: Path | None,
) -> None:
    """Store the files of one version and architecture of a distribution. VERSION may be a channel, such as stable.

    Without FILEs, the command downloads the release from the URL of its channel, checks it against the checksums of the
    release and stores it. If a download is interrupted, run the command again: it continues where it stopped.

    FILEs must have the names under which they were released. If a release's sha256sum-ARCH.txt is among them, the
    others are checked against it. `add nano [VERSION]` needs no files: the server builds the bundle from its own
    installation, as it also does when a cluster first needs it.

    \b
      remuda artefacts add k3s stable
      remuda artefacts add k3s v1.36.4+k3s1 \\
        k3s k3s-airgap-images-amd64.tar.zst sha256sum-amd64.txt
      remuda artefacts add nano
    """
    from remuda.cli.exit_codes import clean_up_when_terminated
    from remuda.providers.controlplane.artefacts import BadArtefact, nano_bundles
    from remuda.providers.controlplane.artefacts.administration import check_version
    from remuda.providers.controlplane.artefacts.file_names import Unknown
    from remuda.providers.shared.distros import BadVersion

    clean_up_when_terminated()
    store = _store(kubeconfig, data_dir, directory)
    # The server's own channels count only where its own store is meant.
    channels = _Channels(kubeconfig, channels_file, local=data_dir is not None or directory is not None)
    try:
        version = channels.version(distro, version)
        check_version(distro, version)
        if files:
            added = _add_files(store, distro, version, files, arch, sha256, replace)
        elif distro == nano_bundles.DISTRO:
            added = store.pack(version, replace=replace)
        else:
            added = _download(store, distro, version, channels.download(distro, version), arch, images, replace)
    except (BadArtefact, BadVersion, Unknown) as error:
        raise click.ClickException(str(error)) from None
    for artefact in added:
        click.echo(_line(artefact))


class _Channels:
    """Channels, loaded when they are first needed: a version with its files needs none."""

    def __init__(self, kubeconfig: Path | None, file: Path | None, *, local: bool) -> None:
        self._kubeconfig, self._file, self._local = kubeconfig, file, local

    def version(self, distro: str, text: str) -> str:
        """Return the version that a version or a channel means. Raises ClickException."""
        from remuda.providers.controlplane.artefacts import nano_bundles
        from remuda.providers.shared.distros.channels import NoSuchChannel, is_channel

        if not text:
            if distro != nano_bundles.DISTRO:
                raise click.UsageError("missing VERSION, for example stable or v1.36.4+k3s1")
            return nano_bundles.VERSION
        if not is_channel(text):
            return text
        try:
            return self._load().version(distro, text)
        except NoSuchChannel as error:
            raise click.UsageError(str(error)) from None

    def download(self, distro: str, version: str) -> str:
        """Return the URL of the folder with the release's files. Raises ClickException."""
        if url := self._load().download(distro, version):
            return url
        raise click.UsageError(f"missing FILE: the channels name no URL to download {distro} from")

    def _load(self) -> Channels:
        from remuda.cli import channels
        from remuda.providers.shared.distros.channels import shipped

        return shipped() if self._local and self._file is None else channels.load(self._kubeconfig, self._file)


def _download(
    store: Store, distro: str, version: str, url: str, arch: str, images: bool, replace: bool
) -> list[StoredArtefact]:
    """Download what the store lacks of a release, and store it."""
    import shutil

    from remuda.cli import downloads
    from remuda.providers.controlplane.artefacts import file_names, nano_bundles
    from remuda.providers.controlplane.installation import default_archives
    from remuda.providers.shared.distros import of, parse_version

    arch = file_names.architecture(arch) if arch else nano_bundles.architecture()
    parsed = parse_version(version)
    wanted = [file_names.program(distro, arch)]
    wanted += default_archives(of(parsed), parsed, arch) if images else []
    listed = f"{url}/{file_names.list_of_sums(arch)}"
    sums = file_names.sums(downloads.read_text(listed))
    if absent := [name for name in wanted if name not in sums]:
        raise click.ClickException(f"{listed} does not list {', '.join(absent)}")
    names = {name: file_names.named(distro, name).name for name in wanted}
    stored = {one.name: one for one in store.listing().items if (one.version, one.arch) == (version, arch)}
    present = [name for name, short in names.items() if short in stored and stored[short].sha256 == sums[name]]
    for name in present:
        print_note(f"{name}: already stored")
    missing = [name for name in wanted if name not in present]
    folder = downloads.folder() / distro / version / arch
    files = {names[name]: downloads.fetch(f"{url}/{name}", folder / name, sums[name]) for name in missing}
    added = [stored[names[name]] for name in present]
    if files:
        added += store.add(distro, version, arch, files, {names[name]: sums[name] for name in missing}, replace=replace)
    shutil.rmtree(folder, ignore_errors=True)
    return added


def _add_files(
    store: Store, distro: str, version: str, files: tuple[Path, ...], arch: str, sha256: str, replace: bool
) -> list[StoredArtefact]:
    from remuda.providers.controlplane.artefacts import file_names, nano_bundles

    lists = [file for file in files if file_names.is_list_of_sums(file.name)]
    given = [file for file in files if file not in lists]
    if not given:
        raise click.UsageError("missing FILE: name the files to add")
    if sha256 and (len(given) > 1 or not _SUM.fullmatch(sha256)):
        raise click.UsageError("--sha256 takes 64 hexadecimal digits, and needs exactly one file")
    expected = {
        name: value for file in lists for name, value in file_names.sums(file.read_text("utf-8", "replace")).items()
    }
    wanted: dict[str, Path] = {}
    sums: dict[str, str] = {}
    architectures: set[str] = {file_names.architecture(arch)} if arch else set()
    for file in given:
        found = file_names.named(distro, file.name)
        if found.name in wanted:
            raise click.UsageError(f"{wanted[found.name]} and {file} would both be stored as {found.name}")
        architectures |= {found.arch} - {""}
        wanted[found.name] = file
        if lists and file.name not in expected:
            raise click.ClickException(f"{file.name} is not listed in {', '.join(map(str, lists))}")
        if sha256 or file.name in expected:
            sums[found.name] = sha256 or expected[file.name]
    if len(architectures) > 1:
        raise click.UsageError(f"the files and --arch name several architectures: {', '.join(sorted(architectures))}")
    return store.add(
        distro, version, next(iter(architectures), nano_bundles.architecture()), wanted, sums, replace=replace
    )


@command.command(name="list", context_settings=HELP)
@_place
@output_option(TABLE, JSON, YAML)
def list_artefacts(kubeconfig: Path | None, data_dir: Path | None, directory: Path | None, output: str) -> None:
    """List all stored artefacts.

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
        print_note(f"no artefacts in {found.directory}; add some with `remuda artefacts add`")


@command.command(context_settings=HELP)
@_place
def verify(kubeconfig: Path | None, data_dir: Path | None, directory: Path | None) -> None:
    """Recompute every checksum. Exit code 1: some files are damaged or missing.

    \b
      remuda artefacts verify
    """
    store = _store(kubeconfig, data_dir, directory)
    wrong = 0
    for artefact in store.listing().items:
        problem = store.verify(artefact)
        wrong += bool(problem)
        click.echo(f"{artefact}: {problem or 'ok'}")
    if wrong:
        raise click.ClickException(f"nodes would refuse {wrong} of these files; add them again with --replace")


def _line(artefact: StoredArtefact) -> str:
    return f"{artefact}  {artefact.bytes / 1e6:.1f} MB  sha256 {artefact.sha256}"
