"""Namespaces: Active until deleted, then Terminating until everything in them and every spec finalizer is gone."""

from __future__ import annotations

from remuda.apiserver.kinds.columns import AGE, NAME, string, value
from remuda.apiserver.kinds.declare import Rules, declare
from remuda.apiserver.resource import ALL_VERBS, Obj, Subresource
from remuda.kube import clock, errors, names
from remuda.kube.errors import FieldError

NAME_LABEL = "kubernetes.io/metadata.name"
FINALIZER = "kubernetes"
_STANDARD_FINALIZERS = frozenset((FINALIZER, names.ORPHAN_FINALIZER, names.FOREGROUND_FINALIZER))


def _label_with_name(namespace: Obj) -> None:
    """Set the name as a label, which no client can remove, so that selectors can find namespaces by name."""
    meta = namespace["metadata"]
    name = meta.get("name")
    if name and (meta.get("labels") or {}).get(NAME_LABEL) != name:
        meta["labels"] = {**(meta.get("labels") or {}), NAME_LABEL: name}


def _create(namespace: Obj) -> None:
    _label_with_name(namespace)  # a generated name is known only now
    namespace["status"] = {"phase": "Active"}
    finalizers = namespace["spec"].get("finalizers") or []
    if FINALIZER not in finalizers:
        namespace["spec"] = {**namespace["spec"], "finalizers": [*finalizers, FINALIZER]}


def _update(new: Obj, old: Obj) -> None:
    # Only the finalize subresource writes the finalizers of the spec.
    new["spec"] = {**new["spec"]}
    new["spec"].pop("finalizers", None)
    if kept := (old.get("spec") or {}).get("finalizers"):
        new["spec"]["finalizers"] = kept


def _start_terminating(namespace: Obj) -> None:
    namespace["metadata"].setdefault("deletionTimestamp", clock.now())  # upstream sets no grace period with it
    namespace["status"] = {**namespace.get("status", {}), "phase": "Terminating"}


def validate_finalizers(namespace: Obj) -> list[FieldError]:
    """Return the errors in the finalizers of the spec, also of a write to the finalize subresource."""
    found = []
    for finalizer in (namespace.get("spec") or {}).get("finalizers") or ():
        for why in names.qualified_name(finalizer):
            found.append(errors.invalid("spec.finalizers", finalizer, why))
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            found.append(errors.invalid("spec.finalizers", finalizer, why))
    return found


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    phase = new["status"].get("phase")
    deleting = bool(new["metadata"].get("deletionTimestamp"))
    if deleting and phase != "Terminating":
        why = "may only be 'Terminating' if `deletionTimestamp` is not empty"
    elif not deleting and phase != "Active":
        why = "may only be 'Active' if `deletionTimestamp` is empty"
    else:
        return []
    return [errors.invalid("status.Phase", phase, why)]


def _is_held(namespace: Obj) -> bool:
    return bool((namespace.get("spec") or {}).get("finalizers"))


NAMESPACES = declare(
    "",
    "v1",
    "Namespace",
    "namespaces",
    Rules(
        default=_label_with_name,
        create=_create,
        update=_update,
        delete=_start_terminating,
        is_held=_is_held,
        validate=validate_finalizers,
        validate_status=_validate_status,
        validate_name=names.label_name,
    ),
    namespaced=False,
    short_names=("ns",),
    verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
    has_status=True,
    has_generation=False,
    returns_deleted=True,
    selectable={"status.phase": ("status", "phase"), "name": ("metadata", "name")},
    columns=(NAME, string("Status", value("status", "phase")), AGE),
    subresources={"finalize": Subresource(kind="Namespace", verbs=("update",))},
)
