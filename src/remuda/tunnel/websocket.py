"""WebSocket (RFC 6455) without I/O: bytes in, whole messages out; messages in, buffers out.

There are no extensions and no sub-protocols. Input results in messages or in a `WebSocketError` with the close code to
send, and memory is bounded: one unfinished message of at most `limit` bytes, however small its fragments. Standard
library only, because the agent ships this module to hosts.

A client masks its frames (`mask=True`) with a random key per frame, as the RFC requires; pure Python does that at about
600 MB/s. A server only removes masks, and may pass a faster function for that.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Union

from remuda.tunnel import TunnelError

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
NORMAL, GOING_AWAY, PROTOCOL_ERROR, UNSUPPORTED, TOO_BIG = 1000, 1001, 1002, 1003, 1009

DEFAULT_LIMIT = 16 * 1024 * 1024
_LONGEST_CONTROL = 125
_FRAGMENT = struct.Struct(">BBH4s")  # the header of one with two bytes of length and a mask
_MASKED = 0x80 | 126  # its second byte

Buffer = Union[bytes, bytearray, memoryview]  # noqa: UP007  # evaluated, by Python 3.9 too
Payload = Union[bytes, bytearray]  # noqa: UP007
Unmask = Callable[[bytes, bytearray], None]
"""Function that applies a mask of four bytes to a buffer in place."""


class WebSocketError(TunnelError):
    """The peer broke the protocol; `code` is what a close frame should tell it."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Frames:
    """Encoder and decoder of one connection. `mask`: this end is the client."""

    def __init__(self, mask: bool, limit: int = DEFAULT_LIMIT, unmask: Unmask | None = None) -> None:
        self._mask = mask
        self._limit = limit
        self._unmask = unmask or apply_mask
        self._head = b""  # the beginning of a header
        self._opcode = -1  # of the frame whose payload is being received; none: -1
        self._final = False
        self._key = b""
        self._missing = 0  # bytes of its payload
        self._payload = bytearray()
        self._message_opcode = -1  # of the message whose fragments are being received; none: -1
        self._message = bytearray()

    def feed(self, data: Buffer) -> Iterator[tuple[int, Payload]]:
        """Yield the messages that are now complete, as opcode and payload; a control frame may come between the
        fragments of a message. Consume the iterator before the next call."""
        if self._head:
            data, self._head = self._head + data, b""
        data = memoryview(data)  # slices of it are not copied
        at, end = 0, len(data)
        while True:
            if self._opcode < 0:
                if self._message_opcode >= 0 and not self._mask:
                    at = self._continue(data, at, end)
                start = self._open(data, at, end)
                if start < 0:
                    self._head = bytes(data[at:])
                    return
                at = start
            stop = at + self._missing
            if stop > end:
                self._payload += data[at:]
                self._missing = stop - end
                return
            if self._payload:
                self._payload += data[at:stop]
                payload: Payload = self._payload
                self._payload = bytearray()
            else:
                payload = bytearray(data[at:stop]) if self._key else bytes(data[at:stop])
            at = stop
            if self._key:
                self._unmask(self._key, payload)  # type: ignore[arg-type]  # masked ones are bytearrays
            whole = self._close(payload)
            if whole is not None:
                yield whole

    def _continue(self, data: memoryview, at: int, end: int) -> int:
        """Read complete fragments from the middle of a message; return the position of the next frame. Upstream's
        clients send each message in eight fragments, so this fast path does the work of `_open` and `_close` at
        once."""
        message, unmask = self._message, self._unmask
        while end - at > _FRAGMENT.size:
            first, second, size, key = _FRAGMENT.unpack_from(data, at)
            start = at + _FRAGMENT.size
            stop = start + size
            if first != CONTINUATION or second != _MASKED or stop > end or len(message) + size > self._limit:
                break
            payload = bytearray(data[start:stop])
            unmask(key, payload)
            message += payload
            at = stop
        return at

    def _open(self, data: Buffer, at: int, end: int) -> int:
        """Read the header of a frame at `at`; return the position of its payload, or -1 if the header is incomplete."""
        if end - at < 2:
            return -1
        first, second = data[at], data[at + 1]
        at += 2
        size = second & 0x7F
        if size > _LONGEST_CONTROL:
            width = 2 if size == 126 else 8
            if end - at < width:
                return -1
            size = int.from_bytes(data[at : at + width], "big")
            at += width
        masked = second & 0x80
        if masked:
            if end - at < 4:
                return -1
            self._key = bytes(data[at : at + 4])
            at += 4
        else:
            self._key = b""
        self._check(first, bool(masked), size)
        self._opcode, self._final, self._missing = first & 0x0F, bool(first & 0x80), size
        return at

    def _check(self, first: int, masked: bool, size: int) -> None:
        opcode = first & 0x0F
        if first & 0x70:
            raise WebSocketError(PROTOCOL_ERROR, "a frame uses an extension that was not negotiated")
        if masked == self._mask:
            raise WebSocketError(
                PROTOCOL_ERROR, "a server sent a masked frame" if masked else "a client sent an unmasked frame"
            )
        if opcode >= CLOSE:
            if opcode > PONG:
                raise WebSocketError(PROTOCOL_ERROR, f"a frame has the unknown opcode {opcode}")
            if size > _LONGEST_CONTROL or not first & 0x80:
                raise WebSocketError(PROTOCOL_ERROR, "a control frame is fragmented or too long")
            return
        if opcode > BINARY:
            raise WebSocketError(PROTOCOL_ERROR, f"a frame has the unknown opcode {opcode}")
        if (opcode == CONTINUATION) != (self._message_opcode >= 0):
            raise WebSocketError(
                PROTOCOL_ERROR,
                "a message began before the last one had ended" if opcode else "a fragment continues no message",
            )
        if len(self._message) + size > self._limit:
            raise WebSocketError(TOO_BIG, f"a message is larger than {self._limit} bytes")

    def _close(self, payload: Payload) -> tuple[int, Payload] | None:
        """End the frame; return the message that it completes, if any."""
        opcode, self._opcode = self._opcode, -1
        if opcode >= CLOSE or (self._final and self._message_opcode < 0):
            return opcode, payload
        self._message += payload  # one buffer, not a list: a million fragments of a byte take a megabyte
        if opcode != CONTINUATION:
            self._message_opcode = opcode
        if not self._final:
            return None
        opcode, self._message_opcode = self._message_opcode, -1
        message, self._message = self._message, bytearray()
        return opcode, message

    def frame(self, opcode: int, *buffers: Buffer) -> list[Buffer]:
        """Return the buffers of one message, to be written; without a mask, a header and the given buffers."""
        if not self._mask:
            return [self._header(opcode, sum(map(len, buffers))), *buffers]
        framed = bytearray()
        self.put(framed, 0, opcode, buffers)
        return [framed]

    def put(self, into: bytearray, at: int, opcode: int, buffers: Sequence[Buffer]) -> int:
        """Write one message into a buffer at `at`, and return its end. Reusing one buffer, which grows as needed, keeps
        it in the processor's cache and saves an allocation per message."""
        size = sum(map(len, buffers))
        head = self._header(opcode, size)
        key = os.urandom(4) if self._mask else b""
        start = at + len(head) + len(key)
        end = start + size
        if end > len(into):
            into.extend(bytes(end - len(into)))
        into[at:start] = head + key
        at = start
        for buffer in buffers:
            into[at : at + len(buffer)] = buffer
            at += len(buffer)
        if key:
            apply_mask(key, into, start, end)
        return end

    def _header(self, opcode: int, size: int) -> bytes:
        bit = 0x80 if self._mask else 0
        if size <= _LONGEST_CONTROL:
            return bytes((0x80 | opcode, bit | size))
        if size <= 0xFFFF:
            return bytes((0x80 | opcode, bit | 126)) + size.to_bytes(2, "big")
        return bytes((0x80 | opcode, bit | 127)) + size.to_bytes(8, "big")


