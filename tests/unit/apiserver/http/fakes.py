"""A registry in a dict, a raw client, and a running front: what the tests of the wire have in common."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from remuda.apiserver.auth.user import MASTERS, Attributes, Decision, Headers, User
from remuda.apiserver.http.handler import HttpFront
from remuda.apiserver.http.limits import HttpLimits
from remuda.apiserver.http.listener import Listener
from remuda.apiserver.registry.calls import (
    Call,
    DeleteOptions,
    ListOptions,
    Page,
    PatchKind,
    WatchLine,
    WatchOptions,
    WriteOptions,
    Written,
)
from remuda.apiserver.resource import Obj, Resource, ScalePaths, Subresource, TableColumn
from remuda.apiserver.storage.types import Revision
from remuda.kube.errors import forbidden_request, not_found
from remuda.kube.schema import Schema
from remuda.kube.web import Handler
from tests.lab.limits import LIMIT_SECONDS

PODS = Resource(
    group="",
    version="v1",
    kind="Pod",
    plural="pods",
    singular="pod",
    schema=Schema(type="object"),
    short_names=("po",),
    categories=("all",),
    has_status=True,
    subresources={
        "log": Subresource(kind="Pod", verbs=("get",)),
        "eviction": Subresource(kind="Eviction", verbs=("create",), group="policy", version="v1"),
    },
)
NAMESPACES = Resource(
    group="", version="v1", kind="Namespace", plural="namespaces", schema=Schema(type="object"), namespaced=False
)
WIDGETS = Resource(
    group="example.com",
    version="v1",
    kind="Widget",
    plural="widgets",
    schema=Schema(type="object"),
    custom=True,
    has_status=True,
    scale=ScalePaths(spec_replicas=("spec", "replicas"), status_replicas=("status", "replicas")),
    columns=(
        TableColumn(name="Size", type="integer", path=".spec.size"),
        TableColumn(name="Age", type="date", path=".metadata.creationTimestamp"),
    ),
)
OLD_WIDGETS = Resource(
    group="example.com",
    version="v1beta1",
    kind="Widget",
    plural="widgets",
    schema=Schema(type="object"),
    custom=True,
    deprecation_warning='example.com/v1beta1 Widget is "old"',
)


class FakeServed:
    def __init__(self, resources: Iterable[Resource]) -> None:
        self.generation = 1
        self.resources = list(resources)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return next((r for r in self.resources if (r.group, r.version, r.plural) == (group, version, plural)), None)

    def require_readable(self, group: str, plural: str) -> None:
        """Every definition is."""

    def all(self) -> Iterable[Resource]:
        return list(self.resources)

    def is_fresh(self, group: str, version: str) -> bool:
        return True


class FakeWatch:
    def __init__(self, batches: Sequence[Sequence[WatchLine]] = ()) -> None:
        self.queue: asyncio.Queue[Sequence[WatchLine]] = asyncio.Queue()
        for batch in batches:
            self.queue.put_nowait(batch)
        self.closed = False

    async def next_batch(self) -> Sequence[WatchLine]:
        return await self.queue.get()

    def close(self) -> None:
        self.closed = True


def pod(name: str = "a", **more: Any) -> bytes:
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "ns", "resourceVersion": "7"},
            **more,
        }
    )


class FakeRegistry:
    """Remembers what it was asked; answers what the test put in."""

    def __init__(self) -> None:
        self.resources = FakeServed([PODS, NAMESPACES, WIDGETS, OLD_WIDGETS])
        self.objects: dict[str, bytes] = {"a": pod("a")}
        self.page = Page([pod("a"), pod("b")], Revision(9))
        self.calls: list[tuple[Any, ...]] = []
        self.watches: list[FakeWatch] = []
        self.watch_batches: Sequence[Sequence[WatchLine]] = ()
        self.denied: set[str] = set()
        self.warnings: list[str] = []
        self.hold: asyncio.Event | None = None
        self.log = [b"line one\n", b"line two\n"]

    def authorize(
        self,
        user: User,
        verb: str,
        resource: Resource,
        namespace: str,
        name: str,
        subresource: str = "",
        *,
        field_selector: str = "",
    ) -> Call:
        self.calls.append(("authorize", user.name, verb, resource.plural, namespace, name, subresource, field_selector))
        if user.name in self.denied:
            raise forbidden_request(resource.group, resource.plural, name, "no")
        call = Call(user, verb, resource, namespace, name, subresource)
        call.warnings += self.warnings
        return call

    def get(self, call: Call, resource_version: str = "") -> bytes:
        if call.name == "broken":
            raise RuntimeError("secret detail")
        if call.name not in self.objects:
            raise not_found(call.resource.group, call.resource.plural, call.name)
        return self.objects[call.name]

    def list(self, call: Call, options: ListOptions) -> Page:
        self.calls.append(("list", options))
        return self.page

    def watch(self, call: Call, options: WatchOptions) -> FakeWatch:
        self.calls.append(("watch", options))
        watch = FakeWatch(self.watch_batches)
        self.watches.append(watch)
        return watch

    def connect(self, call: Call, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        self.calls.append(("connect", dict(query)))

        async def chunks() -> AsyncIterator[bytes]:
            if call.name not in self.objects:
                raise not_found("", "pods", call.name)
            for chunk in self.log:
                yield chunk

        return chunks()

    async def _wait(self) -> None:
        if self.hold is not None:
            await self.hold.wait()

    async def create(self, call: Call, obj: Obj, options: WriteOptions) -> Written:
        self.calls.append(("create", obj, options))
        await self._wait()
        return Written(msgspec.json.encode(obj), created=True)

    async def update(self, call: Call, obj: Obj, options: WriteOptions) -> Written:
        self.calls.append(("update", obj, options))
        return Written(msgspec.json.encode(obj))

    async def patch(
        self, call: Call, kind: PatchKind, patch: Any, options: WriteOptions, complaints: Sequence[str] = ()
    ) -> Written:
        self.calls.append(("patch", kind, patch, options))
        return Written(self.objects.get(call.name, pod()), created=call.name not in self.objects)

    async def delete(self, call: Call, options: DeleteOptions) -> Written:
        self.calls.append(("delete", options))
        return Written(b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}')

    async def delete_collection(self, call: Call, selection: ListOptions, options: DeleteOptions) -> Page:
        self.calls.append(("delete_collection", selection, options))
        return self.page


ADMIN = User("admin", groups=(MASTERS,))


class AllowAll:
    def __init__(self) -> None:
        self.asked: list[Attributes] = []
        self.allowed = True

    def authorize(self, user: User, attributes: Attributes) -> Decision:
        self.asked.append(attributes)
        return Decision(self.allowed)


def by_header(certificate: bytes | None, headers: Headers) -> User:
    name = headers.get("x-user", ["admin"])[0]
    return User(name, groups=(MASTERS,) if name == "admin" else ())


def impersonated(user: User, headers: Headers, request: Attributes) -> User:
    assert request.verb
    return User(headers["impersonate-user"][0], groups=tuple(headers.get("impersonate-group", ())))


class Answer(msgspec.Struct):
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        return next((v for n, v in self.headers if n.lower() == name.lower()), "")

    def all(self, name: str) -> list[str]:
        return [v for n, v in self.headers if n.lower() == name.lower()]

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Client:
    """One plain TCP connection, written to by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def read_head(self) -> tuple[int, list[tuple[str, str]]]:
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), LIMIT_SECONDS)
        status_line, *lines = head.decode().strip().split("\r\n")
        return int(status_line.split()[1]), [tuple(line.split(": ", 1)) for line in lines]  # type: ignore[misc]

    async def read_answer(self, *, head_only: bool = False) -> Answer:
        status, headers = await self.read_head()
        answer = Answer(status, headers, b"")
        if head_only or status in (100, 101, 304):
            return answer
        if answer.header("transfer-encoding") == "chunked":
            while chunk := await self.read_chunk():
                answer.body += chunk
        elif length := int(answer.header("content-length") or 0):
            answer.body = await asyncio.wait_for(self.reader.readexactly(length), LIMIT_SECONDS)
        return answer

    async def read_chunk(self) -> bytes:
        size = int(await asyncio.wait_for(self.reader.readline(), LIMIT_SECONDS), 16)
        data = await asyncio.wait_for(self.reader.readexactly(size + 2), LIMIT_SECONDS)
        return data[:-2]

    async def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Answer:
        lines = [f"{method} {target} HTTP/1.1", "Host: x"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
        return await self.read_answer(head_only=method == "HEAD")

    async def is_closed(self) -> bool:
        """Waits for the other end to close."""
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(1), LIMIT_SECONDS) == b""
        return True

    def close(self) -> None:
        self.writer.close()


