"""Resolve kinds as users name them: `clusters`, `Machine`, `md`, `machines.cluster.x-k8s.io`.

The list of kinds comes from the server's discovery, so that any CRD works like our own kinds. If several kinds share a
name, the first in the server's list is chosen, as with kubectl. One name is special: `clusters` without a group means
the declared clusters and, after them, those of Cluster API without a declaration. The Clusters of management.cattle.io
only mirror them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from remuda.kube.client import Target
from remuda.kube.errors import NotFound, StatusError, qualified
from remuda.kube.similar_names import did_you_mean, similar

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

Json = dict[str, Any]

_ALL_AT_ONCE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
_UNAVAILABLE = 503
CLUSTERS = ("provisioning.cattle.io", "cluster.x-k8s.io")  # meanings of `clusters` without a group, in this order
_DRIVER_GROUPS = ("rke-machine-config.cattle.io", "rke-machine.cattle.io")


class Resource(NamedTuple):
    """One kind in one version, as the server serves it."""

    target: Target
    kind: str
    namespaced: bool
    names: frozenset[str]  # in lower case: plural, singular, kind, short names
    verbs: frozenset[str]

    @property
    def full_name(self) -> str:
        """Return the kind as kubectl prints it before a name: cluster.provisioning.cattle.io."""
        return qualified(self.target.group, self.kind.lower())

    @property
    def is_cluster(self) -> bool:
        """Return whether this is one of the kinds that users call a cluster."""
        return self.kind == "Cluster" and self.target.group in CLUSTERS

    @property
    def plural_name(self) -> str:
        return qualified(self.target.group, self.target.plural)


class Kinds:
    def __init__(self, resources: Sequence[Resource]) -> None:
        """`resources`: in the server's order, in which the preferred version of a group comes first."""
        self.resources = resources

    def find(self, text: str) -> Resource:
        """Return the first meaning. Raises ClickException."""
        return self.meanings(text)[0]

    def meanings(self, text: str) -> list[Resource]:
        """Return the kind that the text names; for a bare `clusters`, each of its meanings. Raises ClickException."""
        word, _, rest = text.partition(".")
        named = [one for one in self.resources if word.lower() in one.names]
        if rest:
            named = [one for one in named if _is_of(one.target, rest)]
        elif clusters := {one.target.group: one for one in reversed(named) if one.target.group in CLUSTERS}:
            return [clusters[group] for group in CLUSTERS if group in clusters]
        if not named:
            more = _OF_DRIVERS if self._is_management_plane else NO_MANAGEMENT_PLANE
            raise click.ClickException(f"the server has no kind {text!r}{self._close(text) or '.'} {more}")
        return named[:1]

    def of(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource that a manifest names."""
        same = (one for one in self.resources if one.target.api_version == api_version and one.kind == kind)
        return next(same, None)

    def why_unknown(self, api_version: str, kind: str) -> str:
        """Return why the server does not serve a manifest's kind."""
        group = Target(api_version, "").group
        text = f"the server has no {kind} of {api_version}"
        if group in _DRIVER_GROUPS:
            driver = kind.removesuffix("Config").removesuffix("MachineTemplate").removesuffix("Machine").lower()
            manifest = f"kind: NodeDriver, metadata: {{name: {driver}}}, spec: {{url: 'local://', active: true}}"
            return (
                f"{text}. The NodeDriver {driver} defines it, which does not exist or is not active. Apply this object "
                f"to activate it:\n  {{apiVersion: management.cattle.io/v3, {manifest}}}"
            )
        others = sorted({one.target.api_version for one in self.resources if one.kind == kind})
        if others:
            return f"{text}, only of {', '.join(others)}"
        if group in CLUSTERS and not self._is_management_plane:
            return f"{text}. {NO_MANAGEMENT_PLANE}"
        return text + self._close(kind)

    @property
    def _is_management_plane(self) -> bool:
        return any(one.target.group in CLUSTERS for one in self.resources)

    def _close(self, text: str) -> str:
        names = {name: one.plural_name for one in reversed(self.resources) for name in one.names}
        close = [names[name] for name in similar(text.partition(".")[0].lower(), names)]
        return did_you_mean(close)


NO_MANAGEMENT_PLANE = (
    "It is not a management plane, but a Kubernetes cluster without Remuda. If this is the kubeconfig of a cluster "
    "that Remuda created, use that of the management plane: --kubeconfig FILE or $KUBECONFIG"
)
_OF_DRIVERS = "A driver's kinds exist while its NodeDriver is active: see `remuda get nodedrivers`"


def _is_of(target: Target, rest: str) -> bool:
    """Return whether the text after the dot matches, as in kubectl: a group, its first labels, or VERSION.GROUP."""
    version, _, group = rest.partition(".")
    return (
        target.group == rest
        or target.group.startswith(f"{rest}.")
        or (target.version, target.group) == (version, group)
    )


def named_objects(words: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the kinds with the names of their objects, from `KIND NAME...` or `KIND/NAME...`. Raises UsageError."""
    if not any("/" in word for word in words):
        return [(words[0], tuple(words[1:]))]
    found: dict[str, list[str]] = {}
    for word in words:
        kind, slash, name = word.partition("/")
        if not (kind and slash and name) or "/" in name:
            raise click.UsageError(f"{word}: write either KIND NAME... or KIND/NAME for each object")
        found.setdefault(kind, []).append(name)
    return [(kind, tuple(names)) for kind, names in found.items()]


async def names_of(client: HttpClient, resource: Resource, namespace: str, limit: int = 0) -> list[str]:
    """Return the names of all objects of a kind; none if they cannot be listed."""
    place = namespace if resource.namespaced else ""
    try:
        listing = await client.list(resource.target, place, limit=limit, metadata_only=True)
    except StatusError:
        return []
    return [str(msgspec.json.decode(value)["metadata"]["name"]) for value in listing.items]


async def discover(client: HttpClient) -> Kinds:
    core, groups = await asyncio.gather(_answer(client, "/api"), _answer(client, "/apis"))
    if core.get("kind") == groups.get("kind") == "APIGroupDiscoveryList":
        return Kinds([*_aggregated(core), *_aggregated(groups)])
    versions = [(version, f"/api/{version}") for version in core.get("versions") or ()]
    for group in groups.get("groups") or ():
        preferred = (group.get("preferredVersion") or {}).get("groupVersion", "")
        served = [one["groupVersion"] for one in group.get("versions") or ()]
        versions += [(one, f"/apis/{one}") for one in sorted(served, key=lambda one: one != preferred)]
    lists = await asyncio.gather(*(_listed(client, *each) for each in versions))
    return Kinds([resource for each in lists for resource in each])


async def _answer(client: HttpClient, path: str) -> Json:
    found: Json = msgspec.json.decode(await client.raw_get(path, accept=_ALL_AT_ONCE))
    return found


def _aggregated(document: Json) -> Iterator[Resource]:
    for group in document.get("items") or ():
        name = (group.get("metadata") or {}).get("name") or ""
        for version in group.get("versions") or ():
            api_version = f"{name}/{version['version']}" if name else version["version"]
            for one in version.get("resources") or ():
                kind = (one.get("responseKind") or {}).get("kind", "")
                singular, short = one.get("singularResource"), one.get("shortNames")
                namespaced = one.get("scope") == "Namespaced"
                yield _resource(api_version, one["resource"], kind, namespaced, singular, short, one.get("verbs"))


async def _listed(client: HttpClient, api_version: str, path: str) -> list[Resource]:
    """List the resources of one version, on a server without aggregated discovery.

    An aggregated API that is unavailable has none.
    """
    try:
        document: Json = msgspec.json.decode(await client.raw_get(path))
    except NotFound:
        return []
    except StatusError as error:
        if error.code != _UNAVAILABLE:
            raise
        return []
    return [
        _resource(
            api_version,
            one["name"],
            one["kind"],
            bool(one.get("namespaced")),
            one.get("singularName"),
            one.get("shortNames"),
            one.get("verbs"),
        )
        for one in document.get("resources") or ()
        if "/" not in one["name"]  # a subresource
    ]


def _resource(
    api_version: str,
    plural: str,
    kind: str,
    namespaced: bool,
    singular: str | None,
    short: Sequence[str] | None,
    verbs: Sequence[str] | None,
) -> Resource:
    names = {plural, singular or kind.lower(), kind.lower(), *(short or ())}
    return Resource(Target(api_version, plural), kind, namespaced, frozenset(names), frozenset(verbs or ()))
