"""Where hosts find the manager: what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.app.process import StartRefused
from remuda.app.site import SiteSettings, tell_of_unknown_name
from tests.lab.chains import Company

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
def test_where_hosts_find_it(url: str, listen: tuple[str, int], name: str, settled: str) -> None:
    settings = SiteSettings(server_url=url)
    assert settings.name(listen) == name
    site = settings.settled(listen, b"PEM")
    assert (site.server_url, site.ca_pem) == (settled, b"PEM\n")


@pytest.mark.parametrize(
    ("url", "listen", "said"),
    [
        ("", ("0.0.0.0", 6443), "listening on 0.0.0.0:6443 does not say where hosts find this server"),
        ("", ("::", 6443), "does not say where hosts find this server: add --server-url"),
        ("https://0.0.0.0:6443", HERE, "no host can connect to 0.0.0.0"),
        ("http://a", HERE, "over https only"),
        ("manager.example", HERE, "over https only"),
        ("https://", HERE, "over https only"),
        ("https://a/path", HERE, "nothing may follow the host and its port"),
        ("https://u:p@a", HERE, "nothing may follow"),
        ("https://a:port", HERE, "is no URL"),
    ],
)
def test_what_hosts_could_not_use_is_refused(url: str, listen: tuple[str, int], said: str) -> None:
    with pytest.raises(StartRefused, match=said):
        SiteSettings(server_url=url).name(listen)


def test_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no")
    for settings, said in (
        (SiteSettings(assets=tmp_path / "none"), "is not a directory"),
        (SiteSettings(server_ca=tmp_path / "none"), "cannot be read: No such file or directory"),
        (SiteSettings(server_ca=tmp_path / "no.pem"), "has no certificate in PEM"),
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
def test_what_only_this_machine_can_use_is_known(url: str, only_here: bool) -> None:
    site = SiteSettings(server_url=url).settled(HERE, b"PEM")
    assert site.only_here == (url if only_here else "")


def test_what_hosts_trust_is_a_set_with_our_own_authority_in_it(tmp_path: Path) -> None:
    ours, theirs = Company("Ours").root, Company("Theirs").root
    (tmp_path / "ca.pem").write_bytes(theirs)
    assert SiteSettings(server_ca=tmp_path / "ca.pem").settled(HERE, ours).ca_pem == theirs + ours
    assert SiteSettings().settled(HERE, ours).ca_pem == ours


def test_a_certificate_that_is_shown_at_addresses_is_for_the_one_that_is_listened_on(tmp_path: Path) -> None:
    chain, key = Company().files(tmp_path, "remuda.example.com", "10.0.0.1")
    settings = SiteSettings(server_url="https://remuda.example.com", tls_cert=chain, tls_key=key)
    for fine in ("0.0.0.0", "127.0.0.1", "10.0.0.1"):
        assert settings.presented((fine, 6443)) is not None
    with pytest.raises(StartRefused, match=r"it must be for 10[.]0[.]0[.]2 of --listen, too"):
        settings.presented(("10.0.0.2", 6443))
    assert SiteSettings().presented(HERE) is None


@pytest.mark.parametrize(("url", "told"), [("https://no-such-name.invalid:1", True), ("https://127.0.0.1:1", False)])
async def test_a_name_that_is_not_known_here_is_told_of(url: str, told: bool, caplog: pytest.LogCaptureFixture) -> None:
    await tell_of_unknown_name(SiteSettings(server_url=url).settled(HERE, b"PEM"))
    assert ["the name no-such-name.invalid of --server-url is not known here" in text for text in caplog.messages] == (
        [True] if told else []
    )
