"""Set up the logs of one process: lines on stderr or, in the background, in a file; the audit log in its own file.

stderr is for people, or for a program that reads JSON. The audit log has one JSON object per line, whatever the level
and the format of the rest; it never goes to stderr unless `-` asks for it. Its file is bounded by rotation
(`audit.log`, `audit.log.1` … `audit.log.5`) and readable by its owner alone.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Literal, cast

import msgspec

from remuda.runtime.log_format import ContextFilter, JsonFormatter, TextFormatter

log = logging.getLogger(__name__)

STDERR = "-"
AUDIT_FILE = Path("log/audit.log")  # below the data directory
SERVER_FILE = Path("log/up.log")  # below the data directory, of a server in the background
AUDIT_BYTES = 20 * 1024 * 1024  # of one file, before it is rotated
AUDIT_OLD_FILES = 5
_AUDIT_LOGGER = "remuda.audit"

Format = Literal["text", "json"]
Level = Literal["debug", "info", "warning", "error"]


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    format: Format = "text"
    level: Level = "warning"
    audit: str = STDERR  # path of the audit log, or "-" for stderr
    file: Path | None = None  # in place of stderr; rotated


DEFAULT_LOGS = LogSettings()


def audit_path(wanted: str, data_dir: Path | None) -> str:
    """Return where the audit log goes: as asked, else below the data directory, else stderr: no refusal is lost."""
    if wanted:
        return wanted
    return str(data_dir / AUDIT_FILE) if data_dir is not None else STDERR


def set_up(settings: LogSettings) -> Callable[[], None]:
    """Configure the loggers of this process. Return the function that undoes it."""
    formatter: logging.Formatter = JsonFormatter() if settings.format == "json" else TextFormatter()
    lines = logging.StreamHandler(sys.stderr) if settings.file is None else PrivateFile(settings.file)
    lines.setFormatter(formatter)
    lines.addFilter(ContextFilter())
    audit = _audit_handler(settings)
    root, audit_logger = logging.getLogger(), logging.getLogger(_AUDIT_LOGGER)
    before = root.level, audit_logger.level, audit_logger.propagate
    root.addHandler(lines)
    root.setLevel(settings.level.upper())
    audit_logger.addHandler(audit)
    audit_logger.setLevel(logging.INFO)  # every line of it, however quiet the rest is
    audit_logger.propagate = False

    def undo() -> None:
        root.removeHandler(lines)
        audit_logger.removeHandler(audit)
        audit.close()
        root.setLevel(before[0])
        audit_logger.setLevel(before[1])
        audit_logger.propagate = before[2]

    return undo


def _audit_handler(settings: LogSettings) -> logging.Handler:
    handler: logging.Handler
    if settings.audit == STDERR:
        handler = logging.StreamHandler(sys.stderr)
        # Next to JSON lines it is a JSON line itself; next to text it is marked, so that `grep` can tell them apart.
        handler.setFormatter(logging.Formatter("%(message)s") if settings.format == "json" else TextFormatter())
    else:
        handler = AuditFile(Path(settings.audit))
    return handler


class PrivateFile(RotatingFileHandler):
    """Log with bounded size that only its owner can read. Opened by its first line: a second process that is refused at
    its start, because the data directory is in use, must not touch the file of the first."""

    def __init__(self, path: Path, *, most_bytes: int = AUDIT_BYTES, old_files: int = AUDIT_OLD_FILES) -> None:
        super().__init__(path, maxBytes=most_bytes, backupCount=old_files, encoding="utf-8", delay=True)

    def _open(self) -> TextIOWrapper:
        path = Path(self.baseFilename)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cast(TextIOWrapper, open(path, self.mode, encoding=self.encoding, opener=private))


class AuditFile(PrivateFile):
    """Audit log. Lines that cannot be written are reported once, to the other log."""

    def __init__(self, path: Path, *, most_bytes: int = AUDIT_BYTES, old_files: int = AUDIT_OLD_FILES) -> None:
        super().__init__(path, most_bytes=most_bytes, old_files=old_files)
        self.setFormatter(logging.Formatter("%(message)s"))
        self._failed = False

    def emit(self, record: logging.LogRecord) -> None:
        failed, self._failed = self._failed, False
        super().emit(record)
        if self._failed and not failed:
            log.error(
                "cannot write audit log %s: %s; lines are lost until this is repaired", self.baseFilename, self._why
            )

    def handleError(self, record: logging.LogRecord) -> None:
        """Called by `emit` in place of raising; the log names the cause once, not for every line."""
        self._failed, self._why = True, sys.exc_info()[1]


def private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
