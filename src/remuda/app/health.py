"""Health server of a process that runs controllers: liveness, readiness and metrics, on an address of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from remuda.app.process import Address, StartRefused, shown, why_not
from remuda.runtime.manager import Manager

if TYPE_CHECKING:
    from remuda.runtime.health import Check


@asynccontextmanager
async def served(address: Address | None, manager: Manager, checks: Mapping[str, Check]) -> AsyncIterator[None]:
    """Serve for the duration of the block, if an address is given. Raises StartRefused if it cannot listen there."""
    if address is None:
        yield
        return
    from remuda.runtime.health import HealthServer  # imported only if it is used

    server = HealthServer(
        {"caches": lambda: _unfilled(manager), "watches": lambda: _unreadable(manager), **checks},
        manager.metrics.render,
    )
    try:
        await server.start(*address)
    except OSError as error:
        raise StartRefused(f"cannot listen on {shown(address)} for --health-listen: {why_not(error)}") from None
    try:
        yield
    finally:
        await server.stop()


def _unfilled(manager: Manager) -> str:
    return "; ".join(f"{target.plural} not cached: {why}" for target, why in manager.caches.missing.items())


def _unreadable(manager: Manager) -> str:
    return "; ".join(f"cannot watch {target.plural}: {why}" for target, why in manager.caches.unreadable.items())
