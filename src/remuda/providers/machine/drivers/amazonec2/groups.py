"""Security groups: found by name in the VPC, or made, with the rules that nodes of a cluster need among themselves.

They are shared by all machines that name them and stay when those are gone, as people expect of a group they named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from remuda.providers.machine.drivers.amazonec2.errors import tolerated
from remuda.providers.machine.spi import BadOptions

_ANYWHERE = "0.0.0.0/0"
_ANYWHERE_V6 = "::/0"

Permission = dict[str, Any]


class Port(NamedTuple):
    first: int
    last: int
    protocol: str = "tcp"


# From anywhere: SSH, the Kubernetes API, what serves users. From the group: everything else a cluster says to itself.
OPEN = (Port(22, 22), Port(80, 80), Port(443, 443), Port(6443, 6443), Port(9345, 9345))
INSIDE = (
    Port(2379, 2381),
    Port(8472, 8472, "udp"),
    Port(4789, 4789, "udp"),
    Port(51820, 51821, "udp"),
    Port(10250, 10252),
    Port(10256, 10256),
    Port(179, 179),
    Port(5473, 5473),
    Port(9098, 9099),
    Port(9796, 9796),
    Port(30000, 32767),
    Port(30000, 32767, "udp"),
)


def parse_ports(texts: Sequence[str]) -> list[Port]:
    """Raises BadOptions."""
    found = []
    for text in texts:
        number, _, protocol = text.partition("/")
        if not number.isdigit() or not 0 < int(number) < 65536 or (protocol or "tcp") not in ("tcp", "udp"):
            raise BadOptions(f"openPort: {text!r} is not a port; write 8080, or 8080/udp")
        found.append(Port(int(number), int(number), protocol or "tcp"))
    return found


def wanted(group: str, further: Sequence[Port]) -> list[Permission]:
    found = []
    for port in (*OPEN, *further):
        found.append(
            _permission(port) | {"IpRanges": [{"CidrIp": _ANYWHERE}], "Ipv6Ranges": [{"CidrIpv6": _ANYWHERE_V6}]}
        )
    found += [_permission(port) | {"UserIdGroupPairs": [{"GroupId": group}]} for port in INSIDE]
    return found


def _permission(port: Port) -> Permission:
    return {"IpProtocol": port.protocol, "FromPort": port.first, "ToPort": port.last}


def missing(group: dict[str, Any], further: Sequence[Port]) -> list[Permission]:
    """The rules a group lacks; what somebody else has added is left alone."""
    present = {_key(one) for one in group.get("IpPermissions", ())}
    return [one for one in wanted(group["GroupId"], further) if _key(one) not in present]


def _key(permission: Permission) -> tuple[Any, ...]:
    return permission.get("IpProtocol"), permission.get("FromPort"), permission.get("ToPort")


def find(client: Any, vpc: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Those there are, by name."""
    answer = client.describe_security_groups(
        Filters=[{"Name": "vpc-id", "Values": [vpc]}, {"Name": "group-name", "Values": list(names)}]
    )
    return {group["GroupName"]: group for group in answer["SecurityGroups"]}


def make(client: Any, vpc: str, name: str, tags: list[dict[str, str]]) -> None:
    """Somebody may be faster; then it is there."""
    with tolerated("InvalidGroup.Duplicate"):
        client.create_security_group(
            GroupName=name,
            VpcId=vpc,
            Description="Nodes of clusters managed by Remuda",
            TagSpecifications=[{"ResourceType": "security-group", "Tags": tags}],
        )


def open_ports(client: Any, group: dict[str, Any], further: Sequence[Port]) -> None:
    """One by one, so that a rule somebody has added meanwhile does not keep out the others."""
    for permission in missing(group, further):
        with tolerated("InvalidPermission.Duplicate"):
            client.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=[permission])
