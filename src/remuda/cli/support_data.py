"""Data that `remuda diagnose` collects through the API, as any user could: texts with secrets redacted.

Data that cannot be read (missing permissions, a server of an older version) is noted and left out; it never stops the
collection. Nothing is written. For a cluster, it collects everything that is labelled with it, named after it or
referred to by its pools; without one, everything of our kinds.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click
import msgspec

from remuda.capi import names as capi_names
from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.cli import redaction, yaml_output
from remuda.cli.events import belongs, event_text, when
from remuda.cli.kinds import Resource, discover
from remuda.cli.redaction import Redactor
from remuda.kube.client import Target, list_all
from remuda.kube.errors import StatusError, Unreachable
from remuda.kube.objects import Key
from remuda.providers.machine.options import PASSWORD
from remuda.providers.shared import names
from remuda.provisioning.types import CLUSTER

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

Json = dict[str, Any]

_GROUPS = ("cattle.io", "cluster.x-k8s.io")
_JOBS, _PODS = Target("batch/v1", "jobs"), Target("v1", "pods")
_EVENTS, _SECRETS, _CONFIG_MAPS = Target("v1", "events"), Target("v1", "secrets"), Target("v1", "configmaps")
_DEFINITIONS = Target("apiextensions.k8s.io/v1", "customresourcedefinitions")
_PATHS = ("/version", "/healthz", "/readyz?verbose", "/metrics")
_PEOPLE = ("users", "tokens")  # of management.cattle.io: they belong to no cluster
_LOG_LINES = 2000
_MOST_CLUSTERS = 100  # most clusters in the bundle with a tree
_AT_ONCE = 8


class Found(msgspec.Struct, frozen=True):
    texts: dict[str, str]  # by their names in the bundle
    left_out: list[str]  # messages for the user


class Gathering:
    """Collection of one support bundle. `cluster`: collect only this cluster."""

    def __init__(self, client: HttpClient, cluster: Key | None) -> None:
        self._client = client
        self._cluster = cluster
        self._redactor = Redactor()
        self._texts: dict[str, str] = {}
        self._left_out: list[str] = []
        self._clusters: list[Key] = []  # all existing clusters
        self._configs: set[tuple[str, str]] = set()  # kind and name of Configs that the cluster's pools refer to
        self._ids: set[str] = set()  # management Clusters of the cluster

    async def gather(self, logs: Mapping[str, str]) -> Found:
        """Collect everything and return it. `logs`: local logs, by their names in the bundle."""
        await self._prepare()
        secrets = await self._secrets()  # first, because their values are redacted in everything else
        for name, text in logs.items():
            self._texts[name] = self._clean(text)
        pods = await self._objects()
        self._outlines("secrets", secrets)
        self._outlines("configmaps", await self._listed(_CONFIG_MAPS))
        self._plans(secrets)
        await self._events()
        await self._logs(pods)
        await self._trees()
        await self._server()
        return Found({name: self._texts[name] for name in sorted(self._texts)}, self._left_out)

    # ---- scope -------------------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        for kind in (CLUSTER, CAPI_CLUSTER):
            for obj in await self._everything(kind.target):
                key = _key(obj)
                if key not in self._clusters:
                    self._clusters.append(key)
                if kind is CLUSTER and key == self._cluster:
                    self._ids.add(str((obj.get("status") or {}).get("clusterName") or ""))
                    pools = ((obj.get("spec") or {}).get("rkeConfig") or {}).get("machinePools") or ()
                    references = [one.get("machineConfigRef") or {} for one in pools]
                    self._configs |= {(str(one.get("kind")), str(one.get("name"))) for one in references}
        self._redactor = Redactor(await self._secret_fields())
        access = self._client.access
        key_lines = access.client_key if isinstance(access.client_key, bytes) else b""
        for own in (access.token, access.password, *key_lines.decode("utf-8", "replace").splitlines()):
            if not own.startswith("-----"):
                self._redactor.learn(own)

    async def _secret_fields(self) -> dict[str, set[str]]:
        """Return the driver options that their CRDs declare as passwords, by kind."""
        found: dict[str, set[str]] = defaultdict(set)
        for definition in await self._everything(_DEFINITIONS):
            spec = definition.get("spec") or {}
            if str(spec.get("group")) not in (names.CONFIG_GROUP, names.MACHINE_GROUP):
                continue
            for version in spec.get("versions") or ():
                schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
                found[str(spec["names"]["kind"])] |= set(_passwords(schema))
        return found

    def _is_asked_for(self, obj: Json) -> bool:
        if self._cluster is None:
            return True
        metadata, key = obj["metadata"], _key(obj)
        if not key.namespace:
            named = key.name in self._ids or str(obj.get("kind")) == "NodeDriver"
            return named
        if key.namespace in self._ids:
            return True
        if key.namespace != self._cluster.namespace:
            return False
        labels = metadata.get("labels") or {}
        label = labels.get(capi_names.CLUSTER_NAME) or labels.get(names.CLUSTER_NAME)
        if label:
            return bool(label == capi_names.label_value(self._cluster.name))
        return (str(obj.get("kind")), key.name) in self._configs or self._is_named_so(key)

    def _is_named_so(self, key: Key) -> bool:
        assert self._cluster is not None
        others = [one.name for one in self._clusters if one.namespace == key.namespace]
        return key.namespace == self._cluster.namespace and belongs(key.name, self._cluster.name, others)

    # ---- objects -----------------------------------------------------------------------------------------------------

    async def _objects(self) -> list[Json]:
        """Collect the objects and return the Pods of our Jobs, which have logs."""
        resources = (await discover(self._client)).resources
        chosen = {(one.target.group, one.kind): one for one in reversed(resources) if _is_ours(one)}
        for resource in chosen.values():
            if self._cluster is not None and resource.target.plural in _PEOPLE:
                continue
            self._keep(resource.target, await self._listed(resource.target))
        jobs = [one for one in await self._listed(_JOBS) if names.CLUSTER_NAME in (one["metadata"].get("labels") or {})]
        known = set(map(_key, jobs))
        pods = [one for one in await self._everything(_PODS) if _job(one) in known]
        self._keep(_JOBS, jobs)
        self._keep(_PODS, pods)
        return pods

    def _keep(self, target: Target, objects: list[Json]) -> None:
        places: dict[str, list[Json]] = defaultdict(list)
        for obj in objects:
            places[_key(obj).namespace or "cluster-wide"].append(self._redactor.obj(obj))
        for place, found in places.items():
            name = f"{target.plural}.{target.group}" if target.group else target.plural
            self._texts[f"objects/{place}/{name}.yaml"] = yaml_output.dump_all(found)

    async def _secrets(self) -> list[Json]:
        """Return the Secrets that are asked for, and learn those to redact.

        More Secrets are read than returned, so that their values are redacted: a log may show a cloud credential, which
        belongs to no cluster. The Secrets that the providers keep of other clusters are not read.
        """
        label = names.CLUSTER_NAME
        if self._cluster is None:
            found = await self._everything(_SECRETS)
        else:
            own = f"{label}={capi_names.label_value(self._cluster.name)}"
            found = [*await self._everything(_SECRETS, own), *await self._everything(_SECRETS, f"!{label}")]
        public = {text for key in self._clusters for text in key}
        for secret in found:
            self._redactor.learn_secret(secret, public)
        self._left_out += self._redactor.unread
        return [one for one in found if self._is_asked_for(one)]

    def _outlines(self, what: str, found: list[Json]) -> None:
        if found:
            outlines = [redaction.outline(one) for one in found]
            redacted = [{**one, "metadata": self._redactor.value(one["metadata"])} for one in outlines]
            self._texts[f"{what}.yaml"] = yaml_output.dump(redacted)

    def _plans(self, secrets: list[Json]) -> None:
        for secret in secrets:
            if secret.get("type") == names.PLAN_TYPE:
                key = _key(secret)
                self._texts[f"plans/{key.namespace}/{key.name}.yaml"] = yaml_output.dump(
                    redaction.plan(secret, self._redactor)
                )

    async def _events(self) -> None:
        events = [one for one in await self._everything(_EVENTS) if self._is_concerned(one.get("involvedObject") or {})]
        events.sort(key=when)
        if events:
            self._texts["events.yaml"] = yaml_output.dump([self._redactor.obj(one) for one in events])
            self._texts["events.txt"] = "".join(f"{self._clean(event_text(one, None))}\n" for one in events)

    def _is_concerned(self, obj: Json) -> bool:
        return self._cluster is None or self._is_named_so(Key(str(obj.get("namespace")), str(obj.get("name"))))

    # ---- texts -------------------------------------------------------------------------------------------------------

    async def _logs(self, pods: list[Json]) -> None:
        async def log(pod: Json) -> None:
            key = _key(pod)
            path = f"/api/v1/namespaces/{key.namespace}/pods/{key.name}/log?tailLines={_LOG_LINES}"
            await self._fetch(path, f"jobs/{key.namespace}/{key.name}.log")

        await _some_at_once(log(pod) for pod in pods)

    async def _trees(self) -> None:
        from remuda.cli import timeline_text, tree_text
        from remuda.provisioning import timeline, tree_loader

        wanted = [self._cluster] if self._cluster is not None else sorted(self._clusters)
        for key in wanted[_MOST_CLUSTERS:]:
            self._left_out.append(
                f"the tree of {key}: more than {_MOST_CLUSTERS} clusters; run the command for this cluster"
            )

        async def draw(key: Key) -> None:
            place = f"clusters/{key.namespace}/{key.name}"
            try:
                root = await tree_loader.look(self._client, *key)
                self._put(f"{place}/describe.txt", tree_text.lines(root))
                self._put(f"{place}/why.txt", tree_text.chain_lines(root) or [f"{root} is ready"])
                course = await timeline.gather(self._client, *key)
                self._put(f"{place}/timeline.txt", timeline_text.timeline_lines(course))
            except (tree_loader.NoSuchCluster, StatusError) as error:
                self._left_out.append(f"the tree of {key}: {error}")

        await _some_at_once(draw(key) for key in wanted[:_MOST_CLUSTERS])

    async def _server(self) -> None:
        for path in _PATHS:
            await self._fetch(path, f"server{path.partition('?')[0]}.txt")

    def _put(self, name: str, lines: list[str]) -> None:
        self._texts[name] = self._clean("\n".join(map(click.unstyle, lines)) + "\n")

    def _clean(self, text: str) -> str:
        return self._redactor.text(click.unstyle(text))

    async def _fetch(self, path: str, name: str) -> None:
        try:
            body = await self._client.raw_get(path)
        except Unreachable:
            raise
        except StatusError as error:
            self._left_out.append(f"{name}: {error.message}")
            return
        self._texts[name] = self._clean(body.decode("utf-8", "replace"))

    # ---- reading -----------------------------------------------------------------------------------------------------

    async def _listed(self, target: Target) -> list[Json]:
        return [one for one in await self._everything(target) if self._is_asked_for(one)]

    async def _everything(self, target: Target, label_selector: str = "") -> list[Json]:
        try:
            listing = await list_all(self._client, target, label_selector=label_selector)
        except Unreachable:
            raise
        except StatusError as error:
            text = f"{target.plural}: {error.message}"
            if text not in self._left_out:
                self._left_out.append(text)
            return []
        return [msgspec.json.decode(value) for value in listing.items]


def _key(obj: Json) -> Key:
    return Key(str(obj["metadata"].get("namespace") or ""), str(obj["metadata"]["name"]))


def _is_ours(resource: Resource) -> bool:
    group = resource.target.group
    ours = any(group == one or group.endswith(f".{one}") for one in _GROUPS)
    return ours and "list" in resource.verbs and "/" not in resource.target.plural


def _job(pod: Json) -> Key:
    labels = pod["metadata"].get("labels") or {}
    return Key(_key(pod).namespace, str(labels.get("batch.kubernetes.io/job-name") or labels.get("job-name") or ""))


def _passwords(schema: Json) -> Iterator[str]:
    for name, found in (schema.get("properties") or {}).items():
        if found.get("format") == PASSWORD:
            yield str(name)
        yield from _passwords(found)


async def _some_at_once(work: Iterator[Awaitable[None]]) -> None:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(each: Awaitable[None]) -> None:
        async with gate:
            await each

    await asyncio.gather(*map(one, work))
