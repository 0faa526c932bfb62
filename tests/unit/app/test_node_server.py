"""Hosts at a manager on Kubernetes: what they are served there, and how far into the API they get."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.app.node_server import SECRET_NAME, NodeServer
from remuda.app.process import StartRefused
from remuda.app.site import SiteSettings
from remuda.kube import kubeconfig
from remuda.kube.core import ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.http import HttpClient
from remuda.kube.web import Handler, Request, Result, text
from remuda.providers.shared.manager_address import Site
from remuda.runtime.manager import Manager
from tests.lab.chains import CompanyAuthority
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ports import free_port
from tests.unit.providers.bootstrap.serving import TOKEN, Registrar

SECRETS_PATH = "/api/v1/namespaces/default/secrets"
MINE = f"{SECRETS_PATH}/mine"


class Host:
    """Somebody with the token of a plan's account, at the manager."""

    def __init__(self, session: aiohttp.ClientSession, site: Site, token: str) -> None:
        self.session = session
        self.site = site
        self.headers = {"Authorization": f"Bearer {token}"}
        self.on_denied: list[tuple[str, int, str]] = []  # what was refused, and how that was told

    async def ask(
        self, path: str, method: str = "GET", body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        sent = {**self.headers, **(headers or {})}
        async with self.session.request(method, self.site.server_url + path, headers=sent, json=body) as answer:
            content = await answer.read()
            return answer.status, json.loads(content) if content[:1] == b"{" else content


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    running = await ApiServer.start(ServerSettings(data_dir=tmp_path / "engine", port=0))
    yield running
    await running.stop()


@pytest.fixture
async def host(server: ApiServer) -> AsyncIterator[Host]:
    token = await account(server)
    async with serving(server) as (site, nodes), session(site) as opened:
        host = Host(opened, site, token)
        nodes._passthrough.on_denied = lambda request, code, why: host.on_denied.append((request.path, code, why))
        yield host


@asynccontextmanager
async def session(site: Site) -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context(cadata=site.ca_pem.decode())
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as opened:
        yield opened


@asynccontextmanager
async def serving(
    server: ApiServer, more: Mapping[str, Handler] | None = None, settings: SiteSettings | None = None
) -> AsyncIterator[tuple[Site, NodeServer]]:
    client = HttpClient(kubeconfig.load(server.kubeconfig))
    listen = ("127.0.0.1", free_port())
    nodes = NodeServer(client, client.access, listen, settings or SiteSettings(), "default")
    site = await nodes.prepare()
    nodes.add(Manager(client), site, Registrar(), more=more)  # type: ignore[arg-type]
    await nodes.start()
    try:
        yield site, nodes
    finally:
        await nodes.stop()
        await client.close()


async def account(server: ApiServer) -> str:
    """A plan Secret and the account that opens it, as the bootstrap provider makes them; its token."""
    client = server.client()
    for name in ("mine", "other"):
        await client.create(SECRETS, "default", {"metadata": {"name": name}, "data": {"plan": _base64("{}")}})
    await client.create(SERVICE_ACCOUNTS, "default", {"metadata": {"name": "mine"}})
    rule = {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": ["mine"],
        "verbs": ["get", "list", "watch", "update", "patch"],
    }
    await client.create(ROLES, "default", {"metadata": {"name": "mine"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "mine"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "mine"},
        "subjects": [{"kind": "ServiceAccount", "name": "mine", "namespace": "default"}],
    }
    await client.create(ROLE_BINDINGS, "default", binding)
    request = {"spec": {"expirationSeconds": 3600}}
    made = await client.create(SERVICE_ACCOUNTS, "default", request, name="mine", subresource="token")
    return str(json.loads(made)["status"]["token"])


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_node_server_replicas_share_one_certificate_authority(server: ApiServer) -> None:
    async with serving(server) as (one, _), serving(server) as (two, _), session(one) as opened:
        assert one.ca_checksum == two.ca_checksum
        for site in (one, two):
            async with opened.get(f"{site.server_url}/cacerts") as answer:
                assert hashlib.sha256(await answer.read()).hexdigest() == one.ca_checksum
            async with opened.get(f"{site.server_url}/healthz") as answer:
                assert answer.status == 200
        async with opened.get(
            f"{one.server_url}/v3/connect/agent", headers={"Authorization": f"Bearer {TOKEN}"}
        ) as answer:
            assert (await answer.json())["secretName"] == "a-machine-plan"
    stored = await server.client().get(SECRETS, "default", SECRET_NAME)
    assert b"tls.key" in stored


async def test_custom_certificate_is_served_and_cacerts_returns_both_authorities(
    server: ApiServer, tmp_path: Path
) -> None:
    company = CompanyAuthority()
    chain, key = company.files(tmp_path, "127.0.0.1")
    async with serving(server, settings=SiteSettings(tls_cert=chain, tls_key=key)) as (site, _):
        ours = base64.b64decode(
            json.loads(await server.client().get(SECRETS, "default", SECRET_NAME))["data"]["ca.crt"]
        )
        assert site.ca_pem == ours + company.root
        alone = Site(server_url=site.server_url, ca_pem=company.root)
        async with session(alone) as opened, opened.get(f"{site.server_url}/cacerts") as answer:
            assert await answer.read() == site.ca_pem


async def test_tunnel_route_does_not_shadow_agent_registration_route(server: ApiServer) -> None:
    asked: list[str] = []

    def tunnels(request: Request) -> Result:
        asked.append(request.path)
        return text(200, "a tunnel")

    async with serving(server, {"/v3/connect": tunnels}) as (site, _), session(site) as opened:
        for path, found in (("/v3/connect", b"a tunnel"), ("/v3/connect/agent", b"a-machine-plan")):
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with opened.get(site.server_url + path, headers=headers) as answer:
                assert found in await answer.read()
    assert asked == ["/v3/connect"]


async def test_agent_can_read_update_patch_and_list_its_plan_secret(host: Host) -> None:
    assert (await host.ask("/version"))[0] == 200
    code, secret = await host.ask(MINE)
    assert code == 200
    secret["data"]["plan-state"] = _base64("succeeded")
    assert (await host.ask(MINE, "PUT", secret))[0] == 200
    patch = {"data": {"success-count": _base64("1")}}
    assert (await host.ask(MINE, "PATCH", patch, {"Content-Type": "application/merge-patch+json"}))[0] == 200
    code, found = await host.ask(f"{SECRETS_PATH}?fieldSelector=metadata.name%3Dmine&limit=500")
    assert (code, [item["metadata"]["name"] for item in found["items"]]) == (200, ["mine"])
    code, conflict = await host.ask(MINE, "PUT", secret)
    assert (code, conflict["reason"]) == (409, "Conflict")


async def test_host_watch_streams_plan_secret_changes(server: ApiServer, host: Host) -> None:
    url = f"{host.site.server_url}{SECRETS_PATH}?watch=true&fieldSelector=metadata.name=mine"
    async with asyncio.timeout(LIMIT_SECONDS), host.session.get(url, headers=host.headers) as answer:
        assert json.loads(await answer.content.readline())["type"] == "ADDED"
        await server.client().patch(SECRETS, "default", "mine", {"data": {"plan": _base64("new")}})
        change = json.loads(await answer.content.readline())
        assert (change["type"], change["object"]["data"]["plan"]) == ("MODIFIED", _base64("new"))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", SECRETS_PATH),
        ("GET", f"{SECRETS_PATH}?watch=1"),
        ("GET", f"{SECRETS_PATH}?fieldSelector=metadata.name!=mine"),
        ("GET", f"{SECRETS_PATH}?fieldSelector=metadata.name=mine&fieldSelector=type=x"),
        ("GET", f"{SECRETS_PATH}?fieldSelector=metadata.name=mine,type=x"),
        ("DELETE", MINE),
        ("DELETE", f"{SECRETS_PATH}?fieldSelector=metadata.name=mine"),
        ("POST", SECRETS_PATH),
        ("GET", "/api/v1/secrets?fieldSelector=metadata.name=mine"),
        ("GET", "/api/v1/namespaces/default/configmaps/mine"),
        ("GET", "/api/v1/namespaces/default/secrets/mine/status"),
        ("GET", "/api/v1/namespaces/default/secrets/mine%2Fstatus"),
        ("GET", "/apis"),
        ("GET", "/metrics"),
        ("GET", "//version"),
        ("POST", "/version"),
    ],
)
async def test_requests_other_than_own_secret_access_are_forbidden_for_hosts(
    host: Host, method: str, path: str
) -> None:
    code, status = await host.ask(path, method)
    assert (code, status["reason"]) == (403, "Forbidden")
    assert "is not for hosts" in status["message"]
    assert [(code, why) for _, code, why in host.on_denied] == [(403, status["message"])]


