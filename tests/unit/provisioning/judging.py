"""Clusters in the least form that is admitted, a world around them, and what admission makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from remuda.kube.admission import AdmissionFunction, AdmissionResult, Review
from remuda.provisioning.admission.cluster import admit

Json = dict[str, Any]
NAMESPACE = "fleet-default"


def pool(name: str = "all", **more: Any) -> Json:
    reference = {"kind": "SimConfig", "name": name}
    return {
        "name": name,
        "quantity": 1,
        "etcdRole": True,
        "controlPlaneRole": True,
        "workerRole": True,
        "machineConfigRef": reference,
        **more,
    }


def cluster(*pools: Json, name: str = "prairie", version: str = "v1.36.4+k3s1", **config: Any) -> Json:
    return {
        "apiVersion": "provisioning.cattle.io/v1",
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "kubernetesVersion": version,
            "rkeConfig": {"machinePools": [deepcopy(each) for each in pools] or [pool()], **deepcopy(config)},
        },
    }


class World:
    """What lookups see."""

    def __init__(self, *objects: tuple[str, Json]) -> None:
        self._objects = [*objects]

    def add(self, plural: str, obj: Json) -> None:
        self._objects.append((plural, obj))

    def lookup(self, api_version: str, plural: str, namespace: str, name: str) -> Json | None:
        found = self.select(api_version, plural, namespace, {})
        return next((obj for obj in found if obj["metadata"]["name"] == name), None)

    def select(self, api_version: str, plural: str, namespace: str, labels: Mapping[str, str]) -> list[Json]:
        return [
            deepcopy(obj)
            for kind, obj in self._objects
            if (kind, obj["apiVersion"]) == (plural, api_version)
            and obj["metadata"].get("namespace", "") == namespace
            and labels.items() <= obj["metadata"].get("labels", {}).items()
        ]


def review(new: Json, old: Json | None = None, world: World | None = None) -> Review:
    seen = world or World()
    return Review(
        operation="CREATE" if old is None else "UPDATE",
        group=new["apiVersion"].rpartition("/")[0],
        version=new["apiVersion"].rpartition("/")[2],
        kind=new["kind"],
        resource=f"{new['kind'].lower()}s",
        namespace=new["metadata"].get("namespace", ""),
        name=new["metadata"]["name"],
        user="somebody",
        lookup=seen.lookup,
        select=seen.select,
        old=old,
        new=new,
    )


def verdict(
    new: Json, old: Json | None = None, world: World | None = None, *, function: AdmissionFunction = admit
) -> AdmissionResult:
    before = deepcopy(new)
    found = function(review(new, old, world))
    assert new == before, "what is reviewed must not be changed"
    return found


def refused(new: Json, old: Json | None = None, world: World | None = None) -> list[str]:
    return [str(error) for error in verdict(new, old, world).errors]


def warned(new: Json, old: Json | None = None, world: World | None = None) -> list[str]:
    found = verdict(new, old, world)
    assert [str(error) for error in found.errors] == []
    return list(found.warnings)
