"""Label and field selectors, and lists by page and revision."""

from __future__ import annotations

from tests.interop.semantics.trial import Trial, case, shared

TINTED = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": {"colour": {"type": "string"}}}},
}
shared("tinteds", TINTED, version={"selectableFields": [{"jsonPath": ".spec.colour"}]})


def _colours(t: Trial) -> str:
    path = t.configmaps()
    for name, labels in (
        ("a", {"colour": "red", "size": "5"}),
        ("b", {"colour": "blue", "size": "12"}),
        ("c", {"size": "x"}),
        ("d", {}),
    ):
        t.quietly("POST", path, {"metadata": {"name": name, "labels": labels}})
    return path


def _names(t: Trial, path: str, **query: str) -> None:
    body = t.quietly("GET", path, query=query)
    t.note({"names": [item["metadata"]["name"] for item in body["items"]], "meta": sorted(body["metadata"])})


@case("selectors")
def by_label(t: Trial) -> None:
    path = _colours(t)
    for selector in (
        "colour=red",
        "colour==red",
        "colour!=red",
        "colour in (red,blue)",
        "colour notin (red)",
        "colour",
        "!colour",
        "size>5",
        "size<12",
        "colour=red,size=5",
        "colour=",
        "colour in ()",
        " colour = red , size ",
        "",
    ):
        _names(t, path, labelSelector=selector)


@case("selectors")
def bad_label_selectors(t: Trial) -> None:
    path = t.configmaps()
    for selector in (
        "=",
        "a=b,",
        "a b",
        "a in b",
        "a in (b",
        "a in (b c)",
        "a>=1",
        "!",
        "!a=b",
        "a>x",
        "a/b/c=d",
        "a=b c",
        "a=-",
        "(",
        "a in (-)",
    ):
        t.get(path, query={"labelSelector": selector})


@case("selectors")
def by_field(t: Trial) -> None:
    path = _colours(t)
    for selector in (
        "metadata.name=a",
        "metadata.name==a",
        "metadata.name!=a",
        "metadata.name!=a,metadata.name!=b",
        "metadata.namespace=nowhere",
        "metadata.name=",
        "",
    ):
        _names(t, path, fieldSelector=selector)


@case("selectors")
def bad_field_selectors(t: Trial) -> None:
    path = t.configmaps()
    for selector in ("nonsense", "data.k=v", "metadata.name=a=b", "metadata.name=\\x", "spec.colour!=red"):
        t.get(path, query={"fieldSelector": selector})


@case("selectors")
def both_at_once(t: Trial) -> None:
    _names(t, _colours(t), labelSelector="colour", fieldSelector="metadata.name!=a")


@case("selectors")
def of_pods_by_field(t: Trial) -> None:
    path = f"/api/v1/namespaces/{t.namespace()}/pods"
    pod = {"containers": [{"name": "c", "image": "i"}]}
    t.until_served(path.replace("/pods", "/serviceaccounts/default"))
    for name, node in (("p", "n1"), ("q", "n2")):
        t.quietly("POST", path, {"metadata": {"name": name}, "spec": {**pod, "nodeName": node}})
    for selector in ("spec.nodeName=n1", "status.phase=Pending", "status.phase!=Pending", "spec.restartPolicy=Always"):
        _names(t, path, fieldSelector=selector)
    t.get(path, query={"fieldSelector": "spec.colour=red"})


@case("selectors")
def of_custom_resources(t: Trial) -> None:
    path = t.crd("plains")
    for name, labels in ((t.name("sel1"), {"of": t.tag, "x": "1"}), (t.name("sel2"), {"of": t.tag})):
        metadata = {"name": name, "labels": labels}
        t.quietly("POST", path, {"apiVersion": t.api_version(), "kind": "Plain", "metadata": metadata})
    _names(t, path, labelSelector=f"of={t.tag},x")
    _names(t, path, labelSelector=f"of={t.tag}", fieldSelector=f"metadata.name={t.name('sel2')}")
    t.get(path, query={"fieldSelector": "spec.x=1"})


@case("selectors")
def fields_a_definition_makes_selectable(t: Trial) -> None:
    path = t.crd("tinteds")
    for name, colour in (("s1", "red"), ("s2", "blue")):
        body = {"apiVersion": t.api_version(), "kind": "Tinted", "metadata": {"name": t.name(name)}}
        t.quietly("POST", path, {**body, "spec": {"colour": colour}})
    _names(t, path, fieldSelector="spec.colour=red")
    _names(t, path, fieldSelector="spec.colour!=red")
    t.get(path, query={"fieldSelector": "spec.size=1"})


