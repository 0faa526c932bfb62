"""Journal of plan runs on this host's disk: after a restart, the agent never repeats a run that has finished.

It has one record, of the latest run, identified by the uid of the Secret, the checksum of the plan and the attempt. The
record is written before the first file of the plan and after its last instruction; then it also contains the keys for
the Secret, until they are written there. An interrupted run starts again from the first instruction, as the same
attempt.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from typing import NamedTuple

from remuda.agent import disk, log


class Run(NamedTuple):
    """Identity of one run of one plan."""

    secret: str  # uid
    checksum: str
    attempt: str


class Journal:
    def __init__(self, path: str) -> None:
        self._path = path
        self._run: Run | None = None
        self._results: dict[str, bytes] | None = None
        self._load()

    def started(self, run: Run) -> None:
        """Record the start of a run. Raise OSError: a run that cannot be recorded must not begin."""
        self._write(run, None)

    def finished(self, run: Run, results: Mapping[str, bytes]) -> None:
        self._write(run, dict(results))

    def results(self, run: Run) -> dict[str, bytes] | None:
        """Return the results of a run, if it is the latest and has finished."""
        return dict(self._results) if self._results is not None and run == self._run else None

    def _write(self, run: Run, results: dict[str, bytes] | None) -> None:
        record = dict(run._asdict(), version=1)
        if results is not None:
            record["results"] = {key: base64.b64encode(value).decode() for key, value in results.items()}
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        disk.write(self._path, json.dumps(record).encode())
        self._run, self._results = run, results

    def _load(self) -> None:
        content = disk.read(self._path)
        if content is None:
            return
        try:
            record = json.loads(content)
            run = Run(str(record["secret"]), str(record["checksum"]), str(record["attempt"]))
            kept = record.get("results")
            self._results = (
                None if kept is None else {key: base64.b64decode(value, validate=True) for key, value in kept.items()}
            )
            self._run = run
        except (ValueError, KeyError, TypeError, AttributeError):
            log.warning(
                f"{self._path} is damaged; starting a new journal. Only the Secret shows which runs have finished"
            )
