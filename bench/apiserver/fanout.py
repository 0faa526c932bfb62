"""Watch fan-out: 100 watchers, 100 writes a second, and how long after it was sent a write is seen by a watcher."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time

from bench.apiserver import objects
from bench.apiserver.subject import TOKEN, Subject
from bench.report import Broken, Sample

WATCHERS = 100
_WRITES_PER_SECOND = 100
_WRITERS = 4  # a single one would be too slow where a write takes 10 ms
_NAMESPACE = "default"
_OBJECTS = 40
_PATCH = {"Content-Type": "application/merge-patch+json", "Authorization": f"Bearer {TOKEN}"}


def prepare(subject: Subject) -> None:
    path = objects.collection(_NAMESPACE)
    for number in range(_OBJECTS):
        subject.ask("POST", path, objects.wagon(f"watched-{number}"))


def p99_milliseconds(subject: Subject, seconds: int) -> Sample:
    revision = subject.ask("GET", f"{objects.collection(_NAMESPACE)}?limit=1").body["metadata"]["resourceVersion"]
    path = f"{objects.collection(_NAMESPACE)}?watch=1&resourceVersion={revision}"
    command = [sys.executable, "-m", "bench.apiserver.watchers", subject.host, str(subject.port), TOKEN, path]
    readers = subprocess.Popen([*command, str(WATCHERS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert readers.stdin is not None and readers.stdout is not None  # noqa: PT018
    try:
        if readers.stdout.readline() != "ready\n":
            raise Broken(f"{subject.server.name} did not open {WATCHERS} watches")
        before = subject.cpu_seconds()
        writes = _write(subject, seconds)
        spent = subject.cpu_seconds() - before
        readers.stdin.write(f"{writes}\n")
        readers.stdin.close()
        seen = json.loads(readers.stdout.readline() or "{}")
    finally:
        readers.kill()
        readers.wait()
        readers.stdout.close()
    if not seen or seen["events"] != seen["expected"]:
        raise Broken(f"{subject.server.name}: of {seen.get('expected')} events {seen.get('events')} arrived")
    return Sample(seen["p99"], spent / writes * 1e6)


def _write(subject: Subject, seconds: int) -> int:
    """Several writers, each at its share of the rate. Returns how many writes there were."""
    failures: list[str] = []
    each = seconds * _WRITES_PER_SECOND // _WRITERS

    def run(writer: int) -> None:
        connection = subject.server.connect(admin=False)
        try:
            _patch_at_rate(connection, writer, each)
        except Exception as error:
            failures.append(str(error))
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(writer,)) for writer in range(_WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise Broken(f"{subject.server.name} refused a write: {failures[0]}")
    return each * _WRITERS


def _patch_at_rate(connection: http.client.HTTPSConnection, writer: int, times: int) -> None:
    start = time.monotonic() + writer / _WRITES_PER_SECOND
    path = objects.collection(_NAMESPACE)
    for turn in range(times):
        time.sleep(max(0.0, start + turn * _WRITERS / _WRITES_PER_SECOND - time.monotonic()))
        name = f"watched-{(turn * _WRITERS + writer) % _OBJECTS}"
        body = json.dumps({"spec": {"sent": str(time.monotonic_ns())}})
        connection.request("PATCH", f"{path}/{name}", body=body, headers=_PATCH)
        reply = connection.getresponse()
        content = reply.read()
        if reply.status != 200:
            raise Broken(f"{reply.status} {content[:200]!r}")
