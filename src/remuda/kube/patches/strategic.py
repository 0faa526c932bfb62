"""Strategic merge patch: a merge patch that knows which lists are keyed (`patchMergeKey`) and takes directives.

Directives in the patch: `$patch: replace|delete` in an object, `$patch: delete|replace` in an element of a keyed list,
`$retainKeys: [...]`, `$deleteFromPrimitiveList/<field>: [...]`, `$setElementOrder/<field>: [...]`. Objects that the
schema does not declare are merged, and such lists are replaced. Lists are ordered as the server orders them: elements
in the patch come in the patch's order, the others stay in place relative to their neighbours.
"""

from __future__ import annotations

from typing import Any

from remuda.kube import errors
from remuda.kube.errors import StatusError
from remuda.kube.go_text import decoder_type, go_type, go_value
from remuda.kube.patches.json_copy import copy_json
from remuda.kube.patches.list_order import KeyOf, interleaved
from remuda.kube.schema import Schema

_DIRECTIVE = "$patch"
_RETAIN_KEYS = "$retainKeys"
_DELETE_FROM = "$deleteFromPrimitiveList"
_SET_ORDER = "$setElementOrder"

Json = dict[str, Any]


def apply_strategic_patch(original: Json, patch: Any, schema: Schema | None, *, in_place: bool = False) -> Json:
    if patch is not None and type(patch) is not dict:
        raise errors.bad_request(
            f"json: cannot unmarshal {decoder_type(patch)} into Go value of type map[string]interface {{}}"
        )
    try:
        # Merging consumes directives from the patch, so it works on a copy: a retried write needs the patch again.
        return _merge_map(original if in_place else copy_json(original), copy_json(patch or {}), schema)
    except RecursionError:
        raise errors.bad_request("the patch is nested too deeply") from None


def _failure(message: str) -> StatusError:
    """Return the error that upstream gives here: code 500, no reason."""
    return StatusError(500, "", message)


def _wrong_type(wanted: Any, found: Any) -> StatusError:
    return _failure(f"expected a {go_type(wanted)}, but received a {go_type(found)}")


def _no_merge_key(element: Any, merge_key: str) -> StatusError:
    return _failure(f"map: {go_value(element)} does not contain declared merge key: {merge_key}")


def _unknown_directive(directive: Any, element: Any) -> StatusError:
    return _failure(f"unknown patch type: {go_value(directive)} in map: {go_value(element)}")


def _member(schema: Schema | None, key: str) -> Schema | None:
    if schema is None:
        return None
    return schema.properties.get(key) or schema.additional


def _strategy(schema: Schema | None) -> str:
    """Return `merge`, `replace` or empty; retainKeys only tells clients to send that directive."""
    found = [name for name in schema.patch_strategy if name != "retainKeys"] if schema else []
    return found[0] if found else ""


def _merge_map(target: Json, patch: Json, schema: Schema | None) -> Json:
    if _DIRECTIVE in patch:
        return _directed_map(patch)
    _retain_keys(target, patch)
    _merge_ordered_lists(target, patch, schema)
    for name, value in patch.items():
        deletes = name.startswith(_DELETE_FROM)
        key = _directive_target(name, _DELETE_FROM, "invalid patch format of primitive list") if deletes else name
        if value is None:
            target.pop(key, None)
        elif key not in target or type(target[key]) is not type(value):
            if not deletes:
                _take_over(target, key, value)
        elif type(value) is dict:
            _merge_member_map(target, key, value, _member(schema, key))
        elif type(value) is list:
            target[key] = _merge_list(target[key], value, _member(schema, key), deletes)
        else:
            target[key] = value
    return target


def _directed_map(patch: Json) -> Json:
    directive = patch[_DIRECTIVE]
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    raise _unknown_directive(directive, patch)


def _directive_target(name: str, prefix: str, complaint: str) -> str:
    start, slash, key = name.partition("/")
    if start != prefix or not slash:
        raise errors.bad_request(complaint)
    return key


def _merge_member_map(target: Json, key: str, value: Json, schema: Schema | None) -> None:
    target[key] = value if _strategy(schema) == "replace" else _merge_map(target[key], value, schema)


def _take_over(target: Json, key: str, value: Any) -> None:
    """Return the patch's value without its nulls and without elements that a directive marks."""
    clean = _without_directives(_without_nulls(value))
    if clean is _DROPPED:
        target.pop(key, None)
    else:
        target[key] = clean


def _without_nulls(value: Any) -> Any:
    if type(value) is dict:
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if type(value) is list else value


_DROPPED = object()


def _without_directives(value: Any) -> Any:
    if type(value) is dict:
        if _DIRECTIVE in value:
            return _DROPPED
        members = ((key, _without_directives(item)) for key, item in value.items())
        return {key: item for key, item in members if item is not _DROPPED}
    if type(value) is list:
        return [item for item in map(_without_directives, value) if item is not _DROPPED]
    return value


def _retain_keys(target: Json, patch: Json) -> None:
    if _RETAIN_KEYS not in patch:
        return
    keys = patch.pop(_RETAIN_KEYS)
    complaint = "invalid patch format of retainKeys"
    if type(keys) is not list:
        raise errors.bad_request(complaint)
    kept = {key for key in keys if type(key) is str}
    for key, value in patch.items():
        if value is not None and key not in kept and not key.startswith((_DELETE_FROM, _SET_ORDER)):
            raise errors.bad_request(complaint)
    for key in [key for key in target if key not in kept]:
        del target[key]


