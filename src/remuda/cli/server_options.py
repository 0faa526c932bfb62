"""Options of long-running commands, and the settings made from them: the embedded API server, format and level of the
log, path of the audit log."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from remuda.cli.connection import DATA_DIR

if TYPE_CHECKING:
    from remuda.apiserver.server import ServerSettings
    from remuda.app.log_setup import Format, Level, LogSettings

_ADDRESS = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[^:\[\]]*)):(?P<port>[0-9]{1,5})", re.ASCII)


def split_address(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, int] | None:
    if value is None:
        return None
    found = _ADDRESS.fullmatch(value)
    if found is None or int(found["port"]) > 65535:
        raise click.BadParameter(f"{value!r} is not HOST:PORT, for example 127.0.0.1:6443 or [::1]:6443")
    return found["six"] or found["host"] or "0.0.0.0", int(found["port"])  # noqa: S104 - no host: every address


_SERVER_OPTIONS = (
    click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=DATA_DIR,
        show_default=True,
        help="Directory of state, keys and admin.kubeconfig. Created at the first start.",
    ),
    click.option(
        "--listen",
        default="127.0.0.1:6443",
        show_default=True,
        callback=split_address,
        help="HOST:PORT to serve HTTPS on. Port 0 selects a free port.",
    ),
    click.option(
        "--tls-san", multiple=True, help="Additional name or address of this server, for its certificate. Repeatable."
    ),
    click.option(
        "--token-auth-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help='CSV of static bearer tokens: token,user,uid,"group1,group2".',
    ),
    click.option(
        "--upkeep/--no-upkeep",
        default=True,
        show_default=True,
        help="Run garbage collection, namespace deletion, token cleanup and role aggregation. Turn it off if "
        "kube-controller-manager does this.",
    ),
    click.option(
        "--event-ttl", type=click.FloatRange(min=1), default=3600.0, show_default=True, help="Seconds to keep events."
    ),
)


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_SERVER_OPTIONS):
        command = option(command)
    return command


def server_settings(
    *,
    data_dir: Path,
    listen: tuple[str, int],
    tls_san: tuple[str, ...],
    token_auth_file: Path | None,
    upkeep: bool,
    event_ttl: float,
) -> ServerSettings:
    from remuda.apiserver.server import ServerSettings
    from remuda.apiserver.storage.reserve import BYTES as RESERVE_BYTES

    host, port = listen
    return ServerSettings(
        data_dir=data_dir,
        host=host,
        port=port,
        names=tls_san,
        token_file=token_auth_file,
        upkeep=upkeep,
        event_ttl_seconds=event_ttl,
        reserve_bytes=RESERVE_BYTES,
    )


# -- the log

_LOG_OPTIONS = (
    click.option(
        "--log-format",
        type=click.Choice(("text", "json")),
        default="text",
        show_default=True,
        help="Format of the log on stderr: text for people, or one JSON object per line.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(("debug", "info", "warning", "error")),
        help="Least severe level to log. Overrides -v. Default: warning.",
    ),
    click.option(
        "-v",
        "--verbose",
        count=True,
        help="Log every step that controllers take (level info); -vv: everything (level debug).",
    ),
)

audit_log_option = click.option(
    "--audit-log",
    metavar="PATH",
    default="",
    help="File of the audit log, rotated at 20 MiB; - for stderr. Default: DATA_DIR/log/audit.log, and stderr without "
    "a data directory.",
)


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_LOG_OPTIONS):
        command = option(command)
    return command


def log_settings(
    *,
    log_format: str,
    log_level: str | None,
    verbose: int,
    audit_log: str = "-",
    data_dir: Path | None = None,
    log_file: Path | None = None,
) -> LogSettings:
    from remuda.app.log_setup import LogSettings, audit_path

    level = log_level or ("warning", "info", "debug")[min(verbose, 2)]
    return LogSettings(
        format=cast("Format", log_format),
        level=cast("Level", level),
        audit=audit_path(audit_log, data_dir),
        file=log_file,
    )
