"""The line that registers a host."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from remuda.providers.bootstrap import clusters
from remuda.providers.shared.manager_address import Site
from tests.lab.limits import LIMIT_SECONDS


@pytest.mark.parametrize("tampered", [False, True])
def test_registration_command_runs_script_only_from_pinned_manager(tmp_path: Path, tampered: bool) -> None:
    """With a curl that plays the network: whoever stands in between cannot give a script of his own."""
    authority, script = b"-----PEM-----\n", 'echo ran "$@"; echo "$GRASS"\n'
    site = Site(server_url="https://manager.example:6443", ca_pem=authority)
    (tmp_path / "cacerts").write_bytes(b"-----EVIL-----\n" if tampered else authority)
    (tmp_path / "script").write_text(script)
    _program(
        tmp_path / "curl",
        "for last; do case $last in */cacerts) url=cacerts;; */system-agent-install.sh) url=script;; esac; done\n"
        f'case $url in cacerts) cp {tmp_path}/cacerts "$4";; script) cat {tmp_path}/script;; esac\n',
    )
    _program(tmp_path / "sudo", 'exec "$@"\n')
    line = clusters.command(site, "cluster.YQ.b-c_d", {"GRASS": "it's $(green)"}) + " --worker"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    ran = subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=environment, timeout=LIMIT_SECONDS)
    if tampered:
        assert (ran.returncode != 0, ran.stdout) == (True, "")
    else:
        words, grass = ran.stdout.splitlines()
        assert grass == "it's $(green)"
        assert words.split() == [
            "ran",
            *("--server", site.server_url, "--label", "cattle.io/os=linux"),
            *("--token", "cluster.YQ.b-c_d", "--ca-checksum", site.ca_checksum, "--worker"),
        ]


def _program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}")
    path.chmod(0o755)
