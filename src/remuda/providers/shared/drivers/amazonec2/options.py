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
        str,
        Field("Access key id. If empty, the credentials of the environment or the instance role.", format="password"),
    ] = ""
    secret_key: Annotated[str, Field("Secret access key.", format="password")] = ""
    session_token: Annotated[str, Field("Token of a temporary session.", format="password")] = ""
    region: Annotated[str, Field("Region.", pattern="^[a-z]{2}(-[a-z]+)+-[0-9]+$")] = "us-east-1"
    zone: Annotated[str, Field("Availability zone: its letter.", pattern="^[a-z]?$")] = "a"
    vpc_id: Annotated[str, Field("VPC. If empty, the default VPC of the region.", pattern="^(vpc-[0-9a-f]+)?$")] = (
        msgspec.field(name="vpcId", default="")
    )
    subnet_id: Annotated[
        str, Field("Subnet. If empty, a subnet of the VPC in the zone.", pattern="^(subnet-[0-9a-f]+)?$")
    ] = msgspec.field(name="subnetId", default="")
    ami: Annotated[str, Field("Image (AMI) of the instance.", required=True, pattern="^ami-[0-9a-f]+$")] = ""
    instance_type: Annotated[str, Field("Size of the instance.")] = "t3.medium"
    root_size: Annotated[int | str, Field("Size of the root volume, in GB.", int_or_string=True)] = 16
    volume_type: Annotated[
        str, Field("Type of the root volume.", enum=("gp2", "gp3", "io1", "io2", "sc1", "st1", "standard"))
    ] = "gp3"
    device_name: Annotated[str, Field("Device of the root volume, as the image calls it.")] = "/dev/sda1"
    encrypt_ebs_volume: Annotated[bool, Field("Encrypt the root volume.")] = False
    kms_key: Annotated[str, Field("KMS key for the encryption. If empty, the account's default key.")] = ""
    security_group: Annotated[
        Sequence[str],
        Field("Security groups, by name; missing groups are created.", list_type="atomic", max_items=5),
    ] = (DEFAULT_GROUP,)
    security_group_readonly: Annotated[bool, Field("Neither create groups nor add rules to them.")] = False
    open_port: Annotated[
        Sequence[str], Field("Ports to open to the internet: 8080, or 8080/udp.", list_type="atomic", max_items=50)
    ] = ()
    iam_instance_profile: Annotated[str, Field("Instance profile, by name.")] = ""
    ssh_user: Annotated[str, Field("The image's user for SSH.")] = "ubuntu"
    keypair_name: Annotated[
        str, Field("An existing key pair; needs sshKeyContents. If empty, each machine gets its own key pair.")
    ] = ""
    ssh_key_contents: Annotated[str, Field("Private key of keypairName.", format="password")] = ""
    tags: Annotated[str, Field("Further tags: key,value,key,value.")] = ""
    request_spot_instance: Annotated[bool, Field("Request a spot instance.")] = False
    spot_price: Annotated[str, Field("Maximum price per hour, in USD. If empty, the on-demand price.")] = ""
    private_address_only: Annotated[bool, Field("Assign no public address.")] = False
    use_private_address: Annotated[bool, Field("Use the private address for SSH.")] = False
    http_endpoint: Annotated[str, Field("The instance's metadata service.", enum=("enabled", "disabled"))] = "enabled"
    http_tokens: Annotated[
        str, Field("Whether metadata needs a session token (IMDSv2).", enum=("optional", "required"))
    ] = "required"
    endpoint: Annotated[str, Field("Endpoint of a compatible API, in place of AWS.")] = ""
    retries: Annotated[int | str, Field("Number of retries of a call.", int_or_string=True)] = 5
    userdata: Annotated[
        str, Field("Additional user data, a #cloud-config or a script; it is merged with Remuda's.")
    ] = ""
