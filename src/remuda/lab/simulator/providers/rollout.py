"""Next step of a control plane's rollout, one Machine at a time. Pure.

A Machine is added before another is removed, and nothing is done while a Machine is being added or removed: so at
every moment all members but one are settled, and etcd keeps its quorum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class ControlPlaneMachine(NamedTuple):
    """Machine of the control plane, with the facts that matter for the decision."""

    name: str
    created: str  # timestamps of equal length compare as text
    up_to_date: bool = True
    settled: bool = True  # it has a Node and votes in etcd
    deleting: bool = False
    unhealthy: bool = False  # a health check marked it for remediation
    failure_domain: str = ""


class CreateMachine(NamedTuple):
    failure_domain: str
    why: str


class DeleteMachine(NamedTuple):
    name: str
    why: str


class WaitForMachine(NamedTuple):
    why: str


class NoAction(NamedTuple):
    pass


Decision = CreateMachine | DeleteMachine | WaitForMachine | NoAction


def decide(members: Sequence[ControlPlaneMachine], replicas: int, failure_domains: Sequence[str] = ()) -> Decision:
    going = [member.name for member in members if member.deleting]
    if going:
        return WaitForMachine(f"Machine {going[0]} is being deleted")
    if sick := [member for member in members if member.unhealthy]:
        return _remediate(sick[0], members)
    if coming := [member.name for member in members if not member.settled]:
        return WaitForMachine(f"Machine {coming[0]} is not a member yet")
    outdated = [member for member in members if not member.up_to_date]
    if outdated and len(members) > max(replicas, 1):
        return DeleteMachine(_oldest(outdated).name, "it is outdated and its replacement is there")
    if outdated or len(members) < replicas:
        why = "outdated Machines are to be replaced" if outdated else f"{len(members)} of {replicas} Machines are there"
        return CreateMachine(_emptiest(members, failure_domains), why)
    if len(members) > replicas:
        return DeleteMachine(_of_fullest_domain(members).name, f"{replicas} Machines are wanted")
    return NoAction()


def _remediate(sick: ControlPlaneMachine, members: Sequence[ControlPlaneMachine]) -> Decision:
    others = [member for member in members if member is not sick]
    if not others:
        return WaitForMachine(f"Machine {sick.name} is unhealthy, and nothing would be left without it")
    if unsettled := [member.name for member in others if not member.settled]:
        return WaitForMachine(f"Machine {sick.name} is unhealthy, and {unsettled[0]} is not a member yet")
    return DeleteMachine(sick.name, "it is unhealthy")


def _oldest(members: Sequence[ControlPlaneMachine]) -> ControlPlaneMachine:
    return min(members, key=lambda member: (member.created, member.name))


def _emptiest(members: Sequence[ControlPlaneMachine], failure_domains: Sequence[str]) -> str:
    """Return the failure domain with the fewest up-to-date Machines; of equals the first by name."""
    counts = Counter(member.failure_domain for member in members if member.up_to_date)
    return min(sorted(failure_domains), key=lambda domain: counts[domain], default="")


def _of_fullest_domain(members: Sequence[ControlPlaneMachine]) -> ControlPlaneMachine:
    counts = Counter(member.failure_domain for member in members)
    return min(members, key=lambda member: (-counts[member.failure_domain], member.created, member.name))
