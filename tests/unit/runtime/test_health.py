"""What a kubelet and Prometheus ask."""

from __future__ import annotations

import aiohttp
import pytest

from remuda.runtime.health import HealthServer


async def test_health_server_serves_healthz_readyz_and_metrics() -> None:
    problems = {"caches": "", "lease": ""}
    checks = {name: (lambda name=name: problems[name]) for name in problems}
    server = HealthServer(checks, lambda: b"a_total 1\n")
    await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:

            async def ask(path: str) -> tuple[int, str]:
                async with session.get(path) as answer:
                    return answer.status, await answer.text()

            assert await ask("/healthz") == (200, "ok")
            assert await ask("/readyz") == (200, "ok")
            assert await ask("/readyz?verbose") == (200, "[+]caches ok\n[+]lease ok\n")
            problems["caches"] = "machines cannot be listed"
            assert await ask("/readyz") == (503, "[-]caches: machines cannot be listed\n[+]lease ok\n")
            assert await ask("/healthz") == (200, "ok")
            assert await ask("/metrics") == (200, "a_total 1\n")
            async with session.get("/metrics") as answer:
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert (await ask("/else"))[0] == 404
    finally:
        await server.stop()


async def test_health_server_port_in_use_raises_os_error() -> None:
    first, second = HealthServer({}, bytes), HealthServer({}, bytes)
    await first.start("127.0.0.1", 0)
    try:
        with pytest.raises(OSError):
            await second.start("127.0.0.1", first.port)
        await second.stop()
    finally:
        await first.stop()
