"""Objects in the least form that is admitted, and what admission makes of them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from remuda.kube.admission import AdmissionFunction, Review
from remuda.kube.patches import apply_merge_patch

Json = dict[str, Any]


def reference(kind: str) -> Json:
    return {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": "one"}


def machine_spec(**more: Any) -> Json:
    return {
        "clusterName": "c1",
        "bootstrap": {"configRef": reference("FooConfigTemplate")},
        "infrastructureRef": reference("FooMachineTemplate"),
        **more,
    }


def an_object(spec: Json, **metadata: Any) -> Json:
    return {"metadata": {"name": "one", "namespace": "ns", **metadata}, "spec": deepcopy(spec)}


def review(new: Json | None, old: Json | None = None, *, subresource: str = "") -> Review:
    return Review(
        operation="CREATE" if old is None else "UPDATE" if new is not None else "DELETE",
        group="cluster.x-k8s.io",
        version="v1beta2",
        kind="Any",
        resource="any",
        namespace="ns",
        name="one",
        user="somebody",
        lookup=lambda *which: None,
        subresource=subresource,
        old=old,
        new=new,
    )


def admitted(admit: AdmissionFunction, new: Json, old: Json | None = None) -> Json:
    """The object as it is stored."""
    before = deepcopy(new)
    verdict = admit(review(new, old))
    assert [str(error) for error in verdict.errors] == []
    assert new == before, "what is reviewed must not be changed"
    return apply_merge_patch(new, verdict.patch) if verdict.patch is not None else new


def complaints(admit: AdmissionFunction, new: Json, old: Json | None = None) -> list[str]:
    return [str(error) for error in admit(review(new, old)).errors]
