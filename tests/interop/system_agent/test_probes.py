from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.interop.system_agent.conftest import Host
from tests.lab.agents import Data
from tests.lab.certificates import Authority, write
from tests.lab.ports import free_port


class Endpoint:
    """What is probed: `status` is what it answers. A slow machine can miss the state between two probes, so a test that
    waits for one lets it answer once (`answer_once`) and holds the next answer until it has seen the state."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.status = 200
        self.asked = 0
        self._answers = threading.Semaphore(0)
        self._is_held = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                if outer._is_held:
                    outer._answers.acquire()
                self.send_response(outer.status if self.path != "/there" else 200)
                if 300 <= outer.status < 400 and self.path != "/there":
                    self.send_header("Location", "/there")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_port}/health"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def answer_once(self, status: int) -> None:
        self._is_held = True
        self.status = status
        self._answers.release()

    def answer_all(self) -> None:
        self._is_held = False
        self._answers.release(100)

    def close(self) -> None:
        self.answer_all()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Callable[..., Endpoint]]:
    made: list[Endpoint] = []

    def make(tls: ssl.SSLContext | None = None) -> Endpoint:
        made.append(Endpoint(tls))
        return made[-1]

    yield make
    for each in made:
        each.close()


def statuses(data: Data) -> Any:
    return json.loads(data.get("probe-statuses") or b"{}")


def says(name: str, **status: Any) -> Callable[[Data], bool]:
    return lambda data: statuses(data).get(name) == status


def probe(url: str, **more: Any) -> dict[str, Any]:
    http = {"url": url, **more.pop("http", {})}
    return {"timeoutSeconds": 240, "successThreshold": 1, "failureThreshold": 2, "httpGet": http, **more}


def test_probe_health_follows_endpoint_by_thresholds(host: Host, endpoint: Callable[..., Endpoint]) -> None:
    target = endpoint()
    host.give({"probes": {"p": probe(target.url)}})
    host.wait(says("p", healthy=True, successCount=1), "it is healthy")
    target.answer_once(500)
    host.wait(says("p", healthy=True, failureCount=1), "one failure is not enough")
    target.answer_all()
    host.wait(says("p", failureCount=2), "two are")
    seen = len(host.secret.states)
    target.status = 204
    host.wait(says("p", healthy=True, successCount=1), "it is back", since=seen)


def test_probe_thresholds_have_defaults(host: Host, endpoint: Callable[..., Endpoint]) -> None:
    target = endpoint()
    target.answer_once(200)
    plan = {
        "probes": {
            "slow": probe(target.url, successThreshold=3),
            "bad": probe(f"http://127.0.0.1:{free_port()}", failureThreshold=0),
        }
    }
    host.give(plan)
    host.wait(says("slow", successCount=1), "not healthy yet")
    target.answer_all()
    host.wait(says("slow", healthy=True, successCount=3), "healthy after three")
    host.wait(says("bad", failureCount=3), "three failures are the default")
    host.settle(2)
    assert statuses(host.secret.data) == {"slow": {"healthy": True, "successCount": 3}, "bad": {"failureCount": 3}}


@pytest.mark.parametrize(("code", "well"), [(200, True), (399, False), (404, False), (503, False), (302, True)])
def test_probe_health_depends_on_status_code(
    host: Host, endpoint: Callable[..., Endpoint], code: int, well: bool
) -> None:
    target = endpoint()
    target.status = code
    host.give({"probes": {"p": probe(target.url)}})
    host.wait(says("p", healthy=True, successCount=1) if well else says("p", failureCount=2), "it is judged")


def test_probe_verifies_tls(host: Host, endpoint: Callable[..., Endpoint], tmp_path: Path) -> None:
    authority, stranger = Authority("probed"), Authority("stranger")
    certificate, key = authority.server("127.0.0.1")
    ours, ours_key = authority.client("agent")
    files = write(
        tmp_path,
        certificate=certificate,
        key=key,
        ca=authority.pem,
        stranger=stranger.pem,
        client=ours,
        client_key=ours_key,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files["certificate"], files["key"])
    wants = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    wants.load_cert_chain(files["certificate"], files["key"])
    wants.load_verify_locations(files["ca"])
    wants.verify_mode = ssl.CERT_REQUIRED
    plain, mutual = endpoint(context), endpoint(wants)
    ca = {"caCert": str(files["ca"])}
    pair = {"clientCert": str(files["client"]), "clientKey": str(files["client_key"])}
    host.give(
        {
            "probes": {
                "trusted": probe(plain.url, http=ca),
                "unknown": probe(plain.url),
                "stranger": probe(plain.url, http={"caCert": str(files["stranger"])}),
                "insecure": probe(plain.url, http={"insecure": True}),
                "mutual": probe(mutual.url, http={**ca, **pair}),
                "without": probe(mutual.url, http=ca),
                "missing": probe(plain.url, http={"caCert": "/nowhere/ca.pem"}),
            }
        }
    )
    well, bad = {"healthy": True, "successCount": 1}, {"failureCount": 2}
    expected = {
        "trusted": well,
        "insecure": well,
        "mutual": well,
        "unknown": bad,
        "stranger": bad,
        "without": bad,
        "missing": bad,
    }
    host.wait(lambda data: statuses(data) == expected, f"all are judged: {expected}")


def test_probe_continues_while_failed_plan_waits(host: Host, endpoint: Callable[..., Endpoint]) -> None:
    target = endpoint()
    host.failed({"instructions": [host.shell("exit 1")], "probes": {"p": probe(target.url)}})
    host.wait(says("p", healthy=True, successCount=1), "it is probed")
    seen = target.asked
    host.until(lambda: target.asked > seen, "it is asked again")


def test_first_probe_waits_for_plan_and_initial_delay(host: Host, endpoint: Callable[..., Endpoint]) -> None:
    target = endpoint()
    host.give(
        {"instructions": [host.shell(host.note("ran"))], "probes": {"p": probe(target.url, initialDelaySeconds=1)}}
    )
    host.wait(says("p", healthy=True, successCount=1), "it is healthy")
    assert host.noted == ["ran"]
