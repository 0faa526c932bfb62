"""IP addresses and networks. Zones and IPv4-mapped IPv6 addresses are invalid."""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Any

from remuda.apiserver.cel import cost
from remuda.apiserver.cel.functions import Library
from remuda.apiserver.cel.values import NO_OVERLOAD, CelError, Opaque

LIBRARY = Library()

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Ip(Opaque):
    __slots__ = ("address",)
    type_name = "net.IP"

    def __init__(self, address: Address) -> None:
        self.address = address

    @property
    def size(self) -> int:
        return len(self.address.packed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ip) and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    def __str__(self) -> str:
        return str(self.address)


class Cidr(Opaque):
    """Address with the prefix length of its network. The address may have bits set beyond the prefix."""

    __slots__ = ("address", "bits")
    type_name = "net.CIDR"

    def __init__(self, address: Address, bits: int) -> None:
        self.address = address
        self.bits = bits

    @property
    def size(self) -> int:
        return (self.bits + 7) // 8

    @property
    def network(self) -> int:
        return int(self.address) >> (self.address.max_prefixlen - self.bits)

    def contains(self, address: Address) -> bool:
        if address.version != self.address.version:
            return False
        return int(address) >> (address.max_prefixlen - self.bits) == self.network

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cidr) and (self.address, self.bits) == (other.address, other.bits)

    def __hash__(self) -> int:
        return hash((self.address, self.bits))

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"


def _parse_ip(text: str) -> Address:
    quoted = json.dumps(text)
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise CelError(
            f"IP Address {quoted} parse error during conversion from string: ParseAddr({quoted}): unable to parse IP"
        ) from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise CelError(f"IP address {quoted} with zone value is not allowed")
        if address.ipv4_mapped is not None:
            raise CelError(f"IPv4-mapped IPv6 address {quoted} is not allowed")
    return address


_TWICE = "network address parse error during conversion from string: " * 2
_BITS = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)


def _parse_cidr(text: str) -> Cidr:
    quoted = json.dumps(text)
    address_text, slash, bits_text = text.rpartition("/")
    if not slash:
        raise CelError(f"{_TWICE}netip.ParsePrefix({quoted}): no '/'")
    try:
        address = ipaddress.ip_address(address_text)
    except ValueError:
        inner = f"ParseAddr({json.dumps(address_text)}): unable to parse IP"
        raise CelError(f"{_TWICE}netip.ParsePrefix({quoted}): {inner}") from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise CelError(f"{_TWICE}netip.ParsePrefix({quoted}): IPv6 zones cannot be present in a prefix")
        if address.ipv4_mapped is not None:
            raise CelError(
                "network address parse error during conversion from string: "
                f"IPv4-mapped IPv6 address {quoted} is not allowed"
            )
    if not _BITS.fullmatch(bits_text):
        raise CelError(f"{_TWICE}netip.ParsePrefix({quoted}): bad bits after slash: {json.dumps(bits_text)}")
    if int(bits_text) > address.max_prefixlen:
        raise CelError(f"{_TWICE}netip.ParsePrefix({quoted}): prefix length out of range")
    return Cidr(address, int(bits_text))


def _ip(text: str) -> Ip:
    return Ip(_parse_ip(text))


def _is_ip(text: str) -> bool:
    try:
        _parse_ip(text)
    except CelError:
        return False
    return True


def _is_canonical(text: str) -> bool:
    return str(_parse_ip(text)) == text


def _is_cidr(text: str) -> bool:
    try:
        _parse_cidr(text)
    except CelError:
        return False
    return True


def _is_global_unicast(ip: Ip) -> bool:
    address = ip.address
    if isinstance(address, ipaddress.IPv4Address) and address == ipaddress.IPv4Address("255.255.255.255"):
        return False
    return not (address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local)


def _is_link_local_multicast(ip: Ip) -> bool:
    address = ip.address
    if isinstance(address, ipaddress.IPv4Address):
        return int(address) >> 8 == 0xE00000
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 0x02


def _contains_text(cidr: Cidr, text: str) -> bool:
    try:
        return cidr.contains(_parse_ip(text))
    except CelError:
        raise CelError(NO_OVERLOAD) from None  # upstream drops the reason here as well


def _contains_cidr(outer: Cidr, inner: Cidr) -> bool:
    return outer.bits <= inner.bits and outer.contains(inner.address)


def _masked(cidr: Cidr) -> Cidr:
    hidden = cidr.address.max_prefixlen - cidr.bits
    return Cidr(type(cidr.address)(int(cidr.address) >> hidden << hidden), cidr.bits)


def _cost_of_containment(extra_text: bool, extra_network: bool) -> Any:
    def cost_of(args: tuple[Any, ...], result: Any) -> int:
        total = cost.tenth(2 * args[0].size)
        if extra_network:
            total += cost.tenth(args[0].size) + 1
        return total + (cost.tenth(len(args[1])) if extra_text else 0)

    return cost_of


LIBRARY.function("ip(string): net.IP", _ip, cost=cost.of_first)
LIBRARY.function("isIP(string): bool", _is_ip, cost=cost.of_first)
LIBRARY.function("ip.isCanonical(string): bool", _is_canonical, cost=cost.of_first_twice)
LIBRARY.function("string(net.IP): string", str, id="ip_to_string")
LIBRARY.method("net.IP.family(): int", lambda ip: ip.address.version)
LIBRARY.method("net.IP.isUnspecified(): bool", lambda ip: ip.address.is_unspecified)
LIBRARY.method("net.IP.isLoopback(): bool", lambda ip: ip.address.is_loopback)
LIBRARY.method("net.IP.isLinkLocalMulticast(): bool", _is_link_local_multicast)
LIBRARY.method("net.IP.isLinkLocalUnicast(): bool", lambda ip: ip.address.is_link_local)
LIBRARY.method("net.IP.isGlobalUnicast(): bool", _is_global_unicast)

LIBRARY.function("cidr(string): net.CIDR", _parse_cidr, cost=cost.of_first)
LIBRARY.function("isCIDR(string): bool", _is_cidr, cost=cost.of_first)
LIBRARY.function("string(net.CIDR): string", str, id="cidr_to_string")
LIBRARY.method(
    "net.CIDR.containsIP(string): bool",
    _contains_text,
    id="cidr_contains_ip_string",
    cost=_cost_of_containment(True, False),
)
LIBRARY.method(
    "net.CIDR.containsIP(net.IP): bool",
    lambda cidr, ip: cidr.contains(ip.address),
    cost=_cost_of_containment(False, False),
)
LIBRARY.method(
    "net.CIDR.containsCIDR(string): bool",
    lambda cidr, text: _contains_cidr(cidr, _parse_cidr(text)),
    id="cidr_contains_cidr_string",
    cost=_cost_of_containment(True, True),
)
LIBRARY.method("net.CIDR.containsCIDR(net.CIDR): bool", _contains_cidr, cost=_cost_of_containment(False, True))
LIBRARY.method("net.CIDR.ip(): net.IP", lambda cidr: Ip(cidr.address), id="cidr_ip")
LIBRARY.method("net.CIDR.prefixLength(): int", lambda cidr: cidr.bits)
LIBRARY.method("net.CIDR.masked(): net.CIDR", _masked)
