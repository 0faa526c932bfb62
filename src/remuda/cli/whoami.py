"""Identity of a command's caller at the management plane, and the user that it creates tokens for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient


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
