from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remuda.capi.machinehealthcheck.health import Healthy, Pending, Unhealthy, Verdict
from remuda.capi.machinehealthcheck.status import Judged, Survey, counts, remediation_allowed
from remuda.capi.types.machinehealthcheck import RemediationTrigger
from tests.unit.capi.machinehealthcheck.objects import machine

SICK = Unhealthy("NodeDeleted", "gone")
ALL = RemediationTrigger()
ONE = RemediationTrigger(unhealthy_less_than_or_equal_to=1)


def survey(*verdicts: Verdict) -> Survey:
    return Survey([Judged(machine(name=f"m-{place}"), verdict) for place, verdict in enumerate(verdicts)])


def test_healthy_count_includes_unreadable_machines_last_seen_healthy() -> None:
    found = survey(Healthy(), SICK, Pending("starts"), Pending("hidden", counts_as_healthy=True))
    assert (found.expected, found.healthy, found.unhealthy) == (4, 2, ["m-1"])


def test_survey_next_check_is_the_earliest() -> None:
    assert survey(Healthy(), Pending("a", 20.0), Pending("b", 10.0), Pending("c")).next_check == 10.0
    assert survey(Healthy(), Pending("c")).next_check is None


def test_status_reports_counts_and_targets() -> None:
    found = survey(Healthy(), SICK, Healthy())
    assert counts(found, found.limit(ALL)) == {
        "expectedMachines": 3,
        "currentHealthy": 2,
        "remediationsAllowed": 2,
        "targets": ["m-0", "m-1", "m-2"],
    }
    when_empty = survey()
    assert counts(when_empty, when_empty.limit(ALL))["targets"] == []


def test_status_targets_are_truncated_to_schema_limit() -> None:
    many = Survey([Judged(machine(), Healthy())] * 10_001)
    assert len(counts(many, many.limit(ALL))["targets"]) == 10_000


def test_remediation_allowed_has_no_message() -> None:
    found = survey(Healthy(), SICK)
    allowed = remediation_allowed(found, found.limit(ALL), "")
    assert (allowed.type, allowed.status, allowed.reason, allowed.message) == (
        "RemediationAllowed",
        "True",
        "RemediationAllowed",
        "",
    )


def test_remediation_refusal_names_counts_and_unhealthy_machines() -> None:
    found = survey(SICK, SICK, SICK, SICK, Healthy())
    refused = remediation_allowed(found, found.limit(ONE), "")
    assert (refused.status, refused.reason) == ("False", "TooManyUnhealthy")
    assert refused.message == (
        "* Remediation is not allowed: 4 of 5 Machines are not healthy; remediation requires at most 1\n"
        "* Unhealthy: m-0, m-1, m-2, ... (1 more)"
    )


def test_remediation_refusal_names_no_starting_machines() -> None:
    found = survey(Pending("starts"), Pending("starts"))
    refused = remediation_allowed(found, found.limit(ONE), "")
    assert (
        refused.message == "Remediation is not allowed: 2 of 2 Machines are not healthy; remediation requires at most 1"
    )


def test_unreadable_nodes_are_mentioned_in_remediation_allowed() -> None:
    found = survey(Pending("hidden", counts_as_healthy=True))
    allowed = remediation_allowed(found, found.limit(ALL), "Nodes of Cluster c cannot be read: refused")
    assert allowed.status == "True"
    assert allowed.message == (
        "Nodes of Cluster c cannot be read: refused; "
        "no Machine is remediated because of its Node until the connection is restored"
    )


def test_invalid_trigger_disallows_remediation_and_is_reported() -> None:
    found = survey(SICK)
    refused = found.limit(RemediationTrigger(unhealthy_less_than_or_equal_to="lots"))
    assert not refused.allowed
    assert "spec.remediation.triggerIf is invalid: 'lots'" in remediation_allowed(found, refused, "").message


VERDICTS = st.sampled_from([Healthy(), SICK, Pending("starts"), Pending("hidden", counts_as_healthy=True)])


@given(st.lists(VERDICTS, max_size=30), st.integers(0, 30))
def test_status_counts_are_consistent(verdicts: list[Verdict], most: int) -> None:
    found = survey(*verdicts)
    limit = found.limit(RemediationTrigger(unhealthy_less_than_or_equal_to=most))
    fields = counts(found, limit)
    missing = fields["expectedMachines"] - fields["currentHealthy"]
    assert 0 <= fields["currentHealthy"] <= fields["expectedMachines"] - len(found.unhealthy)
    assert limit.allowed == (missing <= most)
    assert fields["remediationsAllowed"] == max(most - missing, 0)
    assert remediation_allowed(found, limit, "").status == str(limit.allowed)
