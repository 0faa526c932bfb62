"""Conversations as they really are, spoilt: on the level of messages, of frames and of bytes.

What is recorded is what two of our cores say to each other in a scenario of the model; what comes out is what a peer
that is broken, hostile, or of another opinion might put on the line.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

from tests.lab.tunnel_model import World, script_of
from tests.lab.tunnel_raw import BINARY, RawEnd, message, read_varint, varint

Message = tuple[int, bytes]
_NUMBERS = (0, 1, -1, 2, 127, 128, 1 << 31, 1 << 32, (1 << 32) + 1, (1 << 32) + 2, (1 << 63) - 1, -(1 << 63))
_LENGTHS = (0, 1, 125, 126, 127, 65535, 65536, 1 << 24, 1 << 31, 1 << 63, (1 << 64) - 1)


def recorded(chance: Random, *, of_client: bool) -> tuple[list[Message], int]:
    """Messages of one side in a scenario, and the number of streams that the other side opens."""
    world = World()
    world.play(script_of(chance, chance.randrange(20, 200)))
    world.deliver()
    speaker, listener = world.sides[of_client], world.sides[not of_client]
    return speaker.spoken, listener.opened


def spoilt(chance: Random, messages: list[Message], *, masks: bool) -> bytes:
    """The bytes of the conversation after a few accidents."""
    messages = list(messages)
    for _ in range(chance.choice((0, 1, 1, 2, 5, 20))):
        chance.choice(_MESSAGE_ACCIDENTS)(chance, messages)
    writer = RawEnd(None, None, masks=masks)
    frames = [frame for one in messages for frame in _framed(chance, writer, one)]
    for _ in range(chance.choice((0, 0, 1, 3))):
        chance.choice(_FRAME_ACCIDENTS)(chance, frames)
    wire = bytearray(b"".join(frames))
    for _ in range(chance.choice((0, 0, 0, 1, 4))):
        chance.choice(_BYTE_ACCIDENTS)(chance, wire)
    return bytes(wire)


def _framed(chance: Random, writer: RawEnd, one: Message) -> list[bytes]:
    opcode, payload = one
    if opcode != BINARY or chance.random() < 0.8:
        return [writer.frame(opcode, payload)]
    cuts = sorted(chance.randrange(len(payload) + 1) for _ in range(chance.randrange(1, 5)))
    places = [0, *cuts, len(payload)]
    parts = [payload[start:stop] for start, stop in pairwise(places)]
    return [writer.frame(0 if at else opcode, part, final=at == len(parts) - 1) for at, part in enumerate(parts)]


# Of messages


def _drop(chance: Random, messages: list[Message]) -> None:
    if messages:
        del messages[chance.randrange(len(messages))]


def _repeat(chance: Random, messages: list[Message]) -> None:
    if messages:
        one = chance.choice(messages)
        at = chance.randrange(len(messages) + 1)
        messages[at:at] = [one] * chance.choice((1, 2, 50))


def _swap(chance: Random, messages: list[Message]) -> None:
    if messages:
        one, other = chance.randrange(len(messages)), chance.randrange(len(messages))
        messages[one], messages[other] = messages[other], messages[one]


def _renumber(chance: Random, messages: list[Message]) -> None:
    """Another stream, or another kind, for the same payload."""
    if not messages:
        return
    at = chance.randrange(len(messages))
    opcode, payload = messages[at]
    if opcode != BINARY or len(payload) < 3:
        return
    try:
        number, rest = read_varint(payload)
        stream, rest = read_varint(rest)
        kind, rest = read_varint(rest)
    except AssertionError:
        return
    if chance.random() < 0.5:
        stream = chance.choice((*_NUMBERS, stream + 1, stream ^ 1))
    else:
        kind = chance.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, -1, 1 << 40))
    messages[at] = opcode, varint(number) + varint(stream) + varint(kind) + rest


def _resize(chance: Random, messages: list[Message]) -> None:
    if messages:
        at = chance.randrange(len(messages))
        opcode, payload = messages[at]
        if chance.random() < 0.5:
            payload = payload[: chance.randrange(len(payload) + 1)]
        else:
            payload += chance.randbytes(chance.choice((1, 8, 300, 5000)))
        messages[at] = opcode, payload


def _invent(chance: Random, messages: list[Message]) -> None:
    one = message(chance.randrange(10), chance.choice(_NUMBERS), chance.randbytes(chance.choice((0, 3, 8, 80, 400))))
    messages.insert(chance.randrange(len(messages) + 1), (BINARY, one))


def _reclassify(chance: Random, messages: list[Message]) -> None:
    if messages:
        at = chance.randrange(len(messages))
        messages[at] = chance.choice((1, 2, 8, 9, 10)), messages[at][1][:125]


# Of frames


def _bend_header(chance: Random, frames: list[bytes]) -> None:
    """Flags, opcode or length say something else than is there."""
    if not frames:
        return
    at = chance.randrange(len(frames))
    frame = bytearray(frames[at])
    if chance.random() < 0.6:
        frame[chance.randrange(2)] ^= 1 << chance.randrange(8)
        frames[at] = bytes(frame)
    else:
        masked, length = frame[1] & 0x80, chance.choice(_LENGTHS)
        size = bytes([126 | masked]) + length.to_bytes(2, "big") if length < 65536 else b""
        frames[at] = bytes(frame[:1]) + (size or bytes([127 | masked]) + length.to_bytes(8, "big")) + bytes(frame[2:])


def _lose_frame(chance: Random, frames: list[bytes]) -> None:
    if frames:
        del frames[chance.randrange(len(frames))]


def _shuffle_in(chance: Random, frames: list[bytes]) -> None:
    if frames:
        frames.insert(chance.randrange(len(frames) + 1), chance.choice(frames))


# Of bytes


def _flip(chance: Random, wire: bytearray) -> None:
    if wire:
        wire[chance.randrange(len(wire))] ^= 1 << chance.randrange(8)


def _cut_out(chance: Random, wire: bytearray) -> None:
    if wire:
        start = chance.randrange(len(wire))
        del wire[start : start + chance.choice((1, 2, 10, 1000))]


def _push_in(chance: Random, wire: bytearray) -> None:
    start = chance.randrange(len(wire) + 1)
    wire[start:start] = chance.randbytes(chance.choice((1, 2, 14, 500)))


_MESSAGE_ACCIDENTS: tuple[Callable[[Random, list[Message]], None], ...] = (
    *(_drop, _repeat, _swap, _renumber, _resize, _invent, _reclassify),
)
_FRAME_ACCIDENTS: tuple[Callable[[Random, list[bytes]], None], ...] = (_bend_header, _lose_frame, _shuffle_in)
_BYTE_ACCIDENTS: tuple[Callable[[Random, bytearray], None], ...] = (_flip, _cut_out, _push_in)
