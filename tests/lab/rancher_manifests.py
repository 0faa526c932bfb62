"""Manifests as they are written for Rancher (`examples/rancher`), and the drivers they are for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from remuda.kube.client import Target
from remuda.providers.machine import definitions as machine_definitions
from remuda.providers.machine.options import Flag, FlagType, OptionModel, of_driver, of_flags
from remuda.providers.shared import drivers
from remuda.providers.shared.drivers import known_drivers

Json = dict[str, Any]
FOLDER = Path(__file__).parents[2] / "examples" / "rancher"

_STATED = re.compile(r"^# (Refused|Warned): (.+)$", re.MULTILINE)


class Manifest(msgspec.Struct, frozen=True):
    name: str
    objects: Sequence[Json]  # but for its NodeDriver
    refused: Sequence[str]  # sentences of which each must be said
    warned: Sequence[str]

    @property
    def cluster(self) -> Json:
        (found,) = (obj for obj in self.objects if obj["kind"] == "Cluster")
        return found


def read(path: Path) -> Manifest:
    text = path.read_text()
    stated = _STATED.findall(text)
    return Manifest(
        path.stem,
        [obj for obj in yaml.safe_load_all(text) if obj["kind"] != "NodeDriver"],
        [words for how, words in stated if how == "Refused"],
        [words for how, words in stated if how == "Warned"],
    )


MANIFESTS = [read(path) for path in sorted(FOLDER.glob("*.yaml"))]


def target(obj: Json) -> Target:
    return Target(obj["apiVersion"], f"{obj['kind'].lower()}s")


# ---- drivers of rancher-machine: what their programs report, as far as manifests here use it ----------------------

_FLAGS: Mapping[str, Mapping[FlagType, str]] = {
    "vmwarevsphere": {
        "string": "username password vcenter clone-from creation-type datacenter datastore folder pool hostsystem "
        "cloud-config ssh-user",
        "integer": "vcenter-port cpu-count memory-size disk-size",
        "strings": "network cfgparam tag vapp-property",
    },
    "digitalocean": {
        "string": "access-token image region size ssh-user tags userdata ssh-key-fingerprint",
        "integer": "ssh-port",
        "boolean": "ipv6 private-networking backups monitoring",
    },
    "harvester": {
        "string": "cluster-type cluster-id kubeconfig-content disk-info network-info ssh-user vm-namespace user-data",
        "integer": "cpu-count memory-size ssh-port",
    },
    "azure": {
        "string": "client-id client-secret subscription-id environment location size image resource-group vnet subnet "
        "storage-type ssh-user",
        "integer": "disk-size",
        "boolean": "managed-disks accelerated-networking static-public-ip",
        "strings": "open-port",
    },
    "linode": {
        "string": "token region instance-type image root-pass tags authorized-users",
        "integer": "swap-size ssh-port",
        "boolean": "create-private-ip",
    },
}


def models() -> list[OptionModel]:
    found = [of_driver(drivers.find("amazonec2"))]
    for driver, by_type in _FLAGS.items():
        flags = [Flag(name=f"{driver}-{name}", type=type) for type, names in by_type.items() for name in names.split()]
        facts = known_drivers.facts(driver, {})
        found.append(of_flags(driver, flags, credentials=facts.credentials, passwords=facts.secrets, files=facts.files))
    return found


def definitions() -> list[Json]:
    return [made for model in models() for made in machine_definitions.of_driver(model)]


def node_drivers() -> list[Json]:
    return [
        {
            "apiVersion": "management.cattle.io/v3",
            "kind": "NodeDriver",
            "metadata": {"name": model.driver},
            "spec": {"active": False},
        }
        for model in models()
    ]
