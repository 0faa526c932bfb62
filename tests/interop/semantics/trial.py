"""One run of one case on one server: every request it makes is written down, and what was written down is compared.

A case is a function of a `Trial`. It never asserts: it acts, and the transcript (code, body, warnings of each answer;
the events of each watch, in order) is its observation. Names a case makes carry the run's tag, so that cases do not
meet each other's objects and a server can be used again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tests.interop.semantics.normal import Normaliser
from tests.lab import Reply, Server
from tests.lab.limits import LIMIT_SECONDS

Json = dict[str, Any]


@dataclass(frozen=True)
class Case:
    area: str
    name: str
    run: Callable[[Trial], None]

    @property
    def id(self) -> str:
        return f"{self.area}/{self.name}"

    @property
    def short(self) -> str:
        """What the names of its objects begin with; the run's tag must still fit into a DNS label."""
        return f"{self.area}-{self.name}".replace("_", "-")[:50].strip("-")


CASES: dict[str, Case] = {}


def case(area: str) -> Callable[[Callable[[Trial], None]], Callable[[Trial], None]]:
    def register(function: Callable[[Trial], None]) -> Callable[[Trial], None]:
        made = Case(area, function.__name__, function)
        if any(made.short == other.short for other in CASES.values()):
            raise ValueError(f"another case has the objects of {made.id}")
        CASES[made.id] = made
        return function

    return register


SHARED: dict[str, tuple[Json | None, Json]] = {}


def shared(plural: str, schema: Json | None = None, **more: Any) -> str:
    """Declares a custom resource for the cases of a module; for the keywords see `Trial.define`."""
    SHARED[plural] = (schema, more)
    return plural


def kind_of(plural: str) -> str:
    return plural.removesuffix("s").capitalize()


class Lab:
    """A server during one test run; what cases share on it is made once."""

    def __init__(self, server: Server, tag: str) -> None:
        self.server = server
        self.tag = tag  # five letters and digits; every answer has them replaced
        self._paths: dict[str, str] = {}
        self._refused: dict[str, AssertionError] = {}

    def path_of(self, plural: str) -> str:
        """The path of a shared custom resource. All are made with the first: the real server makes the first create
        on a new definition wait two seconds, so they wait together."""
        if not self._paths:
            trial = Trial(self, Case("lab", "definitions", lambda _: None))
            for name, (schema, more) in SHARED.items():
                try:
                    self._paths[name] = trial.define(name, schema, wait=False, **more)
                except AssertionError as refused:
                    self._refused[name] = refused
            for path in self._paths.values():
                trial.until_served(path)
            if self.server.name != "ours":
                time.sleep(2.1)
        if plural in self._refused:
            raise self._refused[plural]
        return self._paths[plural]

    def observe(self, one: Case) -> list[Any]:
        """The transcript. Where the case could not go on, its last entry says why."""
        trial = Trial(self, one)
        try:
            one.run(trial)
        except Exception as error:
            trial.note({"stopped": f"{type(error).__name__}: {error}"})
        return trial.transcript


