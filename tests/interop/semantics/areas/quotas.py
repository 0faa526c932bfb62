"""ResourceQuotas on the number of objects: what is refused, in which words, and what their status shows."""

from __future__ import annotations

from typing import Any

from tests.interop.semantics.trial import Trial, case

COUNT = "count/secrets"


def _limited(t: Trial, **hard: str) -> tuple[str, str]:
    """Return the paths of quotas and Secrets of a namespace with a quota that admission knows.

    Upstream's admission reads quotas from a cache that can lag behind the status that a client sees, and a Secret
    created in between is never counted. Dry runs show what the cache holds: nothing fits the quota of zero.
    """
    place = f"/api/v1/namespaces/{t.namespace()}"
    quotas, secrets = f"{place}/resourcequotas", f"{place}/secrets"
    none = dict.fromkeys(hard, "0")
    t.quietly("POST", quotas, {"metadata": {"name": "few"}, "spec": {"hard": none}})
    _settle(t, f"{quotas}/few", {"hard": none, "used": none})
    t.until(lambda: _fits(t, secrets) == 403)
    if hard != none:
        merge = {"Content-Type": "application/merge-patch+json"}
        t.quietly("PATCH", f"{quotas}/few", {"spec": {"hard": hard}}, headers=merge)
        _settle(t, f"{quotas}/few", {"hard": hard, "used": none})
        t.until(lambda: _fits(t, secrets) == 201)
    return quotas, secrets


def _fits(t: Trial, secrets: str) -> int:
    return t.server.http("POST", f"{secrets}?dryRun=All", _secret("b")).code


def _settle(t: Trial, path: str, status: dict[str, dict[str, str]]) -> None:
    t.until(lambda: t.quietly("GET", path).get("status") == status)


def _secret(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


@case("quotas")
def create_above_the_count(t: Trial) -> None:
    quotas, secrets = _limited(t, **{COUNT: "1"})
    t.post(secrets, _secret("a"))
    t.post(secrets, _secret("b"))
    _settle(t, f"{quotas}/few", {"hard": {COUNT: "1"}, "used": {COUNT: "1"}})
    t.note(t.quietly("GET", f"{quotas}/few")["status"])
    t.delete(f"{secrets}/a")
    t.until(lambda: _fits(t, secrets) == 201)
    t.post(secrets, _secret("b"))


@case("quotas")
def short_name_of_a_core_kind(t: Trial) -> None:
    _, secrets = _limited(t, secrets="1")
    t.post(secrets, _secret("a"))
    t.post(secrets, _secret("b"))


@case("quotas")
def dry_run_and_apply_are_checked(t: Trial) -> None:
    _, secrets = _limited(t, **{COUNT: "0"})
    t.post(f"{secrets}?dryRun=All", _secret("a"))
    t.apply(f"{secrets}/a", {"apiVersion": "v1", "kind": "Secret", **_secret("a")})


@case("quotas")
def updates_are_not_counted(t: Trial) -> None:
    _, secrets = _limited(t, **{COUNT: "1"})
    t.post(secrets, _secret("a"))
    t.patch(f"{secrets}/a", {"metadata": {"labels": {"a": "b"}}})


@case("quotas")
def impossible_amounts(t: Trial) -> None:
    path = f"/api/v1/namespaces/{t.namespace()}/resourcequotas"
    for amount in ("-1", "1500m", "many"):
        t.post(path, {"metadata": {"name": "few"}, "spec": {"hard": {COUNT: amount}}})
