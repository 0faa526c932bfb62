"""Installed drivers: ours and those of other packages, found by the entry point group `remuda.drivers`.

A driver is imported only when it is used, so that an unused cloud's SDK costs nothing.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from remuda.providers import ProviderError
from remuda.providers.shared.drivers.spi import ClusterDriver, Driver

ENTRY_POINTS = "remuda.drivers"
_FOR_EXISTING_SERVERS = ("generic", "none")  # drivers of rancher-machine


class NoSuchDriver(ProviderError):
    """No installed package has the driver, or the package cannot be imported; the message says which."""


@cache
def _points() -> tuple[EntryPoint, ...]:
    """Return the entry points of drivers, cached: scanning all installed packages takes tens of milliseconds."""
    return tuple(entry_points(group=ENTRY_POINTS))


def names() -> list[str]:
    return sorted({point.name for point in _points()})


def find(name: str) -> type[Driver[Any]]:
    """Raises NoSuchDriver."""
    points = [point for point in _points() if point.name == name]
    if not points:
        raise NoSuchDriver(f"driver {name} not found; installed drivers: {', '.join(names())}")
    return _load(points[0])


def is_replaceable(name: str) -> bool:
    """Return whether a driver can create another server in place of a broken one. Of programs, those for servers that
    already exist cannot."""
    try:
        return find(name).replaceable
    except NoSuchDriver:
        return name not in _FOR_EXISTING_SERVERS


def find_cluster(name: str) -> type[ClusterDriver[Any]]:
    """Return the driver's class for infrastructure of a cluster as a whole. Raises NoSuchDriver."""
    found = find(name).cluster
    if found is None:
        able = [other for other in names() if _makes_clusters(other)]
        raise NoSuchDriver(f"driver {name} cannot create cluster infrastructure; these drivers can: {', '.join(able)}")
    return found


def _makes_clusters(name: str) -> bool:
    try:
        return find(name).cluster is not None
    except NoSuchDriver:
        return False


def _load(point: EntryPoint) -> type[Driver[Any]]:
    try:
        found = point.load()
    except ImportError as error:
        raise NoSuchDriver(f"cannot load driver {point.name}: {error}") from None
    if not (isinstance(found, type) and issubclass(found, Driver)):
        raise NoSuchDriver(f"cannot load driver {point.name}: {point.value} is not a subclass of Driver")
    return found
