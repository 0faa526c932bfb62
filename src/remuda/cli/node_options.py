"""Options of commands that serve hosts: where hosts find the manager, and the settings made from them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from remuda.app.site import SiteSettings

_DURATION = re.compile(r"(?P<number>[0-9]+)(?P<unit>[smh]?)", re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


def _seconds(_: click.Context, __: click.Parameter, value: str) -> float:
    found = _DURATION.fullmatch(value)
    if found is None or not int(found["number"]):
        raise click.BadParameter(f"{value!r} is no time: for example 90s, 30m or 2h")
    return float(int(found["number"]) * _SECONDS[found["unit"]])


_OPTIONS = (
    click.option(
        "--server-url",
        metavar="URL",
        default="",
        help="https://NAME[:PORT] where hosts reach this manager. Default: where it listens.",
    ),
    click.option(
        "--server-ca",
        type=click.Path(dir_okay=False, path_type=Path),
        help="PEM with the CA of --server-url, if its certificate is not this program's. Hosts trust it beside ours: "
        "give it before --tls-cert or what stands in front changes, and no host is lost.",
    ),
    click.option(
        "--tls-cert",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Your own certificate for --server-url, with its chain, in PEM. Read again when it changes.",
    ),
    click.option(
        "--tls-key",
        type=click.Path(dir_okay=False, path_type=Path),
        help="The key of --tls-cert, without a password, not readable by everybody.",
    ),
    click.option(
        "--assets",
        type=click.Path(file_okay=False, path_type=Path),
        help="Files for hosts, served under /assets/: rancher-system-agent-amd64, for instance.",
    ),
    click.option(
        "--artefacts",
        type=click.Path(file_okay=False, path_type=Path),
        help="What nodes install distributions from, as `remuda artefacts` keeps it. Default: DATA_DIR/artefacts.",
    ),
    click.option(
        "--bootstrap-token-ttl",
        metavar="TIME",
        default="2h",
        show_default=True,
        callback=_seconds,
        help="How long a new server may take from its order to its agent's first call.",
    ),
    click.option(
        "--job-timeout",
        metavar="TIME",
        default="30m",
        show_default=True,
        callback=_seconds,
        help="How long one attempt to make or remove a server may take.",
    ),
    click.option(
        "--rancher-machine",
        metavar="PATH",
        default="",
        help="The program for drivers of rancher-machine. Default: the one on the PATH.",
    ),
)


def node_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def site_settings(
    server_url: str,
    server_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    assets: Path | None,
    artefacts: Path | None,
) -> SiteSettings:
    from remuda.app.site import SiteSettings

    return SiteSettings(
        server_url=server_url,
        server_ca=server_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
        assets=assets,
        artefacts=artefacts,
    )
