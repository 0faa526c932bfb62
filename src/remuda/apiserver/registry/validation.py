"""Validation of writes: unknown fields, wrong types, schema, the kind's own rules, metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from remuda.apiserver.registry.calls import Call, FieldValidation
from remuda.apiserver.registry.objects import metadata
from remuda.apiserver.resource import Obj, Resource
from remuda.apiserver.schema.walk import Structural
from remuda.kube.errors import FieldError, StatusError, bad_request, invalid_object
from remuda.kube.names import (
    subdomain_name,
    validate_builtin_finalizers,
    validate_managed_fields,
    validate_object_meta,
    validate_object_meta_update,
)
from remuda.kube.patches.json_copy import same_json

_REPEATED_OWNERS = (
    ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject "
    "such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
)


def decode_strictly(
    call: Call,
    structural: Structural,
    obj: Obj,
    validation: FieldValidation,
    *,
    complaints: Sequence[str] = (),
    refuse: Callable[[str], StatusError] | None = None,
) -> None:
    """Decode as Go does: reject wrong types, drop unknown fields (and report them), fill in defaults.

    `complaints` are earlier ones about the same request. `refuse` builds the error where it is not about a body.
    """
    read_strictly(call, structural, obj, validation, complaints=complaints, refuse=refuse or _unfit(call.resource))
    call.resource.behaviour.default(obj)


def read_strictly(
    call: Call,
    structural: Structural,
    obj: Obj,
    validation: FieldValidation,
    *,
    complaints: Sequence[str] = (),
    refuse: Callable[[str], StatusError],
) -> None:
    """Decode as `decode_strictly` does, also for the body of a subresource."""
    prepared = structural.prepare(obj)
    call.schema_checked = prepared.schema_checked
    if prepared.malformed:
        raise refuse(prepared.malformed)
    if complaints or prepared.unknown:
        complain(call, [*complaints, *(f'unknown field "{path}"' for path in prepared.unknown)], validation, refuse)


def complain(
    call: Call, complaints: Sequence[str], validation: FieldValidation, refuse: Callable[[str], StatusError]
) -> None:
    """Raise, warn or ignore, as the request's field validation asks."""
    if validation == "Strict" and complaints:
        raise refuse(f"strict decoding error: {', '.join(complaints)}")
    if validation != "Ignore":
        call.warnings.extend(complaints)


def drop_repeated_owners(call: Call, obj: Obj) -> None:
    """Remove repeated owner references, with a warning, as upstream does for old clients."""
    references = metadata(obj).get("ownerReferences")
    if not references or len(references) < 2:
        return
    once = {msgspec.json.encode(reference, order="sorted"): reference for reference in references}
    if len(once) == len(references):
        return
    counts = Counter(str(reference.get("uid")) for reference in references)
    counts.subtract(str(reference.get("uid")) for reference in once.values())
    metadata(obj)["ownerReferences"] = list(once.values())
    call.warnings.append(_REPEATED_OWNERS + ", ".join(uid for uid, extra in counts.items() if extra))


def _unfit(resource: Resource) -> Callable[[str], StatusError]:
    return partial(unfit, resource.version, resource.kind)


def unfit(version: str, kind: str, problem: str) -> StatusError:
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {problem}')


def validate(call: Call, structural: Structural, new: Obj, old: Obj | None) -> bool:
    """Raise one Invalid error that lists all errors in the object. Return False if the object breaks rules on fields
    that the write does not change; the caller gets a warning.
    """
    resource = call.resource
    meta = metadata(new)
    tolerated: list[str] = []
    errors = _metadata_errors(resource, meta, metadata(old) if old is not None else None)
    if old is None or not same_json(new, old):
        errors.extend(_schema_errors(call, structural, new, old, tolerated))
        call.warnings.extend(tolerated)
        errors.extend(_kind_errors(call, new, old))
    if errors:
        raise invalid_object(resource.group_in_complaints, resource.kind, meta.get("name", ""), errors)
    return not tolerated


def _schema_errors(
    call: Call, structural: Structural, new: Obj, old: Obj | None, warnings: list[str]
) -> list[FieldError]:
    if call.schema_checked:
        return structural.rule_errors(new, old, warnings)
    check = structural.validate_status if call.subresource == "status" else structural.validate
    return check(new, old, warnings)


# Metadata that changes with every write and is checked separately.
_BOOKKEEPING = frozenset(("managedFields", "resourceVersion", "generation"))


def _is_kept(meta: Obj, old: Obj) -> bool:
    """Return whether metadata is unchanged since it was last validated."""
    if len(meta) != len(old) or not meta.get("resourceVersion") or meta.get("generation", 0) < old.get("generation", 0):
        return False
    return all(name in _BOOKKEEPING or value == meta.get(name) for name, value in old.items())


def _metadata_errors(resource: Resource, meta: Obj, old: Obj | None) -> list[FieldError]:
    if old is not None and _is_kept(meta, old):
        return validate_managed_fields(meta.get("managedFields") or (), "metadata.managedFields") * 3
    validate_name = resource.behaviour.validate_name or subdomain_name
    errors = validate_object_meta(meta, resource.namespaced, validate_name)
    if not resource.plain_finalizers:
        errors += validate_builtin_finalizers(meta.get("finalizers") or (), "metadata.finalizers")
    if old is not None:
        # kube-apiserver checks twice, for all kinds and for this one, and reports each error as often.
        errors += validate_object_meta_update(meta, old) * 2
    return errors


def _kind_errors(call: Call, new: Obj, old: Obj | None) -> list[FieldError]:
    behaviour = call.resource.behaviour
    if call.subresource == "status":
        return behaviour.validate_status(new, old or {})
    more = behaviour.validate_create(new) if old is None else behaviour.validate_update(new, old)
    return behaviour.validate(new) + more
