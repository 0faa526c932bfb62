"""Hosts register: they show a token, and get a kubeconfig that opens their plan Secret and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from remuda.kube.client import Client
from remuda.providers.bootstrap.site import Site
from remuda.runtime.events import Events


class Refusal(Exception):
    """Why a host does not get what it asked for, in words for who reads its log. `retry_after` is in seconds; 0:
    another try does not help."""

    def __init__(self, code: int, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after


class ConnectionInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What an agent keeps in its connection-info file."""

    kube_config: str
    namespace: str
    secret_name: str

    def __repr__(self) -> str:
        return f"<connection to {self.namespace}/{self.secret_name}>"  # never the token


class Registration:
    def __init__(self, client: Client, events: Events, site: Site) -> None:
        self._client = client
        self._events = events
        self._site = site

    async def connect(self, token: str, headers: Mapping[str, str]) -> ConnectionInfo:
        """`headers` by lower-case names. Raises Refusal."""
        raise Refusal(503, "the manager is starting", 5.0)
