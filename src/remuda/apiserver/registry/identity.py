"""Identity checks: is this object the one in the URL, and does its namespace accept it?

A body may omit kind, version and namespace, but they must not contradict the URL. New objects need an existing
namespace that is not being deleted.
"""

from __future__ import annotations

from remuda.apiserver.registry.calls import Call
from remuda.apiserver.registry.objects import decode, metadata
from remuda.apiserver.resource import Obj
from remuda.apiserver.storage.protocol import Store
from remuda.kube.errors import StatusError, bad_request, forbidden_request, not_found

NAMESPACES = "namespaces"


def identify(call: Call, obj: Obj) -> None:
    resource = call.resource
    given_version, given_kind = (
        obj.setdefault("apiVersion", resource.api_version),
        obj.setdefault("kind", resource.kind),
    )
    if given_version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({given_version}) does not match the expected API version "
            f"({resource.api_version})"
        )
    if given_kind != resource.kind:
        raise bad_request(
            f"{given_kind} in version {resource.version!r} cannot be handled as a {resource.kind}: "
            f"the object provided is unrecognized (must be of type {resource.kind})".replace("'", '"')
        )
    if obj.get("metadata") is not None and not isinstance(obj["metadata"], dict):
        raise _no_metadata(call, obj["metadata"])
    _settle_namespace(call, metadata(obj))


def require_identity(call: Call, obj: Obj) -> None:
    """Require that an object has the name, and the namespace if any, of the stored object that it replaces."""
    meta = metadata(obj)
    _settle_namespace(call, meta)
    name = meta.get("name")
    if not name:
        raise bad_request(
            f"the name of the object ({call.name} based on URL) was undeterminable: name must be provided"
        )
    if name != call.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.name})")


def _settle_namespace(call: Call, meta: Obj) -> None:
    if not call.resource.namespaced:
        return
    given = meta.get("namespace")
    if not given:
        meta["namespace"] = call.namespace
    elif given != call.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


_JSON_WORDS = {str: "string", bool: "bool", list: "array"}


def _no_metadata(call: Call, given: object) -> StatusError:
    resource = call.resource
    word = _JSON_WORDS.get(type(given), "number")
    return bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: json: cannot '
        f"unmarshal {word} into Go struct field {resource.kind}.metadata of type v1.ObjectMeta"
    )


def check_namespace_open(store: Store, call: Call, name: str) -> None:
    """Refuse creates in a namespace that is missing or being deleted."""
    if not call.resource.namespaced:
        return
    entry = store.latest(NAMESPACES, "", call.namespace)
    if entry is None:
        raise not_found("", NAMESPACES, call.namespace)
    if b'"deletionTimestamp"' in entry.value and "deletionTimestamp" in decode(entry.value)["metadata"]:
        raise _terminating(call, name)


def _terminating(call: Call, name: str) -> StatusError:
    why = f"unable to create new content in namespace {call.namespace} because it is being terminated"
    error = forbidden_request(call.resource.group, call.resource.plural, name, why)
    error.details["causes"] = [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {call.namespace} is being terminated",
            "field": "metadata.namespace",
        }
    ]
    return error
