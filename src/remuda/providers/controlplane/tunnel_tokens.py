"""The token by which a node opens its tunnel: `<cluster id>.<machine>.<mac>`.

The mac is over the cluster's id, the Machine's name and the Machine's uid, with a key that only the manager has (in the
cluster's state Secret). So nothing is kept per token, the same node always has the same one, nobody can make one for
another node or another cluster out of his own, and a token dies with its Machine.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import NamedTuple

_MOST = 512  # characters of a token; more is nobody's


class Shown(NamedTuple):
    """A token as somebody has shown it: what it claims, and what is to prove it."""

    cluster: str
    machine: str
    mac: str


def token(key: bytes, cluster: str, machine: str, uid: str) -> str:
    return f"{cluster}.{machine}.{_mac(key, cluster, machine, uid)}"


def parse(text: str) -> Shown | None:
    """None: it is not of this form. Names of Machines may have dots; ids and macs have none."""
    if len(text) > _MOST or not text.isascii():
        return None
    cluster, _, rest = text.partition(".")
    machine, _, mac = rest.rpartition(".")
    return Shown(cluster, machine, mac) if cluster and machine and mac else None


def proves(shown: Shown, key: bytes, uid: str) -> bool:
    """Return whether the token belongs to the Machine with this uid, in constant time; without a key always False."""
    expected = _mac(key, shown.cluster, shown.machine, uid)
    return hmac.compare_digest(expected, shown.mac) and bool(key)


def _mac(key: bytes, cluster: str, machine: str, uid: str) -> str:
    digest = hmac.digest(key, f"{cluster}/{machine}/{uid}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
