"""Validate a configuration, field by field: the part of a spec that Clusters and RKEControlPlanes share.

Only values that could never work are refused. Values that may be right on some version of a distribution cause a
warning (`keys`).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urlsplit

import yaml

from remuda.capi.admission.machine_fields import selector_complaints
from remuda.capi.types.shared import Selector
from remuda.kube import cron, untrusted_yaml
from remuda.kube import names as kube_names
from remuda.kube.errors import OMITTED, FieldError, forbidden, invalid, required, too_long, too_many
from remuda.kube.patterns import BadPattern, compile_pattern
from remuda.providers.shared import credentials
from remuda.providers.shared.types.configuration import (
    S3,
    ClusterConfiguration,
    DataDirectories,
    DrainOptions,
    EnvVar,
    Etcd,
    FileSource,
    FileSourceObject,
    Registries,
    SelectorFiles,
    Taint,
)

_is_octal = re.compile(r"[0-7]{3,4}").fullmatch
_has_unicode_class = re.compile(r"\\[pP]").search
_is_env_name = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_PEM = "-----BEGIN "
_SHA256_BYTES = 32
_MOST_REWRITES = 100  # of all mirrors
_LONGEST_REWRITE = 256


def complaints(config: ClusterConfiguration, path: str) -> list[FieldError]:
    """Return the errors of everything but config values, which can only be judged with a distribution."""
    found = _drain(
        config.upgrade_strategy.control_plane_drain_options, f"{path}.upgradeStrategy.controlPlaneDrainOptions"
    )
    found += _drain(config.upgrade_strategy.worker_drain_options, f"{path}.upgradeStrategy.workerDrainOptions")
    for chart, values in config.chart_values.items():
        if values is not None and not isinstance(values, dict):
            found.append(invalid(f"{path}.chartValues[{chart}]", values, "must be a map of values"))
        found += [invalid(f"{path}.chartValues", chart, text) for text in kube_names.dns1123_subdomain(chart)]
    for index, entry in enumerate(config.machine_selector_config):
        found += _selector(entry.machine_label_selector, f"{path}.machineSelectorConfig[{index}].machineLabelSelector")
    for index, files in enumerate(config.machine_selector_files):
        found += _files(files, f"{path}.machineSelectorFiles[{index}]")
    if problem := manifest_problem(config.additional_manifest):
        found.append(invalid(f"{path}.additionalManifest", OMITTED, problem))
    if config.registries is not None:
        found += _registries(config.registries, f"{path}.registries")
    if config.etcd is not None:
        found += _etcd(config.etcd, f"{path}.etcd")
    return found + _directories(config.data_directories, f"{path}.dataDirectories")


def transitions(old: ClusterConfiguration, new: ClusterConfiguration, path: str) -> list[FieldError]:
    if old.data_directories == new.data_directories:
        return []
    return [
        forbidden(
            f"{path}.dataDirectories", "cannot be changed: nodes would not find their data in the old directories"
        )
    ]


def environment(variables: Sequence[EnvVar], path: str) -> list[FieldError]:
    return [
        invalid(f"{path}[{index}].name", variable.name, "must be a letter or _, then letters, digits and _")
        for index, variable in enumerate(variables)
        if not _is_env_name(variable.name)
    ]


def taints(given: Sequence[Taint], path: str) -> list[FieldError]:
    found = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(given):
        at = f"{path}[{index}]"
        found += [invalid(f"{at}.key", taint.key, text) for text in kube_names.qualified_name(taint.key)]
        found += [invalid(f"{at}.value", taint.value, text) for text in kube_names.label_value(taint.value)]
        if (taint.key, taint.effect) in seen:
            found.append(invalid(at, str(taint), "is a duplicate: a Node has one taint per key and effect"))
        seen.add((taint.key, taint.effect))
    return found


def credential(reference: str, namespace: str, path: str) -> list[FieldError]:
    """Return the errors of a credential's name: `namespace:name`, or the name of a Secret in this namespace."""
    if not reference:
        return []
    try:
        place = credentials.place(reference, namespace)
    except credentials.BadReference as error:
        return [invalid(path, reference, str(error))]
    return [invalid(path, reference, text) for text in kube_names.dns1123_subdomain(place.name)]


