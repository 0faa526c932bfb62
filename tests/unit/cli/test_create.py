"""`remuda create cluster --dry-run`: the objects that it would create."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from remuda.cli.main import main
from remuda.provisioning.declaration import SELF_HEAL

Json = dict[str, Any]
VERSION = "v1.36.4+k3s1"


def pools(*flags: str) -> dict[str, Json]:
    """Return the pools of the cluster that the command declares."""
    arguments = ["create", "cluster", "prairie", "--kubernetes-version", VERSION, "--dry-run", "-o", "json", *flags]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    cluster = json.loads(done.stdout)["items"][-1]
    return {pool["name"]: pool for pool in cluster["spec"]["rkeConfig"]["machinePools"]}


def test_workers_have_health_fields_and_servers_none() -> None:
    found = pools("--driver", "process", "--servers", "3", "--workers", "3")
    assert SELF_HEAL.items() <= found["workers"].items()
    assert not SELF_HEAL.keys() & found["servers"].keys()


@pytest.mark.parametrize(
    "flags", [("--driver", "process", "--no-self-heal"), ("--driver", "existing", "--option", "addresses=192.0.2.10")]
)
def test_workers_have_no_health_fields(flags: tuple[str, ...]) -> None:
    assert not SELF_HEAL.keys() & pools(*flags)["workers"].keys()
