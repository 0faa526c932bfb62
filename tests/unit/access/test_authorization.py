"""Who is at the door, and which clusters it opens to them."""

from __future__ import annotations

import msgspec
import pytest

from remuda.access.authorization import Others, identifier, reaching
from remuda.access.interfaces import Caller
from remuda.access.tokens import Tokens, mint
from remuda.access.types import TOKEN, USER
from remuda.kube.errors import StatusError, unauthorized
from remuda.kube.web import Request
from remuda.runtime.caches import Caches

ADMIN = Caller(name="admin", groups=("system:masters",))


class Peer:
    address = "192.0.2.1:1"

    def __init__(self, certificate: bytes | None = None) -> None:
        self.certificate = certificate

    async def read_body(self, request: Request, limit: int) -> bytes:
        return b""


def request(authorization: str = "", certificate: bytes | None = None) -> Request:
    headers = {b"authorization": authorization.encode()} if authorization else {}
    return Request(Peer(certificate), "GET", "/k8s/clusters/c/version", headers)


def tokens() -> tuple[Tokens, str]:
    """Of one user, rider, with one token."""
    caches = Caches(client=None)  # type: ignore[arg-type]
    found = Tokens(caches)
    made = mint("rider", name="t")
    user = {"metadata": {"name": "rider", "uid": "u", "resourceVersion": "1"}}
    token = made.obj | {"metadata": {"name": "t", "uid": "t", "resourceVersion": "2"}}
    caches.of(USER).replace([msgspec.json.encode(user)], 1)
    caches.of(TOKEN).replace([msgspec.json.encode(token)], 2)
    return found, made.bearer


def knowing(caller: Caller | None) -> Others:
    async def others(request: Request) -> Caller | None:
        return caller

    return others


async def nobody(request: Request) -> Caller | None:
    raise unauthorized()


async def test_own_token_is_identified_without_asking_the_engine() -> None:
    known, bearer = tokens()
    caller = await identifier(known, nobody)(request(f"Bearer {bearer}"))
    assert (caller.name, caller.token) == ("rider", "t")


async def test_client_certificate_takes_precedence_over_token() -> None:
    known, bearer = tokens()
    identify = identifier(known, knowing(ADMIN))
    assert await identify(request(f"Bearer {bearer}", b"der")) == ADMIN


@pytest.mark.parametrize("authorization", ["", "Bearer nobodys", "Basic dDp4", "Bearer"])
async def test_other_credentials_are_delegated_to_the_engine(authorization: str) -> None:
    known, _ = tokens()
    assert await identifier(known, knowing(ADMIN))(request(authorization)) == ADMIN
    with pytest.raises(StatusError) as caught:
        await identifier(known, nobody)(request(authorization))
    assert caught.value.code == 401


@pytest.mark.parametrize("stranger", [None, Caller(name="system:anonymous")])
async def test_anonymous_request_is_rejected_with_401(stranger: Caller | None) -> None:
    known, _ = tokens()
    with pytest.raises(StatusError, match="authentication required") as caught:
        await identifier(known, knowing(stranger))(request())
    assert caught.value.code == 401


async def test_service_account_is_denied_cluster_access() -> None:
    async def everything(caller: Caller, cluster: str) -> bool:
        return True

    account = Caller(name="system:serviceaccount:fleet-default:plan", groups=("system:masters",))
    with pytest.raises(StatusError, match="service accounts cannot reach clusters") as caught:
        await reaching(everything)(account, "c")
    assert caught.value.code == 403


async def test_cluster_access_requires_permission_and_token_for_the_cluster() -> None:
    asked: list[tuple[str, str]] = []

    async def permits(caller: Caller, cluster: str) -> bool:
        asked.append((caller.name, cluster))
        return caller.name == "rider"

    may_reach = reaching(permits)
    assert await may_reach(Caller(name="rider"), "c") == ""
    assert await may_reach(Caller(name="rider", clusters=("c",), token="t"), "c") == ""
    assert "may not get" in await may_reach(Caller(name="rustler", clusters=("c",), token="t"), "c")
    asked.clear()
    assert "is not for this cluster" in await may_reach(Caller(name="rider", clusters=("d",), token="t"), "c")
    assert "is not for this cluster" in await may_reach(Caller(name="rider", clusters=(), token="t"), "c")
    assert asked == []
