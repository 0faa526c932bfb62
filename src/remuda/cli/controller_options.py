"""Options of the commands that run controllers, and the settings made from them: the controllers to run, the limits of
users, and where hosts find the manager."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from remuda.app.site import SiteSettings

QUOTA_FIELDS = ("clusters", "machines", "tokens")


def _split(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (value or "").split(",") if name.strip())


controllers_option = click.option(
    "--controllers",
    metavar="NAMES",
    callback=_split,
    help="Run only these, separated by commas: controllers, or the groups core (Cluster API itself), providers, "
    "provisioning and access (users, and the proxy to clusters). Default: all. Next to upstream's Cluster API core: "
    "providers,provisioning,access.",
)


def _limits(_: click.Context, __: click.Parameter, value: str | None) -> dict[str, int]:
    return parse_quota(value or "")


def parse_quota(text: str) -> dict[str, int]:
    """Read `clusters=3,machines=10`. Raises click.BadParameter."""
    found: dict[str, int] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, _, amount = part.partition("=")
        if name not in QUOTA_FIELDS or not (amount.isascii() and amount.isdigit() and len(amount) < 10):
            raise click.BadParameter(f"{part!r} is not one of {', '.join(f'{field}=N' for field in QUOTA_FIELDS)}")
        found[name] = int(amount)
    return found


user_quota_option = click.option(
    "--user-quota",
    metavar="LIMITS",
    callback=_limits,
    help="Limits for each user whose User object has no quota: clusters=3,machines=10,tokens=20. Default: unlimited. "
    "Administrators have no limits.",
)


# -- hosts

_DURATION = re.compile(r"(?P<number>[0-9]+)(?P<unit>[smh]?)", re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


def _seconds(_: click.Context, __: click.Parameter, value: str) -> float:
    found = _DURATION.fullmatch(value)
    if found is None or not int(found["number"]):
        raise click.BadParameter(f"{value!r} is not a duration such as 90s, 30m or 2h")
    return float(int(found["number"]) * _SECONDS[found["unit"]])


_NODE_OPTIONS = (
    click.option(
        "--server-url",
        metavar="URL",
        default="",
        help="URL (https://NAME[:PORT]) under which hosts reach this manager. Default: the listening address.",
    ),
    click.option(
        "--server-ca",
        type=click.Path(dir_okay=False, path_type=Path),
        help="PEM file with the CA of --server-url, if another CA than Remuda's issued its certificate. Hosts trust it "
        "in addition to Remuda's CA. Set it before you change --tls-cert or the load balancer, so that no host loses "
        "its connection.",
    ),
    click.option(
        "--tls-cert",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Your own certificate for --server-url, with its chain, in PEM. Reloaded when the file changes.",
    ),
    click.option(
        "--tls-key",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Private key of --tls-cert, unencrypted and not world-readable.",
    ),
    click.option(
        "--assets",
        type=click.Path(file_okay=False, path_type=Path),
        help="Directory of files to serve to hosts under /assets/, for example rancher-system-agent-amd64.",
    ),
    click.option(
        "--artefacts",
        type=click.Path(file_okay=False, path_type=Path),
        help="Directory of the binaries and images that `remuda artefacts` manages. Default: DATA_DIR/artefacts.",
    ),
    click.option(
        "--bootstrap-token-ttl",
        metavar="TIME",
        default="2h",
        show_default=True,
        callback=_seconds,
        help="Maximum time from the request for a server until its agent registers.",
    ),
    click.option(
        "--job-timeout",
        metavar="TIME",
        default="30m",
        show_default=True,
        callback=_seconds,
        help="Timeout of one attempt to create or remove the server (VM or host) of a machine.",
    ),
    click.option(
        "--rancher-machine",
        metavar="PATH",
        default="",
        help="Path of the rancher-machine program. Default: the one on the PATH.",
    ),
)


def node_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_NODE_OPTIONS):
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
