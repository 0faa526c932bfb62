"""Files of the agent's service."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from remuda.agent import service


@pytest.mark.parametrize(
    "value", ["http://proxy:3128", "http://me:p%40ss@proxy", 'a"b', "a\\b", "a$b", "a`b`", "it's", "a b"]
)
def test_environment_file_keeps_values_to_the_letter(value: str, tmp_path: Path) -> None:
    """A shell reads double quotes as systemd does, if the four signs that mean something in them are escaped."""
    path = tmp_path / "remuda-agent.env"
    path.write_text(service.environment_file({"HTTPS_PROXY": value}))
    read = subprocess.run(
        ["/bin/sh", "-c", '. "$1"; printf %s "$HTTPS_PROXY"', "sh", str(path)], capture_output=True, text=True
    )
    assert read.stdout == value
