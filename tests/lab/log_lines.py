"""Log lines of this process, as the JSON formatter writes them."""

from __future__ import annotations

import json
import logging

from remuda.runtime.log_format import ContextFilter, JsonFormatter


class LogLines(logging.Handler):
    """Keeps each record as the JSON formatter writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(ContextFilter())
        self.setFormatter(JsonFormatter())
        self.all: list[dict[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.all.append(json.loads(self.format(record)))

    @property
    def messages(self) -> list[str]:
        return [line["message"] for line in self.all]
