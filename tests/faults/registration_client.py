"""Registration of hosts with a manager that keeps dying: it is tried again until it is answered, as the install
script does.
"""

from __future__ import annotations

import asyncio
import ssl
import urllib.error
import urllib.request
from typing import Any

import msgspec

from remuda.kube.kubeconfig import ClientConfig

Json = dict[str, Any]

_AGAIN_SECONDS = 0.1
_ANSWER_SECONDS = 70.0


class RegistrationRefused(Exception):
    """With the manager's code and words."""


class RegistrationClient:
    """Registers hosts with the manager, whose certificate it verifies as hosts do."""

    def __init__(self, access: ClientConfig) -> None:
        assert isinstance(access.ca, bytes)
        self._url = f"{access.server.rstrip('/')}/v3/connect/agent"
        self._context = ssl.create_default_context(cadata=access.ca.decode())

    async def connect(self, token: str, id: str, **said: str) -> Json:
        """The connection info. Raises Refused when the manager does not want this host."""
        headers = {f"X-Cattle-{name.replace('_', '-')}": value for name, value in said.items()}
        headers |= {"Authorization": f"Bearer {token}", "X-Cattle-Id": id}
        while True:
            try:
                body = await asyncio.to_thread(self._ask, headers)
                info: Json = msgspec.json.decode(body)
                return info
            except urllib.error.HTTPError as error:
                if error.code < 500 and error.code != 429:
                    raise RegistrationRefused(f"{error.code}: {error.read()!r}") from None
            except (OSError, msgspec.DecodeError):
                pass
            await asyncio.sleep(_AGAIN_SECONDS)

    def _ask(self, headers: dict[str, str]) -> bytes:
        request = urllib.request.Request(self._url, headers=headers)
        with urllib.request.urlopen(request, context=self._context, timeout=_ANSWER_SECONDS) as reply:
            return bytes(reply.read())
