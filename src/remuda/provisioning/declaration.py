"""A cluster asked for in a few words, as the objects that declare it: a `<Driver>Config` per pool, then the Cluster.
Pure.

Servers are members of etcd and the control plane; without workers they run Pods, too.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.kube.names import dns1123_label
from remuda.providers.machine.options import PASSWORD
from remuda.providers.shared.types.machine import config_kind
from remuda.provisioning.types import CLUSTER

Json = dict[str, Any]

SERVERS, WORKERS = "servers", "workers"
NAMESPACE = "fleet-default"  # where clusters are, if nobody says

# Health of a pool of workers. A Node may be not ready for the time that a reboot takes. A server may take long to
# install a distribution. If many machines fail at once, the cause is not in the machines.
SELF_HEAL = {"unhealthyNodeTimeout": "5m", "nodeStartupTimeout": "20m", "maxUnhealthy": "40%"}


_TYPES: Mapping[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
}


class BadRequest(ValueError):
    """Error with a message for users."""


class ClusterDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    namespace: str = NAMESPACE
    driver: str
    version: str
    servers: int = 1
    workers: int = 1
    options: Mapping[str, Any] = {}  # of the driver
    pool_options: Mapping[str, Mapping[str, Any]] = {}  # of the driver, of one pool only
    credential: str = ""
    labels: Mapping[str, str] = {}
    config: Mapping[str, Any] = {}  # of the distribution, for all nodes
    self_heal: bool = False  # replace workers that fail


def check_name(name: str) -> str:
    """Raises BadRequest."""
    if dns1123_label(name):
        raise BadRequest(
            f"{name!r} is not a valid cluster name: use at most 63 lower-case letters, digits and '-', with no '-' at "
            "either end"
        )
    return name


def declare(wanted: ClusterDeclaration) -> list[Json]:
    """Return the objects in the order of their creation. Raises BadRequest."""
    check_name(wanted.name)
    if wanted.servers < 1:
        raise BadRequest("a cluster needs at least 1 server")
    pools = [_pool(wanted, SERVERS, wanted.servers)]
    if wanted.workers:
        pools.append(_pool(wanted, WORKERS, wanted.workers))
    spec: Json = {"kubernetesVersion": wanted.version}
    if wanted.credential:
        spec["cloudCredentialSecretName"] = wanted.credential
    config: Json = {"machinePools": pools}
    if wanted.config:
        config["machineGlobalConfig"] = dict(wanted.config)
    spec["rkeConfig"] = config
    metadata: Json = {"name": wanted.name, "namespace": wanted.namespace}
    if wanted.labels:
        metadata["labels"] = dict(wanted.labels)
    cluster = {"apiVersion": CLUSTER.api_version, "kind": CLUSTER.name, "metadata": metadata, "spec": spec}
    return [*(_config(wanted, pool["name"]) for pool in pools), cluster]


def _pool(wanted: ClusterDeclaration, name: str, quantity: int) -> Json:
    roles = {"etcdRole": True, "controlPlaneRole": True} if name == SERVERS else {"workerRole": True}
    if not wanted.workers:
        roles["workerRole"] = True
    reference = {"kind": config_kind(wanted.driver).name, "name": f"{wanted.name}-{name}"}
    health = SELF_HEAL if wanted.self_heal and name == WORKERS else {}
    return {"name": name, "quantity": quantity, **roles, **health, "machineConfigRef": reference}


def _config(wanted: ClusterDeclaration, pool: str) -> Json:
    kind = config_kind(wanted.driver)
    metadata = {"name": f"{wanted.name}-{pool}", "namespace": wanted.namespace}
    options = {**wanted.options, **wanted.pool_options.get(pool, {})}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **options}


def read_options(
    driver: str, properties: Mapping[str, Any], given: Sequence[tuple[str, str]], required: Sequence[str] = ()
) -> Json:
    """Options of a driver, from words; `properties` are their schemas. Raises BadRequest."""
    help = f"`remuda drivers describe {driver}` lists them"
    found: Json = {}
    for name, text in given:
        schema = properties.get(name)
        if schema is None:
            near = difflib.get_close_matches(name, properties, 1)
            raise BadRequest(
                f"driver {driver} has no option {name}{f'; did you mean {near[0]}?' if near else ''}: {help}"
            )
        if schema.get("format") == PASSWORD:
            raise BadRequest(
                f"option {name} is a secret and must not be in a manifest: put it into a Secret, and name the Secret "
                "with --credential"
            )
        found[name] = _value(name, schema, text)
    if absent := [name for name in required if name not in found]:
        raise BadRequest(f"driver {driver} needs --option {'=… --option '.join(absent)}=…: {help}")
    return found


def _value(name: str, schema: Mapping[str, Any], text: str) -> Any:
    kind = schema.get("type", "string")
    if kind == "array":
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind in _TYPES:
        import yaml

        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            value = None
        wanted = _TYPES[kind]
        if not isinstance(value, wanted) or (kind != "boolean" and isinstance(value, bool)):
            raise BadRequest(f"the option {name} is {'an' if kind[0] in 'io' else 'a'} {kind}, and {text!r} is none")
        return value
    if (choices := schema.get("enum")) and text not in choices:
        raise BadRequest(f"the option {name} is one of {', '.join(map(str, choices))}, not {text!r}")
    return text
