from __future__ import annotations

from typing import Any, cast

import pytest

from remuda.apiserver.http.negotiate import (
    Form,
    aggregated_discovery_version,
    body_media_type,
    negotiate,
    negotiate_stream,
    parse_accept,
    patch_kind,
    wants_pretty,
)
from remuda.kube.errors import StatusError
from remuda.kube.web import Request

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
KUBECTL = f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
PARTIAL = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def asking(target: str = "/", **headers: str) -> Request:
    named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return Request(cast(Any, None), "GET", target, named)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", Form()),
        ("*/*", Form()),
        ("application/*", Form()),
        ("application/json", Form()),
        ("application/json;stream=watch", Form()),
        ("application/json;pretty=1", Form(pretty=True)),
        ("application/yaml", Form("yaml")),
        ("application/yaml;q=0.5,application/json;q=0.4", Form("yaml")),
        ("text/html,*/*;q=0.1", Form()),
        ("application/vnd.kubernetes.protobuf,application/json", Form()),
        ("application/vnd.kubernetes.protobuf, */*", Form()),
        (KUBECTL, Form("json", "Table", "meta.k8s.io", "v1")),
        ("application/json;as=Table;g=meta.k8s.io;v=v9,application/json", Form()),
        ("application/json;as=Other;g=meta.k8s.io;v=v1,application/json", Form()),
        (f"{PARTIAL},application/json", Form()),
        (
            f"{PARTIAL},application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
            Form("json", "PartialObjectMetadataList", "meta.k8s.io", "v1"),
        ),
    ],
)
def test_accept_header_selects_response_form(accept: str, expected: Form) -> None:
    assert negotiate(asking(accept=accept)) == expected


@pytest.mark.parametrize("accept", ["text/html", "application/vnd.kubernetes.protobuf", "application/json;as=Table"])
def test_unsupported_accept_header_returns_406(accept: str) -> None:
    with pytest.raises(StatusError) as caught:
        negotiate(asking(accept=accept))
    assert (caught.value.code, caught.value.reason) == (406, "NotAcceptable")
    assert caught.value.message.startswith("only the following media types are accepted: application/json")


def test_yaml_watch_is_rejected_with_406() -> None:
    with pytest.raises(StatusError) as caught:
        negotiate_stream(asking(accept="application/yaml"))
    assert caught.value.code == 406


def test_accept_clauses_are_ordered_by_quality_and_specificity() -> None:
    order = [f"{c.type}/{c.subtype}" for c in parse_accept("*/*,a/*,a/b,a/c;q=0.9,x/y")]
    assert order == ["a/b", "x/y", "a/*", "*/*", "a/c"]


@pytest.mark.parametrize(
    ("target", "agent", "pretty"),
    [
        ("/", "kubectl/v1", False),
        ("/", "curl/8", True),
        ("/?pretty=false", "curl/8", False),
        ("/?pretty=true", "kubectl", True),
        ("/", "Mozilla/5.0 (X11)", True),
    ],
)
def test_pretty_json_depends_on_user_agent_and_query(target: str, agent: str, pretty: bool) -> None:
    assert wants_pretty(asking(target, user_agent=agent), Form()) is pretty


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "v2"),
        (
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,"
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
            "v2beta1",
        ),
        ("application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json", ""),
        ("application/json", ""),
        ("*/*", ""),
    ],
)
def test_accept_header_selects_aggregated_discovery_version(accept: str, version: str) -> None:
    assert aggregated_discovery_version(accept.encode()) == version


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("application/json-patch+json", "json"),
        ("application/merge-patch+json; charset=utf-8", "merge"),
        ("application/strategic-merge-patch+json", "strategic"),
        ("application/apply-patch+yaml", "apply"),
    ],
)
def test_content_type_selects_patch_kind(content_type: str, kind: str) -> None:
    assert patch_kind(asking(content_type=content_type), strategic=True) == kind


def test_strategic_merge_patch_of_custom_resource_returns_415() -> None:
    with pytest.raises(StatusError) as caught:
        patch_kind(asking(content_type="application/strategic-merge-patch+json"), strategic=False)
    assert caught.value.code == 415
    assert "strategic" not in caught.value.message
    assert "application/apply-patch+yaml" in caught.value.message


def test_body_content_type_is_defaulted_and_unsupported_returns_415() -> None:
    assert body_media_type(asking(), ("a/b",)) == "a/b"
    assert body_media_type(asking(content_type="Application/JSON; charset=utf-8"), ("application/json",))
    with pytest.raises(StatusError) as caught:
        body_media_type(asking(content_type="text/plain"), ("application/json",))
    assert caught.value.code == 415
