"""Plan Secrets as wholes. Caches hold only the sha256 of a plan, because plans are large and full of keys; the bytes of
those looked at last are kept here, so many of them, and what is not here is read from the server.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from remuda.agent import rules
from remuda.kube.client import Client
from remuda.kube.core import SECRET, Secret
from remuda.kube.errors import NotFound
from remuda.providers.shared.secrets import APPLIED_PLAN, digest

MOST_BYTES = 64 << 20

_PLANS = (rules.PLAN, APPLIED_PLAN)


class Plans:
    def __init__(self, client: Client, most_bytes: int = MOST_BYTES) -> None:
        self._client = client
        self._most = most_bytes
        self._held = 0
        self._plans: OrderedDict[bytes, bytes] = OrderedDict()  # by digest, the one used longest ago first

    async def whole(self, cached: Secret) -> Secret | None:
        """The Secret with its plans in it; as the server has it, where it had to be asked. None: it is gone."""
        found: dict[str, bytes] = {}
        for key in _PLANS:
            if cached.data.get(key):
                plan = self._get(cached.data[key])
                if plan is None:
                    return await self._read(cached)
                found[key] = plan
        return msgspec.structs.replace(cached, data={**cached.data, **found})

    async def _read(self, cached: Secret) -> Secret | None:
        try:
            secret = SECRET.decode(await self._client.get(SECRET.target, *cached.key))
        except NotFound:
            return None
        if secret.metadata.uid != cached.metadata.uid:
            return None  # another one of the same name: its own event will tell
        for key in _PLANS:
            if secret.data.get(key):
                self.keep(secret.data[key])
        return secret

    def keep(self, plan: bytes) -> None:
        mark = digest(plan)
        if mark in self._plans:
            self._plans.move_to_end(mark)
            return
        self._plans[mark] = plan
        self._held += len(plan)
        while self._held > self._most and len(self._plans) > 1:
            _, dropped = self._plans.popitem(last=False)
            self._held -= len(dropped)

    def _get(self, mark: bytes) -> bytes | None:
        plan = self._plans.get(mark)
        if plan is not None:
            self._plans.move_to_end(mark)
        return plan
