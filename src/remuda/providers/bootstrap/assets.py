"""The node agent as hosts download it: one zipapp, built from packages of this program. With `tunnel` as its first
argument it is the tunnel's client, which needs nothing of the agent. Hosts of the `process` driver download the same
file, so it contains what runs units on hosts that are folders.

The same sources give the same bytes, so that every replica of the manager serves the same checksum."""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from remuda.tunnel import TRAVELLING

_MAIN = b"""\
import sys

if sys.argv[1:2] == ["tunnel"]:
    from remuda.tunnel.__main__ import main as tunnel

    sys.exit(tunnel(sys.argv[2:]))

from remuda.agent.__main__ import main
from remuda.lab import units

sys.exit(main(units))
"""
_DATE = (1980, 1, 1, 0, 0, 0)


@cache
def agent_zipapp() -> bytes:
    target = io.BytesIO()
    target.write(b"#!/usr/bin/env python3\n")
    tunnel = files("remuda.tunnel")
    entries = {"__main__.py": _MAIN, "remuda/__init__.py": b"", "remuda/lab/__init__.py": b""}
    for package in ("agent", "lab/units"):
        entries |= _sources(files("remuda").joinpath(package), f"remuda/{package}")
    entries |= {f"remuda/tunnel/{name}.py": (tunnel / f"{name}.py").read_bytes() for name in TRAVELLING}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(entries):
            archive.writestr(zipfile.ZipInfo(name, _DATE), entries[name], zipfile.ZIP_DEFLATED)
    return target.getvalue()


@cache
def agent_checksum() -> str:
    return hashlib.sha256(agent_zipapp()).hexdigest()


def _sources(folder: Traversable, path: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for each in folder.iterdir():
        if each.is_dir() and each.name != "__pycache__":
            found |= _sources(each, f"{path}/{each.name}")
        elif each.name.endswith(".py"):
            found[f"{path}/{each.name}"] = each.read_bytes()
    return found
