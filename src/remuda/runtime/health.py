"""HTTP endpoints for probes and metrics of this process: plain HTTP, no secrets.

`/healthz` reports that the event loop runs; `/readyz` runs the given checks, each of which returns what is wrong or
nothing; `/metrics` is for Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp import web

Check = Callable[[], str]  # what is wrong, or an empty string

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class HealthServer:
    def __init__(self, checks: Mapping[str, Check], metrics: Callable[[], bytes]) -> None:
        self._checks = dict(checks)
        self._metrics = metrics
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Start listening. Raise OSError if that fails."""
        application = web.Application()
        application.router.add_get("/healthz", self._alive)
        application.router.add_get("/readyz", self._ready)
        application.router.add_get("/metrics", self._count)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except BaseException:
            await self.stop()
            raise
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _alive(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _ready(self, request: web.Request) -> web.Response:
        wrong = {name: problem for name, check in self._checks.items() if (problem := check())}
        if not wrong and "verbose" not in request.query:
            return web.Response(text="ok")
        lines = [f"[-]{name}: {wrong[name]}" if name in wrong else f"[+]{name} ok" for name in self._checks]
        return web.Response(text="".join(f"{line}\n" for line in lines), status=503 if wrong else 200)

    async def _count(self, request: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": _METRICS_TYPE})
