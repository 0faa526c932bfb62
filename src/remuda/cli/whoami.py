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


async def token_user(client: HttpClient, said: str, cluster: str = "CLUSTER") -> str:
    """The user tokens are made for: the one that was named, else the caller, if it is a user of ours. Raises
    ClickException with what to do otherwise."""
    from remuda.access.tokens import USERS

    if said:
        return said
    who = await caller(client)
    if USERS in (who.groups or ()):
        return who.username
    raise click.ClickException(
        f"you are {who.username} here, who is not a user that has tokens. Say for whom it is with --user NAME; where "
        f"there is nobody yet:\n\n  remuda user create NAME\n  remuda grant NAME {cluster} cluster-owner"
    )
