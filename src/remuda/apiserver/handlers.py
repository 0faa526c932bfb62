"""Handlers of requests that store no object: reviews, tokens, bindings, evictions; and guards of RBAC writes.

They are registered with the registry under (table, subresource); the verbs know none of them. The request objects are
not stored, but as with any create, the answer lists the owners of their fields.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from remuda.apiserver.apply import managed
from remuda.apiserver.auth import escalation, reviews
from remuda.apiserver.auth.authenticate import Authenticator
from remuda.apiserver.auth.jws import Signer
from remuda.apiserver.auth.rbac import RbacAuthorizer
from remuda.apiserver.auth.token_request import request_token
from remuda.apiserver.auth.tokens import TokenSettings
from remuda.apiserver.registry.bindings import Bindings
from remuda.apiserver.registry.calls import Call, WriteOptions, Written
from remuda.apiserver.registry.evictions import Evictions
from remuda.apiserver.registry.identity import identify
from remuda.apiserver.registry.registry import Handler, Registry, answer
from remuda.apiserver.registry.validation import decode_strictly
from remuda.apiserver.resource import Obj
from remuda.kube import clock

_RBAC = "rbac.authorization.k8s.io"
Review = Callable[[Call, Obj], Obj]


def register_handlers(
    registry: Registry,
    authenticator: Authenticator,
    authorizer: RbacAuthorizer,
    signer: Signer,
    token_settings: TokenSettings,
) -> None:
    for table, review in _reviews(authenticator, authorizer).items():
        registry.handle(table, "", _reviewing(registry, review))
    registry.handle("serviceaccounts", "token", _issuing(registry, signer, token_settings))
    registry.handle("pods", "binding", Bindings(registry).bind)
    registry.handle("pods", "eviction", Evictions(registry).evict)
    for resource in escalation.RESOURCES:
        registry.guard(f"{resource}.{_RBAC}", _guarding(resource, authorizer))


def _reviews(authenticator: Authenticator, authorizer: RbacAuthorizer) -> dict[str, Review]:
    authorization, authentication = reviews.AUTHORIZATION, reviews.AUTHENTICATION
    return {
        f"tokenreviews.{authentication}": lambda call, obj: reviews.token_review(obj, authenticator),
        f"selfsubjectreviews.{authentication}": lambda call, obj: reviews.self_subject_review(call.user, time.time()),
        f"subjectaccessreviews.{authorization}": lambda call, obj: reviews.subject_access_review(
            obj, authorizer, call.budget
        ),
        f"selfsubjectaccessreviews.{authorization}": lambda call, obj: reviews.self_subject_access_review(
            obj, call.user, authorizer, call.budget
        ),
        f"localsubjectaccessreviews.{authorization}": lambda call, obj: reviews.local_subject_access_review(
            obj, call.namespace, authorizer, call.budget
        ),
        f"selfsubjectrulesreviews.{authorization}": lambda call, obj: reviews.self_subject_rules_review(
            obj, call.user, authorizer
        ),
    }


def _reviewing(registry: Registry, review: Review) -> Handler:
    async def handle(call: Call, obj: Obj, options: WriteOptions) -> Written:
        identify(call, obj)
        decode_strictly(call, registry.resources.shape(call.resource).structural, obj, options.field_validation)
        resource = call.resource
        managed.on_update(
            None,
            obj,
            schema=resource.schema,
            manager=options.field_manager,
            api_version=resource.api_version,
            now=clock.now(),
            blank=resource.blank,
        )
        return answer(review(call, obj))

    return handle


def _issuing(registry: Registry, signer: Signer, settings: TokenSettings) -> Handler:
    async def handle(call: Call, obj: Obj, options: WriteOptions) -> Written:
        issued = request_token(
            obj,
            call.namespace,
            call.name,
            settings=settings,
            signer=signer,
            lookup=registry.store.get,
            now=time.time(),
            manager=options.field_manager,
            field_validation=options.field_validation,
        )
        call.warnings.extend(issued.warnings)
        return answer(issued.obj)

    return handle


def _guarding(resource: str, authorizer: RbacAuthorizer) -> Callable[[Call, Obj, Obj | None], None]:
    def guard(call: Call, new: Obj, old: Obj | None) -> None:
        escalation.check_write(resource, call.user, call.namespace, new, old, authorizer, call.name)

    return guard
