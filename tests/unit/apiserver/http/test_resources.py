"""Requests about resources, from the socket to the registry and back."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import msgspec
import pytest
import yaml

from remuda.apiserver.http.limits import HttpLimits
from remuda.apiserver.kinds.protobuf import Malformed
from remuda.apiserver.registry.calls import ListOptions, Page, WriteOptions
from remuda.apiserver.storage.types import Revision

from .fakes import Answer, Fronted, pod, until

A_POD = "/api/v1/namespaces/ns/pods/a"
PODS = "/api/v1/namespaces/ns/pods"
WIDGETS = "/apis/example.com/v1/namespaces/ns/widgets"
MERGE = "application/merge-patch+json"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json"


def reason(answer: Answer) -> tuple[int, str]:
    status = answer.json
    assert status["kind"] == "Status"
    assert status["code"] == answer.status
    return answer.status, status["reason"]


async def test_get_returns_object_with_headers_or_404() -> None:
    async with Fronted() as server:
        answer = await server.ask("GET", A_POD)
        assert (answer.status, answer.body) == (200, pod("a") + b"\n")
        assert answer.header("content-type") == "application/json"
        assert answer.header("cache-control") == "no-cache, private"
        assert len(answer.header("audit-id")) == 36
        assert (await server.ask("GET", A_POD, Audit_Id="mine")).header("audit-id") == "mine"
        missing = await server.ask("GET", f"{PODS}/zzz")
        assert reason(missing) == (404, "NotFound")
        assert missing.json["details"] == {"name": "zzz", "kind": "pods"}


async def test_get_supports_yaml_and_pretty_json() -> None:
    async with Fronted() as server:
        as_yaml = await server.ask("GET", A_POD, Accept="application/yaml")
        assert as_yaml.header("content-type") == "application/yaml"
        assert yaml.safe_load(as_yaml.body)["kind"] == "Pod"
        pretty = await server.ask("GET", f"{A_POD}?pretty=true")
        assert pretty.body.startswith(b'{\n  "apiVersion"')
        error = await server.ask("GET", f"{PODS}/zzz", Accept="application/yaml")
        assert yaml.safe_load(error.body)["reason"] == "NotFound"
        assert reason(await server.ask("GET", A_POD, Accept="image/png")) == (406, "NotAcceptable")


async def test_list_items_of_built_in_kinds_omit_type_meta() -> None:
    async with Fronted() as server:
        answer = await server.ask("GET", "/api/v1/pods?limit=2")
        items = [{"metadata": msgspec.json.decode(pod(name))["metadata"]} for name in "ab"]
        assert answer.json == {
            "kind": "PodList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "9"},
            "items": items,
        }
        assert ("list", ListOptions(limit=2)) in server.registry.calls
        server.registry.page = Page([], Revision(3), "more", 4)
        answer = await server.ask("GET", PODS)
        assert answer.json["metadata"] == {"resourceVersion": "3", "continue": "more", "remainingItemCount": 4}
        assert answer.json["items"] == []


async def test_list_items_omit_type_meta_regardless_of_field_order() -> None:
    async with Fronted() as server:
        server.registry.page = Page([b'{"kind":"Pod","apiVersion":"v1","metadata":{}}', pod("b")], Revision(1))
        items = (await server.ask("GET", PODS)).json["items"]
        assert [set(item) for item in items] == [{"metadata"}, {"metadata"}]


async def test_list_items_of_custom_resources_keep_type_meta() -> None:
    async with Fronted() as server:
        server.registry.page = Page([b'{"apiVersion":"example.com/v1","kind":"Widget"}'], Revision(1))
        answer = await server.ask("GET", WIDGETS)
        assert answer.json["kind"] == "WidgetList"
        assert answer.json["metadata"] == {"continue": "", "resourceVersion": "1"}
        assert answer.json["items"] == [{"apiVersion": "example.com/v1", "kind": "Widget"}]


async def test_large_responses_are_gzipped_when_accepted() -> None:
    async with Fronted() as server:
        server.registry.page = Page([pod("a", data="x" * 1000)] * 200, Revision(1))
        plain = await server.ask("GET", PODS)
        packed = await server.ask("GET", PODS, Accept_Encoding="deflate, gzip")
        assert plain.header("content-encoding") == ""
        assert (packed.header("content-encoding"), packed.header("vary")) == ("gzip", "Accept-Encoding")
        assert gzip.decompress(packed.body) == plain.body
        small = await server.ask("GET", A_POD, Accept_Encoding="gzip")
        assert small.header("content-encoding") == ""


async def test_create_update_patch_and_delete_reach_the_registry() -> None:
    async with Fronted() as server:
        calls = server.registry.calls
        created = await server.ask("POST", f"{PODS}?fieldManager=me", b'{"metadata":{"name":"n"}}')
        assert (created.status, created.json["kind"]) == (201, "Pod")
        assert calls[-1][2] == WriteOptions(field_manager="me")
        updated = await server.ask("PUT", A_POD, b"kind: Pod\n", Content_Type="application/yaml", User_Agent="u/1")
        assert updated.status == 200
        assert calls[-1] == ("update", {"apiVersion": "v1", "kind": "Pod"}, WriteOptions(field_manager="u"))
        patched = await server.ask("PATCH", f"{A_POD}/status", b'{"x":1}', Content_Type=MERGE)
        assert patched.status == 200
        assert calls[-1][:3] == ("patch", "merge", {"x": 1})
        assert calls[-2][2:7] == ("patch", "pods", "ns", "a", "status")
        applied = await server.ask(
            "PATCH", f"{PODS}/new?fieldManager=m&force=1", b"a: 1", Content_Type="application/apply-patch+yaml"
        )
        assert applied.status == 201
        assert calls[-1][3].force
        deleted = await server.ask("DELETE", A_POD, b'{"propagationPolicy":"Foreground"}')
        assert (deleted.status, deleted.json["status"]) == (200, "Success")
        options: Any = calls[-1][1]
        assert options.propagation_policy == "Foreground"
        cleared = await server.ask("DELETE", f"{PODS}?labelSelector=a")
        assert cleared.json["kind"] == "PodList"
        assert calls[-1][1] == ListOptions(label_selector="a")


async def test_large_yaml_body_is_accepted() -> None:
    async with Fronted() as server:
        body = b"kind: Pod\ndata:\n" + b"".join(b"  k%d: v\n" % n for n in range(3000))
        assert (await server.ask("POST", PODS, body, Content_Type="application/yaml")).status == 201
        assert len(server.registry.calls[-1][1]["data"]) == 3000


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        ("GET", "/api/v1/nothings", (404, "NotFound")),
        ("GET", "/api/v1/namespaces/ns/pods/a/nothing", (404, "NotFound")),
        ("GET", "/api/v1/pods/a", (404, "NotFound")),
        ("POST", "/api/v1/pods", (405, "MethodNotAllowed")),
        ("DELETE", "/api/v1/pods", (405, "MethodNotAllowed")),
        ("POST", A_POD, (405, "MethodNotAllowed")),
        ("PUT", PODS, (405, "MethodNotAllowed")),
        ("OPTIONS", PODS, (405, "MethodNotAllowed")),
        ("FROBNICATE", PODS, (405, "MethodNotAllowed")),
        ("FROBNICATE", WIDGETS, (405, "MethodNotAllowed")),
        ("PUT", WIDGETS, (400, "BadRequest")),
        ("GET", f"{WIDGETS}/a/nothing", (404, "NotFound")),
        ("GET", "/api/v9", (404, "NotFound")),
        ("POST", "/api/v1", (405, "MethodNotAllowed")),
        ("DELETE", f"{A_POD}/status", (405, "MethodNotAllowed")),
        ("PUT", f"{A_POD}/log", (405, "MethodNotAllowed")),
        ("PATCH", A_POD, (415, "UnsupportedMediaType")),
        ("GET", f"{PODS}?limit=x", (400, "BadRequest")),
        ("GET", f"{PODS}?resourceVersionMatch=Exact", (422, "Invalid")),
        ("GET", f"{A_POD}?{'&'.join(['a'] * 2000)}&resourceVersion=1", (400, "BadRequest")),
    ],
)
async def test_invalid_resource_requests_return_expected_status(
    method: str, target: str, expected: tuple[int, str]
) -> None:
    async with Fronted() as server:
        assert reason(await server.ask(method, target)) == expected


async def test_unknown_custom_group_returns_plain_text_404() -> None:
    async with Fronted() as server:
        for target in ("/apis/nowhere.io/v1/things", "/apis/example.com/v1/things"):
            answer = await server.ask("GET", target)
            assert (answer.status, answer.body) == (404, b"404 page not found\n")
        server.authorizer.allowed = False
        assert reason(await server.ask("GET", "/apis/nowhere.io/v1/things", X_User="eve")) == (403, "Forbidden")


async def test_protobuf_body_requires_a_decoder() -> None:
    kind = "application/vnd.kubernetes.protobuf"
    async with Fronted() as server:
        assert reason(await server.ask("POST", PODS, b"k8s\0", Content_Type=kind)) == (415, "UnsupportedMediaType")

    def decode(body: bytes, api_version: str, kind: str) -> dict[str, Any]:
        if body == b"torn":
            raise Malformed("unexpected EOF")
        return {"apiVersion": api_version, "kind": kind if body == b"k8s\0" else "Secret", "size": len(body)}

    async with Fronted(protobuf=decode) as server:
        assert (await server.ask("POST", PODS, b"k8s\0", Content_Type=kind)).json["size"] == 4
        assert (await server.ask("POST", WIDGETS, b"k8s\0", Content_Type=kind)).status == 415
        assert (await server.ask("POST", PODS, b"other", Content_Type=kind)).status == 400
        torn = await server.ask("POST", PODS, b"torn", Content_Type=kind)
        unrecognized = "the object provided is unrecognized (must be of type Pod): unexpected EOF (746f726e)"
        assert (torn.status, torn.json["message"]) == (400, unrecognized)


async def test_unauthorized_request_is_denied_before_body_is_read() -> None:
    async with Fronted() as server:
        server.registry.denied.add("eve")
        client = await server.client()
        client.send(f"POST {PODS} HTTP/1.1\r\nHost: h\r\nX-User: eve\r\nContent-Length: 3000000\r\n\r\n".encode())
        assert reason(await client.read_answer()) == (403, "Forbidden")


async def test_body_over_3_mib_returns_413() -> None:
    async with Fronted() as server:
        client = await server.client()
        client.send(f"POST {PODS} HTTP/1.1\r\nHost: h\r\nContent-Length: 3145729\r\n\r\n".encode())
        answer = await client.read_answer()
        assert reason(answer) == (413, "RequestEntityTooLarge")
        assert answer.json["message"] == "Request entity too large: limit is 3145728"


async def test_warnings_are_sent_as_headers_even_with_errors() -> None:
    async with Fronted() as server:
        server.registry.warnings = ['careful "you"', "bad\nline", 'careful "you"']
        answer = await server.ask("POST", PODS, b'{"kind":"Pod","a":1,"a":2}')
        assert answer.all("warning") == ['299 - "careful \\"you\\""', '299 - "duplicate field \\"a\\""']
        refused = await server.ask("POST", f"{PODS}?fieldValidation=Strict", b'{"kind":"Pod","a":1,"a":2}')
        assert refused.status == 400
        assert refused.all("warning") == ['299 - "careful \\"you\\""']
        old = await server.ask("GET", "/apis/example.com/v1beta1/namespaces/ns/widgets/a")
        assert '299 - "example.com/v1beta1 Widget is \\"old\\""' in old.all("warning")
        server.registry.warnings = [f"{n}" + "x" * 1000 for n in range(100)]
        assert sum(map(len, (await server.ask("GET", A_POD)).all("warning"))) < 6000


async def test_impersonated_user_reaches_the_registry() -> None:
    async with Fronted() as server:
        client = await server.client()
        client.send(
            f"GET {A_POD} HTTP/1.1\r\nHost: h\r\nImpersonate-User: bob\r\n"
            "Impersonate-Group: one\r\nImpersonate-Group: two\r\n\r\n".encode()
        )
        await client.read_answer()
        assert server.registry.calls[-1][1] == "bob"


async def test_unexpected_error_returns_500_with_audit_id(caplog: pytest.LogCaptureFixture) -> None:
    async with Fronted() as server:
        answer = await server.ask("GET", f"{PODS}/broken")
        assert reason(answer) == (500, "InternalError")
        assert b"secret detail" not in answer.body
        assert answer.header("audit-id") in answer.json["message"]
        assert answer.header("audit-id") in caplog.text
        assert "secret detail" in caplog.text


async def test_pod_log_is_streamed_as_plain_text() -> None:
    async with Fronted() as server:
        answer = await server.ask("GET", f"{A_POD}/log?container=c")
        assert (answer.body, answer.header("content-type")) == (b"line one\nline two\n", "text/plain")
        assert ("connect", {"container": "c"}) in server.registry.calls
        assert reason(await server.ask("GET", f"{PODS}/zzz/log")) == (404, "NotFound")
        server.registry.log = []
        assert (await server.ask("GET", f"{A_POD}/log")).body == b""


def creates(server: Fronted) -> int:
    """Count the create calls that reached the registry."""
    return sum(call[0] == "create" for call in server.registry.calls)


async def test_in_flight_writes_are_limited_per_user_except_system_masters() -> None:
    async with Fronted(limits=HttpLimits(user_requests=2)) as server:
        server.registry.hold = asyncio.Event()
        held = [asyncio.create_task(server.ask("POST", PODS, b"{}", X_User="bob")) for _ in range(2)]
        await until(lambda: creates(server) == 2)
        busy = await server.ask("POST", PODS, b"{}", X_User="bob")
        assert (busy.status, busy.header("retry-after")) == (429, "1")
        assert reason(busy) == (429, "TooManyRequests")
        assert "user bob has too many requests in progress: at most 2" in busy.json["message"]
        assert (await server.ask("GET", A_POD, X_User="bob")).status == 200
        others = [asyncio.create_task(server.ask("POST", PODS, b"{}", X_User="eve"))]
        others += [asyncio.create_task(server.ask("POST", PODS, b"{}")) for _ in range(3)]
        await until(lambda: creates(server) == 6)
        server.registry.hold.set()
        assert {(await task).status for task in (*held, *others)} == {201}
        assert server.front.metrics.writes_in_flight == 0


async def test_in_flight_body_bytes_are_limited_per_user() -> None:
    async with Fronted(limits=HttpLimits(user_bytes=1000)) as server:
        server.registry.hold = asyncio.Event()
        large = b'{"a":"' + b"x" * 2000 + b'"}'
        first = asyncio.create_task(server.ask("POST", PODS, large, X_User="bob"))
        await until(lambda: creates(server) == 1)
        assert reason(await server.ask("POST", PODS, b"{}", X_User="bob")) == (429, "TooManyRequests")
        server.registry.hold.set()
        assert (await first).status == 201
        assert (await server.ask("POST", PODS, b"{}", X_User="bob")).status == 201


async def test_writes_wait_for_a_free_seat_while_reads_proceed() -> None:
    async with Fronted(limits=HttpLimits(seats=1)) as server:
        server.registry.hold = asyncio.Event()
        names = ("bob", "bob", "bob", "eve")
        asked = [asyncio.create_task(server.ask("POST", PODS, b"{}", X_User=name)) for name in names]
        await until(lambda: creates(server) == 1 and server.front.metrics.writes_in_flight == 4)
        assert (await server.ask("GET", A_POD, X_User="bob")).status == 200
        server.registry.hold.set()
        assert {(await task).status for task in asked} == {201}
        assert creates(server) == 4


async def test_disconnected_waiting_client_releases_its_queue_place() -> None:
    async with Fronted(limits=HttpLimits(seats=1)) as server:
        server.registry.hold = asyncio.Event()
        first = asyncio.create_task(server.ask("POST", PODS, b"{}", X_User="bob"))
        await until(lambda: creates(server) == 1)
        leaving = await server.client()
        leaving.send(f"POST {PODS} HTTP/1.1\r\nHost: h\r\nX-User: eve\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        await until(lambda: server.front.metrics.writes_in_flight == 2)
        last = asyncio.create_task(server.ask("POST", PODS, b"{}", X_User="ann"))
        await until(lambda: server.front.metrics.writes_in_flight == 3)
        leaving.close()
        await until(lambda: server.front.metrics.writes_in_flight == 2)
        server.registry.hold.set()
        assert [(await task).status for task in (first, last)] == [201, 201]
        assert creates(server) == 2


async def test_watch_holds_no_seat() -> None:
    async with Fronted(limits=HttpLimits(seats=1, user_requests=1)) as server:
        watching = await server.client()
        watching.send(f"GET {PODS}?watch=1 HTTP/1.1\r\nHost: h\r\nX-User: bob\r\n\r\n".encode())
        await until(lambda: bool(server.registry.watches))
        assert (await server.ask("POST", PODS, b"{}", X_User="bob")).status == 201


# -- views -------------------------------------------------------------------------------------------------------


async def test_table_view_lists_columns_and_rows() -> None:
    async with Fronted() as server:
        widget = (
            b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","resourceVersion":"5",'
            b'"creationTimestamp":"2020-01-01T00:00:00Z"},"spec":{"size":3}}'
        )
        server.registry.page = Page([widget], Revision(8), "next", 2)
        table = (await server.ask("GET", WIDGETS, Accept=TABLE)).json
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        assert table["metadata"] == {"resourceVersion": "8", "continue": "next", "remainingItemCount": 2}
        assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Size", "Age"]
        name, size, age = table["rows"][0]["cells"]
        assert (name, size, age[-1]) == ("w", 3, "d" if "y" not in age else age[-1])
        assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
        none = (await server.ask("GET", f"{WIDGETS}?includeObject=None", Accept=TABLE)).json
        assert none["rows"][0]["object"] is None
        server.registry.objects["w"] = widget
        whole = (await server.ask("GET", f"{WIDGETS}/w?includeObject=Object", Accept=TABLE)).json
        assert whole["rows"][0]["object"] == msgspec.json.decode(widget)
        assert whole["metadata"] == {"resourceVersion": "5"}
        bad = await server.ask("GET", f"{WIDGETS}?includeObject=Bad", Accept=TABLE)
        assert reason(bad) == (400, "BadRequest")


async def test_partial_object_metadata_view_returns_metadata_only() -> None:
    view = "application/json;as={};g=meta.k8s.io;v=v1"
    async with Fronted() as server:
        one = (await server.ask("GET", A_POD, Accept=view.format("PartialObjectMetadata"))).json
        metadata = msgspec.json.decode(pod("a"))["metadata"]
        assert one == {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        many = (await server.ask("GET", PODS, Accept=view.format("PartialObjectMetadataList"))).json
        assert many["kind"] == "PartialObjectMetadataList"
        assert [item["metadata"]["name"] for item in many["items"]] == ["a", "b"]
        wrong = await server.ask("GET", PODS, Accept=view.format("PartialObjectMetadata"))
        assert reason(wrong) == (406, "NotAcceptable")


async def test_status_response_is_not_converted_to_table() -> None:
    async with Fronted() as server:
        assert (await server.ask("DELETE", A_POD, Accept=TABLE)).json["kind"] == "Status"
