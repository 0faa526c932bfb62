"""Go's gob: known bytes, values in pieces, and streams of people who mean harm."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.providers.machine.rancher_machine import gob
from remuda.providers.machine.rancher_machine.gob import Decoder, Encoder, GobError, InterfaceValue

# A struct of two ints called Point, and its value {22, 33}: the worked example of Go's own documentation.
POINT = bytes.fromhex("1fff8103010105506f696e7401ff820001020101580104000101590104000000")
POINT_VALUE = bytes.fromhex("07ff82012c014200")


def test_struct_type_is_defined_once_and_decoded() -> None:
    decoder = Decoder()
    assert list(decoder.feed(POINT)) == []
    assert list(decoder.feed(POINT_VALUE)) == [{"X": 22, "Y": 33}]
    assert list(decoder.feed(POINT_VALUE)) == [{"X": 22, "Y": 33}], "a type is defined once"


def test_decoder_accepts_stream_byte_by_byte() -> None:
    decoder = Decoder()
    stream = POINT + POINT_VALUE
    found = [value for place in range(len(stream)) for value in decoder.feed(stream[place : place + 1])]
    assert found == [{"X": 22, "Y": 33}]


def test_first_call_defines_types_and_calls_are_numbered() -> None:
    encoder = Encoder()
    first = encoder.call("RPCServerDriver.GetVersion")
    assert first.hex() == (
        "2fff81030101075265717565737401ff82000102010d536572766963654d6574686f64010c0001035365710106000000"
        "1fff82011a5250435365727665724472697665722e47657456657273696f6e00"
        "0aff83030102ff8400000003ff8400"
    )
    second = encoder.call("A.B")
    assert second == bytes.fromhex("0aff820103412e4201010003ff8400")
    values = list(Decoder().feed(first + second))
    assert values == [{"ServiceMethod": "RPCServerDriver.GetVersion"}, {}, {"ServiceMethod": "A.B", "Seq": 1}, {}]


def _message(payload: bytes) -> bytes:
    return gob.unsigned(len(payload)) + payload


def _interface_stream(pieces: bool) -> bytes:
    """A slice of interfaces that holds one Flag{Name: "x"}, whose type is defined in the middle of the value."""
    slice_type = bytes.fromhex("ff810201 02ff8200 01100000".replace(" ", ""))  # []interface{} is type 65
    flag_type = gob.signed(-66) + b"\x03\x01\x01\x04Flag\x01" + gob.signed(66) + b"\x00\x01\x01\x01\x04Name\x01\x0c"
    flag_type += b"\x00\x00\x00"
    begun = gob.signed(65) + b"\x00\x01\x05*Flag" + flag_type
    value = b"\x01\x01x\x00"
    rest = gob.signed(66) + gob.unsigned(len(value)) + value
    if pieces:
        return _message(slice_type) + _message(begun) + _message(rest)
    return _message(slice_type) + _message(begun + gob.unsigned(len(rest)) + rest)


@pytest.mark.parametrize("pieces", [True, False], ids=["in the next message", "in the same message"])
def test_value_continues_after_embedded_type_definition(pieces: bool) -> None:
    assert list(Decoder().feed(_interface_stream(pieces))) == [[InterfaceValue("*Flag", {"Name": "x"})]]


@pytest.mark.parametrize("value", [0, 1, 127, 128, 255, 256, 2**31, 2**64 - 1])
def test_unsigned_numbers_round_trip(value: int) -> None:
    assert gob._Reader(gob.unsigned(value)).unsigned() == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_signed_numbers_round_trip(value: int) -> None:
    assert gob._Reader(gob.signed(value)).signed() == value


@pytest.mark.parametrize(
    ("stream", "complaint"),
    [
        (b"\xfc\x7f\xff\xff\xff", "longer than anything expected"),
        (b"\xf0" + b"\x01" * 20, "more than 64 bits"),
        (_message(gob.signed(77)), "middle of a value"),
        (_message(gob.signed(77) + b"\x00"), "type 77 is not defined"),
        (_message(gob.signed(6) + b"\x00\x7f"), "middle of a value"),
        (_message(gob.signed(6) + b"\x00\x00\x00\x00"), "mean nothing"),
        (_message(gob.signed(6) + b"\x00\x01\xff"), "cannot be read"),
        (POINT + _message(gob.signed(65) + b"\x05\x00"), "has no field"),
        (POINT + POINT, "cannot be defined"),
    ],
)
def test_malformed_stream_raises_gob_error(stream: bytes, complaint: str) -> None:
    with pytest.raises(GobError, match=complaint):
        list(Decoder().feed(stream))


def test_recursive_type_nesting_is_limited() -> None:
    nested = gob.signed(-65) + b"\x02\x01\x02" + gob.signed(65) + b"\x00\x01" + gob.signed(65) + b"\x00\x00"
    deep = gob.signed(65) + b"\x00" + b"\x01" * 5000
    with pytest.raises(GobError, match="nested too deeply"):
        list(Decoder().feed(_message(nested) + _message(deep)))


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=60).map(_message), st.binary(max_size=60)), max_size=8), st.booleans())
def test_arbitrary_streams_stay_within_time_and_memory_limits(pieces: list[bytes], known: bool) -> None:
    decoder = Decoder()
    started = time.process_time()
    tracemalloc.start()
    try:
        if known:
            list(decoder.feed(POINT + _interface_stream(True)[:14]))
        for piece in pieces:
            list(decoder.feed(piece))
    except GobError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert time.process_time() - started < 5
    assert peak < 3_000_000
