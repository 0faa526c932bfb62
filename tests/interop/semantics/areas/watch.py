"""Watches: which events, in which order, from where."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

from tests.interop.semantics.trial import Trial, case, shared

shared("watcheds")


def _revision(t: Trial, path: str) -> str:
    return str(t.quietly("GET", path)["metadata"]["resourceVersion"])


@case("watch")
def sees_every_change_in_order(t: Trial) -> None:
    path = t.configmaps()
    start = _revision(t, path)
    t.quietly("POST", path, {"metadata": {"name": "a"}})
    t.quietly("PATCH", f"{path}/a", {"data": {"k": "1"}}, headers=MERGE)
    t.quietly("POST", path, {"metadata": {"name": "b"}})
    t.quietly("DELETE", f"{path}/a")
    t.quietly("DELETE", f"{path}/b")
    t.watch(path, 5, resourceVersion=start)


@case("watch")
def a_change_of_nothing_is_no_event(t: Trial) -> None:
    path = t.configmaps()
    made = t.quietly("POST", path, {"metadata": {"name": "a"}, "data": {"k": "1"}})
    start = made["metadata"]["resourceVersion"]
    t.quietly("PATCH", f"{path}/a", {"data": {"k": "1"}}, headers=MERGE)
    t.quietly("PUT", f"{path}/a", made)
    t.quietly("PATCH", f"{path}/a", {"data": {"k": "2"}}, headers=MERGE)
    t.watch(path, 1, resourceVersion=start)


@case("watch")
def from_zero_begins_with_what_is_there(t: Trial) -> None:
    path = t.configmaps()
    for name in ("b", "a"):
        t.quietly("POST", path, {"metadata": {"name": name}})
    t.caught_up(path)
    t.watch(path, 2, resourceVersion="0")


@case("watch")
def without_a_revision_begins_with_what_is_there(t: Trial) -> None:
    path = t.configmaps()
    for name in ("b", "a"):
        t.quietly("POST", path, {"metadata": {"name": name}})
    t.caught_up(path)
    t.watch(path, 2)


@case("watch")
def of_one_name(t: Trial) -> None:
    path = t.configmaps()
    start = _revision(t, path)
    for name in ("a", "b", "c"):
        t.quietly("POST", path, {"metadata": {"name": name}})
    t.quietly("DELETE", f"{path}/b")
    t.watch(path, 2, resourceVersion=start, fieldSelector="metadata.name=b")


@case("watch")
def selectors_turn_changes_into_arrivals_and_departures(t: Trial) -> None:
    path = t.configmaps()
    start = _revision(t, path)
    t.quietly("POST", path, {"metadata": {"name": "a"}})
    for colour in ("red", "blue", "red"):
        t.quietly("PATCH", f"{path}/a", {"metadata": {"labels": {"colour": colour}}}, headers=MERGE)
    t.quietly("PATCH", f"{path}/a", {"data": {"k": "1"}}, headers=MERGE)
    t.quietly("DELETE", f"{path}/a")
    t.watch(path, 5, resourceVersion=start, labelSelector="colour=red")


@case("watch")
def a_finalizer_shows_the_deletion_twice(t: Trial) -> None:
    path = t.configmaps()
    t.quietly("POST", path, {"metadata": {"name": "a", "finalizers": ["lab.dev/keep"]}})
    start = _revision(t, path)
    t.quietly("DELETE", f"{path}/a")
    t.quietly("PATCH", f"{path}/a", {"metadata": {"finalizers": None}}, headers=MERGE)
    t.watch(path, 2, resourceVersion=start)


@case("watch")
def ends_after_its_time(t: Trial) -> None:
    path = t.configmaps()
    start = _revision(t, path)
    t.watch(path, 100, resourceVersion=start, timeoutSeconds=1)


@case("watch")
def sends_a_bookmark_before_it_ends(t: Trial) -> None:
    path = t.configmaps()
    start = _revision(t, path)
    t.quietly("POST", path, {"metadata": {"name": "a"}})
    t.watch(path, 1, resourceVersion=start, allowWatchBookmarks="true", timeoutSeconds=60)


@case("watch")
def list_and_watch_in_one(t: Trial) -> None:
    path = t.configmaps()
    for name in ("b", "a"):
        t.quietly("POST", path, {"metadata": {"name": name}})
    query: dict[str, Any] = {
        "sendInitialEvents": "true",
        "allowWatchBookmarks": "true",
        "resourceVersionMatch": "NotOlderThan",
    }
    t.watch(path, 3, **query)


@case("watch")
def list_and_watch_in_one_of_nothing(t: Trial) -> None:
    query: dict[str, Any] = {
        "sendInitialEvents": "true",
        "allowWatchBookmarks": "true",
        "resourceVersionMatch": "NotOlderThan",
    }
    t.watch(t.configmaps(), 1, **query)


@case("watch")
def initial_events_need_a_match(t: Trial) -> None:
    path = t.configmaps()
    t.get(path, query={"watch": "true", "sendInitialEvents": "true", "allowWatchBookmarks": "true"})
    t.get(path, query={"watch": "true", "sendInitialEvents": "true", "resourceVersionMatch": "Exact"})
    t.get(path, query={"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"})
    t.get(path, query={"watch": "true", "resourceVersionMatch": "NotOlderThan"})


@case("watch")
def no_initial_events(t: Trial) -> None:
    path = t.configmaps()
    t.quietly("POST", path, {"metadata": {"name": "a"}})
    query: dict[str, Any] = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}
    t.watch(path, 5, timeoutSeconds=1, **query)


@case("watch")
def from_a_revision_that_is_no_number(t: Trial) -> None:
    t.get(t.configmaps(), query={"watch": "true", "resourceVersion": "abc"})


@case("watch")
def the_old_path(t: Trial) -> None:
    path = t.configmaps()
    t.quietly("POST", path, {"metadata": {"name": "a"}})
    old = path.replace("/api/v1/", "/api/v1/watch/")
    t.watch(old, 1)
    t.watch(f"{old}/a", 1)


@case("watch")
def of_a_custom_resource(t: Trial) -> None:
    path = t.crd("watcheds")
    start = _revision(t, path)
    body = {"apiVersion": t.api_version(), "kind": "Watched", "metadata": {"name": t.name()}}
    t.quietly("POST", path, {**body, "spec": {"a": 1}})
    t.quietly("PATCH", f"{path}/{t.name()}", {"spec": {"a": 2}}, headers=MERGE)
    t.quietly("DELETE", f"{path}/{t.name()}")
    t.watch(path, 3, resourceVersion=start)


@case("watch")
def as_a_table(t: Trial) -> None:
    path = t.configmaps()
    t.quietly("POST", path, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    t.quietly("POST", path, {"metadata": {"name": "b"}})
    t.caught_up(path)
    lines = t.server.stream(f"{path}?watch=true", headers=accept)
    seen = [_without_age(line) for line in islice(lines, 2)]
    t.quietly("POST", path, {"metadata": {"name": "c"}})
    t.note([*seen, _without_age(next(lines))])


@case("watch")
def as_metadata_only(t: Trial) -> None:
    path = t.configmaps()
    t.quietly("POST", path, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    accept = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
    t.caught_up(path)
    lines = t.server.stream(f"{path}?watch=true", headers=accept)
    t.note(json.loads(next(lines)))
    t.quietly("POST", path, {"metadata": {"name": "b"}})
    t.note(json.loads(next(lines)))


@case("watch")
def across_namespaces(t: Trial) -> None:
    first, second = t.namespace("first"), t.namespace("second")
    start = _revision(t, "/api/v1/secrets")
    for namespace in (second, first):
        t.quietly("POST", f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": t.name("w")}})
    t.watch("/api/v1/secrets", 2, resourceVersion=start, fieldSelector=f"metadata.name={t.name('w')}")


@case("watch")
def deletecollection_is_one_event_each(t: Trial) -> None:
    path = t.configmaps()
    for name in ("c", "a", "b"):
        t.quietly("POST", path, {"metadata": {"name": name}})
    start = _revision(t, path)
    t.quietly("DELETE", path)
    t.quietly("POST", path, {"metadata": {"name": "the-end"}})
    events = []
    for line in t.server.stream(f"{path}?watch=true&resourceVersion={start}"):
        event = json.loads(line)
        if event["object"]["metadata"]["name"] == "the-end":
            break
        events.append([event["type"], event["object"]["metadata"]["name"]])
    t.note(sorted(events))


def _without_age(line: bytes) -> object:
    event: dict[str, Any] = json.loads(line)
    for column in event["object"].get("columnDefinitions") or []:
        column.pop("description")
    for row in event["object"].get("rows", []):
        row["cells"] = ["<age>" if index == 2 else cell for index, cell in enumerate(row["cells"])]
    return event


MERGE = {"Content-Type": "application/merge-patch+json"}
