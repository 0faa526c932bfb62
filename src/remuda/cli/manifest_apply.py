"""Server-side apply of a manifest: in an order that works, and all objects or none.

A dry run of every object comes first. If the server refuses one, its errors are printed and nothing is applied. Objects
in a namespace, or of a kind, that the manifest itself creates cannot be checked by the dry run.

`kubectl apply` and our own editing commands (`remuda scale`) own the fields they wrote under other field manager names.
Before the object is applied, these entries are merged into our field manager, as kubectl does with its own earlier
entries. Fields of any other manager are a conflict; the error names the owners and what to do.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from remuda.cli import CliError
from remuda.cli.kinds import CLUSTERS, Kinds, Resource, discover
from remuda.kube.errors import Conflict, NotFound, StatusError
from remuda.kube.objects import Key
from remuda.kube.patches import create_merge_patch

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

Json = dict[str, Any]

MANAGER = "remuda-cli"
_EARLIER = ("kubectl-client-side-apply", "kubectl-edit", MANAGER)  # managers whose Update fields we take over
_CONFLICT_WITH = re.compile(r'^conflict with "([^"]*)"')
_INVALID = 422
_SERVED_SECONDS = 60.0
_POLL_SECONDS = 0.5

# Objects that others need come first and Clusters last; kinds that are not named here are applied in between.
_ORDER = ("Namespace", "CustomResourceDefinition", "NodeDriver", "ServiceAccount", "Secret", "ConfigMap")


class ApplyRefused(CliError):
    """Manifests that the server rejected, with one sentence for each reason."""

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__("\n".join(sentences))


class Applied(NamedTuple):
    resource: Resource
    key: Key
    outcome: str  # created, configured, unchanged: kubectl's words
    obj: Json  # as it is afterwards

    def __str__(self) -> str:
        return f"{self.resource.full_name}/{self.key.name} {self.outcome}"


def in_order(objects: Sequence[Json]) -> list[Json]:
    return sorted(objects, key=_rank)


def _rank(obj: Json) -> int:
    if obj["kind"] in _ORDER:
        return _ORDER.index(obj["kind"])
    group = str(obj["apiVersion"]).rpartition("/")[0]
    return len(_ORDER) + (obj["kind"] == "Cluster" and group in CLUSTERS)


class Applying:
    def __init__(self, client: HttpClient, objects: Sequence[Json], *, namespace: str, force: bool) -> None:
        self._client = client
        self._objects = in_order(objects)
        self._namespace = namespace or client.access.namespace or "default"
        self._force = force
        self._kinds = Kinds(())
        self._created_kinds = {kind for obj in objects for kind in _created_kinds(obj)}
        self._namespaces = {obj["metadata"]["name"] for obj in objects if obj["kind"] == "Namespace"}

    async def try_out(self) -> list[Applied]:
        """Dry-run the manifests and return what applying them would do.

        Raises ApplyRefused with everything that is rejected.
        """
        self._kinds = await discover(self._client)
        refused: list[str] = []
        unknown: dict[str, list[str]] = {}  # reason → titles of objects
        found = []
        for obj in self._objects:
            resource = self._kinds.of(obj["apiVersion"], obj["kind"])
            if resource is None:
                if (obj["apiVersion"].rpartition("/")[0], obj["kind"]) not in self._created_kinds:
                    unknown.setdefault(self._kinds.why_unknown(obj["apiVersion"], obj["kind"]), []).append(_title(obj))
                continue
            try:
                found.append(await self._one(resource, obj, dry_run=True))
            except StatusError as error:
                if not (isinstance(error, NotFound) and self._key(resource, obj).namespace in self._namespaces):
                    refused.append(f"{_title(obj)}: {_explained(error)}")
        refused += [f"{', '.join(titles)}: {why}" for why, titles in unknown.items()]
        if refused:
            raise ApplyRefused(refused)
        return found

    async def apply(self, report: Callable[[Applied], None]) -> list[Applied]:
        """Apply all objects and return the outcomes. Raises ClickException for the first one that fails."""
        if not self._kinds.resources:
            self._kinds = await discover(self._client)
        found = []
        for obj in self._objects:
            resource = self._kinds.of(obj["apiVersion"], obj["kind"]) or await self._served(obj)
            try:
                done = await self._one(resource, obj, dry_run=False)
            except StatusError as error:
                raise click.ClickException(f"{_title(obj)}: {_explained(error)}") from None
            report(done)
            found.append(done)
        return found

    async def _served(self, obj: Json) -> Resource:
        """Wait until the server serves a kind that the manifest defines."""
        what = f"{obj['kind']} of {obj['apiVersion']}"
        click.echo(f"waiting until the server serves {what}", err=True)
        try:
            async with asyncio.timeout(_SERVED_SECONDS):
                while True:
                    self._kinds = await discover(self._client)
                    if found := self._kinds.of(obj["apiVersion"], obj["kind"]):
                        return found
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise click.ClickException(
                f"the server does not serve {what} after {_SERVED_SECONDS:g} s. The objects before it are applied. "
                "Check its NodeDriver or CRD (`remuda get nodedrivers`, `remuda get crds`), then apply it again"
            ) from None

    def _key(self, resource: Resource, obj: Json) -> Key:
        metadata = obj["metadata"]
        return Key(metadata.get("namespace") or self._namespace if resource.namespaced else "", metadata["name"])

    async def _one(self, resource: Resource, obj: Json, *, dry_run: bool) -> Applied:
        key = self._key(resource, obj)
        live = await self._live(resource, key)
        if live is not None and not dry_run:
            await self._take_over(resource, key, live)
        made = await self._patch(resource, key, obj, dry_run=dry_run)
        if live is None:
            return Applied(resource, key, "created", made)
        if dry_run:
            made = await self._after_take_over(resource, key, live, made)
        return Applied(resource, key, "unchanged" if _same(live, made) else "configured", made)

    async def _after_take_over(self, resource: Resource, key: Key, live: Json, made: Json) -> Json:
        """Return the result of the dry run without the fields that the take-over drops. The server fills in defaults of
        dropped fields again: only it knows them."""
        wanted = without_dropped(made, live)
        if wanted == made:
            return made
        before, after = (
            {name: value for name, value in obj.items() if name not in ("metadata", "status")} for obj in (live, wanted)
        )
        patch = create_merge_patch(before, after)
        if not patch:
            return {**live, "metadata": made["metadata"]}
        found: Json = msgspec.json.decode(await self._client.patch(resource.target, *key, patch, dry_run=True))
        return {**found, "metadata": made["metadata"]}

    async def _live(self, resource: Resource, key: Key) -> Json | None:
        try:
            found: Json = msgspec.json.decode(await self._client.get(resource.target, *key))
        except NotFound:
            return None
        return found

    async def _patch(self, resource: Resource, key: Key, obj: Json, *, dry_run: bool) -> Json:
        patch = {**obj, "metadata": {**obj["metadata"], **({"namespace": key.namespace} if key.namespace else {})}}

        async def send(force: bool) -> Json:
            answer = await self._client.patch(
                resource.target, *key, patch, kind="apply", field_manager=MANAGER, force=force, dry_run=dry_run
            )
            found: Json = msgspec.json.decode(answer)
            return found

        try:
            return await send(self._force)
        except StatusError as error:
            # A dry run cannot take over the fields of earlier managers first, so it meets conflicts that the real write
            # does not have.
            if not dry_run or not _with_ourselves(error):
                raise
            return await send(True)

    async def _take_over(self, resource: Resource, key: Key, live: Json) -> None:
        """Rewrite managedFields in a write of its own, so that it does not turn `unchanged` into `configured`."""
        managed = live["metadata"].get("managedFields") or []
        merged = taken_over(managed, resource.target.api_version)
        if merged == managed:
            return
        patch = [
            {"op": "replace", "path": "/metadata/managedFields", "value": merged},
            # With the version that was read: an object that changed in between causes a conflict.
            {"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
        ]
        await self._client.patch(resource.target, *key, patch, kind="json")


def taken_over(managed: Sequence[Json], api_version: str) -> list[Json]:
    """Return managedFields in which the fields of earlier managers are ours."""
    earlier = [one for one in managed if _is_earlier(one)]
    if not earlier:
        return list(managed)
    own = next((one for one in managed if _is_own(one)), {})
    fields: Json = dict(own.get("fieldsV1") or {})
    for one in earlier:
        fields = _union(fields, one.get("fieldsV1") or {})
    last = (own or earlier[-1]) | {"manager": MANAGER, "operation": "Apply", "fieldsV1": fields}
    last.setdefault("apiVersion", api_version)
    return [one for one in managed if one is not own and one not in earlier] + [last]


def _is_earlier(one: Json) -> bool:
    return one.get("operation") == "Update" and one.get("manager") in _EARLIER and not one.get("subresource")


def _is_own(one: Json) -> bool:
    return one.get("operation") == "Apply" and one.get("manager") == MANAGER and not one.get("subresource")


def without_dropped(made: Json, live: Json) -> Json:
    """Return the result of a dry run without the fields that only the take-over removes: those of earlier managers that
    the manifest no longer has. A dry run cannot take them over first, so it keeps them. Metadata stays as it is: there,
    admission restores what it sets itself."""
    kept: Json = {}
    for one in made["metadata"].get("managedFields") or ():
        if not _is_earlier(one):
            kept = _union(kept, one.get("fieldsV1") or {})
    for one in live["metadata"].get("managedFields") or ():
        if _is_earlier(one):
            fields = {name: inner for name, inner in (one.get("fieldsV1") or {}).items() if name != "f:metadata"}
            made = _without(made, fields, kept)
    return made


def _without(value: Json, fields: Mapping[str, Any], kept: Mapping[str, Any]) -> Json:
    """Remove the fields that are not kept. Items of lists stay: nobody but the server can find them by their keys."""
    found = dict(value)
    for element, inner in fields.items():
        name = element.removeprefix("f:")
        if not element.startswith("f:") or name not in found:
            continue
        below = {key for key in inner if key != "."}
        if below and isinstance(found[name], dict):
            found[name] = _without(found[name], inner, kept.get(element) or {})
            if not found[name] and element not in kept:
                del found[name]
        elif not below and element not in kept:
            del found[name]
    return found


def _union(one: Mapping[str, Any], other: Mapping[str, Any]) -> Json:
    shared = {key: _union(one[key], other[key]) for key in one.keys() & other.keys()}
    return {**one, **other, **shared}


def _with_ourselves(error: StatusError) -> bool:
    """Return whether the error is a conflict only with field managers whose fields we take over."""
    causes = error.details.get("causes") or ()
    found = [_CONFLICT_WITH.match(str(cause.get("message", ""))) for cause in causes]
    return isinstance(error, Conflict) and bool(found) and all(one is not None and one[1] in _EARLIER for one in found)


def _same(live: Json, made: Json) -> bool:
    """Return whether two states differ only in managedFields and resourceVersion."""
    return _content(live) == _content(made)


def _content(obj: Json) -> Json:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in ("managedFields", "resourceVersion")}
    return {**obj, "metadata": metadata}


def _explained(error: StatusError) -> str:
    """Return the server's message, with a line per cause; for a conflict, the owners and what to do."""
    causes = error.details.get("causes") or ()
    owned = [one for one in causes if one.get("reason") == "FieldManagerConflict"]
    if isinstance(error, Conflict) and owned:
        return (
            f"other field managers own fields that it would change:{_listed(owned)}\nRemove these fields from the "
            "manifest, or take them over with --force-conflicts"
        )
    return f"invalid:{_listed(causes)}" if error.code == _INVALID and len(causes) > 1 else error.message


def _listed(causes: Sequence[Json]) -> str:
    return "".join(f"\n  {one.get('field', '')}: {one.get('message', '')}" for one in causes)


def _title(obj: Json) -> str:
    return f"{obj['kind']} {obj['metadata']['name']}"


def _created_kinds(obj: Json) -> list[tuple[str, str]]:
    """Return the kinds (group, kind) that the server serves after an object is applied."""
    if obj["kind"] == "CustomResourceDefinition":
        spec = obj.get("spec") or {}
        return [(str(spec.get("group")), str((spec.get("names") or {}).get("kind")))]
    if obj["kind"] == "NodeDriver":
        from remuda.providers.shared.types.machine import config_kind, machine_kind, template_kind

        made = [kind(obj["metadata"]["name"]) for kind in (config_kind, template_kind, machine_kind)]
        return [(kind.target.group, kind.name) for kind in made]
    return []
