"""Every field and what becomes of it: done, refused, without effect, or read-only. No field is ignored in silence.

A table has one entry for each field of each type. One that is refused is refused by name as soon as it holds anything
but its default, so a manifest that spells out defaults passes. One without effect is so with upstream too: whoever
sets it is warned. The walk over a type (`walk`) raises for a field nobody has decided on; a test walks all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

import msgspec

from remuda.capi.types import Endpoint
from remuda.capi.types.shared import Selector, SelectorRequirement
from remuda.kube.definitions import peel
from remuda.kube.errors import FieldError, forbidden
from remuda.kube.objects import Part
from remuda.providers import ProviderError
from remuda.providers.shared.types import configuration as c
from remuda.providers.shared.types.controlplane import RKEControlPlaneSpec

How = Literal["done", "refused", "without effect", "read-only"]


class Support(msgspec.Struct, frozen=True):
    how: How
    why: str = ""


DONE = Support("done")

Table = Mapping[type[Part], Mapping[str, Support]]


def done(names: str) -> dict[str, Support]:
    return dict.fromkeys(names.split(), DONE)


def refused(why: str) -> Support:
    return Support("refused", why)


def without_effect(why: str) -> Support:
    return Support("without effect", why)


def read_only(why: str) -> Support:
    return Support("read-only", why)


_LATER = "is not supported yet"
_SNAPSHOTS = refused(f"{_LATER}: snapshots are taken by schedule, and restored by hand")
AUTHORISED_ENDPOINT = refused(f"{_LATER}: clusters are reached through the manager or at their servers")

CONFIGURATION: Table = {
    c.Operations: {
        **done("upgradeStrategy chartValues machineGlobalConfig machineSelectorConfig machineSelectorFiles"),
        **done("additionalManifest registries etcd networking dataDirectories provisionGeneration"),
        "etcdSnapshotCreate": _SNAPSHOTS,
        "etcdSnapshotRestore": _SNAPSHOTS,
        "rotateCertificates": refused(f"{_LATER}: distributions renew their certificates when they start"),
        "rotateEncryptionKeys": refused(_LATER),
    },
    c.EnvVar: done("name value"),
    c.Taint: {
        **done("key value effect"),
        "timeAdded": without_effect("the component that adds a taint writes this time"),
    },
    c.DrainHook: done("annotation"),
    c.DrainOptions: {
        **done("enabled force ignoreDaemonSets deleteEmptyDirData disableEviction gracePeriod timeout"),
        **done("skipWaitForDeleteTimeoutSeconds preDrainHooks postDrainHooks"),
        "ignoreErrors": refused("is not supported: a node that cannot be drained is not restarted"),
    },
    c.UpgradeStrategy: done("controlPlaneConcurrency controlPlaneDrainOptions workerConcurrency workerDrainOptions"),
    c.SelectorConfig: done("machineLabelSelector config"),
    c.KeyToPath: done("key path dynamic permissions hash"),
    c.FileSourceObject: done("name items defaultPermissions"),
    c.FileSource: done("secret configMap"),
    c.SelectorFiles: done("machineLabelSelector fileSources"),
    c.Mirror: done("endpoint rewrite"),
    c.RegistryConfig: done("authConfigSecretName tlsSecretName caBundle insecureSkipVerify"),
    c.Registries: done("mirrors configs"),
    c.S3: done("endpoint endpointCA skipSSLVerify bucket region folder cloudCredentialName retention"),
    c.Etcd: done("disableSnapshots snapshotScheduleCron snapshotRetention s3"),
    c.Networking: done("stackPreference"),
    c.DataDirectories: done("systemAgent provisioning k8sDistro"),
    Selector: done("matchLabels matchExpressions"),
    SelectorRequirement: done("key operator values"),
}

CONTROL_PLANE: Table = {
    **CONFIGURATION,
    Endpoint: done("host port"),
    RKEControlPlaneSpec: {
        **CONFIGURATION[c.Operations],
        **done("kubernetesVersion clusterName managementClusterName agentEnvVars controlPlaneEndpoint"),
        "localClusterAuthEndpoint": AUTHORISED_ENDPOINT,
        "unmanagedConfig": refused("is not supported: nodes that are not configured need no plan"),
    },
}


class Undecided(ProviderError):
    """Error for a field that has no entry in the table."""


class Row(msgspec.Struct, frozen=True):
    """Row of the reference page."""

    path: str  # machinePools[].labels
    doc: str
    support: Support


def walk(table: Table, part: type[Part], path: str = "") -> Iterator[Row]:
    """Yield every field of a type and of its parts, except those below a field that is not done. Raises Undecided."""
    entries = table.get(part, {})
    for field in msgspec.structs.fields(part):
        at = f"{path}.{field.encode_name}".lstrip(".")
        support = entries.get(field.encode_name)
        if support is None:
            raise Undecided(f"{part.__name__}.{field.encode_name} ({at})")
        inner, said = peel(field.type)
        yield Row(at, said.doc, support)
        member, suffix = _member(inner)
        if support.how == "done" and member is not None:
            yield from walk(table, member, at + suffix)


def _member(hint: Any) -> tuple[type[Part] | None, str]:
    """Return the type of the parts that a field holds, if any, and the path suffix for a field that holds several."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Sequence:
        return _part(arguments[0]), "[]"
    if origin is Mapping:
        return _part(arguments[1]), "{}"
    return _part(hint), ""


def _part(hint: Any) -> type[Part] | None:
    inner, _ = peel(hint)
    return inner if isinstance(inner, type) and issubclass(inner, Part) else None


def complaints(table: Table, part: Part, path: str) -> list[FieldError]:
    """Return an error for each field that is set and refused, with its path."""
    return [forbidden(at, support.why) for at, support in _set(table, part, path) if support.how == "refused"]


def warnings(table: Table, part: Part, path: str) -> list[str]:
    """Return a warning for each field that is set and has no effect."""
    found = (each for each in _set(table, part, path) if each[1].how == "without effect")
    return [f"{at} has no effect: {support.why}" for at, support in found]


def _set(table: Table, part: Part, path: str) -> Iterator[tuple[str, Support]]:
    """The fields that are not just done and hold more than their default."""
    for name, encoded in zip(part.__struct_fields__, part.__struct_encode_fields__, strict=True):
        value, at = getattr(part, name), f"{path}.{encoded}"
        support = table[type(part)][encoded]
        if support.how == "done":
            for inner, where in _parts(value, at):
                yield from _set(table, inner, where)
        elif not is_default(value):
            yield at, support


def _parts(value: Any, at: str) -> Iterator[tuple[Part, str]]:
    if isinstance(value, Part):
        yield value, at
    elif isinstance(value, Mapping):
        yield from ((inner, f"{at}[{key}]") for key, inner in value.items() if isinstance(inner, Part))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield from ((inner, f"{at}[{index}]") for index, inner in enumerate(value) if isinstance(inner, Part))


def is_default(value: Any) -> bool:
    """Nothing, or made of nothing."""
    if isinstance(value, Part):
        return all(is_default(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, Mapping):
        return all(map(is_default, value.values()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(map(is_default, value))
    return not value
