"""Requests for resources: find the resource, authorize, read the body, call the verb, answer.

The order matters: the server reads the body and reports invalid options only after it has authorized the verb. Reads
answer at once; writes are coroutines. Logs are answered as a byte stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from remuda.apiserver.auth import messages
from remuda.apiserver.auth.user import Authorizer, User
from remuda.apiserver.http import options
from remuda.apiserver.http.answers import Views, audit_header, finish
from remuda.apiserver.http.decode import ObjectReader, read_patch
from remuda.apiserver.http.flow_control import QueuedRequest
from remuda.apiserver.http.interfaces import ConnectingRegistry
from remuda.apiserver.http.negotiate import (
    YAML,
    Form,
    method_not_allowed,
    negotiate,
    negotiate_stream,
    patch_kind,
    require_named,
)
from remuda.apiserver.http.routes import RequestInfo, attributes_of
from remuda.apiserver.http.watch import watch_stream
from remuda.apiserver.registry.calls import Call, FieldValidation, ListOptions, WatchOptions
from remuda.apiserver.resource import Obj, Resource
from remuda.kube.errors import StatusError, bad_request, method_not_supported, no_such_path, not_found
from remuda.kube.web import Request, Response, Result, Sink, Stream, header_block, text

_STATUS_VERBS = ("get", "patch", "update")
_STREAMED = frozenset({"attach", "exec", "log", "portforward", "proxy"})
_OF_COLLECTIONS = ("create",)
_OF_OBJECTS = ("update", "patch")
_OF_ALL_NAMESPACES = ("list", "watch")
_SLOW_YAML = 16 * 1024  # YAML is read at about 1 MB/s: more than this goes to a thread
_LOG_HEADERS = header_block([("Cache-Control", "no-cache, private"), ("Content-Type", "text/plain")])

Answer = Result | Awaitable[Result]


class ResourceRequests:
    def __init__(
        self,
        registry: ConnectingRegistry,
        authorizer: Authorizer,
        reader: ObjectReader,
        watch_started: Callable[[RequestInfo], Callable[[], None]],
    ) -> None:
        self._registry = registry
        self._authorizer = authorizer
        self._reader = reader
        self._views = Views()
        self._watch_started = watch_started

    def serve(self, request: Request, info: RequestInfo, user: User, turn: QueuedRequest) -> Answer:
        resource = self._registry.resources.find(info.group, info.version, info.resource)
        if resource is None or not _is_served_at(info, resource):
            return self._unknown(request, info, user)
        call = self._registry.authorize(
            user,
            info.verb,
            resource,
            info.namespace,
            info.name,
            info.subresource,
            field_selector=request.first("fieldSelector") if request.raw_query and not info.name else "",
        )
        self._require_route(request, info, resource)
        if resource.deprecation_warning:
            call.warnings.append(resource.deprecation_warning)
        return self._dispatch(request, info, call, turn)

    def _dispatch(self, request: Request, info: RequestInfo, call: Call, turn: QueuedRequest) -> Answer:
        verb = info.verb
        if verb == "get":
            return self._stream(request, call) if info.subresource in _STREAMED else self._get(request, call)
        if verb == "list":
            return self._list(request, call)
        if verb == "watch":
            return self._watch(request, info, call)
        return self._write(request, call, turn)

    # -- lookup --------------------------------------------------------------------------------------------------

    def _unknown(self, request: Request, info: RequestInfo, user: User) -> Response:
        """Answer a request for an unknown resource. Users without permission get 403 before they learn what exists."""
        attributes = attributes_of(info)
        decision = self._authorizer.authorize(user, attributes)
        if not decision.allowed:
            raise messages.forbidden(user, attributes, decision.reason)
        self._registry.resources.require_readable(info.group, info.resource)
        if any(not r.custom and r.group == info.group for r in self._registry.resources.all()):
            raise no_such_path()
        return text(404, "404 page not found\n")

    def _require_route(self, request: Request, info: RequestInfo, resource: Resource) -> None:
        verbs = _verbs_of(resource, info.subresource)
        if resource.custom:
            _require_custom_route(info, resource, verbs)
            return
        if verbs is None or not _is_path_of(info, resource):
            raise no_such_path()
        unfit = _OF_COLLECTIONS if info.name else _OF_OBJECTS
        if (
            info.verb not in verbs
            or (info.verb in unfit and not info.subresource)
            or (_spans_namespaces(info, resource) and info.verb not in _OF_ALL_NAMESPACES)
            or request.method == "HEAD"
        ):
            raise method_not_allowed()
        require_named(request)

    # -- reads ---------------------------------------------------------------------------------------------------

    def _get(self, request: Request, call: Call) -> Answer:
        form = negotiate(request)
        value = self._registry.get(call, request.first("resourceVersion") if request.raw_query else "")
        body = self._views.object(request, call.resource, value, form)
        return finish(request, 200, body, form, call.warnings)

    def _list(self, request: Request, call: Call) -> Answer:
        form = negotiate(request)
        page = self._registry.list(call, options.list_options(request))
        return finish(request, 200, self._views.page(request, call.resource, page, form), form, call.warnings)

    def _watch(self, request: Request, info: RequestInfo, call: Call) -> Answer:
        form = negotiate_stream(request)
        wanted = options.watch_options(request)
        if call.name:
            _select_name(wanted, call.name)
            call.name = ""
        tabler = self._views.tablers.of(call.resource)
        watch = self._registry.watch(call, wanted)
        ended = self._watch_started(info)
        return watch_stream(request, call, watch, form, tabler, wanted.timeout_seconds, ended)

    def _stream(self, request: Request, call: Call) -> Answer:
        query = {key: values[0] for key, values in request.query.items()}
        return log_stream(request, self._registry.connect(call, query))

    # -- writes --------------------------------------------------------------------------------------------------

    async def _write(self, request: Request, call: Call, turn: QueuedRequest) -> Result:
        try:
            return await self._WRITES[call.verb](self, request, call, turn)
        except StatusError as error:
            error.warnings = call.warnings
            raise

    async def _create(self, request: Request, call: Call, turn: QueuedRequest) -> Result:
        form = negotiate(request)
        media = self._reader.media_type(request, call.resource)
        body = await _body(request, turn)
        chosen = options.write_options(request, "CreateOptions")
        obj, warnings = await self._read(body, media, call, chosen.field_validation)
        call.warnings += warnings
        written = await self._registry.create(call, obj, chosen)
        return await self._answer(request, call, 201, written.value, form)

    async def _update(self, request: Request, call: Call, turn: QueuedRequest) -> Result:
        form = negotiate(request)
        body = await _body(request, turn)
        chosen = options.write_options(request, "UpdateOptions")
        media = self._reader.media_type(request, call.resource)
        obj, warnings = await self._read(body, media, call, chosen.field_validation)
        call.warnings += warnings
        written = await self._registry.update(call, obj, chosen)
        return await self._answer(request, call, 201 if written.created else 200, written.value, form)

    async def _patch(self, request: Request, call: Call, turn: QueuedRequest) -> Result:
        kind = patch_kind(request, strategic=not call.resource.custom)
        form = negotiate(request)
        body = await _body(request, turn)
        chosen = options.patch_options(request, kind)
        read = partial(read_patch, body, kind, chosen.field_validation, custom=call.resource.custom, budget=call.budget)
        patch, complaints = await asyncio.to_thread(read) if kind == "apply" and _is_slow(body) else read()
        written = await self._registry.patch(call, kind, patch, chosen, complaints)
        return await self._answer(request, call, 201 if written.created else 200, written.value, form)

    async def _delete(self, request: Request, call: Call, turn: QueuedRequest) -> Result:
        form = negotiate(request)
        chosen = options.delete_options(request, await _body(request, turn), self._reader.protobuf)
        written = await self._registry.delete(call, chosen)
        return await self._answer(request, call, 200, written.value, form)

    async def _delete_collection(self, request: Request, call: Call, turn: QueuedRequest) -> Result:
        form = negotiate(request)
        selection: ListOptions = options.list_options(request)
        chosen = options.delete_options(request, await _body(request, turn), self._reader.protobuf)
        page = await self._registry.delete_collection(call, selection, chosen)
        body = self._views.page(request, call.resource, page, form)
        return await _settled(finish(request, 200, body, form, call.warnings))

    _WRITES = {  # noqa: RUF012
        "create": _create,
        "update": _update,
        "patch": _patch,
        "delete": _delete,
        "deletecollection": _delete_collection,
    }

    async def _read(self, body: bytes, media: str, call: Call, validation: FieldValidation) -> tuple[Obj, list[str]]:
        arguments = (body, media, call.resource, call.subresource, validation, call.budget)
        if media == YAML and _is_slow(body):
            return await asyncio.to_thread(self._reader.read, *arguments)
        return self._reader.read(*arguments)

    async def _answer(self, request: Request, call: Call, status: int, value: bytes, form: Form) -> Result:
        body = self._views.object(request, call.resource, value, form)
        return await _settled(finish(request, status, body, form, call.warnings))


async def _body(request: Request, turn: QueuedRequest) -> bytes:
    """Read a body, and wait until the request may decode and validate it."""
    body = await request.body()
    await turn.wait(len(body))
    return body


def _is_slow(body: bytes) -> bool:
    return len(body) > _SLOW_YAML and body[:1] != b"{"


async def _settled(answer: Response | Awaitable[Response]) -> Response:
    return answer if isinstance(answer, Response) else await answer


def _verbs_of(resource: Resource, subresource: str) -> tuple[str, ...] | None:
    """Return the verbs of the resource or subresource; None when there is no such subresource."""
    if not subresource:
        return resource.verbs
    if subresource == "status" and resource.has_status:
        return _STATUS_VERBS
    if subresource == "scale" and resource.scale is not None:
        return _STATUS_VERBS
    declared = resource.subresources.get(subresource)
    return declared.verbs if declared is not None else None


def _is_path_of(info: RequestInfo, resource: Resource) -> bool:
    """Return whether the resource's scope fits the path: in a namespace, or in none."""
    if not resource.namespaced:
        return not info.namespace or resource.qualified == "namespaces"
    return bool(info.namespace) or not info.name or info.old_watch


