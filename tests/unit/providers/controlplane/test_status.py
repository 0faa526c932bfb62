"""Which servers can be asked: by what they say themselves, and by what the others say of them."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.providers.controlplane import kubeconfig, status
from remuda.providers.controlplane.planner.observed import Host, Member, Report, Roles

NAMES = ("one", "two", "three")


def server(
    name: str, *, dead: Sequence[str] = (), members: Sequence[str] = NAMES, well: bool = True, deleting: bool = False
) -> Host:
    """That calls those dead."""
    view = [Member(f"{one}-1a2b3c4d", f"10.0.0.{NAMES.index(one) + 1}", healthy=one not in dead) for one in members]
    return Host(
        name=name, namespace="d", uid=name, created=0, roles=Roles(etcd=True, control_plane=True), node_name=name,
        internal_addresses=[f"10.0.0.{NAMES.index(name) + 1}"], deleting_since=1.0 if deleting else None,
        report=Report(plan=b"p", applied=b"p", probes={"kube-apiserver": well}, members=view),
    )  # fmt: skip


def names(hosts: Sequence[Host]) -> list[str]:
    return [host.name for host in status.serving(hosts)]


def test_servers_whose_probes_pass_serve_and_those_that_go_come_last() -> None:
    assert names([server("one", deleting=True), server("two", well=False), server("three")]) == ["three", "one"]


def test_one_that_says_it_is_well_and_that_all_others_call_dead_does_not_serve() -> None:
    hosts = [server("one"), server("two", dead=["one"]), server("three", dead=["one"])]
    assert names(hosts) == ["two", "three"]
    where = kubeconfig.endpoint(None, None, status.serving(hosts), 6443, "10.0.0.1:6443")
    assert str(where) == "10.0.0.2:6443"


def test_one_that_calls_everybody_else_dead_is_not_believed() -> None:
    assert names([server("one", dead=["two", "three"]), server("two"), server("three")]) == ["one", "two", "three"]


def test_one_that_is_no_member_serves() -> None:
    rest = ("two", "three")
    assert names([server(one, members=rest) for one in NAMES]) == ["one", "two", "three"]
