"""Deny addresses that a driver must not connect to.

An option such as `endpoint` is a user's choice, and a Job connects there, often from the manager's machine. Loopback,
link-local and unspecified addresses, the metadata services of clouds and the machine's own addresses would let a user
reach what only this machine can. Admission refuses them where an option holds a literal address (`admit`); a Job is
denied them when it connects, after names are resolved (`ConnectionGuard`). An administrator allows them with the
annotation ALLOW_LOCAL of the NodeDriver.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from remuda.kube.admission import ALLOWED, AdmissionResult, Review
from remuda.kube.errors import FieldError, invalid
from remuda.kube.objects import value_at
from remuda.providers.shared import drivers, names
from remuda.providers.shared.drivers import known_drivers
from remuda.providers.shared.drivers.spi import BadOptions
from remuda.providers.shared.restriction import driver_of_kind, has_annotation

ALLOW_LOCAL = "remuda.dev/allow-local-addresses"  # annotation of a NodeDriver: "true"

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address
Place = tuple[str, int]  # an address and a port

_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# Of Amazon over IPv6, Alibaba and Azure; those of all others are link-local.
_METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")))
_EVENTS = frozenset(("socket.connect", "socket.sendto"))
_LONGEST = 2048  # of a URL; megabytes would take long to take apart


# ---- one address -----------------------------------------------------------------------------------------------------


def literal(host: str) -> Ip | None:
    """Return the address that a host is written as; None for a name. Takes all forms that connecting takes: 127.1 and
    0x7f000001 are 127.0.0.1."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host)) if host.isascii() and not host.isspace() else None
    except OSError:
        return None


def forbidden(address: Ip) -> str:
    """Return what is wrong with connecting to an address; empty if nothing is."""
    inner = _embedded(address)
    if inner is not None:
        return forbidden(inner)
    if address.is_loopback:
        return "is a loopback address"
    if address.is_link_local:
        return "is a link-local address"
    if address.is_unspecified or (address.version == 4 and address in _THIS_NETWORK):
        return "is an unspecified address"
    if address in _METADATA:
        return "is a cloud's metadata service"
    return "is an address of the manager's own machine" if _is_own(address) else ""


def _embedded(address: Ip) -> Ip | None:
    """Return the IPv4 address that an IPv6 address stands for."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def _is_own(address: Ip) -> bool:
    """Return whether the address is our own: for such an address, the kernel would use it as source. Sends nothing."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return literal(probe.getsockname()[0]) == address
    except OSError:
        return False


# ---- options ---------------------------------------------------------------------------------------------------------


def host_of(text: str) -> str:
    """Return the host of a URL, host:port, [address]:port or host."""
    try:
        return urlsplit(text if "//" in text else f"//{text}").hostname or ""
    except ValueError:
        return ""


def problem(text: str) -> str:
    """Return the problem with an option that contains an address. Names are not resolved here."""
    if len(text) > _LONGEST:
        return f"has more than {_LONGEST} characters"
    host = text if literal(text) is not None else host_of(text).rstrip(".")
    if host.lower() == "localhost" or host.lower().endswith(".localhost"):
        return "is the manager's own machine"
    address = literal(host)
    return forbidden(address) if address is not None else ""


def resolved_problem(text: str) -> str:
    """Return what is wrong with the addresses that an option has now, after its name was resolved."""
    host = host_of(text)
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host else []
    except OSError:
        return problem(text)
    known = (literal(str(address[0]).partition("%")[0]) for *_, address in found)
    reasons = (forbidden(address) for address in known if address is not None)
    return next(filter(None, reasons), "") or problem(text)


@cache
def options_of_driver(name: str) -> tuple[str, ...]:
    """Return the options of a driver that say where to connect."""
    try:
        ours = drivers.find(name).address_options if name in drivers.names() else ()
    except drivers.NoSuchDriver:
        ours = ()
    return ours or known_drivers.facts(name, {}).addresses


def admit(review: Review) -> AdmissionResult:
    """Refuse literal addresses in a <Driver>Config, <Driver>MachineTemplate or <Driver>Machine."""
    if review.subresource or review.new is None or review.by_manager:
        return ALLOWED
    driver = driver_of_kind(review.kind)
    options = options_of_driver(driver)
    if not options or has_annotation(review, driver, ALLOW_LOCAL):
        return ALLOWED
    return AdmissionResult(errors=tuple(_complaints(review, driver, options)))


def _complaints(review: Review, driver: str, options: tuple[str, ...]) -> Iterator[FieldError]:
    path = _path(review)
    before, after = value_at(review.old, *path), value_at(review.new, *path)
    for option in options:
        said = after.get(option) if isinstance(after, Mapping) else None
        if isinstance(before, Mapping) and before.get(option) == said:
            continue
        for text in _texts(said):
            if why := problem(text):
                yield invalid(".".join((*path, option)), text, f"{why}, {_advice(driver)}")


def check_program(driver: str, options: Mapping[str, object]) -> None:
    """Refuse names that resolve to such addresses, before a program connects by itself. Raise BadOptions."""
    for option in options_of_driver(driver):
        for text in _texts(options.get(option)):
            if why := resolved_problem(text):
                raise BadOptions(f"{option}: {text} {why}, {_advice(driver)}")


def _texts(said: object) -> list[str]:
    return [text for text in (said if isinstance(said, list) else [said]) if isinstance(text, str) and text]


def _path(review: Review) -> tuple[str, ...]:
    if review.group == names.CONFIG_GROUP:
        return ()
    return ("spec", "template", "spec") if review.kind.endswith("Template") else ("spec",)


def _advice(driver: str) -> str:
    return (
        "which only the manager's machine can reach: use another address, or ask an administrator to allow it: "
        f"kubectl annotate nodedriver {driver} {ALLOW_LOCAL}=true"
    )


def allowed_by(annotations: Mapping[str, str]) -> bool:
    """Return True if the annotations of a NodeDriver allow all addresses."""
    return annotations.get(ALLOW_LOCAL) == "true"


# ---- connections of a Job -------------------------------------------------------------------------------------------


class ConnectionGuard:
    """Audit hook of the interpreter that denies a Job's connections to addresses that only this machine can reach.

    It sees the address that each socket connects to, after names were resolved, whichever library resolved them: a name
    that changes between a check and its use gains nothing. It covers drivers in Python, not programs that a driver
    starts. A hook lasts as long as the process, so only the program of a Job installs one."""

    def __init__(self, driver: str, allowed: Collection[Place]) -> None:
        """`allowed`: where the Job reaches the API server."""
        self._driver = driver
        self._allowed = frozenset(allowed)
        self._asking = threading.local()
        self.denied = ""  # what was denied last, for users

    def install(self) -> None:
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS or getattr(self._asking, "now", False):
            return
        place = arguments[1]
        if not isinstance(place, tuple) or not isinstance(place[0], str) or place[:2] in self._allowed:
            return  # a socket of the file system, or the API server
        self._asking.now = True  # the check opens a socket itself
        try:
            why = self._why(place[0])
        finally:
            self._asking.now = False
        if why:
            self.denied = (
                f"connecting to {place[0]} port {place[1]} is denied: it {why}. Use another address, or ask an "
                f"administrator to allow it: kubectl annotate nodedriver {self._driver} {ALLOW_LOCAL}=true"
            )
            raise PermissionError(self.denied)

    @staticmethod
    def _why(host: str) -> str:
        address = literal(host.partition("%")[0])
        return forbidden(address) if address is not None else ""
