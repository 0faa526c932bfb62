"""Users of a cluster that `remuda up` has made: let in, kept out, and what they see, with the commands as people run
them. Hosts are processes, the distribution is nano.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from remuda.app.controllers import EVERY
from remuda.app.log_setup import AUDIT_FILE
from remuda.cli import exit_codes
from remuda.jobs.runner import CONTROLLER as JOB_RUNNER
from remuda.kube import kubeconfig
from remuda.kube.errors import StatusError
from remuda.kube.http import HttpClient
from tests.e2e.program import Ended, run
from tests.lab.clusters import CONTROL_PLANES, FLEET_SECRETS, NAMESPACE, VERSION, DeclaredCluster, Fleet, pool
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.up import eventually

MAPS = "/api/v1/namespaces/default/configmaps"
MANAGEMENT = "/apis/management.cattle.io/v3/clusters"


class Answer(NamedTuple):
    code: int
    text: str


def audit_lines(fleet: Fleet) -> list[dict[str, Any]]:
    """Audit lines so far, from the file where they are by default."""
    path = fleet.data / AUDIT_FILE
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""  # the last line may be incomplete
    return [json.loads(line) for line in whole.splitlines()]


def logged(fleet: Fleet) -> str:
    """Everything the program has logged: stderr and the audit log."""
    return fleet.log.read_text() + (fleet.data / AUDIT_FILE).read_text()


def audited(fleet: Fleet, why: str, *, after: int = 0, **said: object) -> dict[str, Any]:
    """The last line that says this, and tells why in these words; waits for it. `after`: lines that do not count. A
    line can come after the answer that it is about."""
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        lines = audit_lines(fleet)[after:]
        found[:] = [line for line in lines if why in line.get("why", "") and said.items() <= line.items()]
        return bool(found)

    eventually(is_there, lambda: f"no line says {said} because {why!r}: {audit_lines(fleet)[-20:]}")
    assert found[-1]["time"]
    return found[-1]


class ClusterAccess(NamedTuple):
    fleet: Fleet
    cluster: DeclaredCluster
    id: str
    folder: Path

    def remuda(self, *words: str, kubeconfig: Path | None = None) -> Ended:
        return run(*words, "--kubeconfig", kubeconfig or self.fleet.kubeconfig)

    def user(self, name: str) -> str:
        made = self.remuda("user", "create", name)
        assert made.code == 0, made
        return name

    def kubeconfig(self, name: str, *words: str) -> Path:
        got = self.remuda("get", "kubeconfig", "open", *words)
        assert got.code == 0, got
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(got.out)
        return path

    def management(self, user: str) -> Path:
        """Of a user, at the management plane itself."""
        made = self.remuda("token", "create", "--user", user)
        assert made.code == 0, made
        admin = kubeconfig.load(self.fleet.kubeconfig)
        assert isinstance(admin.ca, bytes)
        path = self.folder / f"{user}-management.kubeconfig"
        kubeconfig.write(path, kubeconfig.build(admin.server, ca_pem=admin.ca, token=made.out.strip()))
        return path


def ask(path: Path, what: str) -> Answer:
    """One GET, as that kubeconfig says."""

    async def get() -> Answer:
        client = HttpClient(kubeconfig.load(path))
        try:
            return Answer(200, (await client.raw_get(what)).decode())
        except StatusError as error:
            return Answer(error.code, str(error))
        finally:
            await client.close()

    return asyncio.run(get())


def tokens(path: Path, cluster: str = "") -> list[str]:
    """Those that whoever has this kubeconfig is shown; that are for a cluster, if one is named."""
    shown = run("token", "list", "--kubeconfig", path)
    assert shown.code == 0, shown
    return [line.split()[0] for line in shown.out.splitlines()[1:] if cluster in line]


def until(path: Path, what: str, code: int, seconds: float = LIMIT_SECONDS) -> Answer:
    answers: list[Answer] = []

    def holds() -> bool:
        answers.append(ask(path, what))
        return answers[-1].code == code

    eventually(holds, lambda: f"{what} answers {answers[-1]}, and not {code}", seconds)
    return answers[-1]


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterAccess]:
    fleet = Fleet()
    try:
        fleet.add_nano(tmp_path_factory.mktemp("bundles"), VERSION)
        cluster = DeclaredCluster(fleet, "open", [pool("server", 1, "ecw")])
        cluster.apply()
        cluster.has_nodes(1)
        id = fleet.http("GET", f"{CONTROL_PLANES}/open").body["spec"]["managementClusterName"]
        yield ClusterAccess(fleet, cluster, id, tmp_path_factory.mktemp("kubeconfigs"))
    finally:
        fleet.stop()


def test_cluster_kubeconfig_secret_points_to_proxy(access: ClusterAccess) -> None:
    secret = access.fleet.http("GET", f"{FLEET_SECRETS}/open-kubeconfig").body
    path = access.folder / "own.kubeconfig"
    path.write_bytes(base64.b64decode(secret["data"]["value"]))
    assert kubeconfig.load(path).server.endswith(f"/k8s/clusters/{access.id}")
    nodes = json.loads(until(path, "/api/v1/nodes", 200).text)["items"]
    assert len(nodes) == 1
    assert ask(path, "/apis/management.cattle.io/v3/users").code == 404  # it is that cluster's API, not ours


def test_user_access_follows_grant_until_revocation(access: ClusterAccess) -> None:
    access.user("annie")
    path = access.kubeconfig("annie", "--user", "annie", "--embed-token", "--ttl", "1h")
    assert path.read_text().count("token:") == 1
    assert ask(path, MAPS).code == 403  # not let in
    granted = access.remuda("grant", "annie", "open", "cluster-viewer")
    assert granted.code == 0, granted
    assert "annie is cluster-viewer in fleet-default/open" in granted.out
    until(path, MAPS, 200)
    refused = ask(path, "/api/v1/namespaces/default/secrets")
    assert refused.code == 403
    assert 'User "annie"' in refused.text  # the cluster's own words
    taken = access.remuda("grant", "annie", "open", "--revoke")
    assert taken.code == 0, taken
    assert "may not reach this cluster" in until(path, MAPS, 403).text
    line = audited(access.fleet, "annie may not get clusters.management.cattle.io", user="annie", code=403)
    assert (line["cluster"], line["path"], line["verb"]) == (access.id, MAPS, "list")
    assert line["from"].startswith("127.0.0.1:")
    again = access.remuda("grant", "annie", "open", "--revoke")
    assert again.code == 1
    assert "has no grant of any role" in again.err


def test_kubectl_credential_plugin_requests_short_lived_token_with_user_kubeconfig(
    access: ClusterAccess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    access.user("buck")
    access.remuda("grant", "buck", access.id, "cluster-owner")
    own = access.management("buck")
    until(own, f"{MANAGEMENT}/{access.id}", 200)
    got = access.remuda("get", "kubeconfig", "open", kubeconfig=own)
    assert got.code == 0, got
    assert "token:" not in got.out
    path = access.folder / "buck.kubeconfig"
    path.write_text(got.out)
    until(path, "/api/v1/nodes", 200)
    (kept,) = (tmp_path / "remuda" / "credentials").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    (token,) = tokens(own, access.id)  # asked several times, made once
    revoked = access.remuda("token", "revoke", token, kubeconfig=own)
    assert revoked.code == 0, revoked
    until(path, "/api/v1/nodes", 200)  # with another
    assert tokens(own, access.id) not in ([], [token])
    itself = run("token", "credential", "--cluster", access.id, "--kubeconfig", path)
    assert itself.code == exit_codes.UNREACHABLE
    assert "refers to itself" in itself.err


def test_revoked_token_and_a_disabled_user_are_denied(access: ClusterAccess) -> None:
    access.user("cole")
    access.remuda("grant", "cole", "open", "cluster-viewer")
    path = access.kubeconfig("cole", "--user", "cole", "--embed-token")
    until(path, MAPS, 200)
    access.remuda("user", "disable", "cole")
    until(path, MAPS, 401)
    audited(access.fleet, "its user cole is disabled", code=401, cluster="", user="")
    access.remuda("user", "enable", "cole")
    until(path, MAPS, 200)
    (name,) = [
        line.split()[0] for line in access.remuda("token", "list").out.splitlines() if line.split()[1:2] == ["cole"]
    ]
    revoked = access.remuda("token", "revoke", name)
    assert revoked.code == 0, revoked
    until(path, MAPS, 401)
    audited(access.fleet, f"token {name}: no token has this name", code=401)
    token = kubeconfig.load(path).token
    assert token.partition(":")[2] not in logged(access.fleet)
    deleted = access.remuda("user", "delete", "cole")
    assert deleted.code == 0, deleted
    assert "cole" not in access.remuda("user", "list").out


def test_expired_forged_and_foreign_tokens_return_401_at_api_and_proxy(access: ClusterAccess) -> None:
    access.user("gus")
    access.remuda("grant", "gus", "open", "cluster-owner")
    made = access.remuda("token", "create", "--user", "gus", "--ttl", "15s")  # a busy machine needs some of them
    assert made.code == 0, made
    good = kubeconfig.load(access.kubeconfig("gus", "--user", "gus", "--embed-token"))
    brief, (name, _, secret) = made.out.strip(), good.token.partition(":")
    kept = access.fleet.http("GET", f"/apis/management.cattle.io/v3/tokens/{name}").body["hash"]
    assert isinstance(good.ca, bytes)
    for door in (good.server, good.server.removesuffix(f"/k8s/clusters/{access.id}")):
        for token, why in (
            (brief, f"token {brief.partition(':')[0]}: it expired at "),
            (f"{name}:{brief.partition(':')[2]}", f"token {name}: wrong secret"),
            (f"token-guessed:{secret}", "token token-guessed: no token has this name"),
            (f"{name}:{kept.removeprefix('sha256:')}", "invalid bearer token"),
            ("eyJhbGciOiJub25lIn0.e30.", "invalid bearer token"),
        ):
            path = access.folder / "forged.kubeconfig"
            kubeconfig.write(path, kubeconfig.build(door, ca_pem=good.ca, token=token))
            before = len(audit_lines(access.fleet))
            until(path, "/api/v1/namespaces", 401)
            audited(access.fleet, why, after=before, code=401, user="")
    assert not [one for one in (secret, brief.partition(":")[2], kept) if one in logged(access.fleet)]


def test_cluster_scoped_token_is_denied_at_management_api_and_other_clusters(access: ClusterAccess) -> None:
    access.user("dale")
    access.remuda("grant", "dale", "open", "cluster-owner")
    path = access.kubeconfig("dale", "--user", "dale", "--embed-token")
    until(path, MAPS, 200)
    here = kubeconfig.load(path)
    assert isinstance(here.ca, bytes)
    server = here.server.removesuffix(f"/k8s/clusters/{access.id}")
    for elsewhere, code in ((server, 401), (f"{server}/k8s/clusters/c-m-elsewhere", 403)):
        other = access.folder / "elsewhere.kubeconfig"
        kubeconfig.write(other, kubeconfig.build(elsewhere, ca_pem=here.ca, token=here.token))
        assert ask(other, "/version").code == code
    name = here.token.partition(":")[0]
    audited(access.fleet, f"token {name} is limited to clusters", code=401, path="/version", verb="get")
    audited(access.fleet, "is not for this cluster", code=403, user="dale", cluster="c-m-elsewhere", token=name)


def test_user_cannot_see_clusters_or_create_tokens_of_other_users(access: ClusterAccess) -> None:
    access.user("earl")
    access.user("faye")
    access.remuda("grant", "faye", "open", "cluster-owner")
    earl, faye = access.management("earl"), access.management("faye")
    until(faye, f"{MANAGEMENT}/{access.id}", 200)
    assert ask(earl, f"{MANAGEMENT}/{access.id}").code == 403
    (hers,) = tokens(faye)
    assert tokens(earl) != [hers]
    others = access.remuda("token", "revoke", hers, kubeconfig=earl)
    assert others.code == 1
    assert f'"{hers}" not found' in others.err
    audited(access.fleet, "not found", user="earl", code=404, path=f"/k8s/own/tokens/{hers}")
    for path in (earl, faye):
        assert ask(path, MANAGEMENT).code == 403
        assert ask(path, "/apis/provisioning.cattle.io/v1/clusters").code == 403
        assert ask(path, f"{FLEET_SECRETS}/open-kubeconfig").code == 403
        assert ask(path, "/apis/management.cattle.io/v3/tokens").code == 403
        user = path.name.partition("-")[0]
        audited(access.fleet, "", user=user, code=403, verb="list", path=MANAGEMENT)
        audited(access.fleet, "", user=user, code=403, verb="get", path=f"{FLEET_SECRETS}/open-kubeconfig")
    looked = access.remuda("get", "kubeconfig", "open", kubeconfig=earl)
    assert looked.code == 1
    assert "cluster open not found. Existing clusters: none" in looked.err
    others = access.remuda("token", "create", "--user", "faye", kubeconfig=earl)
    assert others.code == 1
    assert "may create tokens only for itself" in others.err
    audited(access.fleet, "user earl may create tokens only for itself", user="earl", code=422, verb="create")


def test_management_service_accounts_are_denied_at_cluster_proxy(access: ClusterAccess) -> None:
    """A node's, or a Job's."""
    place = "/api/v1/namespaces/fleet-default/serviceaccounts"
    account: dict[str, Any] = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "drifter"}}
    assert access.fleet.http("POST", place, json.dumps(account)).code == 201
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "drifter"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "drifter", "namespace": "fleet-default"}],
    }
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    assert access.fleet.http("POST", bindings, json.dumps(role)).code == 201
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = access.fleet.http("POST", f"{place}/drifter/token", json.dumps(request)).body["status"]["token"]
    admin = kubeconfig.load(access.fleet.kubeconfig)
    assert isinstance(admin.ca, bytes)
    for server, code in ((admin.server, 200), (f"{admin.server}/k8s/clusters/{access.id}", 403)):
        path = access.folder / "drifter.kubeconfig"
        kubeconfig.write(path, kubeconfig.build(server, ca_pem=admin.ca, token=token))
        answer = ask(path, "/api/v1/nodes")
        assert answer.code == code, answer
    assert "service accounts cannot reach clusters" in answer.text
    who = "system:serviceaccount:fleet-default:drifter"
    audited(access.fleet, "service accounts cannot reach clusters", user=who, code=403, cluster=access.id)


def test_node_credentials_read_only_their_own_plan(access: ClusterAccess) -> None:
    """Those its agent was given, at the API and at the proxy."""
    secrets = access.fleet.items(FLEET_SECRETS)
    (token,) = [
        base64.b64decode(one["data"]["token"]).decode()
        for one in secrets
        if one["type"] == "kubernetes.io/service-account-token" and one["metadata"]["name"].startswith("open-")
    ]
    (plan,) = [one["metadata"]["name"] for one in secrets if one["type"] == "rke.cattle.io/machine-plan"]
    admin = kubeconfig.load(access.fleet.kubeconfig)
    assert isinstance(admin.ca, bytes)
    here, there = access.folder / "node.kubeconfig", access.folder / "node-proxy.kubeconfig"
    kubeconfig.write(here, kubeconfig.build(admin.server, ca_pem=admin.ca, token=token))
    proxy = f"{admin.server}/k8s/clusters/{access.id}"
    kubeconfig.write(there, kubeconfig.build(proxy, ca_pem=admin.ca, token=token))
    assert ask(here, f"{FLEET_SECRETS}/{plan}").code == 200
    for path, what in ((here, f"{FLEET_SECRETS}/open-rke-state"), (here, FLEET_SECRETS), (there, "/api/v1/nodes")):
        assert ask(path, what).code == 403
        line = audited(access.fleet, "", code=403, path=what)
        assert line["user"].startswith("system:serviceaccount:fleet-default:")
    assert token not in logged(access.fleet)


def test_node_tunnel_token_is_valid_only_for_its_own_cluster(access: ClusterAccess) -> None:
    """The token of its plan, with another cluster's id in it, as a WebSocket of its own."""
    spec = {"clusterName": "other", "managementClusterName": "c-m-other", "kubernetesVersion": VERSION}
    other = {"apiVersion": "rke.cattle.io/v1", "kind": "RKEControlPlane", "metadata": {"name": "other"}, "spec": spec}
    assert access.fleet.http("POST", CONTROL_PLANES, json.dumps(other)).code == 201
    (file,) = access.fleet.hosts.glob("process/*/root/**/tunnel/token")
    mine, machine, mac = file.read_text().strip().split(".")
    assert mine == access.id
    for claimed, node, why in (
        ("c-m-other", machine, "the cluster has no such Machine"),
        ("c-m-nowhere", machine, "no cluster has this id"),
        (access.id, "open-server-elsewhere", "the cluster has no such Machine"),
        (access.id, machine, "the token does not belong to this Machine"),
    ):
        proof = mac if why != "the token does not belong to this Machine" else mac[::-1]
        assert upgrade(access.fleet, f"{claimed}.{node}.{proof}").startswith("HTTP/1.1 401 ")
        line = audited(access.fleet, why, code=401, verb="tunnel", cluster=claimed, path="/v3/connect")
        assert f"claims to be {node} of cluster {claimed}" in line["why"]
    assert mac not in logged(access.fleet)
    strayed = access.fleet.connect(admin=False)
    wrong = {"Authorization": f"Bearer {mac}", "X-Cattle-Id": "stray"}
    strayed.request("GET", "/v3/connect/agent", headers=wrong)
    assert strayed.getresponse().status == 401
    strayed.close()
    audited(access.fleet, "", code=401, path="/v3/connect/agent", user="")
    assert mac not in logged(access.fleet)
    access.fleet.delete(CONTROL_PLANES, "other")


