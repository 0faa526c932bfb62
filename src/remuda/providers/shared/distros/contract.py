"""The contract of a distribution: what its program takes, writes, listens on and answers, as data.

Each fact has its source and the release in which it was read or seen, and says in which versions it holds. Supporting
another minor is a change of these facts (`k3s.py`, `rke2.py`); admission, plans and the checker of the tests read them.
What is not written here is not known: a distribution without facts is not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from remuda.providers.shared.distros import Version

ArgumentType = Literal["string", "boolean", "list", "number"]
Role = Literal["server", "agent"]


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A statement about a distribution, where it comes from, and in which versions it holds."""

    source: str  # repository and file, an issue, or "observed"
    version: str  # the release in which it was read or seen
    # The first releases with it, one of each minor that got it: 1.33.1 means 1.33.1 and all minors after 1.33 as well.
    # Empty: every version that is supported.
    since: Sequence[str] = ()
    before: str = ""  # the first release without it

    def holds(self, version: Version) -> bool:
        found = (version.major, version.minor, version.patch)
        if self.before and found >= _numbers(self.before):
            return False
        firsts = {first[:2]: first for first in map(_numbers, self.since)}
        if not firsts or found[:2] > max(firsts):
            return True
        return found[:2] in firsts and found >= firsts[found[:2]]


class Keys(Fact, frozen=True, kw_only=True):
    """Keys of the config file: the long names of flags."""

    types: Mapping[str, ArgumentType]
    roles: Sequence[Role]


class ConfigConstraint(Fact, frozen=True, kw_only=True):
    """Values of a key that the program, or Remuda, refuses. `words` follow the key in a sentence."""

    key: str
    words: str
    flag: str = ""  # of items `flag=value` of the key's list; empty: the key's own value
    allowed: Sequence[str] = ()  # other values are refused; several values are joined by commas
    forbidden: Sequence[str] = ()  # these values are refused
    never_with: Sequence[str] = ()  # refused beside one of these keys
    only_with: Sequence[str] = ()  # refused without one of these keys
    when: Mapping[str, str] = {}  # only where these keys have these values


class Unit(Fact, frozen=True, kw_only=True):
    name: str  # without .service
    role: Role
    type: str
    active: str  # meaning of an active unit in systemd
    environment: Sequence[str]  # files that the unit reads, in this order; a later one wins
    released: Sequence[str] = ()  # those of them that come with the release, or that administrators edit


class Script(Fact, frozen=True, kw_only=True):
    """A script of a release."""

    name: str
    variables: Sequence[str]  # that it reads of the environment
    note: str = ""


class Port(Fact, frozen=True, kw_only=True):
    name: str
    number: int
    fixed: bool  # whether no setting changes it


class Health(Fact, frozen=True, kw_only=True):
    component: str
    url: str  # on loopback
    trusts: str = ""  # authority, below the data directory; empty: no TLS
    note: str = ""


class OwnedFile(Fact, frozen=True, kw_only=True):
    """A file below the data directory that the program gives another owner or mode than we would, or rewrites."""

    path: str
    owner: str = "root"
    mode: str = "0600"
    when: str = ""  # words
    rewritten: bool = False


class Archive(Fact, frozen=True, kw_only=True):
    """An archive of images of a release."""

    file: str  # <arch> is replaced by the architecture
    name: str  # in the manager's store
    images: Sequence[str]  # sets of images that it holds


class ImageChoice(Fact, frozen=True, kw_only=True):
    """A key that decides which images nodes run."""

    key: str
    sets: Mapping[str, str]  # of images, by value of the key; other values need none
    default: Sequence[str] = ()  # values that hold where the key is not set


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    keys: Sequence[Keys] = ()
    limits: Sequence[ConfigConstraint] = ()
    units: Sequence[Unit] = ()
    scripts: Sequence[Script] = ()
    ports: Sequence[Port] = ()
    health: Sequence[Health] = ()
    files: Sequence[OwnedFile] = ()
    archives: Sequence[Archive] = ()
    image_choices: Sequence[ImageChoice] = ()

    def facts(self) -> list[Fact]:
        return [fact for name in self.__struct_fields__ for fact in getattr(self, name)]

    def arguments(self, role: Role, version: Version | None = None) -> dict[str, ArgumentType]:
        """Keys that this role takes, by type: those of a version, or of any."""
        return {
            name: kind
            for keys in self.keys
            if role in keys.roles and (version is None or keys.holds(version))
            for name, kind in keys.types.items()
        }


class ConfigRefusal(msgspec.Struct, frozen=True):
    key: str
    words: str
    items: Sequence[str] = ()  # of the key's list; empty: the whole value


def refusals(contract: Contract, version: Version, values: Mapping[str, Any]) -> list[ConfigRefusal]:
    """Return the settings of a config file that the version does not accept."""
    found = []
    for limit in contract.limits:
        if limit.holds(version) and all(_joined(values, key) == value for key, value in limit.when.items()):
            if limit.flag:
                wrong = tuple(item for item in listed(values.get(limit.key)) if _is_wrong(item, limit))
                found += [ConfigRefusal(limit.key, limit.words, wrong)] if wrong else []
            elif _joined(values, limit.key) and _is_refused(limit, values):
                found.append(ConfigRefusal(limit.key, limit.words))
    return found


def listed(value: Any) -> list[str]:
    """A value as the texts that a program makes of it."""
    if value is None or value == "":
        return []
    return [text(item) for item in value] if isinstance(value, list | tuple) else [text(value)]


def text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # JSON does not distinguish 5 from 5.0
    return str(value)


def _is_refused(limit: ConfigConstraint, values: Mapping[str, Any]) -> bool:
    given = _joined(values, limit.key)
    return (
        (bool(limit.allowed) and given not in limit.allowed)
        or given in limit.forbidden
        or any(_joined(values, key) for key in limit.never_with)
        or (bool(limit.only_with) and not any(_joined(values, key) for key in limit.only_with))
    )


def _is_wrong(item: str, limit: ConfigConstraint) -> bool:
    name, _, given = item.partition("=")
    return name.lstrip("-") == limit.flag and given not in limit.allowed


def _joined(values: Mapping[str, Any], key: str) -> str:
    return ",".join(listed(values.get(key)))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