async def test_proxied_requests_use_permissions_of_the_host(host: Host) -> None:
    """And never ours, which are an administrator's here."""
    assert (await host.ask(f"{SECRETS_PATH}/other"))[0] == 403
    assert (await host.ask(f"{SECRETS_PATH}?fieldSelector=metadata.name=other"))[0] == 403
    assert (await host.ask(f"{SECRETS_PATH}/{SECRET_NAME}"))[0] == 403
    assert (await host.ask(MINE, headers={"Authorization": "Bearer wrong"}))[0] == 401
    assert (await host.ask(MINE, headers={"Authorization": ""}))[0] in (401, 403)
    acting = {"Impersonate-User": "admin", "Impersonate-Group": "system:masters"}
    assert (await host.ask(f"{SECRETS_PATH}/other", headers=acting))[0] == 403
    assert [path for path, _, _ in host.on_denied[:2]] == [f"{SECRETS_PATH}/other", SECRETS_PATH]
    assert len(host.on_denied) == 6


async def test_unavailable_api_server_returns_503_to_hosts(server: ApiServer, host: Host) -> None:
    await server.front.stop(0.1)
    code, status = await host.ask(MINE)
    assert (code, status["message"]) == (503, "the API server does not answer")


async def test_nodes_listen_address_in_use_aborts_start(server: ApiServer) -> None:
    client = HttpClient(kubeconfig.load(server.kubeconfig))
    try:
        listen = ("127.0.0.1", server.front.port)
        nodes = NodeServer(client, client.access, listen, SiteSettings(), "default")
        await nodes.prepare()
        with pytest.raises(StartRefused, match="for --nodes-listen: Address already in use"):
            await nodes.start()
        await nodes.stop()
    finally:
        await client.close()
