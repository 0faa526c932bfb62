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

from remuda.kube import kubeconfig
from remuda.kube.errors import StatusError
from remuda.kube.http import HttpClient
from tests.e2e.program import Ended, run
from tests.lab.clusters import CONTROL_PLANES, FLEET_SECRETS, VERSION, Declared, Fleet, pool
from tests.lab.up import eventually

MAPS = "/api/v1/namespaces/default/configmaps"
MANAGEMENT = "/apis/management.cattle.io/v3/clusters"


class Answer(NamedTuple):
    code: int
    text: str


class Range(NamedTuple):
    fleet: Fleet
    cluster: Declared
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


def until(path: Path, what: str, code: int, seconds: float = 60) -> Answer:
    answers: list[Answer] = []

    def holds() -> bool:
        answers.append(ask(path, what))
        return answers[-1].code == code

    eventually(holds, lambda: f"{what} answers {answers[-1]}, and not {code}", seconds)
    return answers[-1]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Range]:
    fleet = Fleet()
    try:
        fleet.add_nano(tmp_path_factory.mktemp("bundles"), VERSION)
        cluster = Declared(fleet, "open", [pool("server", 1, "ecw")])
        cluster.apply()
        cluster.has_nodes(1)
        id = fleet.http("GET", f"{CONTROL_PLANES}/open").body["spec"]["managementClusterName"]
        yield Range(fleet, cluster, id, tmp_path_factory.mktemp("kubeconfigs"))
    finally:
        fleet.stop()


def test_the_clusters_own_kubeconfig_leads_through_the_proxy(plain: Range) -> None:
    secret = plain.fleet.http("GET", f"{FLEET_SECRETS}/open-kubeconfig").body
    path = plain.folder / "own.kubeconfig"
    path.write_bytes(base64.b64decode(secret["data"]["value"]))
    assert kubeconfig.load(path).server.endswith(f"/k8s/clusters/{plain.id}")
    nodes = json.loads(until(path, "/api/v1/nodes", 200).text)["items"]
    assert len(nodes) == 1
    assert ask(path, "/apis/management.cattle.io/v3/users").code == 404  # it is that cluster's API, not ours


def test_a_user_does_what_it_was_granted_until_that_is_taken_back(plain: Range) -> None:
    plain.user("annie")
    path = plain.kubeconfig("annie", "--user", "annie", "--embed-token", "--ttl", "1h")
    assert path.read_text().count("token:") == 1
    assert ask(path, MAPS).code == 403  # not let in
    granted = plain.remuda("grant", "annie", "open", "cluster-viewer")
    assert granted.code == 0, granted
    assert "annie is cluster-viewer in fleet-default/open" in granted.out
    until(path, MAPS, 200)
    refused = ask(path, "/api/v1/namespaces/default/secrets")
    assert refused.code == 403
    assert 'User "annie"' in refused.text  # the cluster's own words
    taken = plain.remuda("grant", "annie", "open", "--revoke")
    assert taken.code == 0, taken
    assert "may not reach this cluster" in until(path, MAPS, 403).text
    again = plain.remuda("grant", "annie", "open", "--revoke")
    assert again.code == 1
    assert "was not granted anything" in again.err


