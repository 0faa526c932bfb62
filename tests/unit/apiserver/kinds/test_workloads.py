"""apps, batch and policy: defaults, what is refused, what may change."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kube import cron

from .writing import POD, SELECTOR, TEMPLATE, UID, changed, complaints, created, defaulted, given, kind, updated

DEPLOYMENT, REPLICA_SET = kind("Deployment", "apps"), kind("ReplicaSet", "apps")
STATEFUL_SET, DAEMON_SET = kind("StatefulSet", "apps"), kind("DaemonSet", "apps")
JOB, CRON_JOB, BUDGET = kind("Job", "batch"), kind("CronJob", "batch"), kind("PodDisruptionBudget", "policy")
SPEC = {"selector": SELECTOR, "template": TEMPLATE}
JOB_SPEC = {"template": {"spec": {**POD, "restartPolicy": "Never"}}}


def test_new_deployment_gets_defaults() -> None:
    spec = created(DEPLOYMENT, spec=SPEC, status={"replicas": 7})["spec"]
    assert (spec["replicas"], spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (1, 10, 600)
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    assert spec["template"]["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert created(DEPLOYMENT, spec=SPEC, status={"replicas": 7})["status"] == {}
    assert created(DEPLOYMENT, spec={**SPEC, "replicas": 0})["spec"]["replicas"] == 0


def test_new_stateful_set_gets_defaults() -> None:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": 1}}}
    claim = {"metadata": {"name": "data"}, "spec": asked}
    mounting = {"name": "c", "image": "i:1", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}
    template = {**TEMPLATE, "spec": {"containers": [mounting]}}
    given_spec = {**SPEC, "template": template, "volumeClaimTemplates": [claim]}
    spec = created(STATEFUL_SET, spec=given_spec)["spec"]
    assert spec["podManagementPolicy"] == "OrderedReady"
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    stored = spec["volumeClaimTemplates"][0]
    assert (stored["kind"], stored["spec"]["volumeMode"], stored["status"]) == (
        "PersistentVolumeClaim",
        "Filesystem",
        {"phase": "Pending"},
    )
    assert complaints(STATEFUL_SET, spec=given_spec) == []


def test_new_daemon_set_gets_rolling_update_defaults() -> None:
    strategy = created(DAEMON_SET, spec=SPEC)["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}


def test_daemon_set_template_generation_increases_with_template_changes() -> None:
    def counted(daemon: Any) -> str:
        return str(daemon["metadata"]["annotations"]["deprecated.daemonset.template.generation"])

    old = created(DAEMON_SET, spec=SPEC)
    assert counted(old) == "1"
    assert counted(defaulted(DAEMON_SET, spec=SPEC)) == "0"
    assert counted(updated(DAEMON_SET, old, changed(old, "spec.minReadySeconds", 5))[0]) == "1"
    assert counted(updated(DAEMON_SET, old, changed(old, "spec.template.spec.hostname", "h"))[0]) == "2"


@pytest.mark.parametrize(
    ("resource", "path", "value", "expected"),
    [
        (DEPLOYMENT, "spec.selector", None, "spec.selector: Required value"),
        (DEPLOYMENT, "spec.selector", {}, "spec.selector: Invalid value: {}: empty selector is invalid for deployment"),
        (
            DEPLOYMENT,
            "spec.selector",
            {"matchLabels": {"app": "other"}},
            'spec.template.metadata.labels: Invalid value: {"app":"web"}: `selector` does not match template `labels`',
        ),
        (DEPLOYMENT, "spec.replicas", -1, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        (
            DEPLOYMENT,
            "spec.template.spec.restartPolicy",
            "Never",
            'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
        ),
        (
            DEPLOYMENT,
            "spec.strategy",
            {"type": "Recreate", "rollingUpdate": {}},
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ),
        (
            DEPLOYMENT,
            "spec.strategy",
            {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "0%"}},
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
        ),
        (
            DEPLOYMENT,
            "spec.strategy",
            {"rollingUpdate": {"maxUnavailable": "many"}},
            'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "many": a valid percent string must be',
        ),
        (DEPLOYMENT, "spec.minReadySeconds", 600, "spec.progressDeadlineSeconds: Invalid value: 600: must be greater"),
        (REPLICA_SET, "spec.template.spec.containers", [], "spec.template.spec.containers: Required value"),
        (STATEFUL_SET, "spec.podManagementPolicy", "x", 'spec.podManagementPolicy: Invalid value: "x": must be'),
        (STATEFUL_SET, "spec.serviceName", "A", 'spec.serviceName: Invalid value: "A"'),
        (
            DAEMON_SET,
            "spec.updateStrategy",
            {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
            "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable",
        ),
        (
            DAEMON_SET,
            "spec.template.spec.activeDeadlineSeconds",
            5,
            "spec.template.spec.activeDeadlineSeconds: Forbidden",
        ),
    ],
)
def test_invalid_workload_is_rejected(resource: Any, path: str, value: Any, expected: str) -> None:
    obj = changed(given(resource, spec=SPEC), path, value)
    resource.behaviour.default(obj)
    found = [str(e) for e in resource.behaviour.validate(obj)]
    assert any(text.startswith(expected) for text in found), found


@pytest.mark.parametrize("resource", [DEPLOYMENT, REPLICA_SET, DAEMON_SET], ids=lambda r: r.kind)
def test_workload_selector_is_immutable(resource: Any) -> None:
    old = created(resource, spec=SPEC)
    both = {"app": "web", "tier": "x"}
    new = changed(changed(old, "spec.selector", {"matchLabels": both}), "spec.template.metadata.labels", both)
    found = updated(resource, old, new)[1]
    assert found == ['spec.selector: Invalid value: {"matchLabels":{"app":"web","tier":"x"}}: field is immutable']


def test_stateful_set_update_may_change_only_mutable_fields() -> None:
    old = created(STATEFUL_SET, spec={**SPEC, "serviceName": "a"})
    assert updated(STATEFUL_SET, old, changed(old, "spec.replicas", 3))[1] == []
    found = updated(STATEFUL_SET, old, changed(old, "spec.serviceName", "b"))[1]
    assert found[0].startswith("spec: Forbidden: updates to statefulset spec for fields other than 'replicas'")


# -- jobs -------------------------------------------------------------------------------------------------------------


def test_new_job_gets_selector_and_labels() -> None:
    job = created(JOB, spec=JOB_SPEC)
    spec = job["spec"]
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": UID}}
    assert spec["template"]["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": UID,
        "batch.kubernetes.io/job-name": "it",
        "controller-uid": UID,
        "job-name": "it",
    }
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (1, 1, 6)
    assert (spec["completionMode"], spec["suspend"], spec["manualSelector"]) == ("NonIndexed", False, False)
    assert spec["podReplacementPolicy"] == "TerminatingOrFailed"


def test_job_labels_default_from_template_labels() -> None:
    spec = {"template": {"metadata": {"labels": {"z": "1"}}, **JOB_SPEC["template"]}}
    job = created(JOB, spec=spec)
    assert list(job["metadata"]["labels"])[-2:] == ["job-name", "z"]
    assert job["metadata"]["labels"] == job["spec"]["template"]["metadata"]["labels"]
    assert created(JOB, spec=spec, metadata={"labels": {"z": "1"}})["metadata"]["labels"] == {"z": "1"}


def test_job_with_parallelism_only_has_no_completions_default() -> None:
    spec = created(JOB, spec={**JOB_SPEC, "parallelism": 3})["spec"]
    assert (spec["parallelism"], "completions" in spec) == (3, False)


def test_job_manual_selector_is_kept() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, **JOB_SPEC["template"]}
    given_spec = {"template": template, "manualSelector": True, "selector": {"matchLabels": {"a": "b"}}}
    job = created(JOB, spec=given_spec)
    assert job["spec"]["selector"] == {"matchLabels": {"a": "b"}}
    assert job["metadata"]["labels"] == {"a": "b"}
    assert JOB.behaviour.validate(job) == []


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (
            "spec.template.spec.restartPolicy",
            "Always",
            'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
        ),
        ("spec.completions", -1, "spec.completions: Invalid value: -1: must be greater than or equal to 0"),
        ("spec.completionMode", "Indexed", "spec.completions: Required value: when completion mode is Indexed"),
        ("spec.managedBy", "me", 'spec.managedBy: Invalid value: "me": must be a domain-prefixed path'),
        (
            "spec.backoffLimitPerIndex",
            1,
            "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
        ),
        (
            "spec.template.metadata",
            {"labels": {"controller-uid": "x"}},
            "spec.template.metadata.labels[controller-uid]: Invalid value:",
        ),
        ("spec.selector", {"matchLabels": {"x": "y"}}, "spec.selector: Invalid value:"),
    ],
)
def test_invalid_job_is_rejected(path: str, value: Any, expected: str) -> None:
    job = changed(given(JOB, spec={**JOB_SPEC, "parallelism": 1}), path, value)
    job["metadata"]["uid"] = UID
    JOB.behaviour.default(job)
    JOB.behaviour.prepare_create(job)
    found = [str(e) for e in JOB.behaviour.validate(job)]
    assert any(text.startswith(expected) for text in found), found


def test_job_update_may_change_only_mutable_fields() -> None:
    old = created(JOB, spec={**JOB_SPEC, "managedBy": "remuda.io/runner"})
    for free, number in [("spec.parallelism", 5), ("spec.suspend", True), ("spec.ttlSecondsAfterFinished", 1)]:
        assert updated(JOB, old, changed(old, free, number))[1] == []
    for path, value, expected in [
        ("spec.completions", 2, "spec.completions: Invalid value: 2: field is immutable"),
        ("spec.managedBy", "a.b/c", 'spec.managedBy: Invalid value: "a.b/c": field is immutable'),
        ("spec.template.spec.containers.0.image", "x", "spec.template: Invalid value:"),
    ]:
        found = updated(JOB, old, changed(old, path, value))[1]
        assert any(text.startswith(expected) for text in found), found
    suspended = changed(old, "spec.suspend", True)
    assert updated(JOB, suspended, changed(suspended, "spec.template.spec.nodeSelector", {"a": "b"}))[1] == []


@pytest.mark.parametrize(
    "schedule", ["* * * * *", "*/5 0-3 1,15 JAN-MAR MON", "@hourly", "@every 1h30m", "0 0 ? * SUN", "5/15 * * * *"]
)
def test_valid_cron_schedule_is_accepted(schedule: str) -> None:
    assert cron.complaint(schedule) == ""


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("@sometimes", "unrecognized descriptor: @sometimes"),
        ("a! * * * *", 'failed to parse int from a!: strconv.Atoi: parsing "a!": invalid syntax'),
    ],
)
def test_invalid_cron_schedule_is_rejected(schedule: str, why: str) -> None:
    found = complaints(CRON_JOB, spec={"schedule": schedule, "jobTemplate": {"spec": JOB_SPEC}})
    assert found == [f'spec.schedule: Invalid value: "{schedule}": {why}']


def test_cron_job_is_defaulted_and_validated() -> None:
    spec = {"schedule": "@daily", "jobTemplate": {"spec": JOB_SPEC}}
    stored = created(CRON_JOB, spec=spec)["spec"]
    assert (stored["concurrencyPolicy"], stored["suspend"]) == ("Allow", False)
    assert (stored["successfulJobsHistoryLimit"], stored["failedJobsHistoryLimit"]) == (3, 1)
    assert "backoffLimit" not in stored["jobTemplate"]["spec"]
    assert complaints(CRON_JOB, spec={**spec, "timeZone": "Mars/Base"})[0].startswith("spec.timeZone: Invalid value")
    assert complaints(CRON_JOB, spec={**spec, "timeZone": "Etc/UTC"}) == []
    assert complaints(CRON_JOB, spec={**spec, "schedule": "TZ=UTC * * * * *"})[0].endswith("use timeZone field instead")
    assert "52 characters" in complaints(CRON_JOB, metadata={"name": "x" * 53}, spec=spec)[0]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"minAvailable": 1, "maxUnavailable": 1}, "minAvailable and maxUnavailable cannot be both set"),
        ({"minAvailable": "101%"}, "must not be greater than 100%"),
        ({"maxUnavailable": -1}, "must be greater than or equal to 0"),
        ({"selector": {"matchLabels": {"a b": "c"}}}, "name part must consist of"),
        ({"unhealthyPodEvictionPolicy": "x"}, 'supported values: "AlwaysAllow", "IfHealthyBudget"'),
    ],
)
def test_invalid_pod_disruption_budget_is_rejected(spec: Any, expected: str) -> None:
    found = complaints(BUDGET, spec=spec)
    assert len(found) == 1
    assert expected in found[0]


def test_pod_disruption_budget_status_rejects_negative_counts() -> None:
    budget = created(BUDGET, spec={"minAvailable": 1})
    budget["status"]["currentHealthy"] = -1
    assert [e.path for e in BUDGET.behaviour.validate_status(budget, budget)] == ["status.currentHealthy"]
