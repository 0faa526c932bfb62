"""Probes, against real servers."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from remuda.agent.plan import Probe
from remuda.agent.probes import ProbedHost, look, trouble
from tests.lab.certificates import Authority
from tests.lab.limits import LIMIT_SECONDS
from tests.unit.agent.https import Answer, Asked, serving

AUTHORITY = Authority("ca")
PATIENT = int(LIMIT_SECONDS)


def answers(asked: Asked) -> Answer:
    code, _, location = asked.path.lstrip("/").partition("?to=")
    return int(code), {"Location": location} if location else {}, b"ok"


@pytest.mark.parametrize(
    ("path", "well"),
    [
        ("/200", True),
        ("/204", True),
        ("/399", False),
        ("/400", False),
        ("/500", False),
        ("/302?to=/200", True),
        ("/302?to=/500", False),
        ("/302?to=http://127.0.0.2:9/200", False),
    ],
)
def test_probe_success_depends_on_status_and_redirect_target(tmp_path: Path, path: str, well: bool) -> None:
    with serving(answers, None, tmp_path) as port:
        assert (
            trouble(Probe("p", f"http://127.0.0.1:{port}{path}", timeout_seconds=PATIENT), ProbedHost()) == ""
        ) is well


def test_probe_redirect_loop_is_reported(tmp_path: Path) -> None:
    with serving(lambda _: (302, {"Location": "/again"}, b""), None, tmp_path) as port:
        probe = Probe("p", f"http://127.0.0.1:{port}/", timeout_seconds=PATIENT)
        assert trouble(probe, ProbedHost()) == "redirects without an end"


def test_probe_reads_ca_and_client_certificate_from_host_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    certificate, key = AUTHORITY.client("probe")
    for name, content in (("ca", AUTHORITY.pem), ("cert", certificate), ("key", key), ("else", Authority("x").pem)):
        (root / name).write_bytes(content)
    served = AUTHORITY.server("127.0.0.1")
    with serving(answers, served, tmp_path, client_ca=AUTHORITY.pem) as port:
        url = f"https://127.0.0.1:{port}/200"
        host = ProbedHost(str(root))
        whole = Probe("p", url, ca_cert="/ca", client_cert="/cert", client_key="/key", timeout_seconds=PATIENT)
        assert trouble(whole, host) == ""
        assert "cannot verify" in trouble(whole._replace(ca_cert="/else"), host)
        assert trouble(whole._replace(ca_cert="/else", insecure=True), host) == ""
        assert trouble(whole._replace(client_cert=""), host) != ""
        assert "No such file" in trouble(whole._replace(ca_cert="/missing"), host)


def test_loopback_probe_dials_host_address_and_verifies_loopback_certificate(tmp_path: Path) -> None:
    (tmp_path / "ca").write_bytes(AUTHORITY.pem)
    with serving(answers, AUTHORITY.server("127.0.0.1"), tmp_path, address="127.0.0.77") as port:
        probe = Probe("p", f"https://127.0.0.1:{port}/200", ca_cert="/ca", timeout_seconds=PATIENT)
        assert trouble(probe, ProbedHost(str(tmp_path), "127.0.0.77")) == ""
        assert trouble(probe, ProbedHost(str(tmp_path))) == "Connection refused"


def test_probes_run_concurrently_and_slow_probe_times_out(tmp_path: Path) -> None:
    release, both_asked = threading.Event(), threading.Barrier(2, timeout=LIMIT_SECONDS)

    def answer(asked: Asked) -> Answer:
        if asked.path == "/slow":
            release.wait(LIMIT_SECONDS)
        else:
            both_asked.wait()
        return 200, {}, b""

    with serving(answer, None, tmp_path) as port:
        url = f"http://127.0.0.1:{port}"
        probes = {name: Probe(name, f"{url}/{name}", timeout_seconds=PATIENT) for name in ("one", "other")}
        probes["slow"] = Probe("slow", f"{url}/slow", timeout_seconds=1)
        try:
            found = look(probes, ProbedHost(), threading.Event(), delayed=False)
        finally:
            release.set()
    assert found == {"one": True, "other": True, "slow": False}


def test_probe_waits_initial_delay_and_aborts_when_agent_stops(tmp_path: Path) -> None:
    with serving(answers, None, tmp_path) as port:
        probe = Probe("p", f"http://127.0.0.1:{port}/200", initial_delay_seconds=1, timeout_seconds=PATIENT)
        began = time.monotonic()
        assert look({"p": probe}, ProbedHost(), threading.Event(), delayed=True) == {"p": True}
        assert time.monotonic() - began >= 1
        stop = threading.Event()
        threading.Timer(0.1, stop.set).start()
        assert look({"p": probe._replace(initial_delay_seconds=3600)}, ProbedHost(), stop, delayed=True) is None


def test_probe_with_invalid_url_fails() -> None:
    assert "is not a URL" in trouble(Probe("p", "ftp://x"), ProbedHost())
    assert "is not a URL" in trouble(Probe("p", ""), ProbedHost())
