"""What may be dialled: what a rule says, and nothing near it."""

from __future__ import annotations

import pytest

from remuda.tunnel.allow import NOTHING, Allow, DialTarget


@pytest.mark.parametrize(
    ("rule", "network", "address", "target"),
    [
        ("tcp/127.0.0.1:6443", "tcp", "127.0.0.1:6443", DialTarget("tcp", "127.0.0.1", 6443)),
        ("tcp/10.42.0.0/16:*", "tcp", "10.42.255.1:1", DialTarget("tcp", "10.42.255.1", 1)),
        ("tcp/10.42.0.0/16:8000-8999", "tcp", "10.42.0.7:8999", DialTarget("tcp", "10.42.0.7", 8999)),
        ("tcp/[::1]:6443", "tcp", "[0:0::1]:6443", DialTarget("tcp", "0:0::1", 6443)),
        ("tcp/[fd00::/8]:*", "tcp", "[fd12::1]:443", DialTarget("tcp", "fd12::1", 443)),
        ("tcp/Registry.internal:443", "tcp", "registry.INTERNAL:443", DialTarget("tcp", "registry.internal", 443)),
        ("unix//run/a.sock", "unix", "/run/a.sock", DialTarget("unix", "/run/a.sock", 0)),
    ],
)
def test_address_matching_a_rule_is_allowed(rule: str, network: str, address: str, target: DialTarget) -> None:
    assert Allow([rule]).target(network, address) == target
    assert NOTHING.target(network, address) is None


@pytest.mark.parametrize(
    ("rule", "network", "address"),
    [
        ("tcp/127.0.0.1:6443", "tcp", "127.0.0.1:6444"),
        ("tcp/127.0.0.1:6443", "tcp", "127.0.0.2:6443"),
        ("tcp/127.0.0.1:6443", "tcp", "localhost:6443"),
        ("tcp/127.0.0.0/8:*", "tcp", "localhost:80"),
        ("tcp/127.0.0.0/8:*", "tcp", "2130706433:80"),
        ("tcp/127.0.0.0/8:*", "tcp", "127.1:80"),
        ("tcp/0.0.0.0/0:*", "tcp", "[::1]:80"),
        ("tcp/10.0.0.0/8:*", "tcp", "10.0.0.0/8:80"),
        ("tcp/10.42.0.0/16:8000-8999", "tcp", "10.42.0.7:9000"),
        ("unix//run/a.sock", "unix", "/run/a.sock2"),
    ],
)
def test_address_not_matching_a_rule_is_denied(rule: str, network: str, address: str) -> None:
    assert Allow([rule]).target(network, address) is None


@pytest.mark.parametrize(
    ("network", "address"),
    [
        ("udp", "127.0.0.1:53"),
        ("tcp", "127.0.0.1"),
        ("tcp", "127.0.0.1:"),
        ("tcp", "127.0.0.1:0"),
        ("tcp", "127.0.0.1:65536"),
        ("tcp", "127.0.0.1:٣"),
        ("tcp", ":80"),
        ("tcp", "::1:80"),
        ("tcp", "a b:80"),
        ("unix", "run/a.sock"),
        ("unix", "/run/../etc/a.sock"),
    ],
)
def test_invalid_address_raises_value_error(network: str, address: str) -> None:
    with pytest.raises(ValueError):
        Allow(["tcp/0.0.0.0/0:*", "unix//run/a.sock"]).target(network, address)


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "tcp",
        "tcp/",
        "tcp/:80",
        "tcp/a",
        "tcp/a:b",
        "tcp/a:9-8",
        "tcp/10.0.0.1/8:80",
        "udp/a:1",
        "tcp/::1:80",
        "unix/a",
    ],
)
def test_invalid_allow_rule_raises_value_error(rule: str) -> None:
    with pytest.raises(ValueError, match="invalid allow rule"):
        Allow([rule])
