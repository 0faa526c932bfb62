"""Who wrote what for whom, and how long each phase took."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remuda.kube import clock
from remuda.kube.client import Target
from remuda.kube.objects import Key, Kind, Object
from remuda.runtime.ledger import BEFORE, Ledger
from remuda.runtime.metrics import Metrics
from remuda.runtime.reconcile_context import CurrentReconcile

MACHINE = Kind("cluster.x-k8s.io/v1beta2", "Machine", "machines", Object)
CLUSTER = Kind("cluster.x-k8s.io/v1beta2", "Cluster", "clusters", Object)
DOCKER = Target("infrastructure.cluster.x-k8s.io/v1beta1", "dockermachines")
SET = CurrentReconcile("machineset", "MachineSet", Key("ns", "set"))
M = Key("ns", "m")


class Time:
    def __init__(self) -> None:
        self.now = 1000.0


@pytest.fixture
def time() -> Iterator[Time]:
    current = Time()
    clock.use(lambda: current.now)
    yield current
    clock.use(None)


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger(Metrics())
    made.follow(MACHINE)
    return made


def create_machine(ledger: Ledger, key: Key) -> None:
    ledger.wrote(SET, "create", MACHINE.target, *key, "")


def test_ledger_opens_account_at_machine_creation(ledger: Ledger) -> None:
    create_machine(ledger, M)
    assert ledger.writes_of(M) == 1
    assert [span.phase for span in ledger.timeline(M)] == [BEFORE]


def test_ledger_attributes_writes_by_reconcile_or_object_name(ledger: Ledger) -> None:
    create_machine(ledger, M)
    ledger.wrote(SET, "create", DOCKER, *M, "")
    ledger.wrote(CurrentReconcile("docker", "DockerMachine", M), "patch", DOCKER, *M, "status")
    ledger.wrote(CurrentReconcile("machine", "Machine", M), "patch", Target("v1", "secrets"), "ns", "another", "")
    ledger.wrote(None, "patch", MACHINE.target, *M, "status")
    assert ledger.writes_of(M) == 5
    assert ledger.timeline(M)[0].writes == {
        "create machines": 1,
        "create dockermachines": 1,
        "patch dockermachines/status": 1,
        "patch secrets": 1,
        "patch machines/status": 1,
    }


def test_unattributed_writes_are_shared_by_all_machines(ledger: Ledger) -> None:
    create_machine(ledger, M)
    create_machine(ledger, Key("ns", "other"))
    for _ in range(4):
        ledger.wrote(
            CurrentReconcile("cluster", "Cluster", Key("ns", "c")), "patch", CLUSTER.target, "ns", "c", "status"
        )
    assert ledger.writes_of(M) == 1
    assert ledger.writes == 6
    assert ledger.writes_per("Machine") == 3.0
    assert ledger.writes_by["cluster", "patch clusters/status"] == 4


def test_ledger_distinguishes_machines_by_namespace(ledger: Ledger) -> None:
    create_machine(ledger, M)
    ledger.wrote(SET, "create", DOCKER, "elsewhere", "m", "")
    assert ledger.writes_of(M) == 1


def test_ledger_follows_only_one_kind(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="the ledger does not follow Cluster"):
        ledger.writes_per("Cluster")
    assert ledger.writes_per("Machine") == 0.0
    idle = Ledger()
    idle.wrote(None, "create", MACHINE.target, *M, "")
    idle.reconciled("machine", "Machine", M)
    assert idle.timeline(M) == []
    assert (idle.writes, idle.reconciles) == (1, 1)


def test_ledger_records_duration_writes_and_reconciles_per_phase(ledger: Ledger, time: Time) -> None:
    create_machine(ledger, M)
    time.now += 2
    ledger.phase(M, "Provisioning")
    ledger.reconciled("machine", "Machine", M)
    ledger.reconciled("docker", "DockerMachine", M)
    ledger.reconciled("cluster", "Cluster", Key("ns", "c"))
    time.now += 30
    ledger.phase(M, "Provisioning")
    ledger.wrote(CurrentReconcile("machine", "Machine", M), "patch", MACHINE.target, *M, "status")
    ledger.phase(M, "Running")
    time.now += 5
    waiting, provisioning, running = ledger.timeline(M)
    assert [span.seconds(time.now) for span in (waiting, provisioning, running)] == [2, 30, 5]
    assert (provisioning.writes, provisioning.reconciles) == ({"patch machines/status": 1}, {"machine": 1, "docker": 1})
    assert running.until is None
    assert ledger.writes_of(M) == 2


def test_ledger_timeline_is_a_copy(ledger: Ledger) -> None:
    create_machine(ledger, M)
    ledger.timeline(M)[0].writes.clear()
    assert ledger.writes_of(M) == 1


def test_ledger_totals_are_exported_as_metrics(time: Time) -> None:
    metrics = Metrics()
    ledger = Ledger(metrics)
    ledger.follow(MACHINE)
    create_machine(ledger, M)
    time.now += 12
    ledger.phase(M, "Running")
    found = metrics.registry.get_sample_value
    labels = {"controller": "machineset", "verb": "create", "resource": "machines"}
    assert found("remuda_writes_total", labels) == 1
    assert found("remuda_phase_seconds_sum", {"kind": "Machine", "phase": BEFORE}) == 12


def test_ledger_evicts_least_recently_used_accounts() -> None:
    ledger = Ledger(most_accounts=3)
    ledger.follow(MACHINE)
    for number in range(10):
        create_machine(ledger, Key("ns", str(number)))
        create_machine(ledger, Key("ns", "0"))
    known = [number for number in range(10) if ledger.timeline(Key("ns", str(number)))]
    assert known == [0, 8, 9]
    assert (ledger.opened, ledger.writes) == (10, 20)
    assert ledger.writes_per("Machine") == 2.0


def test_ledger_keeps_only_latest_phases_of_a_machine(time: Time) -> None:
    ledger = Ledger()
    ledger.follow(MACHINE)
    for turn in range(100):
        ledger.phase(M, ("Running", "Failed")[turn % 2])
    spans = ledger.timeline(M)
    assert len(spans) == 32
    assert [span.phase for span in spans[-2:]] == ["Running", "Failed"]
