"""ResourceQuotas of the embedded engine: creates above `count/…` get 403, also concurrent ones, and status is true."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remuda.apiserver.kinds.core_quotas import warn_of_unenforced
from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.kube.admission import Review
from remuda.kube.client import Target
from remuda.kube.errors import StatusError
from tests.lab.limits import LIMIT_SECONDS

NAMESPACES = Target("v1", "namespaces")
QUOTAS = Target("v1", "resourcequotas")
SECRETS = Target("v1", "secrets")
ROLES = Target("rbac.authorization.k8s.io/v1", "roles")
NS = "team"
SECRET_COUNT, ROLE_COUNT = "count/secrets", "count/roles.rbac.authorization.k8s.io"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    running = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0))
    await running.client().create(NAMESPACES, "", {"metadata": {"name": NS}})
    yield running
    await running.stop()


async def limit(server: ApiServer, name: str = "few", **spec: Any) -> None:
    await server.client().create(QUOTAS, NS, {"metadata": {"name": name}, "spec": spec})


async def add(server: ApiServer, name: str, target: Target = SECRETS, **options: Any) -> None:
    await server.client().create(target, NS, {"metadata": {"name": name}}, **options)


async def refusal(server: ApiServer, name: str, target: Target = SECRETS, **options: Any) -> str:
    with pytest.raises(StatusError) as caught:
        await add(server, name, target, **options)
    assert (caught.value.code, caught.value.reason) == (403, "Forbidden")
    return caught.value.message


async def used(server: ApiServer, name: str = "few") -> dict[str, Any]:
    return dict(msgspec.json.decode(await server.client().get(QUOTAS, NS, name)).get("status") or {})


async def status_becomes(server: ApiServer, **wanted: Any) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while await used(server) != wanted:
            await asyncio.sleep(0.01)


async def test_create_above_quota_is_rejected_with_kubernetes_message(server: ApiServer) -> None:
    await limit(server, hard={ROLE_COUNT: "1"})
    await add(server, "first", ROLES)
    assert await refusal(server, "second", ROLES) == (
        'roles.rbac.authorization.k8s.io "second" is forbidden: exceeded quota: few, '
        f"requested: {ROLE_COUNT}=1, used: {ROLE_COUNT}=1, limited: {ROLE_COUNT}=1"
    )
    await server.client().delete(ROLES, NS, "first")
    await add(server, "second", ROLES)


async def test_concurrent_creates_do_not_exceed_the_quota(server: ApiServer) -> None:
    await limit(server, hard={SECRET_COUNT: "5"})
    results = await asyncio.gather(*(add(server, f"s{n}") for n in range(40)), return_exceptions=True)
    assert [result for result in results if result is None] == [None] * 5
    assert len((await server.client().list(SECRETS, NS)).items) == 5


async def test_quota_counts_pending_deletes_and_creates_in_order(server: ApiServer) -> None:
    await limit(server, hard={SECRET_COUNT: "1"})
    await add(server, "old")
    deleted = asyncio.ensure_future(server.client().delete(SECRETS, NS, "old"))
    results = await asyncio.gather(deleted, add(server, "a"), add(server, "b"), return_exceptions=True)
    assert sum(isinstance(result, StatusError) for result in results) == 1
    assert len((await server.client().list(SECRETS, NS)).items) == 1


async def test_quota_applies_to_apply_and_dry_run_but_not_updates(server: ApiServer) -> None:
    await add(server, "there")
    await limit(server, hard={"secrets": "1"})
    assert "exceeded quota: few, requested: secrets=1, used: secrets=1" in await refusal(server, "new", dry_run=True)
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "new"}}
    with pytest.raises(StatusError, match="exceeded quota"):
        await server.client().patch(SECRETS, NS, "new", body, kind="apply")
    await server.client().patch(SECRETS, NS, "there", {"metadata": {"labels": {"a": "b"}}})


async def test_already_exists_takes_precedence_over_quota_error(server: ApiServer) -> None:
    await add(server, "there")
    await limit(server, hard={SECRET_COUNT: "1"})
    with pytest.raises(StatusError) as caught:
        await add(server, "there")
    assert caught.value.reason == "AlreadyExists"


async def test_quota_status_follows_creates_deletes_and_spec_changes(server: ApiServer) -> None:
    await limit(server, hard={SECRET_COUNT: "5k", "requests.cpu": "2"})
    await status_becomes(server, hard={SECRET_COUNT: "5k"}, used={SECRET_COUNT: "0"})
    await add(server, "a")
    await add(server, "b")
    await status_becomes(server, hard={SECRET_COUNT: "5k"}, used={SECRET_COUNT: "2"})
    await server.client().delete(SECRETS, NS, "a")
    await server.client().patch(QUOTAS, NS, "few", {"spec": {"hard": {ROLE_COUNT: "1"}}})
    hard, now = {SECRET_COUNT: "5k", ROLE_COUNT: "1"}, {SECRET_COUNT: "1", ROLE_COUNT: "0"}
    await status_becomes(server, hard=hard, used=now)


async def test_quota_status_is_corrected_after_restart(tmp_path: Path) -> None:
    """The process ended between a write and the status that counts it."""
    before = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0, upkeep=False))
    await before.client().create(NAMESPACES, "", {"metadata": {"name": NS}})
    await limit(before, hard={SECRET_COUNT: "5"})
    await add(before, "a")
    await before.stop()
    after = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0))
    try:
        await status_becomes(after, hard={SECRET_COUNT: "5"}, used={SECRET_COUNT: "1"})
    finally:
        await after.stop()


async def test_unrelated_changes_cause_no_quota_status_write(server: ApiServer) -> None:
    await limit(server, hard={SECRET_COUNT: "5"})
    await add(server, "a")
    await status_becomes(server, hard={SECRET_COUNT: "5"}, used={SECRET_COUNT: "1"})
    before = msgspec.json.decode(await server.client().get(QUOTAS, NS, "few"))["metadata"]["resourceVersion"]
    await server.client().patch(SECRETS, NS, "a", {"metadata": {"labels": {"a": "b"}}})
    await server.client().create(SECRETS, "default", {"metadata": {"name": "elsewhere"}})
    await server.client().create(ROLES, NS, {"metadata": {"name": "not-counted"}})
    await asyncio.sleep(0.05)
    after = msgspec.json.decode(await server.client().get(QUOTAS, NS, "few"))["metadata"]["resourceVersion"]
    assert before == after


@pytest.mark.parametrize(
    ("amount", "complaint"), [("-1", "must be greater than or equal to 0"), ("1500m", "must be an integer")]
)
async def test_invalid_quota_count_is_rejected(server: ApiServer, amount: str, complaint: str) -> None:
    with pytest.raises(StatusError, match=complaint):
        await limit(server, hard={SECRET_COUNT: amount})


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"hard": {"requests.cpu": "1", SECRET_COUNT: "1"}}, "so requests.cpu has no effect"),
        ({"hard": {SECRET_COUNT: "1"}, "scopes": ["BestEffort"]}, "a quota with scopes has no effect"),
    ],
)
def test_quota_without_effect_produces_warning(spec: dict[str, Any], text: str) -> None:
    review = Review(
        operation="CREATE",
        group="",
        version="v1",
        kind="ResourceQuota",
        resource="resourcequotas",
        namespace=NS,
        name="few",
        user="admin",
        lookup=lambda *place: None,
        new={"metadata": {"name": "few"}, "spec": spec},
    )
    (warning,) = warn_of_unenforced(review).warnings
    assert text in warning
