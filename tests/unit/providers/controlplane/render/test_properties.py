"""What must be true of every plan, whatever the cluster."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from remuda.agent import plan as agent_plan
from remuda.providers.controlplane import render
from remuda.providers.controlplane.planner.observation import (
    ClusterFacts,
    ExtraFile,
    ExtraFiles,
    ObservedHost,
    RegistryAccess,
)
from remuda.providers.controlplane.render import Placement
from remuda.providers.shared.distros.k3s import SERVER_ARGUMENTS
from remuda.providers.shared.types.configuration import (
    EnvVar,
    Mirror,
    Registries,
    RegistryConfig,
    SelectorConfig,
    Taint,
)
from tests.unit.providers.controlplane.render import sample

_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
_NAME = st.from_regex(r"[a-z]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
_VALUE = st.one_of(
    st.none(), _TEXT, st.booleans(), st.integers(-5, 99), st.floats(allow_nan=False), st.lists(_TEXT, max_size=3)
)
_KEYS = st.sampled_from([*sorted(SERVER_ARGUMENTS), "cni", "audit-policy-file", "colour", "kubelet-arg+"])
_CONFIG = st.dictionaries(_KEYS, st.one_of(_VALUE, st.dictionaries(_NAME, _VALUE, max_size=2)), max_size=6)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterFacts:
    hosts = draw(st.lists(_NAME, max_size=3, unique=True))
    base = sample.plain(
        draw(st.sampled_from(sorted(sample.VERSIONS))),
        machine_global_config=draw(_CONFIG),
        machine_selector_config=[SelectorConfig(config=config) for config in draw(st.lists(_CONFIG, max_size=2))],
        chart_values=draw(st.dictionaries(_NAME, st.dictionaries(_NAME, _TEXT, max_size=3), max_size=3)),
        additional_manifest=draw(_TEXT),
        registries=Registries(
            mirrors={name: Mirror(endpoint=["https://m"], rewrite={"a": "b", "c": "d"}) for name in hosts},
            configs={name: RegistryConfig(insecure_skip_verify=draw(st.booleans())) for name in hosts},
        ),
        agent_env_vars=[EnvVar(name=name.upper().replace("-", "_"), value=draw(_TEXT)) for name in hosts],
        provision_generation=draw(st.integers(0, 3)),
    )
    files = draw(st.dictionaries(_NAME.map("/etc/extra/{}".format), st.binary(max_size=8), max_size=3))
    return sample.with_(
        base,
        registries={name: RegistryAccess(username="u", password="p", certificate="c") for name in hosts},
        files=[ExtraFiles(None, [ExtraFile(path=path, content=content) for path, content in files.items()])],
        config_generation=draw(st.integers(0, 3)),
    )


@st.composite
def hosts(draw: st.DrawFn) -> ObservedHost:
    labels = draw(st.dictionaries(_NAME, _NAME, max_size=4))
    taints = [Taint(key=key, effect="NoSchedule") for key in draw(st.lists(_NAME, max_size=3))]
    return sample.host(
        draw(st.sampled_from(sorted(sample.ROLES))),
        node_labels=labels,
        node_taints=taints,
        internal_addresses=draw(st.lists(st.ip_addresses().map(str), max_size=3)),
        external_addresses=draw(st.lists(st.ip_addresses().map(str), max_size=3)),
        provider_id=draw(st.sampled_from(["", "process://a"])),
    )


placements = st.one_of(
    st.just(Placement(init=True)),
    st.lists(_NAME, max_size=3).map(lambda names: Placement(servers=[f"https://{name}:6443" for name in names])),
)


def _shuffled(value: Any, order: random.Random) -> Any:
    """The same, with every map in another order."""
    if isinstance(value, dict):
        items = list(value.items())
        order.shuffle(items)
        return {key: _shuffled(item, order) for key, item in items}
    if isinstance(value, list | tuple):
        return type(value)(_shuffled(item, order) for item in value)
    if hasattr(value, "__struct_fields__"):
        return type(value)(**{name: _shuffled(getattr(value, name), order) for name in value.__struct_fields__})
    return value


@settings(max_examples=50)
@given(clusters(), hosts(), placements, st.randoms(use_true_random=False))
def test_plan_bytes_do_not_depend_on_map_order(
    cluster: ClusterFacts, host: ObservedHost, placement: Placement, order: random.Random
) -> None:
    other = sample.with_(
        cluster,
        spec=_shuffled(cluster.spec, order),
        authorities=_shuffled(dict(cluster.authorities), order),
        registries=_shuffled(dict(cluster.registries), order),
        installer=_shuffled(cluster.installer, order),
    )
    moved = sample.host("init", **(_fields(host) | {"node_labels": _shuffled(dict(host.node_labels), order)}))
    assert render.render(cluster, host, placement) == render.render(other, moved, placement)


def _fields(host: ObservedHost) -> dict[str, Any]:
    return {name: getattr(host, name) for name in host.__struct_fields__}


@settings(max_examples=50)
@given(clusters(), hosts(), placements)
@example(sample.plain(machine_global_config={"data-dir": "../x"}), sample.host("server"), Placement(init=True))
def test_every_plan_is_readable_by_agent(cluster: ClusterFacts, host: ObservedHost, placement: Placement) -> None:
    plan = agent_plan.parse(render.render(cluster, host, placement))
    paths = [file.path for file in plan.files]
    assert len(paths) == len(set(paths))
    assert all(path.startswith("/") and ".." not in path.split("/") for path in paths)
    assert all("=" in pair and "\x00" not in pair for one in plan.instructions for pair in one.env)
    agent_plan.parse(render.retire(cluster, host))


@settings(max_examples=50)
@given(clusters(), hosts(), placements)
def test_no_secret_of_servers_is_ever_in_a_workers_plan(
    cluster: ClusterFacts, host: ObservedHost, placement: Placement
) -> None:
    plan = agent_plan.parse(render.render(cluster, host, placement))
    everything = b"\n".join(file.content for file in plan.files) + repr(plan.instructions).encode()
    assert (sample.SERVER_TOKEN.encode() in everything) is host.roles.server
    assert (sample.KEY in everything) is host.roles.server


@settings(max_examples=50)
@given(clusters(), clusters(), hosts(), placements)
def test_cleanup_of_previous_plan_is_complete_and_stable(
    old: ClusterFacts, new: ClusterFacts, host: ObservedHost, placement: Placement
) -> None:
    before = render.render(old, host, placement)
    after = render.render(new, host, placement, before=before)
    assert render.render(new, host, placement, before=after) == after
    fresh = json.loads(render.render(new, host, placement))
    cleared = json.loads(after)
    kept = [file for file in cleared["files"] if file.get("action") != "delete"]
    assert (kept, cleared["instructions"]) == (fresh["files"], fresh["instructions"])
    gone = {file["path"] for file in cleared["files"]} - {file["path"] for file in kept}
    assert {path for path in gone if path.startswith("/etc/extra")} == {
        file["path"] for file in json.loads(before)["files"] if file["path"].startswith("/etc/extra")
    } - {file["path"] for file in kept}


@settings(max_examples=50)
@given(clusters(), hosts())
def test_dropped_unknown_keys_are_always_reported(cluster: ClusterFacts, host: ObservedHost) -> None:
    told = render.dropped(cluster, host)
    assert any(": colour:" in words for words in told) is any(
        "colour" in config
        for config in (
            cluster.spec.machine_global_config,
            *(entry.config for entry in cluster.spec.machine_selector_config),
        )
    )
