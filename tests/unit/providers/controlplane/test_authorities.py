"""Authorities as the plans of servers have them: what is put back when their Secrets were deleted."""

from __future__ import annotations

import base64
import json

import pytest

from remuda.kube.core import Secret
from remuda.providers.controlplane.authorities import ACCOUNTS, CERTIFICATE, CLUSTER, ETCD, KEY, delivered_authority
from tests.controllers.certificates import authority

DATA = "/var/lib/rancher/k3s"
OTHER = authority(days=100)


def plan(**files: bytes) -> Secret:
    """A plan Secret. `files`: by their paths below the server's TLS directory."""
    entries = [
        {"path": f"{DATA}/server/tls/{path}", "content": base64.b64encode(content).decode()}
        for path, content in files.items()
    ]
    return Secret(data={"plan": json.dumps({"files": entries}).encode()})


def with_authority(given: dict[str, bytes], place: str = "server-ca") -> Secret:
    return plan(**{f"{place}.crt": given[CERTIFICATE], f"{place}.key": given[KEY]})


def test_authority_shared_by_all_servers_is_restored() -> None:
    given = authority()
    assert delivered_authority(CLUSTER, [with_authority(given), with_authority(given)]) == given
    assert delivered_authority(ETCD, [with_authority(given, "etcd/server-ca")]) == given


def test_service_account_key_is_restored_with_public_key() -> None:
    key = authority()[KEY]
    found = delivered_authority(ACCOUNTS, [plan(**{"service.key": key})])
    assert found is not None
    assert found[KEY] == key
    assert found[CERTIFICATE].startswith(b"-----BEGIN PUBLIC KEY-----")


@pytest.mark.parametrize(
    "plans",
    [
        [],
        [plan()],
        [with_authority(authority()), with_authority(OTHER)],
        [with_authority({CERTIFICATE: authority()[CERTIFICATE], KEY: OTHER[KEY]})],
        [with_authority({CERTIFICATE: b"nonsense", KEY: b"nonsense"})],
        [Secret(data={"plan": b"nonsense"})],
        [Secret(data={"plan": b'{"files": [7]}'})],
        [Secret(data={"plan": b"[]"})],
    ],
    ids=["no servers", "not there", "two of them", "another key", "no authority", "no JSON", "no file", "no plan"],
)
def test_ambiguous_authority_is_not_restored(plans: list[Secret]) -> None:
    assert delivered_authority(CLUSTER, plans) is None
