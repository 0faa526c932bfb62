"""Handler of pods/log. The server runs no pods and stores no logs: components that run pods register a log source.

Without one, the answer is that of kube-apiserver for a pod that has no node.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping

from remuda.apiserver.registry.calls import Call
from remuda.apiserver.registry.registry import Connector, Registry
from remuda.apiserver.resource import Obj
from remuda.kube.errors import bad_request, not_found

PODS = "pods"
# (pod, query parameters as in the API: container, follow, tailLines, ...) -> the log; None: not a pod of this source
LogSource = Callable[[Obj, Mapping[str, str]], AsyncIterator[bytes] | None]


class PodLogs:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._sources: list[LogSource] = []

    def add(self, source: LogSource) -> None:
        """Add a log source, asked after the existing ones."""
        self._sources.append(source)

    def connector(self) -> Connector:
        async def read(call: Call, query: Mapping[str, str]) -> AsyncIterator[bytes]:
            async for chunk in self._open(call, query):
                yield chunk

        return read

    def _open(self, call: Call, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        pod = self._registry.read(PODS, call.namespace, call.name)
        if pod is None:
            raise not_found("", PODS, call.name)
        for source in self._sources:
            found = source(pod, query)
            if found is not None:
                return found
        node = (pod.get("spec") or {}).get("nodeName")
        if not node:
            raise bad_request(f"pod {call.name} does not have a host assigned")
        raise bad_request(f"no log of pod {call.name} is at hand: this server cannot reach node {node}")