def upgrade(fleet: Fleet, token: str) -> str:
    """What a WebSocket at the endpoint of tunnels is answered."""
    lines = ["GET /v3/connect HTTP/1.1", "Host: manager", f"Authorization: Bearer {token}", "Connection: Upgrade"]
    lines += ["Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", ""]
    connection = fleet.connect(admin=False)
    try:
        connection.sock.sendall("\r\n".join(lines).encode())
        return connection.sock.recv(4096).decode("latin-1").partition("\r\n")[0]
    finally:
        connection.close()


def test_revoking_token_or_grant_ends_open_watches(access: ClusterAccess) -> None:
    access.user("hank")
    access.remuda("grant", "hank", "open", "cluster-viewer")
    own = [access.kubeconfig(f"hank-{number}", "--user", "hank", "--embed-token") for number in range(2)]
    for path in own:
        until(path, MAPS, 200)
    name = kubeconfig.load(own[0]).token.partition(":")[0]
    for path, words, why in (
        (own[0], ("token", "revoke", name), f"token {name}: it was revoked"),
        (own[1], ("grant", "hank", "open", "--revoke"), "hank may not get clusters.management.cattle.io"),
    ):
        here = kubeconfig.load(path)
        watching = access.fleet.connect(admin=False)
        target = f"/k8s/clusters/{access.id}/api/v1/namespaces?watch=1"
        watching.request("GET", target, headers={"Authorization": f"Bearer {here.token}"})
        answer = watching.getresponse()
        assert answer.status == 200
        assert json.loads(answer.readline())["type"] == "ADDED"
        taken = access.remuda(*words)
        assert taken.code == 0, taken
        *_, last = answer.read().splitlines()  # it ends
        event = json.loads(last)
        assert (event["type"], event["object"]["code"]) == ("ERROR", 403)
        assert event["object"]["message"] == f"access to the cluster {access.id} has ended"
        audited(access.fleet, why, user="hank", verb="watch", code=200)
        watching.close()


