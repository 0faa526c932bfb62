"""The cluster of the tour as it stands at one moment, in a few words and as a tree of lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stage import Api, Json

CORE, SIMULATOR = "/apis/cluster.x-k8s.io/v1beta2", "/apis/simulator.remuda.dev/v1alpha1"
HERE = "/namespaces/default"
CLUSTER = f"{CORE}{HERE}/clusters/prairie"
CONTROL_PLANE = f"{SIMULATOR}{HERE}/simulatedcontrolplanes/prairie"
WORKERS = f"{CORE}{HERE}/machinedeployments/prairie-workers"


class Branch(NamedTuple):
    what: str
    how: str
    branches: list[Branch]


class Picture(NamedTuple):
    cluster: Json
    control_plane: Json
    workers: Json
    sets: list[Json]
    machines: list[Json]

    @classmethod
    def take(cls, api: Api) -> Picture:
        return cls(
            cluster=api.call("GET", CLUSTER),
            control_plane=api.call("GET", CONTROL_PLANE),
            workers=api.call("GET", WORKERS),
            sets=api.call("GET", f"{CORE}{HERE}/machinesets")["items"],
            machines=api.call("GET", f"{CORE}{HERE}/machines")["items"],
        )

    def of_version(self, version: str) -> list[Json]:
        return [one for one in self.machines if one["spec"]["version"] == version]

    def settled(self, version: str) -> bool:
        """As many Machines as wanted, all of this version and available, and everybody above them says so."""
        wanted = 0
        for part in (self.control_plane, self.workers):
            status, replicas = part.get("status", {}), part["spec"]["replicas"]
            counts = {status.get(name) for name in ("replicas", "availableReplicas", "upToDateReplicas")}
            if counts != {replicas} or not is_true(part, "Available"):
                return False
            wanted += replicas
        ready = [one for one in self.of_version(version) if is_true(one, "Available")]
        return is_true(self.cluster, "Available") and len(ready) == len(self.machines) == wanted

    def lines(self) -> Iterator[str]:
        sets = [self._branch(one) for one in _owned(self.sets, self.workers)]
        sets = [one for one in sets if one.branches]  # those of revisions that are over are empty
        workers = Branch(_name(self.workers), _counts(self.workers), sets)
        yield from _drawn(Branch(_name(self.cluster), _told(self.cluster), [self._branch(self.control_plane), workers]))

    def _branch(self, owner: Json) -> Branch:
        """With the Machines it made."""
        machines = [Branch(_name(one), _state(one), []) for one in _owned(self.machines, owner)]
        return Branch(_name(owner), _counts(owner), machines)


def is_true(obj: Json, type: str) -> bool:
    found = obj.get("status", {}).get("conditions", [])
    return any(one["type"] == type and one["status"] == "True" for one in found)


def _drawn(branch: Branch, first: str = "", rest: str = "") -> Iterator[str]:
    yield f"{first + branch.what:<46} {branch.how}".rstrip()
    for each in branch.branches:
        last = each is branch.branches[-1]
        yield from _drawn(each, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


def _name(obj: Json) -> str:
    return f"{obj['kind']} {obj['metadata']['name']}"


def _owned(objects: list[Json], owner: Json) -> list[Json]:
    uid = owner["metadata"]["uid"]
    return [one for one in objects if any(ref["uid"] == uid for ref in one["metadata"].get("ownerReferences", []))]


def _told(cluster: Json) -> str:
    return "Available" if is_true(cluster, "Available") else "not available yet"


def _counts(obj: Json) -> str:
    return f"{obj.get('status', {}).get('availableReplicas', 0)} of {obj['spec']['replicas']} available"


def _state(machine: Json) -> str:
    phase = machine.get("status", {}).get("phase", "Pending")
    return f"{machine['spec']['version']} {'Available' if is_true(machine, 'Available') else phase}"
