"""Node passwords: the first host that uses a node name keeps it.

A node creates a password at its first join; the cluster stores a hash. Another host that requests certificates for the
same name is refused until the Node is deleted.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import secrets

import msgspec

from remuda.kube.client import Client, Target
from remuda.kube.errors import AlreadyExists, NotFound, ignore_not_found
from remuda.lab import LabError

SECRETS = Target("v1", "secrets")
NAMESPACE = "kube-system"
_COST = {"n": 2**14, "r": 8, "p": 1}


class WrongPassword(LabError):
    pass


async def check(client: Client, program: str, node: str, password: str) -> None:
    """Check a password; store the hash of the first one. Raise WrongPassword, StatusError."""
    name = name_of(program, node)
    stored = await _stored(client, name)
    if stored is None:
        made = await asyncio.to_thread(hashed, password)
        # If another request for this name was faster, its password counts.
        with contextlib.suppress(AlreadyExists):
            await client.create(SECRETS, NAMESPACE, _secret(name, made))
            return
        stored = await _stored(client, name)
    if stored is None or not await asyncio.to_thread(matches, password, stored):
        raise WrongPassword(
            "node password rejected, duplicate hostname or contents of '/etc/rancher/node/password' may not match "
            f"server node-passwd entry: {node} belongs to another host until its Node is deleted"
        )


async def forget(client: Client, program: str, node: str) -> None:
    with ignore_not_found():
        await client.delete(SECRETS, NAMESPACE, name_of(program, node))


def name_of(program: str, node: str) -> str:
    return f"{node}.node-password.{program}"


def hashed(password: str) -> str:
    salt = secrets.token_bytes(8)
    return f"$1:{salt.hex()}:{hashlib.scrypt(password.encode(), salt=salt, **_COST, dklen=32).hex()}"


def matches(password: str, stored: str) -> bool:
    try:
        version, salt, wanted = stored.split(":")
        found = hashlib.scrypt(password.encode(), salt=bytes.fromhex(salt), **_COST, dklen=32).hex()
    except ValueError:
        return False
    return version == "$1" and hmac.compare_digest(found, wanted)


async def _stored(client: Client, name: str) -> str | None:
    try:
        secret = msgspec.json.decode(await client.get(SECRETS, NAMESPACE, name))
    except NotFound:
        return None
    return base64.b64decode((secret.get("data") or {}).get("hash", "")).decode(errors="replace")


def _secret(name: str, made: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "type": "Opaque",
        "immutable": True,
        "data": {"hash": base64.b64encode(made.encode()).decode()},
    }
