"""Secrets and ConfigMaps that the configuration of a cluster names: credentials of registries, files, the credential of
snapshots, and config values that are in a Secret.

`references` lists them without reading any: each with the right that naming it needs, its field, and its use, because a
password for one registry, or for one S3 endpoint, is used anew for another. Admission checks the rights of a user who
adds one, and a change of any of them requeues the control plane.

`resolve` reads them. A missing or invalid object becomes a `Wait` that names it, and no plan changes until it is fixed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from remuda.capi.remote import SECRET
from remuda.kube.authorization import RequiredAccess
from remuda.kube.core import CONFIG_MAPS, SECRETS
from remuda.kube.objects import Key
from remuda.kube.selectors import SelectorError
from remuda.kube.wait import Wait
from remuda.providers import ProviderError
from remuda.providers.controlplane.planner.observation import ExtraFile, ExtraFiles, RegistryAccess, S3Access
from remuda.providers.controlplane.referenced_objects import CONFIG_MAP, ReferencedObject, ReferencedObjects
from remuda.providers.shared import author, credentials
from remuda.providers.shared.author import CredentialUse
from remuda.providers.shared.credentials import BadReference
from remuda.providers.shared.types.configuration import (
    S3,
    ClusterConfiguration,
    FileSourceObject,
    RegistryConfig,
    SelectorFiles,
)
from remuda.providers.shared.types.controlplane import RKEControlPlane

ELSEWHERE = "secret://"  # a config value that begins so names a Secret: secret://namespace:name
AUTHORIZED_FILES = "rke.cattle.io/object-authorized-for-clusters"  # annotation: names of clusters
AUTHORIZED_CONFIG = "v2prov-secret-authorized-for-cluster"
_CONFIG_KEY = "credential"

_AUTH_CONFIG, _BASIC, _DOCKER = (
    "rke.cattle.io/auth-config",
    "kubernetes.io/basic-auth",
    "kubernetes.io/dockerconfigjson",
)
_TLS = "kubernetes.io/tls"
_DOCKER_KEY = ".dockerconfigjson"


def references(spec: ClusterConfiguration, namespace: str, path: str) -> Iterator[CredentialUse]:
    for host, config in spec.registries.configs.items() if spec.registries is not None else ():
        at = f"{path}.registries.configs[{host}]"
        for name, field in (
            (config.auth_config_secret_name, "authConfigSecretName"),
            (config.tls_secret_name, "tlsSecretName"),
        ):
            if name:
                yield _get(SECRETS.plural, Key(namespace, name), f"{at}.{field}", host)
    for index, entry in enumerate(spec.machine_selector_files):
        for number, source in enumerate(entry.file_sources):
            at = f"{path}.machineSelectorFiles[{index}].fileSources[{number}]"
            if source.secret is not None and source.secret.name:
                yield _get(SECRETS.plural, Key(namespace, source.secret.name), f"{at}.secret.name")
            if source.config_map is not None and source.config_map.name:
                yield _get(CONFIG_MAPS.plural, Key(namespace, source.config_map.name), f"{at}.configMap.name")
    for field, value in config_values(spec, path):
        key = config_value_key(value)
        if key is not None:
            yield _get(SECRETS.plural, key, field)
    s3 = spec.etcd.s3 if spec.etcd is not None else None
    if s3 is not None:
        shown_to = [s3.endpoint, s3.endpoint_ca, s3.skip_ssl_verify]
        yield from author.use(s3.cloud_credential_name, namespace, f"{path}.etcd.s3.cloudCredentialName", shown_to)


def config_values(spec: ClusterConfiguration, path: str) -> Iterator[tuple[str, str]]:
    """Return the fields of the nodes' configuration whose value is in a Secret, with their values."""
    configs: list[tuple[str, Mapping[str, Any]]] = [(f"{path}.machineGlobalConfig", spec.machine_global_config)]
    configs += [
        (f"{path}.machineSelectorConfig[{index}].config", one.config)
        for index, one in enumerate(spec.machine_selector_config)
    ]
    for at, config in configs:
        for name, value in config.items():
            if isinstance(value, str) and value.startswith(ELSEWHERE):
                yield f"{at}.{name}", value


