"""Where hosts find the manager: what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.app.process import StartRefused
from remuda.app.site import SiteSettings, warn_of_unknown_name
from tests.lab.chains import CompanyAuthority

HERE = ("127.0.0.1", 6443)


@pytest.mark.parametrize(
    ("url", "listen", "name", "settled"),
    [
        ("", HERE, "127.0.0.1", "https://127.0.0.1:6443"),
        ("", ("::1", 443), "::1", "https://[::1]:443"),
        ("https://manager.example/", ("0.0.0.0", 1), "manager.example", "https://manager.example"),
        ("https://10.0.0.1:8443", HERE, "10.0.0.1", "https://10.0.0.1:8443"),
    ],
)
def test_server_url_is_derived_from_option_or_listen_address(
    url: str, listen: tuple[str, int], name: str, settled: str
) -> None:
    settings = SiteSettings(server_url=url)
    assert settings.name(listen) == name
    site = settings.settled(listen, b"PEM")
    assert (site.server_url, site.ca_pem) == (settled, b"PEM\n")


@pytest.mark.parametrize(
    ("url", "listen", "said"),
    [
        ("", ("0.0.0.0", 6443), "hosts cannot reach this server at the listening address 0.0.0.0:6443"),
        ("", ("::", 6443), r"at the listening address \[::\]:6443: add --server-url"),
        ("https://0.0.0.0:6443", HERE, "no host can connect to 0.0.0.0"),
        ("http://a", HERE, "must be an https URL"),
        ("manager.example", HERE, "must be an https URL"),
        ("https://", HERE, "must be an https URL"),
        ("https://a/path", HERE, "must consist of host and port only"),
        ("https://u:p@a", HERE, "must consist of host and port only"),
        ("https://a:port", HERE, "is not a valid URL"),
    ],
)
def test_server_url_unusable_by_hosts_is_rejected(url: str, listen: tuple[str, int], said: str) -> None:
    with pytest.raises(StartRefused, match=said):
        SiteSettings(server_url=url).name(listen)


def test_unusable_site_files_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no")
    for settings, said in (
        (SiteSettings(assets=tmp_path / "none"), "is not a directory"),
        (SiteSettings(server_ca=tmp_path / "none"), "cannot read --server-ca .*: No such file or directory"),
        (SiteSettings(server_ca=tmp_path / "no.pem"), "contains no PEM certificate"),
    ):
        with pytest.raises(StartRefused, match=said):
            settings.check()


@pytest.mark.parametrize(
    ("url", "only_here"),
    [
        ("https://127.0.0.9:1", True),
        ("https://[::1]:1", True),
        ("https://localhost", True),
        ("https://10.0.0.1", False),
    ],
)
def test_loopback_server_url_is_detected(url: str, only_here: bool) -> None:
    site = SiteSettings(server_url=url).settled(HERE, b"PEM")
    assert site.only_here == (url if only_here else "")


def test_trusted_ca_bundle_includes_own_ca(tmp_path: Path) -> None:
    ours, theirs = CompanyAuthority("Ours").root, CompanyAuthority("Theirs").root
    (tmp_path / "ca.pem").write_bytes(theirs)
    assert SiteSettings(server_ca=tmp_path / "ca.pem").settled(HERE, ours).ca_pem == theirs + ours
    assert SiteSettings().settled(HERE, ours).ca_pem == ours


def test_custom_certificate_must_cover_the_listen_address(tmp_path: Path) -> None:
    chain, key = CompanyAuthority().files(tmp_path, "remuda.example.com", "10.0.0.1")
    settings = SiteSettings(server_url="https://remuda.example.com", tls_cert=chain, tls_key=key)
    for fine in ("0.0.0.0", "127.0.0.1", "10.0.0.1"):
        assert settings.presented((fine, 6443)) is not None
    with pytest.raises(StartRefused, match=r"it must be valid for 10[.]0[.]0[.]2 of --listen, too"):
        settings.presented(("10.0.0.2", 6443))
    assert SiteSettings().presented(HERE) is None


@pytest.mark.parametrize(("url", "told"), [("https://no-such-name.invalid:1", True), ("https://127.0.0.1:1", False)])
async def test_unresolvable_server_url_name_is_logged(url: str, told: bool, caplog: pytest.LogCaptureFixture) -> None:
    await warn_of_unknown_name(SiteSettings(server_url=url).settled(HERE, b"PEM"))
    assert ["cannot resolve no-such-name.invalid of --server-url" in text for text in caplog.messages] == (
        [True] if told else []
    )
