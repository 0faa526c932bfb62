"""A server whose database has a damaged object starts, says which, answers 500 for it, and does nothing on a guess."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner

from remuda.apiserver.auth.user import User
from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.cli.main import main
from remuda.kube import kubeconfig
from remuda.kube.client import Target
from remuda.kube.http import HttpClient
from tests.unit.apiserver.engine import CONFIGMAPS, CRDS, NAMESPACES, Engine, definition, owned, refusal

_ENOUGH = 0.3  # seconds in which upkeep would have done what it must not do

WIDGETS = Target("test.io/v1", "widgets")


def damage(home: Path, table: str, name: str) -> None:
    connection = apsw.Connection(str(home / "state.db"))
    connection.execute("UPDATE objects SET value = x'7b7d' WHERE resource = ? AND name = ?", (table, name))
    assert connection.changes() == 1
    connection.close()


@asynccontextmanager
async def damaged(home: Path, table: str, name: str) -> AsyncIterator[Engine]:
    """The engine again, with one object damaged while it was off."""
    damage(home, table, name)
    engine = await Engine.open(home)
    try:
        yield engine
    finally:
        await engine.close()


async def prepared(home: Path) -> None:
    engine = await Engine.open(home)
    for namespace in ("one", "two"):
        await engine.namespace(namespace)
        for name in ("a", "b"):
            await engine.create(CONFIGMAPS, namespace, {"metadata": {"name": f"{name}-{namespace}"}})
    await engine.settled()
    await engine.close()


async def test_all_verbs_on_damaged_object_return_500_with_its_name(tmp_path: Path) -> None:
    await prepared(tmp_path)
    async with damaged(tmp_path, "configmaps", "a-one") as engine:
        client = engine.client
        for attempt in (
            client.get(CONFIGMAPS, "one", "a-one"),
            client.list(CONFIGMAPS, "one"),
            client.list(CONFIGMAPS),
            client.list(CONFIGMAPS, label_selector="a=b"),
            client.create(CONFIGMAPS, "one", {"metadata": {"name": "a-one"}}),
            client.patch(CONFIGMAPS, "one", "a-one", {"data": {"x": "y"}}),
            client.delete(CONFIGMAPS, "one", "a-one"),
            client.delete_collection(CONFIGMAPS, "one"),
            anext(client.watch(CONFIGMAPS, "one")),
        ):
            error = await refusal(attempt)
            assert (error.code, error.reason) == (500, "StorageReadError")
            assert "configmaps one/a-one" in str(error)
            assert "remuda fsck" in str(error)
        await client.get(CONFIGMAPS, "one", "b-one")
        await client.list(CONFIGMAPS, "two")
        await client.create(CONFIGMAPS, "one", {"metadata": {"name": "c"}})


async def test_resumed_watch_sends_no_deleted_event_for_damaged_object(tmp_path: Path) -> None:
    await prepared(tmp_path)
    async with damaged(tmp_path, "configmaps", "a-one") as engine:
        watch = engine.client.watch(CONFIGMAPS, "one", resource_version=str(engine.store.revision))
        await engine.create(CONFIGMAPS, "one", {"metadata": {"name": "c"}})
        change = await anext(watch)
        assert (change.type, b'"name":"c"' in change.value) == ("ADDED", True)
        await watch.aclose()


@pytest.mark.parametrize(("broken", "whole"), [("owner", "dependent"), ("dependent", "owner")])
async def test_garbage_collection_skips_owners_and_dependents_of_damaged_objects(
    tmp_path: Path, broken: str, whole: str
) -> None:
    engine = await Engine.open(tmp_path)
    await engine.namespace("one")
    owner = await engine.create(CONFIGMAPS, "one", {"metadata": {"name": "owner"}})
    await engine.create(CONFIGMAPS, "one", owned("dependent", owner, blockOwnerDeletion=True))
    await engine.settled()
    await engine.close()
    async with damaged(tmp_path, "configmaps", broken) as engine:
        if whole == "owner":  # which waits for its dependents, and the one there is cannot be read
            await engine.delete(CONFIGMAPS, "one", "owner", "Foreground")
        await asyncio.sleep(_ENOUGH)
        assert engine.find(CONFIGMAPS, "one", whole) is not None


async def test_namespace_with_a_damaged_object_is_not_deleted(tmp_path: Path) -> None:
    await prepared(tmp_path)
    async with damaged(tmp_path, "configmaps", "a-one") as engine:
        await engine.delete(NAMESPACES, "", "one")
        await engine.delete(NAMESPACES, "", "two")
        await engine.gone(NAMESPACES, "", "two")
        assert engine.find(NAMESPACES, "", "one") is not None
        assert engine.store.intact("configmaps", "one")


async def test_kind_with_damaged_crd_returns_500_instead_of_404(tmp_path: Path) -> None:
    engine = await Engine.open(tmp_path)
    await engine.define(definition())
    await engine.namespace("one")
    await engine.create(WIDGETS, "one", {"apiVersion": "test.io/v1", "kind": "Widget", "metadata": {"name": "w"}})
    await engine.settled()
    await engine.close()
    async with damaged(tmp_path, "customresourcedefinitions.apiextensions.k8s.io", "widgets.test.io") as engine:
        error = await refusal(engine.client.get(WIDGETS, "one", "w"))
        assert (error.code, error.reason) == (500, "StorageReadError")
        await engine.define(definition("gadgets"))
        await engine.delete(NAMESPACES, "", "one")  # it may hold widgets
        await asyncio.sleep(_ENOUGH)
        assert engine.find(NAMESPACES, "", "one") is not None
        assert engine.store.count("widgets.test.io") == 1
        assert (await refusal(engine.client.list(CRDS))).code == 500


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("clusterroles.rbac.authorization.k8s.io", "view"),
        ("clusterrolebindings.rbac.authorization.k8s.io", "cluster-admin"),
        ("namespaces", "kube-system"),
        ("configmaps", "one"),
    ],
)
async def test_server_starts_and_reports_damaged_objects_in_readyz(
    tmp_path: Path, table: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ServerSettings(data_dir=tmp_path / "data", port=0)
    server = await ApiServer.start(settings)
    await server.client().create(CONFIGMAPS, "default", {"metadata": {"name": "one"}})
    await server.stop()
    damage(tmp_path / "data", table, name)
    caplog.clear()
    server = await ApiServer.start(settings)
    try:
        named = f"{table} default/{name}" if table == "configmaps" else f"{table} {name}"
        assert [one.message for one in caplog.records if named in one.message and one.levelname == "ERROR"]
        client = HttpClient(kubeconfig.load(server.kubeconfig))
        try:
            error = await refusal(client.raw_get("/readyz?verbose"))
            assert error.code == 500
            assert f"[-]objects failed: damaged on disk: {named}" in str(error)
            assert named in str(await refusal(client.raw_get("/readyz/objects")))
            assert await client.raw_get("/livez") == b"ok"
            assert await client.raw_get("/healthz") == b"ok"
        finally:
            await client.close()
        told = await refusal(server.client(User("stranger")).raw_get("/readyz?verbose"))
        assert told.code in (403, 500)
        assert name not in str(told)
        code, body = server.front.read_path(User("jane", groups=("system:authenticated",)), "/readyz?verbose")
        if table == "configmaps":  # rights are whole
            assert (code, b"reason withheld" in body, named.encode() in body) == (500, True, False)
    finally:
        await server.stop()


async def test_why_command_reports_damaged_objects(tmp_path: Path) -> None:
    settings = ServerSettings(data_dir=tmp_path / "data", port=0)
    server = await ApiServer.start(settings)
    await server.client().create(CONFIGMAPS, "default", {"metadata": {"name": "one"}})
    await server.stop()
    damage(tmp_path / "data", "configmaps", "one")
    server = await ApiServer.start(settings)
    try:
        command = ["why", "prairie", "--kubeconfig", str(server.kubeconfig)]
        result = await asyncio.to_thread(CliRunner().invoke, main, command)
        assert "configmaps default/one" in " ".join(result.output.split())
        assert result.exit_code == 1
    finally:
        await server.stop()


async def test_fsck_command_finds_and_repairs(tmp_path: Path) -> None:
    server = await ApiServer.start(ServerSettings(data_dir=tmp_path / "data", port=0))
    await server.client().create(CONFIGMAPS, "default", {"metadata": {"name": "one"}, "data": {"a": "b"}})
    fsck = ["fsck", "--data-dir", str(tmp_path / "data")]
    run = CliRunner().invoke
    busy = run(main, fsck)
    assert (busy.exit_code, "in use by process" in busy.output) == (2, True)
    await server.stop()
    assert run(main, ["backup", str(tmp_path / "data"), str(tmp_path / "saved")]).exit_code == 0
    clean = run(main, fsck)
    assert (clean.exit_code, "damaged" in clean.output) == (0, False)
    damage(tmp_path / "data", "configmaps", "one")
    connection = apsw.Connection(str(tmp_path / "data" / "state.db"))
    connection.execute("DELETE FROM events WHERE name = 'one' AND revision < (SELECT max(revision) FROM events)")
    connection.close()
    saved = run(main, ["backup", str(tmp_path / "data"), str(tmp_path / "second")])
    assert "damaged object in the backup: configmaps default/one" in saved.output
    found = run(main, fsck)
    assert (found.exit_code, "damaged: configmaps default/one" in found.output) == (1, True)
    assert run(main, [*fsck, "--from", str(tmp_path / "saved")]).exit_code == 2
    without = run(main, [*fsck, "--repair"])
    assert (without.exit_code, "no intact copy" in without.output) == (1, True)
    repaired = run(main, [*fsck, "--repair", "--from", str(tmp_path / "saved")])
    assert (repaired.exit_code, "repaired: configmaps default/one, from the backup" in repaired.output) == (0, True)
    server = await ApiServer.start(ServerSettings(data_dir=tmp_path / "data", port=0))
    assert b'"data":{"a":"b"}' in await server.client().get(CONFIGMAPS, "default", "one")
    assert await server.client().raw_get("/readyz") == b"ok"
    await server.stop()


async def test_fsck_command_forgets_only_named_objects_without_copy(tmp_path: Path) -> None:
    server = await ApiServer.start(ServerSettings(data_dir=tmp_path / "data", port=0))
    for name in ("one", "two"):
        await server.client().create(CONFIGMAPS, "default", {"metadata": {"name": name}})
    await server.stop()
    for name in ("one", "two"):
        damage(tmp_path / "data", "configmaps", name)
    connection = apsw.Connection(str(tmp_path / "data" / "state.db"))
    connection.execute("DELETE FROM events WHERE name IN ('one', 'two')")
    connection.close()
    fsck = ["fsck", "--data-dir", str(tmp_path / "data")]
    run = CliRunner().invoke
    assert run(main, [*fsck, "--forget", "configmaps default/one"]).exit_code == 2
    forgotten = run(main, [*fsck, "--repair", "--forget", "configmaps default/one"])
    assert "deleted: configmaps default/one" in forgotten.output
    assert "damaged: configmaps default/two: no intact copy was found" in forgotten.output
    assert forgotten.exit_code == 1
    assert run(main, [*fsck, "--repair", "--forget", "configmaps default/two"]).exit_code == 0
    server = await ApiServer.start(ServerSettings(data_dir=tmp_path / "data", port=0))
    for name in ("one", "two"):
        assert (await refusal(server.client().get(CONFIGMAPS, "default", name))).code == 404
    await server.stop()
