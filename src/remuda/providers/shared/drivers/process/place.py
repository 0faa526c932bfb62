"""Loopback addresses of process hosts, and blocking calls to this machine with its errors as DriverError."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from remuda.providers.shared.drivers.process.host import Taken
from remuda.providers.shared.drivers.spi import BadOptions, DriverError

NETWORK = ipaddress.IPv4Network("127.64.0.0/10")

P = ParamSpec("P")
T = TypeVar("T")


async def do(act: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Run a blocking call in a thread; raise its OSError as DriverError."""
    try:
        return await asyncio.to_thread(act, *arguments, **named)
    except Taken as taken:
        raise DriverError(str(taken)) from None
    except OSError as error:
        raise DriverError(f"the operating system refuses: {error.strerror or error} ({error.filename})") from None


def check_address(text: str) -> None:
    """Raises BadOptions."""
    try:
        inside = ipaddress.ip_address(text) in ipaddress.ip_network("127.0.0.0/8")
    except ValueError:
        inside = False
    if not inside:
        raise BadOptions(f"address: {text!r} is not an address of 127.0.0.0/8, which process hosts use")
