"""Secrets and ConfigMaps that the configuration of a cluster names: credentials of registries, files, the credential of
snapshots, and config values that are in a Secret. Pure.

Each is the right that naming it needs, with its field and with what it is used for: a password for one registry, or for
one S3 endpoint, is used anew for another. Admission checks the rights of whoever adds one; the controller of control
planes is woken by a change of any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remuda.kube.authorization import Access
from remuda.kube.core import CONFIG_MAPS, SECRETS
from remuda.kube.objects import Key
from remuda.providers.shared import author
from remuda.providers.shared.author import Use
from remuda.providers.shared.types.configuration import ClusterConfiguration

ELSEWHERE = "secret://"  # a config value that begins so names a Secret: secret://namespace:name


def references(spec: ClusterConfiguration, namespace: str, path: str) -> Iterator[Use]:
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
    """Fields of the nodes' configuration whose value is in a Secret, and what they say."""
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


def added(before: ClusterConfiguration | None, after: ClusterConfiguration, namespace: str, path: str) -> list[Access]:
    """Return the rights to what one configuration names and the other did not."""
    known = {one.identity for one in references(before, namespace, path)} if before is not None else set()
    return [one.access for one in references(after, namespace, path) if one.identity not in known]


def _get(resource: str, key: Key, field: str, used_for: str = "") -> Use:
    access = Access(verb="get", group="", resource=resource, namespace=key.namespace, name=key.name, field=field)
    return Use(access, used_for)
