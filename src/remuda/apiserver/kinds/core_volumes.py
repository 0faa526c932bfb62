"""PersistentVolumes and PersistentVolumeClaims, as plain records: the engine neither provisions nor binds volumes."""

from __future__ import annotations

from typing import Any

from remuda.apiserver.kinds.columns import AGE, NAME, at, string, value
from remuda.apiserver.kinds.declare import Rules, declare, one_of
from remuda.apiserver.resource import Obj
from remuda.kube import clock, errors
from remuda.kube.errors import FieldError
from remuda.kube.quantity import Quantity
from remuda.kube.selectors import validate_label_selector

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_SUPPORTED_MODES = tuple(sorted(_MODES))
_RECLAIM = ("Delete", "Recycle", "Retain")
_VOLUME_MODES = ("Block", "Filesystem")
# Fields of a volume's spec that define its use; any other field is its source.
_NOT_A_SOURCE = frozenset(
    (
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    )
)
_CHANGEABLE_CLAIM = ("resources", "volumeName", "volumeAttributesClassName")


def _default_volume(volume: Obj) -> None:
    volume["spec"].setdefault("volumeMode", "Filesystem")
    volume["spec"].setdefault("persistentVolumeReclaimPolicy", "Retain")


def _create_volume(volume: Obj) -> None:
    volume["status"] = {"phase": "Pending", "lastPhaseTransitionTime": clock.now()}


def access_mode_errors(modes: Any, path: str) -> list[FieldError]:
    found = [errors.not_supported(path, mode, _SUPPORTED_MODES) for mode in modes if mode not in _MODES]
    if "ReadWriteOncePod" in modes and any(mode in _MODES and mode != "ReadWriteOncePod" for mode in modes):
        found.append(errors.forbidden(path, "may not use ReadWriteOncePod with other access modes"))
    return found


def _validate_volume(volume: Obj) -> list[FieldError]:
    spec = volume["spec"]
    modes = spec.get("accessModes") or []
    found = [] if modes else [errors.required("spec.accessModes")]
    found += access_mode_errors(modes, "spec.accessModes")
    capacity = spec.get("capacity") or {}
    if not capacity:
        found.append(errors.required("spec.capacity"))
    if set(capacity) != {"storage"}:
        found.append(errors.not_supported("spec.capacity", capacity or None, ("storage",)))
    for name, amount in capacity.items():
        found += positive_amount(amount, f"spec.capacity[{name}]")
    found += one_of(spec.get("persistentVolumeReclaimPolicy"), "spec.persistentVolumeReclaimPolicy", _RECLAIM)
    found += one_of(spec.get("volumeMode"), "spec.volumeMode", _VOLUME_MODES)
    sources = [field for field in spec if field not in _NOT_A_SOURCE]
    if not sources:
        found.append(errors.required("spec", "must specify a volume type"))
    more = "may not specify more than 1 volume type"
    return found + [errors.forbidden(f"spec.{field}", more) for field in sources[1:]]


def positive_amount(amount: str, path: str) -> list[FieldError]:
    return [] if Quantity.parse(amount).nanos > 0 else [errors.invalid(path, amount, "must be greater than zero")]


def _validate_volume_update(new: Obj, old: Obj) -> list[FieldError]:
    def source(volume: Obj) -> Obj:
        return {key: value for key, value in volume["spec"].items() if key not in _NOT_A_SOURCE}

    found = []
    if source(new) != source(old):
        why = "spec.persistentvolumesource is immutable after creation"
        found.append(errors.forbidden("spec.persistentvolumesource", why))
    if new["spec"].get("volumeMode") != old["spec"].get("volumeMode"):
        found.append(errors.invalid("spec.volumeMode", new["spec"].get("volumeMode"), "field is immutable"))
    return found


