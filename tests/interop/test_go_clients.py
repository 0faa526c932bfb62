"""Go programs as they are written: client-go and controller-runtime (interop/clients) against the real server and ours.

What is asserted is what is true of the real server; every test but those that need a server of their own runs on both.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.kinds import builtin_resources, protobuf
from remuda.apiserver.kinds.canonical_form import normalizer
from remuda.apiserver.kinds.idl import message
from tests.lab import Ours, Server, require_peer
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ours import OursWithWebhookRecords

CONFLICT, INVALID, NOT_FOUND = "Conflict", "Invalid", "NotFound"


class Clients:
    def __init__(self, program: Path, server: Server, group: str) -> None:
        self._command = [str(program), "--kubeconfig", str(server.kubeconfig), "--group", group]
        self._command += ["--seconds", f"{2 * LIMIT_SECONDS:.0f}"]

    def __call__(self, *words: str, **environment: str) -> Any:
        environment = {**os.environ, **environment}
        done = subprocess.run(
            [*self._command, *words], capture_output=True, text=True, timeout=3 * LIMIT_SECONDS, env=environment
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._command, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )


@pytest.fixture(scope="module")
def program() -> Path:
    (path,) = require_peer("clients")
    return path


@pytest.fixture(scope="module", params=["ours", "upstream"])
def clients(request: pytest.FixtureRequest, program: Path, run_tag: str) -> Clients:
    return Clients(program, request.getfixturevalue(request.param), f"{run_tag}.clients.example.com")


# ---- informers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("watch_list", "requests"),
    [("true", {"watchlist 200": 5}), ("false", {"list 200": 5, "watch 200": 5})],
    ids=["one watch", "list and watch"],
)
def test_informers_see_every_change_once_and_in_order(
    clients: Clients, watch_list: str, requests: dict[str, int]
) -> None:
    report = clients("informers", KUBE_FEATURE_WatchListClient=watch_list)
    told = {"initial": ["a", "b", "c"], "then": ["update b", "delete a", "add d", "update b", "add a"]}
    sorts = ["typed configmaps", "dynamic configmaps", "dynamic mounts", "metadata configmaps", "metadata mounts"]
    assert {sort: report[sort] for sort in sorts} == dict.fromkeys(sorts, told)
    assert report["requests"] == requests, "how they began, and that nobody had to begin again"
    assert report["after 410"] == {
        "initial": ["a", "b", "c", "d"],
        "then": ["add e", "delete (found missing) c"],
        "told it is gone": 1,
        "fresh starts": 2,
    }


class Follower:
    """Informers that live through whatever happens to their server."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.namespace: str = self._read()["namespace"]

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the informers are gone"
        return json.loads(line)

    def ask(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        report: dict[str, Any] = self._read()
        return report

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait(LIMIT_SECONDS) == 0
        self._process.stdout.close()


@pytest.fixture
def own_server() -> Iterator[Ours]:
    server = Ours()
    yield server
    server.stop()


@pytest.fixture
def follower(program: Path, own_server: Ours) -> Iterator[Follower]:
    process = Clients(program, own_server, "follow.example.com").start("--seconds", "3600", "follow")
    follower = Follower(process)
    yield follower
    follower.end()


class ObjectPairs:
    """ConfigMaps and Mounts of the same names, changed in step."""

    def __init__(self, server: Server, namespace: str) -> None:
        self.server = server
        place = f"namespaces/{namespace}"
        self._paths = {
            "configmaps": f"/api/v1/{place}/configmaps",
            "mounts": f"/apis/follow.example.com/v1/{place}/mounts",
        }

    def put(self, name: str, labels: dict[str, str]) -> None:
        for kind, path in self._paths.items():
            body: dict[str, Any] = {"metadata": {"name": name, "labels": labels}}
            if kind == "mounts":
                body |= {"apiVersion": "follow.example.com/v1", "kind": "Mount"}
            reply = self.server.http("POST", path, body)
            if reply.code == 409:
                patch = {"Content-Type": "application/merge-patch+json"}
                reply = self.server.http("PATCH", f"{path}/{name}", {"metadata": {"labels": labels}}, patch)
            assert reply.code in (200, 201), reply

    def remove(self, name: str) -> None:
        for path in self._paths.values():
            assert self.server.http("DELETE", f"{path}/{name}").code == 200

    def versions(self, kind: str) -> dict[str, str]:
        items = self.server.http("GET", self._paths[kind]).body["items"]
        named = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}
        named.pop("kube-root-ca.crt", None)
        return named


