"""What can never work is refused before anything is made, by the name of the option."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from remuda.providers.shared.drivers.nspawn.options import NspawnOptions, bind_flags, judge, net, system_call_flags
from remuda.providers.shared.drivers.spi import BadOptions


def test_default_options_are_valid() -> None:
    judge(NspawnOptions())
    assert str(net(NspawnOptions(), {}).subnet) == "198.18.0.0/24"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (NspawnOptions(subnet="198.18.0.0/31"), "subnet: 198.18.0.0/31 is too small"),
        (NspawnOptions(subnet="198.18.0.1/24"), "subnet: '198.18.0.1/24' is not an IPv4 network"),
        (NspawnOptions(subnet="fd00::/64"), "subnet: 'fd00::/64' is not an IPv4 network"),
        (NspawnOptions(bridge="sixteen-letters-"), "bridge: 'sixteen-letters-' is not a valid"),
        (NspawnOptions(bridge="../x"), "bridge: '../x' is not a valid"),
        (NspawnOptions(bridge=""), "bridge: '' is not a valid"),
        (NspawnOptions(dns=["ns.example"]), "dns: 'ns.example' is not an address"),
        (NspawnOptions(image="relative"), "image: 'relative' is not an absolute path"),
        (NspawnOptions(image="/a/../b"), "image: '/a/../b' is not an absolute path"),
        (NspawnOptions(image="/a:b"), "a colon"),
        (NspawnOptions(image="/nowhere/at/all"), "image: /nowhere/at/all does not exist"),
        (NspawnOptions(binds=["/nowhere/at/all"]), "binds: /nowhere/at/all does not exist"),
        (NspawnOptions(binds=["/tmp:there"]), "binds: '/tmp:there' is not of the form"),
        (NspawnOptions(binds=["/tmp:/there:rw"]), "binds: '/tmp:/there:rw' is not of the form"),
        (
            NspawnOptions(system_calls=["keyctl", "bpf --bind=/"]),
            "systemCalls: 'bpf --bind=/' is neither a system call",
        ),
    ],
)
def test_invalid_option_is_rejected_by_name(options: NspawnOptions, said: str) -> None:
    with pytest.raises(BadOptions) as caught:
        judge(options)
    assert said in str(caught.value)


def test_binds_become_nspawn_flags(tmp_path: Path) -> None:
    binds = [str(tmp_path), f"{tmp_path}:/there", f"{tmp_path}:/there:ro"]
    assert bind_flags(NspawnOptions(binds=binds)) == [
        f"--bind={tmp_path}:{tmp_path}",
        f"--bind={tmp_path}:/there",
        f"--bind-ro={tmp_path}:/there",
    ]


def test_cluster_bridge_is_used_unless_option_overrides() -> None:
    of_cluster = {"bridge": "rm-0123", "subnet": "198.19.7.0/24"}
    assert net(NspawnOptions(), of_cluster) == ("rm-0123", ipaddress.IPv4Network("198.19.7.0/24"))
    own = NspawnOptions(bridge="mine", subnet="10.0.0.0/24")
    assert net(own, of_cluster) == ("mine", ipaddress.IPv4Network("10.0.0.0/24"))


def test_system_calls_become_one_nspawn_flag() -> None:
    assert system_call_flags(NspawnOptions()) == []
    allowed = system_call_flags(NspawnOptions(system_calls=["keyctl", "@keyring"]))
    assert allowed == ["--system-call-filter=keyctl @keyring"]
