"""The manager as a program, in this process: what it says, serves, writes and refuses, on the embedded engine over
HTTP."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from remuda.access.types import Quota
from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.app import manager, webhooks
from remuda.app.manager import ManagerSettings, connect, serve
from remuda.app.process import StartRefused
from remuda.app.site import SiteSettings as Site
from remuda.capi.definitions import definitions
from remuda.kube import kubeconfig
from remuda.kube.client import Client, Target
from remuda.kube.definitions import DEFINITION
from remuda.kube.errors import StatusError
from remuda.kube.objects import Key
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.runtime.election import LEASE, ElectionSettings
from remuda.runtime.webhooks import Location
from remuda.runtime.webhooks.certificates import SECRET
from remuda.runtime.webhooks.configuration import MUTATING, VALIDATING
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ports import closed_port, free_port

NAMESPACES = Target("v1", "namespaces")
ROLES = Target("rbac.authorization.k8s.io/v1", "clusterroles")
BINDINGS = Target("rbac.authorization.k8s.io/v1", "clusterrolebindings")
# The lead is never lost because a renewal is late.
PATIENT = {"lease_seconds": LIMIT_SECONDS}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("word-of-ben,ben,7\n")
    wanted = ServerSettings(data_dir=tmp_path / "engine", port=0, token_file=tokens, webhook_records=True)
    running = await ApiServer.start(wanted)
    yield running
    await running.stop()


def token_config(server: ApiServer, folder: Path, token: str = "word-of-ben") -> Path:
    path = folder / "ben.kubeconfig"
    kubeconfig.write(path, kubeconfig.build(server.url, ca_pem=server.pki.ca_certificate_pem, token=token))
    return path


class Lines:
    """What was printed, a line at a time, as it comes."""

    def __init__(self, capsys: pytest.CaptureFixture[str], running: asyncio.Task[int]) -> None:
        self._capsys = capsys
        self._running = running
        self._said = ""

    async def until(self, text: str) -> str:
        async with asyncio.timeout(LIMIT_SECONDS):
            while text not in self._said:
                self._said += self._capsys.readouterr().out
                if self._running.done():
                    self._running.result()
                await asyncio.sleep(0.01)
        return next(line for line in self._said.splitlines() if text in line)


@asynccontextmanager
async def running(settings: ManagerSettings, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Lines]:
    """The manager from its line of readiness to its end, which must be a good one."""
    stop = asyncio.Event()
    task = asyncio.create_task(serve(settings, stop))
    lines = Lines(capsys, task)
    try:
        await lines.until(" ready ")
        yield lines
    finally:
        stop.set()
        code = await task
    assert code == 0


async def refused(settings: ManagerSettings) -> str:
    with pytest.raises(StartRefused) as found:
        async with asyncio.timeout(LIMIT_SECONDS):
            await serve(settings, asyncio.Event())
    assert "\n" not in str(found.value)
    return str(found.value)


async def written(client: Client) -> dict[str, str]:
    """What a manager may write before it leads, with revisions; the engine's own upkeep writes other things."""
    found = {}
    for target in (NAMESPACES, DEFINITION.target, LEASE.target, SECRET.target, MUTATING, VALIDATING):
        for item in (await client.list(target)).items:
            metadata = msgspec.json.decode(item)["metadata"]
            found[f"{target.plural}/{metadata['name']}"] = metadata["resourceVersion"]
    return found


