"""The messages, byte by byte, as remotedialer writes and reads them."""

from __future__ import annotations

import pytest

from remuda.tunnel import protocol
from remuda.tunnel.protocol import Message, ProtocolError

VECTORS = {
    "02 04 04 b0 ea 01 74 63 70 2f 31 32 37 2e 30 2e 30 2e 31 3a 36 30 38 30": Message(
        1, 2, protocol.CONNECT, b"tcp/127.0.0.1:6080"
    ),
    "04 04 02 b0 ea 01 68 69": Message(2, 2, protocol.DATA, b"hi"),
    "06 04 06 45 4f 46": Message(3, 2, protocol.ERROR, b"EOF"),
    "0a 04 0c": Message(5, 2, protocol.PAUSE, b""),
    "0c 04 0e": Message(6, 2, protocol.RESUME, b""),
    "08 00 10 02 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00": Message(
        4, 0, protocol.SYNC, protocol.sync_list([3, 2])
    ),
    "0a 00 08 63 2d 61 62 63 2f 37 37": Message(5, 0, protocol.ADD, b"c-abc/77"),
}


@pytest.mark.parametrize(("wire", "message"), VECTORS.items())
def test_upstream_wire_vectors_round_trip(wire: str, message: Message) -> None:
    data = bytes.fromhex(wire)
    assert protocol.decode(data) == message
    assert b"".join(protocol.encode(message)) == data


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (0, "00"),
        (-1, "01"),
        (63, "7e"),
        (64, "80 01"),
        ((1 << 63) - 1, "fe ff ff ff ff ff ff ff ff 01"),
        (-(1 << 63), "ff ff ff ff ff ff ff ff ff 01"),
    ],
)
def test_varint_boundary_values_round_trip(value: int, wire: str) -> None:
    assert protocol.varint(value) == bytes.fromhex(wire)
    assert protocol.decode(bytes.fromhex(wire) + b"\x00\x0c").number == value


def test_data_message_deadline_is_ignored() -> None:
    assert bytes(protocol.decode(bytes.fromhex("02 04 02 00 68 69")).payload) == b"hi"


def test_unknown_message_kind_is_decoded() -> None:
    assert protocol.decode(b"\x02\x04\x40abc").kind == 32


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        ("", "ends within"),
        ("02", "ends within"),
        ("02 04 82", "ends within"),
        ("02 04 02", "ends within"),
        ("02 04 02 b0", "ends within"),
        ("ff ff ff ff ff ff ff ff ff 02 00 02", "64 bits"),
        ("ff ff ff ff ff ff ff ff ff ff 01 00", "64 bits"),
    ],
)
def test_malformed_message_raises_protocol_error_with_reason(wire: str, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        protocol.decode(bytes.fromhex(wire))


def test_connect_address_may_contain_slashes() -> None:
    assert protocol.read_connect(protocol.connect_text("unix", "/run/a.sock")) == ("unix", "/run/a.sock")


@pytest.mark.parametrize("payload", [b"", b"tcp", b"/x", b"tcp/", b"tcp/" + b"x" * 263])
def test_malformed_connect_payload_raises_protocol_error(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        protocol.read_connect(payload)


@pytest.mark.parametrize(("network", "address"), [("", "x"), ("tcp", ""), ("a/b", "x"), ("tcp", "x" * 263)])
def test_invalid_or_too_long_connect_address_raises_value_error(network: str, address: str) -> None:
    with pytest.raises(ValueError):
        protocol.connect_text(network, address)


def test_connect_address_of_maximum_length_is_accepted() -> None:
    assert len(protocol.connect_text("tcp", "x" * 262)) == protocol.LONGEST_CONNECT


def test_long_error_text_is_truncated_at_character_boundary() -> None:
    cut = protocol.error_text("x" * 99 + "é" + "y" * 50)
    assert cut == b"x" * 99
    assert protocol.read_error(b"z" * 500) == "z" * 100


def test_malformed_sync_list_raises_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="eight"):
        protocol.read_sync(b"1234567")


def test_client_announcement_is_parsed() -> None:
    assert protocol.read_client(b"c-abc/77") == ("c-abc", 77)
    for bad in (b"c-abc", b"c-abc/x", b"c/" + b"9" * 20):
        with pytest.raises(ProtocolError):
            protocol.read_client(bad)
