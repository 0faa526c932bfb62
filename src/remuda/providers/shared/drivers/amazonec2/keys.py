"""Key pair of a machine: created and deleted with it.

Its private half is only in the machine-state Secret, and is stored before an instance can depend on it. If the private
half of a pair is lost, a new pair replaces it under the same name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from remuda.providers.shared.drivers.amazonec2.errors import tolerated
from remuda.providers.shared.drivers.amazonec2.request import tags
from remuda.providers.shared.drivers.spi import Order, Record
from remuda.runtime.steps import step

IMPORT_KEY = step("amazonec2.import-key", "uploads the public key of a machine to AWS")
DELETE_KEY = step("amazonec2.delete-key", "deletes the key pair of a machine")

Ask = Callable[..., Awaitable[Any]]  # description of the request, the call, its arguments


class KeyPair:
    def __init__(self, order: Order, record: Record, client: Any, ask: Ask) -> None:
        self.name = f"remuda-{order.name}-{order.uid[:8]}"
        self._tags = tags(order.tags)
        self._record = record
        self._client = client
        self._ask = ask

    async def ensure(self) -> None:
        private = self._record.private_key
        if not private:
            await self.delete()  # of an attempt whose private half is lost
            private = await asyncio.to_thread(_new)
            await self._record.save_private_key(private)
        public = _public(private)

        def import_key() -> None:
            with tolerated("InvalidKeyPair.Duplicate"):
                self._client.import_key_pair(
                    KeyName=self.name,
                    PublicKeyMaterial=public.encode(),
                    TagSpecifications=[{"ResourceType": "key-pair", "Tags": self._tags}],
                )

        async with IMPORT_KEY:
            await self._ask("upload the key to AWS", import_key)

    async def delete(self) -> None:
        """Delete the key pair; AWS accepts the deletion of a missing one."""
        async with DELETE_KEY:
            await self._ask("delete the key pair", self._client.delete_key_pair, KeyName=self.name)


def _new() -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    return (
        ed25519.Ed25519PrivateKey.generate()
        .private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
        .decode()
    )


def _public(private: str) -> str:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_ssh_private_key(private.encode(), None)
    return key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
