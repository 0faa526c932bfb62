"""The batch group: CronJobs, and Jobs, whose selector and labels the server generates."""

from __future__ import annotations

import time
import zoneinfo
from typing import Any

from remuda.apiserver.kinds.columns import (
    AGE,
    NAME,
    at,
    boolean,
    condition_is_true,
    containers,
    count,
    human_duration,
    integer,
    selector_column,
    since,
    string,
    value,
)
from remuda.apiserver.kinds.declare import Rules, declare, non_negative, one_of, unchanged
from remuda.apiserver.kinds.pod_spec import default_pod_spec, validate_template
from remuda.apiserver.kinds.workloads import mismatch_errors, shown_labels, template_labels
from remuda.apiserver.resource import Obj
from remuda.kube import clock, cron, errors, names
from remuda.kube.errors import FieldError
from remuda.kube.selectors import SelectorError, label_selector_from, validate_label_selector

UID_LABEL = "batch.kubernetes.io/controller-uid"
NAME_LABEL = "batch.kubernetes.io/job-name"
OLD_UID_LABEL = "controller-uid"
OLD_NAME_LABEL = "job-name"
_INT32_MAX = 2**31 - 1
_LONGEST_MANAGED_BY = 63
_FIXED = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
# Only for Jobs: the template inside a CronJob is stored as written.
_JOB_DEFAULTS: tuple[tuple[str, Any], ...] = (
    ("parallelism", 1),
    ("completionMode", "NonIndexed"),
    ("suspend", False),
    ("manualSelector", False),
)
# Fields of a suspended Job's template that may still change, so that a queue controller can place it.
_PLACEMENT = ("nodeSelector", "tolerations", "schedulingGates", "affinity")


def _default_job_spec(spec: Obj) -> None:
    default_pod_spec(spec["template"]["spec"])


