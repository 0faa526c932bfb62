"""Templates for `clusterctl generate cluster`: Cluster API objects with variables, one template per driver. Pure.

Servers and workers are MachineDeployments with different roles; the controllers create everything else. Every option of
a driver is a variable of the same name, such as AMAZONEC2_REGION, with the driver's default. Secret options are not
variables, because their values would appear in manifests: users put them into credential Secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.types import CLUSTER, MACHINE_DEPLOYMENT
from remuda.kube.definitions import schema
from remuda.providers.machine import options
from remuda.providers.machine.options import PASSWORD, kebab
from remuda.providers.shared import names
from remuda.providers.shared.drivers.spi import Driver
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP_TEMPLATE
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.providers.shared.types.machine import template_kind
from remuda.provisioning.machine_templates import known_options

Json = dict[str, Any]

SERVERS, WORKERS = "servers", "workers"

_ROLES = {SERVERS: (names.ETCD_ROLE, names.CONTROL_PLANE_ROLE), WORKERS: (names.WORKER_ROLE,)}
_COUNTS = {SERVERS: "CONTROL_PLANE_MACHINE_COUNT", WORKERS: "WORKER_MACHINE_COUNT"}
_OF_ONE_SERVER = frozenset({"address"})  # useless in a template for several servers
_NAME, _NAMESPACE, _VERSION = "${CLUSTER_NAME}", "${NAMESPACE}", "${KUBERNETES_VERSION}"
_PLAIN = re.compile(r"[A-Za-z0-9 ./:_-]*", re.ASCII)  # a default; clusterctl gives a meaning to some other characters


class Flavour(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of a driver that its template needs."""

    driver: str
    properties: Mapping[str, Any]  # structural schemas of its Config's fields, with defaults
    required: frozenset[str] = frozenset()
    credentials: bool = False  # whether a Secret may set some of them
    cluster: Mapping[str, Any] | None = None  # the same for infrastructure that the cluster shares, if any


def of_driver(driver: type[Driver[Any]]) -> Flavour:
    model = options.of_driver(driver)
    shared = driver.cluster
    return Flavour(
        driver=driver.name,
        properties=model.properties(defaults=True),
        required=frozenset(model.required),
        credentials=bool(model.credentials),
        cluster=None if shared is None else schema(shared.options_type).get("properties", {}),
    )


def of_definition(driver: str, config: Mapping[str, Any]) -> Flavour:
    """Return the flavour of a driver known only by the CRD of its Config, such as a driver of rancher-machine."""
    root = config["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return Flavour(
        driver=driver,
        properties=known_options(config),
        required=frozenset(root.get("required", ())),
        credentials=True,
    )


def cluster_template(flavour: Flavour) -> str:
    """Return the text of cluster-template-<driver>.yaml."""
    objects = [
        _object(CLUSTER.api_version, CLUSTER.name, "", _cluster_spec()),
        _object(RKE_CLUSTER.api_version, RKE_CLUSTER.name, "", _infrastructure(flavour)),
        _object(RKE_CONTROL_PLANE.api_version, RKE_CONTROL_PLANE.name, "", _control_plane()),
        _object(
            RKE_BOOTSTRAP_TEMPLATE.api_version,
            RKE_BOOTSTRAP_TEMPLATE.name,
            "",
            f'spec:\n  clusterName: "{_NAME}"\n  template: {{spec: {{clusterName: "{_NAME}"}}}}\n',
        ),
    ]
    for pool in _ROLES:
        kind = template_kind(flavour.driver)
        objects += [
            _object(kind.api_version, kind.name, pool, _machine_template(flavour)),
            _object(MACHINE_DEPLOYMENT.api_version, MACHINE_DEPLOYMENT.name, pool, _deployment(flavour.driver, pool)),
        ]
    return _head(flavour) + "---\n".join(objects)


def variable(driver: str, option: str, of: str = "") -> str:
    return "_".join(filter(None, (driver, of, kebab(option).replace("-", "_")))).upper()


def _head(flavour: Flavour) -> str:
    command = (
        f"clusterctl generate cluster NAME --infrastructure remuda --flavor {flavour.driver} --kubernetes-version V"
    )
    return (
        f"# A cluster on machines of the driver {flavour.driver}, generated with:\n"
        f"#   {command}\n"
        "# The version selects the distribution: v1.36.4+k3s1, v1.36.4+rke2r1, or v1.36.4+nano1 for the stand-in.\n"
        "# Only the RKEControlPlane has it: if you change it, all machines are upgraded in place.\n"
    )


