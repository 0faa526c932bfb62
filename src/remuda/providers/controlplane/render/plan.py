"""Plan as bytes: its encoding and decoding.

`dynamic` files do not restart a host; a change of `minor` files alone needs no coordination. Both marks are for the
manager: agents do not read them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

DELETE = "delete"
INSTALL = "install"


class File(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    content: bytes = b""
    permissions: str = "0600"
    dynamic: bool = False
    minor: bool = False
    action: str = ""

    @property
    def deleted(self) -> bool:
        return self.action == DELETE


class Instruction(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    args: Sequence[str]
    command: str = "sh"
    image: str = ""
    env: Sequence[str] = ()
    period_seconds: int = 0  # not 0: it runs again and again


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """Paths are of files on the host."""

    url: str
    authority: str = ""
    certificate: str = ""
    key: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    files: Sequence[File] = ()
    instructions: Sequence[Instruction] = ()
    periodic: Sequence[Instruction] = ()
    probes: Mapping[str, Probe] = {}

    def environment(self, instruction: str = INSTALL) -> dict[str, str]:
        for one in self.instructions:
            if one.name == instruction:
                return dict(pair.split("=", 1) for pair in one.env)
        return {}

    def file(self, path: str) -> File | None:
        return next((file for file in self.files if file.path == path), None)


# ---- writing -----------------------------------------------------------------------------------------------------


def write(plan: Plan) -> bytes:
    whole = {
        "files": [_file(file) for file in plan.files],
        "instructions": [_instruction(one) for one in plan.instructions],
        "periodicInstructions": [_instruction(one) for one in plan.periodic],
        "probes": {name: _probe(name, probe) for name, probe in plan.probes.items()},
    }
    return compact(whole)


def compact(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def indented(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False).encode() + b"\n"


def _file(file: File) -> dict[str, Any]:
    written: dict[str, Any] = {"path": file.path}
    if file.deleted:
        written["action"] = file.action
    else:
        written["content"] = base64.b64encode(file.content).decode()
        written["permissions"] = file.permissions
    return written | {name: True for name in ("dynamic", "minor") if getattr(file, name)}


def _instruction(one: Instruction) -> dict[str, Any]:
    written: dict[str, Any] = {"name": one.name, "command": one.command, "args": list(one.args)}
    if one.image:
        written["image"] = one.image
    if one.env:
        written["env"] = list(one.env)
    if one.period_seconds:
        written["periodSeconds"] = one.period_seconds
    return written


def _probe(name: str, probe: Probe) -> dict[str, Any]:
    get = {"url": probe.url, "caCert": probe.authority, "clientCert": probe.certificate, "clientKey": probe.key}
    return {
        "name": name,
        "initialDelaySeconds": 1,
        "timeoutSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": 5,
        "httpGet": {key: value for key, value in get.items() if value},
    }


# ---- reading -----------------------------------------------------------------------------------------------------


def read(content: bytes) -> Plan:
    """A plan that we wrote."""
    found = json.loads(content)
    return Plan(
        files=[_read_file(file) for file in found.get("files") or ()],
        instructions=[_read_instruction(one) for one in found.get("instructions") or ()],
        periodic=[_read_instruction(one) for one in found.get("periodicInstructions") or ()],
        probes={name: _read_probe(probe) for name, probe in (found.get("probes") or {}).items()},
    )


def _read_file(file: Mapping[str, Any]) -> File:
    return File(
        path=file["path"],
        content=base64.b64decode(file.get("content") or ""),
        permissions=file.get("permissions") or "0600",
        dynamic=bool(file.get("dynamic")),
        minor=bool(file.get("minor")),
        action=file.get("action") or "",
    )


def _read_instruction(one: Mapping[str, Any]) -> Instruction:
    return Instruction(
        name=one.get("name") or "",
        command=one.get("command") or "",
        args=one.get("args") or [],
        image=one.get("image") or "",
        env=one.get("env") or [],
        period_seconds=one.get("periodSeconds") or 0,
    )


def _read_probe(probe: Mapping[str, Any]) -> Probe:
    get = probe.get("httpGet") or {}
    return Probe(
        url=get.get("url") or "",
        authority=get.get("caCert") or "",
        certificate=get.get("clientCert") or "",
        key=get.get("clientKey") or "",
    )
