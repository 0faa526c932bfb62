"""Rules for what the other end of a tunnel may dial. Each end decides for itself, and denies what no rule allows.

A rule is written like the request: `tcp/127.0.0.1:6443`, `tcp/10.42.0.0/16:*`, `tcp/[fd00::/8]:8000-8999`,
`tcp/registry.internal:443`, `unix//run/service.sock`. Address ranges match addresses and never names: the owner of a
name decides which address it resolves to, so a name must be listed as such.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

_NETWORKS = ("tcp", "unix")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class DialTarget(NamedTuple):
    """Target to dial. For a unix socket, the host is a path of the file system, and there is no port."""

    network: str
    host: str
    port: int


class _Rule(NamedTuple):
    network: str
    hosts: frozenset[str]
    range: object  # an ipaddress network, or None; ipaddress is imported only when needed
    first: int
    last: int


class Allow:
    """Allow-list. `loopback`: address that replaces loopback, on a host that is a folder with an address."""

    def __init__(self, rules: Iterable[str] = (), loopback: str = "") -> None:
        """Parse the rules. Raises ValueError for an invalid one."""
        self._rules = [_parse(rule) for rule in rules]
        self._loopback = loopback

    def target(self, network: str, address: str) -> DialTarget | None:
        """Return the target to dial; None if it is not allowed. Raises ValueError for an invalid address."""
        # Match first and replace loopback afterwards: rules contain the loopback address on all kinds of hosts.
        wanted = parse_target(network, address)
        return at(wanted, self._loopback) if any(_matches(rule, wanted) for rule in self._rules) else None


NOTHING = Allow()


def at(target: DialTarget, loopback: str) -> DialTarget:
    """Return the target to dial in fact: `loopback`, if given, replaces a loopback host."""
    return target._replace(host=loopback) if loopback and target.host in _LOOPBACK else target


def parse_target(network: str, address: str) -> DialTarget:
    if network not in _NETWORKS:
        raise ValueError(f"unknown network {network[:20]!r}")
    if network == "unix":
        if not address.startswith("/") or ".." in address.split("/") or "\0" in address:
            raise ValueError("not an absolute path")
        return DialTarget(network, address, 0)
    host, port = _split(address)
    # isdecimal() also accepts digits of other scripts, and int() would convert them.
    if not port.isdecimal() or not port.isascii() or not 0 < int(port[:6]) < 65536:
        raise ValueError("not a port")
    if not host or not host.isascii() or any(character.isspace() or character == "\0" for character in host):
        raise ValueError("not a host")
    return DialTarget(network, host.lower(), int(port))


def _split(address: str) -> tuple[str, str]:
    """Return host, without the brackets of an IPv6 address, and port."""
    host, separator, port = address.rpartition(":")
    if not separator:
        raise ValueError("an address is host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("an IPv6 address needs brackets")
    return host, port


def _parse(rule: str) -> _Rule:
    network, _, address = rule.partition("/")
    try:
        if network != "tcp":
            target = parse_target(network, address)
            return _Rule(network, frozenset({target.host}), None, 0, 0)
        host, ports = _split(address)
        first, last = _ports(ports)
        if not host:
            raise ValueError("not a host")
        names = frozenset() if "/" in host else frozenset({host.lower()})
        return _Rule(network, names, _range(host), first, last)
    except ValueError as error:
        raise ValueError(f"invalid allow rule {rule!r}: {error}") from None


def _ports(text: str) -> tuple[int, int]:
    if text == "*":
        return 1, 65535
    first, _, last = text.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal():
        raise ValueError("not a port, a range of ports or *")
    if not 0 < int(first) <= int(last or first) < 65536:
        raise ValueError("ports must be from 1 to 65535, lowest first")
    return int(first), int(last or first)


def _range(host: str) -> object:
    if not _looks_numeric(host):
        return None
    import ipaddress  # imported late: most programs never need it

    return ipaddress.ip_network(host)


def _looks_numeric(host: str) -> bool:
    return ":" in host or "/" in host or host.replace(".", "").isdecimal()


def _matches(rule: _Rule, target: DialTarget) -> bool:
    if rule.network != target.network or not rule.first <= target.port <= rule.last:
        return False
    if target.host in rule.hosts:
        return True
    if rule.range is None or not _looks_numeric(target.host):
        return False
    import ipaddress

    try:
        return ipaddress.ip_address(target.host) in rule.range  # type: ignore[operator]
    except ValueError:
        return False