def _caught_up(follower: Follower, pairs: ObjectPairs) -> dict[str, Any]:
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        report = follower.ask()
        if all(seen["holds"] == pairs.versions(sort.split()[1]) for sort, seen in report.items()):
            return report
        assert time.monotonic() < deadline, report
        time.sleep(0.1)


def _end_politely(server: Ours) -> None:
    server.process.terminate()
    server.process.wait(LIMIT_SECONDS)
    server.kill()


@pytest.mark.parametrize("stop", [Ours.kill, _end_politely], ids=["killed", "stopped"])
def test_informers_survive_server_restart(own_server: Ours, follower: Follower, stop: Callable[[Ours], None]) -> None:
    pairs = ObjectPairs(own_server, follower.namespace)
    expected: Counter[str] = Counter()
    for turn in range(3):
        before, after = f"before-{turn}", f"after-{turn}"
        pairs.put(before, {})
        pairs.put("always", {"turn": str(turn)})
        _caught_up(follower, pairs)
        stop(own_server)
        own_server.start_again()
        pairs.put(after, {})
        pairs.remove(before)
        pairs.put("always", {"turn": f"{turn}-again"})
        expected.update([f"add {before}", f"delete {before}", f"add {after}", "update always"])
        expected.update(["add always"] if turn == 0 else ["update always"])
        report = _caught_up(follower, pairs)
        for sort, seen in report.items():
            told = Counter(re.sub(r" \(found missing\)", "", line) for line in seen["then"])
            assert told == expected, sort


# ---- election, events, views ---------------------------------------------------------------------------------------


def test_leader_election_passes_to_next_after_silence_or_release(clients: Clients) -> None:
    """Leases last two seconds here. A slow machine may keep a leader from renewing its own: then they begin anew."""
    wanted = {
        "leaders": ["first", "second", "third"],
        "holder": "third",
        "transitions": 2,
        "seconds": 2,
        "renewed after acquired": True,
        "silence is waited out": True,
        "stepping down is quicker": True,
    }
    for _ in range(5):
        if (report := clients("election")) == wanted:
            break
    assert report == wanted


def test_both_event_recorders_count_instead_of_repeating(clients: Clients) -> None:
    assert clients("events") == {
        "Shied": {"count": 3, "type": "Warning", "message": "at a gate", "by": "oldold"},
        "Groomed": {
            "count": 0,
            "type": "Normal",
            "message": "with a brush",
            "by": "example.com/recent",
            "series": True,
        },
        "in events.k8s.io": {
            "note": "with a brush",
            "action": "Grooming",
            "regarding": "about",
            "controller": "example.com/recent",
        },
    }


def test_metadata_client_and_tables_return_expected_results(clients: Clients) -> None:
    seen = {"kind": "", "name": "viewed", "patched": "1", "listed": 1, "list": ""}
    table = {"kind": "Table", "rows": 1, "name": "viewed"}
    assert clients("metadata") == {
        "configmaps": {**seen, "table": {**table, "columns": ["Name", "Data", "Age"]}},
        "mounts": {**seen, "table": {**table, "columns": ["Name", "Coat"]}},
    }


def test_discovery_formats_return_expected_kinds(clients: Clients) -> None:
    assert clients("discovery") == {
        "differences": [],
        "preferred": True,
        "openapi v2": "2.0",
        "minor": "36",
        "mounts": True,
        "mapper": {
            "Pod": "pods namespace",
            "Deployment": "deployments namespace",
            "ClusterRole": "clusterroles root",
            "Mount": "mounts namespace",
            "mo": "mounts",
        },
        "openapi": {"deployment": True, "custom": ["Mount"], "custom path": True},
        "gzip": {"encoding": "gzip", "vary": "Accept-Encoding", "same": True, "smaller": True},
    }


# ---- clients -------------------------------------------------------------------------------------------------------


