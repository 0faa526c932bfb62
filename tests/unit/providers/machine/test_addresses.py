"""Where a driver may be told to connect: not to what only the manager's machine can reach."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any

import pytest

from remuda.app.controllers import ADMISSION
from remuda.kube.admission import Review
from remuda.providers.machine import addresses
from remuda.providers.machine.addresses import ALLOW_LOCAL
from remuda.providers.shared.drivers.spi import BadOptions

Json = dict[str, Any]

LOCAL = [
    "http://127.0.0.1:5000",
    "https://127.1/path",
    "http://2130706433",
    "0x7f000001",
    "localhost:22",
    "https://sub.localhost./",
    "[::1]:22",
    "::1",
    "http://[::ffff:127.0.0.1]",
    "http://[64:ff9b::7f00:1]",
    "http://169.254.169.254/latest/meta-data",
    "http://[fd00:ec2::254]",
    "[fe80::1]:443",
    "0.0.0.0",
    "http://0.0.0.1",
]
OTHERS = ["https://ec2.eu-central-1.amazonaws.com", "10.0.0.7:22", "192.168.1.1", "[2001:db8::1]:22", "a.example", ""]


@pytest.mark.parametrize("text", LOCAL)
def test_local_address_is_denied(text: str) -> None:
    assert addresses.problem(text)


@pytest.mark.parametrize("text", OTHERS)
def test_non_local_address_is_allowed(text: str) -> None:
    assert addresses.problem(text) == ""


def test_overlong_address_is_rejected_unparsed() -> None:
    assert addresses.problem("http://é" + "é" * 3000) == "has more than 2048 characters"


def complaints(kind: str, new: Json, old: Json | None = None, annotations: Json | None = None) -> list[str]:
    group = "rke-machine-config.cattle.io" if kind.endswith("Config") else "rke-machine.cattle.io"

    def lookup(api_version: str, plural: str, namespace: str, name: str) -> Json | None:
        return {"metadata": {"annotations": annotations or {}}} if plural == "nodedrivers" else None

    review = Review(
        operation="CREATE" if old is None else "UPDATE", group=group, version="v1", kind=kind,
        resource=f"{kind.lower()}s", namespace="fleet", name="a", user="rider", lookup=lookup,
        new={"metadata": {"name": "a"}, **new}, old=None if old is None else {"metadata": {"name": "a"}, **old},
    )  # fmt: skip
    verdicts = [one.function(review) for one in ADMISSION if (one.group, one.plural) == (group, "*")]
    return [str(error) for verdict in verdicts for error in verdict.errors]


@pytest.mark.parametrize(
    ("kind", "obj", "field"),
    [
        ("Amazonec2Config", {"endpoint": "http://127.0.0.1:9"}, "endpoint"),
        ("ExistingMachine", {"spec": {"addresses": ["10.0.0.7", "127.0.0.1"]}}, "spec.addresses"),
        (
            "ExistingMachineTemplate",
            {"spec": {"template": {"spec": {"address": "169.254.169.254"}}}},
            "spec.template.spec.address",
        ),
        ("VmwarevsphereConfig", {"vcenter": "localhost"}, "vcenter"),
    ],
)
def test_local_address_option_is_rejected_unless_allowed(kind: str, obj: Json, field: str) -> None:
    (said,) = complaints(kind, obj)
    assert said.startswith(f"{field}: Invalid value")
    assert f"{ALLOW_LOCAL}=true" in said
    assert complaints(kind, obj, annotations={ALLOW_LOCAL: "true"}) == []
    assert complaints(kind, obj, old=obj) == [], "what is stored is not held against a change of something else"


def test_hostname_resolving_to_loopback_is_denied_for_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, *_: Any, **__: Any) -> list[Any]:
        return [(0, 0, 0, "", ("127.0.0.1" if host == "harmless.example" else "192.0.2.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(BadOptions, match=r"^vcenter: harmless\.example is a loopback address, .*vmwarevsphere"):
        addresses.check_program("vmwarevsphere", {"vcenter": "harmless.example"})
    addresses.check_program("vmwarevsphere", {"vcenter": "192.0.2.1", "datacenter": "localhost"})


_PROBE = """
import socket, sys
from remuda.providers.machine.addresses import ConnectionGuard
own = socket.create_server(("127.0.0.1", 0))
guard = ConnectionGuard("amazonec2", {own.getsockname()})
guard.install()
socket.create_connection(own.getsockname()).close()
other = socket.create_server(("127.0.0.1", 0))
socket.getaddrinfo = lambda *a, **k: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", other.getsockname())]
try:
    socket.create_connection(("harmless.example", 80))
except PermissionError as error:
    print(error)
"""


def test_connection_to_name_resolving_to_loopback_is_denied() -> None:
    """In a process of its own, because an audit hook stays."""
    done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True)
    assert "is denied: it is a loopback address" in done.stdout
    assert f"kubectl annotate nodedriver amazonec2 {ALLOW_LOCAL}=true" in done.stdout