def config_value_key(value: str) -> Key | None:
    namespace, colon, name = value.removeprefix(ELSEWHERE).partition(":")
    return Key(namespace, name) if colon and namespace and name else None


def added(
    before: ClusterConfiguration | None, after: ClusterConfiguration, namespace: str, path: str
) -> list[RequiredAccess]:
    """Return the rights to what one configuration names and the other did not."""
    known = {one.identity for one in references(before, namespace, path)} if before is not None else set()
    return [one.access for one in references(after, namespace, path) if one.identity not in known]


def _get(resource: str, key: Key, field: str, used_for: str = "") -> CredentialUse:
    access = RequiredAccess(
        verb="get", group="", resource=resource, namespace=key.namespace, name=key.name, field=field
    )
    return CredentialUse(access, used_for)


# ---- resolution ---------------------------------------------------------------------------------------------------


class Resolved(msgspec.Struct, kw_only=True):
    registries: dict[str, RegistryAccess] = msgspec.field(default_factory=dict)
    files: list[ExtraFiles] = msgspec.field(default_factory=list)
    config_files: dict[str, str] = msgspec.field(default_factory=dict)
    s3: S3Access | None = None
    problems: list[Wait] = msgspec.field(default_factory=list)

    # The default would print passwords and keys into logs and tracebacks.
    def __repr__(self) -> str:
        return "<Resolved>"


class _Problem(ProviderError):
    def __init__(self, on: str, missing: str, then: str = "") -> None:
        super().__init__(missing)
        self.wait = Wait(reason="MissingInput", on=on, missing=missing, then=then)


async def resolve(named: ReferencedObjects, plane: RKEControlPlane) -> Resolved:
    found = Resolved()
    spec, namespace = plane.spec, plane.metadata.namespace
    if spec.registries is not None:
        for host, config in sorted(spec.registries.configs.items()):
            try:
                found.registries[host] = await _registry(named, namespace, host, config)
            except _Problem as problem:
                found.problems.append(problem.wait)
    for entry in spec.machine_selector_files:
        found.files.append(await _files(named, plane, entry, found.problems))
    for value in sorted({value for _, value in config_values(spec, "spec")}):
        try:
            found.config_files[value] = await _config_value(named, plane, value)
        except _Problem as problem:
            found.problems.append(problem.wait)
    if spec.etcd is not None and spec.etcd.s3 is not None:
        try:
            found.s3 = await _s3(named, namespace, spec.etcd.s3)
        except _Problem as problem:
            found.problems.append(problem.wait)
    return found


def names(plane: RKEControlPlane) -> list[str]:
    """Return the names of referenced Secrets and ConfigMaps, in the format of `place`."""
    return [
        place(CONFIG_MAP.name if one.resource == CONFIG_MAP.plural else SECRET.name, Key(one.namespace, one.name))
        for one, _ in references(plane.spec, plane.metadata.namespace, "spec")
    ]


def place(kind: str, key: Key) -> str:
    return f"{kind} {key}"


async def _required(named: ReferencedObjects, kind: str, key: Key, what: str) -> ReferencedObject:
    held = await (named.secret(key) if kind == "Secret" else named.config_map(key))
    if held is None:
        raise _Problem(f"{kind} {key}", f"does not exist, but {what} names it", "create it; plans change then")
    return held


# ---- registries --------------------------------------------------------------------------------------------------


