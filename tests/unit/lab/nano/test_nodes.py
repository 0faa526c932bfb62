"""What the cluster knows of its Nodes, without a cluster."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from remuda.lab.nano import manifests, service
from remuda.lab.nano.configuration import Configuration, FatalError
from remuda.lab.nano.flavour import NANO
from remuda.lab.nano.leader_services import grace_seconds
from remuda.lab.nano.members import Member
from remuda.lab.nano.nodes import REMOVE, REMOVED_NAME, Renewals, asked_to_leave, etcd_patch, voter_patch


def test_node_silence_counts_from_observed_renewal_and_excludes_outages() -> None:
    seen = Renewals()
    seen.take("a", "2020", 100.0)  # long ago by its own clock: that says nothing
    assert seen.silence("a", 110.0) == 10
    seen.take("a", "2020", 115.0)
    assert seen.silence("a", 120.0) == 20
    seen.take("a", "2021", 120.0)
    assert seen.silence("a", 121.0) == 1
    seen.excuse(150.0)
    assert seen.silence("a", 151.0) == 1
    assert seen.silence("never-heard-of", 200.0) == 0
    assert seen.silence("never-heard-of", 250.0) == 50


def test_etcd_node_patch_is_empty_when_unchanged() -> None:
    member = Member(name="a-1", node="a", address="10.0.0.1", learner=True)
    node = {"metadata": {"name": "a"}, "status": {}}
    patch = etcd_patch(node, member, NANO)
    assert patch["metadata"]["annotations"]["etcd.nano.cattle.io/node-name"] == "a-1"
    assert etcd_patch(patch, member, NANO) == {}
    learning = voter_patch(node, member)
    assert learning["status"]["conditions"][0]["status"] == "False"
    assert voter_patch(learning, member) == {}
    voting = Member(name="a-1", node="a", address="10.0.0.1")
    assert voter_patch(learning, voting)["status"]["conditions"][0]["status"] == "True"


@pytest.mark.parametrize(("text", "seconds"), [("40s", 40.0), ("1m", 60.0), ("500ms", 0.5)])
def test_node_monitor_grace_period_is_parsed(text: str, seconds: float) -> None:
    values = {"kube-controller-manager-arg": (f"node-monitor-grace-period={text}",)}
    assert grace_seconds(Configuration(role="server", values=values)) == seconds


@pytest.mark.parametrize("text", ["soon", "40", "s", "1h"])
def test_invalid_node_monitor_grace_period_is_rejected(text: str) -> None:
    values = {"kube-controller-manager-arg": (f"node-monitor-grace-period={text}",)}
    with pytest.raises(FatalError):
        grace_seconds(Configuration(role="server", values=values))


def test_systemd_readiness_is_sent_to_notify_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(path))
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        service.ready()
        assert channel.recv(100) == b"READY=1"
    service.ready()  # nobody listens any more


def test_manifests_are_found_recursively_except_skipped_or_disabled(tmp_path: Path) -> None:
    for name in ("b.yaml", "sub/a.yml", "skipped.yaml", "skipped.yaml.skip", "off.yaml", "readme.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("a: b\n---\n---\nkind: List\nitems: [{x: y}]\n")
    found = manifests.wanted(tmp_path, ["off"])
    assert [path.relative_to(tmp_path).as_posix() for path in found] == ["b.yaml", "sub/a.yml"]
    assert manifests.documents(tmp_path / "b.yaml") == [{"a": "b"}, {"x": "y"}]
    (tmp_path / "b.yaml").write_text("- 1\n")
    with pytest.raises(ValueError, match="not an object"):
        manifests.documents(tmp_path / "b.yaml")


def test_removal_annotation_applies_to_member_but_not_to_successor() -> None:
    assert not asked_to_leave({"metadata": {}}, "a-1", NANO)
    assert asked_to_leave({"metadata": {"annotations": {NANO.etcd(REMOVE): "true"}}}, "a-1", NANO)
    left = {"metadata": {"annotations": {NANO.etcd(REMOVE): "true", NANO.etcd(REMOVED_NAME): "a-1"}}}
    assert asked_to_leave(left, "a-1", NANO)  # it says so and is still listed: it must go on leaving
    assert not asked_to_leave(left, "a-2", NANO)
