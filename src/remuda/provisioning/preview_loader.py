"""Loader of the inputs of a preview: it reads the API with the user's rights and writes nothing.

Every object of the manifests is sent as a dry run, so that defaults are set and admission reports its errors. As with a
repeated `kubectl apply`, the manifest is the complete spec: fields that it does not mention are removed. A
`<Driver>Config` concerns every Cluster that refers to it, whether or not that is in the manifests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.external import DEFINITION, definition_name
from remuda.capi.inflection import plural
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT, Machine
from remuda.kube.client import Client, Target, list_all
from remuda.kube.errors import AlreadyExists, Conflict, NotFound, StatusError
from remuda.kube.objects import Key
from remuda.kube.patches import copy_json
from remuda.providers.controlplane import references
from remuda.providers.controlplane.referenced_objects import CONFIG_MAP, ReferencedObject, ReferencedObjects, held
from remuda.providers.controlplane.references import Resolved
from remuda.providers.shared import names
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP, RKEBootstrap
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE, RKEControlPlane
from remuda.provisioning import ProvisioningError, deployment_preview, generate, machine_templates, pools
from remuda.provisioning.apply import APPLIED
from remuda.provisioning.consequence import Standing
from remuda.provisioning.deployment_preview import DeploymentChange
from remuda.provisioning.generate import CannotBeMade
from remuda.provisioning.machine_templates import Material
from remuda.provisioning.preview import Declared, Present, Preview, preview
from remuda.provisioning.types import CLUSTER, Cluster

Json = dict[str, Any]

_TRIES = 5
_KEPT = ("apiVersion", "kind", "metadata", "status")


class PreviewRefused(ProvisioningError):
    """The server would deny the manifests, or they are incomplete; the message says why."""


class Previews:
    """Previews of all clusters that the given manifests affect."""

    def __init__(self, client: Client, manifests: Sequence[Json] = ()) -> None:
        self._client = client
        self._manifests = manifests
        self._overlay: dict[tuple[str, Key], Json] = {}  # kind and name → the object as it would be

    async def of_objects(self, objects: Sequence[Json]) -> list[Preview]:
        """Return the previews for objects that are given as they would be stored. Raises PreviewRefused."""
        self._overlay = {(str(obj["kind"]), _key(obj)): obj for obj in objects}
        declared = [await self._preview(cluster) for cluster in await self._clusters()]
        return [*declared, *await self._undeclared()]

    async def make(self) -> list[Preview]:
        """Raises PreviewRefused, with everything that is refused."""
        refused = []
        for manifest in self._manifests:
            try:
                made = await self._dry_run(manifest)
            except StatusError as error:
                refused.append(error.message)
                continue
            self._overlay[manifest["kind"], _key(made)] = made
        if refused:
            raise PreviewRefused("\n".join(refused))
        return [await self._preview(cluster) for cluster in await self._clusters()]

    async def _dry_run(self, manifest: Json) -> Json:
        """Send an object as a dry run; retry if a controller has changed it in the meantime."""
        for _ in range(_TRIES - 1):
            with contextlib.suppress(AlreadyExists, Conflict):
                return await self._try(manifest)
        return await self._try(manifest)

    async def _try(self, manifest: Json) -> Json:
        target, metadata = _target(manifest), manifest["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        live = await self._get(target, namespace, name)
        if live is None:
            return _decode(await self._client.create(target, namespace, manifest, dry_run=True))
        return _decode(await self._client.update(target, namespace, name, _merged(live, manifest), dry_run=True))

    async def _clusters(self) -> list[Json]:
        """Return the Clusters among the manifests, then those that use a Config among them."""
        found = {key: obj for (kind, key), obj in self._overlay.items() if _is_cluster(kind, obj)}
        configs = {(kind, key) for (kind, key), obj in self._overlay.items() if _is_config(obj)}
        for namespace in sorted({key.namespace for _, key in configs}):
            for obj in await self._list(CLUSTER.target, namespace):
                key, cluster = _key(obj), CLUSTER.decode(msgspec.json.encode(obj))
                used = {
                    (ref.kind, Key(namespace, ref.name)) for pool in _pools(cluster) if (ref := pool.machine_config_ref)
                }
                if key not in found and used & configs:
                    found[key] = obj
        return list(found.values())

    async def _undeclared(self) -> list[Preview]:
        """Return the previews of clusters whose MachineDeployments are in the manifests, without a declared Cluster."""
        changes: dict[Key, list[DeploymentChange]] = {}
        for (kind, key), obj in self._overlay.items():
            target = Target(obj["apiVersion"], MACHINE_DEPLOYMENT.plural)
            if (kind, target.group) != (MACHINE_DEPLOYMENT.name, MACHINE_DEPLOYMENT.group):
                continue
            live = await self._get(target, *key)
            # The controller of a declared Cluster reverts such a change.
            if live is None or APPLIED in (live["metadata"].get("annotations") or {}):
                continue
            old, new = (MACHINE_DEPLOYMENT.decode(msgspec.json.encode(one)) for one in (live, obj))
            cluster = Key(key.namespace, new.spec.cluster_name)
            labels = {capi_names.DEPLOYMENT_NAME: capi_names.label_value(key.name)}
            own = [one for one in await self._machines(cluster) if labels.items() <= one.metadata.labels.items()]
            changes.setdefault(cluster, []).append(DeploymentChange(old, new, own))
        return [deployment_preview.preview(str(cluster), each) for cluster, each in changes.items()]

    # ---- one cluster -------------------------------------------------------------------------------------------------

    async def _preview(self, raw: Json) -> Preview:
        cluster = CLUSTER.decode(msgspec.json.encode(raw))
        key = cluster.key
        standing = await self._standing(key)
        materials: dict[str, Material] = {}
        problems: list[str] = []
        for pool in _pools(cluster):
            if generate.takes_config(pool):
                try:
                    materials[pool.name] = await self._material(cluster, pool, standing)
                except LookupError as error:
                    problems.append(f"machine pool {pool.name}: {error.args[0]}")
        try:
            if problems:
                raise CannotBeMade("; ".join(problems))
            desired = generate.generate(raw, cluster, materials, cluster.status.cluster_name)
        except CannotBeMade as error:
            raise PreviewRefused(f"Cluster {key}: {error}") from None
        wanted = desired.control_plane
        wanted["metadata"]["namespace"] = key.namespace
        plane = RKE_CONTROL_PLANE.decode(msgspec.json.encode(wanted))
        return preview(str(key), desired, await self._declared(plane, after=True), await self._present(key, standing))

    async def _declared(self, plane: RKEControlPlane, *, after: bool) -> Declared:
        reader = _Reader(self._client, self._overlay if after else {})
        resolved: Resolved = await references.resolve(cast(ReferencedObjects, reader), plane)
        return Declared(plane=plane, resolved=resolved)

    async def _present(self, key: Key, standing: Mapping[str, Standing]) -> Present:
        plane = await self._get(RKE_CONTROL_PLANE.target, *key)
        if plane is None:
            return Present(standing=standing)
        machines = await self._machines(key)
        bootstraps = {}
        for machine in machines:
            reference = machine.spec.bootstrap.config_ref
            if reference is not None and reference.kind == RKE_BOOTSTRAP.name:
                found = await self._get(RKE_BOOTSTRAP.target, key.namespace, reference.name)
                if found is not None:
                    bootstraps[machine.metadata.name] = _typed(found)
        declared = await self._declared(RKE_CONTROL_PLANE.decode(msgspec.json.encode(plane)), after=False)
        ours = [
            machine for machine in machines if machine.metadata.name in bootstraps and not machine.metadata.deleting
        ]
        return Present(declared=declared, standing=standing, machines=ours, bootstraps=bootstraps)

    async def _machines(self, key: Key) -> list[Machine]:
        found = await self._list(MACHINE.target, key.namespace, _of_cluster(key))
        return [MACHINE.decode(msgspec.json.encode(obj)) for obj in found]

    async def _standing(self, key: Key) -> dict[str, Standing]:
        machines = await self._machines(key)
        found = {}
        for deployment in await self._list(MACHINE_DEPLOYMENT.target, key.namespace, _of_cluster(key)):
            name = deployment["metadata"]["name"]
            own = [one for one in machines if one.metadata.labels.get(capi_names.DEPLOYMENT_NAME) == name]
            standing = Standing(
                deployment=deployment,
                machines=sorted(one.metadata.name for one in own if not one.metadata.deleting),
            )
            template = await self._template(standing.infrastructure, key.namespace)
            found[name] = msgspec.structs.replace(standing, template=template)
        return found

    async def _template(self, reference: Json, namespace: str) -> Json | None:
        if reference.get("apiGroup") != names.MACHINE_GROUP:
            return None
        target = Target(names.MACHINE_API_VERSION, plural(reference["kind"]).lower())
        return await self._get(target, namespace, reference["name"])

    async def _material(self, cluster: Cluster, pool: Any, standing: Mapping[str, Standing]) -> Material:
        """Return the inputs of a pool's template. Raises LookupError with a message for users."""
        reference, namespace = pool.machine_config_ref, cluster.metadata.namespace
        config = self._overlay.get((reference.kind, Key(namespace, reference.name)))
        if config is None:
            target = Target(names.CONFIG_API_VERSION, plural(reference.kind).lower())
            config = await self._get(target, namespace, reference.name)
        if config is None:
            raise LookupError(f"{reference.kind} {namespace}/{reference.name} does not exist")
        definition = await self._get(DEFINITION.target, "", definition_name(names.CONFIG_GROUP, reference.kind))
        if definition is None:
            raise LookupError(f"kind {reference.kind} does not exist: its NodeDriver is not active")
        present = standing.get(pools.deployment_name(cluster.metadata.name, pool.name))
        notes = (present.deployment["metadata"].get("annotations") or {}) if present is not None else {}
        try:
            pinned = machine_templates.pinned_options(pool, notes.get(pools.DRIVER_OPTIONS))
        except ValueError as error:
            raise LookupError(str(error)) from None
        return Material(config=config, options=machine_templates.known_options(definition), pinned=pinned)

    # ---- reading -----------------------------------------------------------------------------------------------------

    async def _get(self, target: Target, namespace: str, name: str) -> Json | None:
        try:
            return _decode(await self._client.get(target, namespace, name))
        except NotFound:
            return None

    async def _list(self, target: Target, namespace: str, label_selector: str = "") -> list[Json]:
        try:
            found = await list_all(self._client, target, namespace, label_selector=label_selector)
        except NotFound:
            return []
        return [_decode(value) for value in found.items]


