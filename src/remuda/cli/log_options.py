"""Options of long-running commands: format and level of the log, and path of the audit log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

if TYPE_CHECKING:
    from remuda.app.log_setup import Format, Level, LogSettings

_OPTIONS = (
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
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def log_settings(
    *, log_format: str, log_level: str | None, verbose: int, audit_log: str = "-", data_dir: Path | None = None
) -> LogSettings:
    from remuda.app.log_setup import LogSettings, audit_path

    level = log_level or ("warning", "info", "debug")[min(verbose, 2)]
    return LogSettings(
        format=cast("Format", log_format), level=cast("Level", level), audit=audit_path(audit_log, data_dir)
    )
