"""The webhooks' certificates and the Secret they live in."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.apiserver.server import ApiServer
from remuda.kube import certificates as x
from remuda.kube.errors import StatusError
from remuda.kube.objects import Key
from remuda.runtime.webhooks.certificates import CA_DAYS, SECRET, SERVING_DAYS, ensure, renewal

NAMES = ("10.0.0.1", "webhooks.a.svc")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = Key("default", "remuda-webhooks")


def made(
    days: float = 0, before: Mapping[str, bytes] | None = None, names: tuple[str, ...] = NAMES
) -> dict[str, bytes]:
    found = renewal(before or {}, names, (NOW + timedelta(days=days)).timestamp())
    assert found is not None
    return found


def is_good(data: Mapping[str, bytes], days: float = 0, names: tuple[str, ...] = NAMES) -> bool:
    return renewal(data, names, (NOW + timedelta(days=days)).timestamp()) is None


def bundle(data: Mapping[str, bytes]) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(data["ca.crt"])


def serving(data: Mapping[str, bytes]) -> x509.Certificate:
    return x509.load_pem_x509_certificate(data["tls.crt"])


FIRST = made()


def test_first_serving_certificate_is_valid_for_all_names() -> None:
    assert x.is_issued_by(serving(FIRST), bundle(FIRST)[0])
    assert x.alternative_names(serving(FIRST)) == frozenset(NAMES)
    assert is_good(FIRST)
    assert is_good(FIRST, SERVING_DAYS * 0.6)


def test_serving_certificate_is_renewed_long_before_expiry() -> None:
    later = SERVING_DAYS * 0.7
    assert not is_good(FIRST, later)
    second = made(later, FIRST)
    assert (second["ca.crt"], second["ca.key"]) == (FIRST["ca.crt"], FIRST["ca.key"])
    assert second["tls.key"] != FIRST["tls.key"]
    assert is_good(second, later)


def test_new_dns_names_require_a_new_certificate() -> None:
    assert is_good(FIRST, names=NAMES[:1])
    assert not is_good(FIRST, names=(*NAMES, "10.0.0.2"))
    assert x.alternative_names(serving(made(0, FIRST, ("10.0.0.2",)))) == {"10.0.0.2"}


def test_renewed_ca_keeps_previous_ca_in_bundle() -> None:
    later = CA_DAYS * 0.7
    second = made(later, FIRST)
    new, old = bundle(second)
    assert old == bundle(FIRST)[0]
    assert x.is_issued_by(serving(second), new)
    assert is_good(second, later)
    third = made(later + CA_DAYS * 0.7, second)
    assert bundle(third)[1:] == [new]


@pytest.mark.parametrize("lost", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
@pytest.mark.parametrize("by", [b"", b"rubbish", FIRST["tls.crt"] + FIRST["ca.crt"], made()["ca.key"]])
def test_broken_certificate_data_is_replaced(lost: str, by: bytes) -> None:
    broken = {**FIRST, lost: by}
    if lost == "tls.crt" and by.startswith(FIRST["tls.crt"]):
        assert is_good(broken)
        return
    assert not is_good(broken)
    assert is_good(made(0, broken))


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from(["ca.crt", "ca.key", "tls.crt", "tls.key"]), st.binary(max_size=30)))
def test_arbitrary_secret_data_yields_a_valid_certificate(data: dict[str, bytes]) -> None:
    assert is_good(made(0, data))


async def test_replicas_share_one_serving_certificate(server: ApiServer) -> None:
    client = server.client()
    found = await asyncio.gather(*(ensure(client, KEY, NAMES) for _ in range(5)))
    assert len({one.certificate_pem for one in found}) == 1
    stored = SECRET.decode(await client.get(SECRET.target, *KEY))
    assert stored.data["tls.crt"] == found[0].certificate_pem
    assert found[0].renew_at == pytest.approx(
        (datetime.now(UTC) + timedelta(days=SERVING_DAYS * 2 / 3)).timestamp(), abs=3600
    )


async def test_valid_certificate_secret_is_not_rewritten(server: ApiServer) -> None:
    client = server.client()
    await ensure(client, KEY, NAMES)
    before = await client.get(SECRET.target, *KEY)
    assert (await ensure(client, KEY, NAMES)).ca_pem in SECRET.decode(before).data.values()
    assert await client.get(SECRET.target, *KEY) == before


async def test_empty_certificate_secret_is_filled_and_keeps_labels(server: ApiServer) -> None:
    client = server.client()
    await client.create(SECRET.target, KEY.namespace, {"metadata": {"name": KEY.name, "labels": {"mine": "yes"}}})
    await ensure(client, KEY, NAMES)
    stored = SECRET.decode(await client.get(SECRET.target, *KEY))
    assert (len(stored.data), stored.metadata.labels) == (4, {"mine": "yes"})


async def test_certificate_secret_in_missing_namespace_raises_not_found(server: ApiServer) -> None:
    with pytest.raises(StatusError) as caught:
        await ensure(server.client(), Key("nowhere", "a"), NAMES)
    assert caught.value.code == 404
