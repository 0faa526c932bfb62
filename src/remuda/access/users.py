"""Token controller: makes each User the owner of its tokens, and deletes expired tokens after a while.

Until then an expired token stays visible, so that its user can find out why it is no longer valid.
"""

from __future__ import annotations

from remuda.access.types import TOKEN, USER, User, belongs_to, owned_by
from remuda.kube import clock
from remuda.kube.objects import Key
from remuda.runtime.draft import Draft, save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Outcome, Requeue
from remuda.runtime.steps import step

NAME = "token"
ADOPT = step("token.adopt", "makes the User the owner of its token")
FORGET = step("token.forget", "deletes a token that expired long ago")

EXPIRED_SECONDS = 3600.0  # for so long an expired token can be seen
_BY_USER = "user"


class TokenController:
    def __init__(self, manager: Manager) -> None:
        self._client = manager.client
        self._tokens = manager.caches.of(TOKEN)
        self._tokens.index(_BY_USER, lambda token: (token.user_id,))
        self._users = manager.caches.of(USER)
        controller = manager.controller(NAME, TOKEN, self.reconcile)
        controller.watch(self._users, lambda user: self._tokens.keys(_BY_USER, user.metadata.name), facts=_uid)

    async def reconcile(self, key: Key) -> Outcome:
        value = self._tokens.raw(*key)
        if value is None:
            return DONE
        token = TOKEN.decode(value)
        if token.metadata.deleting:
            return DONE
        left = _seconds_left(token.expires_at)
        if left is not None and left <= 0:
            async with FORGET:
                # With its uid: a new token that got the same name in the meantime is not deleted.
                await self._client.delete(TOKEN.target, "", key.name, uid=token.metadata.uid)
            return DONE
        user = self._users.get("", token.user_id)
        if user is not None and belongs_to(token.metadata, user.metadata):
            draft = Draft(TOKEN.target, value)
            draft.set_owner(owned_by(user.metadata))
            await save(self._client, draft, ADOPT)
        return DONE if left is None else Requeue(left)


def _seconds_left(expires_at: str | None) -> float | None:
    """Return the seconds until the token is deleted; None: it is not deleted. A token whose time is unreadable is
    invalid already, and stays."""
    if expires_at is None:
        return None
    try:
        return clock.parse(expires_at) + EXPIRED_SECONDS - clock.time()
    except ValueError:
        return None


def _uid(user: User) -> object:
    return user.metadata.uid
