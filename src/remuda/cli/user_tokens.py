"""Tokens of users, as commands handle them: the user that a new token is for, and the tokens that the caller may see.

An administrator sees all tokens. Other users see their own, through the self-service API.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

if TYPE_CHECKING:
    from remuda.access.types import Token
    from remuda.kube.http import HttpClient

T = TypeVar("T")


class UserInfo(msgspec.Struct):
    username: str = ""
    groups: tuple[str, ...] | None = None


class _Status(msgspec.Struct, rename="camel"):
    user_info: UserInfo = msgspec.field(default_factory=UserInfo)


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def caller(client: HttpClient) -> UserInfo:
    from remuda.kube.client import Target

    obj = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await client.create(Target("authentication.k8s.io/v1", "selfsubjectreviews"), "", obj)
    return msgspec.json.decode(answer, type=_Review).status.user_info


async def token_user(client: HttpClient, name: str, cluster: str = "CLUSTER") -> str:
    """Return the user to create a token for: the given one, else the caller if it is a Remuda user. Raises
    ClickException."""
    from remuda.access.tokens import USERS

    if name:
        return name
    who = await caller(client)
    if USERS in (who.groups or ()):
        return who.username
    raise click.ClickException(
        f"you are {who.username}, which is not a Remuda user and cannot have tokens. Choose a user with --user NAME. "
        f"To create one:\n\n  remuda user create NAME\n  remuda grant NAME {cluster} cluster-owner"
    )


async def known(client: HttpClient) -> list[Token]:
    from remuda.access.self_service_api import TOKENS
    from remuda.access.types import TOKEN
    from remuda.kube.client import list_all
    from remuda.kube.errors import Forbidden

    try:
        return [TOKEN.decode(item) for item in (await list_all(client, TOKEN.target)).items]
    except Forbidden as error:
        answer = await _instead(client.raw_get(TOKENS), error)
    return [TOKEN.decode(item) for item in msgspec.json.decode(answer, type=_Items).items]


async def is_there(client: HttpClient, name: str, *, own: bool) -> bool:
    """Return whether a token exists; True also if that is unknown. `own`: it is the caller's token."""
    from remuda.access.self_service_api import TOKENS
    from remuda.access.types import TOKEN
    from remuda.kube.errors import NotFound, StatusError

    try:
        if not own:
            await client.get(TOKEN.target, "", name)
            return True
        items = msgspec.json.decode(await client.raw_get(TOKENS), type=_Items).items
        return any(TOKEN.decode(item).metadata.name == name for item in items)
    except StatusError as error:
        return own or not isinstance(error, NotFound)


async def revoke(client: HttpClient, name: str) -> None:
    from urllib.parse import quote

    from remuda.access.self_service_api import TOKENS
    from remuda.access.types import TOKEN
    from remuda.kube.errors import Forbidden

    try:
        await client.delete(TOKEN.target, "", name)
    except Forbidden as error:
        await _instead(client.raw_delete(f"{TOKENS}/{quote(name, safe='')}"), error)


async def _instead(asked: Awaitable[T], error: Exception) -> T:
    """Await a request to the self-service API instead.

    Raises the first `error` where that API is missing or forbidden.
    """
    from remuda.kube.errors import Forbidden, StatusError

    try:
        return await asked
    except StatusError as other:
        if isinstance(other, Forbidden) or other.details.get("kind") is None:
            raise error from None
        raise


class _Items(msgspec.Struct):
    items: list[msgspec.Raw] = []