def _five(t: Trial) -> str:
    path = t.configmaps()
    for name in "edcba":
        t.quietly("POST", path, {"metadata": {"name": name}})
    return path


@case("pagination")
def pages_follow_each_other(t: Trial) -> None:
    path = _five(t)
    token = ""
    for _ in range(3):
        query = {"limit": "2", **({"continue": token} if token else {})}
        token = t.get(path, query=query).body["metadata"].get("continue", "")


@case("pagination")
def a_limit_that_is_large_enough(t: Trial) -> None:
    path = _five(t)
    for limit in ("5", "9", "0"):
        _names(t, path, limit=limit)


@case("pagination")
def a_page_is_a_moment_in_time(t: Trial) -> None:
    path = _five(t)
    token = t.get(path, query={"limit": "2"}).body["metadata"]["continue"]
    t.quietly("POST", path, {"metadata": {"name": "cc"}})
    t.quietly("DELETE", f"{path}/d")
    body = t.get(path, query={"limit": "9", "continue": token}).body
    t.note([item["metadata"]["name"] for item in body["items"]])


@case("pagination")
def selectors_count_what_they_leave(t: Trial) -> None:
    path = _five(t)
    t.get(path, query={"limit": "2", "fieldSelector": "metadata.name!=a"})
    t.get(path, query={"limit": "2", "labelSelector": "!x"})


@case("pagination")
def bad_limits_and_tokens(t: Trial) -> None:
    path = _five(t)
    t.get(path, query={"limit": "-1"})
    t.get(path, query={"limit": "two"})
    t.get(path, query={"limit": "2", "continue": "garbage"})
    token = t.quietly("GET", path, query={"limit": "2"})["metadata"]["continue"]
    t.get(path, query={"limit": "2", "continue": token, "resourceVersion": "5"})


@case("pagination")
def across_namespaces(t: Trial) -> None:
    first, second = t.namespace("page1"), t.namespace("page2")
    for namespace in (first, second):
        t.quietly(
            "POST", f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": "s", "labels": {"p": t.tag}}}
        )
    selector = {"labelSelector": f"p={t.tag}", "limit": "1"}
    body = t.get("/api/v1/secrets", query=selector).body
    t.get("/api/v1/secrets", query={**selector, "continue": body["metadata"]["continue"]})


@case("pagination")
def at_a_revision(t: Trial) -> None:
    path = _five(t)
    revision = t.quietly("GET", path)["metadata"]["resourceVersion"]
    t.quietly("DELETE", f"{path}/a")
    t.caught_up(path)
    _names(t, path, resourceVersion=revision, resourceVersionMatch="Exact")
    _names(t, path, resourceVersion=revision, resourceVersionMatch="NotOlderThan")
    _names(t, path, resourceVersion="0")
    _names(t, path, resourceVersion=revision)


@case("pagination")
def revisions_and_matches_that_do_not_go_together(t: Trial) -> None:
    path = t.configmaps()
    t.get(path, query={"resourceVersionMatch": "Exact"})
    t.get(path, query={"resourceVersionMatch": "Exact", "resourceVersion": "0"})
    t.get(path, query={"resourceVersionMatch": "Nearly", "resourceVersion": "5"})
    t.get(path, query={"resourceVersion": "abc"})
    t.get(path, query={"resourceVersion": "-5"})
    t.get(path, query={"resourceVersionMatch": "NotOlderThan", "continue": "x"})


@case("pagination")
def a_revision_of_the_future(t: Trial) -> None:
    path = t.configmaps()
    for query in ({"resourceVersion": "999999999"}, {"resourceVersion": "999999999", "resourceVersionMatch": "Exact"}):
        reply = t.server.http("GET", f"{path}?" + "&".join(f"{k}={v}" for k, v in query.items()))
        t.note([reply.code, reply.body["reason"]])


@case("pagination")
def get_at_a_revision(t: Trial) -> None:
    path = _five(t)
    t.caught_up(path)
    t.get(f"{path}/a", query={"resourceVersion": "0"})
    t.get(f"{path}/a", query={"resourceVersion": "abc"})
