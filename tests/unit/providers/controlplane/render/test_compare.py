"""What a change of plan means for a host, and what it is called."""

from __future__ import annotations

import pytest

from remuda.providers.controlplane import render
from remuda.providers.controlplane.planner.observation import ClusterFacts, ExtraFile, ExtraFiles, S3Access
from remuda.providers.controlplane.render import Placement, consequence
from remuda.providers.shared import distros
from remuda.providers.shared.types.configuration import S3, EnvVar, Etcd, Mirror, Registries, UpgradeStrategy
from tests.unit.providers.controlplane.render import sample

PLAIN = sample.plain()


def rendered(cluster: ClusterFacts, role: str = "server", before: bytes = b"", **host: object) -> bytes:
    return render.render(cluster, sample.host(role, **host), sample.place(role), before=before)


def upgraded() -> ClusterFacts:
    version = distros.parse_version("v1.36.5+k3s1")
    installer = sample.Installer(version=version.text, image="rancher/system-agent-installer-k3s:v1.36.5-k3s1")
    return sample.with_(PLAIN, version=version, installer=installer)


def with_file(content: bytes, *, dynamic: bool = False) -> ClusterFacts:
    return sample.with_(
        PLAIN, files=[ExtraFiles(None, [ExtraFile(path="/etc/extra", content=content, dynamic=dynamic)])]
    )


CHANGES = {
    "config": (sample.plain(machine_global_config={"debug": True}), "drain", "config key debug"),
    "version": (upgraded(), "drain", "version v1.36.4+k3s1 → v1.36.5+k3s1"),
    "registries": (
        sample.plain(registries=Registries(mirrors={"docker.io": Mirror(endpoint=["https://m"])})),
        "drain",
        "registries",
    ),
    "generation": (
        sample.plain(provision_generation=1),
        "drain",
        "a restart was requested (provisionGeneration)",
    ),
    "config generation": (
        sample.with_(PLAIN, config_generation=1),
        "drain",
        "a restart was requested (provisionGeneration)",
    ),
    "environment": (
        sample.plain(agent_env_vars=[EnvVar(name="HTTPS_PROXY", value="http://p")]),
        "drain",
        "environment HTTPS_PROXY",
    ),
    "file": (with_file(b"x"), "drain", "file /etc/extra"),
    "schedule": (
        sample.plain(etcd=Etcd(snapshot_schedule_cron="0 1 * * *")),
        "restart",
        "config key etcd-snapshot-schedule-cron, the spec stored in snapshots",
    ),
    "s3": (
        sample.with_(PLAIN, s3=S3Access(s3=S3(folder="f"))),
        "restart",
        "config key etcd-s3, config key etcd-s3-folder",
    ),
    "dynamic file": (with_file(b"x", dynamic=True), "apply", "file /etc/extra"),
    "manifest": (sample.plain(additional_manifest="a: b"), "apply", "additionalManifest"),
    "charts": (sample.plain(chart_values={"k3s-coredns": {}}), "apply", "chartValues"),
    "remembered": (
        sample.plain(upgrade_strategy=UpgradeStrategy(worker_concurrency="2")),
        "minor",
        "the spec stored in snapshots",
    ),
    "authorities": (
        sample.with_(PLAIN, authorities={**sample.AUTHORITIES, "server/tls/client-ca.crt": b"c"}),
        "minor",
        "the cluster's CA",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_plan_change_has_minimal_impact_and_reason(name: str) -> None:
    cluster, change, words = CHANGES[name]
    before = rendered(PLAIN)
    after = rendered(cluster, before=before)
    assert render.compare(before, after) == change
    assert words in consequence.why(before, after)


@pytest.mark.parametrize("name", CHANGES)
def test_reverted_change_has_same_impact(name: str) -> None:
    cluster, change, _ = CHANGES[name]
    before = rendered(cluster)
    assert render.compare(before, rendered(PLAIN, before=before)) == change


def test_changed_join_servers_are_minor() -> None:
    host = sample.host("worker")
    before = render.render(PLAIN, host, Placement(servers=["https://a:6443"]))
    after = render.render(PLAIN, host, Placement(servers=["https://b:6443"]), before=before)
    assert render.compare(before, after) == "minor"
    assert consequence.why(before, after) == "the servers to join by"


@pytest.mark.parametrize("distro", sample.VERSIONS)
def test_moved_init_mark_is_minor(distro: str) -> None:
    """The init mark moves when the host that bore it goes: the cluster is long there, and nothing restarts."""
    cluster, host = sample.plain(distro), sample.host("server")
    before = render.render(cluster, host, Placement(servers=["https://a:6443"]))
    assert render.compare(before, render.render(cluster, host, Placement(init=True), before=before)) == "minor"


def test_label_and_taint_changes_are_named_by_key() -> None:
    before = rendered(PLAIN, "worker")
    after = rendered(PLAIN, "worker", before=before, node_labels={"colour": "red"}, node_taints=[])
    assert consequence.changes(before, after) == ["config key node-label", "config key node-taint"]


def test_label_and_taint_changes_do_not_restart() -> None:
    before = rendered(PLAIN, "worker")
    after = rendered(PLAIN, "worker", before=before, node_labels={"colour": "red"}, node_taints=[])
    assert render.compare(before, after) == "apply"


def test_first_plan_restarts_with_reason_first_plan() -> None:
    plan = rendered(PLAIN)
    assert render.compare(b"", plan) == "restart"
    assert consequence.why(b"", plan) == "first plan"


def test_same_plan_has_no_consequence() -> None:
    plan = rendered(PLAIN)
    assert render.compare(plan, plan) == "none"
    assert consequence.why(plan, plan) == "nothing changes"


def test_retire_plan_reason_is_host_leaves_cluster() -> None:
    before = rendered(PLAIN)
    after = render.retire(PLAIN, sample.host("server"))
    assert consequence.why(before, after) == "the host leaves the cluster"
    assert render.compare(before, after) in {"restart", "drain"}


def test_change_reasons_contain_no_secrets() -> None:
    secret = sample.with_(PLAIN, tokens=sample.Tokens("other-server-token", "other-agent-token"))
    before = rendered(PLAIN)
    assert consequence.changes(before, rendered(secret, before=before)) == [
        "config key agent-token",
        "config key token",
    ]


def test_removed_file_is_named() -> None:
    before = rendered(with_file(b"x"))
    assert consequence.changes(before, rendered(PLAIN, before=before)) == ["file /etc/extra is removed"]
