"""One server, as a real process: what it serves, what it leaves on disk, and whom it lets in."""

from __future__ import annotations

import asyncio
import datetime
import json
import ssl
import stat
import urllib.error
from pathlib import Path

import pytest
from cryptography import x509

from remuda.kube.client import Target
from remuda.kube.errors import NotFound, StatusError
from remuda.kube.http import HttpClient
from remuda.kube.kubeconfig import ClientConfig
from remuda.lab.nano import authorities, serving_certificates, tokens
from remuda.lab.nano.layout import NanoLayout
from tests.lab.nano import AGENT_TOKEN, TOKEN, NanoHosts, ask, eventually, fetch

PODS = Target("v1", "pods")
CONFIG_MAPS = Target("v1", "configmaps")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_single_server_provides_ports_files_and_paths_of_k3s(nano_hosts: NanoHosts) -> None:
    one = nano_hosts.server(
        "one",
        node_label=["color=red"],
        node_taint=["dedicated=db:NoSchedule", "lone:NoExecute"],
        kubelet_arg=["provider-id=process://one"],
        tls_san=["api.example.org"],
        kube_controller_manager_arg=["cert-dir=/opt/cm", "secure-port=10257"],
        no_such_key="x",
    )
    manifest = one.data / "server/manifests/rancher/managed-chart-config.yaml"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(
        "apiVersion: helm.cattle.io/v1\nkind: HelmChartConfig\n"
        "metadata: {name: nano-coredns, namespace: kube-system}\nspec: {valuesContent: 'a: b'}\n"
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-a-file}\ndata: {k: v}\n"
    )
    manifest.with_name("left-out.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: left-out}\n")
    manifest.with_name("left-out.yaml.skip").touch()
    await one.up()

    node = await one.node()
    assert node["spec"]["providerID"] == "process://one"
    assert node["spec"]["taints"] == [
        {"key": "dedicated", "value": "db", "effect": "NoSchedule"},
        {"key": "lone", "effect": "NoExecute"},
    ]
    labels = node["metadata"]["labels"]
    assert labels["color"] == "red"
    assert labels["node-role.kubernetes.io/control-plane"] == labels["node-role.kubernetes.io/etcd"] == "true"
    assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.36.4+nano1"
    assert node["metadata"]["annotations"]["nano.remuda.dev/runs-no-pods"] == "true"
    assert TOKEN not in json.dumps(node)
    assert "Unknown flag --no-such-key" in one.log

    ca = (one.tls / "server-ca.crt").read_bytes()
    assert await ask(one, "/ping") == (200, b"pong")
    assert await ask(one, "/cacerts") == (200, ca)
    code, info = await ask(one, "/db/info")
    assert code == 200
    (member,) = json.loads(info)["members"]
    assert member["name"].startswith("one-")
    assert (member["isLearner"], member["clientURLs"]) == (False, [f"https://{one.address}:2379"])
    for path, who, wanted in (
        ("/v1-nano/readyz", f"node:{AGENT_TOKEN}", 200),
        ("/v1-nano/readyz", "node:wrong", 401),
        ("/v1-nano/readyz", "", 401),
        ("/v1-nano/server-bootstrap", f"node:{AGENT_TOKEN}", 403),
        ("/v1-nano/server-bootstrap", f"node:{TOKEN}", 403),
        ("/v1-nano/server-bootstrap", f"server:{AGENT_TOKEN}", 401),
        ("/v1-nano/server-bootstrap", f"server:{TOKEN}", 200),
        ("/v1-nano/cluster", f"node:{AGENT_TOKEN}", 401),
        ("/api/v1/secrets", "", 403),
    ):
        assert (await ask(one, path, user=who))[0] == wanted, (path, who)
    version = json.loads(await one.client().raw_get("/version"))
    assert (version["gitVersion"], version["minor"]) == ("v1.36.4+nano1", "36")

    server = one.data / "server"
    assert (server / "token").read_text().strip() == tokens.full("server", TOKEN, ca)
    assert (server / "node-token").read_text() == (server / "token").read_text()
    assert (server / "agent-token").read_text().strip() == tokens.full("node", AGENT_TOKEN, ca)
    assert {mode(path) for path in (server / "token", one.tls / "server-ca.key", one.tls / "service.key")} == {0o600}
    assert mode(one.root / "etc/rancher/nano/nano.yaml") == 0o600
    serving = x509.load_pem_x509_certificate((one.tls / "serving-kube-apiserver.crt").read_bytes())
    names = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "api.example.org" in names.get_values_for_type(x509.DNSName)

    for port, ca_file, client in (
        (10257, one.root / "opt/cm/kube-controller-manager.crt", None),
        (10259, one.tls / "server-ca.crt", None),
        (2379, one.tls / "etcd/server-ca.crt", one.tls / "etcd/client"),
    ):
        path = "health" if port == 2379 else "healthz"
        url = f"https://{one.address}:{port}/{path}"
        code, _ = await asyncio.to_thread(fetch, url, ca_file, client=client)
        assert code == 200, port
    with pytest.raises((ssl.SSLError, urllib.error.URLError, OSError)):  # etcd talks to nobody without a certificate
        await asyncio.to_thread(fetch, f"https://{one.address}:2379/health", one.tls / "etcd/server-ca.crt")
    assert (await asyncio.to_thread(fetch, f"http://{one.address}:2381/health", None))[0] == 200
    assert await asyncio.to_thread(fetch, f"http://{one.address}:10248/healthz", None) == (200, b"ok")

    async def applied() -> bool:
        await one.client().get(Target("helm.cattle.io/v1", "helmchartconfigs"), "kube-system", "nano-coredns")
        return bool(await one.client().get(CONFIG_MAPS, "default", "from-a-file"))

    await eventually(applied, "manifests are applied", lambda: one.log)
    with pytest.raises(StatusError, match="not found"):
        await one.client().get(CONFIG_MAPS, "default", "left-out")

    voter = next(c for c in (await one.node())["status"]["conditions"] if c["type"] == "EtcdIsVoter")
    assert voter["status"] == "True"
    assert one.stop() == 0