def test_job_service_account_reads_only_its_own_machine_secret() -> None:
    """A Job that nobody runs: the test does what it could do."""
    every = [name for name in EVERY if name != JOB_RUNNER]
    fleet = Fleet("process", None, "--controllers", ",".join(every))
    try:
        DeclaredCluster(fleet, "held", [pool("server", 1, "ecw")]).apply()
        jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
        eventually(lambda: fleet.items(jobs), lambda: fleet.diagnosis)
        (job,) = fleet.items(jobs)
        account = job["spec"]["template"]["spec"]["serviceAccountName"]
        request = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
        place = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        token = fleet.http("POST", place, request).body["status"]["token"]
        admin = kubeconfig.load(fleet.kubeconfig)
        assert isinstance(admin.ca, bytes)
        path = fleet.folder / "job.kubeconfig"
        kubeconfig.write(path, kubeconfig.build(admin.server, ca_pem=admin.ca, token=token))
        (own,) = [name for name in fleet.names(FLEET_SECRETS) if name.endswith("-machine-state")]
        others = sorted(fleet.names(FLEET_SECRETS) - {own})
        assert others
        assert ask(path, f"{FLEET_SECRETS}/{own}").code == 200
        for what in (*(f"{FLEET_SECRETS}/{name}" for name in others), FLEET_SECRETS, "/api/v1/secrets"):
            assert ask(path, what).code == 403
            who = f"system:serviceaccount:{NAMESPACE}:{account}"
            audited(fleet, "cannot ", user=who, code=403, path=what)
    finally:
        fleet.stop()


