"""The machine-state Secret: what is known of a server, written by Jobs, read by the controller and by people.

It outlives every Job of its machine and goes with the machine. The private key is here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from remuda.providers.shared.drivers.spi import Address

# Keys of the Secret's data.
STATE = "state"  # JSON of `State`
PRIVATE_KEY = "id_rsa"
KNOWN_HOSTS = "known_hosts"  # pinned host keys, as OpenSSH has them
EXTRACTED_CONFIG = "extractedConfig"  # the machine store of rancher-machine: a tar.gz it writes itself

Phase = Literal["", "creating", "created", "bootstrapped", "removed"]


class State(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    driver: str = ""
    phase: Phase = ""  # bootstrapped: the script has ended well, as far as the Job can know (SSH)
    id: str = ""
    name: str = ""
    provider_id: str = ""
    addresses: Sequence[Address] = ()
    failure_domain: str = ""
    ssh_user: str = ""
    ssh_port: int = 0
    by_user_data: bool = False  # the server runs the script itself: only its agent's first call tells
    record: Mapping[str, Any] = {}  # the driver's own


def read(data: Mapping[str, bytes]) -> State:
    """Return the state in a Secret's data; an empty one if there is none. Raises ValueError if it cannot be decoded."""
    text = data.get(STATE, b"")
    if not text:
        return State()
    try:
        return msgspec.json.decode(text, type=State)
    except msgspec.MsgspecError as error:
        raise ValueError(f"cannot decode the state of the machine: {error}") from None


def write(state: State) -> bytes:
    return msgspec.json.encode(state)
