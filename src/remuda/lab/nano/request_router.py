"""Router of all requests on a server's port: the supervisor's paths go to the supervisor, all others to the API.

The API is either in this process or behind the forwarder. A server without the role answers API requests only for other
servers.
"""

from __future__ import annotations

from collections.abc import Awaitable

import msgspec

from remuda.apiserver.http.answers import error_response, json_headers
from remuda.apiserver.http.system import version_document
from remuda.kube.errors import StatusError
from remuda.kube.web import Handler, Request, Response, Result, text
from remuda.lab.nano.identity import TlsIdentity
from remuda.lab.nano.members import NO_LEADER
from remuda.lab.nano.membership_client import ClusterMember
from remuda.lab.nano.supervisor import Supervisor

_HEALTH = ("/readyz", "/livez", "/healthz")


class RequestRouter:
    def __init__(self, identity: TlsIdentity, seat: ClusterMember, supervisor: Supervisor, version: str) -> None:
        self.open = False  # until the server has started, there is no API
        self._identity = identity
        self._seat = seat
        self._supervisor = supervisor
        self._version = msgspec.json.format(msgspec.json.encode(_version_document(version)))

    def before(self, api: Handler) -> Handler:
        answer = self.api_alone(api)

        def handle(request: Request) -> Result | Awaitable[Result]:
            if self._supervisor.answers(request.path):
                return self._supervisor.handle(request, passed_on=self._identity.unwrap(request))
            return answer(request)

        return handle

    def api_alone(self, api: Handler) -> Handler:
        """Route a request on a port that serves only the API."""

        def handle(request: Request) -> Result | Awaitable[Result]:
            passed_on = self._identity.unwrap(request)
            if not passed_on and not self._seat.own.api:
                return error_response(request, StatusError(503, "ServiceUnavailable", "apiserver disabled"))
            if not self.open:
                return error_response(request, StatusError(503, "ServiceUnavailable", "apiserver not ready"))
            if request.path.startswith(_HEALTH) and not self._seat.standing().leader:
                return text(500, f"[-]etcd failed: {NO_LEADER}\n{request.path[1:]} check failed\n")
            if request.path == "/version" and request.method == "GET":
                return Response(200, self._version, json_headers(request))
            return api(request)

        return handle


def _version_document(version: str) -> dict[str, str]:
    major, minor, *_ = version.removeprefix("v").split(".")
    return {**version_document(), "gitVersion": version, "major": major, "minor": minor}
