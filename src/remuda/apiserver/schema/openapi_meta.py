"""Components that every document contains: bodies of requests and answers besides the resources themselves."""

from __future__ import annotations

from typing import Any

_PREFIX = "io.k8s.apimachinery.pkg.apis.meta.v1."
LIST_META = _PREFIX + "ListMeta"
STATUS = _PREFIX + "Status"
PATCH = _PREFIX + "Patch"
DELETE_OPTIONS = _PREFIX + "DeleteOptions"


def _text(description: str = "") -> dict[str, Any]:
    return {"type": "string", "description": description} if description else {"type": "string"}


def _object(description: str, **properties: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "type": "object", "properties": properties}


_API_VERSION = _text("The group and version of this object.")
_KIND = _text("The kind of this object.")
_COUNT64: dict[str, Any] = {"type": "integer", "format": "int64"}
_COUNT32: dict[str, Any] = {"type": "integer", "format": "int32"}
_STRINGS: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"}


def _refer(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{_PREFIX}{name}"}


META_COMPONENTS: dict[str, dict[str, Any]] = {
    LIST_META: {
        "description": "What a list says about itself.",
        "type": "object",
        "properties": {
            "continue": _text("Send it back to get the next page."),
            "remainingItemCount": _COUNT64,
            "resourceVersion": _text("The revision the list was taken at; a watch may start there."),
            "selfLink": _text(),
        },
    },
    PATCH: {"description": "A patch of any kind; its media type says which.", "type": "object"},
    STATUS: {
        **_object(
            "The outcome of a request that does not return an object.",
            apiVersion=_API_VERSION,
            code={**_COUNT32, "description": "The HTTP code."},
            details={"allOf": [_refer("StatusDetails")], "description": "What the reason is about."},
            kind=_KIND,
            message=_text("For people."),
            metadata={"allOf": [_refer("ListMeta")], "default": {}},
            reason=_text("For programs."),
            status=_text("Success or Failure."),
        ),
        "x-kubernetes-group-version-kind": [{"group": "", "kind": "Status", "version": "v1"}],
    },
    _PREFIX + "StatusDetails": _object(
        "What an outcome is about.",
        causes={"type": "array", "items": _refer("StatusCause"), "x-kubernetes-list-type": "atomic"},
        group=_text(),
        kind=_text(),
        name=_text(),
        retryAfterSeconds=_COUNT32,
        uid=_text(),
    ),
    _PREFIX + "StatusCause": _object(
        "One of the causes of an outcome.", field=_text("The field it is about."), message=_text(), reason=_text()
    ),
    DELETE_OPTIONS: _object(
        "How to delete.",
        apiVersion=_API_VERSION,
        dryRun=_STRINGS,
        gracePeriodSeconds=_COUNT64,
        ignoreStoreReadErrorWithClusterBreakingPotential={"type": "boolean"},
        kind=_KIND,
        orphanDependents={"type": "boolean"},
        preconditions=_refer("Preconditions"),
        propagationPolicy=_text("Orphan, Background or Foreground."),
    ),
    _PREFIX + "Preconditions": _object(
        "What must hold of the object for it to be deleted.", resourceVersion=_text(), uid=_text()
    ),
}

SCALE: dict[str, Any] = {
    **_object(
        "The size of something that can be scaled.",
        apiVersion=_API_VERSION,
        kind=_KIND,
        metadata={"allOf": [_refer("ObjectMeta")], "default": {}},
        spec={"type": "object", "properties": {"replicas": {**_COUNT32, "description": "How many are wanted."}}},
        status={
            "type": "object",
            "required": ["replicas"],
            "properties": {
                "replicas": {**_COUNT32, "description": "How many there are."},
                "selector": _text("Selects the replicas."),
            },
        },
    ),
    "x-kubernetes-group-version-kind": [{"group": "autoscaling", "kind": "Scale", "version": "v1"}],
}
