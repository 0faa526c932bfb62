"""The agent as it is delivered: one file, for old Pythons, of the standard library alone."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import remuda.agent
import remuda.lab.units
from remuda import tunnel
from remuda.providers.bootstrap import assets

SOURCES = sorted(
    path for package in (remuda.agent, remuda.lab.units) for path in Path(str(package.__file__)).parent.rglob("*.py")
)
OURS = ("remuda.agent", "remuda.lab.units")
TRAVELLERS = {"__future__", *(f"remuda.tunnel.{name}" for name in tunnel.TRAVELLING)}
NOT_IN_39 = {"match", "tomllib", "zoneinfo"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_agent_modules_are_python_3_9_and_import_only_standard_library(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    postponed = any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__" and node.names[0].name == "annotations"
        for node in tree.body
    )
    assert postponed or not [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module or ""]
        for name in names:
            top = name.split(".")[0]
            assert top in sys.stdlib_module_names or name.startswith(OURS) or name in TRAVELLERS, name
            assert top not in NOT_IN_39, name


def test_agent_zipapp_build_is_reproducible() -> None:
    content = assets.agent_zipapp()
    assert content == assets.agent_zipapp.__wrapped__()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
    assert names == sorted(names)
    of_the_tunnel = {f"remuda/tunnel/{name}.py" for name in tunnel.TRAVELLING}
    others = {name for name in names if not name.startswith(("remuda/agent/", "remuda/lab/units/"))}
    assert others == {"__main__.py", "remuda/__init__.py", "remuda/lab/__init__.py", *of_the_tunnel}
    assert content.startswith(b"#!/usr/bin/env python3\n")


def test_agent_zipapp_version_prints_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "agent.pyz"
    path.write_bytes(assets.agent_zipapp())
    done = subprocess.run([sys.executable, "-I", "-S", str(path), "version"], capture_output=True, text=True)
    assert done.stdout == f"remuda-agent {assets.agent_checksum()}\n"


def test_agent_without_units_refuses_commands_of_folder_hosts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "remuda.agent", "systemctl", "--root", str(tmp_path), "--", "is-active", "k3s"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "nothing that runs units" in done.stderr
