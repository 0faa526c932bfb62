"""Parser of a Machine Plan from the bytes of its Secret. Pure.

Unknown keys are ignored and null means absent, as with existing agents. A value of a wrong type makes the whole plan
invalid, with an error that names its place: a plan is never applied in part.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

_T = TypeVar("_T")

DELETE = "delete"


class PlanError(ValueError):
    """Unreadable plan; the text names the place in it, never its content."""


class File(NamedTuple):
    path: str = ""
    content: bytes = b""
    directory: bool = False
    uid: int = 0
    gid: int = 0
    permissions: str = ""  # octal digits
    action: str = ""


class Instruction(NamedTuple):
    """Command. `save_output` belongs to one-time instructions, `period_seconds` and `save_stderr` to periodic ones."""

    name: str = ""
    image: str = ""
    command: str = ""
    args: Sequence[str] = ()
    env: Sequence[str] = ()
    save_output: bool = False
    period_seconds: int = 0
    save_stderr: bool = False


class Probe(NamedTuple):
    name: str = ""
    url: str = ""
    insecure: bool = False
    ca_cert: str = ""
    client_cert: str = ""
    client_key: str = ""
    initial_delay_seconds: int = 0
    timeout_seconds: int = 0
    success_threshold: int = 0
    failure_threshold: int = 0


class Plan(NamedTuple):
    files: Sequence[File] = ()
    instructions: Sequence[Instruction] = ()
    periodic_instructions: Sequence[Instruction] = ()
    probes: Mapping[str, Probe] = {}


def parse(content: bytes) -> Plan:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        where = f": line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise PlanError(f"the plan is not JSON{where}") from None
    whole = _Reader("plan", found)
    return Plan(
        files=whole.each("files", _file),
        instructions=whole.each("instructions", _instruction),
        periodic_instructions=whole.each("periodicInstructions", _instruction),
        probes={name: _probe(name, part) for name, part in whole.parts("probes").items()},
    )


class _Reader:
    """Reader of one JSON object. Errors name its place in the plan."""

    def __init__(self, place: str, found: Any) -> None:
        if not isinstance(found, dict):
            raise PlanError(f"{place} is not an object")
        self._place = place
        self._found = found

    def _get(self, key: str, kind: type[_T], default: _T, word: str) -> _T:
        value = self._found.get(key)
        if value is None:
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise PlanError(f"{self._place}.{key} is not {word}")
        return value

    def text(self, key: str) -> str:
        return self._get(key, str, "", "a string")

    def number(self, key: str) -> int:
        return self._get(key, int, 0, "a whole number")

    def flag(self, key: str) -> bool:
        return self._get(key, bool, False, "true or false")

    def texts(self, key: str) -> tuple[str, ...]:
        found: list[Any] = self._get(key, list, [], "a list")
        if not all(isinstance(item, str) for item in found):
            raise PlanError(f"{self._place}.{key} is not a list of strings")
        return tuple(found)

    def content(self, key: str) -> bytes:
        try:
            return base64.b64decode("".join(self.text(key).split()), validate=True)
        except ValueError:
            raise PlanError(f"{self._place}.{key} is not base64") from None

    def each(self, key: str, read: Callable[[_Reader], _T]) -> tuple[_T, ...]:
        found: list[Any] = self._get(key, list, [], "a list")
        return tuple(read(_Reader(f"{self._place}.{key}[{index}]", item)) for index, item in enumerate(found))

    def parts(self, key: str) -> dict[str, _Reader]:
        found: dict[str, Any] = self._get(key, dict, {}, "an object")
        return {name: _Reader(f"{self._place}.{key}.{name}", item) for name, item in found.items()}

    def part(self, key: str) -> _Reader:
        found: dict[str, Any] = self._get(key, dict, {}, "an object")
        return _Reader(f"{self._place}.{key}", found)


def _file(part: _Reader) -> File:
    return File(
        path=part.text("path"),
        content=part.content("content"),
        directory=part.flag("directory"),
        uid=part.number("uid"),
        gid=part.number("gid"),
        permissions=part.text("permissions"),
        action=part.text("action"),
    )


def _instruction(part: _Reader) -> Instruction:
    return Instruction(
        name=part.text("name"),
        image=part.text("image"),
        command=part.text("command"),
        args=part.texts("args"),
        env=part.texts("env"),
        save_output=part.flag("saveOutput"),
        period_seconds=part.number("periodSeconds"),
        save_stderr=part.flag("saveStderrOutput"),
    )


def _probe(name: str, part: _Reader) -> Probe:
    http = part.part("httpGet")
    return Probe(
        name=name,
        url=http.text("url"),
        insecure=http.flag("insecure"),
        ca_cert=http.text("caCert"),
        client_cert=http.text("clientCert"),
        client_key=http.text("clientKey"),
        initial_delay_seconds=part.number("initialDelaySeconds"),
        timeout_seconds=part.number("timeoutSeconds"),
        success_threshold=part.number("successThreshold"),
        failure_threshold=part.number("failureThreshold"),
    )
