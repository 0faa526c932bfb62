"""Defaults of commands: the driver and the version of a new cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from remuda.cli.connection import chosen_kubeconfig, show_warning

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.providers.shared.distros.channels import Channels

DISTRIBUTIONS = ("k3s", "rke2", "nano")
_LOCAL = "process"
_EXAMPLES = {"k3s": "v1.36.4+k3s1", "rke2": "v1.36.4+rke2r1", "nano": "v1.36.4+nano1"}
_ANSWER_SECONDS = 10.0  # the list is a hint: not worth a longer wait


def driver(kubeconfig: Path | None) -> str:
    """Return the default driver: nspawn where it works, else process, which works everywhere.

    nspawn needs root, on the machine of a management plane that its hosts can reach.
    """
    from remuda.kube import kubeconfig as kubeconfigs
    from remuda.providers.shared.drivers.nspawn.commands import judge_machine
    from remuda.providers.shared.drivers.spi import BadOptions
    from remuda.providers.shared.manager_address import is_address_here, is_loopback

    try:
        judge_machine()
        path, context = chosen_kubeconfig(kubeconfig)
        server = kubeconfigs.load(path, context).server
    except (BadOptions, kubeconfigs.KubeconfigError, click.ClickException):
        return _LOCAL
    host = urlsplit(server).hostname or ""
    return "nspawn" if is_address_here(host) and not is_loopback(host) else _LOCAL


@dataclass(frozen=True)
class Offer:
    """Versions that clusters can be made of, as far as a management plane knows."""

    channels: Channels
    stored: Sequence[str] = ()  # versions with artefacts, oldest first
    running: frozenset[str] = frozenset()  # versions that ready clusters have

    def has(self, version: str) -> bool:
        return version in self.stored or version in self.running or self.channels.lists(version)


def offer(kubeconfig: Path | None, channels_file: Path | None) -> Offer:
    """Return the versions on offer; those of this installation if no management plane answers."""
    from remuda.cli import channels
    from remuda.cli.connection import NoManagementPlane, connected
    from remuda.providers.shared.distros.channels import shipped

    given = channels.from_file(channels_file) if channels_file is not None else None

    async def ask(client: HttpClient) -> Offer:
        found = given or await channels.of_server(client) or shipped()
        return Offer(found, await versions(client), await _running(client))

    try:
        return connected(kubeconfig, ask, timeout_seconds=_ANSWER_SECONDS)
    except NoManagementPlane:
        return Offer(given or shipped())


async def _running(client: HttpClient) -> frozenset[str]:
    from remuda.kube.client import list_all
    from remuda.kube.conditions import is_true
    from remuda.kube.errors import StatusError
    from remuda.provisioning.types import CLUSTER

    try:
        listed = await list_all(client, CLUSTER.target, "")
    except StatusError:
        return frozenset()
    clusters = [CLUSTER.decode(value) for value in listed.items]
    return frozenset(one.spec.kubernetes_version for one in clusters if is_true(one.status.conditions, "Ready"))


def version(text: str, distribution: str, offered: Offer) -> str:
    """Return the version that a version or a channel means; "" is the channel stable. Raises UsageError."""
    from remuda.providers.shared.distros.channels import STABLE, NoSuchChannel, is_channel

    if text and not is_channel(text):
        return checked_version(text, distribution)
    try:
        return offered.channels.version(distribution, text or STABLE)
    except NoSuchChannel as error:
        raise click.UsageError(
            f"{error}. Choose a version with --kubernetes-version, for example {_EXAMPLES[distribution]}"
        ) from None


def distribution_for(text: str, distribution: str, driver: str) -> str:
    """Return the distribution of a new cluster: the one requested, that of the version, else the driver's default."""
    from remuda.providers.shared.distros import BadVersion, parse_version

    if distribution:
        return distribution
    try:
        return parse_version(text).distro
    except BadVersion:
        return "nano" if driver == _LOCAL else "k3s"


def check_exists(version: str, offered: Offer) -> None:
    """Raise UsageError for a version that nobody has, as far as can be known, before anything is created."""
    from remuda.cli.downloads import release_exists

    if offered.has(version):
        return
    url = offered.channels.download(_distro(version), version)
    exists = release_exists(url) if url else None
    if exists:
        return
    upstream = f", and there is no release at {url}" if exists is False else ""
    upstream = f", and {url} cannot be reached" if url and exists is None else upstream
    others = ", ".join(dict.fromkeys([*_channel_versions(offered, _distro(version)), *offered.stored]))
    raise click.UsageError(
        f"nobody has version {version}: no channel names it, the server has no artefacts of it, no ready cluster runs "
        f"it{upstream}. Known versions: {others or 'none'}. If nodes can install it all the same, add "
        "--allow-unknown-version"
    )


def _channel_versions(offered: Offer, distribution: str) -> list[str]:
    found = offered.channels.distributions.get(distribution)
    return [] if found is None else [*found.channels.values(), *found.versions]


def warn_of_missing_artefacts(version: str, offered: Offer) -> None:
    """Warn if the server has artefacts of the distribution, but none of this version. nano needs none."""
    stored = [one for one in offered.stored if _distro(one) == _distro(version)]
    if stored and version not in stored and _distro(version) != "nano":
        show_warning(
            f"the server has no artefacts of {version}, only of {', '.join(stored)}: nodes will download it "
            "themselves, unless you add it with `remuda artefacts add`"
        )


def available_versions(kubeconfig: Path | None) -> list[str]:
    """Return the versions that the server has artefacts of, oldest first; none if it does not answer."""
    from remuda.cli.connection import connected

    try:
        return connected(kubeconfig, versions, timeout_seconds=_ANSWER_SECONDS)
    except click.ClickException:
        return []


async def versions(client: HttpClient) -> list[str]:
    """Return the same from a connected server; only administrators may list artefacts, others get none."""
    from remuda.cli.artefact_stores import listing
    from remuda.kube.errors import StatusError
    from remuda.providers.shared.distros import BadVersion, parse_version

    try:
        stored = await listing(client)
    except StatusError:
        return []
    found = set()
    for artefact in stored.items:
        try:
            found.add(parse_version(artefact.version))
        except BadVersion:
            continue
    return [one.text for one in sorted(found)]


def _distro(text: str) -> str:
    from remuda.providers.shared.distros import parse_version

    return parse_version(text).distro


def checked_version(text: str, distribution: str = "") -> str:
    """Return a valid version, of the given distribution if one is given. Raises UsageError."""
    from remuda.providers.shared.distros import BadVersion, parse_version

    try:
        found = parse_version(text)
    except BadVersion as error:
        raise click.UsageError(str(error)) from None
    if distribution and found.distro != distribution:
        raise click.UsageError(
            f"{text} is a version of {found.distro}, not of {distribution}: omit one of the two options"
        )
    return text


def pairs(given: Sequence[str], option: str) -> list[tuple[str, str]]:
    """Parse KEY=VALUE arguments of an option. Raises UsageError."""
    found = []
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.UsageError(f"{option} {text}: must be KEY=VALUE")
        found.append((key, value))
    if twice := {key for key, _ in found if [one for one, _ in found].count(key) > 1}:
        raise click.UsageError(f"{option} sets {', '.join(sorted(twice))} twice")
    return found