def _object(api_version: str, kind: str, suffix: str, rest: str) -> str:
    name = f"{_NAME}-{suffix}" if suffix else _NAME
    return f'apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: "{name}", namespace: "{_NAMESPACE}"}}\n{rest}'


def _cluster_spec() -> str:
    refs = (("infrastructureRef", RKE_CLUSTER.name), ("controlPlaneRef", RKE_CONTROL_PLANE.name))
    return "spec:\n" + "".join(f"  {field}: {_reference(names.GROUP, kind)}\n" for field, kind in refs)


def _reference(group: str, kind: str, suffix: str = "") -> str:
    return f'{{apiGroup: {group}, kind: {kind}, name: "{_NAME}{suffix}"}}'


def _infrastructure(flavour: Flavour) -> str:
    if flavour.cluster is None:
        return "spec: {}\n"
    wanted = {
        name: _value(variable(flavour.driver, name, "cluster"), found, required=False)
        for name, found in flavour.cluster.items()
    }
    return f"spec:\n  infrastructure:\n    driver: {flavour.driver}\n{_fields('options', wanted, 4)}"


def _control_plane() -> str:
    return f'spec:\n  clusterName: "{_NAME}"\n  kubernetesVersion: "{_VERSION}"\n'


def _machine_template(flavour: Flavour) -> str:
    wanted = {
        name: _value(variable(flavour.driver, name), found, required=name in flavour.required)
        for name, found in flavour.properties.items()
        if name not in _OF_ONE_SERVER and _is_variable(found)
    }
    if flavour.credentials:
        credential = _value(variable(flavour.driver, "credential"), {}, required=False)
        wanted["common"] = f"{{cloudCredentialSecretName: {credential}}}"
    return f'spec:\n  clusterName: "{_NAME}"\n  template:\n{_fields("spec", wanted, 4)}'


def _fields(name: str, wanted: Mapping[str, str], indent: int) -> str:
    space = " " * indent
    if not wanted:
        return f"{space}{name}: {{}}\n"
    return f"{space}{name}:\n" + "".join(f"{space}  {key}: {value}\n" for key, value in wanted.items())


def _is_variable(found: Mapping[str, Any]) -> bool:
    """Return whether a field becomes a variable. A default that a template cannot express is left to the driver."""
    default = found.get("default")
    defaults = default if isinstance(default, list | tuple) else (default,)
    plain = all(_PLAIN.fullmatch(_text(one)) for one in defaults)
    return plain and found.get("format") != PASSWORD and found.get("type") != "object"


def _value(name: str, found: Mapping[str, Any], *, required: bool) -> str:
    """Return the value of one field: YAML, once its variable is replaced. To every driver, an unset value and the empty
    value mean the same, but a variable without a default is required. An optional field without a default therefore
    gets the empty value in YAML as default."""
    if required:
        return f"${{{name}}}"
    default, kind = found.get("default"), found.get("type", "string")
    if kind == "array":
        return f"${{{name}:=[{', '.join(_text(one) for one in default or ())}]}}"
    if kind in ("integer", "number", "boolean"):
        return f"${{{name}:={_text(default or (False if kind == 'boolean' else 0))}}}"
    return f'"${{{name}:={_text(default)}}}"' if default else f'${{{name}:=""}}'


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _deployment(driver: str, pool: str) -> str:
    labels = {
        capi_names.CLUSTER_NAME: _NAME,
        capi_names.DEPLOYMENT_NAME: f"{_NAME}-{pool}",
    }
    roles = {**dict.fromkeys(_ROLES[pool], "true"), **({capi_names.CONTROL_PLANE: "true"} if pool == SERVERS else {})}
    return (
        "spec:\n"
        f'  clusterName: "{_NAME}"\n'
        f"  replicas: ${{{_COUNTS[pool]}}}\n"
        "  selector:\n"
        f"{_strings('matchLabels', labels, 4)}"
        "  template:\n"
        "    metadata:\n"
        f"{_strings('labels', {**labels, **roles}, 6)}"
        "    spec:\n"
        f'      clusterName: "{_NAME}"\n'
        "      bootstrap:\n"
        f"        configRef: {_reference(names.GROUP, RKE_BOOTSTRAP_TEMPLATE.name)}\n"
        f"      infrastructureRef: {_reference(names.MACHINE_GROUP, template_kind(driver).name, f'-{pool}')}\n"
    )


def _strings(name: str, values: Mapping[str, str], indent: int) -> str:
    return _fields(name, {key: f'"{value}"' for key, value in values.items()}, indent)