@lru_cache(maxsize=64)
def manifest_problem(text: str) -> str:
    """Return why the text is no YAML of objects; empty if it is. Only its shape is parsed: no anchor is followed."""
    depth = 0
    try:
        # Nothing is composed of the events, so they may be nested as deeply as they like.
        for event in untrusted_yaml.events(text, deepest=untrusted_yaml.MOST_EVENTS):
            if isinstance(event, yaml.DocumentStartEvent):
                depth = 0
            elif isinstance(event, yaml.CollectionStartEvent):
                if depth == 0 and not isinstance(event, yaml.MappingStartEvent):
                    return "must be Kubernetes objects, not a list"
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            elif isinstance(event, yaml.ScalarEvent) and depth == 0 and event.value not in ("", "null", "~"):
                return "must be Kubernetes objects, not plain text"
    except untrusted_yaml.TooLarge:
        return f"is too large: must have at most {untrusted_yaml.MOST_EVENTS} YAML nodes"
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        return f"is not valid YAML: {getattr(error, 'problem', None) or 'it cannot be read'}{where}"
    return ""


# ---- parts -----------------------------------------------------------------------------------------------------------


def _drain(options: DrainOptions, path: str) -> list[FieldError]:
    hooks = (("preDrainHooks", options.pre_drain_hooks), ("postDrainHooks", options.post_drain_hooks))
    return [
        invalid(f"{path}.{name}[{index}].annotation", hook.annotation, text)
        for name, given in hooks
        for index, hook in enumerate(given)
        for text in kube_names.qualified_name(hook.annotation)
    ]


def _selector(selector: Selector | None, path: str) -> list[FieldError]:
    return [] if selector is None else selector_complaints(selector, path)


def _files(files: SelectorFiles, path: str) -> list[FieldError]:
    found = _selector(files.machine_label_selector, f"{path}.machineLabelSelector")
    for index, source in enumerate(files.file_sources):
        found += _source(source, f"{path}.fileSources[{index}]")
    return found


def _source(source: FileSource, path: str) -> list[FieldError]:
    if (source.secret is None) == (source.config_map is None):
        return [invalid(path, OMITTED, "exactly one of secret and configMap must be set")]
    if source.secret is not None:
        return _source_object(source.secret, f"{path}.secret")
    assert source.config_map is not None
    return _source_object(source.config_map, f"{path}.configMap")


def _source_object(source: FileSourceObject, path: str) -> list[FieldError]:
    found = [invalid(f"{path}.name", source.name, text) for text in kube_names.dns1123_subdomain(source.name)]
    found += _permissions(source.default_permissions, f"{path}.defaultPermissions")
    for index, item in enumerate(source.items):
        at = f"{path}.items[{index}]"
        found += (
            _absolute(item.path, f"{at}.path")
            if item.path
            else [required(f"{at}.path", "the path of the file on the host")]
        )
        found += _permissions(item.permissions, f"{at}.permissions")
        if item.hash and not _is_sha256(item.hash):
            found.append(invalid(f"{at}.hash", item.hash, "must be base64 of the content's sha256"))
    return found


def _permissions(text: str, path: str) -> list[FieldError]:
    return [] if not text or _is_octal(text) else [invalid(path, text, "must be three or four octal digits, as in 600")]


def _absolute(text: str, path: str) -> list[FieldError]:
    if text.startswith("/") and ".." not in text.split("/") and "\0" not in text:
        return []
    return [invalid(path, text, "must be an absolute path without ..")]


