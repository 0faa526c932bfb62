"""The one cache of the providers' Secrets: those of machines, by the label that all of them carry.

What is large or opens doors is not kept: bootstrap scripts, tokens, private keys, machine stores and outputs of plans
are read from the server by whoever needs them, when they do. Of a plan, which is both, its sha256 is kept in its place
(`providers.controlplane.plans` has the bytes of those looked at last).
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import msgspec

from remuda.agent import rules
from remuda.kube.core import SECRET, Secret
from remuda.providers.shared import names
from remuda.providers.shared.jobs.state import EXTRACTED_CONFIG, PRIVATE_KEY
from remuda.runtime.caches import Caches, Informer

LABEL = names.CLUSTER_NAME  # on every Secret the providers write, with the name of the Cluster

APPLIED_PLAN = "appliedPlan"  # the plan that had succeeded when another one was given

_DROPPED = ("value", PRIVATE_KEY, EXTRACTED_CONFIG, "token", "command", rules.APPLIED_OUTPUT, rules.FAILED_OUTPUT)
_DIGESTED = (rules.PLAN, APPLIED_PLAN)
_MARKS = tuple(f'"{name}"'.encode() for name in (*_DROPPED, *_DIGESTED))


def informer(caches: Caches) -> Informer[Secret]:
    return caches.of(SECRET, label_selector=LABEL, transform=_without_doors)


def digest(plan: bytes) -> bytes:
    """Return the checksum that the cache holds in place of a plan."""
    return hashlib.sha256(plan).hexdigest().encode()


def _without_doors(value: bytes) -> bytes:
    if not any(mark in value for mark in _MARKS):
        return value
    secret: dict[str, Any] = msgspec.json.decode(value)
    secret["metadata"].pop("managedFields", None)
    data = secret.get("data") or {}
    for name in _DROPPED:
        data.pop(name, None)
    for name in _DIGESTED:
        if data.get(name):
            data[name] = base64.b64encode(digest(base64.b64decode(data[name]))).decode()
    return msgspec.json.encode(secret)
