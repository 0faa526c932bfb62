"""What two servers may not share (uids, times, revisions, tokens, addresses) becomes stable placeholders.

Equal values get equal placeholders, numbered by first appearance (members sorted by name, since their order says
nothing), so that "the revision changed" and "this is the
uid of that owner" are still compared.
"""

from __future__ import annotations

import re
from typing import Any

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_JWT = re.compile(r"eyJ[\w-]+\.eyJ[\w-]+\.[\w-]+")
_REVISION_IN_TEXT = re.compile(r'(resourceVersion\\*":\\*")\d+')
_CREDENTIAL = re.compile(r"X509SHA256=[0-9a-f]{64}")
_RECORD = re.compile(r"(in record )\(\d+\)")
_LIST_REVISION = "<revision of the list>"


class Normaliser:
    def __init__(self, tag: str, url: str) -> None:
        self._tag = tag
        self._address = url.partition("://")[2]
        self._seen: dict[str, dict[str, str]] = {"uid": {}, "revision": {}}

    def _placeholder(self, kind: str, value: str) -> str:
        known = self._seen[kind]
        return known.setdefault(value, f"<{kind} {len(known) + 1}>")

    def text(self, text: str) -> str:
        text = text.replace(self._tag, "TAG").replace(self._address, "SERVER")
        text = _REVISION_IN_TEXT.sub(r"\1<revision>", _JWT.sub("<token>", text))
        text = _CREDENTIAL.sub("<credential>", text)
        text = _RECORD.sub(r"\1(<revision>)", text)
        text = _UUID.sub(lambda found: self._placeholder("uid", found[0]), text)
        return _TIME.sub(lambda found: "<micro time>" if found[1] else "<time>", text)

    def value(self, value: Any) -> Any:
        if isinstance(value, dict):
            if value.get("kind") == "Status" and "details" in value:
                value = _sorted_causes(value)
            return {self.text(key): self._member(key, item, value) for key, item in sorted(value.items())}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def _member(self, key: str, value: Any, parent: dict[str, Any]) -> Any:
        if key == "metadata" and isinstance(value, dict):
            return self._metadata(value, is_list="items" in parent or "rows" in parent or "groups" in parent)
        if key == "storageVersionHash":
            return "<hash>"
        return self.value(value)

    def _metadata(self, metadata: dict[str, Any], *, is_list: bool) -> dict[str, Any]:
        if metadata.get("managedFields"):
            metadata = {**metadata, "managedFields": _by_manager(metadata["managedFields"])}
        plain: dict[str, Any] = {self.text(key): self.value(item) for key, item in sorted(metadata.items())}
        revision = metadata.get("resourceVersion")
        if revision:
            plain["resourceVersion"] = _LIST_REVISION if is_list else self._placeholder("revision", revision)
        if metadata.get("continue"):
            plain["continue"] = "<continue>"
        prefix = metadata.get("generateName")
        name = metadata.get("name")
        if prefix and name and name != prefix and name.startswith(prefix[:58]):
            plain["name"] = self.text(name[:-5]) + "<5>"
        return plain

    def event(self, event: dict[str, Any]) -> dict[str, Any]:
        plain: dict[str, Any] = {"type": event.get("type"), "object": self.value(event.get("object"))}
        if plain["type"] == "BOOKMARK":
            plain["object"].get("metadata", {})["resourceVersion"] = _LIST_REVISION
        return plain


def _by_manager(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort the entries of managedFields without regard to their time.

    Servers sort them by operation, time in whole seconds, and manager. So their order depends on whether a second began
    between two requests. Entries in any other order stay as they are, and show as a difference.
    """
    times = [(entry["operation"], entry.get("time", "")) for entry in entries]
    if times != sorted(times):
        return entries
    names = ("operation", "manager", "apiVersion", "subresource")
    return sorted(entries, key=lambda entry: [entry.get(name, "") for name in names])


def _sorted_causes(status: dict[str, Any]) -> dict[str, Any]:
    """The real server lists several causes in the random order of Go's maps, also inside its message."""
    causes = status["details"].get("causes") or []
    if len(causes) < 2:
        return status
    ordered = sorted(causes, key=lambda cause: (str(cause.get("field")), str(cause.get("message"))))
    sentences = [f"{cause.get('field') or '<nil>'}: {cause.get('message')}" for cause in causes]
    message = str(status.get("message", ""))
    start, bracket, listed = message.partition("[")
    if bracket and listed == ", ".join(dict.fromkeys(sentences)) + "]":
        message = f"{start}[{', '.join(sorted(set(sentences)))}]"
    return {**status, "message": message, "details": {**status["details"], "causes": ordered}}


def wording(value: Any) -> list[str]:
    """The sentences of a transcript, in order: messages of statuses, causes, conditions; warnings."""
    found: list[str] = []
    _split(value, found)
    return found


def essence(value: Any) -> Any:
    """A transcript without its sentences."""
    return _split(value, [])


def _split(value: Any, sentences: list[str]) -> Any:
    if isinstance(value, list):
        return [_split(item, sentences) for item in value]
    if not isinstance(value, dict):
        return value
    kept: dict[str, Any] = {}
    for key, item in value.items():
        if key == "message" and isinstance(item, str):
            sentences.append(item)
            kept[key] = "<sentence>"
        elif key == "warnings" and isinstance(item, list):
            sentences += item
            kept[key] = [f"<{len(item)} sentences>"]
        else:
            kept[key] = _split(item, sentences)
    return kept