class Trial:
    def __init__(self, lab: Lab, one: Case) -> None:
        self.lab = lab
        self.server = lab.server
        self.tag = lab.tag
        self.transcript: list[Any] = []
        self._short = one.short
        self._normal = Normaliser(lab.tag, lab.server.url)

    # Names

    def name(self, start: str = "") -> str:
        """A name of this case on this run: the same on both servers once normalised."""
        return f"{start or self._short}-{self.tag}"

    def namespace(self, start: str = "") -> str:
        """A new namespace; not written down."""
        name = self.name(start)
        reply = self.server.http("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        if reply.code != 201:
            raise AssertionError(f"{self.server.name} made no namespace: {reply}")
        return name

    def configmaps(self) -> str:
        """The path of config maps in a new namespace."""
        return f"/api/v1/namespaces/{self.namespace()}/configmaps"

    # Requests that are written down

    def ask(self, method: str, path: str, body: Any = None, *, note: str = "", **more: Any) -> Reply:
        query = more.pop("query", None)
        target = f"{path}?{urlencode(query, doseq=True)}" if query else path
        reply = self.server.http(method, target, body, **more)
        self._record(reply, note)
        return reply

    def get(self, path: str, **more: Any) -> Reply:
        return self.ask("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> Reply:
        return self.ask("POST", path, body, **more)

    def put(self, path: str, body: Any = None, **more: Any) -> Reply:
        return self.ask("PUT", path, body, **more)

    def delete(self, path: str, body: Any = None, **more: Any) -> Reply:
        return self.ask("DELETE", path, body, **more)

    def patch(self, path: str, body: Any, kind: str = "merge", **more: Any) -> Reply:
        headers = {"Content-Type": PATCH_TYPES.get(kind, kind), **more.pop("headers", {})}
        return self.ask("PATCH", path, body, headers=headers, **more)

    def apply(self, path: str, body: Any, manager: str = "lab", **more: Any) -> Reply:
        query = {"fieldManager": manager, **more.pop("query", {})}
        return self.patch(path, body, "apply", query=query, **more)

    def note(self, what: Any) -> None:
        """Writes down something that is no answer."""
        self.transcript.append(self._normal.value(what))

    def _record(self, reply: Reply, note: str) -> None:
        entry: Json = {"code": reply.code, "body": self._normal.value(reply.body)}
        if note:
            entry["note"] = note
        if warnings := reply.headers.get_all("Warning"):
            entry["warnings"] = [self._normal.text(warning) for warning in warnings]
        self.transcript.append(entry)

    # Requests that are not

    def quietly(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Set-up: must succeed, is not compared."""
        query = more.pop("query", None)
        target = f"{path}?{urlencode(query, doseq=True)}" if query else path
        reply = self.server.http(method, target, body, **more)
        if reply.code >= 300:
            raise AssertionError(f"{self.server.name}: {method} {target}: {reply}")
        return reply.body

    def caught_up(self, path: str) -> None:
        """What a server may answer from its cache is asked for once the cache knows all that was written."""
        now = self.quietly("GET", path)["metadata"]["resourceVersion"]
        self.quietly("GET", path, query={"resourceVersion": now, "resourceVersionMatch": "NotOlderThan"})

    def until(self, what: Callable[[], bool], seconds: float = LIMIT_SECONDS) -> None:
        """Waits for something that happens in its own time; gives up with a note that the other server lacks."""
        deadline = time.monotonic() + seconds
        while not what():
            if time.monotonic() > deadline:
                self.transcript.append("this never happened")
                return
            time.sleep(0.03)

    def until_gone(self, path: str, seconds: float = LIMIT_SECONDS) -> None:
        self.until(lambda: self.server.http("GET", path).code == 404, seconds)

    def until_served(self, path: str) -> None:
        self.until(lambda: self.server.http("GET", path).code == 200)

    # Watches

    def watch(self, path: str, count: int, **query: Any) -> list[Json]:
        """Writes down the first `count` events, or those that came before the watch ended."""
        events: list[Json] = []
        target = f"{path}?{urlencode({'watch': 'true', **query}, doseq=True)}"
        for line in self.server.stream(target):
            events.append(json.loads(line))
            if len(events) >= count:
                break
        self.transcript.append({"events": [self._normal.event(event) for event in events]})
        return events

    # Custom resources

    def crd(self, plural: str) -> str:
        """The path of a custom resource that cases share; see `shared`."""
        return self.lab.path_of(plural)

    def custom(self, plural: str, name: str = "", **fields: Any) -> Json:
        """An object of such a resource, named after this case."""
        metadata = {"name": self.name(name), **fields.pop("metadata", {})}
        return {"apiVersion": self.api_version(), "kind": kind_of(plural), "metadata": metadata, **fields}

    def define(
        self,
        plural: str,
        schema: Json | None = None,
        *,
        namespaced: bool = False,
        status: bool = False,
        version: Json | None = None,
        spec: Json | None = None,
        group: str = "",
        wait: bool = True,
    ) -> str:
        """Makes a definition, waits until it is served, and returns the path of its objects."""
        body = definition(self.group(group), plural, schema, namespaced=namespaced, status=status)
        body["spec"]["versions"][0].update(version or {})
        body["spec"].update(spec or {})
        self.quietly("POST", CRDS, body)
        version_path = f"/apis/{self.group(group)}/{body['spec']['versions'][0]['name']}"
        path = f"{version_path}/{plural}"
        if wait:
            self.until_served(path)
            self.until_served(version_path)  # kube-apiserver builds discovery on its own, and may do so later
        return path

    def group(self, start: str = "") -> str:
        return f"{start or 'lab'}-{self.tag}.dev"

    def api_version(self, group: str = "") -> str:
        return f"{self.group(group)}/v1"


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


def definition(
    group: str, plural: str, schema: Json | None = None, *, namespaced: bool = False, status: bool = False
) -> Json:
    kind = kind_of(plural)
    version: Json = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    if status:
        version["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [version],
        },
    }
