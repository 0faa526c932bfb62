"""The messages of remotedialer, without I/O: what one binary WebSocket message says, read and written.

A message is three or four signed varints (number, stream, kind, and for data and connect a deadline nobody reads any
more) and whatever is left is its payload. Whatever bytes come in, the answer is a `Message` or a `ProtocolError` which
says what is wrong with them. Kinds nobody knows are messages too: newer ends may say more than we understand.

Payloads are never copied here: reading gives a view, writing a header to put before the payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple, Union

Buffer = Union[bytes, bytearray, memoryview]  # noqa: UP007  # Python 3.9

DATA, CONNECT, ERROR, ADD, REMOVE, PAUSE, RESUME, SYNC = range(1, 9)

LONGEST_CONNECT = 266
LONGEST_ERROR = 100
END = "EOF"  # the text of an error that is none: the stream was closed in order

_DEADLINE = b"\xb0\xea\x01"  # 15,000 ms, what everybody has always sent
_LONGEST_VARINT = 10


class ProtocolError(Exception):
    """The other end does not speak the protocol; the text says in which way."""


class Message(NamedTuple):
    number: int
    stream: int  # 0 where it is about none
    kind: int
    payload: Buffer


# Writing


def varint(value: int) -> bytes:
    """Zig-zag, then seven bits to a byte."""
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
    """All of a header but its first varint, which is the message's number."""
    return varint(stream) + varint(kind) + (_DEADLINE if kind in (DATA, CONNECT) else b"")


def encode(message: Message) -> list[Buffer]:
    """As buffers to write one after the other; the payload is passed on as it is."""
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
    """Cut where the other end would cut it, between characters."""
    text = reason.encode("utf-8", "replace")
    return text if len(text) <= LONGEST_ERROR else text[:LONGEST_ERROR].decode("utf-8", "ignore").encode()


def sync_list(streams: Iterable[int]) -> bytes:
    return b"".join(struct.pack("<q", stream) for stream in sorted(streams))


# Reading


def decode(data: Buffer) -> Message:
    """The payload of the message is a view of `data`."""
    number, at = _read_varint(data, 0)
    stream, at = _read_varint(data, at)
    kind, at = _read_varint(data, at)
    if kind in (DATA, CONNECT):
        if data[at : at + 3] == _DEADLINE:
            at += 3
        else:
            _, at = _read_varint(data, at)
    return Message(number, stream, kind, memoryview(data)[at:])


def _read_varint(data: Buffer, at: int) -> tuple[int, int]:
    """The value, and where the next thing begins."""
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
    """Network and address."""
    if len(payload) > LONGEST_CONNECT:
        raise ProtocolError(f"a connect message is longer than {LONGEST_CONNECT} bytes")
    network, separator, address = _text(payload).partition("/")
    if not separator or not network or not address:
        raise ProtocolError("a connect message lacks the network or the address")
    return network, address


def read_error(payload: Buffer) -> str:
    return _text(payload[:LONGEST_ERROR]) or "closed without a reason"


def read_client(payload: Buffer) -> tuple[str, int]:
    """Key and session of a client that another server announces."""
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