async def _registry(named: ReferencedObjects, namespace: str, host: str, config: RegistryConfig) -> RegistryAccess:
    access = RegistryAccess(authority=_authority(host, config.ca_bundle))
    if config.auth_config_secret_name:
        what = f"registries.configs[{host}].authConfigSecretName"
        held = await _required(named, "Secret", Key(namespace, config.auth_config_secret_name), what)
        access = _with_login(access, held, host)
    if config.tls_secret_name:
        held = await _required(
            named, "Secret", Key(namespace, config.tls_secret_name), f"registries.configs[{host}].tlsSecretName"
        )
        if held.type != _TLS or not {"tls.crt", "tls.key"} <= held.data.keys():
            raise _Problem(str(held), f"is not of type {_TLS} with tls.crt and tls.key")
        access = msgspec.structs.replace(access, certificate=_text(held, "tls.crt"), key=_text(held, "tls.key"))
        if not access.authority and held.data.get("ca.crt"):
            access = msgspec.structs.replace(access, authority=_text(held, "ca.crt"))
    return access


def _authority(host: str, bundle: str) -> str:
    try:
        return base64.b64decode(bundle, validate=True).decode()
    except ValueError:
        raise _Problem("RKEControlPlane", f"registries.configs[{host}].caBundle is not base64 of PEM") from None


def _with_login(access: RegistryAccess, held: ReferencedObject, host: str) -> RegistryAccess:
    if held.type == _BASIC:
        return msgspec.structs.replace(access, username=_text(held, "username"), password=_text(held, "password"))
    if held.type == _AUTH_CONFIG:
        auth = held.data.get("auth", b"")
        return msgspec.structs.replace(
            access,
            username=_text(held, "username"),
            password=_text(held, "password"),
            auth=base64.b64encode(auth).decode() if auth else "",
            identity_token=_text(held, "identityToken"),
        )
    if held.type == _DOCKER:
        return _from_docker(access, held, host)
    raise _Problem(str(held), f"is of type {held.type or 'Opaque'}: it must be {_AUTH_CONFIG}, {_BASIC} or {_DOCKER}")


class _DockerLogin(msgspec.Struct):
    username: str = ""
    password: str = ""
    auth: str = ""
    identitytoken: str = ""


class _DockerConfig(msgspec.Struct):
    auths: dict[str, _DockerLogin] = {}


def _from_docker(access: RegistryAccess, held: ReferencedObject, host: str) -> RegistryAccess:
    try:
        logins = msgspec.json.decode(held.data.get(_DOCKER_KEY, b""), type=_DockerConfig).auths
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise _Problem(str(held), f"has no valid {_DOCKER_KEY}") from None
    by_host = {_bare(name): login for name, login in logins.items()}
    login = by_host.get(_bare(host))
    if login is None:
        known = ", ".join(sorted(by_host)) or "none"
        raise _Problem(str(held), f"has no login for {host}, only for {known}")
    return msgspec.structs.replace(
        access,
        username=login.username,
        password=login.password,
        auth=login.auth if not login.username else "",
        identity_token=login.identitytoken,
    )


def _bare(host: str) -> str:
    return host.removeprefix("https://").removeprefix("http://").split("/", 1)[0]


# ---- files -------------------------------------------------------------------------------------------------------


async def _files(
    named: ReferencedObjects, plane: RKEControlPlane, entry: SelectorFiles, problems: list[Wait]
) -> ExtraFiles:
    files: list[ExtraFile] = []
    selector = None
    try:
        selector = entry.machine_label_selector.compile() if entry.machine_label_selector is not None else None
    except SelectorError as error:
        problems.append(_Problem(f"RKEControlPlane {plane.key}", f"a selector of machineSelectorFiles: {error}").wait)
    for source in entry.file_sources:
        for kind, of in (("Secret", source.secret), ("ConfigMap", source.config_map)):
            if of is None:
                continue
            try:
                files += await _files_of(named, plane, kind, of)
            except _Problem as problem:
                problems.append(problem.wait)
    return ExtraFiles(selector, files)


