"""Evictions against budgets in every state. Nobody keeps the budgets here: the cases write their status themselves."""

from __future__ import annotations

from typing import Any

from tests.interop.semantics.trial import Trial, case

MERGE = {"Content-Type": "application/merge-patch+json"}


class _Place:
    """A namespace with pods and budgets, all labelled alike."""

    def __init__(self, t: Trial) -> None:
        self.t = t
        namespace = t.namespace()
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"

    def pod(self, name: str = "p", *, ready: bool = True, phase: str = "Running", held: bool = False) -> None:
        metadata: dict[str, Any] = {"name": name, "labels": {"app": "web"}}
        if held:
            metadata["finalizers"] = ["lab.dev/keep"]
        spec = {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}
        self.t.quietly("POST", self.pods, {"metadata": metadata, "spec": spec})
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        status = {"status": {"phase": phase, "conditions": conditions}}
        self.t.quietly("PATCH", f"{self.pods}/{name}/status", status, headers=MERGE)

    def budget(self, allowed: int, name: str = "b", spec: Any = None, **status: Any) -> None:
        selector = {"matchLabels": {"app": "web"}}
        body = {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": selector, **(spec or {})}}
        self.t.quietly("POST", self.budgets, body)
        counted = {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
        counted |= {"observedGeneration": 1, **status}
        self.t.quietly("PATCH", f"{self.budgets}/{name}/status", {"status": counted}, headers=MERGE)

    def evict(self, name: str = "p", note: str = "", query: Any = None, **more: Any) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **more}
        self.t.post(f"{self.pods}/{name}/eviction", body, note=note, query=query)


@case("evictions")
def a_disruption_is_taken(t: Trial) -> None:
    place = _Place(t)
    place.pod()
    place.pod("q")
    place.budget(2)
    place.evict()
    t.get(f"{place.budgets}/b")
    place.evict("q", note="the last one")
    t.get(f"{place.budgets}/b")


@case("evictions")
def the_pod_says_why(t: Trial) -> None:
    place = _Place(t)
    place.pod(held=True)
    place.evict()
    t.get(f"{place.pods}/p")
    place.evict(note="again")


@case("evictions")
def budgets_that_refuse(t: Trial) -> None:
    place = _Place(t)
    place.pod()
    place.budget(0)
    place.evict(note="nothing left")
    place.evict(note="not even to try", query={"dryRun": "All"})


@case("evictions")
def budgets_nobody_has_counted(t: Trial) -> None:
    place = _Place(t)
    place.pod()
    place.budget(1, observedGeneration=0)
    place.evict()


@case("evictions")
def two_budgets(t: Trial) -> None:
    place = _Place(t)
    place.pod()
    place.budget(1, "a")
    place.budget(1, "b")
    place.evict()


@case("evictions")
def pods_that_are_not_ready(t: Trial) -> None:
    place = _Place(t)
    place.pod("first", ready=False)
    place.pod("second", ready=False)
    place.budget(0, currentHealthy=2, desiredHealthy=1)
    place.evict("first", note="enough others are")
    counted = {"status": {"currentHealthy": 0, "desiredHealthy": 1}}
    t.quietly("PATCH", f"{place.budgets}/b/status", counted, headers=MERGE)
    place.evict("second", note="the application is down")


@case("evictions")
def always_allowed(t: Trial) -> None:
    place = _Place(t)
    place.pod(ready=False)
    place.budget(0, spec={"unhealthyPodEvictionPolicy": "AlwaysAllow"}, currentHealthy=0)
    place.evict()


@case("evictions")
def dry_runs_take_nothing(t: Trial) -> None:
    place = _Place(t)
    place.pod()
    place.budget(1)
    place.evict(query={"dryRun": "All"})
    place.evict(deleteOptions={"dryRun": ["All"]})
    t.get(f"{place.budgets}/b")


@case("evictions")
def preconditions(t: Trial) -> None:
    place = _Place(t)
    place.pod()
    place.evict(deleteOptions={"preconditions": {"uid": "another"}})
    place.evict(deleteOptions={"preconditions": {"resourceVersion": "1"}})


@case("evictions")
def names_and_kinds(t: Trial) -> None:
    place = _Place(t)
    place.pod()
    place.evict(metadata={})
    place.evict(metadata={"name": "other"})
    t.post(f"{place.pods}/p/eviction", {"metadata": {"name": "p"}}, note="of the kind of the path")
