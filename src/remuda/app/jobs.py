"""Settings of the job runner: where Jobs live below the data directory, and the key that signs them."""

from __future__ import annotations

from pathlib import Path

from remuda.app.process import StartRefused
from remuda.jobs.marks import FILE, JobKey
from remuda.jobs.runner import JobRunnerSettings


def settings(data: Path, server_url: str, ca_pem: bytes) -> JobRunnerSettings:
    """Return the settings for an absolute data directory. Creates the key if there is none."""
    path = data / FILE
    try:
        key = JobKey.load(path)
    except (OSError, ValueError) as error:
        raise StartRefused(f"cannot read the key that signs Jobs, {path}: {error}") from None
    return JobRunnerSettings(
        directory=data / "jobs", hosts=data / "hosts", server_url=server_url, ca_pem=ca_pem, key=key
    )
