"""Continue token of a paged list: the revision of its first page and the last key returned.

Opaque to clients. Revision 0 marks the token offered with a 410: the rest of the list as it is now, no longer
consistent with the first pages.
"""

from __future__ import annotations

import base64

import msgspec

from remuda.kube.errors import StatusError, bad_request
from remuda.kube.malformed_json import json_complaint


class Continuation(msgspec.Struct, frozen=True):
    revision: int = msgspec.field(name="rv")
    namespace: str = msgspec.field(name="ns")
    name: str
    version: str = msgspec.field(name="v", default="meta.k8s.io/v1")

    def encode(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)


def parse_continuation(token: str) -> Continuation:
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except ValueError as error:  # not base64, or not ASCII
        raise _invalid(str(error)) from None
    try:
        found = msgspec.json.decode(raw, type=Continuation)
    except (ValueError, msgspec.MsgspecError) as error:
        raise _invalid(json_complaint(raw, str(error))) from None
    if found.version != "meta.k8s.io/v1" or found.revision < 0:
        why = f'server does not recognize this encoded version "{found.version}"'
        raise _invalid(why)
    return found


def _invalid(why: str) -> StatusError:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")
