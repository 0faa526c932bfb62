"""From a `<Driver>Config` to a machine template: pure.

The name of a template holds a hash of the driver's options, worked out as Rancher does: the same options give the same
name, on either side. So a template never changes, and machines are replaced when, and only when, a pool comes to need
another one. Labels, taints and credentials are kept beside the options (`common`) and are no part of the hash.

A driver with a new option sets its default in every Config. That must not replace machines: an option that the driver
did not have when the pool was created counts only if a user has set another value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from remuda.providers.shared import names
from remuda.providers.shared.types.machine import options_of
from remuda.provisioning.types import MachinePool

Json = dict[str, Any]

TEMPLATE_HASH = "rke.cattle.io/machine-template-hash"  # label
CLONED_FROM = "rke.cattle.io/cloned-from"  # annotations begin so
PRUNE = "objectset.rio.cattle.io/prune"  # label: Rancher leaves such objects alone
_NOT_OPTIONS = frozenset({"apiVersion", "kind", "metadata", "status", "common"})
_HASH_LENGTH = 8


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of a pool's template, besides the Cluster."""

    config: Mapping[str, Any]  # the <Driver>Config as it is
    options: Mapping[str, Mapping[str, Any]]  # the driver's options as they are now: schemas by name
    pinned: frozenset[str] | None = None  # those it had when the pool was made; None: it is made now


def known_options(definition: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the driver's options from the CRD of its Config."""
    found: dict[str, Mapping[str, Any]] = {}
    for version in definition.get("spec", {}).get("versions", ()):
        properties = version.get("schema", {}).get("openAPIV3Schema", {}).get("properties", {})
        found |= {name: schema for name, schema in properties.items() if name not in _NOT_OPTIONS}
    return found


def pinned_options(pool: MachinePool, noted: str | None) -> frozenset[str] | None:
    """Return the options that the pool's driver had when the pool was made: from the manifest, else from the note of
    that time. Raises ValueError, with a text for users."""
    if pool.dynamic_schema_spec:
        try:
            said = msgspec.json.decode(pool.dynamic_schema_spec, type=_DynamicSchema)
        except msgspec.DecodeError:
            raise ValueError("dynamicSchemaSpec is not JSON with resourceFields: remove it") from None
        return frozenset(said.resource_fields)
    return None if noted is None else frozenset(filter(None, noted.split(",")))


def note(options: Iterable[str]) -> str:
    """Return the note that `pinned_options` reads."""
    return ",".join(sorted(options))


class _DynamicSchema(msgspec.Struct, rename="camel"):
    resource_fields: dict[str, Any] = {}


def options(material: Material) -> Json:
    """Return the options with which the servers are created."""
    return {
        name: value
        for name, value in material.config.items()
        if (schema := material.options.get(name)) is not None
        # An option that the driver has gained since counts only if it is set. With its default, an upgrade would
        # replace all machines (rancher/rancher#40609).
        and (material.pinned is None or name in material.pinned or value != schema.get("default"))
    }


def digest(deployment: str, chosen: Mapping[str, Any]) -> str:
    """Return the digest of the JSON that Go would write: sorted keys, no empty values, special characters escaped."""
    kept = {name: value for name, value in chosen.items() if value is not None and value not in ("", [])}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    # Go's encoding/json escapes these characters by default, and the digest must equal Rancher's.
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text_digest(deployment + text)


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]


def machine_template(cluster: str, deployment: str, pool: MachinePool, credential: str, material: Material) -> Json:
    reference = pool.machine_config_ref
    assert reference is not None
    chosen = options(material)
    hashed = digest(deployment, chosen)
    shared = common(pool, credential)
    return {
        "apiVersion": names.MACHINE_API_VERSION,
        "kind": f"{reference.kind.removesuffix('Config')}MachineTemplate",
        "metadata": {
            "name": names.join(deployment, hashed),
            "labels": {names.CLUSTER_NAME: cluster, PRUNE: "false", TEMPLATE_HASH: hashed},
            "annotations": {
                f"{CLONED_FROM}-group-version": names.CONFIG_API_VERSION,
                f"{CLONED_FROM}-kind": reference.kind,
                f"{CLONED_FROM}-name": reference.name,
            },
        },
        "spec": {"clusterName": cluster, "template": {"spec": {**chosen, **({"common": shared} if shared else {})}}},
    }


def common(pool: MachinePool, credential: str) -> Json:
    found: Json = {}
    if pool.labels:
        found["labels"] = dict(pool.labels)
    if pool.taints:
        found["taints"] = [_taint(taint.key, taint.value, taint.effect) for taint in pool.taints]
    if credential:
        found["cloudCredentialSecretName"] = credential
    return found


def _taint(key: str, value: str, effect: str) -> Json:
    return {"key": key, **({"value": value} if value else {}), "effect": effect}


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the options by which two templates differ."""
    before, after = template_options(old), template_options(new)
    return tuple(name for name in sorted({*before, *after}) if before.get(name) != after.get(name))


def template_options(template: Mapping[str, Any]) -> Json:
    return options_of(template.get("spec", {}).get("template", {}).get("spec", {}))
