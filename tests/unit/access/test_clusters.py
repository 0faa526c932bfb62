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


def test_ids_and_clusters_lead_to_each_other() -> None:
    found = clusters(plane("one", "c-m-one"), plane("two"))
    assert found.find("c-m-one") == Key("ranch", "one")
    assert found.id(Key("ranch", "one")) == "c-m-one"
    derived = found.id(Key("ranch", "two"))
    assert derived.startswith("c-")
    assert found.find(derived) == Key("ranch", "two")
    assert found.find("c-m-three") is None
    assert found.id(Key("ranch", "three")) == ""


def test_who_claims_the_id_of_another_later_does_not_get_it() -> None:
    found = clusters(plane("thief", "c-m-one", NEW), plane("one", "c-m-one", OLD))
    assert found.find("c-m-one") == Key("ranch", "one")
    assert found.id(Key("ranch", "thief")) == ""


def test_of_two_claims_that_are_equally_old_none_holds() -> None:
    found = clusters(plane("one", "c-m-one"), plane("two", "c-m-one"))
    assert found.find("c-m-one") is None
    assert found.id(Key("ranch", "one")) == ""


def test_an_id_that_could_be_a_path_is_none() -> None:
    found = clusters(plane("one", "../x"))
    assert found.find("../x") is None
    assert found.id(Key("ranch", "one")) == ""
