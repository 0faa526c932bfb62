"""The mark of a Job: valid for what the manager made, with the API server's defaults, and for nothing else."""

from __future__ import annotations

import copy
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remuda.jobs import marks
from remuda.jobs.marks import ANNOTATION, BadMark, JobKey
from remuda.kube import clock
from remuda.kube.objects import ObjectMeta
from remuda.providers.shared.drivers.spi import Order
from remuda.providers.shared.jobs import manifests
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.providers.shared.types.machine import machine_kind

Json = dict[str, Any]

KEY = JobKey(b"k" * 32)
PLACE = manifests.JobOwner(machine_kind("sim"), ObjectMeta(name="m", namespace="default", uid="u-1"), "c")
ORDER = Order(
    driver="sim", action="create", name="m", hostname="m", namespace="default", machine="m", uid="u-1", cluster="c",
    owner="us",
)  # fmt: skip
SECRETS = [manifests.order_secret(PLACE, ORDER, b"#!/bin/sh", b"script")]


def stored(**settings: Any) -> Json:
    """As an API server would have it: with defaults, generated labels and a selector."""
    made = manifests.job(PLACE, ORDER, MachineSettings(**settings), credentials=True, pool="p", owner="m")
    job = copy.deepcopy(marks.sign(KEY, made, manifests.contents(SECRETS)))
    job["metadata"] |= {"uid": "j-1", "creationTimestamp": clock.now(), "generation": 1}
    spec = job["spec"]
    spec |= {"parallelism": 1, "completions": 1, "completionMode": "NonIndexed", "suspend": False}
    spec |= {"manualSelector": False, "podReplacementPolicy": "TerminatingOrFailed", "selector": {"matchLabels": {}}}
    generated = {"controller-uid": "j-1", "job-name": "m", "batch.kubernetes.io/controller-uid": "j-1"}
    spec["template"]["metadata"]["labels"] |= generated
    spec["template"]["metadata"]["creationTimestamp"] = None
    pod = spec["template"]["spec"]
    pod |= {"dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler", "securityContext": {}}
    pod |= {"terminationGracePeriodSeconds": 30, "serviceAccount": pod["serviceAccountName"]}
    pod["containers"][0]["imagePullPolicy"] = "Always"
    return job


def test_mark_stays_valid_after_api_server_defaulting() -> None:
    mark = marks.verify(KEY, stored())
    assert mark.inputs == {"secrets/m-machine-provision": marks.digest(manifests.contents(SECRETS).popitem()[1])}


def test_mark_stays_valid_for_equivalent_quantities() -> None:
    job = stored(cpu="0.5")
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "500m"
    marks.verify(KEY, job)


def test_suspending_a_job_keeps_its_mark() -> None:
    job = stored()
    job["spec"]["suspend"] = True
    marks.verify(KEY, job)


def pod(job: Json) -> Json:
    return job["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def container(job: Json) -> Json:
    return pod(job)["containers"][0]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "change",
    [
        lambda job: job["metadata"].update(namespace="other"),
        lambda job: job["metadata"].update(name="other"),
        lambda job: job["metadata"]["ownerReferences"][0].update(uid="u-2"),
        lambda job: job["metadata"].update(ownerReferences=[]),
        lambda job: job["spec"].update(backoffLimit=9),
        lambda job: job["spec"].update(activeDeadlineSeconds=9),
        lambda job: job["spec"].update(parallelism=True),
        lambda job: job["spec"]["template"]["metadata"].update(annotations={"a": "b"}),
        lambda job: job["spec"]["template"]["metadata"]["labels"].update({"rke.cattle.io/infra-remove": "true"}),
        lambda job: pod(job).update(serviceAccountName="admin", serviceAccount="admin"),
        lambda job: pod(job).update(serviceAccount="admin"),
        lambda job: pod(job).update(initContainers=[{"name": "x"}]),
        lambda job: pod(job).update(hostNetwork=True),
        lambda job: pod(job).update(nodeName="n"),
        lambda job: pod(job)["containers"].append({"name": "x"}),
        lambda job: pod(job)["volumes"].append({"name": "x", "configMap": {"name": "evil"}}),
        lambda job: pod(job)["volumes"][0]["secret"].update(secretName="evil"),
        lambda job: container(job).update(args=["--help"]),
        lambda job: container(job).update(command=["bash"]),
        lambda job: container(job).update(env=[{"name": "PYTHONPATH", "value": "../root/evil"}]),
        lambda job: container(job).update(envFrom=[{"secretRef": {"name": "evil"}}]),
        lambda job: container(job)["volumeMounts"][0].update(mountPath="/evil"),
        lambda job: container(job).update(terminationMessagePath="/../../pki/ca.key"),
    ],
)
def test_changed_job_invalidates_its_mark(change: Callable[[Json], None]) -> None:
    job = stored()
    change(job)
    with pytest.raises(BadMark, match="its mark is for another namespace, name, owner or spec"):
        marks.verify(KEY, job)


