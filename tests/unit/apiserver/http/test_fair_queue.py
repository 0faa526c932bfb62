"""The fair queue alone: who is served next, what is refused, and what is forgotten."""

from __future__ import annotations

import random

from remuda.apiserver.http.fair_queue import FairQueue


def queue(*, seats: int = 1, requests: int = 1000, size: int = 1_000_000) -> FairQueue[str]:
    return FairQueue(seats=seats, requests=requests, size=size)


def enqueue(fair: FairQueue[str], flow: str, request: str, seats: int = 1) -> None:
    assert fair.enter(flow, 0)
    fair.wait(flow, seats, request)


def serve(fair: FairQueue[str], cost: dict[str, float] | None = None) -> list[str]:
    """Run everything that waits, one after the other; the flow of a request is its first letter."""
    order = []
    while (granted := fair.next()) is not None:
        seats, request = granted
        order.append(request)
        fair.release(seats)
        fair.leave(request[0], 0, (cost or {}).get(request[0], 1.0))
    return order


def test_fair_queue_alternates_flows_and_keeps_order_within_each() -> None:
    fair = queue()
    for request in ("a1", "a2", "a3", "a4", "b1", "b2"):
        enqueue(fair, request[0], request)
    assert serve(fair) == ["a1", "b1", "a2", "b2", "a3", "a4"]


def test_flow_of_expensive_requests_is_served_less_often() -> None:
    fair = queue()
    for number in range(10):
        enqueue(fair, "a", f"a{number}")
    for number in range(8):
        enqueue(fair, "b", f"b{number}")
    order = serve(fair, {"a": 4.0, "b": 1.0})
    assert order[:6] == ["a0", "b0", "b1", "b2", "b3", "a1"]


def test_new_flow_is_served_next_despite_long_queue_of_another_flow() -> None:
    fair = queue()
    for number in range(500):
        enqueue(fair, "a", f"a{number}")
    for _ in range(100):
        granted = fair.next()
        assert granted is not None
        fair.release(1)
        fair.leave("a", 0, 1.0)
    running = fair.next()
    enqueue(fair, "b", "b1")
    assert fair.next() is None
    assert running is not None
    fair.release(1)
    fair.leave("a", 0, 1.0)
    assert fair.next() == (1, "b1")


def test_idle_flow_accumulates_no_credit() -> None:
    fair = queue()
    assert fair.enter("s", 0)  # its body does not arrive for a long time
    assert fair.enter("a", 0)
    for number in range(50):
        enqueue(fair, "a", f"a{number}")
        serve(fair)
    for request in ("a-1", "a-2", "a-3", "s1", "s2", "s3"):
        enqueue(fair, request[0], request)
    assert serve(fair) == ["s1", "a-1", "s2", "a-2", "s3", "a-3"]


def test_flow_above_its_limits_is_rejected_without_affecting_others() -> None:
    fair = queue(requests=2, size=100)
    assert fair.enter("a", 500)  # the first one, whatever its size
    assert not fair.enter("a", 1)
    assert fair.enter("b", 50)
    assert not fair.enter("b", 51)
    assert fair.enter("b", 50)
    assert not fair.enter("b", 0)
    fair.leave("b", 50, 0.0)
    assert fair.enter("b", 0)


def test_large_request_runs_alone_and_is_not_starved() -> None:
    fair = queue(seats=4)
    assert fair.seats_for(0, 100) == 1
    assert fair.seats_for(10_000, 100) == 4
    assert fair.enter("a", 0)
    assert fair.take("a", 1)
    enqueue(fair, "b", "b-large", seats=4)
    assert fair.enter("c", 0)
    assert not fair.take("c", 1)
    fair.wait("c", 1, "c1")
    assert fair.next() is None
    fair.release(1)
    assert fair.next() == (4, "b-large")
    assert fair.next() is None
    fair.release(4)
    assert fair.next() == (1, "c1")


def test_withdrawn_request_is_not_served() -> None:
    fair = queue()
    for request in ("a1", "a2", "b1"):
        enqueue(fair, request[0], request)
    fair.withdraw("a", "a1")
    fair.leave("a", 0, 0.0)
    fair.withdraw("b", "b1")
    fair.leave("b", 0, 0.0)
    assert serve(fair) == ["a2"]


def test_random_event_orders_serve_each_request_once_and_leave_no_flows() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        fair = queue(seats=4)
        running: list[tuple[int, str]] = []
        waiting: set[str] = set()
        served: list[str] = []
        sent = 0
        for _ in range(300):
            step = chance.random()
            if step < 0.5:
                flow, seats = chance.choice("abcde"), chance.choice((1, 1, 1, 2, 4))
                request = f"{flow}{sent}"
                sent += 1
                assert fair.enter(flow, 0)
                if fair.take(flow, seats):
                    running.append((seats, request))
                else:
                    fair.wait(flow, seats, request)
                    waiting.add(request)
            elif step < 0.6 and waiting:
                request = chance.choice(sorted(waiting))
                waiting.discard(request)
                fair.withdraw(request[0], request)
                fair.leave(request[0], 0, 0.0)
            elif running:
                seats, request = running.pop(chance.randrange(len(running)))
                fair.release(seats)
                fair.leave(request[0], 0, chance.random())
            while (granted := fair.next()) is not None:
                running.append(granted)
                served.append(granted[1])
                waiting.discard(granted[1])
            assert sum(seats for seats, _ in running) <= 4
            assert running or not waiting
        while running:
            seats, request = running.pop()
            fair.release(seats)
            fair.leave(request[0], 0, 1.0)
            while (granted := fair.next()) is not None:
                running.append(granted)
                served.append(granted[1])
                waiting.discard(granted[1])
        assert not waiting
        assert len(served) == len(set(served))
        assert not fair._flows
        assert not fair._heap
