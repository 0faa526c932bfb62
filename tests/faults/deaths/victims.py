"""Whom the death campaign kills, and what must be true of the cluster afterwards. Pure.

A victim is one program, one host or a pair of hosts. A program is restarted by its unit, so its death heals by itself;
a host stays dead until somebody starts it again. What users must see follows from who is left:

    no server at all                        Unknown: nothing answers, and the network may be what has failed
    servers without a majority of etcd      False, QuorumLost: the others live, and say that they cannot work
    servers without the home of the data    False or Unknown. Only nano has such a home; to the others its loss looks
                                            like a lost quorum, or like an API that does not answer
    enough servers                          False: the Nodes of the dead are not ready
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

MANAGER = "the manager"
TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
QUORUM_LOST = "QuorumLost"


class Host(NamedTuple):
    machine: str
    server: bool
    holds_data: bool = False  # nano has one home of its data; the API does not answer without it
    programs: Sequence[str] = ()


class Victim(NamedTuple):
    hosts: tuple[Host, ...]  # none: it is the manager
    program: str = ""  # of the only host; empty: whole hosts die

    def __str__(self) -> str:
        place = " and ".join(host.machine for host in self.hosts)
        return " on ".join(filter(None, (self.program, place)))


class Verdict(NamedTuple):
    statuses: frozenset[str]  # of Ready and Available: any of these, the same for all kinds
    reason: str = ""  # empty: no particular one
    named: tuple[str, ...] = ()  # Machines that `remuda why` must name
    heals: bool = False  # without anybody's help


def all_victims(hosts: Sequence[Host]) -> list[Victim]:
    """Return every program, every host and every pair of hosts."""
    return [
        Victim((), MANAGER),
        *(Victim((host,), program) for host in hosts for program in host.programs),
        *(Victim((host,)) for host in hosts),
        *(Victim(pair) for pair in combinations(hosts, 2)),
    ]


def number_of_victims(hosts: Sequence[Host], servers: int, workers: int) -> int:
    """Return how many victims a cluster of so many such hosts has."""
    server, worker = (next(host for host in hosts if host.server is kind) for kind in (True, False))
    return len(all_victims([server] * servers + [worker] * workers))


def few_victims(hosts: Sequence[Host], number: int) -> list[Victim]:
    """Return the gate's share: one program by number, then a worker's host, then a server's."""
    programs = [one for one in all_victims(hosts) if one.program]
    workers = [host for host in hosts if not host.server]
    servers = [host for host in hosts if host.server]
    return [programs[number % len(programs)], *(Victim((group[number % len(group)],)) for group in (workers, servers))]


def verdict(victim: Victim, hosts: Sequence[Host]) -> Verdict:
    if victim.program:
        return Verdict(frozenset({TRUE}), heals=True)
    dead = [host for host in victim.hosts if host.server]
    servers = [host for host in hosts if host.server]
    left = len(servers) - len(dead)
    named = tuple(host.machine for host in victim.hosts)
    if left == 0:
        return Verdict(frozenset({UNKNOWN}), named=_servers(victim))
    if left <= len(servers) // 2:
        return Verdict(frozenset({FALSE}), QUORUM_LOST, _servers(victim))
    if any(host.holds_data for host in dead):
        return Verdict(frozenset({FALSE, UNKNOWN}), named=_servers(victim))
    return Verdict(frozenset({FALSE}), named=named)


def _servers(victim: Victim) -> tuple[str, ...]:
    """Return the dead servers. Without the API nobody knows what became of Nodes, so dead workers may go unnamed."""
    return tuple(host.machine for host in victim.hosts if host.server)


class Seen(NamedTuple):
    """A kind's summary condition."""

    status: str
    reason: str
    message: str
    since: float


def unsaid(wanted: Verdict, nodes: Mapping[str, str], told: str) -> Iterator[str]:
    """Yield what `remuda why` fails to say. `nodes`: names of the Machines' Nodes, which identify them as well."""
    for name in wanted.named:
        if name not in told and nodes[name] not in told:
            yield f"{name} is not named"
    if wanted.reason == QUORUM_LOST and "by itself" in told:
        yield "a lost quorum does not come back by itself"


def complaints(wanted: Verdict, seen: Mapping[str, Seen]) -> Iterator[str]:
    """Yield how what is shown differs from what is true, by kind."""
    for kind, one in seen.items():
        if one.status not in wanted.statuses:
            yield f"{kind} is {one.status} ({one.reason}: {one.message}), not {' or '.join(sorted(wanted.statuses))}"
        elif wanted.reason and one.reason != wanted.reason:
            yield f"{kind} has the reason {one.reason}, not {wanted.reason}"
    if len({one.status for one in seen.values()}) > 1:
        yield f"they disagree: {', '.join(f'{kind} {one.status}' for kind, one in seen.items())}"