def test_changed_input_digests_invalidate_the_mark() -> None:
    job = stored()
    text = job["metadata"]["annotations"][ANNOTATION]
    digest = marks.digest(manifests.contents(SECRETS).popitem()[1])
    job["metadata"]["annotations"][ANNOTATION] = text.replace(digest, marks.digest({"order.json": b"evil"}))
    with pytest.raises(BadMark, match="another namespace, name, owner or spec"):
        marks.verify(KEY, job)


def test_added_privileges_invalidate_the_mark() -> None:
    job = stored()
    text = job["metadata"]["annotations"][ANNOTATION]
    assert '"rights":[]' in text
    job["metadata"]["annotations"][ANNOTATION] = text.replace('"rights":[]', '"rights":["root"]')
    with pytest.raises(BadMark, match="another namespace, name, owner or spec"):
        marks.verify(KEY, job)


def test_mark_of_another_manager_is_invalid() -> None:
    with pytest.raises(BadMark, match="another manager made it"):
        marks.verify(JobKey.new(), stored())


@pytest.mark.parametrize("seconds", [-301, 301, 86_400])
def test_job_created_at_another_time_cannot_reuse_a_mark(seconds: float) -> None:
    job = stored()
    job["metadata"]["creationTimestamp"] = clock.rfc3339(clock.time() + seconds)
    with pytest.raises(BadMark, match="was used before, or is too old"):
        marks.verify(KEY, job)


@pytest.mark.parametrize("text", [None, "", "x", "{}", '{"issued": "x", "inputs": {}, "mac": ""}'])
def test_job_without_parsable_mark_is_rejected(text: str | None) -> None:
    job = stored()
    job["metadata"]["annotations"] = {} if text is None else {ANNOTATION: text}
    with pytest.raises(BadMark, match="the manager did not make this Job"):
        marks.verify(KEY, job)


def test_digest_distinguishes_keys_and_values_and_ignores_order() -> None:
    contents: list[dict[str, bytes]] = [{}, {"a": b""}, {"a": b"b"}, {"ab": b""}, {"a": b"b", "c": b""}]
    assert len({marks.digest(data) for data in contents}) == len(contents)
    assert marks.digest({"a": b"1", "b": b"2"}) == marks.digest({"b": b"2", "a": b"1"})


def test_job_key_is_created_once_with_private_mode(tmp_path: Path) -> None:
    path = tmp_path / "data" / "job.key"
    first, second = JobKey.load(path), JobKey.load(path)
    assert first.mac(b"x") == second.mac(b"x") != JobKey.new().mac(b"x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [found.name for found in path.parent.iterdir()] == ["job.key"]
    assert path.read_bytes().hex() not in repr(first)


def test_job_key_of_wrong_length_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "job.key").write_bytes(b"")
    with pytest.raises(ValueError, match="32 bytes, not 0"):
        JobKey.load(tmp_path / "job.key")
