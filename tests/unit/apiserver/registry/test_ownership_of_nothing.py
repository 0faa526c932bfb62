"""An empty list that the kind keeps as null still belongs to whoever gave it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.apiserver.engine import CLUSTER_ROLES, Engine


@pytest.mark.parametrize(("given", "owned"), [({"rules": []}, [{"f:rules": {}}]), ({"rules": None}, []), ({}, [])])
async def test_empty_list_stored_as_null_is_owned_by_its_manager(
    tmp_path: Path, given: dict[str, Any], owned: list[Any]
) -> None:
    engine = await Engine.open(tmp_path / "data", upkeep=False)
    made = await engine.create(CLUSTER_ROLES, "", {"metadata": {"name": "r"}, **given})
    await engine.close()
    assert made["rules"] is None
    assert [entry["fieldsV1"] for entry in made["metadata"].get("managedFields", ())] == owned
