"""How clients come back, and how many a server lets in: in numbers, without waiting."""

from __future__ import annotations

import random

import pytest

from remuda.tunnel.client import BackOff, ReconnectDelays
from remuda.tunnel.server import AcceptRate
from remuda.tunnel.websocket_client import Proxy, TunnelEndpoint, TunnelUnreachable, parse, proxy_for

LARGEST = lambda low, high: high  # noqa: E731


def test_backoff_doubles_up_to_maximum_and_resets() -> None:
    back_off = BackOff(ReconnectDelays(first=0.5, longest=10.0), LARGEST)
    assert [back_off.next() for _ in range(7)] == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    back_off.reset()
    assert back_off.next() == 0.5


def test_backoff_wait_is_uniformly_random_up_to_the_bound() -> None:
    chance = random.Random(7)
    waits = []
    for _ in range(2000):
        back_off = BackOff(ReconnectDelays(), chance.uniform)
        for _ in range(6):
            last = back_off.next()
        waits.append(last)
    assert min(waits) < 0.5
    assert max(waits) > 9.5
    assert 4.5 < sum(waits) / len(waits) < 5.5


def test_backoff_honors_capped_retry_after_without_doubling() -> None:
    back_off = BackOff(ReconnectDelays(first=0.5), LARGEST)
    assert back_off.next(3.0) == 3.5
    assert back_off.next(1e6) == 300.5
    assert [back_off.next() for _ in range(5)] == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert back_off.next(3.0) == 4.0


def test_accept_rate_admits_burst_and_assigns_growing_waits() -> None:
    rate = AcceptRate(per_second=100.0, at_once=50)
    answers = [rate.wait(0.0, lambda: 0.999) for _ in range(1050)]
    assert answers[:50] == [0] * 50
    assert all(answers[50:])
    assert answers[51] <= 2
    assert answers[-1] >= 10
    assert rate.wait(0.02, lambda: 0.0) == 0


def test_thousand_simultaneous_clients_are_admitted_within_fifteen_seconds() -> None:
    """Each waits as it is told and as a client of ours does."""
    chance = random.Random(3)
    rate = AcceptRate()
    due = [(chance.uniform(0, 0.05), BackOff(ReconnectDelays(), chance.uniform)) for _ in range(1000)]
    now = 0.0
    let_in = 0
    while due:
        due.sort(key=lambda each: each[0])
        now, back_off = due.pop(0)
        wait = rate.wait(now, chance.random)
        if wait:
            due.append((now + back_off.next(wait), back_off))
        else:
            let_in += 1
    assert let_in == 1000
    assert now < 15.0


def test_accept_rate_spreads_retries_of_five_thousand_clients() -> None:
    chance = random.Random(5)
    rate = AcceptRate(per_second=50.0, at_once=50)
    waits = [rate.wait(0.0, chance.random) for _ in range(5000)]
    assert max(waits) > 50


# Where to


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("wss://a.example/v3/connect", TunnelEndpoint("a.example", 443, "/v3/connect")),
        ("https://a.example:8443", TunnelEndpoint("a.example", 8443, "/")),
        ("wss://[fd00::1]:9345/v1-rke2/connect?x=1", TunnelEndpoint("fd00::1", 9345, "/v1-rke2/connect?x=1")),
    ],
)
def test_tunnel_url_is_parsed(url: str, place: TunnelEndpoint) -> None:
    assert parse(url) == place


@pytest.mark.parametrize("url", ["ws://a/", "http://a/", "wss:///x", "a.example", "wss://user:secret@a/", ""])
def test_tunnel_url_without_tls_or_with_credentials_is_rejected(url: str) -> None:
    with pytest.raises(ValueError):
        parse(url)


@pytest.mark.parametrize(
    ("environment", "host", "proxy"),
    [
        ({}, "a.example", None),
        ({"HTTPS_PROXY": "http://p:3128"}, "a.example", Proxy("p", 3128, "")),
        ({"https_proxy": "p:3128"}, "a.example", Proxy("p", 3128, "")),
        ({"HTTPS_PROXY": "http://u:p%40ss@p"}, "a.example", Proxy("p", 80, "Basic dTpwQHNz")),
        ({"HTTPS_PROXY": "http://p:3128"}, "127.0.0.1", None),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "b,.example"}, "a.example", None),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "10.0.0.0/8"}, "10.1.2.3", None),
        ({"HTTPS_PROXY": "http://p:3128", "no_proxy": "*"}, "a.example", None),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "other.example"}, "a.example", Proxy("p", 3128, "")),
    ],
)
def test_proxy_is_selected_from_environment_variables(
    environment: dict[str, str], host: str, proxy: Proxy | None
) -> None:
    assert proxy_for(TunnelEndpoint(host, 443, "/"), environment) == proxy


def test_unsupported_proxy_scheme_raises_unreachable() -> None:
    with pytest.raises(TunnelUnreachable, match="HTTPS_PROXY"):
        proxy_for(TunnelEndpoint("a.example", 443, "/"), {"HTTPS_PROXY": "socks5://p"})
