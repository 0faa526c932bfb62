"""Every namespace has a default account; token Secrets hold a good token exactly as long as their account lives."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from remuda.apiserver.auth.tokens import TokenRejected
from tests.unit.apiserver.engine import ACCOUNTS, CA, NAMESPACES, SECRETS, Engine

TOKEN_TYPE = "kubernetes.io/service-account-token"
NAME, UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"


def token_secret(name: str, account: str, **annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": {NAME: account, **annotations}}, "type": TOKEN_TYPE}


async def account(engine: Engine, name: str = "robot") -> dict[str, Any]:
    return await engine.create(ACCOUNTS, "ns", {"metadata": {"name": name}})


async def filled(engine: Engine, name: str = "token") -> dict[str, str]:
    """The decoded data of a Secret, once it has a token."""
    found = await engine.eventually(
        lambda: (secret := engine.find(SECRETS, "ns", name)) and (secret.get("data") or {}).get("token") and secret
    )
    return {key: b64decode(value).decode() for key, value in found["data"].items()}


def user_of(engine: Engine, token: str) -> str:
    try:
        return engine.authenticator.authenticate_token(token, engine.tokens.api_audiences).user.name
    except TokenRejected:
        return ""


# ---- default accounts --------------------------------------------------------------------------------------------


async def test_default_service_account_exists_in_every_namespace(engine: Engine) -> None:
    namespaces = ("ns", "default", "kube-system")
    await engine.eventually(lambda: all(engine.find(ACCOUNTS, namespace, "default") for namespace in namespaces))


async def test_deleted_default_service_account_is_recreated(engine: Engine) -> None:
    first = await engine.eventually(lambda: engine.find(ACCOUNTS, "ns", "default"))
    await engine.delete(ACCOUNTS, "ns", "default")
    again = await engine.eventually(lambda: engine.find(ACCOUNTS, "ns", "default"))
    assert again["metadata"]["uid"] != first["metadata"]["uid"]


async def test_default_service_account_is_not_recreated_in_terminating_namespace(engine: Engine) -> None:
    await engine.create(SECRETS, "ns", {"metadata": {"name": "s", "finalizers": ["test.io/hold"]}})
    await engine.delete(NAMESPACES, "", "ns")
    await engine.gone(ACCOUNTS, "ns", "default")
    await engine.release(SECRETS, "ns", "s")
    await engine.gone(NAMESPACES, "", "ns")
    assert not engine.names(ACCOUNTS, "ns")


async def test_startup_creates_missing_default_service_accounts(idle_engine: Engine) -> None:
    assert not idle_engine.names(ACCOUNTS)
    await idle_engine.restart()
    assert idle_engine.find(ACCOUNTS, "ns", "default")


# ---- token Secrets -----------------------------------------------------------------------------------------------


async def test_token_secret_is_populated(engine: Engine) -> None:
    robot = await account(engine)
    await engine.create(SECRETS, "ns", token_secret("token", "robot"))
    data = await filled(engine)
    assert data["ca.crt"] == CA.decode()
    assert data["namespace"] == "ns"
    assert user_of(engine, data["token"]) == "system:serviceaccount:ns:robot"
    secret = engine.find(SECRETS, "ns", "token")
    assert secret is not None
    assert secret["metadata"]["annotations"][UID] == robot["metadata"]["uid"]


async def test_secrets_of_other_types_are_not_populated(engine: Engine) -> None:
    await account(engine)
    await engine.create(SECRETS, "ns", {"metadata": {"name": "plain", "annotations": {NAME: "robot"}}})
    await engine.settled()
    secret = engine.find(SECRETS, "ns", "plain")
    assert secret is not None
    assert "data" not in secret


async def test_token_secret_keeps_existing_data(engine: Engine) -> None:
    await account(engine)
    body = token_secret("token", "robot")
    body["data"] = {"extra": b64encode(b"mine").decode(), "namespace": b64encode(b"shown").decode()}
    await engine.create(SECRETS, "ns", body)
    data = await filled(engine)
    assert data["extra"] == "mine"
    assert data["namespace"] == "shown"


async def test_removed_token_secret_data_is_restored(engine: Engine) -> None:
    await account(engine)
    await engine.create(SECRETS, "ns", token_secret("token", "robot"))
    await filled(engine)
    await engine.patch(SECRETS, "ns", "token", {"data": {"token": None, "ca.crt": None}})
    data = await filled(engine)
    assert data["ca.crt"] == CA.decode()
    assert user_of(engine, data["token"])


async def test_token_secret_ca_is_updated(engine: Engine) -> None:
    await account(engine)
    await engine.create(SECRETS, "ns", token_secret("token", "robot"))
    await filled(engine)
    await engine.patch(SECRETS, "ns", "token", {"data": {"ca.crt": b64encode(b"of an earlier one").decode()}})
    ours = b64encode(CA).decode()
    await engine.eventually(lambda: (engine.find(SECRETS, "ns", "token") or {})["data"]["ca.crt"] == ours)


async def test_token_secret_without_service_account_is_deleted(engine: Engine) -> None:
    await engine.create(SECRETS, "ns", token_secret("token", "nobody"))
    await engine.gone(SECRETS, "ns", "token")


async def test_service_account_deletion_removes_its_secret_and_invalidates_token(engine: Engine) -> None:
    await account(engine)
    await account(engine, "other")
    await engine.create(SECRETS, "ns", token_secret("token", "robot"))
    await engine.create(SECRETS, "ns", token_secret("kept", "other"))
    token = (await filled(engine))["token"]
    await filled(engine, "kept")
    await engine.delete(ACCOUNTS, "ns", "robot")
    await engine.gone(SECRETS, "ns", "token")
    assert user_of(engine, token) == ""
    await engine.settled()
    assert engine.find(SECRETS, "ns", "kept")


async def test_token_secret_of_recreated_service_account_is_deleted(engine: Engine) -> None:
    old = await account(engine)
    await engine.delete(ACCOUNTS, "ns", "robot")
    await account(engine)
    await engine.create(SECRETS, "ns", token_secret("old", "robot", **{UID: old["metadata"]["uid"]}))
    await engine.create(SECRETS, "ns", token_secret("new", "robot"))
    await engine.gone(SECRETS, "ns", "old")
    assert user_of(engine, (await filled(engine, "new"))["token"]) == "system:serviceaccount:ns:robot"


async def test_startup_populates_and_removes_token_secrets(idle_engine: Engine) -> None:
    engine = idle_engine
    await account(engine)
    await engine.create(SECRETS, "ns", token_secret("token", "robot"))
    await engine.create(SECRETS, "ns", token_secret("stray", "nobody"))
    await engine.restart()
    await filled(engine)
    await engine.gone(SECRETS, "ns", "stray")


async def test_populated_token_secrets_are_not_rewritten_at_restart(engine: Engine) -> None:
    await account(engine)
    await engine.create(SECRETS, "ns", token_secret("token", "robot"))
    await filled(engine)
    await engine.settled()
    before = engine.store.revision
    await engine.restart()
    await engine.settled()
    assert engine.store.revision == before
