"""HTTP implementation of `Client`: maps each verb to a request of the Kubernetes API.

Objects stay bytes. The server is asked to end a watch after a time. A watch that is silent for longer has lost its
server, even if the connection looks open, and ends with an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from remuda.kube import random_source
from remuda.kube.client import Change, Listing, PatchKind, Propagation, Target
from remuda.kube.errors import Unreachable, bad_request
from remuda.kube.http.lines import EventReader, read_change, read_list
from remuda.kube.http.link import Connector, direct
from remuda.kube.http.transport import USER_AGENT, Observe, Transport, Warn
from remuda.kube.kubeconfig import ClientConfig

_encode = msgspec.json.Encoder().encode

_PATCH_TYPES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",  # JSON is YAML
}
_JSON = {"Accept": "application/json"}
_JSON_BODY = {**_JSON, "Content-Type": "application/json"}
_METADATA_LIST = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
_METADATA = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}

# As in client-go: a random time in between, so that the watches of a process do not all end together.
_WATCH_SECONDS = (300.0, 600.0)


class HttpClient:
    """Implements `remuda.kube.client.Client`. Close it when done.

    `timeout_seconds` limits every request except watches, including waits for a busy server. `observe` is called for
    each exchange (see `transport.Observe`). `connector`: makes connections to other addresses than that of the URL.
    `warn` is called with each warning of the server once; by default, it is logged. `most_bytes` bounds the body of an
    answer, after decompression; set it for a server that is not trusted.
    """

    def __init__(
        self,
        access: ClientConfig,
        *,
        field_manager: str = "remuda",
        timeout_seconds: float = 60.0,
        watch_grace_seconds: float = 30.0,
        observe: Observe | None = None,
        user_agent: str = USER_AGENT,
        connector: Connector = direct,
        warn: Warn | None = None,
        most_bytes: int | None = None,
    ) -> None:
        self.access = access
        self._field_manager = field_manager
        self._watch_grace_seconds = watch_grace_seconds
        self._transport = Transport(
            access,
            timeout_seconds=timeout_seconds,
            observe=observe,
            user_agent=user_agent,
            connector=connector,
            warn=warn,
            most_bytes=most_bytes,
        )

    # -- reading -------------------------------------------------------------------------------------------------

    async def get(self, target: Target, namespace: str, name: str, *, subresource: str = "") -> bytes:
        body = await self._transport.request("GET", _object(target, namespace, name, subresource), headers=_JSON)
        return body.rstrip()

    async def list(
        self,
        target: Target,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
        metadata_only: bool = False,
    ) -> Listing:
        query = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "limit": str(limit) if limit else "",
            "continue": continue_token,
            "resourceVersion": resource_version,
        }
        path = _collection(target, namespace) + _query(query)
        return read_list(await self._transport.request("GET", path, headers=_METADATA_LIST if metadata_only else _JSON))

    async def watch(
        self,
        target: Target,
        namespace: str = "",
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        send_initial_events: bool = False,
        metadata_only: bool = False,
        timeout_seconds: float = 0,
    ) -> AsyncGenerator[Change, None]:
        seconds = timeout_seconds or random_source.between(*_WATCH_SECONDS)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(round(seconds), 1)),
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "resourceVersion": resource_version,
            "sendInitialEvents": "true" if send_initial_events else "",
            "resourceVersionMatch": "NotOlderThan" if send_initial_events else "",
        }
        path = _collection(target, namespace) + _query(query)
        # The server ends the watch after `seconds`. A connection that is silent for longer has no server at its other
        # end.
        longest = seconds + self._watch_grace_seconds
        events = EventReader()
        try:
            async with self._transport.stream(path, _METADATA if metadata_only else _JSON) as body:
                while chunk := await _within(longest, body.readany()):
                    for event in events.feed(chunk):
                        yield read_change(event)
        except TimeoutError:
            text = f"{self.access.server} has sent nothing for {longest:g} seconds in a watch of {seconds:g}"
            raise Unreachable(f"{text}: the connection is dead", code=504) from None
        # A proxy may end the body cleanly in the middle of an event. Treating that as the end of the watch would hide
        # the loss.
        if not events.is_between_events:
            raise Unreachable(f"the connection to {self.access.server} was lost in the middle of a watch event")

    async def raw_get(self, path: str, *, accept: str = "") -> bytes:
        """Get a path. `accept`: another form of the answer, for example a Table."""
        return await self._transport.request("GET", path, headers=_accept(accept))

    async def raw_delete(self, path: str) -> bytes:
        return await self._transport.request("DELETE", path)

    async def raw_send(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Send a request to a non-resource path."""
        headers = {"Content-Type": "application/octet-stream"} if body else {}
        return await self._transport.request(method, path, body=body or None, headers=headers)

    async def raw_stream(self, path: str, *, accept: str = "") -> AsyncGenerator[bytes, None]:
        """Stream the answer as it arrives, without a time limit, for example a followed log."""
        async with self._transport.stream(path, _accept(accept)) as body:
            while chunk := await body.readany():
                yield chunk

    # -- writing -------------------------------------------------------------------------------------------------

    async def create(
        self,
        target: Target,
        namespace: str,
        obj: dict[str, Any],
        *,
        name: str = "",
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> bytes:
        path = _object(target, namespace, name, subresource) if subresource else _collection(target, namespace)
        return await self._write(
            "POST",
            path,
            obj,
            _JSON_BODY,
            self._options(field_manager, dry_run),
            # A disruption budget answers 429 too. The drain waits by itself, and evicts other Pods meanwhile.
            patient=subresource != "eviction",
        )

    async def update(
        self,
        target: Target,
        namespace: str,
        name: str,
        obj: dict[str, Any],
        *,
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> bytes:
        path = _object(target, namespace, name, subresource)
        return await self._write("PUT", path, obj, _JSON_BODY, self._options(field_manager, dry_run))

    async def patch(
        self,
        target: Target,
        namespace: str,
        name: str,
        patch: Any,
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> bytes:
        options = self._options(field_manager, dry_run)
        if kind == "apply":
            options["force"] = "true" if force else "false"
        headers = {**_JSON, "Content-Type": _PATCH_TYPES[kind]}
        return await self._write("PATCH", _object(target, namespace, name, subresource), patch, headers, options)

    async def delete(
        self,
        target: Target,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation = "",
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> bytes:
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "preconditions": {key: value for key, value in preconditions.items() if value is not None} or None,
            "propagationPolicy": propagation or None,
            "gracePeriodSeconds": grace_period_seconds,
            "dryRun": ["All"] if dry_run else None,
        }
        return await self._write("DELETE", _object(target, namespace, name), _delete_options(options), _JSON_BODY, {})

    async def delete_collection(
        self,
        target: Target,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        propagation: Propagation = "",
    ) -> None:
        selection = {"labelSelector": label_selector, "fieldSelector": field_selector}
        options = _delete_options({"propagationPolicy": propagation or None})
        await self._write("DELETE", _collection(target, namespace), options, _JSON_BODY, selection)

    async def close(self) -> None:
        await self._transport.close()

    def _options(self, field_manager: str, dry_run: bool) -> dict[str, str]:
        return {"fieldManager": field_manager or self._field_manager, "dryRun": "All" if dry_run else ""}

    async def _write(
        self,
        method: str,
        path: str,
        content: Any,
        headers: Mapping[str, str],
        query: Mapping[str, str],
        *,
        patient: bool = True,
    ) -> bytes:
        answer = await self._transport.request(
            method, path + _query(query), body=_encode(content), headers=headers, patient=patient
        )
        return answer.rstrip()


async def _within(seconds: float, chunk: Any) -> bytes:
    async with asyncio.timeout(seconds):
        found: bytes = await chunk
        return found


def _accept(form: str) -> dict[str, str]:
    return {"Accept": form} if form else {}


def _delete_options(options: Mapping[str, Any]) -> dict[str, Any]:
    present = {key: value for key, value in options.items() if value is not None}
    return {"apiVersion": "v1", "kind": "DeleteOptions", **present}


def _collection(target: Target, namespace: str) -> str:
    root = f"/apis/{target.api_version}" if target.group else f"/api/{target.api_version}"
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{scope}/{target.plural}"


def _object(target: Target, namespace: str, name: str, subresource: str = "") -> str:
    if name in ("", ".", ".."):
        # Without a name the path is that of the whole collection: a DELETE would remove all objects.
        raise bad_request(f"a request for one of {target.plural} needs its name, not {name!r}")
    path = f"{_collection(target, namespace)}/{quote(name, safe=':')}"
    return f"{path}/{subresource}" if subresource else path


def resource_path(target: Target, namespace: str, name: str = "", query: Mapping[str, str] | None = None) -> str:
    """Return the path of a resource, for `raw_get` and `raw_stream`."""
    path = _object(target, namespace, name) if name else _collection(target, namespace)
    return path + _query(query or {})


def _query(values: Mapping[str, str]) -> str:
    present = {key: value for key, value in values.items() if value}
    return f"?{urlencode(present)}" if present else ""
