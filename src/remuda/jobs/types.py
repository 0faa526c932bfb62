"""Types of Jobs and Pods, with the fields that the runner and the creators of Jobs read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remuda.kube.objects import Kind, Object, ObjectMeta, Part

# Conditions of a Job.
COMPLETE = "Complete"
FAILED = "Failed"
SUSPENDED = "Suspended"
SUCCESS_CRITERIA_MET = "SuccessCriteriaMet"
FAILURE_TARGET = "FailureTarget"

# Labels the server puts on a Job's template, and so on its Pods.
UID_LABEL = "batch.kubernetes.io/controller-uid"
NAME_LABEL = "batch.kubernetes.io/job-name"


class JobCondition(Part):
    """Condition of batch/v1, which is older than metav1.Condition."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Mount(Part):
    name: str = ""
    mount_path: str = ""
    sub_path: str = ""


class Resources(Part):
    limits: Mapping[str, str | int | float] = {}


class Container(Part):
    name: str = ""
    image: str = ""
    command: Sequence[str] = ()
    args: Sequence[str] = ()
    env: Sequence[Mapping[str, Any]] = ()
    env_from: Sequence[Mapping[str, Any]] = ()
    volume_mounts: Sequence[Mount] = ()
    resources: Resources = Resources()
    termination_message_path: str = "/dev/termination-log"
    termination_message_policy: str = "File"


class Item(Part):
    key: str = ""
    path: str = ""
    mode: int | None = None


class SecretVolume(Part):
    secret_name: str = ""
    items: Sequence[Item] = ()
    default_mode: int | None = None
    optional: bool = False


class ConfigMapVolume(Part):
    name: str = ""
    items: Sequence[Item] = ()
    default_mode: int | None = None
    optional: bool = False


class Volume(Part):
    name: str = ""
    secret: SecretVolume | None = None
    config_map: ConfigMapVolume | None = None
    empty_dir: Mapping[str, Any] | None = None


class PodSpec(Part):
    containers: Sequence[Container] = ()
    init_containers: Sequence[Container] = ()
    volumes: Sequence[Volume] = ()
    restart_policy: str = ""
    service_account_name: str = ""
    automount_service_account_token: bool = True
    termination_grace_period_seconds: int | None = None
    scheduler_name: str = ""


class PodTemplate(Part):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class JobSpec(Part):
    managed_by: str = ""
    parallelism: int = 1
    completions: int | None = 1
    completion_mode: str = ""
    active_deadline_seconds: int | None = None
    backoff_limit: int = 6
    suspend: bool = False
    ttl_seconds_after_finished: int | None = None
    pod_failure_policy: Mapping[str, Any] | None = None
    success_policy: Mapping[str, Any] | None = None
    template: PodTemplate = PodTemplate()


class JobStatus(Part):
    conditions: Sequence[JobCondition] = ()
    start_time: str | None = None
    completion_time: str | None = None
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0


class Job(Object):
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    def has(self, type: str) -> JobCondition | None:
        """Return the condition of that type, if its status is True."""
        return next((one for one in self.status.conditions if one.type == type and one.status == "True"), None)

    @property
    def finished(self) -> JobCondition | None:
        """Return the condition Complete or Failed; None while the Job has not finished."""
        return self.has(COMPLETE) or self.has(FAILED)


class Terminated(Part):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class Running(Part):
    started_at: str | None = None


class Waiting(Part):
    reason: str = ""
    message: str = ""


class ContainerState(Part):
    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Part):
    name: str = ""
    state: ContainerState = ContainerState()


class PodCondition(Part):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(Part):
    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: str | None = None
    conditions: Sequence[PodCondition] = ()
    container_statuses: Sequence[ContainerStatus] = ()


class Pod(Object):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ended(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def terminated(self) -> Terminated | None:
        """Return the terminated state of the Pod's container; None while it has not ended."""
        return next((one.state.terminated for one in self.status.container_statuses if one.state.terminated), None)


JOB: Kind[Job] = Kind("batch/v1", "Job", "jobs", Job)
POD: Kind[Pod] = Kind("v1", "Pod", "pods", Pod)
