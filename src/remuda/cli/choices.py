"""Defaults of commands: the driver and the version of a new cluster."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from remuda.cli.connection import chosen_kubeconfig

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

DISTRIBUTIONS = ("k3s", "rke2", "nano")
_LOCAL = "process"
_ANSWER_SECONDS = 10.0  # the list is a hint: not worth a longer wait


def driver(kubeconfig: Path | None) -> str:
    """Return the default driver: nspawn where it works, else process, which works everywhere.

    nspawn needs root, on the machine of a management plane that its hosts can reach.
    """
    from remuda.kube import kubeconfig as kubeconfigs
    from remuda.providers.shared.drivers.nspawn.commands import judge_machine
    from remuda.providers.shared.drivers.spi import BadOptions

    try:
        judge_machine()
        path, context = chosen_kubeconfig(kubeconfig)
        server = kubeconfigs.load(path, context).server
    except (BadOptions, kubeconfigs.KubeconfigError, click.ClickException):
        return _LOCAL
    return "nspawn" if _is_here(urlsplit(server).hostname or "") else _LOCAL


def _is_here(host: str) -> bool:
    """Return whether the host is a non-loopback address of this machine."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if address.is_loopback:
        return False
    with socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def version(distribution: str, driver: str, kubeconfig: Path | None) -> str:
    """Return the newest version that the server has artefacts of. Raises UsageError if there is none."""
    from remuda.providers.controlplane.artefacts import nano_bundles

    distribution = distribution or ("nano" if driver == _LOCAL else "k3s")
    known = available_versions(kubeconfig)
    found = [text for text in known if _distro(text) == distribution]
    if found:
        return found[-1]
    if distribution == nano_bundles.DISTRO:
        return nano_bundles.VERSION
    available = f"the server has artefacts of {', '.join(known)}" if known else "the server has no artefacts"
    example = {"k3s": "v1.36.4+k3s1", "rke2": "v1.36.4+rke2r1"}[distribution]
    raise click.UsageError(
        f"no default version of {distribution}: {available}. Choose one with --kubernetes-version, for example "
        f"{example}, or use `--distribution nano`, a stand-in that runs no Pods and needs no artefacts."
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