async def _files_of(
    named: ReferencedObjects, plane: RKEControlPlane, kind: str, source: FileSourceObject
) -> list[ExtraFile]:
    held = await _required(named, kind, Key(plane.metadata.namespace, source.name), "machineSelectorFiles")
    _authorized(held, AUTHORIZED_FILES, plane)
    files = []
    for item in source.items:
        content = held.data.get(item.key)
        if content is None:
            raise _Problem(str(held), f"has no key {item.key}, but machineSelectorFiles names it")
        if item.hash and not hmac.compare_digest(
            item.hash, base64.b64encode(hashlib.sha256(content).digest()).decode()
        ):
            raise _Problem(str(held), f"key {item.key} does not match its hash in machineSelectorFiles")
        permissions = item.permissions or source.default_permissions
        files.append(ExtraFile(path=item.path, content=content, permissions=permissions, dynamic=item.dynamic))
    return files


def _authorized(held: ReferencedObject, annotation: str, plane: RKEControlPlane) -> None:
    # As in Rancher, the owner of an object decides which clusters may have its contents on their nodes.
    allowed = {name.strip() for name in held.annotations.get(annotation, "").split(",")}
    if not allowed & {plane.metadata.name, plane.spec.cluster_name}:
        raise _Problem(
            str(held),
            f"may not be used by this cluster: its annotation {annotation} does not name {plane.spec.cluster_name}",
        )


# ---- config values -----------------------------------------------------------------------------------------------


async def _config_value(named: ReferencedObjects, plane: RKEControlPlane, value: str) -> str:
    key = config_value_key(value)
    if key is None:
        raise _Problem(f"RKEControlPlane {plane.key}", f"{value} is not secret://namespace:name")
    # The manager reads with its own rights: Secrets of all namespaces would be open to every author of a spec.
    if key.namespace != plane.metadata.namespace:
        raise _Problem(
            f"RKEControlPlane {plane.key}",
            f"{value} is in another namespace: it must be in {plane.metadata.namespace}",
        )
    held = await _required(named, "Secret", key, "the configuration of nodes")
    _authorized(held, AUTHORIZED_CONFIG, plane)
    if _CONFIG_KEY not in held.data:
        raise _Problem(str(held), f"has no key {_CONFIG_KEY}")
    return _text(held, _CONFIG_KEY)


# ---- snapshots ---------------------------------------------------------------------------------------------------


async def _s3(named: ReferencedObjects, namespace: str, s3: S3) -> S3Access | None:
    if not any((s3.bucket, s3.endpoint, s3.folder, s3.cloud_credential_name, s3.region)):
        return None
    if not s3.cloud_credential_name:
        return S3Access(s3=s3)
    what = "etcd.s3.cloudCredentialName"
    try:
        key = credentials.place(s3.cloud_credential_name, namespace)
    except BadReference as error:
        raise _Problem("RKEControlPlane", str(error).replace("cloudCredentialSecretName", what)) from None
    held = await _required(named, "Secret", key, what)
    known = {name: value.decode("utf-8", "replace") for name, value in credentials.fields(held.data).items()}
    if not known.get("accessKey") or not known.get("secretKey"):
        raise _Problem(str(held), f"has no accessKey and secretKey, but {what} names it")
    return S3Access(s3=_with_defaults(s3, known), access_key=known["accessKey"], secret_key=known["secretKey"])


def _with_defaults(s3: S3, known: Mapping[str, str]) -> S3:
    return msgspec.structs.replace(
        s3,
        endpoint=s3.endpoint or known.get("defaultEndpoint", ""),
        endpoint_ca=s3.endpoint_ca or known.get("defaultEndpointCA", ""),
        skip_ssl_verify=s3.skip_ssl_verify or known.get("defaultSkipSSLVerify") == "true",
        bucket=s3.bucket or known.get("defaultBucket", ""),
        region=s3.region or known.get("defaultRegion", ""),
        folder=s3.folder or known.get("defaultFolder", ""),
    )


def _text(held: ReferencedObject, key: str) -> str:
    try:
        return held.data.get(key, b"").decode()
    except (UnicodeDecodeError, binascii.Error):
        raise _Problem(str(held), f"key {key} is not text") from None
