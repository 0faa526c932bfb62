"""Validation of names, label keys, label values and metadata, with the error messages of Kubernetes.

A check returns a list of complaints in the real server's words, empty when the value is valid; `validate_object_meta`
and `validate_object_meta_update` collect them as field errors. Nothing here changes its input. Lengths are counted in
UTF-8 bytes, as upstream counts them (even where its message says "characters").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from remuda.kube import errors, random_source
from remuda.kube.errors import FieldError

ValidateName = Callable[[str, bool], list[str]]  # (name, is_prefix) -> complaints

ANNOTATIONS_LIMIT = 256 * 1024  # bytes of all keys and values together
ORPHAN_FINALIZER = "orphan"
FOREGROUND_FINALIZER = "foregroundDeletion"

_LABEL_1123 = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_1123 = _LABEL_1123 + r"(\." + _LABEL_1123 + ")*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"

_is_label_1123 = re.compile(_LABEL_1123).fullmatch
_is_subdomain_1123 = re.compile(_SUBDOMAIN_1123).fullmatch
_is_label_1035 = re.compile(_LABEL_1035).fullmatch
_is_key = re.compile(_KEY).fullmatch
_is_value = re.compile(_VALUE).fullmatch
_is_config_key = re.compile(_CONFIG_KEY).fullmatch


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _regex_complaint(sentence: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{sentence} (e.g. {shown}regex used for validation is '{pattern}')"


_SUBDOMAIN_COMPLAINT = _regex_complaint(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character",
    _SUBDOMAIN_1123,
    "example.com",
)
_LABEL_1123_COMPLAINT = _regex_complaint(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character",
    _LABEL_1123,
    "my-name",
    "123-abc",
)
_LABEL_1035_COMPLAINT = _regex_complaint(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character",
    _LABEL_1035,
    "my-name",
    "abc-123",
)
_KEY_COMPLAINT = _regex_complaint(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    _KEY,
    "MyName",
    "my.name",
    "123-abc",
)
_VALUE_COMPLAINT = _regex_complaint(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character",
    _VALUE,
    "MyValue",
    "my_value",
    "12345",
)
_CONFIG_KEY_COMPLAINT = _regex_complaint(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _CONFIG_KEY,
    "key.name",
    "KEY_NAME",
    "key-name",
)


def dns1123_label(value: str) -> list[str]:
    found = []
    if _size(value) > 63:
        found.append("must be no more than 63 characters")
    if not _is_label_1123(value):
        found.append("must not contain dots" if _is_subdomain_1123(value) else _LABEL_1123_COMPLAINT)
    return found


def dns1123_subdomain(value: str) -> list[str]:
    found = []
    if _size(value) > 253:
        found.append("must be no more than 253 characters")
    if not _is_subdomain_1123(value):
        found.append(_SUBDOMAIN_COMPLAINT)
    return found


def dns1035_label(value: str) -> list[str]:
    found = []
    if _size(value) > 63:
        found.append("must be no more than 63 characters")
    if not _is_label_1035(value):
        found.append(_LABEL_1035_COMPLAINT)
    return found


def qualified_name(value: str) -> list[str]:
    """Check a label or annotation key, a finalizer or a condition type: `name` or `example.com/name`."""
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        return [
            f"a valid label key {_KEY_COMPLAINT} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        ]
    found = _prefix_complaints(prefix) if slash else []
    if not name:
        found.append("name part must be non-empty")
    elif _size(name) > 63:
        found.append("name part must be no more than 63 bytes")
    if not _is_key(name):
        found.append("name part " + _KEY_COMPLAINT)
    return found


def _prefix_complaints(prefix: str) -> list[str]:
    if not prefix:
        return ["prefix part must be non-empty"]
    found = []
    if _size(prefix) > 253:
        found.append("prefix part must be no more than 253 bytes")
    if not _is_subdomain_1123(prefix):
        found.append("prefix part " + _SUBDOMAIN_COMPLAINT)
    return found


def label_value(value: str) -> list[str]:
    found = []
    if _size(value) > 63:
        found.append("must be no more than 63 bytes")
    if not _is_value(value):
        found.append(_VALUE_COMPLAINT)
    return found


def config_key(value: str) -> list[str]:
    """Check a key of a ConfigMap or a Secret."""
    found = []
    if _size(value) > 253:
        found.append("must be no more than 253 characters")
    if not _is_config_key(value):
        found.append(_CONFIG_KEY_COMPLAINT)
    if value in (".", ".."):
        found.append(f"must not be '{value}'")
    elif value.startswith(".."):
        found.append("must not start with '..'")
    return found


def path_segment(name: str, is_prefix: bool = False) -> list[str]:
    """Check the minimum for any name: one segment of a URL path. RBAC kinds require no more than this."""
    if not is_prefix and name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{part}'" for part in ("/", "%") if part in name]


def _masked(name: str, is_prefix: bool) -> str:
    """Mask the trailing dash of a prefix, which more characters follow. (Two are replaced by one, as upstream does.)"""
    return name[:-2] + "a" if is_prefix and len(name) > 1 and name.endswith("-") else name


def subdomain_name(name: str, is_prefix: bool = False) -> list[str]:
    return dns1123_subdomain(_masked(name, is_prefix))


def label_name(name: str, is_prefix: bool = False) -> list[str]:
    return dns1123_label(_masked(name, is_prefix))


_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # upstream's: no vowels, so that no words appear
_LONGEST_BASE = 63 - 5


def generate_name(prefix: str) -> str:
    """Return the prefix (cut so that the result has at most 63 characters) and five random characters."""
    return prefix[:_LONGEST_BASE] + random_source.letters(_SUFFIX_ALPHABET, 5)


def validate_labels(labels: Mapping[str, str], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for key, value in labels.items():
        # Nearly every label is valid: the two searches decide that without building a list.
        if not (len(key) <= 63 and _is_key(key)):
            found += [errors.invalid(path, key, complaint) for complaint in qualified_name(key)]
        if not (len(value) <= 63 and _is_value(value)):
            found += [errors.invalid(path, value, complaint) for complaint in label_value(value)]
    return found


def validate_annotations(annotations: Mapping[str, str], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    total = 0
    for key, value in annotations.items():
        total += _size(key) + _size(value)
        found += [errors.invalid(path, key, complaint) for complaint in qualified_name(key.lower())]
    if total > ANNOTATIONS_LIMIT:
        found.append(errors.too_long(path, ANNOTATIONS_LIMIT))
    return found


def validate_finalizers(finalizers: Sequence[str], path: str) -> list[FieldError]:
    found = [errors.invalid(path, name, complaint) for name in finalizers for complaint in qualified_name(name)]
    if ORPHAN_FINALIZER in finalizers and FOREGROUND_FINALIZER in finalizers:
        both = f"finalizer {ORPHAN_FINALIZER} and {FOREGROUND_FINALIZER} cannot be both set"
        found.append(errors.invalid(path, list(finalizers), both))
    return found


_STANDARD_FINALIZERS = frozenset(("kubernetes", ORPHAN_FINALIZER, FOREGROUND_FINALIZER))


def validate_builtin_finalizers(finalizers: Sequence[str], path: str) -> list[FieldError]:
    """Return errors for finalizers of built-in kinds, which must have a domain or be one of Kubernetes' own."""
    why = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        errors.invalid(f"{path}[{index}]", name, why)
        for index, name in enumerate(finalizers)
        if "/" not in name and name not in _STANDARD_FINALIZERS
    ]


