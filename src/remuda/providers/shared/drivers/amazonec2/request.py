"""Parameters of requests to AWS, built from the options and the order. Pure.

User data is compressed only where it must be: plain user data can be read in AWS's console.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Any

from remuda.providers.shared.drivers.amazonec2.options import Amazonec2Options
from remuda.providers.shared.drivers.spi import Address, BadOptions, Order

MOST_USER_DATA = 16 * 1024  # bytes, as AWS counts: before base64

Json = dict[str, Any]


def instance(
    options: Amazonec2Options, order: Order, user_data: bytes, *, subnet: str, group_ids: list[str], key_name: str
) -> Json:
    """Return the parameters that start an instance."""
    _, root_size = numbers(options)
    volume: Json = {"VolumeSize": root_size, "VolumeType": options.volume_type, "DeleteOnTermination": True}
    if options.encrypt_ebs_volume:
        volume |= {"Encrypted": True} | ({"KmsKeyId": options.kms_key} if options.kms_key else {})
    labels = tags({**dict(pairs(options.tags)), "Name": order.name, **_cluster_tag(options, order), **order.tags})
    request: Json = {
        "ImageId": options.ami,
        "InstanceType": options.instance_type,
        "MinCount": 1,
        "MaxCount": 1,
        "KeyName": key_name,
        "UserData": user_data,
        "NetworkInterfaces": [
            {
                "DeviceIndex": 0,
                "SubnetId": subnet,
                "Groups": group_ids,
                "AssociatePublicIpAddress": not options.private_address_only,
                "DeleteOnTermination": True,
            }
        ],
        "BlockDeviceMappings": [{"DeviceName": options.device_name, "Ebs": volume}],
        "MetadataOptions": {"HttpEndpoint": options.http_endpoint, "HttpTokens": options.http_tokens},
        "TagSpecifications": [{"ResourceType": kind, "Tags": labels} for kind in ("instance", "volume")],
    }
    if options.iam_instance_profile:
        request["IamInstanceProfile"] = {"Name": options.iam_instance_profile}
    if options.request_spot_instance:
        spot: Json = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        spot |= {"MaxPrice": options.spot_price} if options.spot_price else {}
        request["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": spot}
    return request


def addresses(instance: Json, *, private_first: bool) -> list[Address]:
    private = [Address("InternalIP", instance["PrivateIpAddress"])] if instance.get("PrivateIpAddress") else []
    public = [Address("ExternalIP", instance["PublicIpAddress"])] if instance.get("PublicIpAddress") else []
    names = [Address("InternalDNS", instance["PrivateDnsName"])] if instance.get("PrivateDnsName") else []
    return [*private, *public, *names] if private_first else [*public, *private, *names]


def _cluster_tag(options: Amazonec2Options, order: Order) -> dict[str, str]:
    """Return the tag by which AWS's own controllers recognize the machines of a cluster; a tag of the user takes
    precedence.
    """
    if "kubernetes.io/cluster/" in options.tags:
        return {}
    return {f"kubernetes.io/cluster/{order.cluster}": "owned"}


def packed(user_data: bytes) -> bytes:
    """Raises BadOptions."""
    small = user_data if len(user_data) <= MOST_USER_DATA else gzip.compress(user_data, mtime=0)
    if len(small) > MOST_USER_DATA:
        raise BadOptions(
            f"userdata: too large: {len(small)} bytes compressed, together with the bootstrap script; the limit of AWS "
            f"is {MOST_USER_DATA}"
        )
    return small


def tags(named: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in named.items()]


def pairs(text: str) -> list[tuple[str, str]]:
    """key,value,key,value. Raises BadOptions."""
    parts = [part.strip() for part in text.split(",")] if text else []
    if len(parts) % 2 or not all(parts[::2]):
        raise BadOptions(f"tags: {text!r} is not a list of key,value,key,value")
    return list(zip(parts[::2], parts[1::2], strict=True))


def numbers(options: Amazonec2Options) -> tuple[int, int]:
    """Return the number of retries and the size of the root volume. Raises BadOptions."""
    found = []
    for name, value, most in (("retries", options.retries, 100), ("rootSize", options.root_size, 65536)):
        if not str(value).isdigit() or not (0 if name == "retries" else 1) <= int(value) <= most:
            raise BadOptions(f"{name}: {value!r} is not a number from {'0' if name == 'retries' else '1'} to {most}")
        found.append(int(value))
    return found[0], found[1]
