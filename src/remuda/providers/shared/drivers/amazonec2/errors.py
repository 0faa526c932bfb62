"""Translation of AWS errors into messages for the author of the options. Never shows more than AWS meant to be read.

AWS's library is large, and a management plane only has to know the options of this driver: it is imported when the
first call is made, which is in a Job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from remuda.providers.shared.drivers.spi import BadOptions, DriverError

_CREDENTIALS = frozenset(
    {
        "AuthFailure",
        "InvalidClientTokenId",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
        "MissingAuthenticationToken",
        "ExpiredToken",
        "RequestExpired",
        "OptInRequired",
    }
)
_RIGHTS = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})
# The beginning of a code → the option it is about.
_OPTIONS = {
    "InvalidAMIID": "ami",
    "InvalidSubnetID": "subnetId",
    "InvalidVpcID": "vpcId",
    "InvalidGroup": "securityGroup",
    "InvalidKeyPair": "keypairName",
    "InvalidInstanceType": "instanceType",
    "InvalidIamInstanceProfile": "iamInstanceProfile",
    "InvalidKMSKey": "kmsKey",
    "InvalidBlockDeviceMapping": "deviceName or rootSize",
    "VPCIdNotSpecified": "vpcId",
    "MissingInput": "subnetId",
    "InvalidUserData": "userdata",
    "MaxSpotInstance": "requestSpotInstance",
    "SpotMaxPriceTooLow": "spotPrice",
    "InvalidParameterValue": "",
    "InvalidParameterCombination": "",
    "InvalidParameter": "",
    "UnsupportedOperation": "",
    "Unsupported": "instanceType or zone",
}
_PASSING = frozenset({"InvalidGroup.InUse", "InvalidKeyPair.Duplicate"})
_ENCODED = re.compile(r"\s*Encoded authorization failure message:.*", re.DOTALL)


@contextmanager
def in_words(what: str) -> Iterator[None]:
    """`what` was to be done: "start the instance"."""
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        ConnectTimeoutError,
        EndpointConnectionError,
        NoCredentialsError,
        PartialCredentialsError,
    )

    try:
        yield
    except ClientError as error:
        raise _told(what, error) from None
    except (NoCredentialsError, PartialCredentialsError):
        raise BadOptions(
            f"cannot {what}: no AWS credentials. Set accessKey and secretKey in a cloud credential, or run where an "
            "instance role or the environment provides them"
        ) from None
    except (EndpointConnectionError, ConnectTimeoutError) as error:
        raise DriverError(f"cannot {what}: cannot connect to AWS: {error}") from None
    except BotoCoreError as error:
        raise DriverError(f"cannot {what}: {error}") from None


@contextmanager
def tolerated(code: str) -> Iterator[None]:
    """Ignore this error code of AWS: the call counts as successful."""
    from botocore.exceptions import ClientError

    try:
        yield
    except ClientError as error:
        if _code(error) != code:
            raise


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _told(what: str, error: Any) -> DriverError:
    code = _code(error)
    message = _ENCODED.sub("", str(error.response.get("Error", {}).get("Message", ""))).strip() or code
    if code in _CREDENTIALS:
        return BadOptions(f"cannot {what}: AWS rejects the credentials ({code}): {message}")
    if code in _RIGHTS:
        return BadOptions(f"cannot {what}: the credentials are valid, but lack the permission ({code}): {message}")
    if code not in _PASSING:
        for beginning, option in _OPTIONS.items():
            if code.startswith(beginning):
                named = f" (option {option})" if option else ""
                return BadOptions(f"cannot {what}{named}: {code}: {message}")
    return DriverError(f"cannot {what}: {code}: {message}")
