"""Orders, credentials, what is known of programs, how a Job ended: small and pure."""

from __future__ import annotations

import msgspec
import pytest

from remuda.jobs.types import (
    ContainerState,
    ContainerStatus,
    Job,
    JobCondition,
    JobSpec,
    JobStatus,
    Pod,
    PodStatus,
    Terminated,
)
from remuda.kube.objects import Key, ObjectMeta
from remuda.providers.shared import credentials, names
from remuda.providers.shared.credentials import BadReference
from remuda.providers.shared.drivers import known_drivers
from remuda.providers.shared.jobs import job_spec, results

META = ObjectMeta(name="pool-1.example", namespace="ns", uid="u-1")


# ---- orders


def test_server_name_is_dns_label_of_machine_name() -> None:
    assert job_spec.server_name("pool-1.example") == "pool-1-example"
    assert len(job_spec.server_name("x" * 200)) == 63


@pytest.mark.parametrize(("limit", "length"), [("20", 20), ("9", 63), ("64", 63), ("many", 63)])
def test_hostname_is_truncated_to_annotated_limit(limit: str, length: int) -> None:
    metadata = msgspec.structs.replace(META, name="x" * 70, annotations={names.HOSTNAME_LENGTH_LIMIT: limit})
    assert len(job_spec.hostname(metadata)) == length


def test_identity_of_a_server_outlives_a_move() -> None:
    moved = msgspec.structs.replace(META, uid="u-2", annotations={job_spec.IDENTITY: job_spec.identity(META)})
    assert job_spec.identity(moved) == job_spec.identity(META)


def test_copied_manifest_has_its_own_identity() -> None:
    copy = msgspec.structs.replace(
        META, name="other", uid="u-2", annotations={job_spec.IDENTITY: job_spec.identity(META)}
    )
    assert job_spec.identity(copy).endswith("/other/u-2")


def test_order_contains_only_driver_options() -> None:
    spec = {"size": "large", "common": {"labels": {}}, "providerID": "x"}
    order = job_spec.order("create", "toy", META, spec, cluster="c", owner="o", program={})
    assert order.options == {"size": "large"}
    assert (order.uid, order.state_secret) == ("u-1", "pool-1.example-machine-state")


# ---- credentials


def test_credential_reference_is_limited_to_allowed_namespaces() -> None:
    assert credentials.place("cred", "ns") == Key("ns", "cred")
    assert credentials.place("cattle-global-data:cc-x", "ns") == Key("cattle-global-data", "cc-x")
    assert credentials.place("ns:cred", "ns") == Key("ns", "cred")
    assert credentials.place("ns-credentials:cred", "ns") == Key("ns-credentials", "cred")
    for bad in ("kube-system:admin", "cattle-global-data:", "other-credentials:cred", "ns-credentials:"):
        with pytest.raises(BadReference):
            credentials.place(bad, "ns")


def test_credential_key_prefix_is_ignored() -> None:
    data = {"amazonec2credentialConfig-accessKey": b"a", "secretKey": b"b"}
    assert credentials.fields(data) == {"accessKey": b"a", "secretKey": b"b"}


# ---- what is known of programs


def test_annotations_override_known_driver_facts() -> None:
    assert known_drivers.facts("digitalocean", {}).private == ("accessToken",)
    said = {known_drivers.PRIVATE: "token, other", known_drivers.FILES: "userdata:user-data-file,broken"}
    found = known_drivers.facts("digitalocean", said)
    assert found.private == ("token", "other")
    assert found.files == {"userdata": "user-data-file"}
    assert known_drivers.facts("nobody", {}) == known_drivers.DriverFacts()


# ---- how a Job ended


def job(type: str, reason: str = "", message: str = "") -> Job:
    condition = JobCondition(type=type, status="True", reason=reason, message=message)
    return Job(spec=JobSpec(active_deadline_seconds=60), status=JobStatus(conditions=(condition,)))


def pod(code: int, message: str, made: str = "2026-01-01T00:00:00Z") -> Pod:
    state = ContainerState(terminated=Terminated(exit_code=code, message=message))
    return Pod(
        metadata=ObjectMeta(creation_timestamp=made),
        status=PodStatus(phase="Failed", container_statuses=(ContainerStatus(state=state),)),
    )


def test_unfinished_job_has_no_result() -> None:
    assert results.result(Job(), []) is None


def test_result_comes_from_newest_pod() -> None:
    found = results.result(job("Failed"), [pod(1, "old"), pod(3, "new", "2026-01-02T00:00:00Z")])
    assert found is not None
    assert (found.ok, found.message, found.hopeless) == (False, "new", True)


def test_deadline_exceeded_result_names_timeout() -> None:
    found = results.result(job("Failed", "DeadlineExceeded"), [])
    assert found is not None
    assert found.message == "the Job did not finish within 60 s and was stopped"
    assert not found.hopeless


def test_result_without_pods_uses_job_message() -> None:
    found = results.result(job("Failed", "NotRunnable", "nobody runs this"), [])
    assert found is not None
    assert found.message == "nobody runs this"


def test_long_result_message_keeps_its_end() -> None:
    found = results.result(job("Failed"), [pod(1, "x" * 10_000 + " the reason")])
    assert found is not None
    assert len(found.message) <= 4096
    assert found.message.endswith("the reason")