async def until(holds: Callable[[], object]) -> None:
    """Wait for what this process itself brings about."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while not holds():
            await asyncio.sleep(0.002)


async def connect(port: int) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port))


@contextlib.asynccontextmanager
async def serving(handler: Handler, limits: HttpLimits | None = None) -> AsyncIterator[Listener]:
    listener = Listener(handler, limits)
    await listener.start("127.0.0.1", 0, None, sweep_every=0.05)
    try:
        yield listener
    finally:
        await listener.stop(0.2)


class Fronted:
    """A front on a fake registry, and connections to it."""

    def __init__(self, **options: Any) -> None:
        self.registry = FakeRegistry()
        self.authorizer = AllowAll()
        options = {"build_openapi": lambda resources: {"openapi": "3.0.0", "count": len(resources)}, **options}
        self.front = HttpFront(
            self.registry, authenticate=by_header, authorizer=self.authorizer, impersonate=impersonated, **options
        )
        self.clients: list[Client] = []

    async def __aenter__(self) -> Fronted:
        await self.front.start("127.0.0.1", 0, None)
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self.clients:
            client.close()
        await self.front.stop(0.2)

    async def client(self) -> Client:
        client = await connect(self.front.port)
        self.clients.append(client)
        return client

    async def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Answer:
        client = await self.client()
        return await client.ask(method, target, body, **headers)