def _spans_namespaces(info: RequestInfo, resource: Resource) -> bool:
    return resource.namespaced and not info.namespace and not info.old_watch


def _is_served_at(info: RequestInfo, resource: Resource) -> bool:
    """Return whether the path accepts the method. Built-in kinds have paths for every method, custom ones only for
    their verbs.
    """
    if not resource.custom:
        return True
    is_fit = not _spans_namespaces(info, resource) or info.verb in _OF_ALL_NAMESPACES
    return is_fit and _is_path_of(info, resource)


def _require_custom_route(info: RequestInfo, resource: Resource, verbs: tuple[str, ...] | None) -> None:
    if verbs is None:
        raise not_found(resource.group, resource.plural, info.name)
    if info.verb not in verbs:
        raise method_not_supported(resource.group, resource.plural, info.verb)
    if info.verb in _OF_OBJECTS and not info.name:
        raise bad_request("name must be provided")


def _select_name(wanted: WatchOptions, name: str) -> None:
    """Turn the watch of one object into a watch with a field selector."""
    selector = f"metadata.name={name}"
    if wanted.field_selector not in ("", selector):
        raise bad_request("fieldSelector metadata.name doesn't match requested name")
    wanted.field_selector = selector


async def log_stream(request: Request, chunks: AsyncIterator[bytes]) -> Stream:
    """Wait for the first chunk, so that an earlier failure is an error and not an empty log."""
    try:
        first = await anext(chunks)
    except StopAsyncIteration:
        first = b""

    async def produce(sink: Sink) -> None:
        sink.write(first)
        async for chunk in chunks:
            sink.write(chunk)
            await sink.drain()

    return Stream(produce, audit_header(request) + _LOG_HEADERS)
