"""Commands on a terminal: colours unless they are declined, and a question before machines are upgraded or lost."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import click
import pytest_asyncio

from remuda.provisioning.types import CLUSTER
from tests.controllers.engine import Engine
from tests.controllers.program import remuda
from tests.controllers.provisioning_harness import ProvisioningHarness, pool
from tests.lab.terminal import COLUMNS, Session

CTRL_C = "\x03"
OLD, NEW = "v1.34.1+k3s1", "v1.34.2+k3s1"
UNKNOWN = "--allow-unknown-version"  # no request to the publisher


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> ProvisioningHarness:
    return await ProvisioningHarness.with_one_server(engine)


def command(harness: ProvisioningHarness, *words: str) -> list[str]:
    place = ("-n", harness.namespace, "--kubeconfig", str(harness.engine.kubeconfig))
    return [sys.executable, "-m", "remuda.cli.main", *words, *place]


async def shown(words: list[str], typed: str = "", after: str = "") -> tuple[int, str]:
    def run() -> tuple[int, str]:
        session = Session(words)
        try:
            if after:
                session.until(after)
                session.type(typed)
            while typed == CTRL_C:  # faster than any person, it may come before the question is waited for
                try:
                    return session.end(seconds=3), session.shown
                except AssertionError:
                    session.becomes_idle()  # one that still works may be about to end: a second Ctrl-C would disturb it
                    session.type(typed)
            return session.end(), session.shown
        finally:
            session.close()

    return await asyncio.to_thread(run)


async def test_colours_are_used_only_on_terminals_without_no_color(harness: ProvisioningHarness) -> None:
    words = command(harness, "describe", "cluster", "prairie")
    _, coloured = await shown(words)
    assert "\x1b[" in coloured
    _, plain = await shown(["/usr/bin/env", "NO_COLOR=1", *words])
    assert "Cluster prairie" in plain
    assert "\x1b[" not in plain
    piped = await remuda(harness.engine, *words[3:])
    assert "\x1b[" not in piped.out + piped.err


async def test_output_fits_terminal_width(harness: ProvisioningHarness, tmp_path: Path) -> None:
    for words in (
        ("scale", "prairie", "--servers", "3", "--dry-run"),
        ("upgrade", "prairie", "--kubernetes-version", NEW, UNKNOWN, "--dry-run"),
        ("upgrade", "prairie", "--kubernetes-version", "v1.36.0+k3s1", UNKNOWN),
        ("upgrade", "prairie"),
        ("diagnose", "prairie", "-o", str(tmp_path / "b.tar.gz")),
    ):
        _, text = await shown(command(harness, *words))
        copied = [word for word in (str(tmp_path), str(harness.engine.kubeconfig)) if word in text]
        wide = [line for line in click.unstyle(text).splitlines() if len(line) > COLUMNS]
        assert [line for line in wide if not any(word in line for word in copied)] == []


async def test_upgrade_asks_for_confirmation(harness: ProvisioningHarness) -> None:
    words = command(harness, "upgrade", "prairie", "--kubernetes-version", NEW, UNKNOWN)
    code, text = await shown(words, "n\r", "Upgrade ")
    assert code == 1
    assert "nothing was changed" in text
    assert (await harness.get(CLUSTER))["spec"]["kubernetesVersion"] == OLD
    code, text = await shown(words, CTRL_C, "Upgrade ")
    assert code == 130
    assert (await harness.get(CLUSTER))["spec"]["kubernetesVersion"] == OLD
    code, text = await shown(words, "y\r", "Upgrade ")
    assert code == 0, text
    assert (await harness.get(CLUSTER))["spec"]["kubernetesVersion"] == NEW


async def test_apply_and_scale_ask_before_machines_are_deleted(harness: ProvisioningHarness, tmp_path: Path) -> None:
    await harness.config("workers")
    async with harness.running():
        await harness.edit(pool("servers"), pool("workers", workerRole=True, quantity=2))
        await harness.machines(3)
        await harness.settled()
    spec = (await harness.get(CLUSTER))["spec"]
    spec["rkeConfig"]["machinePools"] = [pool("servers"), pool("workers", workerRole=True, quantity=0)]
    metadata = {"name": "prairie", "namespace": harness.namespace}
    manifest = {"apiVersion": CLUSTER.api_version, "kind": "Cluster", "metadata": metadata, "spec": spec}
    path = tmp_path / "cluster.yaml"
    path.write_text(json.dumps(manifest))
    apply = command(harness, "apply", "-f", str(path), "--force-conflicts")
    scale = command(harness, "scale", "prairie", "--workers", "0")
    for words in (apply, scale):
        code, text = await shown(words, "n\r", "Go on?")
        assert code == 1
        assert "The change deletes 2 machines." in text
        assert "nothing was changed" in text
        assert await quantity_of_workers(harness) == 2
    code, text = await shown(apply, CTRL_C, "Go on?")
    assert code == 130
    assert await quantity_of_workers(harness) == 2
    code, text = await shown(apply, "y\r", "Go on?")
    assert code == 0, text
    assert await quantity_of_workers(harness) == 0


async def quantity_of_workers(harness: ProvisioningHarness) -> int:
    return int((await harness.get(CLUSTER))["spec"]["rkeConfig"]["machinePools"][1]["quantity"])