async def get(session: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    async with session.get(url) as answer:
        return answer.status, await answer.text()


async def test_manager_installs_crds_acquires_lease_and_releases_lease_on_stop(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    client = server.client()
    async with running(ManagerSettings(kubeconfig=server.kubeconfig, **PATIENT), capsys) as lines:
        said = await lines.until(" ready ")
        assert "with leader election, runs cluster, machine, machineset, machinedeployment, machinehealthcheck" in said
        said = await lines.until(" leads ")
        lease = LEASE.decode(await client.get(LEASE.target, "remuda-system", "remuda"))
        assert said == f"remuda manager leads by lease remuda-system/remuda as {lease.spec.holder_identity}"
        for wanted in definitions():
            await client.get(DEFINITION.target, "", wanted["metadata"]["name"])
    lease = LEASE.decode(await client.get(LEASE.target, "remuda-system", "remuda"))
    assert lease.spec.holder_identity == ""


async def test_second_manager_start_writes_nothing(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ManagerSettings(kubeconfig=server.kubeconfig, leader_elect=False)
    async with running(settings, capsys) as lines:
        assert "without leader election" in await lines.until(" ready ")
    before = await written(server.client())
    async with running(settings, capsys):
        pass
    assert await written(server.client()) == before


async def test_managers_of_two_namespaces_hold_separate_leases(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        await server.client().create(NAMESPACES, "", {"metadata": {"name": name}})
    async with (
        running(ManagerSettings(kubeconfig=server.kubeconfig, namespace="a", **PATIENT), capsys),
        running(
            ManagerSettings(kubeconfig=server.kubeconfig, namespace="b", lease_namespace="shared", **PATIENT), capsys
        ),
    ):
        for lease in (Key("a", "remuda-a"), Key("shared", "remuda-b")):
            await wait_for(lambda lease=lease: holder(server.client(), lease))


async def holder(client: Client, lease: Key) -> str:
    try:
        return LEASE.decode(await client.get(LEASE.target, *lease)).spec.holder_identity
    except StatusError:
        return ""


async def wait_for(true: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not await true():
            await asyncio.sleep(0.01)


async def test_health_and_metrics_are_served(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    address = ("127.0.0.1", free_port())
    url = f"http://127.0.0.1:{address[1]}"
    async with aiohttp.ClientSession() as session:
        async with running(ManagerSettings(kubeconfig=server.kubeconfig, health=address, **PATIENT), capsys) as lines:
            await lines.until(" leads ")
            assert await get(session, f"{url}/healthz") == (200, "ok")
            assert await get(session, f"{url}/readyz") == (200, "ok")
            code, text = await get(session, f"{url}/metrics")
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(session, f"{url}/healthz")
    assert code == 200
    assert f'rest_client_requests_total{{code="200",host="{server.url.removeprefix("https://")}",method="GET"}}' in text
    assert 'leader_election_master_status{name="remuda"} 1.0' in text
    assert 'controller_runtime_max_concurrent_reconciles{controller="machine"}' in text


async def test_readyz_reports_forbidden_list_as_missing_cache(
    server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything is installed, but this user may not list what its controllers manage."""
    client = server.client()
    async with running(ManagerSettings(kubeconfig=server.kubeconfig, leader_elect=False), capsys):
        pass
    await allow(client, ["apiextensions.k8s.io"], ["customresourcedefinitions"], ["get", "list", "watch"])
    await allow(client, [""], ["namespaces"], ["get"])
    await allow(client, ["clusterctl.cluster.x-k8s.io"], ["providers"], ["list"])
    address = ("127.0.0.1", free_port())
    stop = asyncio.Event()
    settings = ManagerSettings(kubeconfig=token_config(server, tmp_path), leader_elect=False, health=address)
    task = asyncio.create_task(serve(settings, stop))
    async with aiohttp.ClientSession() as session, asyncio.timeout(LIMIT_SECONDS):
        text = ""
        while "cannot list" not in text:
            try:
                code, text = await get(session, f"http://127.0.0.1:{address[1]}/readyz")
                assert code == 503
            except aiohttp.ClientConnectorError:
                pass
            await asyncio.sleep(0.01)
        assert '[-]caches: clusters not cached: clusters.cluster.x-k8s.io is forbidden: User "ben" cannot list' in text
        assert "[-]start: still starting" in text
        stop.set()
        assert await task == 0, "a start that cannot be finished is given up when told"


async def allow(client: Client, groups: list[str], resources: list[str], verbs: list[str]) -> None:
    name = f"ben-{resources[0]}"
    role = {"metadata": {"name": name}, "rules": [{"apiGroups": groups, "resources": resources, "verbs": verbs}]}
    await client.create(ROLES, "", role)
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ben"}
    await client.create(BINDINGS, "", {"metadata": {"name": name}, "roleRef": ref, "subjects": [subject]})


async def test_webhooks_are_served_registered_and_removable(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    client = server.client()
    listen = ("127.0.0.1", free_port())
    async with running(ManagerSettings(kubeconfig=server.kubeconfig, webhooks=listen, **PATIENT), capsys):
        registered: dict[str, Any] = msgspec.json.decode(await client.get(VALIDATING, "", "remuda"))
        url = next(hook["clientConfig"]["url"] for hook in registered["webhooks"] if ".cluster." in hook["name"])
        secret = SECRET.decode(await client.get(SECRET.target, "remuda-system", webhooks.SECRET_NAME))
        context = ssl.create_default_context(cadata=secret.data["ca.crt"].decode())
        async with aiohttp.ClientSession() as session, session.post(url, json=review(), ssl=context) as answer:
            response = (await answer.json())["response"]
    assert (response["uid"], response["allowed"]) == ("u", False)
    assert "one of spec.controlPlaneRef and spec.infrastructureRef must be set" in response["status"]["message"]
    assert len((await client.list(MUTATING)).items) == 1, "it outlives the manager"
    for expected in ("webhooks removed", "no webhooks were registered"):
        assert (await webhooks.remove(client)).startswith(expected)
    assert (await client.list(VALIDATING)).items == []


def review() -> dict[str, Any]:
    cluster = {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"clusterNetwork": {"serviceDomain": "x"}},
    }
    request = {"uid": "u", "operation": "CREATE", "name": "c", "namespace": "default", "object": cluster}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"controllers": ("cpre",)}, "unknown controller or group cpre"),
        ({"webhook_url": "https://a"}, "--webhook-url needs --webhook-listen"),
        ({"user_quota": Quota(clusters=3)}, "webhooks enforce --user-quota: add --webhook-listen"),
        ({"webhooks": ("0.0.0.0", 9443)}, "the API server cannot reach --webhook-listen 0.0.0.0:9443"),
        ({"webhooks": ("::", 9443)}, r"cannot reach --webhook-listen [::]:9443: add"),
        ({"webhooks": ("127.0.0.1", 0)}, "cannot reach --webhook-listen 127.0.0.1:0: add"),
        (
            {"webhooks": ("127.0.0.1", 1), "webhook_url": "http://a"},
            "--webhook-url: webhooks are called over https only",
        ),
        ({"webhooks": ("127.0.0.1", 1), "namespace": "a"}, "webhooks check the objects of every namespace"),
        ({"controllers": ("providers",)}, "the group providers needs --nodes-listen"),
        ({"site": Site(server_url="https://a")}, "--artefacts need --nodes-listen"),
        ({"nodes": ("0.0.0.0", 443)}, "hosts cannot reach this server at the listening address 0.0.0.0:443"),
        ({"nodes": ("127.0.0.1", 0)}, "--nodes-listen with port 0 selects any free port"),
        ({"nodes": ("127.0.0.1", 443), "machine": MachineSettings(run_jobs=True)}, "--run-jobs needs --data-dir"),
        ({"kubeconfig": Path("/nowhere/config")}, "/nowhere/config"),
    ],
)
async def test_invalid_manager_settings_are_rejected_before_connecting(settings: dict[str, Any], said: str) -> None:
    nobody = Path("/dev/null/config")
    assert said in await refused(ManagerSettings(**{"kubeconfig": nobody, **settings}))


def test_webhook_location_is_derived_from_listen_address_or_url() -> None:
    assert webhooks.location(("127.0.0.1", 9443), "") == Location(url="https://127.0.0.1:9443")
    assert webhooks.location(("::1", 9443), "") == Location(url="https://[::1]:9443")
    assert webhooks.location(("0.0.0.0", 9443), "https://hooks.remuda.svc") == Location(service=Key("remuda", "hooks"))


async def test_refused_connection_to_api_server_aborts_start(server: ApiServer, tmp_path: Path) -> None:
    config = tmp_path / "config"
    with closed_port() as port:
        url = f"https://127.0.0.1:{port}"
        kubeconfig.write(config, kubeconfig.build(url, token="x"))
        assert await refused(ManagerSettings(kubeconfig=config)) == f"cannot connect to {url}: Connection refused"


async def test_unresponsive_api_server_aborts_start_and_stop_is_honoured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "_ANSWER_SECONDS", 0.2)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        config = tmp_path / "config"
        kubeconfig.write(config, kubeconfig.build(f"https://127.0.0.1:{listener.getsockname()[1]}", token="x"))
        assert "did not answer within" in await refused(ManagerSettings(kubeconfig=config))
        stop = asyncio.Event()
        monkeypatch.setattr(manager, "_ANSWER_SECONDS", 3600.0)
        asyncio.get_running_loop().call_later(0.05, stop.set)
        async with asyncio.timeout(LIMIT_SECONDS):
            assert await serve(ManagerSettings(kubeconfig=config), stop) == 0


async def test_unauthorized_token_aborts_start_and_writes_nothing(server: ApiServer, tmp_path: Path) -> None:
    config = token_config(server, tmp_path, "word-of-nobody")
    before = await written(server.client())
    assert await refused(ManagerSettings(kubeconfig=config)) == (
        f"{server.url} rejects the credentials of {config} (context 'remuda'): Unauthorized"
    )
    assert await written(server.client()) == before


async def test_user_without_crd_permissions_aborts_start_and_writes_nothing(server: ApiServer, tmp_path: Path) -> None:
    before = await written(server.client())
    said = await refused(ManagerSettings(kubeconfig=token_config(server, tmp_path)))
    assert said.startswith("no permission to install the CRDs: ")
    assert 'User "ben" cannot get resource "customresourcedefinitions"' in said
    assert "Start the manager once as a user with this permission" in said
    assert await written(server.client()) == before


async def test_namespaced_manager_needs_only_read_access_to_cluster_scoped_objects(
    server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = server.client()
    async with running(ManagerSettings(kubeconfig=server.kubeconfig, leader_elect=False), capsys):
        pass
    await client.create(NAMESPACES, "", {"metadata": {"name": "bens"}})
    await allow(client, ["apiextensions.k8s.io"], ["customresourcedefinitions"], ["get", "list", "watch"])
    await allow(client, [""], ["namespaces"], ["get"])
    await allow(client, ["clusterctl.cluster.x-k8s.io"], ["providers"], ["list"])
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ben"}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"metadata": {"name": "ben"}, "roleRef": ref, "subjects": [subject]}
    await client.create(Target("rbac.authorization.k8s.io/v1", "rolebindings"), "bens", binding)
    settings = ManagerSettings(kubeconfig=token_config(server, tmp_path), namespace="bens", **PATIENT)
    async with running(settings, capsys) as lines:
        assert "by lease bens/remuda-bens" in await lines.until(" leads ")


async def test_forbidden_lease_namespace_creation_names_the_namespace(
    server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ManagerSettings(
        kubeconfig=token_config(server, tmp_path), controllers=("machine",), lease_namespace="elsewhere"
    )
    async with running(ManagerSettings(kubeconfig=server.kubeconfig, leader_elect=False), capsys):
        pass
    await allow(server.client(), ["apiextensions.k8s.io"], ["customresourcedefinitions"], ["get", "list", "watch"])
    await allow(server.client(), ["clusterctl.cluster.x-k8s.io"], ["providers"], ["list"])
    await allow(server.client(), [""], ["namespaces"], ["get"])
    said = await refused(settings)
    assert said.startswith("cannot create the namespace elsewhere: namespaces is forbidden")
    assert said.endswith("choose another with --lease-namespace")


async def test_manager_refuses_to_start_beside_foreign_core_and_writes_nothing(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    client = server.client()
    foreign = definitions()[0]
    del foreign["metadata"]["labels"]
    await client.create(DEFINITION.target, "", foreign)
    said = await refused(ManagerSettings(kubeconfig=server.kubeconfig))
    assert said.startswith("clusters.cluster.x-k8s.io: already installed by another program")
    assert said.endswith("To run next to the other program, use --controllers=providers,provisioning,access.")
    assert len((await client.list(DEFINITION.target)).items) == 1


async def test_webhook_listen_is_rejected_if_api_server_does_not_call_webhooks(tmp_path: Path) -> None:
    """The embedded engine as users start it. Nothing is written there."""
    engine = await ApiServer.start(ServerSettings(data_dir=tmp_path / "engine", port=0))
    try:
        said = await refused(ManagerSettings(kubeconfig=engine.kubeconfig, webhooks=("127.0.0.1", free_port())))
        assert said.startswith("cannot use --webhook-listen with this API server: ")
        assert "does not call admission webhooks yet" in said
        assert "Omit --webhook-listen, or run `remuda up`" in said
        assert (await engine.client().list(DEFINITION.target)).items == []
        assert (await engine.client().list(VALIDATING)).items == []
    finally:
        await engine.stop()


@pytest.mark.parametrize("option", ["health", "webhooks"])
async def test_listen_address_in_use_is_reported_with_its_option(
    server: ApiServer, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = holder.getsockname()
        said = await refused(ManagerSettings(kubeconfig=server.kubeconfig, **{option: address}))
    name = {"health": "--health-listen", "webhooks": "--webhook-listen"}[option]
    assert said == f"cannot listen on 127.0.0.1:{address[1]} for {name}: Address already in use"


async def test_manager_that_loses_its_lease_stops_with_reason(
    server: ApiServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_often(**seconds: float) -> ElectionSettings:
        return ElectionSettings(**{**seconds, "retry_seconds": 0.1})

    monkeypatch.setattr(manager, "ElectionSettings", look_often)
    stop = asyncio.Event()
    task = asyncio.create_task(serve(ManagerSettings(kubeconfig=server.kubeconfig, **PATIENT), stop))
    await Lines(capsys, task).until(" leads ")
    theirs = {"spec": {"holderIdentity": "other", "leaseDurationSeconds": 600}}
    await server.client().patch(LEASE.target, "remuda-system", "remuda", theirs)
    with pytest.raises(
        StartRefused, match=r"stopped, because another replica may lead by now: lease .* it is held by other"
    ):
        async with asyncio.timeout(LIMIT_SECONDS):
            await task


async def test_connect_returns_a_working_client(server: ApiServer) -> None:
    client = await connect(ManagerSettings(kubeconfig=server.kubeconfig))
    assert b"gitVersion" in await client.raw_get("/version")
    await client.close()
