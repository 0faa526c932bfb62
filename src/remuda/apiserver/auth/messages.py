"""Messages about access, in kube-apiserver's wording, because people and programs grep for them.

Values from clients (names, groups, paths) are quoted and escaped, so that they cannot forge a second line or look like
markup. No message contains a token or a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from remuda.apiserver.auth.user import Attributes, User
from remuda.kube import errors
from remuda.kube.go_text import quoted

_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def quote_list(texts: Iterable[str]) -> str:
    """Format a list as kube-apiserver does, without commas: `["a" "b"]`."""
    return "[" + " ".join(quoted(text) for text in texts) + "]"


def joined(sentences: Sequence[str]) -> str:
    """Join errors into one text, without repetitions, in brackets if there are more than one."""
    unique = list(dict.fromkeys(sentences))
    return unique[0] if len(unique) == 1 else "[" + ", ".join(unique) + "]"


def denial(user: User, attributes: Attributes) -> str:
    """Return the message of a denied request: `User "jane" cannot list resource "pods" in API group "" in the namespace
    "x"`.
    """
    who = f"User {quoted(user.name)} cannot {attributes.verb}"
    if attributes.path:
        return f"{who} path {quoted(attributes.path)}"
    resource = attributes.resource
    if attributes.subresource:
        resource = f"{resource}/{attributes.subresource}"
    what = f"{who} resource {quoted(resource)} in API group {quoted(attributes.group)}"
    if attributes.namespace:
        return f"{what} in the namespace {quoted(attributes.namespace)}"
    return f"{what} at the cluster scope"


def forbidden(user: User, attributes: Attributes, reason: str = "") -> errors.StatusError:
    """Return the 403 for a request that the authorizer denied; `reason` is the authorizer's reason."""
    why = denial(user, attributes).translate(_MARKUP)
    if reason:
        why = f"{why}: {reason}"
    if attributes.path:
        return errors.forbidden_request("", "", "", why)
    return errors.forbidden_request(attributes.group, attributes.resource, attributes.name, why)
