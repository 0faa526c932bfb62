"""The tunnel's client in plans: on nodes of the control plane, and never a reason to restart one."""

from __future__ import annotations

import base64
import json

import pytest

from remuda.providers.controlplane import render
from remuda.providers.controlplane.planner.observation import ClusterFacts, Tokens, Tunnel
from remuda.providers.controlplane.render import plan as plans
from remuda.providers.controlplane.render.consequence import DRAIN_HASH, RESTART_STAMP, changes
from tests.unit.providers.controlplane.render import sample

FOLDER = "/var/lib/rancher/capr/tunnel"


def tunnelled(distro: str = "k3s", tunnel: Tunnel | None = sample.TUNNEL, **spec: object) -> ClusterFacts:
    tokens = Tokens(sample.SERVER_TOKEN, sample.AGENT_TOKEN, sample.TUNNEL_KEY)
    return sample.with_(sample.plain(distro, **spec), tokens=tokens, tunnel=tunnel)


def rendered(cluster: ClusterFacts, role: str = "server", before: bytes = b"", **host: object) -> bytes:
    return render.render(cluster, sample.host(role, **host), sample.place(role), before=before)


def names(plan: bytes) -> list[str]:
    return [one.name for one in (*plans.read(plan).instructions, *plans.read(plan).periodic)]


@pytest.mark.parametrize("distro", sample.VERSIONS)
@pytest.mark.parametrize(
    ("role", "wanted"), [("init", True), ("control-plane", True), ("etcd", False), ("worker", False)]
)
def test_only_control_plane_nodes_get_tunnel(distro: str, role: str, wanted: bool) -> None:
    plan = rendered(tunnelled(distro), role)
    assert ("tunnel" in names(plan)) is wanted
    assert (plans.read(plan).file(f"{FOLDER}/config.json") is not None) is wanted
    assert (sample.TUNNEL_KEY in b"".join(file.content for file in plans.read(plan).files)) is False


@pytest.mark.parametrize("distro", sample.VERSIONS)
def test_adding_tunnel_restarts_nothing(distro: str) -> None:
    before = rendered(tunnelled(distro, tunnel=None))
    after = rendered(tunnelled(distro), before=before)
    assert render.compare(before, after) == "apply"
    was, now = plans.read(before).environment(), plans.read(after).environment()
    assert [was[name] for name in (RESTART_STAMP, DRAIN_HASH)] == [now[name] for name in (RESTART_STAMP, DRAIN_HASH)]
    assert changes(before, after) == ["the tunnel to the manager"]


@pytest.mark.parametrize("field", ["url", "authority", "cluster"])
def test_tunnel_setting_change_is_minor(field: str) -> None:
    other = {"url": "wss://other.example/v3/connect", "authority": b"another\n", "cluster": "c-m-zzzzzzzz"}
    told = {name: getattr(sample.TUNNEL, name) for name in ("url", "authority", "cluster")} | {field: other[field]}
    before = rendered(tunnelled())
    after = rendered(tunnelled(tunnel=Tunnel(**told)), before=before)  # type: ignore[arg-type]
    assert render.compare(before, after) == "minor"
    assert changes(before, after) == ["the tunnel to the manager"]


def test_tunnel_may_dial_only_local_api() -> None:
    found = plans.read(rendered(tunnelled("rke2"))).file(f"{FOLDER}/config.json")
    assert found is not None
    assert found.permissions == "0600"
    settings = json.loads(found.content)
    assert settings["allow"] == ["tcp/127.0.0.1:6443"]
    assert settings["wait_for"] == "https://127.0.0.1:6443/version"


def test_tunnel_token_depends_on_machine_uid() -> None:
    tokens = {plans.read(rendered(tunnelled(), uid=uid)).file(f"{FOLDER}/token") for uid in ("one", "two")}
    assert len(tokens) == 2


def test_tunnel_is_first_periodic_instruction() -> None:
    assert [one.name for one in plans.read(rendered(tunnelled())).periodic] == ["tunnel", "etcd-members", "unit-status"]


def test_node_leaving_control_plane_loses_tunnel_permanently() -> None:
    before = rendered(tunnelled(), "server")
    after = rendered(tunnelled(), "etcd", before=before)
    assert names(after) == ["install", "tunnel", "etcd-members", "unit-status"]
    removal = plans.read(after).instructions[1]
    assert removal.args[-1].endswith("\nremove\n")
    assert {file.path for file in plans.read(after).files if file.deleted} == {
        *(f"{FOLDER}/{name}" for name in ("api-ca.pem", "ca.pem", "config.json", "token")),
    }
    assert rendered(tunnelled(), "etcd", before=after) == after


def test_retire_plan_removes_tunnel_first() -> None:
    plan = plans.read(render.retire(tunnelled(), sample.host("server")))
    assert [one.name for one in plan.instructions] == ["tunnel", "retire"]
    assert plan.instructions[0].args[-1].endswith("\nremove\n")
    assert names(render.retire(tunnelled(), sample.host("worker"))) == ["retire"]


@pytest.mark.parametrize("role", ["server", "etcd", "worker"])
def test_additional_manager_ca_is_distributed_without_restart(role: str) -> None:
    one = b"-----BEGIN CERTIFICATE-----\n"
    path = "/var/lib/rancher/agent/servers.d/50-manager.json"
    alone = Tunnel(cluster="c-m-abcdefgh", url="wss://m/v3/connect", manager="https://m", authority=one)
    both = Tunnel(cluster="c-m-abcdefgh", url="wss://m/v3/connect", manager="https://m", authority=one * 2)
    before = rendered(tunnelled(tunnel=alone), role)
    assert plans.read(before).file(path) is None
    after = rendered(tunnelled(tunnel=both), role, before=before)
    found = plans.read(after).file(path)
    assert found is not None
    assert found.permissions == "0600"
    told = json.loads(found.content)
    assert (told["server"], base64.b64decode(told["certificate-authority-data"])) == ("https://m", one * 2)
    assert render.compare(before, after) == "minor"
    assert "the manager's CA certificates" in changes(before, after)
