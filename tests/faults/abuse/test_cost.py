"""Requests made to cost: any user and any node may send them, and each could once stop the only event loop for seconds.

Each is refused in little processor time, and `/readyz` answers while they are sent.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.faults.abuse.victim import Victim
from tests.lab import Reply
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.up import eventually

CHEAP = 1.0  # second of processor time, together with reading and decoding 3 MB from the wire; it took six
TOKENS = "/apis/management.cattle.io/v3/tokens"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SELECTORS: list[dict[str, Any]] = [
    {"labelSelector": {"rawSelector": "a=b," * 725_000 + "a"}},
    {"fieldSelector": {"rawSelector": "a=b," * 725_000 + "a"}},
    {"labelSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["_"]}] * 55_000}},
    {"labelSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["_"] * 9_000}]}},
]
USER = ("rider", ("remuda:users", "system:authenticated"))
NODE = ("system:serviceaccount:default:node-1", ("system:serviceaccounts", "system:authenticated"))


class Manager(Victim):
    """`remuda up`: it has Tokens, and their admission."""

    command = "up"


@pytest.fixture(scope="module")
def manager() -> Iterator[Manager]:
    running = Manager()
    eventually(lambda: running.http("GET", TOKENS).code == 200, running.log.read_text)
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/remuda:users"
    eventually(lambda: running.http("GET", role).code == 200, running.log.read_text)
    yield running
    complaints = running.log.read_text()
    running.stop()
    assert "Traceback" not in complaints, complaints


@contextmanager
def stays_ready(server: Victim) -> Iterator[None]:
    """Fail if `/readyz` does not answer on another connection, again and again, for as long as this lasts."""
    asked, over, answers = threading.Event(), threading.Event(), []

    def ask() -> None:
        connection = server.connect()
        while True:
            is_last = over.is_set()
            connection.request("GET", "/readyz")
            answers.append(connection.getresponse().read())
            asked.set()
            if is_last:
                break
        connection.close()

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        assert asked.wait(LIMIT_SECONDS)
        yield
    finally:
        over.set()
        asking.join()
    assert len(answers) >= 2
    assert set(answers) == {b"ok"}


def sent_by(server: Victim, sender: tuple[str, tuple[str, ...]], path: str, body: Any) -> Reply:
    user, groups = sender
    with server.needs_at_most(CHEAP):
        reply = server.http("POST", path, body, as_user=user, as_groups=groups)
    with stays_ready(server):
        again = server.http("POST", path, body, as_user=user, as_groups=groups)
    assert again.code == reply.code
    return reply


@pytest.mark.parametrize("sender", [USER, NODE])
@pytest.mark.parametrize("selector", SELECTORS)
def test_review_with_a_huge_selector_is_refused(
    victim: Victim, sender: tuple[str, tuple[str, ...]], selector: dict[str, Any]
) -> None:
    attributes = {"verb": "get", "resource": "pods", **selector}
    reply = sent_by(victim, sender, REVIEWS, {"spec": {"resourceAttributes": attributes}})
    assert reply.code in (413, 422), reply
    assert (
        "Too long" in reply.body["message"] or "Too many" in reply.body["message"] or "maximum" in reply.body["message"]
    )


@pytest.mark.parametrize("count", [101, 9_000, 100_000])
def test_token_with_too_many_clusters_is_refused(manager: Manager, count: int) -> None:
    reply = sent_by(manager, USER, TOKENS, token(count))
    assert reply.code == (413 if count > 10_000 else 422), reply
    assert "Too many" in reply.body["message"] or "maximum" in reply.body["message"]
    manager.is_well()


def test_token_created_by_node_is_forbidden(manager: Manager) -> None:
    reply = sent_by(manager, NODE, TOKENS, token(100_000))
    assert reply.code == 403, reply
    manager.is_well()


def token(count: int) -> dict[str, Any]:
    return {
        "apiVersion": "management.cattle.io/v3",
        "kind": "Token",
        "metadata": {"generateName": "abuse-"},
        "userId": "rider",
        "hash": "sha256:" + "0" * 64,
        "clusterNames": [f"c-{n}" for n in range(count)],
    }


@pytest.mark.parametrize(
    "body",
    [
        b'{"spec":{"containers":[' + b"{}," * 900_000 + b"{}]}}",
        b"[" + b"[]," * 900_000 + b"[]]",
        b'{"metadata":{"ownerReferences":[' + b"{}," * 900_000 + b"{}]}}",
        b'{"spec":{' + b'"a":1,' * 480_000 + b'"a":1}}',
    ],
)
def test_body_with_a_million_values_is_refused(victim: Victim, body: bytes) -> None:
    reply = sent_by(victim, USER, REVIEWS, body)
    assert (reply.code, reply.body["reason"]) == (413, "RequestEntityTooLarge")
