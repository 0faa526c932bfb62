"""Where hosts find the manager: what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.app.process import Refused
from remuda.app.site import Settings

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
    settings = Settings(server_url=url)
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
    with pytest.raises(Refused, match=said):
        Settings(server_url=url).name(listen)


def test_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no")
    for settings, said in (
        (Settings(assets=tmp_path / "none"), "is not a directory"),
        (Settings(server_ca=tmp_path / "none"), "cannot be read: No such file or directory"),
        (Settings(server_ca=tmp_path / "no.pem"), "has no certificate in PEM"),
    ):
        with pytest.raises(Refused, match=said):
            settings.check()
