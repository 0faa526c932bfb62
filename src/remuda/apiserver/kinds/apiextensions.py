"""CustomResourceDefinitions, except their schemas.

`registry.crds` parses and checks schemas and CEL rules where definitions are served. Error paths follow kube-apiserver:
if a field is the same in every version, the error is at the path that v1beta1 had (`spec.additionalPrinterColumns`,
`spec.subresources`).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from remuda.apiserver.kinds.columns import PLAIN
from remuda.apiserver.kinds.declare import Rules, declare, unchanged
from remuda.apiserver.resource import Obj
from remuda.kube import clock, errors, names
from remuda.kube.errors import FieldError

GROUP = "apiextensions.k8s.io"
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
APPROVED = "api-approved.kubernetes.io"
_KEP = "see https://github.com/kubernetes/enhancements/pull/1111"
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = (
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
)
_REVIEW_VERSIONS = ("v1", "v1beta1")
_MOST_SELECTABLE_FIELDS = 8


def _default(crd: Obj) -> None:
    spec = crd["spec"]
    accepted = spec["names"]
    kind = accepted.get("kind") or ""
    if kind:
        accepted.setdefault("singular", kind.lower())
        accepted.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})
    if not crd["status"].get("storedVersions"):
        crd["status"]["storedVersions"] = _storage_versions(spec)[:1] or None


def _storage_versions(spec: Obj) -> list[str]:
    return [version.get("name", "") for version in spec.get("versions") or () if version.get("storage")]


def _create(crd: Obj) -> None:
    crd["status"] = {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": _storage_versions(crd["spec"])[:1] or None,
    }


def _update(new: Obj, old: Obj) -> None:
    stored = new["status"].get("storedVersions") or []
    added = [version for version in _storage_versions(new["spec"])[:1] if version not in stored]
    if added:
        new["status"] = {**new["status"], "storedVersions": [*stored, *added]}


def _start_terminating(crd: Obj) -> None:
    """Add the finalizer that keeps the definition until `upkeep` has removed every object of the kind."""
    meta = crd["metadata"]
    if meta.get("deletionTimestamp"):
        return
    if CLEANUP_FINALIZER not in (meta.get("finalizers") or ()):
        meta["finalizers"] = [*(meta.get("finalizers") or ()), CLEANUP_FINALIZER]
    condition = {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": clock.now(),
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    }
    others = [c for c in crd["status"].get("conditions") or () if c.get("type") != "Terminating"]
    crd["status"] = {**crd["status"], "conditions": [*others, condition]}


def validate_crd(crd: Obj) -> list[FieldError]:
    """Return the errors in a definition, except those in its schemas."""
    spec = crd["spec"]
    found = _group_errors(spec.get("group") or "")
    found += _choice_errors(spec.get("scope"), "spec.scope", ("Cluster", "Namespaced"))
    found += _version_list_errors(spec)
    found += _names_errors(spec["names"])
    found += _shared_errors(spec)
    found += _conversion_errors(spec["conversion"])
    if spec.get("preserveUnknownFields"):
        why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        found.append(errors.invalid("spec.preserveUnknownFields", True, why))
    found += stored_version_errors(crd)
    return found


def _name_errors(crd: Obj) -> list[FieldError]:
    name = crd["metadata"].get("name", "")
    if name == f"{crd['spec']['names'].get('plural', '')}.{crd['spec'].get('group', '')}":
        return []
    return [errors.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')]


def _group_errors(group: str) -> list[FieldError]:
    if not group:
        return [errors.required("spec.group")]
    if complaints := names.dns1123_subdomain(group):
        return [errors.invalid("spec.group", group, ",".join(complaints))]
    if "." not in group:
        return [errors.invalid("spec.group", group, "should be a domain with at least one dot")]
    return []


def _choice_errors(given: Any, path: str, accepted: tuple[str, ...]) -> list[FieldError]:
    if not given:
        return [errors.required(path)]
    return [] if given in accepted else [errors.not_supported(path, given, accepted)]


def _version_list_errors(spec: Obj) -> list[FieldError]:
    versions = spec.get("versions")
    found: list[FieldError] = []
    for index, version in enumerate(versions or ()):
        path = f"spec.versions[{index}]"
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            found.append(errors.required(f"{path}.schema.openAPIV3Schema"))
        name = version.get("name", "")
        if complaints := names.dns1035_label(name):
            found.append(errors.invalid(f"{path}.name", name, ",".join(complaints)))
        found += _deprecation_errors(version, f"{path}.deprecationWarning")
    listed = [version.get("name", "") for version in versions or ()]
    if listed and (complaints := names.dns1035_label(listed[0])):
        found.append(errors.invalid("spec.version", listed[0], ",".join(complaints)))
    if len(set(listed)) != len(listed):
        found.append(errors.invalid("spec.versions", versions, "must contain unique version names"))
    if len(_storage_versions(spec)) != 1:
        why = "must have exactly one version marked as storage version"
        found.append(errors.invalid("spec.versions", versions, why))
    return found


def _deprecation_errors(version: Obj, path: str) -> list[FieldError]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return []
    if not version.get("deprecated"):
        return [errors.invalid(path, warning, "can only be set for deprecated versions")]
    complaints = []
    if len(warning.encode("utf-8", "surrogatepass")) > 256:
        complaints.append("must be <= 256 characters long")
    if not warning:
        complaints.append("must not be an empty string")
    bad = next((at for at, character in enumerate(warning) if not character.isprintable()), None)
    if bad is not None:
        why = "must only contain printable UTF-8 characters; non-printable character found at index"
        complaints.append(f"{why} {bad}")
    return [errors.invalid(path, warning, why) for why in complaints]


def _names_errors(given: Obj, path: str = "spec.names") -> list[FieldError]:
    found = [errors.required(f"{path}.{f}") for f in ("plural", "singular", "kind", "listKind") if not given.get(f)]
    for field in ("plural", "singular"):
        name = given.get(field)
        if name and (complaints := names.dns1035_label(name)):
            found.append(errors.invalid(f"{path}.{field}", name, ",".join(complaints)))
    for field in ("kind", "listKind"):
        name = given.get(field)
        if name and (complaints := names.dns1035_label(name.lower())):
            why = "may have mixed case, but should otherwise match: " + ",".join(complaints)
            found.append(errors.invalid(f"{path}.{field}", name, why))
    if given.get("kind") and given.get("kind") == given.get("listKind"):
        why = "kind and listKind may not be the same"
        found.append(errors.invalid(f"{path}.listKind", given["listKind"], why))
    for field in ("shortNames", "categories"):
        for index, name in enumerate(given.get(field) or ()):
            if complaints := names.dns1035_label(name):
                found.append(errors.invalid(f"{path}.{field}[{index}]", name, ",".join(complaints)))
    return found


def _shared_errors(spec: Obj) -> list[FieldError]:
    """Return the errors in per-version fields, at spec.<field> if all versions agree, else at each version."""
    versions = spec.get("versions") or []
    found: list[FieldError] = []
    for field, check in _PER_VERSION:
        given = [version.get(field) for version in versions]
        if given and all(one == given[0] for one in given):
            found += check(given[0], f"spec.{field}")
        else:
            for index, one in enumerate(given):
                found += check(one, f"spec.versions[{index}].{field}")
    return found


def _selectable_errors(fields: Any, path: str) -> list[FieldError]:
    found = []
    if len(fields or ()) > _MOST_SELECTABLE_FIELDS:
        found.append(errors.too_many(path, len(fields), _MOST_SELECTABLE_FIELDS))
    used = set()
    for index, field in enumerate(fields or ()):
        given = field.get("jsonPath") or ""
        where = f"{path}[{index}].jsonPath"
        if not given:
            found.append(errors.required(where))
        elif not given.startswith("."):
            found.append(errors.invalid(where, given, f"is an invalid path: expected [ or . but got: {given}"))
        elif given.startswith(".metadata.") or given == ".metadata":
            found.append(errors.invalid(where, given, "must not point to fields in metadata"))
        if given in used:
            found.append(errors.duplicate(where, given))
        used.add(given)
    return found


def _columns_errors(columns: Any, path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, column in enumerate(columns or ()):
        found += _column_errors(column, f"{path}[{index}]")
    return found


def _column_errors(column: Obj, path: str) -> list[FieldError]:
    found = [] if column.get("name") else [errors.required(f"{path}.name")]
    kinds = "must be one of " + ",".join(_COLUMN_TYPES)
    given = column.get("type") or ""
    if not given:
        found.append(errors.required(f"{path}.type", kinds))
    elif given not in _COLUMN_TYPES:
        found.append(errors.invalid(f"{path}.type", given, kinds))
    format_ = column.get("format")
    if format_ and format_ not in _COLUMN_FORMATS:
        found.append(errors.invalid(f"{path}.format", format_, "must be one of " + ",".join(_COLUMN_FORMATS)))
    json_path = column.get("jsonPath") or ""
    if not json_path:
        return [*found, errors.required(f"{path}.JSONPath")]
    return found + _simple_path_errors(json_path, f"{path}.JSONPath")


def _simple_path_errors(given: str, path: str) -> list[FieldError]:
    if given.startswith("."):
        return []
    return [errors.invalid(path, given, "must be a simple json path starting with .")]


def _subresource_errors(subresources: Any, path: str) -> list[FieldError]:
    scale = (subresources or {}).get("scale")
    if scale is None:
        return []
    found = _scale_path_errors(scale.get("specReplicasPath"), f"{path}.scale.specReplicasPath", ".spec.")
    found += _scale_path_errors(scale.get("statusReplicasPath"), f"{path}.scale.statusReplicasPath", ".status.")
    selector = scale.get("labelSelectorPath")
    if selector:
        where = f"{path}.scale.labelSelectorPath"
        simple = _simple_path_errors(selector, where)
        found += simple
        if not simple and not selector.startswith((".spec.", ".status.")):
            why = "should be a json path under either .spec or .status"
            found.append(errors.invalid(where, selector, why))
    return found


_PER_VERSION = (
    ("additionalPrinterColumns", _columns_errors),
    ("subresources", _subresource_errors),
    ("selectableFields", _selectable_errors),
)


def _scale_path_errors(given: str | None, path: str, root: str) -> list[FieldError]:
    if not given:
        return [errors.required(path)]
    if found := _simple_path_errors(given, path):
        return found
    if not given.startswith(root):
        return [errors.invalid(path, given, f"should be a json path under {root[:-1]}")]
    return []


def _conversion_errors(conversion: Obj) -> list[FieldError]:
    path = "spec.conversion"
    strategy, webhook = conversion.get("strategy"), conversion.get("webhook") or {}
    found = _choice_errors(strategy, f"{path}.strategy", ("None", "Webhook"))
    client, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    if strategy != "Webhook":
        why = "should not be set when strategy is not set to Webhook"
        given = (("webhookClientConfig", client), ("conversionReviewVersions", versions))
        return found + [errors.forbidden(f"{path}.{field}", why) for field, one in given if one]
    if client is None:
        found.append(errors.required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook"))
    elif (client.get("url") is None) == (client.get("service") is None):
        found.append(errors.required(f"{path}.webhookClientConfig", "exactly one of url or service is required"))
    where = f"{path}.conversionReviewVersions"
    if not versions:
        found.append(errors.required(where))
    elif not any(version in _REVIEW_VERSIONS for version in versions):
        why = "must include at least one of v1, v1beta1"
        found.append(errors.invalid(where, versions, why))
    return found


def stored_version_errors(crd: Obj) -> list[FieldError]:
    """Return the errors for removed versions in which objects may still be stored."""
    path = "status.storedVersions"
    stored = crd["status"].get("storedVersions")
    if not stored:
        return [errors.invalid(path, stored, "must have at least one stored version")]
    known = [version.get("name") for version in crd["spec"].get("versions") or ()]
    found = [
        errors.invalid(path, stored, f"must have the storage version {version}")
        for version in _storage_versions(crd["spec"])
        if version not in stored
    ]
    for index, version in enumerate(stored):
        if version not in known:
            why = (
                f"missing from spec.versions; {version} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {version} and removes "
                f"{version} from status.storedVersions"
            )
            found.append(errors.invalid(f"{path}[{index}]", version, why))
    return found


def _approval(crd: Obj) -> tuple[str, list[FieldError]]:
    """Return the approval state of a definition, to compare, and its errors.

    A group of the Kubernetes community must state its approval in an annotation.
    """
    group = crd["spec"].get("group") or ""
    if group not in ("k8s.io", "kubernetes.io") and not group.endswith((".k8s.io", ".kubernetes.io")):
        return "free", []
    path = f"metadata.annotations[{APPROVED}]"
    given = (crd["metadata"].get("annotations") or {}).get(APPROVED, "")
    must = f'protected groups must have approval annotation "{APPROVED}"'
    if not given:
        return "missing", [errors.required(path, f"{must}, {_KEP}")]
    if given.startswith("unapproved"):
        return "bypassed", []
    if _is_url(given):
        return "approved", []
    why = f'{must} with either a URL or a reason starting with "unapproved", {_KEP}'
    return "invalid", [errors.invalid(path, given, why)]


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and parts.netloc)


def _validate_create(crd: Obj) -> list[FieldError]:
    return _name_errors(crd) + _approval(crd)[1]


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    conditions = old["status"].get("conditions") or ()
    if any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions):
        found += unchanged(new, old, "spec", "scope") + unchanged(new, old, "spec", "names", "kind")
    found += unchanged(new, old, "spec", "group") + unchanged(new, old, "spec", "names", "plural")
    (state, complaints), (before, _) = _approval(new), _approval(old)
    return found + (complaints if state != before else [])


CUSTOM_RESOURCE_DEFINITIONS = declare(
    GROUP,
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    Rules(
        default=_default,
        create=_create,
        update=_update,
        delete=_start_terminating,
        validate=validate_crd,
        validate_create=_validate_create,
        validate_update=_validate_update,
    ),
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    has_status=True,
    allow_unconditional_update=False,
    columns=PLAIN,
)

RESOURCES = (CUSTOM_RESOURCE_DEFINITIONS,)
