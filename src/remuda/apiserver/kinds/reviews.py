"""Reviews: TokenReview, SubjectAccessReview and their like. A client creates one and gets the answer at once.

They are never stored. Handlers of authentication and authorization produce the answers.
"""

from __future__ import annotations

from remuda.apiserver.kinds.declare import declare
from remuda.apiserver.resource import Resource

AUTHENTICATION_GROUP = "authentication.k8s.io"
AUTHORIZATION_GROUP = "authorization.k8s.io"


def _review(group: str, kind: str, *, namespaced: bool = False) -> Resource:
    return declare(
        group, "v1", kind, f"{kind.lower()}s", namespaced=namespaced, verbs=("create",), has_generation=False
    )


SELF_SUBJECT_REVIEWS = _review(AUTHENTICATION_GROUP, "SelfSubjectReview")
TOKEN_REVIEWS = _review(AUTHENTICATION_GROUP, "TokenReview")
LOCAL_SUBJECT_ACCESS_REVIEWS = _review(AUTHORIZATION_GROUP, "LocalSubjectAccessReview", namespaced=True)
SELF_SUBJECT_ACCESS_REVIEWS = _review(AUTHORIZATION_GROUP, "SelfSubjectAccessReview")
SELF_SUBJECT_RULES_REVIEWS = _review(AUTHORIZATION_GROUP, "SelfSubjectRulesReview")
SUBJECT_ACCESS_REVIEWS = _review(AUTHORIZATION_GROUP, "SubjectAccessReview")

AUTHENTICATION = (SELF_SUBJECT_REVIEWS, TOKEN_REVIEWS)
AUTHORIZATION = (
    LOCAL_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_RULES_REVIEWS,
    SUBJECT_ACCESS_REVIEWS,
)
