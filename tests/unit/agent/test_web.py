"""HTTPS: verified, through proxies, with clocks named."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from remuda.agent import web
from tests.lab.certificates import Authority, key_pem, new_key
from tests.lab.limits import LIMIT_SECONDS
from tests.unit.agent.https import Answer, Asked, serving

AUTHORITY = Authority("ca")


def hello(_: Asked) -> Answer:
    return 200, {}, b"hello"


def test_server_certificate_must_match_the_given_ca_and_address(tmp_path: Path) -> None:
    with serving(hello, AUTHORITY.server("127.0.0.1"), tmp_path) as port:
        url = f"https://127.0.0.1:{port}/"
        assert web.get(url, web.context(AUTHORITY.pem.decode()), {}, seconds=LIMIT_SECONDS).content == b"hello"
        with pytest.raises(web.ServerUnreachable, match="cannot verify its certificate: unable to get local issuer"):
            web.get(url, web.context(Authority("else").pem.decode()), {}, seconds=LIMIT_SECONDS)
        with pytest.raises(web.ServerUnreachable, match="cannot verify its certificate"):
            web.get(url, web.context(None), {}, seconds=LIMIT_SECONDS)
    with (
        serving(hello, AUTHORITY.server("127.0.0.1"), tmp_path, address="127.0.0.2") as port,
        pytest.raises(web.ServerUnreachable, match="IP address mismatch"),
    ):
        web.get(f"https://127.0.0.2:{port}/", web.context(AUTHORITY.pem.decode()), {}, seconds=LIMIT_SECONDS)


def test_oversized_response_raises_unreachable(tmp_path: Path) -> None:
    with serving(lambda _: (200, {}, b"x" * 100_000), AUTHORITY.server("127.0.0.1"), tmp_path) as port:
        trust = web.context(AUTHORITY.pem.decode())
        with pytest.raises(web.ServerUnreachable, match="larger than 1000 bytes"):
            web.get(f"https://127.0.0.1:{port}/", trust, {}, seconds=LIMIT_SECONDS, most=1000)


@pytest.mark.parametrize(("days", "word"), [(1, "behind"), (-3, "ahead of")])
def test_certificate_validity_error_reports_clock_skew(tmp_path: Path, days: int, word: str) -> None:
    """To a host whose clock is off, a good certificate looks like this, and the server tells another time."""
    there = datetime.now(UTC) + timedelta(days=days)
    certificate = _valid_around(there)
    date = formatdate(there.timestamp(), usegmt=True)
    with serving(hello, certificate, tmp_path, date=date) as port, pytest.raises(web.ServerUnreachable) as caught:
        web.get(f"https://127.0.0.1:{port}/", web.context(AUTHORITY.pem.decode()), {}, seconds=LIMIT_SECONDS)
    amount = "24 hours" if days == 1 else "3 days"
    assert f"the clock of this host is {amount} {word} the server's" in str(caught.value)


def _valid_around(moment: datetime) -> tuple[bytes, bytes]:
    import ipaddress

    key = new_key()
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")]))
        .issuer_name(AUTHORITY.name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - timedelta(hours=1))
        .not_valid_after(moment + timedelta(hours=1))
        .add_extension(names, critical=False)
    )
    signed = builder.sign(AUTHORITY.key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM), key_pem(key)


def test_small_clock_skew_is_not_reported() -> None:
    now = time.time()
    assert web.skew_in_words(web.skew({"date": formatdate(now - 20, usegmt=True)}, now)) == ""
    assert web.skew_in_words(web.skew({}, now)) == ""
    assert web.skew_in_words(-300.0) == "the clock of this host is 5 minutes behind the server's"


@given(st.integers(0, 4_000_000_000))
def test_http_date_is_parsed(seconds: int) -> None:
    assert web.http_date(formatdate(seconds, usegmt=True)) == seconds
    assert web.http_date("yesterday") is None


@pytest.mark.parametrize(
    ("url", "environment", "proxied"),
    [
        ("https://manager", {}, False),
        ("https://manager", {"HTTPS_PROXY": "http://p:3128"}, True),
        ("https://manager", {"https_proxy": "p:3128"}, True),
        ("https://manager", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "a, manager"}, False),
        ("https://manager.corp", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": ".corp"}, False),
        ("https://manager.corp", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "corp"}, False),
        ("https://managercorp", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "corp"}, True),
        ("https://10.1.2.3", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "10.0.0.0/8"}, False),
        ("https://11.1.2.3", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "10.0.0.0/8"}, True),
        ("https://manager", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "*"}, False),
        ("https://127.0.0.1", {"HTTPS_PROXY": "http://p:3128"}, False),
    ],
)
def test_proxy_is_selected_from_environment_variables(url: str, environment: dict[str, str], proxied: bool) -> None:
    found = web.proxy_for(web.parse(url), environment)
    assert found == (web.ServerUrl("http", "p", 3128, "/") if proxied else None)