_REFERENCE_FIELDS = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")


def _shown_reference(reference: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reference with its fields in kube-apiserver's order."""
    return {field: reference[field] for field in _REFERENCE_FIELDS if reference.get(field) is not None}


def validate_owner_references(references: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    controller = ""
    shown: list[Any] = []  # built once, however many errors show it
    for reference in references:
        found += _owner_reference_errors(reference, path)
        if reference.get("controller"):
            this = f"{reference.get('kind', '')}/{reference.get('name', '')}"
            if controller:
                shown = shown or [_shown_reference(each) for each in references]
                found.append(
                    errors.invalid(
                        path,
                        shown,
                        "Only one reference can have Controller set to true. "
                        f'Found "true" in references for {controller} and {this}',
                    )
                )
            controller = controller or this
    return found


def _owner_reference_errors(reference: Mapping[str, Any], path: str) -> list[FieldError]:
    api_version, kind = reference.get("apiVersion") or "", reference.get("kind") or ""
    found = []
    version = api_version.rpartition("/")[2] if api_version.count("/") < 2 else ""
    if not version:
        found.append(errors.invalid(f"{path}.apiVersion", api_version, "version must not be empty"))
    if not kind:
        found.append(errors.invalid(f"{path}.kind", kind, "must not be empty"))
    for field in ("name", "uid"):
        if not reference.get(field):
            found.append(errors.invalid(f"{path}.{field}", "", "must not be empty"))
    if api_version == "v1" and kind == "Event":
        found.append(
            errors.invalid(path, _shown_reference(reference), "/v1, Kind=Event is disallowed from being an owner")
        )
    return found


def validate_managed_fields(entries: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, entry in enumerate(entries):
        here = f"{path}[{index}]"
        operation, fields_type = entry.get("operation") or "", entry.get("fieldsType") or ""
        if operation not in ("Apply", "Update"):
            found.append(errors.invalid(f"{here}.operation", operation, "must be `Apply` or `Update`"))
        if fields_type not in ("", "FieldsV1"):
            found.append(errors.invalid(f"{here}.fieldsType", fields_type, "must be `FieldsV1`"))
        found += validate_field_manager(entry.get("manager") or "", f"{here}.manager")
        if _size(entry.get("subresource") or "") > 256:
            found.append(errors.too_long(f"{here}.subresource", 256))
    return found


def validate_field_manager(manager: str, path: str = "fieldManager") -> list[FieldError]:
    found = []
    if _size(manager) > 128:
        found.append(errors.too_long(path, 128))
    if not manager.isprintable():
        offset = 0
        for char in manager:
            if not char.isprintable():
                what = f"invalid character U+{ord(char):04X} (at position {offset})"
                found.append(errors.invalid(path, manager, what))
            offset += _size(char)
    return found


def validate_object_meta(
    meta: Mapping[str, Any], namespaced: bool, validate_name: ValidateName | None = None, path: str = "metadata"
) -> list[FieldError]:
    """Return errors in the metadata of an object to be created, after its name was generated. `validate_name` None: a
    DNS subdomain.
    """
    check = validate_name or subdomain_name
    found: list[FieldError] = []
    generate = meta.get("generateName") or ""
    if generate:
        found += [errors.invalid(f"{path}.generateName", generate, text) for text in check(generate, True)]
    name = meta.get("name") or ""
    if name:
        found += [errors.invalid(f"{path}.name", name, text) for text in check(name, False)]
    else:
        found.append(errors.required(f"{path}.name", "name or generateName is required"))
    found += _namespace_errors(meta.get("namespace") or "", namespaced, f"{path}.namespace")
    generation = meta.get("generation") or 0
    if generation < 0:
        found.append(errors.invalid(f"{path}.generation", generation, "must be greater than or equal to 0"))
    if finalizers := meta.get("finalizers"):
        found += validate_finalizers(finalizers, f"{path}.finalizers")
    return found + _shared_errors(meta, path)


def _namespace_errors(namespace: str, namespaced: bool, path: str) -> list[FieldError]:
    if not namespaced:
        return [errors.forbidden(path, "not allowed on this type")] if namespace else []
    if not namespace:
        return [errors.required(path)]
    return [errors.invalid(path, namespace, text) for text in dns1123_label(namespace)]


def _shared_errors(meta: Mapping[str, Any], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    if labels := meta.get("labels"):
        found += validate_labels(labels, f"{path}.labels")
    if annotations := meta.get("annotations"):
        found += validate_annotations(annotations, f"{path}.annotations")
    if references := meta.get("ownerReferences"):
        found += validate_owner_references(references, f"{path}.ownerReferences")
    if managed := meta.get("managedFields"):
        found += validate_managed_fields(managed, f"{path}.managedFields")
    return found


_IMMUTABLE = (
    ("name", ""),
    ("namespace", ""),
    ("uid", ""),
    ("creationTimestamp", None),
    ("deletionTimestamp", None),
    ("deletionGracePeriodSeconds", None),
)


def validate_object_meta_update(
    new: Mapping[str, Any], old: Mapping[str, Any], path: str = "metadata"
) -> list[FieldError]:
    """Return errors for metadata that an update must not change.

    The caller copies the server's own bookkeeping (uid, times, generation) into `new` beforehand, where the client left
    it out.
    """
    found: list[FieldError] = []
    if old.get("deletionTimestamp") is not None:
        found += _new_finalizer_errors(new.get("finalizers") or (), old.get("finalizers") or (), path)
    if not new.get("resourceVersion"):
        found.append(errors.invalid(f"{path}.resourceVersion", "", "must be specified for an update"))
    if (new.get("generation") or 0) < (old.get("generation") or 0):
        found.append(errors.invalid(f"{path}.generation", new.get("generation") or 0, "must not be decremented"))
    for field, absent in _IMMUTABLE:
        value, before = new.get(field, absent), old.get(field, absent)
        if value != before and not (value in ("", None) and before in ("", None)):
            found.append(errors.invalid(f"{path}.{field}", value, "field is immutable"))
    return found + _shared_errors(new, path)


def _new_finalizer_errors(new: Sequence[str], old: Sequence[str], path: str) -> list[FieldError]:
    extra = sorted(set(new) - set(old))
    if not extra:
        return []
    listed = ", ".join(f'"{name}"' for name in extra)
    return [
        errors.forbidden(
            f"{path}.finalizers",
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}",
        )
    ]
