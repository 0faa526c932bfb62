"""Codec of remotedialer's messages, without I/O: each is one binary WebSocket message.

A message has three or four signed varints (number, stream, kind, and for data and connect a deadline that is no longer
used), and the rest is its payload. Decoding returns a `Message` or raises a `ProtocolError` that names the fault.
Messages of unknown kinds are valid: newer peers may send them.

Payloads are never copied: decoding returns a view, encoding returns a header to send before the payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple, Union

from remuda.tunnel import TunnelError

Buffer = Union[bytes, bytearray, memoryview]  # noqa: UP007  # Python 3.9

DATA, CONNECT, ERROR, ADD, REMOVE, PAUSE, RESUME, SYNC = range(1, 9)

# remotedialer reads 266 bytes of a connect message since version 0.5, and 100 bytes of an error. It cuts what is
# longer, so a longer address would lead to another target.
LONGEST_CONNECT = 266
LONGEST_ERROR = 100
END = "EOF"  # text of the error message that closes a stream in order

_DEADLINE = b"\xb0\xea\x01"  # 15,000 ms, the value that all implementations send
_LONGEST_VARINT = 10


class ProtocolError(TunnelError):
    """The other end broke the protocol; the text says how."""


class Message(NamedTuple):
    number: int
    stream: int  # 0 if it is not about a stream
    kind: int
    payload: Buffer


# Writing


def varint(value: int) -> bytes:
    """Encode a signed integer: zig-zag, then seven bits to a byte."""
    rest = (value << 1) ^ (value >> 63)
    if rest < 0x80:
        return bytes((rest,))
    found = bytearray()
    while rest >= 0x80:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def header(stream: int, kind: int) -> bytes:
    """Return a header without its first varint, which is the message's number."""
    return varint(stream) + varint(kind) + (_DEADLINE if kind in (DATA, CONNECT) else b"")


def encode(message: Message) -> list[Buffer]:
    """Return the buffers of a message, to be written in order; the payload is not copied."""
    head = varint(message.number) + header(message.stream, message.kind)
    return [head, message.payload] if len(message.payload) else [head]


def connect_text(network: str, address: str) -> bytes:
    """Return the payload of a connect message. Raises ValueError if no peer would understand it, or only in part."""
    if not network or "/" in network or not address:
        raise ValueError(f"{network!r} and {address!r} are not a network and an address")
    text = f"{network}/{address}".encode()
    if len(text) > LONGEST_CONNECT:
        raise ValueError(f"the address is longer than {LONGEST_CONNECT} bytes, the limit of the protocol: {address!r}")
    return text


def error_text(reason: str) -> bytes:
    """Return the payload of an error message, cut between characters at the length that peers accept."""
    text = reason.encode("utf-8", "replace")
    return text if len(text) <= LONGEST_ERROR else text[:LONGEST_ERROR].decode("utf-8", "ignore").encode()


def sync_list(streams: Iterable[int]) -> bytes:
    return b"".join(struct.pack("<q", stream) for stream in sorted(streams))


# Reading


def decode(data: Buffer) -> Message:
    """Decode a message; its payload is a view of `data`."""
    number, at = _read_varint(data, 0)
    stream, at = _read_varint(data, at)
    kind, at = _read_varint(data, at)
    if kind in (DATA, CONNECT):
        # Every known implementation sends this value, so most messages need no varint decoding here.
        if data[at : at + 3] == _DEADLINE:
            at += 3
        else:
            _, at = _read_varint(data, at)
    return Message(number, stream, kind, memoryview(data)[at:])


def _read_varint(data: Buffer, at: int) -> tuple[int, int]:
    """Return the value and the position after it."""
    value = shift = 0
    end = min(len(data), at + _LONGEST_VARINT)
    while at < end:
        byte = data[at]
        at += 1
        if byte < 0x80:
            value |= byte << shift
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), at
        value |= (byte & 0x7F) << shift
        shift += 7
    if at >= len(data) and shift < 70:
        raise ProtocolError("a message ends within its header")
    raise ProtocolError("a number in the header of a message is larger than 64 bits")


def read_connect(payload: Buffer) -> tuple[str, str]:
    """Return network and address of a connect message."""
    if len(payload) > LONGEST_CONNECT:
        raise ProtocolError(f"a connect message is longer than {LONGEST_CONNECT} bytes")
    network, separator, address = _text(payload).partition("/")
    if not separator or not network or not address:
        raise ProtocolError("a connect message lacks the network or the address")
    return network, address


def read_error(payload: Buffer) -> str:
    return _text(payload[:LONGEST_ERROR]) or "closed without a reason"


def read_client(payload: Buffer) -> tuple[str, int]:
    """Return key and session of a client that another server announces."""
    # remotedialer reads 100 bytes of an announcement too.
    key, separator, session = _text(payload[:100]).rpartition("/")
    if not separator or not session.isdecimal() or len(session) > 19:
        raise ProtocolError("the announcement of a client is not <key>/<session>")
    return key, int(session)


def read_sync(payload: Buffer) -> frozenset[int]:
    if len(payload) % 8:
        raise ProtocolError("a list of streams is not a multiple of eight bytes")
    return frozenset(number for (number,) in struct.iter_unpack("<q", payload))


def _text(payload: Buffer) -> str:
    return bytes(payload).decode("utf-8", "replace")
