"""Independent witnesses: clients that others wrote for the real server, on ours, over its wire.

What they decode, raise and resume is asserted, not only that they got through.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import kubernetes as k8s
import pytest

from tests.lab import Ours
from tests.lab.limits import LIMIT_SECONDS

GROUP = "ranch.example"


@pytest.fixture(scope="session")
def server() -> Iterator[Ours]:
    running = Ours()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def api(server: Ours) -> k8s.client.ApiClient:
    configuration = k8s.client.Configuration()
    k8s.config.load_kube_config(str(server.kubeconfig), client_configuration=configuration)
    return k8s.client.ApiClient(configuration)


@pytest.fixture(scope="session")
def core(api: k8s.client.ApiClient) -> k8s.client.CoreV1Api:
    return k8s.client.CoreV1Api(api)


@pytest.fixture
def space(core: k8s.client.CoreV1Api) -> str:
    """A namespace of the test's own."""
    name = f"space-{secrets.token_hex(4)}"
    core.create_namespace({"metadata": {"name": name}})
    return name


@pytest.fixture(scope="session")
def horses(api: k8s.client.ApiClient) -> str:
    """A custom resource with a schema, status and scale."""
    properties = {
        "spec": {
            "type": "object",
            "properties": {
                "legs": {"type": "integer", "minimum": 3, "default": 4},
                "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    names = {"kind": "Horse", "plural": "horses", "singular": "horse", "shortNames": ["ho"]}
    extensions = k8s.client.ApiextensionsV1Api(api)
    made = extensions.create_custom_resource_definition(
        {
            "metadata": {"name": f"horses.{GROUP}"},
            "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
        }
    )
    assert made.spec.names.list_kind == "HorseList"
    watch = k8s.watch.Watch()
    for event in watch.stream(
        extensions.list_custom_resource_definition,
        field_selector=f"metadata.name=horses.{GROUP}",
        timeout_seconds=int(LIMIT_SECONDS),
    ):
        conditions = event["object"].status.conditions or []
        if any(c.type == "Established" and c.status == "True" for c in conditions):
            watch.stop()
            return "horses"
    raise AssertionError("the definition was not established")