def _default_job(job: Obj) -> None:
    spec = job["spec"]
    _default_job_spec(spec)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    for field, default in _JOB_DEFAULTS:
        spec.setdefault(field, default)
    spec.setdefault("backoffLimit", _INT32_MAX if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    if (labels := template_labels(spec)) and not job["metadata"].get("labels"):
        job["metadata"]["labels"] = labels


def _create_job(job: Obj) -> None:
    job["status"] = {}
    spec = job["spec"]
    if spec.get("manualSelector"):
        return
    name, uid = job["metadata"].get("name", ""), job["metadata"].get("uid", "")
    generated = {OLD_NAME_LABEL: name, NAME_LABEL: name, OLD_UID_LABEL: uid, UID_LABEL: uid}
    template, given = spec["template"], template_labels(spec)
    labels = _ordered({**generated, **given})
    if not job["metadata"].get("labels") or job["metadata"]["labels"] is given:
        # A Job without labels gets those of its template, including the generated ones.
        job["metadata"]["labels"] = labels
    selector = spec.get("selector") or {}
    matched = _ordered({UID_LABEL: uid, **(selector.get("matchLabels") or {})})
    job["spec"] = {
        **spec,
        "template": {**template, "metadata": {**template["metadata"], "labels": labels}},
        "selector": {**selector, "matchLabels": matched},
    }


def _ordered(labels: dict[str, str]) -> dict[str, str]:
    return dict(sorted(labels.items()))


def _validate_job(job: Obj) -> list[FieldError]:
    spec = job["spec"]
    found = _generated_label_errors(job)
    found += validate_job_spec(spec, "spec")
    if spec.get("selector") is None:
        found.append(errors.required("spec.selector"))
    else:
        found += validate_label_selector(spec["selector"], "spec.selector") + mismatch_errors(spec, "spec")
    if spec.get("completionMode") == "Indexed" and spec.get("completions"):
        name = job["metadata"].get("name", "")
        longest = f"{name}-{spec['completions'] - 1}"
        if names.dns1123_label(longest):
            why = f"will not able to create pod with invalid DNS label: {longest}"
            found.append(errors.invalid("metadata.name", name, why))
    return found


def _generated_label_errors(job: Obj) -> list[FieldError]:
    """Return the errors for generated labels that are missing from the template or differ from the Job's."""
    if job["spec"].get("manualSelector"):
        return []
    labels = template_labels(job["spec"])
    meta = job["metadata"]
    wanted = [(label, meta.get("uid")) for label in (OLD_UID_LABEL, UID_LABEL)]
    wanted += [(label, meta.get("name")) for label in (OLD_NAME_LABEL, NAME_LABEL)]
    found = []
    for label, expected in wanted:
        given = labels.get(label)
        if given is None and "/" in label:
            found.append(errors.required(f"spec.template.metadata.labels[{label}]", f"must be '{expected}'"))
        elif given is not None and given != expected:
            why = f"must be '{expected}'"
            found.append(errors.invalid(f"spec.template.metadata.labels[{label}]", shown_labels(labels), why))
    return found + _generated_selector_errors(job["spec"].get("selector"), dict(wanted))


def _generated_selector_errors(selector: Any, labels: dict[str, str]) -> list[FieldError]:
    try:
        is_generated = selector is None or label_selector_from(selector).matches(labels)
    except SelectorError:
        return []
    return [] if is_generated else [errors.invalid("spec.selector", selector, "`selector` not auto-generated")]


def validate_job_spec(spec: Obj, path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for field in _COUNTS:
        found += non_negative(spec.get(field), f"{path}.{field}")
    found += _managed_by_errors(spec.get("managedBy"), f"{path}.managedBy")
    found += one_of(spec.get("completionMode"), f"{path}.completionMode", ("NonIndexed", "Indexed"))
    found += _indexed_errors(spec, path)
    policies = ("Failed",) if "podFailurePolicy" in spec else ("Failed", "TerminatingOrFailed")
    found += one_of(spec.get("podReplacementPolicy"), f"{path}.podReplacementPolicy", policies)
    found += validate_template(spec["template"], f"{path}.template")
    return found + _restart_policy_errors(spec, f"{path}.template.spec.restartPolicy")


def _managed_by_errors(manager: str | None, path: str) -> list[FieldError]:
    if manager is None:
        return []
    domain, slash, rest = manager.partition("/")
    found = []
    if not manager:
        found.append(errors.required(path))
    elif not slash or not domain or not rest:
        found.append(errors.invalid(path, manager, 'must be a domain-prefixed path (such as "acme.io/foo")'))
    else:
        found += [errors.invalid(path, domain, why) for why in names.dns1123_subdomain(domain)]
    return [*found, errors.too_long(path, _LONGEST_MANAGED_BY)] if len(manager) > _LONGEST_MANAGED_BY else found


def _indexed_errors(spec: Obj, path: str) -> list[FieldError]:
    if spec.get("completionMode") == "Indexed":
        missing = errors.required(f"{path}.completions", "when completion mode is Indexed")
        return [] if spec.get("completions") is not None else [missing]
    why = "requires indexed completion mode"
    fields = ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")
    return [errors.invalid(f"{path}.{field}", spec[field], why) for field in fields if field in spec]


def _restart_policy_errors(spec: Obj, path: str) -> list[FieldError]:
    policy = spec["template"]["spec"].get("restartPolicy")
    if policy == "Always":
        return [errors.required(path, 'valid values: "OnFailure", "Never"')]
    if policy not in ("OnFailure", "Never"):
        return [errors.not_supported(path, policy, ("OnFailure", "Never"))]
    if "podFailurePolicy" in spec and policy != "Never":
        return [errors.invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified')]
    return []


def _validate_job_update(new: Obj, old: Obj) -> list[FieldError]:
    spec, before = new["spec"], old["spec"]
    found: list[FieldError] = []
    if spec.get("completionMode") != "Indexed":
        found += unchanged(new, old, "spec", "completions")
    elif spec.get("completions") not in (before.get("completions"), spec.get("parallelism")):
        why = "can only be modified in tandem with spec.parallelism"
        found.append(errors.invalid("spec.completions", spec.get("completions"), why))
    for field in _FIXED:
        found += unchanged(new, old, "spec", field)
    if _fixed_template(spec, before) != _fixed_template(before, before):
        found.append(errors.invalid("spec.template", spec["template"], "field is immutable"))
    return found


def _fixed_template(spec: Obj, before: Obj) -> Any:
    template = spec["template"]
    if not before.get("suspend"):
        return template
    pod = {key: value for key, value in template["spec"].items() if key not in _PLACEMENT}
    pod["containers"] = [{k: v for k, v in c.items() if k != "resources"} for c in pod.get("containers") or ()]
    return pod


def _job_status(job: Obj) -> str:
    for condition, shown in (("Complete", "Complete"), ("Failed", "Failed")):
        if condition_is_true(job, condition):
            return shown
    if at(job, "metadata", "deletionTimestamp"):
        return "Terminating"
    for condition in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if condition_is_true(job, condition):
            return condition
    return "Running"


def _completions(job: Obj) -> str:
    succeeded = at(job, "status", "succeeded", default=0)
    wanted, parallel = at(job, "spec", "completions", default=None), at(job, "spec", "parallelism", default=0)
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    return f"{succeeded}/1 of {parallel}" if parallel > 1 else f"{succeeded}/1"


def _duration(job: Obj) -> str:
    started, ended = at(job, "status", "startTime"), at(job, "status", "completionTime")
    if not started:
        return ""
    return human_duration((clock.parse(ended) if ended else time.time()) - clock.parse(started))


JOBS = declare(
    "batch",
    "v1",
    "Job",
    "jobs",
    Rules(
        default=_default_job,
        create=_create_job,
        validate=_validate_job,
        validate_update=_validate_job_update,
    ),
    categories=("all",),
    has_status=True,
    default_propagation="Orphan",  # as upstream, for old clients: kubectl asks for Background itself
    selectable={"status.successful": ("status", "succeeded")},
    selectable_zero={"status.successful": "0"},
    columns=(
        NAME,
        string("Status", _job_status),
        string("Completions", _completions),
        string("Duration", _duration),
        AGE,
        *containers("spec", "template", "spec"),
        selector_column(),
    ),
)


def _default_cron_job(cron_job: Obj) -> None:
    _default_job_spec(cron_job["spec"]["jobTemplate"]["spec"])


def _validate_cron_job(cron_job: Obj) -> list[FieldError]:
    spec = cron_job["spec"]
    schedule = spec.get("schedule")
    found = _schedule_errors(schedule) if schedule else [errors.required("spec.schedule")]
    for field in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        found += non_negative(spec.get(field), f"spec.{field}")
    if (zone := spec.get("timeZone")) is not None:
        found += _time_zone_errors(zone)
    found += one_of(spec.get("concurrencyPolicy"), "spec.concurrencyPolicy", ("Allow", "Forbid", "Replace"))
    job = spec["jobTemplate"]["spec"]
    path = "spec.jobTemplate.spec"
    found += validate_job_spec(job, path)
    if "selector" in job:
        found.append(errors.invalid(f"{path}.selector", job["selector"], "`selector` will be auto-generated"))
    if job.get("manualSelector"):
        found.append(errors.not_supported(f"{path}.manualSelector", True, ("nil", "false")))
    # The controller appends 11 characters to name a Job, whose own name has at most 63.
    if len(cron_job["metadata"].get("name", "")) > 52:
        why = "must be no more than 52 characters"
        found.append(errors.invalid("metadata.name", cron_job["metadata"]["name"], why))
    return found


def _schedule_errors(schedule: str) -> list[FieldError]:
    if "TZ" in schedule:
        why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
    else:
        why = cron.complaint(schedule)
    return [errors.invalid("spec.schedule", schedule, why)] if why else []


def _time_zone_errors(zone: str) -> list[FieldError]:
    path = "spec.timeZone"
    if not zone:
        return [errors.invalid(path, zone, "timeZone must be nil or non-empty string")]
    if zone.lower() == "local":
        why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        return [errors.invalid(path, zone, why)]
    try:
        zoneinfo.ZoneInfo(zone)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return [errors.invalid(path, zone, f"unknown time zone {zone}")]
    return []


def _last_schedule(cron_job: Obj) -> str:
    last = at(cron_job, "status", "lastScheduleTime")
    return since(last) if last else "<none>"


CRON_JOBS = declare(
    "batch",
    "v1",
    "CronJob",
    "cronjobs",
    Rules(default=_default_cron_job, validate=_validate_cron_job),
    short_names=("cj",),
    categories=("all",),
    has_status=True,
    columns=(
        NAME,
        string("Schedule", value("spec", "schedule")),
        string("Timezone", value("spec", "timeZone", default="<none>")),
        boolean("Suspend", lambda obj: "True" if at(obj, "spec", "suspend") else "False"),
        integer("Active", count("status", "active")),
        string("Last Schedule", _last_schedule),
        AGE,
        *containers("spec", "jobTemplate", "spec", "template", "spec"),
        selector_column(("spec", "jobTemplate", "spec", "selector")),
    ),
)

RESOURCES = (CRON_JOBS, JOBS)
