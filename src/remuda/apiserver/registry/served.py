"""Resources served right now: built-in kinds, and custom ones that come and go.

Each resource is served with its compiled schema. `generation` grows with every change, so that discovery, OpenAPI and
other derived answers can be cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from remuda.apiserver.resource import Resource
from remuda.apiserver.schema.walk import Structural
from remuda.apiserver.storage.types import Revision
from remuda.kube.errors import StatusError


class Shape:
    """Compiled schema of a resource. `since`: entries written before this revision may lack its defaults."""

    __slots__ = ("resource", "since", "structural")

    def __init__(self, resource: Resource, structural: Structural, since: Revision) -> None:
        self.resource = resource
        self.structural = structural
        self.since = since


class Served:
    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        self._generation = 0
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self._shapes: dict[Resource, Shape] = {}
        self._by_table: dict[str, list[Resource]] = {}
        self.unreadable: dict[str, StatusError] = {}  # definitions that cannot be read, by name
        for resource in resources:
            self.add(resource)

    @property
    def generation(self) -> int:
        return self._generation

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_path.get((group, version, plural))

    def require_readable(self, group: str, plural: str) -> None:
        """Raise an error for a kind that is not served only because its definition cannot be read."""
        if error := self.unreadable.get(f"{plural}.{group}"):
            raise error

    def of_kind(self, group: str, kind: str) -> Resource | None:
        """Return any served version of a kind."""
        return next((r for r in self._by_path.values() if r.group == group and r.kind == kind), None)

    def of_table(self, table: str) -> Resource | None:
        """Return the resource that is stored in the table, or any version of it, for deletions by upkeep."""
        versions = self._by_table.get(table, [])
        return next((r for r in versions if r.storage_version in ("", r.version)), versions[0] if versions else None)

    def all(self) -> Iterator[Resource]:
        return iter(tuple(self._by_path.values()))

    def is_fresh(self, group: str, version: str) -> bool:
        return any(r.group == group and r.version == version for r in self._by_path.values())

    def shape(self, resource: Resource) -> Shape:
        shape = self._shapes.get(resource)
        if shape is None:
            structural = Structural(resource.schema, native=not resource.custom, kind=resource.kind)
            shape = self._shapes[resource] = Shape(resource, structural, Revision(0))
        return shape

    def add(self, resource: Resource, shape: Shape | None = None) -> None:
        self._by_path[resource.group, resource.version, resource.plural] = resource
        self._by_table.setdefault(resource.table, []).append(resource)
        if shape is not None:
            self._shapes[resource] = shape
        self._generation += 1

    def remove(self, resource: Resource) -> None:
        self._by_path.pop((resource.group, resource.version, resource.plural), None)
        self._shapes.pop(resource, None)
        versions = self._by_table.get(resource.table, [])
        if resource in versions:
            versions.remove(resource)
        if not versions:
            self._by_table.pop(resource.table, None)
        self._generation += 1
