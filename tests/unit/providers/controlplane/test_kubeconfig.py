"""Where the kubeconfig of a cluster points."""

from __future__ import annotations

from remuda.capi.types import Endpoint
from remuda.providers.controlplane.kubeconfig import endpoint
from remuda.providers.controlplane.planner.observation import ObservedHost, Roles

A, B = (
    ObservedHost(
        name=name,
        namespace="n",
        uid=name,
        created=0.0,
        roles=Roles(control_plane=True),
        internal_addresses=[f"10.0.0.{number}"],
    )
    for number, name in enumerate("ab", 1)
)
BALANCER = Endpoint(host="api.example", port=443)


def test_load_balancer_endpoint_takes_precedence() -> None:
    assert endpoint(BALANCER, None, [A, B], 6443, "10.0.0.2:6443") == BALANCER


def test_current_server_endpoint_is_kept_while_serving() -> None:
    assert str(endpoint(None, None, [A, B], 6443, "10.0.0.2:6443")) == "10.0.0.2:6443"
    assert str(endpoint(None, None, [A], 6443, "10.0.0.2:6443")) == "10.0.0.1:6443"
    assert endpoint(None, None, [], 6443, "10.0.0.2:6443") is None


def test_infrastructure_endpoint_is_used_while_its_server_serves() -> None:
    told = Endpoint(host="10.0.0.2", port=6443)
    assert endpoint(None, told, [A, B], 6443, "") == told
    assert str(endpoint(None, told, [A], 6443, "")) == "10.0.0.1:6443"
