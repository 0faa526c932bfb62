"""The right to read one object is no right to watch the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda.apiserver.auth.user import User
from remuda.kube.client import Target
from remuda.kube.errors import StatusError
from tests.unit.apiserver.engine import SECRETS, Engine

ROLES = Target("rbac.authorization.k8s.io/v1", "roles")
ROLE_BINDINGS = Target("rbac.authorization.k8s.io/v1", "rolebindings")
ANN = User("ann", groups=("system:authenticated",))


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    engine = await Engine.open(tmp_path / "data", upkeep=False)
    await engine.namespace("ns")
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"], "verbs": ["get", "list", "watch"]}
    await engine.create(ROLES, "ns", {"metadata": {"name": "one"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "one"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}],
    }
    await engine.create(ROLE_BINDINGS, "ns", binding)
    for name in ("mine", "other"):
        await engine.create(SECRETS, "ns", {"metadata": {"name": name}})
    yield engine
    await engine.close()


@pytest.mark.parametrize(
    ("namespace", "selector"), [("ns", ""), ("", ""), ("ns", "metadata.name=other"), ("ns", "metadata.name!=mine")]
)
async def test_permission_by_resource_name_does_not_permit_watching_others(
    engine: Engine, namespace: str, selector: str
) -> None:
    client = engine.client_of(ANN)
    with pytest.raises(StatusError) as caught:
        async for _ in client.watch(SECRETS, namespace, resource_version="1", field_selector=selector):
            pass
    assert caught.value.code == 403
    assert (await client.get(SECRETS, "ns", "mine")) is not None