def _merge_list(original: list[Any], patch: list[Any], schema: Schema | None, deletes: bool = False) -> list[Any]:
    if not deletes and _strategy(schema) != "merge":
        return patch
    if not original and not patch:
        return original
    merge_key = schema.patch_merge_key if schema else ""
    key_of = KeyOf(merge_key)
    if not _are_maps(original, patch):
        if deletes:
            doomed = {key_of.scalar(item) for item in patch}
            return [item for item in original if key_of.scalar(item) not in doomed]
        merged = list({key_of.scalar(item): item for item in [*reversed(patch), *reversed(original)]}.values())
        return interleaved(merged, patch, original, KeyOf(""))
    if not merge_key:
        raise _failure(
            f"cannot merge lists without merge key for {schema.items.type if schema and schema.items else ''}"
        )
    original, patch = _apply_element_directives(original, patch, key_of)
    merged = _merge_elements(original, patch, key_of, schema.items if schema else None)
    return interleaved(merged, patch, original, key_of)


def _are_maps(*lists: list[Any]) -> bool:
    """Return whether the elements are objects; all must be of one type, and none a list."""
    kinds = {type(item) for items in lists for item in items}
    if list in kinds:
        raise StatusError(422, "Invalid", "the server rejected our request due to an error in our request", details={})
    if len(kinds) > 1 or type(None) in kinds:
        raise _failure(f"list element types are not identical: {go_value(list(lists))}")
    if not kinds:
        raise _failure("no elements in any of the given slices")
    return kinds == {dict}


def _apply_element_directives(original: list[Any], patch: list[Any], key_of: KeyOf) -> tuple[list[Any], list[Any]]:
    """Delete and replace elements as the patch's directives say; return the patch without those elements."""
    plain, replaces = [], False
    doomed: set[Any] = set()
    for element in patch:
        directive = element.get(_DIRECTIVE, _DROPPED)
        if directive is _DROPPED:
            plain.append(element)
        elif directive == "delete":
            doomed.add(_key(element, key_of))
        elif directive == "replace":
            replaces = True
        elif directive == "merge":
            raise _failure("merging lists cannot yet be specified in the patch")
        else:
            raise _unknown_directive(directive, element)
    if doomed:  # at once: one pass for each would be quadratic
        original = [item for item in original if key_of.find(item) not in doomed]
    return (plain, []) if replaces else (original, plain)


def _key(element: Any, key_of: KeyOf) -> Any:
    found = key_of.find(element)
    if found is None:
        raise _no_merge_key(element, key_of.merge_key)
    return found


def _merge_elements(original: list[Any], patch: list[Any], key_of: KeyOf, schema: Schema | None) -> list[Any]:
    merged = list(original)
    places: dict[Any, int] = {}
    for index, element in enumerate(merged):
        places.setdefault(_key(element, key_of), index)
    for element in patch:
        place = places.setdefault(_key(element, key_of), len(merged))
        if place == len(merged):
            merged.append(element)
        else:
            merged[place] = _merge_map(merged[place], element, schema)
    return merged


def _merge_ordered_lists(target: Json, patch: Json, schema: Schema | None) -> None:
    """Merge each list that comes with a `$setElementOrder/<field>`, and remove both from the patch."""
    for name in [name for name in patch if name.startswith(_SET_ORDER)]:
        order = patch.pop(name)
        if type(order) is not list:
            raise _wrong_type([], order)
        key = _directive_target(name, _SET_ORDER, "invalid patch format of setElementOrder list")
        for holder in (target, patch):
            if type(holder.get(key, [])) is not list:
                raise _wrong_type([], holder[key])
        _merge_ordered_list(target, patch, key, order, _member(schema, key))


def _merge_ordered_list(target: Json, patch: Json, key: str, order: list[Any], schema: Schema | None) -> None:
    key_of = KeyOf(schema.patch_merge_key if schema else "")
    original, changes = target.get(key), patch.pop(key, None)
    _check_order(changes or [], order, key_of)
    if original is None and changes is None:
        return
    if original is None:
        merged = _without_directives(changes)
    elif changes is None:
        merged = original
    else:
        merged = _merge_list(list(original), changes, schema)
    _are_maps(original or [], changes or [])
    target[key] = interleaved(merged, order, original or [], key_of)


def _check_order(changes: list[Any], order: list[Any], key_of: KeyOf) -> None:
    """Require that the patch's elements are in the order list, in the same sequence."""
    if not order or not changes:
        return
    wanted = iter(order)
    for element in changes:
        if type(element) is dict and _DIRECTIVE in element:
            continue
        key = _order_key(element, key_of)
        if not any(_order_key(candidate, key_of) == key for candidate in wanted):
            raise _failure(
                f"The order in patch list:\n{go_value(changes)}\n doesn't match {_SET_ORDER} list:\n{go_value(order)}\n"
            )


def _order_key(element: Any, key_of: KeyOf) -> Any:
    if key_of.merge_key and type(element) is not dict:
        raise _wrong_type({}, element)
    return _key(element, key_of)
