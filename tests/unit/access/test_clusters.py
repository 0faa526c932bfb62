from __future__ import annotations

from typing import Any

import msgspec

from remuda.access.clusters import Clusters
from remuda.kube.objects import Key
from remuda.runtime.caches import Caches

OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def plane(name: str, id: str = "", created: str = OLD) -> bytes:
    value: dict[str, Any] = {
        "apiVersion": "rke.cattle.io/v1",
        "kind": "RKEControlPlane",
        "metadata": {"namespace": "ranch", "name": name, "resourceVersion": "1", "creationTimestamp": created},
        "spec": {"clusterName": name, "managementClusterName": id},
    }
    return msgspec.json.encode(value)


def clusters(*planes: bytes) -> Clusters:
    made = Clusters(Caches(msgspec.UNSET))  # type: ignore[arg-type]  # asked by nobody: it is never started
    made.planes.replace(planes, 1)
    return made


def test_cluster_id_lookup_works_in_both_directions() -> None:
    found = clusters(plane("one", "c-m-one"), plane("two"))
    assert found.find("c-m-one") == Key("ranch", "one")
    assert found.id(Key("ranch", "one")) == "c-m-one"
    derived = found.id(Key("ranch", "two"))
    assert derived.startswith("c-")
    assert found.find(derived) == Key("ranch", "two")
    assert found.find("c-m-three") is None
    assert found.id(Key("ranch", "three")) == ""


def test_duplicate_cluster_id_belongs_to_the_older_cluster() -> None:
    found = clusters(plane("thief", "c-m-one", NEW), plane("one", "c-m-one", OLD))
    assert found.find("c-m-one") == Key("ranch", "one")
    assert found.id(Key("ranch", "thief")) == ""


def test_duplicate_cluster_id_of_equal_age_resolves_to_no_cluster() -> None:
    found = clusters(plane("one", "c-m-one"), plane("two", "c-m-one"))
    assert found.find("c-m-one") is None
    assert found.id(Key("ranch", "one")) == ""


def test_cluster_id_with_path_characters_is_ignored() -> None:
    found = clusters(plane("one", "../x"))
    assert found.find("../x") is None
    assert found.id(Key("ranch", "one")) == ""
