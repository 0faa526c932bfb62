"""Schemas of the kinds in these tests: two custom ones and small copies of built-in ones."""

from __future__ import annotations

from typing import Any

from remuda.kube.schema import OBJECT_META, Schema


def text(**more: Any) -> Schema:
    return Schema(type="string", **more)


def number(**more: Any) -> Schema:
    return Schema(type="integer", **more)


def struct(**properties: Schema) -> Schema:
    return Schema(type="object", properties=properties)


def mapping(values: Schema | None = None) -> Schema:
    return Schema(type="object", additional=values or text())


def listing(items: Schema, **more: Any) -> Schema:
    return Schema(type="array", items=items, **more)


def keyed(items: Schema, *keys: str) -> Schema:
    return Schema(type="array", items=items, list_type="map", list_map_keys=keys)


def kind(**properties: Schema) -> Schema:
    return struct(apiVersion=text(), kind=text(), metadata=OBJECT_META, **properties)


def flag() -> Schema:
    return Schema(type="boolean")


_SPEC = struct(
    replicas=number(default=1),
    mode=text(),
    ports=keyed(struct(port=number(), protocol=text(default="TCP"), note=text()), "port", "protocol"),
    items=keyed(
        struct(name=text(), value=text(), extra=text(), subs=keyed(struct(id=number(), v=text()), "id")),
        "name",
    ),
    tags=listing(text(), list_type="set"),
    nums=listing(number(), list_type="set"),
    atoms=listing(text()),
    cfg=mapping(),
    frozen=Schema(type="object", map_type="atomic", properties={"a": text(), "b": text()}),
    free=Schema(type="object", preserve_unknown=True),
    ios=Schema(int_or_string=True),
    nested=struct(a=text(), b=struct(c=text(), d=text())),
    deflt=struct(x=text(default="dx"), y=text()),
    nul=text(nullable=True),
    maps=mapping(struct(p=text(), q=text())),
)
_STATUS = struct(
    phase=text(),
    count=number(),
    conditions=keyed(struct(type=text(), status=text(), reason=text()), "type"),
)
WIDGET = kind(spec=_SPEC, status=_STATUS)

CONFIG_MAP = kind(data=mapping(), binaryData=mapping(), immutable=flag())

_SELECTOR = Schema(type="object", map_type="atomic", properties={"matchLabels": mapping()})
_CONTAINER = struct(
    name=text(),
    image=text(),
    imagePullPolicy=text(),
    ports=keyed(struct(containerPort=number(), protocol=text(default="TCP")), "containerPort", "protocol"),
    env=keyed(struct(name=text(), value=text()), "name"),
    resources=struct(limits=mapping()),
    terminationMessagePath=text(),
    terminationMessagePolicy=text(),
)
_POD_SPEC = struct(
    containers=keyed(_CONTAINER, "name"),
    dnsPolicy=text(),
    restartPolicy=text(),
    schedulerName=text(),
    securityContext=struct(runAsUser=number()),
    terminationGracePeriodSeconds=number(),
)
_TIME = text(format="date-time")
DEPLOYMENT = kind(
    spec=struct(
        replicas=number(),
        paused=flag(),
        progressDeadlineSeconds=number(),
        revisionHistoryLimit=number(),
        selector=_SELECTOR,
        strategy=struct(
            type=text(),
            rollingUpdate=struct(maxSurge=Schema(int_or_string=True), maxUnavailable=Schema(int_or_string=True)),
        ),
        template=struct(metadata=OBJECT_META, spec=_POD_SPEC),
    ),
    status=struct(
        replicas=number(),
        conditions=keyed(
            struct(
                type=text(),
                status=text(),
                reason=text(),
                message=text(),
                lastUpdateTime=_TIME,
                lastTransitionTime=_TIME,
            ),
            "type",
        ),
    ),
)
SERVICE = kind(
    spec=struct(
        selector=Schema(type="object", additional=text(), map_type="atomic"),
        ports=keyed(
            struct(port=number(), protocol=text(default="TCP"), name=text(), targetPort=Schema(int_or_string=True)),
            "port",
            "protocol",
        ),
        type=text(),
        clusterIP=text(),
        clusterIPs=listing(text()),
        internalTrafficPolicy=text(),
        ipFamilies=listing(text()),
        ipFamilyPolicy=text(),
        sessionAffinity=text(),
    ),
    status=struct(loadBalancer=struct()),
)
ROLE = kind(rules=listing(struct(apiGroups=listing(text()), resources=listing(text()), verbs=listing(text()))))

BY_KIND = {
    "Widget": WIDGET,
    "Gadget": WIDGET,
    "ConfigMap": CONFIG_MAP,
    "Deployment": DEPLOYMENT,
    "Service": SERVICE,
    "Role": ROLE,
}
WITH_STATUS = {"Widget", "Deployment", "Service"}
