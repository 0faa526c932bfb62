"""The one cache of the providers' Secrets: those of machines, by the label that all of them carry.

What is large or opens doors is not kept: bootstrap scripts, tokens, private keys and machine stores are read from the
server by whoever needs them, when they do.
"""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.kube.core import SECRET, Secret
from remuda.providers import names
from remuda.providers.machine.state import EXTRACTED_CONFIG, PRIVATE_KEY
from remuda.runtime.caches import Caches, Informer

LABEL = names.CLUSTER_NAME  # on every Secret the providers write, with the name of the Cluster

_DROPPED = ("value", PRIVATE_KEY, EXTRACTED_CONFIG, "token", "command")


def informer(caches: Caches) -> Informer[Secret]:
    return caches.of(SECRET, label_selector=LABEL, transform=_without_doors)


def _without_doors(value: bytes) -> bytes:
    if not any(f'"{name}"'.encode() in value for name in _DROPPED):
        return value
    secret: dict[str, Any] = msgspec.json.decode(value)
    for name in _DROPPED:
        (secret.get("data") or {}).pop(name, None)
    return msgspec.json.encode(secret)
