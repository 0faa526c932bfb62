"""Service accounts and their tokens."""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.interop.semantics.trial import Trial, case

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


def _accounts(t: Trial) -> str:
    return f"/api/v1/namespaces/{t.namespace()}/serviceaccounts"


def _claims(token: str) -> dict[str, Any]:
    body = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return found


def _without_times(claims: dict[str, Any]) -> dict[str, Any]:
    lifetime = claims["exp"] - claims["iat"]
    kept = {key: value for key, value in claims.items() if key not in ("iat", "exp", "nbf", "jti")}
    return {**kept, "lifetime": lifetime}


@case("tokens")
def every_namespace_has_a_default_account(t: Trial) -> None:
    path = _accounts(t)
    t.until_served(f"{path}/default")
    t.get(f"{path}/default")
    t.quietly("DELETE", f"{path}/default")
    t.until_served(f"{path}/default")
    t.get(f"{path}/default")


@case("tokens")
def a_token_on_request(t: Trial) -> None:
    path = _accounts(t)
    t.quietly("POST", path, {"metadata": {"name": "sa"}})
    answer = t.post(f"{path}/sa/token", {"spec": {"expirationSeconds": 3600}}).body
    t.note(_without_times(_claims(answer["status"]["token"])))
    t.get("/api/v1/namespaces", token=answer["status"]["token"])
    t.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, token=answer["status"]["token"])


@case("tokens")
def odd_requests(t: Trial) -> None:
    path = _accounts(t)
    t.quietly("POST", path, {"metadata": {"name": "sa"}})
    t.post(f"{path}/sa/token", {"spec": {"expirationSeconds": 60}}, note="too short")
    t.post(f"{path}/nobody/token", {"spec": {}})
    t.post(f"{path}/sa/token", {"spec": {"expirationSeconds": 2**33}}, note="too long")
    t.post(f"{path}/sa/token", {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "none"}}})
    t.post(f"{path}/sa/token", {"spec": {"boundObjectRef": {"kind": "Thing", "apiVersion": "v1", "name": "x"}}})
    t.post(f"{path}/sa/token", {"metadata": {"name": "other"}, "spec": {}})


@case("tokens")
def a_default_lifetime(t: Trial) -> None:
    path = _accounts(t)
    t.quietly("POST", path, {"metadata": {"name": "sa"}})
    answer = t.quietly("POST", f"{path}/sa/token", {"spec": {}})
    t.note(_without_times(_claims(answer["status"]["token"])))
    t.note(answer["spec"])


@case("tokens")
def audiences(t: Trial) -> None:
    path = _accounts(t)
    t.quietly("POST", path, {"metadata": {"name": "sa"}})
    token = t.quietly("POST", f"{path}/sa/token", {"spec": {"audiences": ["other"]}})["status"]["token"]
    t.note(_claims(token)["aud"])
    t.get("/api/v1/namespaces", token=token)
    t.post(REVIEWS, {"spec": {"token": token, "audiences": ["other", "third"]}})
    t.post(REVIEWS, {"spec": {"token": token}})


@case("tokens")
def reviews(t: Trial) -> None:
    path = _accounts(t)
    t.quietly("POST", path, {"metadata": {"name": "sa"}})
    token = t.quietly("POST", f"{path}/sa/token", {"spec": {}})["status"]["token"]
    body = t.server.http("POST", REVIEWS, {"spec": {"token": token}}).body
    extra = body["status"]["user"]["extra"]
    extra.pop("authentication.kubernetes.io/credential-id", None)
    t.note(body["status"])
    t.post(REVIEWS, {"spec": {"token": "nonsense"}})
    t.post(REVIEWS, {"spec": {}})


@case("tokens")
def bound_to_a_secret(t: Trial) -> None:
    path = _accounts(t)
    t.quietly("POST", path, {"metadata": {"name": "sa"}})
    secrets = path.replace("serviceaccounts", "secrets")
    t.quietly("POST", secrets, {"metadata": {"name": "s"}})
    bound = {"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "s"}}
    token = t.quietly("POST", f"{path}/sa/token", {"spec": bound})["status"]["token"]
    t.note(sorted(_claims(token)["kubernetes.io"]))
    t.quietly("DELETE", f"{secrets}/s")
    t.until(lambda: t.server.http("GET", "/api/v1/namespaces", token=token).code == 401)


@case("tokens")
def die_with_the_account(t: Trial) -> None:
    path = _accounts(t)
    t.quietly("POST", path, {"metadata": {"name": "sa"}})
    token = t.quietly("POST", f"{path}/sa/token", {"spec": {}})["status"]["token"]
    t.quietly("DELETE", f"{path}/sa")
    t.until(lambda: t.server.http("GET", "/api/v1/namespaces", token=token).code == 401)
    t.quietly("POST", path, {"metadata": {"name": "sa"}})
    t.note(t.server.http("GET", "/api/v1/namespaces", token=token).code)


@case("tokens")
def legacy_secrets_are_filled(t: Trial) -> None:
    path = _accounts(t)
    t.quietly("POST", path, {"metadata": {"name": "sa"}})
    secrets = path.replace("serviceaccounts", "secrets")
    annotations = {"kubernetes.io/service-account.name": "sa"}
    body = {"metadata": {"name": "s", "annotations": annotations}, "type": "kubernetes.io/service-account-token"}
    t.quietly("POST", secrets, body)
    t.until(lambda: "token" in t.server.http("GET", f"{secrets}/s").body.get("data", {}))
    made = t.quietly("GET", f"{secrets}/s")
    t.note(
        [sorted(made["data"]), made["metadata"]["annotations"], base64.b64decode(made["data"]["namespace"]).decode()]
    )
    token = base64.b64decode(made["data"]["token"]).decode()
    t.note(_claims(token))
    t.note(t.server.http("GET", "/api/v1/namespaces", token=token).code)
    t.quietly("DELETE", f"{path}/sa")
    t.until_gone(f"{secrets}/s")


@case("tokens")
def legacy_secrets_need_an_account(t: Trial) -> None:
    secrets = _accounts(t).replace("serviceaccounts", "secrets")
    t.post(secrets, {"metadata": {"name": "s"}, "type": "kubernetes.io/service-account-token"})


@case("tokens")
def the_issuer_is_published(t: Trial) -> None:
    document = t.quietly("GET", "/.well-known/openid-configuration")
    t.note(sorted(document))
    t.note(document["issuer"])
    reply = t.server.http("GET", "/openid/v1/jwks", headers={"Accept": "*/*"})
    t.note([reply.code, reply.headers["Content-Type"], sorted(reply.body)])
