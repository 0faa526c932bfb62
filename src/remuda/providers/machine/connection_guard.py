"""Deny connections of a Job to addresses that only the manager's machine can reach.

It is an audit hook of the interpreter, so it sees the address that each socket connects to, after names were resolved,
whatever library resolved them. A name that changes between a check and its use gains nothing. It holds for drivers in
Python; connections of programs that a driver starts are not seen. A hook lasts for as long as the process, so only the
program of a Job installs one.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection
from typing import Any

from remuda.providers.machine import addresses
from remuda.providers.machine.addresses import ALLOW_LOCAL

Place = tuple[str, int]  # an address and a port

_EVENTS = frozenset(("socket.connect", "socket.sendto"))


class ConnectionGuard:
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
        address = addresses.literal(host.partition("%")[0])
        return addresses.forbidden(address) if address is not None else ""