def test_kubectl_gets_a_token_for_a_while_by_the_callers_own_kubeconfig(
    plain: Range, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plain.user("buck")
    plain.remuda("grant", "buck", plain.id, "cluster-owner")
    got = plain.remuda("get", "kubeconfig", plain.id, kubeconfig=plain.management("buck"))
    assert got.code == 0, got
    assert "token:" not in got.out
    path = plain.folder / "buck.kubeconfig"
    path.write_text(got.out)
    until(path, "/api/v1/nodes", 200)
    (kept,) = (tmp_path / "remuda" / "credentials").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    tokens = [line for line in plain.remuda("token", "list", "--user", "buck").out.splitlines() if plain.id in line]
    assert len(tokens) == 1  # asked several times, made once
    itself = run("token", "credential", "--cluster", plain.id, "--kubeconfig", path)
    assert itself.code == 1
    assert "leads to itself" in itself.err


def test_a_revoked_token_and_a_disabled_user_are_kept_out(plain: Range) -> None:
    plain.user("cole")
    plain.remuda("grant", "cole", "open", "cluster-viewer")
    path = plain.kubeconfig("cole", "--user", "cole", "--embed-token")
    until(path, MAPS, 200)
    plain.remuda("user", "disable", "cole")
    until(path, MAPS, 401)
    plain.remuda("user", "enable", "cole")
    until(path, MAPS, 200)
    (name,) = [
        line.split()[0] for line in plain.remuda("token", "list").out.splitlines() if line.split()[1:2] == ["cole"]
    ]
    revoked = plain.remuda("token", "revoke", name)
    assert revoked.code == 0, revoked
    until(path, MAPS, 401)
    deleted = plain.remuda("user", "delete", "cole")
    assert deleted.code == 0, deleted
    assert "cole" not in plain.remuda("user", "list").out


def test_a_token_for_clusters_opens_no_other_door(plain: Range) -> None:
    plain.user("dale")
    plain.remuda("grant", "dale", "open", "cluster-owner")
    path = plain.kubeconfig("dale", "--user", "dale", "--embed-token")
    until(path, MAPS, 200)
    here = kubeconfig.load(path)
    assert isinstance(here.ca, bytes)
    server = here.server.removesuffix(f"/k8s/clusters/{plain.id}")
    for elsewhere, code in ((server, 401), (f"{server}/k8s/clusters/c-m-elsewhere", 403)):
        other = plain.folder / "elsewhere.kubeconfig"
        kubeconfig.write(other, kubeconfig.build(elsewhere, ca_pem=here.ca, token=here.token))
        assert ask(other, "/version").code == code


def test_a_user_does_not_see_the_clusters_of_others(plain: Range) -> None:
    plain.user("earl")
    plain.user("faye")
    plain.remuda("grant", "faye", "open", "cluster-owner")
    earl, faye = plain.management("earl"), plain.management("faye")
    until(faye, f"{MANAGEMENT}/{plain.id}", 200)
    assert ask(earl, f"{MANAGEMENT}/{plain.id}").code == 403
    for path in (earl, faye):
        assert ask(path, MANAGEMENT).code == 403
        assert ask(path, "/apis/provisioning.cattle.io/v1/clusters").code == 403
        assert ask(path, f"{FLEET_SECRETS}/open-kubeconfig").code == 403
        assert ask(path, "/apis/management.cattle.io/v3/tokens").code == 403
    looked = plain.remuda("get", "kubeconfig", "open", kubeconfig=earl)
    assert looked.code == 1
    assert "ask for the id" in looked.err
    others = plain.remuda("token", "create", "--user", "faye", kubeconfig=earl)
    assert others.code == 1
    assert "makes tokens for itself alone" in others.err


def test_service_accounts_of_the_management_plane_reach_no_cluster(plain: Range) -> None:
    """A node's, or a Job's."""
    place = "/api/v1/namespaces/fleet-default/serviceaccounts"
    account: dict[str, Any] = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "drifter"}}
    assert plain.fleet.http("POST", place, json.dumps(account)).code == 201
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "drifter"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "drifter", "namespace": "fleet-default"}],
    }
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    assert plain.fleet.http("POST", bindings, json.dumps(role)).code == 201
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = plain.fleet.http("POST", f"{place}/drifter/token", json.dumps(request)).body["status"]["token"]
    admin = kubeconfig.load(plain.fleet.kubeconfig)
    assert isinstance(admin.ca, bytes)
    for server, code in ((admin.server, 200), (f"{admin.server}/k8s/clusters/{plain.id}", 403)):
        path = plain.folder / "drifter.kubeconfig"
        kubeconfig.write(path, kubeconfig.build(server, ca_pem=admin.ca, token=token))
        answer = ask(path, "/api/v1/nodes")
        assert answer.code == code, answer
    assert "not reached by service accounts" in answer.text


def test_an_administrator_is_told_how_to_get_in(plain: Range) -> None:
    told = plain.remuda("get", "kubeconfig", "open")
    assert told.code == 1
    assert "remuda user create NAME" in told.err
    absent = plain.remuda("get", "kubeconfig", "shut", "--user", "anybody")
    assert absent.code == 1
    assert f"there are: fleet-default/open ({plain.id})" in absent.err


def test_a_cluster_that_goes_takes_its_grants_and_its_own_user_along(plain: Range) -> None:
    before = plain.fleet.everything()
    plain.user("gail")
    plain.remuda("grant", "gail", "open", "cluster-owner")
    plain.cluster.delete()
    eventually(
        lambda: not any(plain.id in one for one in plain.fleet.everything()),
        lambda: f"left: {sorted(one for one in plain.fleet.everything() if plain.id in one)}",
        60,
    )
    left = {one for one in plain.fleet.everything() if one.startswith(("users", "tokens", "clusterroletemplate"))}
    assert not [one for one in left - before if "gail" not in one]
    assert not [one for one in left if one.startswith(("clusterroletemplate", "users /u-"))]
