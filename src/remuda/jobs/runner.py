"""The job runner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from remuda.runtime.manager import Manager

CONTROLLER = "job-runner"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    directory: Path  # private to the runner: what Jobs are given, and their logs
    hosts: Path  # where drivers whose servers live on this machine keep them
    server_url: str  # how a Job reaches the API server
    ca_pem: bytes  # what its certificate is verified with
    concurrency: int = 8


class JobRunner:
    def __init__(self, manager: Manager, settings: Settings) -> None:
        self._manager = manager
        self._settings = settings

    def log_source(self, pod: Mapping[str, Any], query: Mapping[str, str]) -> AsyncIterator[bytes] | None:
        """A `LogSource` for the engine's pods/log."""
        return None