def test_administrator_reaches_cluster_with_client_certificate(access: ClusterAccess) -> None:
    got = access.remuda("get", "kubeconfig", "open")
    assert got.code == 0, got
    assert not [word for word in ("token:", "client-key", "client-certificate") if word in got.out]
    path = access.folder / "administrator.kubeconfig"
    path.write_text(got.out)
    until(path, "/api/v1/nodes", 200)
    told = access.remuda("get", "kubeconfig", "open", "--embed-token")
    assert told.code == 1
    assert "remuda user create NAME" in told.err
    absent = access.remuda("get", "kubeconfig", "shut", "--user", "anybody")
    assert absent.code == 1
    assert f"Existing clusters: fleet-default/open ({access.id})" in absent.err


def test_cluster_deletion_removes_its_grants_and_its_user(access: ClusterAccess) -> None:
    before = access.fleet.everything()
    access.user("gail")
    access.remuda("grant", "gail", "open", "cluster-owner")
    access.cluster.delete()
    eventually(
        lambda: not any(access.id in one for one in access.fleet.everything()),
        lambda: f"left: {sorted(one for one in access.fleet.everything() if access.id in one)}",
    )
    left = {one for one in access.fleet.everything() if one.startswith(("users", "tokens", "clusterroletemplate"))}
    assert not [one for one in left - before if "gail" not in one]
    assert not [one for one in left if one.startswith(("clusterroletemplate", "users /u-"))]
