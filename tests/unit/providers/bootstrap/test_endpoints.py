"""What hosts are served, asked for over TLS."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from remuda.kube.errors import StatusError
from remuda.providers.bootstrap import assets
from remuda.providers.bootstrap.registration import HostRefused
from tests.unit.providers.bootstrap.serving import TOKEN, serving

CONNECT = "/v3/connect/agent"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", "X-Cattle-Id": "me"}


async def test_served_ca_matches_pinned_checksum() -> None:
    async with serving() as served:
        answer = await served.ask("/cacerts")
        assert hashlib.sha256(answer.body).hexdigest() == served.site.ca_checksum
        assert (await served.ask("/healthz")).code == 200


async def test_agent_asset_has_checksum_and_etag() -> None:
    async with serving() as served:
        answer = await served.ask("/assets/remuda-agent.pyz")
        assert answer.body == assets.agent_zipapp()
        told = (await served.ask("/assets/remuda-agent.pyz.sha256")).body.decode()
        assert told.split() == [assets.agent_checksum(), "remuda-agent.pyz"]
        again = await served.ask("/assets/remuda-agent.pyz", headers={"If-None-Match": answer.headers["etag"]})
        assert (again.code, again.body) == (304, b"")


async def test_only_plain_asset_files_are_served(tmp_path: Path) -> None:
    folder = tmp_path / "assets"
    (folder / "below").mkdir(parents=True)
    big = os.urandom(3_000_000)
    (folder / "rancher-system-agent-amd64").write_bytes(big)
    (folder / ".hidden").write_text("no")
    os.mkfifo(folder / "pipe")
    (tmp_path / "outside").write_text("no")
    async with serving(folder) as served:
        answer = await served.ask("/assets/rancher-system-agent-amd64")
        assert answer.body == big
        told = await served.ask("/assets/rancher-system-agent-amd64.sha256")
        assert told.body.decode().split()[0] == hashlib.sha256(big).hexdigest()
        for name in ("../outside", "%2e%2e/outside", "..%2foutside", "below", "below/", ".hidden", "pipe", "", "none"):
            assert (await served.ask(f"/assets/{name}")).code == 404, name
        assert (await served.ask("/assets/none.sha256")).code == 404


async def test_changed_asset_has_new_checksum(tmp_path: Path) -> None:
    path = tmp_path / "tool"
    async with serving(tmp_path) as served:
        for content in (b"one", b"another"):
            path.write_bytes(content)
            told = await served.ask("/assets/tool.sha256")
            assert told.body.decode().split()[0] == hashlib.sha256(content).hexdigest()


async def test_token_is_exchanged_for_connection_info() -> None:
    async with serving() as served:
        answer = await served.ask(CONNECT, headers={**bearer(TOKEN), "X-Cattle-Node-Name": "n", "Cookie": "c"})
        assert (answer.code, answer.headers["cache-control"]) == (200, "no-store")
        assert json.loads(answer.body) == {
            "kubeConfig": "kubeconfig text",
            "namespace": "default",
            "secretName": "a-machine-plan",
        }
        assert served.registrar.asked == [(TOKEN, {"x-cattle-id": "me", "x-cattle-node-name": "n"})]


@pytest.mark.parametrize(
    ("refusal", "code", "again"),
    [
        (HostRefused(401, "this token has expired"), 401, None),
        (HostRefused(503, "its plan is not there yet", 4.2), 503, "5"),
    ],
)
async def test_refusal_is_returned_with_message_and_retry_after(
    refusal: HostRefused, code: int, again: str | None
) -> None:
    async with serving() as served:
        served.registrar.refusals = [refusal]
        answer = await served.ask(CONNECT, headers=bearer(TOKEN))
        assert (answer.code, answer.body.decode()) == (code, f"{refusal.message}\n")
        assert answer.headers.get("retry-after") == again
        assert served.on_denied == ([(CONNECT, 401, refusal.message)] if code == 401 else [])


async def test_api_server_error_is_logged_but_hidden_from_host(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as served:
        served.registrar.refusals = [StatusError(500, "InternalError", "etcd is on fire")]  # type: ignore[list-item]
        answer = await served.ask(CONNECT, headers=bearer(TOKEN))
        assert (answer.code, answer.headers["retry-after"]) == (503, "5")
        assert b"fire" not in answer.body
        assert "etcd is on fire" in caplog.text
        assert TOKEN not in caplog.text


@pytest.mark.parametrize("header", [{}, {"Authorization": "Basic eDp5"}, {"Authorization": "Bearer "}])
async def test_request_without_token_returns_401_without_lookup(header: dict[str, str]) -> None:
    async with serving() as served:
        assert (await served.ask(CONNECT, headers=header)).code == 401
        assert served.registrar.asked == []


async def test_wrong_tokens_are_rate_limited_and_valid_tokens_are_not() -> None:
    async with serving() as served:
        for _ in range(40):
            assert (await served.ask(CONNECT, headers=bearer(TOKEN))).code == 200
        codes = [(await served.ask(CONNECT, headers=bearer("wrong"))).code for _ in range(60)]
        assert codes[0] == 401
        assert 429 in codes
        assert len(served.registrar.asked) < 100, "the last ones were not looked at"
        answer = await served.ask(CONNECT, headers=bearer("wrong"))
        if answer.code == 429:
            assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize("path", ["/", "/v3/connect/", "/v3/connect/other", "/cacerts/x", "/system-agent-install.shx"])
async def test_unknown_paths_return_404(path: str) -> None:
    async with serving() as served:
        assert (await served.ask(path)).code == 404


async def test_post_returns_405() -> None:
    async with serving() as served:
        answer = await served.ask("/cacerts", method="POST", headers={"Content-Length": "0"})
        assert (answer.code, answer.headers["allow"]) == (405, "GET, HEAD")
