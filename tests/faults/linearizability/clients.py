"""Clients of an API server that record each request and its answer, while the server is killed and started again.

A client sends nothing twice: a lost answer is recorded as unknown. Left out are only requests that certainly had no
effect: no connection could be made, the server refused them as too many, or they are reads without an answer.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tests.faults.linearizability.history import Answer, Operation, Shown, Verb
from tests.lab.ours import Ours

GROUP, PLURAL = "lab.example.com", "registers"
_PATH = f"/apis/{GROUP}/v1/namespaces/default/{PLURAL}"
_MERGE = "application/merge-patch+json"
_NOT_DONE = 429
_PAUSE_SECONDS = 0.02  # while the server is away

DEFINITION: Mapping[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "names": {"kind": "Register", "plural": PLURAL},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            part: {"type": "object", "properties": {"token": {"type": "string"}}}
                            for part in ("spec", "status")
                        },
                    }
                },
            }
        ],
    },
}


def install(server: Ours) -> None:
    """Define the kind; return when the server serves it."""
    made = server.http("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    assert made.code == 201, made
    while server.http("GET", _PATH).code != 200:
        time.sleep(0.01)


class Clients:
    """Some clients that work on the same few objects, each in a thread of its own."""

    def __init__(self, server: Ours, name: str, *, clients: int, keys: int, seed: int) -> None:
        self._server = server
        self._name = name
        self.keys = [f"{name}-{number}" for number in range(keys)]
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self.history: list[Operation] = []
        self.failed: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._work, args=(number, random.Random(f"{seed}/{number}")), daemon=True)
            for number in range(clients)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wait_for(self, count: int) -> None:
        """Return when there are so many answers more."""
        with self._changed:
            wanted = len(self.history) + count
            self._changed.wait_for(lambda: len(self.history) >= wanted or self.failed)
        self._raise()

    def stop(self) -> Sequence[Operation]:
        """End all clients, read each object a last time, and return the history."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._raise()
        reader = _Client(self._server, len(self._threads), self._name, random.Random(0))
        for key in self.keys:
            self.history += reader.get(key)
        self.history += reader.list_all("")
        reader.close()
        return self.history

    def _raise(self) -> None:
        if self.failed:
            raise self.failed[0]

    def _work(self, number: int, chance: random.Random) -> None:
        client = _Client(self._server, number, self._name, chance)
        try:
            while not self._stop.is_set():
                found = client.act(chance.choice(self.keys))
                if not found:
                    self._stop.wait(_PAUSE_SECONDS)
                with self._changed:
                    self.history += found
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self.failed.append(error)
                self._changed.notify_all()
        finally:
            client.close()


class _Client:
    def __init__(self, server: Ours, number: int, name: str, chance: random.Random) -> None:
        self._server = server
        self._number = number
        self._name = name
        self._chance = chance
        self._connection: http.client.HTTPSConnection | None = None
        self._seen: dict[str, int] = {}  # the revision of each object that this client has seen last
        self._tokens = 0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def act(self, key: str) -> list[Operation]:
        acts = [self.get, self.list_all, self._create, self._update, self._status, self._delete]
        (act,) = self._chance.choices(acts, weights=[4, 2, 3, 6, 3, 1])
        return act(key)

    def get(self, key: str) -> list[Operation]:
        return self._send("get", key, "GET", f"{_PATH}/{key}")

    def list_all(self, key: str) -> list[Operation]:
        return self._send("list", "", "GET", f"{_PATH}?labelSelector=round%3D{self._name}")

    def _create(self, key: str) -> list[Operation]:
        token = self._token()
        return self._send("create", key, "POST", _PATH, self._body(key, token), token=token)

    def _update(self, key: str) -> list[Operation]:
        if key not in self._seen:
            return self.get(key)
        token, revision = self._token(), self._seen[key]
        body = self._body(key, token)
        body["metadata"]["resourceVersion"] = str(revision)
        return self._send("update", key, "PUT", f"{_PATH}/{key}", body, token=token, expected=revision)

    def _status(self, key: str) -> list[Operation]:
        token = self._token()
        return self._send("status", key, "PATCH", f"{_PATH}/{key}/status", {"status": {"token": token}}, token=token)

    def _delete(self, key: str) -> list[Operation]:
        return self._send("delete", key, "DELETE", f"{_PATH}/{key}")

    def _token(self) -> str:
        self._tokens += 1
        return f"{self._number}.{self._tokens}"

    def _body(self, key: str, token: str) -> dict[str, Any]:
        return {
            "apiVersion": f"{GROUP}/v1",
            "kind": "Register",
            "metadata": {"name": key, "labels": {"round": self._name}},
            "spec": {"token": token},
        }

    def _send(
        self, verb: Verb, key: str, method: str, path: str, body: Any = None, *, token: str = "", expected: int = 0
    ) -> list[Operation]:
        if self._connection is None:
            try:
                self._connection = self._server.connect()
            except OSError:
                return []  # nothing was sent
        headers = {"Accept": "application/json", "Content-Type": _MERGE if method == "PATCH" else "application/json"}
        call = time.monotonic_ns()
        content: Any = None
        try:
            self._connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
            response = self._connection.getresponse()
            code, content = response.status, json.loads(response.read())
            answer = _answer(verb, code, content)
        except (OSError, http.client.HTTPException, ValueError):
            self.close()
            answer = "unknown"
        returned = time.monotonic_ns()
        if answer is None or (answer == "unknown" and verb in ("get", "list")):
            return []
        found = _shown(content) if answer == "ok" and verb not in ("list", "delete") else None
        items = {}
        revision = 0
        if verb == "list":
            items = {item["metadata"]["name"]: _shown(item) for item in content["items"]}
            revision = int(content["metadata"]["resourceVersion"])
            self._seen.update((name, item.revision) for name, item in items.items())
        if found is not None:
            self._seen[key] = found.revision
        elif answer == "absent":
            self._seen.pop(key, None)
        return [
            Operation(
                client=self._number,
                verb=verb,
                call=call,
                returned=returned,
                answer=answer,
                key=key,
                token=token,
                expected=expected,
                object=found,
                items=items,
                revision=revision,
            )
        ]


def _answer(verb: Verb, code: int, content: Any) -> Answer | None:
    """Return what the code says; None if it says that nothing was done."""
    if code in (200, 201):
        return "ok"
    if code == 404:
        return "absent"
    if code == 409:
        return "exists" if verb == "create" else "conflict"
    if code == _NOT_DONE:
        return None
    if code >= 500:
        return "unknown"
    raise AssertionError(f"{verb} was answered with {code}: {content}")


def _shown(obj: Any) -> Shown:
    return Shown(
        int(obj["metadata"]["resourceVersion"]),
        obj.get("spec", {}).get("token", ""),
        obj.get("status", {}).get("token", ""),
    )
