"""Defaults of commands: the driver and the version of a new cluster, and why they are chosen."""

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
_ANSWER_SECONDS = 10.0  # a hint is not worth a longer wait


def driver(kubeconfig: Path | None) -> str:
    """nspawn, whose hosts are real ones, where it works: for root, on the machine of a management plane that such hosts
    can reach; else process, which works everywhere."""
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
    """An address of this machine that others reach, too."""
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
    """The newest one whose artefacts are at hand. Raises UsageError where none is known."""
    from remuda.providers.controlplane.artefacts import nano_bundles

    distribution = distribution or ("nano" if driver == _LOCAL else "k3s")
    known = at_hand(kubeconfig)
    found = [text for text in known if _distro(text) == distribution]
    if found:
        return found[-1]
    if distribution == nano_bundles.DISTRO:
        return nano_bundles.VERSION
    there = f"artefacts are at hand of {', '.join(known)}" if known else "no artefacts are at hand"
    example = {"k3s": "v1.36.4+k3s1", "rke2": "v1.36.4+rke2r1"}[distribution]
    raise click.UsageError(
        f"which version of {distribution}? Say it with --kubernetes-version, for example {example}; {there}. "
        "`--distribution nano` needs none: a stand-in that runs no Pods, to try things with."
    )


def at_hand(kubeconfig: Path | None) -> list[str]:
    """Versions that the server has artefacts of, oldest first; none where it does not answer, or does not say."""
    from remuda.cli.connection import connected

    try:
        return connected(kubeconfig, versions, timeout_seconds=_ANSWER_SECONDS)
    except click.ClickException:
        return []


async def versions(client: HttpClient) -> list[str]:
    """The same, of a server that is connected. It tells administrators alone."""
    from remuda.cli.artefact_stores import listing
    from remuda.kube.errors import StatusError
    from remuda.providers.shared.distros import BadVersion, parse_version

    try:
        kept = await listing(client)
    except StatusError:
        return []
    found = set()
    for artefact in kept.items:
        try:
            found.add(parse_version(artefact.version))
        except BadVersion:
            continue
    return [one.text for one in sorted(found)]


def _distro(text: str) -> str:
    from remuda.providers.shared.distros import parse_version

    return parse_version(text).distro


def checked_version(text: str, distribution: str = "") -> str:
    """Raises UsageError."""
    from remuda.providers.shared.distros import BadVersion, parse_version

    try:
        found = parse_version(text)
    except BadVersion as error:
        raise click.UsageError(str(error)) from None
    if distribution and found.distro != distribution:
        raise click.UsageError(f"{text} is a version of {found.distro}, not of {distribution}: leave one of them out")
    return text


def pairs(given: Sequence[str], option: str) -> list[tuple[str, str]]:
    """KEY=VALUE, several. Raises UsageError."""
    found = []
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.UsageError(f"{option} {text}: it is KEY=VALUE")
        found.append((key, value))
    if twice := {key for key, _ in found if [one for one, _ in found].count(key) > 1}:
        raise click.UsageError(f"{option} says {', '.join(sorted(twice))} twice")
    return found
