"""What the API server is told."""

from __future__ import annotations

import msgspec
import pytest

from remuda.apiserver.server import ApiServer
from remuda.kube.admission import ALLOWED
from remuda.kube.client import Target
from remuda.kube.objects import Key
from remuda.runtime.webhooks.configuration import MUTATING, VALIDATING, Location, configurations, register, unregister
from remuda.runtime.webhooks.review import Webhook
from tests.suites.client import loads
from tests.suites.horses import horse_webhook

HORSES = horse_webhook("ranch.example")
URL = Location(url="https://10.0.0.1:9443/")


def test_configurations_have_one_webhook_per_kind_and_call() -> None:
    (_, mutating), (_, validating) = configurations("remuda", [HORSES], URL, b"CA")
    (entry,) = mutating["webhooks"]
    assert entry == {
        "name": "default.horse.ranch.example",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://10.0.0.1:9443/mutate-ranch-example-v1-horse", "caBundle": "Q0E="},
        "rules": [
            {
                "apiGroups": ["ranch.example"],
                "apiVersions": ["v1"],
                "resources": ["horses"],
                "operations": ["CREATE", "UPDATE"],
                "scope": "*",
            }
        ],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": 10,
    }
    (entry,) = validating["webhooks"]
    assert entry["name"] == "validation.horse.ranch.example"
    assert entry["rules"][0]["operations"] == ["CREATE", "UPDATE", "DELETE"]


def test_webhook_match_condition_is_rendered() -> None:
    narrow = msgspec.structs.replace(HORSES, only="request.userInfo.username == 'rider'")
    for _, configuration in configurations("remuda", [narrow], URL, b"CA"):
        (entry,) = configuration["webhooks"]
        (condition,) = entry["matchConditions"]
        assert condition["expression"] == "request.userInfo.username == 'rider'"


def test_service_location_renders_client_config() -> None:
    location = Location(service=Key("remuda-system", "webhooks"), service_port=8443)
    assert location.names[0] == "webhooks.remuda-system.svc"
    assert location.client_config("/p", b"CA") == {
        "service": {"namespace": "remuda-system", "name": "webhooks", "path": "/p", "port": 8443},
        "caBundle": "Q0E=",
    }


def test_url_location_yields_certificate_names() -> None:
    assert URL.names == ("10.0.0.1",)
    assert Location(url="https://[fd00::1]:1/x").names == ("fd00::1",)


@pytest.mark.parametrize(
    "wrong", [{}, {"url": "https://a", "service": Key("a", "b")}, {"url": "http://a"}, {"url": "a"}]
)
def test_invalid_webhook_location_is_rejected(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Location(**wrong)  # type: ignore[arg-type]


async def test_webhook_registration_is_idempotent_and_updates_ca_bundle(server: ApiServer) -> None:
    client = server.client()
    await register(client, "remuda", [HORSES], URL, b"CA")
    first = [await client.get(target, "", "remuda") for target in (MUTATING, VALIDATING)]
    await register(client, "remuda", [HORSES], URL, b"CA")
    assert [await client.get(target, "", "remuda") for target in (MUTATING, VALIDATING)] == first
    await register(client, "remuda", [HORSES], URL, b"CB")
    for target in (MUTATING, VALIDATING):
        (entry,) = loads(await client.get(target, "", "remuda"))["webhooks"]
        assert entry["clientConfig"]["caBundle"] == "Q0I="


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("https://hooks.remuda.svc", Location(service=Key("remuda", "hooks"))),
        ("https://hooks.remuda.svc:8443/", Location(service=Key("remuda", "hooks"), service_port=8443)),
        ("https://10.0.0.1:9443", Location(url="https://10.0.0.1:9443")),
        ("https://hooks.remuda.svc/below", Location(url="https://hooks.remuda.svc/below")),
        ("https://hooks.remuda.svc.example.com", Location(url="https://hooks.remuda.svc.example.com")),
    ],
)
def test_service_location_is_recognized_from_url(url: str, location: Location) -> None:
    assert Location.at(url) == location


@pytest.mark.parametrize("url", ["http://hooks.remuda.svc", "hooks.remuda.svc", ""])
def test_webhook_url_without_https_is_rejected(url: str) -> None:
    with pytest.raises(ValueError):
        Location.at(url)


async def test_unregister_removes_only_own_webhooks_once(server: ApiServer) -> None:
    client = server.client()
    await register(client, "remuda", [HORSES], URL, b"CA")
    await register(client, "others", [HORSES], URL, b"CA")
    assert await unregister(client, "remuda") is True
    assert await unregister(client, "remuda") is False
    for target in (MUTATING, VALIDATING):
        left = [loads(item)["metadata"]["name"] for item in (await client.list(target)).items]
        assert left == ["others"]


async def test_unregister_removes_partial_registration(server: ApiServer) -> None:
    client = server.client()
    await register(client, "remuda", [HORSES], URL, b"CA")
    await client.delete(MUTATING, "", "remuda")
    assert await unregister(client, "remuda") is True
    assert (await client.list(VALIDATING)).items == []


def test_webhook_can_match_every_resource_of_a_group() -> None:
    """Kinds that come and go need no new registration."""
    every = Webhook(
        kind="MachineConfig",
        target=Target("ranch.example/v1", "*"),
        function=lambda review: ALLOWED,
        operations=("UPDATE",),
    )
    (_, validating) = (wanted for _, wanted in configurations("r", [every], Location(url="https://a.example"), b"ca"))
    (entry,) = validating["webhooks"]
    assert entry["name"] == "validation.machineconfig.ranch.example"
    assert entry["rules"][0]["resources"] == ["*"]
    assert entry["clientConfig"]["url"] == "https://a.example/validate-ranch-example-v1-machineconfig"
