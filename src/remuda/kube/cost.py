"""Cost budget of one request: limits the work that a body, a selector or a schema may cause.

One process serves every client on one event loop, so a request should not block the loop for more than about 100 ms. A
body of 3 MiB can contain a million values and cost seconds, so a limit of bytes is not enough. All code that walks
input charges the budget of its request, which is passed explicitly; a caller without a request uses a new one. What
must stay true: charging costs nothing for small requests (a body of less than `FREE_BYTES` cannot exceed a limit), and
a refusal names the excess and the limit, in the form of kube-apiserver's refusals.
"""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.kube.errors import StatusError, bad_request


class RequestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one request. kube-apiserver limits only the bytes; real clients stay far below the other limits.

    The largest definition of Cluster API 1.13 (KubeadmControlPlane) has 4,200 values, 851 schema nodes and 9 rules of
    613 characters together. Ours have at most 1,100 values. A Secret of 1 MiB has a dozen values.
    """

    # Values of one object: each member of an object and each element of a list. Validation costs about 1 µs for each.
    values: int = 50_000
    # Objects and lists among these, field ownership aside. Defaults, ownership and validation cost 5 to 22 µs for each.
    objects: int = 4_000
    # Members of one object, or elements of one list: limits comparisons of each element with all others.
    items: int = 10_000
    # Requirements of the selectors of one request. Each is checked for every object that is listed: 10,000 objects and
    # 250 requirements take 0.2 s.
    requirements: int = 250
    # Values in these (`in (a,b,…)`): each costs 2 µs to check, and nothing to match.
    selector_values: int = 5_000
    # Maximum length of a query string (`http.limits.head_bytes`), so that a review may ask for the selectors of a list.
    selector_bytes: int = 64 * 1024
    # Versions of one definition: each is served, discovered and documented separately.
    versions: int = 100
    # Nodes of the schemas of one definition, all versions together: each costs about 20 µs to compile, in a thread.
    schema_nodes: int = 20_000
    # CEL rules of one definition, and characters of all their expressions: a short rule costs about 80 µs to compile.
    rules: int = 1_000
    expression_characters: int = 100_000
    # Nodes times rules: a rule may refer to the whole schema, whose type is then walked once per rule (0.2 µs per
    # node).
    compiled_terms: int = 2_000_000


LIMITS = RequestLimits()

# Limits of a definition: its schemas have their own limits, and are checked in a thread.
DEFINITION_LIMITS = RequestLimits(objects=LIMITS.values)

# Every value takes at least two bytes, itself and a separator; an object or a list takes three.
FREE_BYTES = min(2 * LIMITS.items, 2 * LIMITS.values, 3 * LIMITS.objects)

_PIECE = 64 * 1024


class Budget:
    """Counter of a request's cost so far; each `charge_` method raises an error above a limit."""

    __slots__ = ("limits", "received", "requirements", "selector_values")

    def __init__(self, limits: RequestLimits = LIMITS) -> None:
        self.limits = limits
        self.received = 0  # bytes of the body
        self.requirements = 0
        self.selector_values = 0

    def charge_text(self, body: bytes) -> bool:
        """Charge JSON before it is decoded. Return whether `charge_object` must count its values as well. Raise 413.

        Decoding a million values takes a second, so a body with far too many is refused by its text. Every value has a
        separator before or after it, and every container a bracket: there are at most twice as many marks as values.
        """
        self.received = len(body)
        # A large Secret or text needs no closer count: it has few marks in any case.
        if len(body) <= FREE_BYTES or marks(body) < min(self.limits.items, self.limits.objects):
            return False
        most = 2 * self.limits.values + 1
        if _marks_outside_strings(body, most) > most:
            raise too_large(f"The allowed maximum number of values in an object is {self.limits.values}")
        return True

    def charge_result(self, value: dict[str, Any], stored: int) -> None:
        """Charge the result of a patch of an object of `stored` bytes: many small patches make a large object too.

        Field ownership does not count: it grows with the number of managers, which clients cannot control.
        """
        if self.received + stored > FREE_BYTES:
            self._charge(_without_ownership(value)[0], self.limits.objects)

    def charge_object(self, value: Any) -> None:
        """Charge a decoded object, level by level and without recursion. Raise 413.

        A list is a JSON patch: its operations have their own limit and error (`patches.json_patch`). Clients that
        update an object send its field ownership back, which has an object for each field.
        """
        if isinstance(value, list):
            self._charge(value, self.limits.objects + len(value))
            return
        value, ownership = _without_ownership(value)
        self._charge(value, self.limits.objects)
        self._charge(ownership, self.limits.values)

    def _charge(self, value: Any, most_objects: int) -> None:
        most, items = self.limits.values, self.limits.items
        level = [value] if isinstance(value, dict | list) else []
        count = objects = 0
        while level:
            objects += len(level)
            if objects > most_objects:
                raise too_large(f"The allowed maximum number of objects and lists in an object is {most_objects}")
            below: list[Any] = []
            for container in level:
                size = len(container)
                count += size
                if size > items and (container is not value or isinstance(value, dict)):
                    what = "members in an object" if isinstance(container, dict) else "elements in a list"
                    raise too_large(f"The allowed maximum number of {what} is {items}, got {size}")
                if count > most:
                    raise too_large(f"The allowed maximum number of values in an object is {most}")
                inner = container.values() if isinstance(container, dict) else container
                below.extend(x for x in inner if isinstance(x, dict | list))
            level = below

    # -- selectors -----------------------------------------------------------------------------------------------

    def charge_selector(self, text: str) -> None:
        """Charge the text of a selector, before it is parsed. Raises 400."""
        if len(text) > self.limits.selector_bytes:
            raise bad_request(f"selector is too long: must have at most {self.limits.selector_bytes} bytes")

    def charge_requirement(self) -> None:
        """Charge one requirement of a selector. Raises 400."""
        self.requirements += 1
        if self.requirements > self.limits.requirements:
            raise bad_request(f"selector has too many requirements: must have at most {self.limits.requirements}")

    def charge_values(self, count: int) -> None:
        """Charge the values of a requirement, before they are checked. Raises 400."""
        self.selector_values += count
        if self.selector_values > self.limits.selector_values:
            raise bad_request(f"selector has too many values: must have at most {self.limits.selector_values}")


def _without_ownership(value: Any) -> tuple[Any, Any]:
    """Return an object without its field ownership, and the ownership."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return value, None
    return {**value, "metadata": {**metadata, "managedFields": None}}, metadata["managedFields"]


def marks(text: bytes) -> int:
    """Count separators and opening brackets of JSON: there are at least as many as values."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _marks_outside_strings(body: bytes, most: int) -> int:
    """Count the separators and opening brackets of JSON outside its strings; stop a little above `most`."""
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    count = inside = 0
    for start in range(0, len(body), _PIECE):
        pieces = body[start : start + _PIECE].split(b'"')
        count += marks(b"".join(pieces[inside::2]))
        if count > most:
            break
        inside ^= (len(pieces) - 1) & 1
    return count


def too_large(why: str) -> StatusError:
    """Return a 413 in kube-apiserver's wording for its limit on the operations of a JSON patch."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {why}")
