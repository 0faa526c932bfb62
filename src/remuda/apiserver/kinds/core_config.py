"""Secrets, ConfigMaps and ServiceAccounts.

`stringData` of a Secret is write-only: it is merged into `data` before any other code sees the object. The content of a
Secret never appears in an error message.
"""

from __future__ import annotations

import binascii
from typing import Any

import msgspec

from remuda.apiserver.kinds.columns import AGE, NAME, count, string, value
from remuda.apiserver.kinds.declare import Rules, declare, schema, unchanged
from remuda.apiserver.resource import Obj, Subresource
from remuda.kube import errors, names
from remuda.kube.errors import FieldError
from remuda.kube.malformed_json import json_complaint

SIZE_LIMIT = 1024 * 1024
_FROZEN = "field is immutable when `immutable` is set"

SERVICE_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"  # noqa: S105 - the name of a type, not a token
SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"


def _merge_string_data(secret: Obj) -> None:
    plain = secret.pop("stringData", None)
    if isinstance(plain, dict) and plain:
        data = dict(secret.get("data") or {})
        for key, text in plain.items():
            data[key] = binascii.b2a_base64(str(text).encode("utf-8", "replace"), newline=False).decode()
        secret["data"] = data


def _decoded_size(text: str) -> int:
    return len(text) * 3 // 4 - text.count("=", -2)


def _validate_secret(secret: Obj) -> list[FieldError]:
    data = secret.get("data") or {}
    found = _key_errors(data, "data")
    if sum(_decoded_size(text) for text in data.values()) > SIZE_LIMIT:
        found.append(errors.too_long("data", SIZE_LIMIT))
    return found + _type_errors(secret, data)


def _key_errors(data: dict[str, Any], path: str) -> list[FieldError]:
    return [errors.invalid(f"{path}[{key}]", key, why) for key in data for why in names.config_key(key)]


def _type_errors(secret: Obj, data: dict[str, str]) -> list[FieldError]:
    match secret.get("type"):
        case "kubernetes.io/service-account-token":
            annotations = secret["metadata"].get("annotations") or {}
            if not annotations.get(SERVICE_ACCOUNT_NAME):
                return [errors.required(f"metadata.annotations[{SERVICE_ACCOUNT_NAME}]")]
        case "kubernetes.io/dockercfg":
            return _json_errors(data, ".dockercfg")
        case "kubernetes.io/dockerconfigjson":
            return _json_errors(data, ".dockerconfigjson")
        case "kubernetes.io/basic-auth":
            if "username" not in data and "password" not in data:
                return [errors.required("data[username]"), errors.required("data[password]")]
        case "kubernetes.io/ssh-auth":
            if not data.get("ssh-privatekey"):
                return [errors.required("data[ssh-privatekey]")]
        case "kubernetes.io/tls":
            return [errors.required(f"data[{key}]") for key in ("tls.crt", "tls.key") if key not in data]
    return []


def _json_errors(data: dict[str, str], key: str) -> list[FieldError]:
    if key not in data:
        return [errors.required(f"data[{key}]")]
    raw = binascii.a2b_base64(data[key])
    try:
        content = msgspec.json.decode(raw)
        why = "" if isinstance(content, dict | None) else "the value is not a JSON object"
    except (ValueError, RecursionError) as error:
        why = json_complaint(raw, str(error))
    return [errors.invalid(f"data[{key}]", "<secret contents redacted>", why)] if why else []


def _validate_secret_update(new: Obj, old: Obj) -> list[FieldError]:
    return unchanged(new, old, "type") + _frozen_errors(new, old, "data")


def _frozen_errors(new: Obj, old: Obj, *fields: str) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    found = [] if new.get("immutable") else [errors.forbidden("immutable", _FROZEN)]
    return found + [errors.forbidden(field, _FROZEN) for field in fields if new.get(field) != old.get(field)]


def _validate_config_map(config_map: Obj) -> list[FieldError]:
    data, binary = config_map.get("data") or {}, config_map.get("binaryData") or {}
    found = _key_errors(data, "data")
    twice = "duplicate of key present in binaryData"
    found += [errors.invalid(f"data[{key}]", key, twice) for key in data if key in binary]
    found += _key_errors(binary, "binaryData")
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in data.values())
    if size + sum(map(_decoded_size, binary.values())) > SIZE_LIMIT:
        found.append(errors.too_long("[]", SIZE_LIMIT))  # an empty list, so kube-apiserver prints the whole object
    return found


def _validate_config_map_update(new: Obj, old: Obj) -> list[FieldError]:
    return _frozen_errors(new, old, "data", "binaryData")


def _config_map_size(config_map: Obj) -> int:
    return len(config_map.get("data") or ()) + len(config_map.get("binaryData") or ())


SECRETS = declare(
    "",
    "v1",
    "Secret",
    "secrets",
    Rules(default=_merge_string_data, validate=_validate_secret, validate_update=_validate_secret_update),
    has_generation=False,
    selectable={"type": ("type",)},
    columns=(NAME, string("Type", value("type")), string("Data", count("data")), AGE),
)
CONFIG_MAPS = declare(
    "",
    "v1",
    "ConfigMap",
    "configmaps",
    Rules(validate=_validate_config_map, validate_update=_validate_config_map_update),
    short_names=("cm",),
    has_generation=False,
    columns=(NAME, string("Data", _config_map_size), AGE),
)
SERVICE_ACCOUNTS = declare(
    "",
    "v1",
    "ServiceAccount",
    "serviceaccounts",
    short_names=("sa",),
    has_generation=False,
    returns_deleted=True,
    columns=(NAME, AGE),
    subresources={
        "token": Subresource(
            kind="TokenRequest",
            verbs=("create",),
            group="authentication.k8s.io",
            version="v1",
            schema=schema("authentication.k8s.io", "v1", "TokenRequest"),
            decodes=True,
        )
    },
)