def _is_sha256(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == _SHA256_BYTES
    except (binascii.Error, ValueError):
        return False


def _registries(registries: Registries, path: str) -> list[FieldError]:
    found = []
    for name, mirror in registries.mirrors.items():
        found += [
            invalid(f"{path}.mirrors[{name}].endpoint[{index}]", url, "must be a URL, as in https://registry.example")
            for index, url in enumerate(mirror.endpoint)
            if not _is_url(url)
        ]
    found += _rewrites(registries, f"{path}.mirrors")
    for name, config in registries.configs.items():
        at = f"{path}.configs[{name}]"
        secrets = (("authConfigSecretName", config.auth_config_secret_name), ("tlsSecretName", config.tls_secret_name))
        found += [
            invalid(f"{at}.{field}", secret, text)
            for field, secret in secrets
            if secret
            for text in kube_names.dns1123_subdomain(secret)
        ]
        if config.ca_bundle and not _is_base64_pem(config.ca_bundle):
            found.append(invalid(f"{at}.caBundle", OMITTED, "must be base64 of certificates in PEM"))
    return found


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


def _rewrites(registries: Registries, path: str) -> list[FieldError]:
    """Check patterns as containerd compiles them: in Go's syntax. Each takes up to 0.5 ms, so there is a limit. Unicode
    classes would take longer, and names of images are ASCII."""
    count = sum(len(mirror.rewrite) for mirror in registries.mirrors.values())
    if count > _MOST_REWRITES:
        return [too_many(path, count, _MOST_REWRITES)]
    found = []
    for name, mirror in registries.mirrors.items():
        for pattern in mirror.rewrite:
            at = f"{path}[{name}].rewrite"
            if len(pattern) > _LONGEST_REWRITE:
                found.append(too_long(at, _LONGEST_REWRITE))
                continue
            if _has_unicode_class(pattern):
                found.append(
                    invalid(at, pattern, r"must not have Unicode classes (\p), since names of images are ASCII")
                )
                continue
            try:
                compile_pattern(pattern, small=True)
            except BadPattern as error:
                found.append(invalid(at, pattern, str(error)))
    return found


def _is_base64_pem(text: str) -> bool:
    try:
        return base64.b64decode("".join(text.split()), validate=True).lstrip().startswith(_PEM.encode())
    except (binascii.Error, ValueError):
        return False


def _etcd(etcd: Etcd, path: str) -> list[FieldError]:
    found = []
    schedule = etcd.snapshot_schedule_cron
    if schedule and (problem := cron.complaint(schedule)):
        found.append(invalid(f"{path}.snapshotScheduleCron", schedule, problem))
    return found + (_s3(etcd.s3, f"{path}.s3") if etcd.s3 is not None else [])


def _s3(s3: S3, path: str) -> list[FieldError]:
    found = []
    wanted = (s3.bucket, s3.endpoint, s3.folder, s3.cloud_credential_name, s3.region)
    if any(wanted) and not s3.cloud_credential_name and not s3.bucket:
        found.append(required(f"{path}.bucket", "snapshots need a bucket, here or as the credential's defaultBucket"))
    authority = s3.endpoint_ca
    if authority and not (authority.endswith(".crt") or authority.startswith(_PEM) or _is_base64_pem(authority)):
        found.append(invalid(f"{path}.endpointCA", OMITTED, "must be a path that ends in .crt, PEM, or base64 of PEM"))
    return found


def _directories(directories: DataDirectories, path: str) -> list[FieldError]:
    given = (
        ("systemAgent", directories.system_agent),
        ("provisioning", directories.provisioning),
        ("k8sDistro", directories.k8s_distro),
    )
    found = [complaint for name, place in given if place for complaint in _absolute(place, f"{path}.{name}")]
    places = [(name, place.rstrip("/")) for name, place in given if place]
    for name, place in places:
        if shared := [other for other, there in places if other != name and f"{there}/".startswith(f"{place}/")]:
            why = f"must not hold {' or '.join(shared)}: each directory is cleaned separately"
            found.append(invalid(f"{path}.{name}", place, why))
    return found
