"""How much of anything one client may take, and how long: the bounds that keep a hostile or broken client harmless."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    connections: int = 20_000
    crowd: int = 1_000  # so many connections are many
    head_bytes: int = 64 * 1024
    header_count: int = 256
    pipelined: int = 128  # requests one client may send ahead within one read
    discarded_body: int = 256 * 1024  # what is read and dropped to keep a connection whose request was refused early

    # seconds
    handshake_timeout: float = 10
    head_timeout: float = 30
    body_timeout: float = 60
    request_timeout: float = 60
    idle_timeout: float = 90
    crowded_idle_timeout: float = 10  # where there are many connections: each that nobody uses takes tens of kilobytes
    write_timeout: float = 60  # a client that takes nothing for so long is dropped
    linger: float = 2

    # requests in work at once; watches do not count
    reads_in_flight: int = 2_000
    writes_in_flight: int = 1_000
