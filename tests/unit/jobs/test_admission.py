"""Admission of Jobs: those of the job runner are written by the management plane alone."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.jobs import MANAGED_BY
from remuda.jobs.admission import judge
from remuda.kube.admission import Operation, Review

Json = dict[str, Any]


def review(
    operation: Operation, new: Json, old: Json | None = None, groups: tuple[str, ...] = (), by_manager: bool = False
) -> str:
    return judge(
        Review(
            operation=operation, group="batch", version="v1", kind="Job", resource="jobs", namespace="default",
            name="j", user="tenant", groups=groups, lookup=lambda *_: None, new=new, old=old,
            by_manager=by_manager,
        )
    ).denied  # fmt: skip


def a_job(managed_by: str = MANAGED_BY, metadata: Json | None = None, **spec: Any) -> Json:
    return {"metadata": {"name": "j", **(metadata or {})}, "spec": {"managedBy": managed_by, "template": {}, **spec}}


def test_tenant_cannot_create_job_runner_jobs() -> None:
    assert "only the manager of Remuda may write Jobs" in review("CREATE", a_job())
    assert review("CREATE", a_job("example.com/other")) == ""
    assert review("CREATE", {"metadata": {}, "spec": {"template": {}}}) == ""


def test_manager_can_create_job_runner_jobs() -> None:
    assert review("CREATE", a_job(), groups=("system:masters",)) == ""
    assert review("CREATE", a_job(), by_manager=True) == ""


@pytest.mark.parametrize(
    "changed",
    [
        a_job(backoffLimit=3),
        a_job(template={"spec": {}}),
        a_job(metadata={"labels": {"a": "b"}}),
        a_job(metadata={"annotations": {"remuda.dev/job-mark": "x"}}),
    ],
)
def test_tenant_cannot_change_job_runner_jobs(changed: Json) -> None:
    assert "only the manager of Remuda may write Jobs" in review("UPDATE", changed, a_job())


def test_tenant_can_suspend_job_and_remove_finalizers() -> None:
    assert review("UPDATE", a_job(suspend=True), a_job(suspend=False)) == ""
    assert review("UPDATE", a_job(metadata={"finalizers": []}), a_job(metadata={"finalizers": ["x/y"]})) == ""
