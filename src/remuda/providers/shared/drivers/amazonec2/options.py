"""The options of the driver `amazonec2`, under the names manifests for Rancher already use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from remuda.kube.objects import Field
from remuda.providers.shared.drivers.spi import Options

DEFAULT_GROUP = "rancher-nodes"


class Amazonec2Options(Options):
    access_key: Annotated[
        str, Field("Access key id; without one, what this machine's environment or role gives.", format="password")
    ] = ""
    secret_key: Annotated[str, Field("Secret access key.", format="password")] = ""
    session_token: Annotated[str, Field("Token of a temporary session.", format="password")] = ""
    region: Annotated[str, Field("Region.", pattern="^[a-z]{2}(-[a-z]+)+-[0-9]+$")] = "us-east-1"
    zone: Annotated[str, Field("Availability zone: its letter.", pattern="^[a-z]?$")] = "a"
    vpc_id: Annotated[str, Field("VPC; without one, the default VPC of the region.", pattern="^(vpc-[0-9a-f]+)?$")] = (
        msgspec.field(name="vpcId", default="")
    )
    subnet_id: Annotated[
        str, Field("Subnet; without one, a subnet of the VPC in the zone.", pattern="^(subnet-[0-9a-f]+)?$")
    ] = msgspec.field(name="subnetId", default="")
    ami: Annotated[str, Field("Image to start from.", required=True, pattern="^ami-[0-9a-f]+$")] = ""
    instance_type: Annotated[str, Field("Size of the instance.")] = "t3.medium"
    root_size: Annotated[int | str, Field("Size of the root volume, in GB.", int_or_string=True)] = 16
    volume_type: Annotated[
        str, Field("Type of the root volume.", enum=("gp2", "gp3", "io1", "io2", "sc1", "st1", "standard"))
    ] = "gp3"
    device_name: Annotated[str, Field("Device of the root volume, as the image calls it.")] = "/dev/sda1"
    encrypt_ebs_volume: Annotated[bool, Field("Encrypt the root volume.")] = False
    kms_key: Annotated[str, Field("Key to encrypt it with; without one, the account's own.")] = ""
    security_group: Annotated[
        Sequence[str],
        Field("Security groups, by name; those that are missing are made.", list_type="atomic", max_items=5),
    ] = (DEFAULT_GROUP,)
    security_group_readonly: Annotated[bool, Field("Neither make groups nor add rules to them.")] = False
    open_port: Annotated[
        Sequence[str], Field("Ports to open to everybody: 8080, or 8080/udp.", list_type="atomic", max_items=50)
    ] = ()
    iam_instance_profile: Annotated[str, Field("Instance profile, by name.")] = ""
    ssh_user: Annotated[str, Field("The image's user for SSH.")] = "ubuntu"
    keypair_name: Annotated[
        str, Field("A key pair that exists already; without one, each machine gets its own. Goes with sshKeyContents.")
    ] = ""
    ssh_key_contents: Annotated[str, Field("Private key of keypairName.", format="password")] = ""
    tags: Annotated[str, Field("Further tags: key,value,key,value.")] = ""
    request_spot_instance: Annotated[bool, Field("A spot instance.")] = False
    spot_price: Annotated[str, Field("The most to pay for it per hour, in USD; without one, the on-demand price.")] = ""
    private_address_only: Annotated[bool, Field("No public address.")] = False
    use_private_address: Annotated[bool, Field("Reach it by SSH on its private address.")] = False
    http_endpoint: Annotated[str, Field("The instance's metadata service.", enum=("enabled", "disabled"))] = "enabled"
    http_tokens: Annotated[
        str, Field("Whether metadata needs a session token (IMDSv2).", enum=("optional", "required"))
    ] = "required"
    endpoint: Annotated[str, Field("Another address of the API, for clouds that are compatible.")] = ""
    retries: Annotated[int | str, Field("How often a call is tried again.", int_or_string=True)] = 5
    userdata: Annotated[str, Field("Your own user data, a #cloud-config or a script: it is kept beside ours.")] = ""
