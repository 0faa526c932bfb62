"""SSH login of a server: addresses, user, private key and accepted host keys. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from remuda.providers.shared.drivers.spi import Address

SSH_PORT = 22


class Login(msgspec.Struct, frozen=True, kw_only=True):
    addresses: Sequence[str]  # tried one after the other
    port: int
    user: str
    private_key: str
    host_keys: Sequence[str] = ()  # "ssh-ed25519 AAAA…"; empty: the first one seen is pinned

    def __repr__(self) -> str:
        return f"<Login {self.user} at {', '.join(self.addresses)}>"


_ORDER = ("ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS", "Hostname")


def reachable(addresses: Sequence[Address]) -> list[str]:
    """Return the distinct addresses, the most reachable first."""
    known = sorted(addresses, key=lambda one: _ORDER.index(one.type))
    return list(dict.fromkeys(one.address for one in known))


def known_hosts(login: Login) -> str:
    """Return the host keys in known_hosts format: one line per address and key."""
    names = [name if login.port == SSH_PORT else f"[{name}]:{login.port}" for name in login.addresses]
    return "".join(f"{name} {key}\n" for name in names for key in login.host_keys)


def host_keys(text: str) -> list[str]:
    """Return the distinct keys of a known_hosts text."""
    fields = [line.split() for line in text.splitlines() if line.strip() and not line.startswith(("#", "@"))]
    return list(dict.fromkeys(" ".join(line[1:3]) for line in fields if len(line) >= 3))