def close_payload(code: int, reason: str = "") -> bytes:
    """Return the payload of a close frame; the reason is cut to what fits."""
    text = reason.encode()[: _LONGEST_CONTROL - 2]
    return code.to_bytes(2, "big") + text.decode(errors="ignore").encode()


def close_reason(payload: Payload) -> tuple[int, str]:
    """Return code and reason of a close frame; the code is 1005 if it has none."""
    if len(payload) < 2:
        return 1005, ""
    return int.from_bytes(payload[:2], "big"), bytes(payload[2:]).decode(errors="replace")


# Masks. With the standard library, the fastest way for long buffers is to translate every fourth byte of a bytearray,
# four times (bytes.translate takes almost twice as long); for a few bytes it is XOR of two integers.

_FEW = 64
_tables: dict[int, bytes] = {}


def apply_mask(key: bytes, buffer: bytearray, start: int = 0, end: int | None = None) -> None:
    """Apply a mask in place; applying it twice restores the data."""
    end = len(buffer) if end is None else end
    size = end - start
    if size <= _FEW:
        repeated = (key * (size // 4 + 1))[:size]
        plain = int.from_bytes(buffer[start:end], "little")
        buffer[start:end] = (plain ^ int.from_bytes(repeated, "little")).to_bytes(size, "little")
        return
    for place in range(4):
        every_fourth = slice(start + place, end, 4)
        buffer[every_fourth] = buffer[every_fourth].translate(_table(key[place]))


def _table(byte: int) -> bytes:
    table = _tables.get(byte)
    if table is None:
        table = _tables[byte] = bytes(value ^ byte for value in range(256))
    return table
