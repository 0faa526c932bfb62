"""What happened when, from what objects and Events still tell."""

from __future__ import annotations

from typing import Any

from remuda.kube import clock
from remuda.provisioning.timeline import MachineTimeline, TimelineStage, timeline

Json = dict[str, Any]
NOW = clock.parse("2026-01-02T03:10:00Z")


def machine(*conditions: tuple[str, str, str], name: str = "m-1") -> Json:
    said = [{"type": type, "status": status, "lastTransitionTime": time} for type, status, time in conditions]
    metadata = {"name": name, "creationTimestamp": "2026-01-02T03:04:00Z"}
    return {"kind": "Machine", "metadata": metadata, "status": {"conditions": said}}


def event(name: str, time: str, reason: str = "PlanDelivered") -> Json:
    about = {"kind": "Machine", "name": name}
    return {"metadata": {}, "involvedObject": about, "firstTimestamp": time, "reason": reason, "message": "first plan"}


def test_moments_are_ordered_with_span_per_object() -> None:
    objects = [
        machine(("InfrastructureReady", "True", "2026-01-02T03:04:17Z")),
        machine(("InfrastructureReady", "True", "2026-01-02T03:04:20Z"), name="m-2"),
    ]
    found = timeline("ns/c", objects, [event("m-1", "2026-01-02T03:04:30Z")], NOW)
    assert [(one.time[14:19], one.name, one.what, one.after) for one in found.moments] == [
        ("04:00", "m-1", "created", None),
        ("04:00", "m-2", "created", None),
        ("04:17", "m-1", "InfrastructureReady", 17.0),
        ("04:20", "m-2", "InfrastructureReady", 20.0),
        ("04:30", "m-1", "PlanDelivered: first plan", 13.0),
    ]


def test_events_of_other_clusters_are_left_out() -> None:
    found = timeline("ns/c", [machine()], [event("somebody-else", "2026-01-02T03:04:30Z")], NOW)
    assert [one.what for one in found.moments] == ["created"]


def test_lost_milestone_shows_reason() -> None:
    lost = machine(("NodeReady", "False", "2026-01-02T03:09:00Z"))
    lost["status"]["conditions"][0]["reason"] = "KubeletStopped"
    assert timeline("ns/c", [lost], [], NOW).moments[-1].what == "not NodeReady: KubeletStopped"


def test_machine_course_lists_finished_and_current_stages() -> None:
    objects = [machine(("InfrastructureReady", "True", "2026-01-02T03:04:17Z"))]
    (course,) = timeline("ns/c", objects, [], NOW).machines
    in_plan = TimelineStage(name="plan", seconds=343.0, over=False)
    assert course == MachineTimeline(machine="m-1", stages=[TimelineStage(name="server", seconds=17.0), in_plan])


def test_repeated_stage_omits_unknown_durations() -> None:
    """Its server was ready again after the plan had been applied: how long the plan took is no longer known."""
    objects = [
        machine(
            ("InfrastructureReady", "True", "2026-01-02T03:08:00Z"),
            ("PlanApplied", "True", "2026-01-02T03:05:00Z"),
            ("NodeHealthy", "True", "2026-01-02T03:05:30Z"),
        )
    ]
    (course,) = timeline("ns/c", objects, [], NOW).machines
    assert [stage.name for stage in course.stages] == ["server"]
