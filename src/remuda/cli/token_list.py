"""Tokens that the caller may see: all of them, or only the caller's own."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    from remuda.access.types import Token
    from remuda.kube.http import HttpClient

T = TypeVar("T")


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
