"""Formats of log lines: text for people, JSON for programs. Both carry the reconcile that logged the line.

`ContextFilter` copies controller, object, reconcile id and step from the ContextVars into each record, also into
records of libraries that a reconcile calls. Attach it to handlers, not to loggers: filters of a logger do not see the
records of its children. A record takes exactly one line of text, apart from a traceback: control characters of a
message are escaped, so that no object can forge a line.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import msgspec

from remuda.runtime.reconcile_context import current, current_step

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {0x0A: "\\n", 0x09: "\t"}


class ContextFilter(logging.Filter):
    """Adds `controller`, `namespace`, `object_name`, `reconcile` and `step` to every record; empty where unknown."""

    def filter(self, record: logging.LogRecord) -> bool:
        running = current.get()
        record.controller = running.controller if running is not None else ""
        record.namespace = running.key.namespace if running is not None else ""
        record.object_name = running.key.name if running is not None else ""
        record.reconcile = running.id if running is not None else ""
        record.step = current_step.get()
        return True


class TextFormatter(logging.Formatter):
    """`TIME LEVEL CONTROLLER NAMESPACE/NAME [ID] STEP: MESSAGE`; outside a reconcile `TIME LEVEL LOGGER: MESSAGE`."""

    def format(self, record: logging.LogRecord) -> str:
        words = [_time(record), record.levelname]
        if controller := _text(record, "controller"):
            namespace, name = _text(record, "namespace"), _text(record, "object_name")
            words += [controller, f"{namespace}/{name}" if namespace else name, f"[{_text(record, 'reconcile')}]"]
        step = _text(record, "step")
        if step or not controller:
            words.append(step or record.name)
        line = f"{' '.join(words)}: {record.getMessage().translate(_CONTROL)}"
        trace = _traceback(self, record)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(logging.Formatter):
    """One JSON object per record. Fields without a value are left out."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "controller": _text(record, "controller"),
            "namespace": _text(record, "namespace"),
            "name": _text(record, "object_name"),
            "reconcile": _text(record, "reconcile"),
            "step": _text(record, "step"),
            "traceback": _traceback(self, record),
        }
        # A message may hold lone surrogates (undecodable file names), which JSON cannot.
        present = {name: value.encode("utf-8", "replace").decode() for name, value in fields.items() if value}
        return msgspec.json.encode(present).decode()


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _text(record: logging.LogRecord, field: str) -> str:
    return str(getattr(record, field, ""))


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
