"""Parser of unit files: the settings that are supported here, read as systemd reads them. Pure.

Unsupported settings are ignored if the unit means the same without them; a type that would not work is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

_TYPES = ("simple", "exec", "notify", "oneshot")
_SPAN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)")
_UNITS = {"": 1.0, "s": 1.0, "sec": 1.0, "ms": 0.001, "min": 60.0, "m": 60.0, "h": 3600.0, "hr": 3600.0, "d": 86400.0}
_VARIABLE = re.compile(r"\$(?:\$|\{(\w+)\}|(\w+))")
_START_SECONDS = _STOP_SECONDS = 90.0
_RESTART_SECONDS = 0.1
_YES = ("1", "yes", "true", "on")


class BadUnit(ValueError):
    """Unit that cannot be run here; the text says why."""


class Command(NamedTuple):
    words: tuple[str, ...]
    may_fail: bool


class Unit(NamedTuple):
    name: str  # with .service
    type: str = "simple"
    before: tuple[Command, ...] = ()
    start: tuple[Command, ...] = ()
    started: tuple[Command, ...] = ()  # ExecStartPost: the unit is active when these have ended
    stop: tuple[Command, ...] = ()
    after: tuple[Command, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    environment_files: tuple[str, ...] = ()  # with - in front: it may be missing
    restart: str = "no"
    restart_seconds: float = _RESTART_SECONDS
    start_seconds: float = _START_SECONDS  # 0: no limit
    stop_seconds: float = _STOP_SECONDS
    kill_mode: str = "control-group"
    remain: bool = False
    folder: str = ""

    def restarts_after(self, code: int | None) -> bool:
        """Return whether the unit restarts. `code`: its exit code; None: unknown, which counts as a failure."""
        if self.type == "oneshot" and self.restart == "always":
            return False
        if self.restart == "always":
            return True
        if code == 0:
            return self.restart == "on-success"
        if self.restart == "on-abnormal":
            return code is None or code < 0
        return self.restart == "on-failure"


def parse(name: str, text: str) -> Unit:
    """Parse a unit file. Raise BadUnit."""
    found = _settings(name, text)

    def last(key: str, default: str = "") -> str:
        return (found.get(key) or [default])[-1] or default

    kind = last("Type", "simple")
    if kind not in _TYPES:
        raise BadUnit(f"{name}: Type={kind} is not supported on this host; supported: {', '.join(_TYPES)}")
    start = _commands(name, found.get("ExecStart", []))
    if not start or (kind != "oneshot" and len(start) > 1):
        raise BadUnit(f"{name}: one ExecStart= is required")
    return Unit(
        name=name,
        type=kind,
        before=_commands(name, found.get("ExecStartPre", [])),
        start=start,
        started=_commands(name, found.get("ExecStartPost", [])),
        stop=_commands(name, found.get("ExecStop", [])),
        after=_commands(name, found.get("ExecStopPost", [])),
        environment=tuple(_assignments(name, found.get("Environment", []))),
        environment_files=tuple(found.get("EnvironmentFile", [])),
        restart=last("Restart", "no"),
        restart_seconds=seconds(last("RestartSec"), _RESTART_SECONDS),
        start_seconds=seconds(last("TimeoutStartSec") or last("TimeoutSec"), _START_SECONDS),
        stop_seconds=seconds(last("TimeoutStopSec") or last("TimeoutSec"), _STOP_SECONDS),
        kill_mode=last("KillMode", "control-group"),
        remain=last("RemainAfterExit").lower() in _YES,
        folder=last("WorkingDirectory"),
    )


def _settings(name: str, text: str) -> dict[str, list[str]]:
    """Return the settings in [Service]: all values of a key, in order; an empty value discards those before it."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if line.startswith("["):
            section = line
            continue
        key, sign, value = line.partition("=")
        if section == "[Service]" and sign:
            values = found.setdefault(key.strip(), [])
            if value.strip():
                values.append(specified(name, value.strip()))
            else:
                values.clear()
    return found


def specified(name: str, text: str) -> str:
    """Expand the specifiers that depend only on the unit's name."""
    stem = name.rpartition(".")[0]
    prefix, _, instance = stem.partition("@")
    values = {"n": name, "N": stem, "p": prefix, "i": instance, "I": instance, "%": "%"}
    return re.sub(r"%(.)", lambda match: values.get(match[1], match[0]), text)


def _commands(name: str, lines: list[str]) -> tuple[Command, ...]:
    found = []
    for line in lines:
        bare = line.lstrip("-@+!:")
        signs = line[: len(line) - len(bare)]
        words = _words(name, bare)
        if not words:
            raise BadUnit(f"{name}: invalid command {line!r}")
        found.append(Command(words, "-" in signs))
    return tuple(found)


def _assignments(name: str, lines: list[str]) -> list[tuple[str, str]]:
    pairs = [word.partition("=") for line in lines for word in _words(name, line)]
    return [(key, value) for key, _, value in pairs]


def _words(name: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise BadUnit(f"{name}: cannot parse {text!r}: {error}") from None


def seconds(text: str, default: float) -> float:
    """Parse a duration in systemd's syntax; 0: no limit."""
    if not text:
        return default
    if text == "infinity":
        return 0.0
    total, at = 0.0, 0
    while at < len(text):
        match = _SPAN.match(text, at)
        if match is None or match[2] not in _UNITS:
            raise BadUnit(f"{text!r} is not a time span")
        total += float(match[1]) * _UNITS[match[2]]
        at = match.end()
    return total


def environment_of(text: str) -> dict[str, str]:
    """Parse the lines of an EnvironmentFile."""
    found = {}
    for line in text.splitlines():
        line = line.strip()
        key, sign, value = line.partition("=")
        if not sign or line[0] in "#;":
            continue
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] == "'":
            value = value[1:-1]
        elif len(value) > 1 and value[0] == value[-1] == '"':
            value = re.sub(r'\\(["\\$`])', r"\1", value[1:-1])
        found[key.strip()] = value
    return found


def filled(words: tuple[str, ...], environment: Mapping[str, str]) -> list[str]:
    """Expand variables: ${X} is a part of a word, $X alone becomes as many words as its value has."""
    found: list[str] = []
    for word in words:
        alone = re.fullmatch(r"\$(\w+)", word)
        if alone:
            found += environment.get(alone[1], "").split()
        else:
            found.append(_VARIABLE.sub(lambda match: _value(match, environment), word))
    return found


def _value(match: re.Match[str], environment: Mapping[str, str]) -> str:
    name = match[1] or match[2]
    return environment.get(name, "") if name else "$"
