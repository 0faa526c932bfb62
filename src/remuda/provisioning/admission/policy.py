"""The policy inPlaceOnly, at the door: a change that would replace machines of such a pool is refused with their names.

It may come by the Cluster or by a `<Driver>Config` that one of its pools refers to. What cannot be known here (somebody
else's template, a kind nobody watches) is let through: the controller holds it all the same, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from remuda.capi import inflection
from remuda.capi import names as capi_names
from remuda.capi.admission.rules import read
from remuda.capi.external import DEFINITION, definition_name
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT
from remuda.kube.admission import ALLOWED, AdmissionResult, Review, Unseen
from remuda.kube.errors import OMITTED, FieldError, invalid
from remuda.providers.shared import names
from remuda.provisioning.consequence import Consequence, Standing, of_pool
from remuda.provisioning.generate import CannotBeMade, generate, takes_config
from remuda.provisioning.machine_templates import Material, known_options, pinned_options
from remuda.provisioning.pools import DRIVER_OPTIONS, deployment_name
from remuda.provisioning.types import CLUSTER, IN_PLACE_ONLY, Cluster, MachinePool

Json = dict[str, Any]
_NOT_OPTIONS = frozenset({"apiVersion", "kind", "metadata", "common"})


def complaints(review: Review, old: Cluster, new: Cluster) -> list[FieldError]:
    """Return the errors of a change to a Cluster. A replacement that is held already is no error: a user who turns the
    policy on to stop a replacement, or scales a pool in the meantime, replaces no machine."""
    before = {pool.name: pool for pool in pools_of(old)}
    places = {pool.name: index for index, pool in enumerate(pools_of(new))}
    return [
        invalid(f"spec.rkeConfig.machinePools[{places[held.pool]}].replacement", IN_PLACE_ONLY, str(held))
        for held in _held(review, new, {})
        if not _was_coming(review, old, before.get(held.pool), held)
    ]


def _was_coming(review: Review, old: Cluster, pool: MachinePool | None, held: Consequence) -> bool:
    """Return whether the same machines would be replaced for the same reason without the change."""
    found = _judged(review, old, pool, {}) if pool is not None else None
    return found is not None and (found.action, found.options) == (held.action, held.options)


def admit_config(review: Review) -> AdmissionResult:
    """Admit or deny an edit of a <Driver>Config."""
    old, new = review.old, review.new
    if review.subresource or old is None or new is None or options(old) == options(new):
        return ALLOWED
    if (new.get("metadata") or {}).get("deletionTimestamp"):
        return ALLOWED
    try:
        clusters = review.select(CLUSTER.api_version, CLUSTER.plural, review.namespace, {})
    except Unseen:
        return ALLOWED
    edited = {(review.kind, review.name): new}
    errors = [
        invalid(".".join(held.options[:1]), OMITTED, f"Cluster {cluster.key}: {held}")
        for cluster in (read(CLUSTER, raw) for raw in clusters)
        if cluster is not None and _refers(cluster, review.kind, review.name)
        for held in _held(review, cluster, edited)
    ]
    return AdmissionResult(errors=tuple(errors))


def _refers(cluster: Cluster, kind: str, name: str) -> bool:
    return any(refers(pool, kind, name) for pool in pools_of(cluster))


def refers(pool: MachinePool, kind: str, name: str) -> bool:
    reference = pool.machine_config_ref
    return reference is not None and takes_config(pool) and (reference.kind, reference.name) == (kind, name)


def pools_of(cluster: Cluster) -> Iterator[MachinePool]:
    config = cluster.spec.rke_config
    return iter(config.machine_pools if config is not None else ())


def _held(review: Review, cluster: Cluster, edited: Mapping[tuple[str, str], Json]) -> Iterator[Consequence]:
    """Yield the replacements that would be held. `edited`: edited Configs by kind and name; others are unchanged."""
    if cluster.metadata.deleting:
        return
    for pool in pools_of(cluster):
        if pool.replacement == IN_PLACE_ONLY:
            found = _judged(review, cluster, pool, edited)
            if found is not None and found.held:
                yield found


def _judged(
    review: Review, cluster: Cluster, pool: MachinePool, edited: Mapping[tuple[str, str], Json]
) -> Consequence | None:
    """Return the consequences of a change; None if they cannot be determined here."""
    try:
        return _consequence(review, cluster, pool, edited)
    except (Unseen, CannotBeMade, ValueError):
        return None


def _consequence(
    review: Review, cluster: Cluster, pool: MachinePool, edited: Mapping[tuple[str, str], Json]
) -> Consequence | None:
    name = deployment_name(cluster.metadata.name, pool.name)
    deployment = review.lookup(MACHINE_DEPLOYMENT.api_version, MACHINE_DEPLOYMENT.plural, review.namespace, name)
    if deployment is None:
        return None
    machines = review.select(
        MACHINE.api_version,
        MACHINE.plural,
        review.namespace,
        {capi_names.DEPLOYMENT_NAME: capi_names.label_value(name)},
    )
    materials: dict[str, Material] = {}
    if takes_config(pool):
        material = _material(review, pool, deployment, edited)
        if material is None:
            return None
        materials[pool.name] = material
    config = cluster.spec.rke_config
    assert config is not None
    alone = msgspec.structs.replace(config, machine_pools=(pool,))
    only = msgspec.structs.replace(cluster, spec=msgspec.structs.replace(cluster.spec, rke_config=alone))
    (desired,) = generate({"spec": {"rkeConfig": {}}}, only, materials, "").pools
    standing = Standing(
        deployment=deployment,
        template=_template(review, deployment),
        machines=sorted(machine["metadata"]["name"] for machine in machines),
    )
    return of_pool(desired, standing)


def _material(
    review: Review, pool: MachinePool, deployment: Json, edited: Mapping[tuple[str, str], Json]
) -> Material | None:
    reference = pool.machine_config_ref
    assert reference is not None
    stored = _find(review, names.CONFIG_API_VERSION, reference.kind, reference.name)
    config = edited.get((reference.kind, reference.name), stored)
    if config is None:
        return None
    noted = (deployment["metadata"].get("annotations") or {}).get(DRIVER_OPTIONS)
    known = _options(review, reference.kind)
    if not known:  # the driver's options are not visible here: only those that this edit changes count
        before = stored or {}
        known = {name: {"default": before.get(name)} for name in {*options(config), *options(before)}}
    return Material(config=config, options=known, pinned=pinned_options(pool, noted))


def _options(review: Review, kind: str) -> Mapping[str, Mapping[str, Any]]:
    try:
        definition = review.lookup(
            DEFINITION.api_version, DEFINITION.plural, "", definition_name(names.CONFIG_GROUP, kind)
        )
    except Unseen:
        return {}
    return known_options(definition) if definition is not None else {}


def _template(review: Review, deployment: Json) -> Json | None:
    reference = Standing(deployment=deployment).infrastructure
    if reference.get("apiGroup") != names.MACHINE_GROUP:
        return None
    try:
        return _find(review, names.MACHINE_API_VERSION, reference.get("kind", ""), reference.get("name", ""))
    except Unseen:
        return None


def _find(review: Review, api_version: str, kind: str, name: str) -> Json | None:
    return review.lookup(api_version, inflection.plural(kind.lower()), review.namespace, name)


def options(config: Mapping[str, Any]) -> Json:
    """Return the driver's options in a Config."""
    return {name: value for name, value in config.items() if name not in _NOT_OPTIONS}