async def test_simulated_pods_become_ready_and_disruption_budgets_are_enforced(nano_hosts: NanoHosts) -> None:
    one = nano_hosts.server("one")
    await one.up()
    client = one.client()
    spec = {"nodeName": "one", "containers": [{"name": "c", "image": "none"}], "terminationGracePeriodSeconds": 30}
    pod = {"metadata": {"name": "p", "labels": {"app": "p"}}, "spec": spec}
    await client.create(PODS, "default", pod)

    async def is_running() -> bool:
        found = json.loads(await client.get(PODS, "default", "p"))
        ready = [c["status"] for c in found["status"].get("conditions", ()) if c["type"] == "Ready"]
        return found["status"].get("phase") == "Running" and ready == ["True"]

    async def is_gone() -> bool:
        try:
            await client.get(PODS, "default", "p")
        except NotFound:
            return True
        except StatusError:
            return False
        return False

    await eventually(is_running, "the Pod is Running", lambda: one.log)
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}}}
    budgets = Target("policy/v1", "poddisruptionbudgets")
    await client.create(budgets, "default", budget)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "default"}}
    with pytest.raises(StatusError) as refused:
        await client.create(PODS, "default", eviction, name="p", subresource="eviction")
    assert refused.value.code == 429
    await client.delete(budgets, "default", "b")
    await client.create(PODS, "default", eviction, name="p", subresource="eviction")
    await eventually(is_gone, "the Pod has gone", lambda: one.log)


async def test_restart_keeps_server_identity_and_new_bundle_upgrades(nano_hosts: NanoHosts) -> None:
    one = nano_hosts.server("one", node_label=["at=first"])
    await one.up()
    before = await one.node()
    await one.client().create(CONFIG_MAPS, "default", {"metadata": {"name": "kept"}})
    cas = {path.name: path.read_bytes() for path in one.tls.glob("*-ca.*")}
    info = await ask(one, "/db/info")
    token = (one.data / "server/token").read_text()
    one.kill()  # not even asked to stop
    await one.close()
    one.configure("config.yaml.d/60-more.yaml", node_label=["at=second"])
    one.start("server", version="v1.37.0+nano1")

    async def is_upgraded() -> bool:
        return (await one.node())["status"]["nodeInfo"]["kubeletVersion"] == "v1.37.0+nano1"

    await eventually(is_upgraded, "the Node tells the new version", lambda: one.log)
    after = await one.node()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["labels"]["at"] == "first"  # as with a kubelet: labels count at registration
    assert {path.name: path.read_bytes() for path in one.tls.glob("*-ca.*")} == cas
    assert await ask(one, "/db/info") == info
    assert (one.data / "server/token").read_text() == token
    await one.client().get(CONFIG_MAPS, "default", "kept")
    assert json.loads(await one.client().raw_get("/version"))["minor"] == "37"


async def test_cas_delivered_before_first_start_are_used(nano_hosts: NanoHosts, tmp_path: Path) -> None:
    delivered = NanoLayout(tmp_path / "delivered")
    delivered.make(server=True)
    authorities.prepare(delivered)
    one = nano_hosts.host("one")
    for name in authorities.shared_names():
        path = one.tls / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((delivered.tls / name).read_bytes())
    one.configure(node_name="one", token=TOKEN, cluster_init=True)
    one.start("server")
    await one.up()
    # A kubeconfig signed by the delivered authority, as the manager makes it, is good.
    signer = authorities.Authorities(delivered)
    leaf = serving_certificates.client(tmp_path / "admin", signer.client, "manager", ("system:masters",))
    serving_certificates.ensure([leaf], datetime.datetime.now(datetime.UTC))
    access = ClientConfig(
        server=one.url,
        ca=(delivered.tls / "server-ca.crt").read_bytes(),
        client_certificate=tmp_path / "admin.crt",
        client_key=tmp_path / "admin.key",
    )
    client = HttpClient(access)
    try:
        assert json.loads(await client.get(Target("v1", "nodes"), "", "one"))["metadata"]["name"] == "one"
    finally:
        await client.close()


async def test_agent_with_unknown_key_and_server_without_etcd_or_join_url_exit(nano_hosts: NanoHosts) -> None:
    agent = nano_hosts.host("agent")
    agent.configure(node_name="agent", server="https://127.0.0.1:1", token="x", tls_san=["of a server"])
    agent.start("agent")
    assert await agent.ended() == 1
    assert "flag provided but not defined: -tls-san" in agent.log
    lone = nano_hosts.host("lone")
    lone.configure(node_name="lone", token="x", disable_etcd=True)
    lone.start("server")
    assert await lone.ended() == 1
    assert "--server is required with --disable-etcd" in lone.log