class _Reader:
    """Reader of the objects that a spec references, with the manifests applied; a replacement for `ReferencedObjects`.
    Objects that may not be read count as unchanged."""

    def __init__(self, client: Client, overlay: Mapping[tuple[str, Key], Json]) -> None:
        self._client = client
        self._overlay = overlay

    async def secret(self, key: Key) -> ReferencedObject | None:
        return await self._read("Secret", Target("v1", "secrets"), key)

    async def config_map(self, key: Key) -> ReferencedObject | None:
        return await self._read(CONFIG_MAP.name, CONFIG_MAP.target, key)

    async def _read(self, kind: str, target: Target, key: Key) -> ReferencedObject | None:
        if (kind, key) in self._overlay:
            return held(kind, msgspec.json.encode(self._overlay[kind, key]))
        try:
            return held(kind, await self._client.get(target, *key))
        except NotFound:
            return None


def _merged(live: Json, manifest: Json) -> Json:
    """Return the live object with the manifest applied: root fields are replaced, labels and annotations merged."""
    metadata = copy_json(live["metadata"])
    for part in ("labels", "annotations"):
        given = manifest["metadata"].get(part) or {}
        if given:
            metadata[part] = {**(metadata.get(part) or {}), **given}
    roots = {name: value for name, value in manifest.items() if name not in _KEPT}
    kept = {name: value for name, value in live.items() if name in ("apiVersion", "kind", "status")}
    return {**kept, "metadata": metadata, **roots}


def _of_cluster(key: Key) -> str:
    return f"{capi_names.CLUSTER_NAME}={capi_names.label_value(key.name)}"


def _target(obj: Json) -> Target:
    return Target(obj["apiVersion"], plural(obj["kind"]).lower())


def _is_cluster(kind: str, obj: Json) -> bool:
    return (kind, obj["apiVersion"]) == (CLUSTER.name, CLUSTER.api_version)


def _is_config(obj: Json) -> bool:
    return bool(obj["apiVersion"] == names.CONFIG_API_VERSION)


def _pools(cluster: Cluster) -> Sequence[Any]:
    return cluster.spec.rke_config.machine_pools if cluster.spec.rke_config is not None else ()


def _key(obj: Json) -> Key:
    return Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def _typed(obj: Json) -> RKEBootstrap:
    return RKE_BOOTSTRAP.decode(msgspec.json.encode(obj))


def _decode(value: bytes) -> Json:
    found: Json = msgspec.json.decode(value)
    return found
