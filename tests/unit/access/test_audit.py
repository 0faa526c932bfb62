"""Audit lines of refusals at the management API: they name who sent the request."""

from __future__ import annotations

import ssl
from pathlib import Path

import aiohttp
import pytest

from remuda.access.audit import Audit
from remuda.app.access import audit_denied_requests
from remuda.kube.client import Target
from tests.lab.proxied import AuditLines, ProxiedCluster

PODS = "/api/v1/namespaces/default/pods"
ROLES = Target("rbac.authorization.k8s.io/v1", "clusterroles")
BINDINGS = Target("rbac.authorization.k8s.io/v1", "clusterrolebindings")


async def ask(
    proxied_cluster: ProxiedCluster,
    folder: Path,
    user: str,
    path: str = PODS,
    body: bytes | None = None,
    **headers: str,
) -> int:
    """A GET, or a POST of a body, with a client certificate of this user; returns the code of the answer."""
    pair = proxied_cluster.engine.pki.issue_client_certificate(user)
    file = folder / f"{user}.pem"
    file.write_bytes(pair.certificate_pem + pair.key_pem)
    context = ssl.create_default_context(cadata=proxied_cluster.engine.pki.ca_certificate_pem.decode())
    context.load_cert_chain(file)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    method, url = "GET" if body is None else "POST", proxied_cluster.engine.url + path
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, data=body, headers=named, ssl=context) as answer,
    ):
        return answer.status


async def test_audit_line_of_denied_impersonation_names_the_sender(
    proxied_cluster: ProxiedCluster, audit: AuditLines, tmp_path: Path
) -> None:
    audit_denied_requests(proxied_cluster.engine, Audit())
    masters = "system:masters"
    assert await ask(proxied_cluster, tmp_path, "mallory", Impersonate_User="ann", Impersonate_Group=masters) == 403
    (line,) = audit.lines
    assert (line["user"], line["code"], line["path"]) == ("mallory", 403, PODS)
    assert line["impersonatedUser"] == {"username": "ann", "groups": [masters]}


async def test_audit_line_of_denied_impersonated_request_names_both_users(
    proxied_cluster: ProxiedCluster, audit: AuditLines, tmp_path: Path
) -> None:
    """The impersonation was permitted; what the impersonated user asks for is not."""
    rule = {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}
    await proxied_cluster.client.create(ROLES, "", {"metadata": {"name": "actor"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "actor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "actor"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    }
    await proxied_cluster.client.create(BINDINGS, "", binding)
    audit_denied_requests(proxied_cluster.engine, Audit())
    assert await ask(proxied_cluster, tmp_path, "bob", Impersonate_User="ann") == 403
    (line,) = audit.lines
    assert line["user"] == "bob"
    assert line["impersonatedUser"] == {"username": "ann", "groups": []}
    assert 'User "ann" cannot list' in line["why"]


async def test_audit_line_without_impersonation_omits_impersonated_user(
    proxied_cluster: ProxiedCluster, audit: AuditLines, tmp_path: Path
) -> None:
    audit_denied_requests(proxied_cluster.engine, Audit())
    assert await ask(proxied_cluster, tmp_path, "mallory") == 403
    (line,) = audit.lines
    assert line["user"] == "mallory"
    assert "impersonatedUser" not in line


@pytest.mark.parametrize("length", [257, 4000])
async def test_audit_line_truncates_long_user_names(
    proxied_cluster: ProxiedCluster, audit: AuditLines, tmp_path: Path, length: int
) -> None:
    audit_denied_requests(proxied_cluster.engine, Audit())
    assert await ask(proxied_cluster, tmp_path, "mallory", Impersonate_User="a" * length) == 403
    (line,) = audit.lines
    assert line["impersonatedUser"] == {"username": "a" * 256, "groups": []}


@pytest.mark.parametrize("body", [b'{"spec":{"a":[' + b"{}," * 6000 + b"{}]}}", b" " * (3 * 1024 * 1024 + 1)])
async def test_audit_log_records_too_large_request(
    proxied_cluster: ProxiedCluster, audit: AuditLines, tmp_path: Path, body: bytes
) -> None:
    audit_denied_requests(proxied_cluster.engine, Audit())
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert await ask(proxied_cluster, tmp_path, "mallory", reviews, body, Content_Type="application/json") == 413
    (line,) = audit.lines
    assert (line["user"], line["code"], line["verb"], line["path"]) == ("mallory", 413, "create", reviews)
    assert "Request entity too large" in line["why"]
