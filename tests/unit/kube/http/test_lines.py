"""Objects out of the bytes of lists and watches."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.client import Change
from remuda.kube.errors import StatusError, UnreadableWatch, status_error
from remuda.kube.http import lines
from remuda.kube.http.lines import EventReader, WatchEvent, read_change, read_list

encode, decode = msgspec.json.encode, msgspec.json.decode


def list_of(*items: Any, **more: Any) -> bytes:
    return encode({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items, **more})


class TestLists:
    @given(st.lists(st.dictionaries(st.sampled_from(["metadata", "spec", "x"]), st.text(), max_size=3)))
    def test_list_items_of_built_in_kinds_get_api_version_and_kind(self, items: list[dict[str, str]]) -> None:
        found = read_list(list_of(*items))
        assert [decode(item) for item in found.items] == [{"apiVersion": "v1", "kind": "Pod", **item} for item in items]

    def test_complete_list_items_are_unchanged(self) -> None:
        item = b'{"apiVersion":"a/v1","kind":"Horse","metadata":{"name":"b"}}'
        found = read_list(b'{"kind":"HorseList","apiVersion":"a/v1","metadata":{},"items":[ %b , %b ]}' % (item, item))
        assert found.items == [item, item]

    def test_list_metadata_yields_resource_version_and_continue_token(self) -> None:
        found = read_list(list_of(metadata={"resourceVersion": "9", "continue": "abc", "remainingItemCount": 3}))
        assert (found.resource_version, found.continue_token, found.items) == ("9", "abc", [])

    def test_null_list_items_are_read_as_empty(self) -> None:
        assert read_list(list_of(items=None)).items == []

    def test_list_items_are_copied_out_of_the_response(self) -> None:
        item = read_list(list_of({"metadata": {}})).items[0]
        assert type(item) is bytes

    @pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"items":5}'])
    def test_malformed_list_response_is_rejected(self, body: bytes) -> None:
        with pytest.raises(StatusError, match="cannot be read"):
            read_list(body)


@pytest.mark.parametrize("item", ["1", "[]", "null", '{"metadata":{},"kind":5}'])
def test_list_with_non_object_item_is_rejected(item: str) -> None:
    """A hostile cluster chooses what its lists hold."""
    with pytest.raises(StatusError, match="the server's list cannot be read"):
        read_list(f'{{"kind":"NodeList","apiVersion":"v1","items":[{item}]}}'.encode())


@pytest.mark.parametrize("answer", [b'{"kind":"\xff","type":"\xff","object":{}}', b'{"items":[', b'{"object":'])
def test_non_utf_8_or_deeply_nested_response_raises_status_error(answer: bytes) -> None:
    for body in (answer, answer + b"[" * 100_000):
        for reader in (read_list, lambda body: read(body + b"}\n")):
            with pytest.raises(StatusError, match="cannot be read"):
                reader(body)
        assert status_error(503, body).code == 503


def read(*chunks: bytes, limit: int = 1 << 20) -> list[WatchEvent]:
    reader = EventReader(limit)
    return [event for chunk in chunks for event in reader.feed(chunk)]


def change_of(value: bytes) -> Change:
    (event,) = read(value + b"\n")
    return read_change(event)


class TestChanges:
    def test_watch_event_object_bytes_are_unchanged(self) -> None:
        change = change_of(b'{"type":"ADDED","object": {"kind":"Pod", "a": 1.50}}')
        assert (change.type, change.value) == ("ADDED", b'{"kind":"Pod", "a": 1.50}')

    def test_watch_error_event_raises_status_error(self) -> None:
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        with pytest.raises(StatusError, match="too old") as caught:
            change_of(encode({"type": "ERROR", "object": status}))
        assert (caught.value.code, caught.value.reason) == (410, "Expired")

    def test_watch_error_event_without_code_raises_500(self) -> None:
        with pytest.raises(StatusError) as caught:
            change_of(b'{"type":"ERROR","object":{"kind":"Status","message":"etcd"}}')
        assert (caught.value.code, caught.value.message) == (500, "etcd")

    def test_watch_event_of_unknown_type_raises_unreadable_watch(self) -> None:
        with pytest.raises(UnreadableWatch, match="the server's watch cannot be read: an event has the type 'SUNG'"):
            change_of(b'{"type":"SUNG","object":{}}')


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
EVENT = b'{"type":"ADDED","object":{"a":"}{"}}'


def streams(event: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[tuple[list[dict[str, Any]], bytes]]:
    """Events, and a stream of them: each compact, indented or spread out in another way, anything between them."""
    written = st.builds(
        lambda value, indent, ascii, separators, gap: (
            value,
            json.dumps(value, indent=indent, ensure_ascii=ascii, separators=separators).encode() + gap.encode(),
        ),
        event,
        st.sampled_from([None, None, 0, 1, 2, "\t"]),
        st.booleans(),
        st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\n:\r\n ")]),
        st.text(" \t\r\n", max_size=3) | st.just("\n"),
    )
    return st.lists(written, max_size=6).map(
        lambda found: ([value for value, _ in found], b"".join(text for _, text in found))
    )


events = st.builds(lambda kind, value: {"type": kind, "object": value}, st.sampled_from(["ADDED", "}{"]), values)


class TestEventReader:
    @given(streams(events), st.data())
    def test_event_reader_ignores_chunk_boundaries_and_whitespace(
        self, stream: tuple[list[dict[str, Any]], bytes], data: st.DataObject
    ) -> None:
        expected, rest = stream
        found, reader = [], EventReader()
        while rest:
            size = data.draw(st.integers(1, len(rest)) | st.integers(1, min(4, len(rest))))
            found += reader.feed(rest[:size])
            rest = rest[size:]
        assert [{"type": one.type, "object": json.loads(bytes(one.object))} for one in found] == expected
        assert reader.is_between_events

    @given(streams(events))
    def test_event_reader_emits_event_as_soon_as_complete(self, stream: tuple[list[dict[str, Any]], bytes]) -> None:
        expected, written = stream
        reader, ends = EventReader(), []
        for at in range(len(written)):
            ends += [at + 1] * len(list(reader.feed(written[at : at + 1])))
        decoder, text = json.JSONDecoder(), written.decode()
        complete, at = [], 0
        while len(complete) < len(expected):
            at = decoder.raw_decode(text, len(text) - len(text[at:].lstrip()))[1]
            complete.append(len(text[:at].encode()))
        assert ends == complete

    @pytest.mark.parametrize("indent", [None, 0, 2, 4])
    def test_event_reader_accepts_indented_events(self, indent: int | None) -> None:
        node = {"type": "ADDED", "object": {"metadata": {"name": "a", "labels": {"x": "\n}\n"}}, "items": [{}, []]}}
        text = json.dumps(node, indent=indent).encode() + b"\n"
        assert [json.loads(bytes(one.object)) for one in read(text + text, text)] == [node["object"]] * 3

    def test_event_reader_accepts_chunk_boundary_anywhere_in_event(self) -> None:
        node = {"type": "ADDED", "object": {'"}': '\\"}"\\', "b": ["\\\\", {"é": -1.5e-7}, True, "\u2028"]}}
        for ascii in (True, False):
            text = json.dumps(node, indent=1, ensure_ascii=ascii).encode()
            for at in range(len(text)):
                for end in range(at, min(at + 3, len(text))):
                    (event,) = read(text[:at], text[at:end], text[end:])
                    assert json.loads(bytes(event.object)) == node["object"]

    def test_event_reader_detects_incomplete_event(self) -> None:
        for half in (b'{"type"', b"{\n", b'{"type":"ADDED","object":{}\n'):
            reader = EventReader()
            assert len(list(reader.feed(EVENT + b"\n" + half))) == 1
            assert not reader.is_between_events

    @pytest.mark.parametrize("chunks", [[b"x" * 11], [b"x"] * 11, [b"\n" * 11], [b'"', b"\\" * 10]])
    def test_event_reader_rejects_event_above_size_limit(self, chunks: list[bytes]) -> None:
        begun = b'{"type":"' if chunks[0] != b"\n" * 11 else b'{"type":'
        with pytest.raises(UnreadableWatch, match=r"larger than 12 bytes"):
            read(begun, *chunks, limit=12)

    def test_event_reader_size_limit_applies_per_event(self) -> None:
        assert len(read(EVENT * 100, *[EVENT] * 100, b" " * 1000, EVENT + b"\n", limit=len(EVENT))) == 201

    @pytest.mark.parametrize(
        "text",
        [
            *(b"<html>", b"[]\n", b"1\n", b"null\n", b"} ", b'"ADDED"\n', b"\xff"),
            *(
                b"{oops\n",
                b'{"type":"ADDED"}\n',
                b'{"type":5,"object":{}}\n',
                b'{"type":"a\nb"',
                b'{"type":"ADDED",}\n',
            ),
            *(b'{"type":"ADDED","object":{]}\n', b'{"type":"ADDED","object":tru}\n', b'{"type":"\xff","object":1}\n'),
        ],
    )
    def test_event_reader_rejects_malformed_event_immediately(self, text: bytes) -> None:
        for begun in (b"", EVENT + b"\n", EVENT):
            with pytest.raises(UnreadableWatch, match="the server's watch cannot be read: "):
                read(begun, text)
            with pytest.raises(UnreadableWatch, match="the server's watch cannot be read: "):
                read(begun + text)

    def test_event_reader_rejects_truncated_event_when_more_events_follow(self) -> None:
        with pytest.raises(UnreadableWatch, match="malformed"):
            read(b'{"type":"ADDED","object":{}\n', *[EVENT + b"\n"] * 4)

    @pytest.mark.parametrize("event", [b'{"type":"ADDED","object":{"a":"secret"x}}', b'{"type":"ADDED","o":"secret"}'])
    def test_event_reader_error_does_not_show_event_content(self, event: bytes) -> None:
        for chunks in ([event + b"\n"], [event[:20], event[20:] + b"\n"], [b"{\n" + event[1:]]):
            with pytest.raises(UnreadableWatch) as caught:
                read(*chunks)
            assert "secret" not in str(caught.value)

    def test_event_reader_error_shows_short_excerpt_of_non_event(self) -> None:
        with pytest.raises(UnreadableWatch, match="expected an event, got b'<html>") as caught:
            read(b"<html>" + b"x" * 100_000)
        assert len(str(caught.value)) < 200

    def test_event_reader_decodes_in_linear_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Counted in bytes that are decoded, because a clock would count the machine."""
        decoded = 0

        def counting(value: bytes) -> WatchEvent:
            nonlocal decoded
            decoded += len(value)
            return decode_event(value)

        decode_event = lines._decode_event
        monkeypatch.setattr(lines, "_decode_event", counting)
        node = {"type": "ADDED", "object": {str(number): {"a": {}} for number in range(2000)}}
        for indent in (None, 0, 2):
            text, decoded = json.dumps(node, indent=indent).encode() + b"\n", 0
            assert len(read(*(text[at : at + 7] for at in range(0, len(text), 7)))) == 1
            assert decoded < 4 * len(text)
