"""What may be written: unknown fields, wrong types, schema, the kind's own rules, metadata."""

from __future__ import annotations

from remuda.apiserver.registry.calls import Call, FieldValidation
from remuda.apiserver.registry.objects import metadata
from remuda.apiserver.resource import Obj, Resource
from remuda.apiserver.schema.walk import Structural
from remuda.kube.errors import FieldError, StatusError, bad_request, invalid_object
from remuda.kube.names import (
    subdomain_name,
    validate_object_meta,
    validate_object_meta_update,
)


def decode_strictly(call: Call, structural: Structural, obj: Obj, validation: FieldValidation) -> None:
    """What a decoder does: wrong types are refused, unknown fields dropped (and complained of), defaults filled in."""
    resource = call.resource
    prepared = structural.prepare(obj)
    if prepared.malformed:
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"{prepared.malformed}"
        )
    if prepared.unknown and validation != "Ignore":
        complaints = [f'unknown field "{path}"' for path in prepared.unknown]
        if validation == "Strict":
            raise strict_error(resource, complaints)
        call.warnings.extend(complaints)
    resource.behaviour.default(obj)


def strict_error(resource: Resource, complaints: list[str]) -> StatusError:
    return bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
        f"strict decoding error: {', '.join(complaints)}"
    )


def validate(call: Call, structural: Structural, new: Obj, old: Obj | None) -> None:
    """Raises one Invalid that lists everything wrong with the object."""
    resource = call.resource
    meta = metadata(new)
    errors = _metadata_errors(resource, meta, metadata(old) if old is not None else None)
    if old is None or new != old:
        check = structural.validate_status if call.subresource == "status" else structural.validate
        errors.extend(check(new, old))
        errors.extend(_kind_errors(call, new, old))
    if errors:
        raise invalid_object(resource.group, resource.kind, meta.get("name", ""), errors)


def _metadata_errors(resource: Resource, meta: Obj, old: Obj | None) -> list[FieldError]:
    validate_name = resource.behaviour.validate_name or subdomain_name
    errors = validate_object_meta(meta, resource.namespaced, validate_name)
    if old is not None:
        errors.extend(validate_object_meta_update(meta, old))
    return errors


def _kind_errors(call: Call, new: Obj, old: Obj | None) -> list[FieldError]:
    behaviour = call.resource.behaviour
    if call.subresource == "status":
        return behaviour.validate_status(new, old or {})
    errors = behaviour.validate(new)
    if old is not None:
        errors = errors + behaviour.validate_update(new, old)
    return errors
