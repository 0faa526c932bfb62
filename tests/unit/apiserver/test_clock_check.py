"""A clock that is wrong, or an authority that is not valid, is told at a start, with what to do."""

from __future__ import annotations

import datetime
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from remuda.apiserver.auth import pki
from remuda.apiserver.clock_check import complaints
from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.kube import clock

NOW = datetime.datetime(2026, 6, 1, tzinfo=UTC)
FROM, TO = NOW - timedelta(days=100), NOW + timedelta(days=3550)
CA = Path("/data/pki/ca.crt")
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize("newest", [None, NOW, NOW - 300 * DAY, NOW + HOUR / 2])
def test_correct_clock_produces_no_warning(newest: datetime.datetime | None) -> None:
    assert complaints(NOW, FROM, TO, newest, CA) == []


@pytest.mark.parametrize(
    ("now", "newest", "told"),
    [
        (FROM - HOUR, None, ["/data/pki/ca.crt is not valid before 2026-02-21 00:00 UTC"]),
        (TO, None, ["/data/pki/ca.crt expired on 2036-02-19 00:00 UTC"]),
        (NOW, NOW + 2 * DAY, ["written on 2026-06-03 00:00 UTC, which is in the future"]),
        (NOW, NOW - 400 * DAY, ["400 days ago"]),
        (TO + DAY, NOW, ["expired on", "days ago"]),
        (FROM - DAY, NOW, ["not valid before", "in the future"]),
    ],
)
def test_wrong_clock_warning_states_remedy(
    now: datetime.datetime, newest: datetime.datetime | None, told: list[str]
) -> None:
    found = complaints(now, FROM, TO, newest, CA)
    assert len(found) == len(told)
    for complaint, part in zip(found, told, strict=True):
        assert part in complaint
        assert f"the clock of this machine says {now:%Y-%m-%d %H:%M} UTC: set it if that is wrong" in complaint
        is_of_authority = "valid" in part or "expired" in part
        assert ("remove /data/pki/ca.crt (not its key)" in complaint) == is_of_authority


async def test_server_logs_expired_ca_at_startup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(pki, "_now", lambda: datetime.datetime.now(UTC) - timedelta(days=pki.CA_DAYS + 10))
        pki.prepare(tmp_path)
    server = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0))
    await server.stop()
    (complaint,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert f"{tmp_path}/pki/ca.crt expired on" in complaint
    caplog.clear()
    (tmp_path / "pki" / "ca.crt").unlink()  # as it was told
    server = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0))
    await server.stop()
    assert caplog.messages == []


async def test_server_logs_clock_behind_stored_objects_at_startup(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0))
    await server.stop()
    assert caplog.messages == []
    earlier = clock.time() - 3 * 86400
    clock.use(lambda: earlier)
    try:
        server = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0))
        await server.stop()
    finally:
        clock.use(None)
    told = " ".join(caplog.messages)
    assert "not valid before" in told
    assert "in the future" in told