def validate_claim_spec(spec: Obj, path: str) -> list[FieldError]:
    """Return the errors in the spec of a claim, or of a claim template of a StatefulSet."""
    modes = spec.get("accessModes") or []
    found = [] if modes else [errors.required(f"{path}.accessModes", "at least 1 access mode is required")]
    found += access_mode_errors(modes, f"{path}.accessModes")
    found += validate_label_selector(spec.get("selector"), f"{path}.selector")
    storage = at(spec, "resources", "requests", "storage", default=None)
    where = f"{path}.resources[storage]"
    found += [errors.required(where)] if storage is None else positive_amount(storage, where)
    return found + one_of(spec.get("volumeMode"), f"{path}.volumeMode", _VOLUME_MODES)


def _validate_claim_update(new: Obj, old: Obj) -> list[FieldError]:
    def fixed(claim: Obj) -> Obj:
        return {key: value for key, value in claim["spec"].items() if key not in _CHANGEABLE_CLAIM}

    bound_now, bound_before = new["spec"].get("volumeName"), old["spec"].get("volumeName")
    is_rebound = bound_before and bound_now != bound_before
    if fixed(new) != fixed(old) or is_rebound:
        why = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        return [errors.forbidden("spec", why)]
    asked, before = (at(claim, "spec", "resources", "requests", "storage", default="0") for claim in (new, old))
    if Quantity.parse(asked) < Quantity.parse(before):
        return [errors.forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")]
    return []


def access_modes(*path: str) -> Any:
    def cell(obj: Obj) -> str:
        modes = at(obj, *path, default=())
        return ",".join(short for mode, short in _MODES.items() if mode in modes)

    return cell


def _phase(obj: Obj) -> str:
    return "Terminating" if at(obj, "metadata", "deletionTimestamp") else str(at(obj, "status", "phase"))


def _claim(volume: Obj) -> str:
    reference = at(volume, "spec", "claimRef", default=None)
    return "" if reference is None else f"{reference.get('namespace', '')}/{reference.get('name', '')}"


def _claim_capacity(claim: Obj) -> str:
    return str(at(claim, "status", "capacity", "storage", default="0")) if at(claim, "spec", "volumeName") else ""


_CLASS = string("StorageClass", value("spec", "storageClassName"))
_ATTRIBUTES_CLASS = string("VolumeAttributesClass", value("spec", "volumeAttributesClassName", default="<unset>"))
_VOLUME_MODE = string("VolumeMode", value("spec", "volumeMode", default="<unset>"), wide=True)

PERSISTENT_VOLUMES = declare(
    "",
    "v1",
    "PersistentVolume",
    "persistentvolumes",
    Rules(
        default=_default_volume,
        create=_create_volume,
        validate=_validate_volume,
        validate_update=_validate_volume_update,
    ),
    namespaced=False,
    short_names=("pv",),
    has_status=True,
    has_generation=False,
    returns_deleted=True,
    selectable={"name": ("metadata", "name")},
    columns=(
        NAME,
        string("Capacity", value("spec", "capacity", "storage", default="0")),
        string("Access Modes", access_modes("spec", "accessModes")),
        string("Reclaim Policy", value("spec", "persistentVolumeReclaimPolicy")),
        string("Status", _phase),
        string("Claim", _claim),
        _CLASS,
        _ATTRIBUTES_CLASS,
        string("Reason", value("status", "reason")),
        AGE,
        _VOLUME_MODE,
    ),
)


def _create_claim(claim: Obj) -> None:
    claim["status"] = {"phase": "Pending"}


PERSISTENT_VOLUME_CLAIMS = declare(
    "",
    "v1",
    "PersistentVolumeClaim",
    "persistentvolumeclaims",
    Rules(
        create=_create_claim,
        validate=lambda claim: validate_claim_spec(claim["spec"], "spec"),
        validate_update=_validate_claim_update,
    ),
    short_names=("pvc",),
    has_status=True,
    has_generation=False,
    returns_deleted=True,
    selectable={"name": ("metadata", "name")},
    columns=(
        NAME,
        string("Status", _phase),
        string("Volume", value("spec", "volumeName")),
        string("Capacity", _claim_capacity),
        string(
            "Access Modes", lambda c: access_modes("status", "accessModes")(c) if at(c, "spec", "volumeName") else ""
        ),
        _CLASS,
        _ATTRIBUTES_CLASS,
        AGE,
        _VOLUME_MODE,
    ),
)