def test_dynamic_client_operations_return_expected_results(clients: Clients) -> None:
    assert clients("dynamic") == {
        "create": {
            "defaulted": "plain",
            "generation": 1,
            "again": "AlreadyExists",
            "invalid": INVALID,
            "dry run": "",
            "dry run stored": NOT_FOUND,
            "strict": "BadRequest",
            "stale": CONFLICT,
            "generated": len("made-") + 5,
        },
        "apply": {
            "first": "bay",
            "same value": "",
            "conflict": CONFLICT,
            "forced": "grey",
            "conditions": [{"type": "Ready", "status": "True"}],
            "status leaves spec": "grey",
            "managers": ["status Apply status", "two Apply "],
            "nothing new": True,
        },
        "patch": {
            "merge": 3,
            "generation": 2,
            "json": None,
            "failed test": INVALID,
            "strategic": "UnsupportedMediaType",
            "status": "Ready",
            "status leaves spec": None,
            "generation after status": 3,
        },
        "finalizers": {
            "wrong uid": CONFLICT,
            "waits": True,
            "generation": 2,
            "a new finalizer": INVALID,
            "then": NOT_FOUND,
        },
        "collections": {
            "by label": 9,
            "by field": 12,
            "by name": 1,
            "by another field": "BadRequest",
            "pages": [10, 10, 5],
            "versions of pages": 1,
            "left": 16,
        },
    }


def test_typed_protobuf_clients_return_expected_results(clients: Clients) -> None:
    assert clients("typed") == {
        "secrets": {
            "value": "new",
            "text": "plain",
            "listed": 1,
            "stale": CONFLICT,
            "another type": INVALID,
            "gone": NOT_FOUND,
        },
        "config maps": {
            "conflict": CONFLICT,
            "extracted": {"a": "1"},
            "patched": {"c": "3"},
            "immutable": INVALID,
            "collected": NOT_FOUND,
        },
        "nodes": {"provider": True, "cpu": "2", "memory": "4Gi", "condition": "Ready", "taints": 1, "listed": 1},
        "pods": {
            "quality": "BestEffort",
            "pull": "IfNotPresent",
            "phase": "Running",
            "placed": 1,
            "protected": "TooManyRequests",
            "evicted": NOT_FOUND,
        },
        "tokens": {"seconds": 900, "authenticated": True, "user": True, "self": True, "secrets": "Forbidden"},
        "rbac": {"one": True, "two": False, "rules": True, "another role": INVALID},
        "scale": {"was": 2, "is": 0, "selector": "app=d", "stale": CONFLICT},
        "jobs": {"selector": True, "labels": 4, "parallelism": 1, "succeeded": 1, "time kept": True},
        "namespaces": {"phase": "Active", "finalizers": ["kubernetes"], "label": True, "too late": True},
        "definitions": {"enum": '"grey"', "default": '"plain"', "minimum": 0},
    }


@pytest.fixture(params=["ours", "upstream"])
def storing_all(request: pytest.FixtureRequest, program: Path, run_tag: str) -> Iterator[Clients]:
    """Of a server that stores every kind, webhook configurations too."""
    group = f"{run_tag}.wire.example.com"
    if request.param == "upstream":
        yield Clients(program, request.getfixturevalue("upstream"), group)
        return
    server = OursWithWebhookRecords()
    yield Clients(program, server, group)
    server.stop()


def test_stored_object_does_not_depend_on_encoding(storing_all: Clients) -> None:
    report = storing_all("wire")
    assert len(report) == 32
    assert {kind: seen for kind, seen in report.items() if seen != "same"} == {}


def test_random_objects_read_the_same_from_protobuf_and_json(program: Path) -> None:
    lines = subprocess.run([program, "--count", "20", "samples"], capture_output=True, check=True).stdout.splitlines()
    ours = {(resource.api_version, resource.kind): resource for resource in builtin_resources()}
    met = set()
    for line in lines:
        sample = json.loads(line)
        key = sample["apiVersion"], sample["kind"]
        if key not in ours:
            continue
        met.add(key)
        normalize = normalizer(message(ours[key].group, ours[key].version, ours[key].kind))
        read, expected = protobuf.decode(base64.b64decode(sample["protobuf"])), sample["json"]
        normalize(read)
        normalize(expected)
        assert _comparable(read) == _comparable(expected), key
    assert set(ours) - met == {("apiregistration.k8s.io/v1", "APIService")}, "client-go has no client for this one"


def _comparable(value: Any) -> Any:
    """Without what protobuf cannot say (a list that is empty, not absent), and without owners of fields: those are read
    entry by entry where ownership is decided."""
    if isinstance(value, dict):
        return {k: _comparable(v) for k, v in value.items() if k != "managedFields" and v != [] and v is not None}
    return [_comparable(item) for item in value] if isinstance(value, list) else value


# ---- controllers ---------------------------------------------------------------------------------------------------


def test_controller_runtime_manager_converges(clients: Clients) -> None:
    assert clients("--count", "200", "manager") == {
        "mounts": 150,
        "ready": 150,
        "owned": 150,
        "released": True,
        "errors": [],
        "led": True,
        "quiet": True,
    }
