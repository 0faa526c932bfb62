"""The storage group, as plain records."""

from __future__ import annotations

from remuda.apiserver.kinds.columns import AGE, NAME, Cell, at, boolean, count, integer, string, value
from remuda.apiserver.kinds.declare import Rules, declare, one_of, unchanged
from remuda.apiserver.resource import Obj, TableColumn
from remuda.kube import errors, names
from remuda.kube.errors import FieldError

GROUP = "storage.k8s.io"
_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_FIXED = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")


def _validate_class(storage_class: Obj) -> list[FieldError]:
    provisioner = storage_class.get("provisioner") or ""
    found = [] if provisioner else [errors.required("provisioner")]
    if provisioner:
        found += [errors.invalid("provisioner", provisioner, why) for why in names.qualified_name(provisioner.lower())]
    found += one_of(storage_class.get("reclaimPolicy"), "reclaimPolicy", ("Delete", "Retain"))
    modes = ("Immediate", "WaitForFirstConsumer")
    return found + one_of(storage_class.get("volumeBindingMode"), "volumeBindingMode", modes)


def _validate_class_update(new: Obj, old: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    for field in _FIXED:
        found += unchanged(new, old, field)
    return found


def marked_default(*annotations: str) -> TableColumn:
    """Return the name, marked if the annotation makes the object the default of its kind."""

    def cell(obj: Obj) -> str:
        given = at(obj, "metadata", "annotations", default={})
        is_default = any(given.get(annotation) == "true" for annotation in annotations)
        name = str(at(obj, "metadata", "name"))
        return f"{name} (default)" if is_default else name

    return TableColumn(name="Name", format="name", cell=cell, description=NAME.description)


STORAGE_CLASSES = declare(
    GROUP,
    "v1",
    "StorageClass",
    "storageclasses",
    Rules(validate=_validate_class, validate_update=_validate_class_update),
    namespaced=False,
    short_names=("sc",),
    has_generation=False,
    returns_deleted=True,
    columns=(
        marked_default(*_DEFAULT_CLASS),
        string("Provisioner", value("provisioner")),
        string("ReclaimPolicy", value("reclaimPolicy", default="Delete")),
        string("VolumeBindingMode", value("volumeBindingMode", default="Immediate")),
        string("AllowVolumeExpansion", value("allowVolumeExpansion", default=False)),
        AGE,
    ),
)


def _validate_attachment(attachment: Obj) -> list[FieldError]:
    spec = attachment["spec"]
    found = [errors.required(f"spec.{field}") for field in ("attacher", "nodeName") if not spec.get(field)]
    source = spec["source"]
    given = [field for field in ("inlineVolumeSpec", "persistentVolumeName") if field in source]
    why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if not given:
        found.append(errors.required("spec.source", why))
    elif len(given) == 2:
        found.append(errors.forbidden("spec.source", why))
    elif given == ["persistentVolumeName"] and not source["persistentVolumeName"]:
        why = "must specify non empty persistentVolumeName"
        found.append(errors.required("spec.source.persistentVolumeName", why))
    return found


VOLUME_ATTACHMENTS = declare(
    GROUP,
    "v1",
    "VolumeAttachment",
    "volumeattachments",
    Rules(validate=_validate_attachment, validate_update=lambda new, old: unchanged(new, old, "spec")),
    namespaced=False,
    has_status=True,
    has_generation=False,
    returns_deleted=True,
    allow_unconditional_update=False,
    columns=(
        NAME,
        TableColumn(name="Attacher", format="name", cell=value("spec", "attacher")),
        string("PV", value("spec", "source", "persistentVolumeName")),
        string("Node", value("spec", "nodeName")),
        boolean("Attached", value("status", "attached", default=False)),
        AGE,
    ),
)


def _default_driver(driver: Obj) -> None:
    driver["spec"].setdefault("volumeLifecycleModes", ["Persistent"])


def _flag(field: str) -> Cell:
    return value("spec", field, default=False)


def _audiences(driver: Obj) -> str:
    requests = at(driver, "spec", "tokenRequests", default=None)
    return "<unset>" if requests is None else ",".join(str(request.get("audience", "")) for request in requests)


CSI_DRIVERS = declare(
    GROUP,
    "v1",
    "CSIDriver",
    "csidrivers",
    Rules(default=_default_driver),
    namespaced=False,
    has_generation=False,
    returns_deleted=True,
    allow_unconditional_update=False,
    columns=(
        NAME,
        boolean("AttachRequired", value("spec", "attachRequired", default=True)),
        boolean("PodInfoOnMount", _flag("podInfoOnMount")),
        boolean("StorageCapacity", _flag("storageCapacity")),
        string("TokenRequests", _audiences),
        boolean("RequiresRepublish", _flag("requiresRepublish")),
        string("Modes", lambda obj: ",".join(at(obj, "spec", "volumeLifecycleModes", default=())) or "<none>"),
        AGE,
    ),
)


def _validate_csi_node(node: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    used: set[str] = set()
    for index, driver in enumerate(node["spec"].get("drivers") or ()):
        path, name = f"spec.drivers[{index}]", driver.get("name") or ""
        found += [errors.required(f"{path}.{field}") for field in ("name", "nodeID") if not driver.get(field)]
        if name in used:
            found.append(errors.duplicate(f"{path}.name", name))
        used.add(name)
    return found


CSI_NODES = declare(
    GROUP,
    "v1",
    "CSINode",
    "csinodes",
    Rules(validate=_validate_csi_node),
    namespaced=False,
    has_generation=False,
    returns_deleted=True,
    allow_unconditional_update=False,
    columns=(NAME, integer("Drivers", count("spec", "drivers")), AGE),
)

RESOURCES = (CSI_DRIVERS, CSI_NODES, STORAGE_CLASSES, VOLUME_ATTACHMENTS)
