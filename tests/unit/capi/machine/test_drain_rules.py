"""Which pods leave a Node, in which order, and what is said of those that do not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi.machine import drain_rules
from remuda.capi.machine.drain_rules import (
    BadRule,
    DrainFacts,
    EvictionRefusal,
    listed,
    message,
    plan,
    rules_for,
    verdict,
)
from remuda.capi.machine.workload import MIRROR_POD, Pod
from remuda.capi.names import POD_DRAIN
from remuda.kube.clock import rfc3339
from remuda.kube.objects import Key
from tests.unit.capi.machine.objects import NOW, cluster, machine, owned_by, pod, rule


def around(**changes: Any) -> DrainFacts:
    given: dict[str, Any] = {
        "now": NOW,
        "unreachable": False,
        "daemon_sets": (),
        "namespace_labels": {},
        "rules": (),
        **changes,
    }
    return DrainFacts(**given)


def names(pods: Any) -> list[str]:
    return [one.metadata.name for one in pods]


def compiled(*rules: Any) -> list[drain_rules.Rule]:
    return rules_for(machine(), cluster(), rules)


def test_pod_without_matching_rule_is_drained() -> None:
    assert verdict(pod("a"), around()).behaviour == "Drain"


def test_daemon_set_pod_is_skipped_unless_daemon_set_is_deleted_or_pod_finished() -> None:
    mine = owned_by("DaemonSet", "proxy")
    existing = around(daemon_sets={Key("default", "proxy")})
    assert verdict(pod("a", **mine), existing).behaviour == "Skip"
    assert verdict(pod("a", **mine), around()).behaviour == "Drain"
    assert verdict(pod("a", namespace="other", **mine), existing).behaviour == "Drain"
    assert verdict(pod("a", phase="Succeeded", **mine), existing).behaviour == "Drain"


def test_replica_set_pod_with_daemon_set_name_is_drained() -> None:
    existing = around(daemon_sets={Key("default", "proxy")})
    assert verdict(pod("a", **owned_by("ReplicaSet", "proxy")), existing).behaviour == "Drain"


def test_static_pod_is_skipped() -> None:
    assert verdict(pod("a", annotations={MIRROR_POD: "x"}), around()).behaviour == "Skip"


@pytest.mark.parametrize(
    ("value", "behaviour"),
    [("skip", "Skip"), ("Skip", "Skip"), ("wait-completed", "WaitCompleted"), ("whatever", "Drain")],
)
def test_pod_drain_label_takes_precedence_over_rules(value: str, behaviour: str) -> None:
    rules = compiled(rule("r", "Drain", 5))
    assert verdict(pod("a", labels={POD_DRAIN: value}), around(rules=rules)).behaviour == behaviour


def test_deleted_pod_on_unreachable_node_is_skipped() -> None:
    long_gone = pod("a", deletionTimestamp=rfc3339(NOW - 10))
    just_now = pod("b", deletionTimestamp=rfc3339(NOW - 1))
    silent = plan([long_gone, just_now], around(unreachable=True))
    assert names(silent.stay) == ["a"]
    assert names(silent.leaving) == ["b"]
    assert names(plan([long_gone], around()).leaving) == ["a"]


def test_first_matching_drain_rule_by_name_decides() -> None:
    web = {"pods": [{"selector": {"matchLabels": {"app": "web"}}}]}
    rules = compiled(rule("b", "Skip", **web), rule("a", "Drain", 7, **web), rule("c", "WaitCompleted"))
    assert verdict(pod("x", labels={"app": "web"}), around(rules=rules)) == ("Drain", 7, "MachineDrainRule a")
    assert verdict(pod("y"), around(rules=rules)).behaviour == "WaitCompleted"


def test_drain_rule_can_select_by_namespace_labels() -> None:
    rules = compiled(rule("r", "Skip", pods=[{"namespaceSelector": {"matchLabels": {"team": "storage"}}}]))
    where = {"ceph": {"team": "storage"}, "default": {}}
    assert drain_rules.need_namespaces(rules)
    assert verdict(pod("a", namespace="ceph"), around(rules=rules, namespace_labels=where)).behaviour == "Skip"
    assert verdict(pod("a"), around(rules=rules, namespace_labels=where)).behaviour == "Drain"
    assert not drain_rules.need_namespaces(
        compiled(rule("r", "Skip", pods=[{"selector": {"matchLabels": {"a": "b"}}}]))
    )


@pytest.mark.parametrize(
    ("machines", "speaks"),
    [
        ([], True),
        ([{"selector": {"matchLabels": {"pool": "gpu"}}}], True),
        ([{"selector": {"matchLabels": {"pool": "cpu"}}}], False),
        ([{"clusterSelector": {"matchLabels": {"stage": "prod"}}}], True),
        ([{"selector": {"matchLabels": {"pool": "gpu"}}, "clusterSelector": {"matchLabels": {"stage": "dev"}}}], False),
        ([{"selector": {"matchLabels": {"pool": "cpu"}}}, {"selector": {}}], True),
    ],
)
def test_drain_rule_applies_only_to_selected_machines(machines: list[Any], speaks: bool) -> None:
    mine = machine(meta={"labels": {"pool": "gpu"}})
    found = rules_for(mine, cluster(labels={"stage": "prod"}), [rule("r", "Skip", machines=machines)])
    assert bool(found) == speaks


def test_invalid_drain_rule_selector_raises_bad_rule() -> None:
    broken = rule("odd", "Skip", pods=[{"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}])
    with pytest.raises(BadRule, match="MachineDrainRule odd"):
        rules_for(machine(), cluster(), [broken])


def test_unknown_drain_behavior_waits_for_completion() -> None:
    assert verdict(pod("a"), around(rules=compiled(rule("r", "Teleport")))).behaviour == "WaitCompleted"


def test_only_pods_of_lowest_drain_order_are_evicted() -> None:
    first = rule("first", "Drain", -1, pods=[{"selector": {"matchLabels": {"app": "web"}}}])
    later = rule("later", "Drain", 10, pods=[{"selector": {"matchLabels": {"app": "db"}}}])
    pods = [
        pod("web", labels={"app": "web"}),
        pod("db", labels={"app": "db"}),
        pod("job", labels={POD_DRAIN: "wait-completed"}),
    ]
    rules = compiled(first, later)
    before = plan(pods, around(rules=rules))
    assert names(before.evict) == ["web"]
    assert names(before.evict_later) == ["db"]
    assert names(before.complete_later) == ["job"]
    between = plan(pods[1:], around(rules=rules))
    assert (names(between.complete), names(between.evict), names(between.evict_later)) == (["job"], [], ["db"])
    assert names(plan(pods[1:2], around(rules=rules)).evict) == ["db"]


def test_terminating_pod_delays_pods_of_higher_drain_order() -> None:
    rules = compiled(rule("r", "Drain", 1, pods=[{"selector": {"matchLabels": {"app": "db"}}}]))
    found = plan([pod("web", deletionTimestamp=rfc3339(NOW)), pod("db", labels={"app": "db"})], around(rules=rules))
    assert (names(found.leaving), names(found.evict), names(found.evict_later)) == (["web"], [], ["db"])


def test_completed_pod_does_not_block_drain() -> None:
    found = plan([pod("job", phase="Succeeded", labels={POD_DRAIN: "wait-completed"})], around())
    assert found.finished
    assert names(found.stay) == ["job"]


def test_drain_warns_of_local_storage_and_missing_controller() -> None:
    controlled = owned_by("ReplicaSet", "web")
    assert drain_rules.warnings(pod("a", **controlled)) == []
    assert drain_rules.warnings(pod("a", volumes=[{"name": "tmp", "emptyDir": {}}], **controlled)) == [
        "its local storage (emptyDir) is deleted with it"
    ]
    assert drain_rules.warnings(pod("a")) == ["no controller recreates it on another Node"]


def test_drain_message_names_pods_budgets_and_next_evictions() -> None:
    rules = compiled(rule("r", "Drain", 1, pods=[{"selector": {"matchLabels": {"app": "db"}}}]))
    pods = [
        pod("leaving", deletionTimestamp=rfc3339(NOW)),
        pod("guarded"),
        pod("granted"),
        pod("job", labels={POD_DRAIN: "wait-completed"}),
        pod("db", labels={"app": "db"}),
    ]
    refusal = EvictionRefusal(pods[1], "The disruption budget web needs 1 healthy pods and has 1 currently")
    assert message(plan(pods, around(rules=rules)), [refusal]).split("\n") == [
        "* Pods default/granted, default/leaving: deletionTimestamp set, but still not removed from the Node",
        "* Pod default/guarded: The disruption budget web needs 1 healthy pods and has 1 currently",
        "* Pod default/job: waiting for completion, not evicted",
        "After these are deleted, evicts Pod default/db",
    ]


def test_drain_message_names_terminating_and_evicted_pods() -> None:
    ending = "deletionTimestamp set, but still not removed from the Node"
    leaving, granted = pod("leaving", deletionTimestamp=rfc3339(NOW)), pod("granted")
    assert message(plan([leaving], around()), []) == f"* Pod default/leaving: {ending}"
    assert message(plan([granted], around()), []) == f"* Pod default/granted: {ending}"


def test_drain_message_names_pods_awaited_later() -> None:
    rules = compiled(rule("r", "Drain", -1, pods=[{"selector": {"matchLabels": {"app": "web"}}}]))
    pods = [pod("web", labels={"app": "web"}), pod("job", labels={POD_DRAIN: "wait-completed"})]
    assert message(plan(pods, around(rules=rules)), []).endswith(
        "After these are deleted, waits for completion of Pod default/job"
    )


def test_drain_message_truncates_long_lists() -> None:
    pods = [pod(f"p-{i}") for i in range(7)]
    assert listed(pods[:3]) == "Pods default/p-0, default/p-1, default/p-2"
    assert listed(pods) == "Pods default/p-0, default/p-1, default/p-2, ... (4 more)"
    refusals = [EvictionRefusal(one, f"reason {i}") for i, one in enumerate(pods)]
    assert len(message(plan(pods[:5], around()), refusals[:5]).split("\n")) == 5
    assert "more reasons" not in message(plan(pods[:5], around()), refusals[:5])
    lines = message(plan(pods, around()), refusals).split("\n")
    assert len(lines) == 6
    assert lines[-1] == "* 2 more reasons why Pods cannot be evicted"


_APPS = ("web", "db", "job")


@st.composite
def anything_on_a_node(draw: st.DrawFn) -> list[Pod]:
    found = []
    for i in range(draw(st.integers(0, 8))):
        meta: dict[str, Any] = {"labels": {"app": draw(st.sampled_from(_APPS))}}
        if draw(st.booleans()):
            meta["deletionTimestamp"] = rfc3339(NOW - draw(st.integers(0, 100)))
        label = draw(st.sampled_from(["", "skip", "wait-completed"]))
        meta["labels"] |= {POD_DRAIN: label} if label else {}
        meta |= draw(st.sampled_from([{}, owned_by("DaemonSet", "d"), {"annotations": {MIRROR_POD: ""}}]))
        found.append(pod(f"p-{i}", phase=draw(st.sampled_from(["Running", "Succeeded"])), **meta))
    return found


rules_of_a_user = st.lists(
    st.builds(
        lambda app, behavior, order: (app, behavior, order),
        st.sampled_from(_APPS),
        st.sampled_from(["Drain", "Skip", "WaitCompleted"]),
        st.integers(-2, 2),
    ),
    max_size=3,
)


@given(anything_on_a_node(), rules_of_a_user, st.booleans())
def test_drain_plan_places_each_pod_once_and_terminates(
    pods: list[Pod], wanted: list[tuple[str, str, int]], unreachable: bool
) -> None:
    rules = compiled(
        *(
            rule(f"r-{i}", behavior, order, pods=[{"selector": {"matchLabels": {"app": app}}}])
            for i, (app, behavior, order) in enumerate(wanted)
        )
    )
    where = around(rules=rules, unreachable=unreachable, daemon_sets={Key("default", "d")})
    left = pods
    for _ in range(len(pods) + 1):
        found = plan(left, where)
        assert sorted(names([one for group in found for one in group])) == sorted(names(left))
        assert found.finished == (names(found.stay) == names(left))
        if found.finished:
            break
        now = [*found.leaving, *found.evict, *found.complete]
        assert now, "a drain that is not finished always has something to do or to wait for at once"
        left = [one for one in left if one not in now]
    assert found.finished
