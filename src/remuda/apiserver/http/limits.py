"""Limits on what one client may use, and for how long: they keep a hostile or broken client harmless."""

from __future__ import annotations

import msgspec


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    connections: int = 20_000
    crowd: int = 1_000  # number of connections from which `crowded_idle_timeout` applies
    head_bytes: int = 64 * 1024
    header_count: int = 256
    pipelined: int = 128  # pipelined requests of one client within one read
    discarded_body: int = 256 * 1024  # bytes that are read and dropped to keep a connection open after an early refusal

    # seconds
    handshake_timeout: float = 10
    head_timeout: float = 30
    body_timeout: float = 60
    request_timeout: float = 60
    idle_timeout: float = 90
    crowded_idle_timeout: float = 10  # with many connections: each idle one takes tens of kilobytes
    write_timeout: float = 60  # a client that reads nothing for this long is disconnected
    linger: float = 2

    # Requests of one user that are in progress, and bytes of their bodies (`flow_control`); watches do not count.
    user_requests: int = 200
    user_bytes: int = 32 * 1024 * 1024
    # Seats of each level. A body needs one seat per this many bytes: 32 bodies of 4 KiB cost about as much as the
    # costliest one, and no more than that runs in one iteration of the event loop.
    seats: int = 32
    seat_bytes: int = 4 * 1024
