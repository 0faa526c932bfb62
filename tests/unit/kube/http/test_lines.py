"""Objects out of the bytes of lists and watches."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.errors import StatusError, status_error
from remuda.kube.http.lines import LineSplitter, read_change, read_list

encode, decode = msgspec.json.encode, msgspec.json.decode


def list_of(*items: Any, **more: Any) -> bytes:
    return encode({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items, **more})


class TestLists:
    @given(st.lists(st.dictionaries(st.sampled_from(["metadata", "spec", "x"]), st.text(), max_size=3)))
    def test_items_of_built_in_kinds_become_whole(self, items: list[dict[str, str]]) -> None:
        found = read_list(list_of(*items))
        assert [decode(item) for item in found.items] == [{"apiVersion": "v1", "kind": "Pod", **item} for item in items]

    def test_items_that_are_whole_stay_as_they_are(self) -> None:
        item = b'{"apiVersion":"a/v1","kind":"Horse","metadata":{"name":"b"}}'
        found = read_list(b'{"kind":"HorseList","apiVersion":"a/v1","metadata":{},"items":[ %b , %b ]}' % (item, item))
        assert found.items == [item, item]

    def test_revision_and_the_way_on(self) -> None:
        found = read_list(list_of(metadata={"resourceVersion": "9", "continue": "abc", "remainingItemCount": 3}))
        assert (found.resource_version, found.continue_token, found.items) == ("9", "abc", [])

    def test_items_may_be_null(self) -> None:
        assert read_list(list_of(items=None)).items == []

    def test_items_do_not_keep_the_answer(self) -> None:
        item = read_list(list_of({"metadata": {}})).items[0]
        assert type(item) is bytes

    @pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"items":5}'])
    def test_what_is_no_list_is_an_error(self, body: bytes) -> None:
        with pytest.raises(StatusError, match="cannot be read"):
            read_list(body)


@pytest.mark.parametrize("item", ["1", "[]", "null", '{"metadata":{},"kind":5}'])
def test_list_with_an_item_that_is_no_object_is_refused(item: str) -> None:
    """A hostile cluster chooses what its lists hold."""
    with pytest.raises(StatusError, match="the server's list cannot be read"):
        read_list(f'{{"kind":"NodeList","apiVersion":"v1","items":[{item}]}}'.encode())


@pytest.mark.parametrize("answer", [b'{"kind":"\xff","type":"\xff","object":{}}', b'{"items":[', b'{"object":'])
def test_answer_that_is_not_utf_8_or_nested_deeply_is_a_status_error(answer: bytes) -> None:
    for body in (answer, answer + b"[" * 100_000):
        for read in (read_list, read_change):
            with pytest.raises(StatusError, match="cannot be read"):
                read(body)
        assert status_error(503, body).code == 503


class TestChanges:
    def test_the_object_is_as_it_came(self) -> None:
        change = read_change(b'{"type":"ADDED","object": {"kind":"Pod", "a": 1.50}}')
        assert (change.type, change.value) == ("ADDED", b'{"kind":"Pod", "a": 1.50}')

    def test_an_error_is_raised(self) -> None:
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        with pytest.raises(StatusError, match="too old") as caught:
            read_change(encode({"type": "ERROR", "object": status}))
        assert (caught.value.code, caught.value.reason) == (410, "Expired")

    def test_an_error_without_a_code_is_one_of_the_server(self) -> None:
        with pytest.raises(StatusError) as caught:
            read_change(b'{"type":"ERROR","object":{"kind":"Status","message":"etcd"}}')
        assert (caught.value.code, caught.value.message) == (500, "etcd")

    @pytest.mark.parametrize("line", [b"{", b"[]", b'{"type":"ADDED"}', b'{"type":"SUNG","object":{}}'])
    def test_what_is_no_event_is_an_error(self, line: bytes) -> None:
        with pytest.raises(StatusError, match="the server's watch"):
            read_change(line)


class TestLineSplitter:
    @given(st.lists(st.binary(max_size=20).filter(lambda b: b"\n" not in b)), st.data())
    def test_lines_do_not_depend_on_the_chunks(self, lines: list[bytes], data: st.DataObject) -> None:
        rest, found, splitter = b"\n".join([*lines, b""]), [], LineSplitter()
        while rest:
            size = data.draw(st.integers(1, len(rest)))
            found += splitter.feed(rest[:size])
            rest = rest[size:]
        assert found == [line for line in lines if line.strip()]
        assert splitter.is_between_lines

    def test_half_a_line_is_noticed(self) -> None:
        splitter = LineSplitter()
        assert list(splitter.feed(b'{"a":1}\n{"b"')) == [b'{"a":1}']
        assert not splitter.is_between_lines

    def test_a_line_without_end_is_refused(self) -> None:
        splitter = LineSplitter(limit=10)
        for _ in range(3):
            assert not list(splitter.feed(b"aaa"))
        with pytest.raises(StatusError, match="larger than 10 bytes"):
            list(splitter.feed(b"aaa"))
