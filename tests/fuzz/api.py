"""Fuzz the API of a running server by its own OpenAPI documents, with schemathesis.

    python -m tests.fuzz.api --seconds 60

Every operation of the chosen groups is asked as an administrator and as a user with the role `edit` in one namespace.
No answer may be an internal error or break its schema; the server must stay alive, log no traceback and not grow.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.lab import Ours

_GROUPS = (
    *("api/v1", "apis/apps/v1", "apis/batch/v1", "apis/rbac.authorization.k8s.io/v1", "apis/coordination.k8s.io/v1"),
    *("apis/authorization.k8s.io/v1", "apis/apiextensions.k8s.io/v1", "apis/policy/v1", "apis/events.k8s.io/v1"),
)
_NAMES = ("a", "b", "fuzz")
_MOST_GROWTH = 200.0  # megabytes
_EXAMPLES = 5  # inputs of one operation in one round
_NULL = "null is not of type"  # Go's empty times and lists: the real server breaks its schema by them too
_ENDLESS = ("watch", "follow", "resourceVersion")  # of a query: answers that wait for events or for a revision
_FORWARDED = ("/proxy", "/exec", "/attach", "/portforward")  # subresources that lead elsewhere


class Campaign:
    """Asks one server, and remembers what it answered."""

    def __init__(self, server: Ours) -> None:
        import requests

        self.server = server
        self.codes: Counter[tuple[str, int]] = Counter()
        self.failures: dict[str, str] = {}
        self._admin = requests.Session()
        self._user = requests.Session()
        for session in (self._admin, self._user):
            session.trust_env = False  # proxies and authorities of this machine are none of the server's
            session.verify = self._file("ca.pem", server.ca_pem)
            session.headers["User-Agent"] = "fuzz"
        self._admin.cert = tuple(
            str(server.kubeconfig.with_name(f"lab-client-{part}.pem")) for part in ("certificate", "key")
        )
        self._user.headers["Authorization"] = f"Bearer {self._token()}"

    def _file(self, name: str, content: bytes) -> str:
        path = Path(self.server.folder) / name
        path.write_bytes(content)
        return str(path)

    def _token(self) -> str:
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        self.server.http("POST", accounts, {"metadata": {"name": "fuzzer"}})
        binding = {
            "metadata": {"name": "fuzzer"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": "fuzzer", "namespace": "default"}],
        }
        self.server.http("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding)
        made = self.server.http("POST", f"{accounts}/fuzzer/token", {"spec": {"expirationSeconds": 7200}})
        token: str = made.body["status"]["token"]
        return token

    def ask(self, case: Any, kind: dict[str, str]) -> None:
        """Send one case as both callers and judge the answers."""
        import schemathesis
        from schemathesis.core.failures import Failure, FailureGroup

        _aim(case, kind)
        checks = [
            schemathesis.checks.not_a_server_error,
            schemathesis.checks.CHECKS.get_one("response_schema_conformance"),
        ]
        for who, session in (("admin", self._admin), ("user", self._user)):
            response = case.call(
                base_url=self.server.url, session=session, timeout=60, verify=session.verify, cert=session.cert
            )
            self.codes[who, response.status_code] += 1
            if response.status_code == 500 and _is_upstreams(response):
                continue
            try:
                case.validate_response(response, checks=checks)
            except (Failure, FailureGroup) as failure:
                parts = failure.exceptions if isinstance(failure, FailureGroup) else (failure,)
                if all(_NULL in str(part) for part in parts):
                    continue
                where = f"{case.method} {case.operation.path} as {who}: {response.status_code}"
                self.failures.setdefault(where, f"{failure}\n{case.as_curl_command()}"[:4000])


def _is_upstreams(response: Any) -> bool:
    """Whether it is a 500 without a reason, with which upstream refuses some requests, and so do we. What nobody
    foresaw has the reason InternalError, and a traceback in the log."""
    return not response.json().get("reason")


def _aim(case: Any, kind: dict[str, str]) -> None:
    """Give the case a name and a kind that the server can accept, so that not all of them end at the door."""
    size = len(repr(case.body))
    case.path_parameters = dict(case.path_parameters or {})
    if "namespace" in case.path_parameters:
        case.path_parameters["namespace"] = "default"
    if "name" in case.path_parameters:
        case.path_parameters["name"] = _NAMES[size % len(_NAMES)]
    case.query = {name: value for name, value in (case.query or {}).items() if name not in _ENDLESS}
    case.query["timeoutSeconds"] = 1
    if isinstance(case.body, dict) and kind:
        group = f"{kind['group']}/" if kind["group"] else ""
        case.body |= {"apiVersion": f"{group}{kind['version']}", "kind": kind["kind"]}
        metadata = case.body.get("metadata")
        case.body["metadata"] = {**(metadata if isinstance(metadata, dict) else {}), "name": _NAMES[size % len(_NAMES)]}


def run(campaign: Campaign, seconds: float) -> None:
    """Ask operation after operation, round after round, for so long."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings

    until = time.monotonic() + seconds
    round_ = 0
    while time.monotonic() < until:
        round_ += 1
        for group in _GROUPS:
            document = campaign.server.http("GET", f"/openapi/v3/{group}").body
            for operation in _operations(schemathesis.openapi.from_dict(document)):
                if time.monotonic() >= until:
                    return
                asked = settings(
                    max_examples=_EXAMPLES * round_,
                    deadline=None,
                    database=None,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )(given(case=operation.as_strategy())(_asking(campaign, operation, until)))
                asked()


def _asking(campaign: Campaign, operation: Any, until: float) -> Callable[[Any], None]:
    kind = operation.definition.raw.get("x-kubernetes-group-version-kind") or {}

    def ask(case: Any) -> None:
        if time.monotonic() < until:
            campaign.ask(case, kind)

    return ask


def _operations(schema: Any) -> list[Any]:
    found = [result.ok() for result in schema.get_all_operations()]
    return [one for one in found if not any(part in one.path for part in _FORWARDED) and "/watch/" not in one.path]


def _megabytes(pid: int) -> float:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the API of a running server by its OpenAPI documents.")
    parser.add_argument("--seconds", type=float, default=300.0)
    given = parser.parse_args()
    if not given.seconds or importlib.util.find_spec("schemathesis") is None:
        print(
            "requests by the OpenAPI documents are not sent: "
            + ("schemathesis is not installed" if given.seconds else "0 s")
        )
        return 0
    server = Ours()
    try:
        campaign = Campaign(server)
        before = _megabytes(server.process.pid)
        try:
            run(campaign, given.seconds)
        except KeyboardInterrupt:
            print("interrupted")
        alive = server.process.poll() is None and server.http("GET", "/readyz").code == 200
        grown = _megabytes(server.process.pid) - before if alive else 0.0
        log = server.log.read_text()
    finally:
        server.stop()
    for where, why in campaign.failures.items():
        print(f"{where}\n{why}\n")
    print(f"{sum(campaign.codes.values()):,} requests: " + _counted(campaign.codes))
    print(f"{len(campaign.failures)} failures, memory {grown:+.0f} MB, server {'well' if alive else 'ENDED'}")
    if "Traceback" in log:
        print(log[log.index("Traceback") :][:4000])
    well = alive and not campaign.failures and grown <= _MOST_GROWTH and "Traceback" not in log
    return 0 if well else 1


def _counted(codes: Counter[tuple[str, int]]) -> str:
    return ", ".join(f"{who} {code}: {count:,}" for (who, code), count in sorted(codes.items()))


if __name__ == "__main__":
    sys.exit(main())
