"""Users and tokens on either engine: what a token is good for, and until when."""

from __future__ import annotations

import pytest
import pytest_asyncio

from remuda.access import users
from remuda.access.tokens import mint
from remuda.access.types import TOKEN, USER
from remuda.kube.errors import StatusError
from tests.controllers.access_harness import AccessHarness
from tests.controllers.engine import Engine, eventually
from tests.lab.proxied import AuditLines


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> AccessHarness:
    return await AccessHarness.create(engine)


async def known(harness: AccessHarness, bearer: str) -> None:
    """Until the caches have it."""

    async def is_known() -> bool:
        return not refused(harness, bearer)

    await eventually(is_known)


def refused(harness: AccessHarness, bearer: str) -> bool:
    try:
        found = harness.tokens.caller(bearer)
    except StatusError as error:
        said = error
    else:
        assert found is not None
        return False
    assert said.code == 401
    assert bearer.partition(":")[2] not in str(said)
    for_the_log = str(said.__cause__)
    assert for_the_log.startswith(f"token {bearer.partition(':')[0]}: ")
    assert bearer.partition(":")[2] not in for_the_log
    return True


async def no_longer(harness: AccessHarness, bearer: str) -> None:
    async def is_refused() -> bool:
        return refused(harness, bearer)

    await eventually(is_refused)


async def test_token_authenticates_its_user(harness: AccessHarness) -> None:
    async with harness.running():
        await harness.create_cluster()
        user_name = await harness.user()
        token = await harness.token(user_name)
        limited = await harness.token(user_name, clusters=(harness.id,))
        await known(harness, token.bearer)
        await known(harness, limited.bearer)
        caller, narrow = harness.tokens.caller(token.bearer), harness.tokens.caller(limited.bearer)
        user = await harness.engine.get(USER.target, "", user_name)
    assert caller is not None
    assert narrow is not None
    assert user is not None
    assert (caller.name, caller.uid, caller.clusters) == (user_name, user["metadata"]["uid"], None)
    assert caller.groups == ("remuda:users", "system:authenticated")
    assert caller.token == token.obj["metadata"]["name"]
    assert narrow.clusters == (harness.id,)


async def test_revoked_token_is_rejected(harness: AccessHarness) -> None:
    async with harness.running():
        token = await harness.token(await harness.user())
        await known(harness, token.bearer)
        await harness.engine.delete(TOKEN.target, "", token.obj["metadata"]["name"])
        await no_longer(harness, token.bearer)


async def test_expired_token_is_rejected_and_later_deleted(
    harness: AccessHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "EXPIRED_SECONDS", 1.0)
    async with harness.running():
        token = await harness.token(await harness.user(), seconds=3600.0)
        await known(harness, token.bearer)
        name = token.obj["metadata"]["name"]
        await harness.expires_soon(name)
        await no_longer(harness, token.bearer)
        await harness.engine.gone(TOKEN.target, "", name)


async def test_tokens_of_disabled_user_are_rejected_until_enabled(harness: AccessHarness) -> None:
    async with harness.running():
        user_name = await harness.user()
        token = await harness.token(user_name)
        await known(harness, token.bearer)
        await harness.engine.patch(USER.target, "", user_name, {"enabled": False})
        await no_longer(harness, token.bearer)
        await harness.engine.patch(USER.target, "", user_name, {"enabled": True})
        await known(harness, token.bearer)


async def test_recreated_user_inherits_no_tokens(harness: AccessHarness) -> None:
    async with harness.running():
        user_name = await harness.user()
        token = await harness.token(user_name)
        name = token.obj["metadata"]["name"]
        await harness.engine.until(TOKEN.target, "", name, lambda obj: obj["metadata"].get("ownerReferences"))
        await harness.engine.delete(USER.target, "", user_name)
        again = {"apiVersion": USER.api_version, "kind": "User", "metadata": {"name": user_name}}
        await harness.engine.create(USER.target, "", again)
        fresh = await harness.token(user_name)
        await known(harness, fresh.bearer)
        assert refused(harness, token.bearer)
        await harness.engine.gone(TOKEN.target, "", name)


async def test_forged_and_malformed_tokens_are_rejected(harness: AccessHarness) -> None:
    async with harness.running():
        token = await harness.token(await harness.user())
        await known(harness, token.bearer)
        name, _, secret = token.bearer.partition(":")
        other = mint("anybody").bearer.partition(":")[2]
        assert refused(harness, f"{name}:{other}")
        assert refused(harness, f"token-nobody:{secret}")
        for foreign in ("", name, f"{name}:", f"{name}:{secret}x", f"{name}:{token.obj['hash']}", "a.b.c", f"{name}:é"):
            assert harness.tokens.caller(foreign) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hash": "s3cr3t"}, "SHA-256"),
        ({"userId": "nobody-at-all"}, "user not found"),
        ({"expiresAt": "2001-01-01T00:00:00Z"}, "in the past"),
        ({"clusterNames": ["c-m-nowhere"]}, "no cluster has this id"),
    ],
)
async def test_invalid_token_object_is_rejected_with_reason(
    harness: AccessHarness, change: dict[str, object], words: str
) -> None:
    async with harness.running():
        obj = mint(await harness.user()).obj | change
        with AuditLines() as audit, pytest.raises(StatusError, match=words) as caught:
            await harness.engine.create(TOKEN.target, "", obj)
    if harness.engine.name == "embedded":  # others ask the schema first, which shows its author what he has sent
        assert "s3cr3t" not in str(caught.value)
        (line,) = audit.lines
        assert (line["code"], line["verb"]) == (422, "create")
        assert line["user"]
        assert words in line["why"]
        assert "s3cr3t" not in str(line)


async def test_token_user_and_hash_are_immutable(harness: AccessHarness) -> None:
    async with harness.running():
        token = await harness.token(await harness.user())
        other = await harness.user()
        name = token.obj["metadata"]["name"]
        for change in ({"userId": other}, {"hash": mint(other).obj["hash"]}):
            with pytest.raises(StatusError, match="is immutable"):
                await harness.engine.patch(TOKEN.target, "", name, change)


async def test_idle_token_is_not_written(harness: AccessHarness) -> None:
    async with harness.running() as manager:
        token = await harness.token(await harness.user(), seconds=3600.0)
        name = token.obj["metadata"]["name"]
        before = await harness.engine.until(TOKEN.target, "", name, lambda obj: obj["metadata"].get("ownerReferences"))
        for one in manager.caches.of(TOKEN).all():
            manager.controllers["token"].enqueue(one.key)
        await harness.settled()
        after = await harness.engine.get(TOKEN.target, "", name)
    assert after is not None
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
