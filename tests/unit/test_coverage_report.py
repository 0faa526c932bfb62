"""The report of `make coverage`."""

from __future__ import annotations

from tests.lab.coverage_report import functions

_SOURCE = '''\
def plain(a: int) -> int:
    """Documented."""
    return a


class Thing:
    async def method(self) -> None:
        def inner() -> None: ...

        inner()
'''


def test_coverage_functions_have_class_prefix_and_exclude_nested_functions() -> None:
    assert [(name, first) for name, first, _ in functions(_SOURCE)] == [("plain", 1), ("Thing.method", 7)]


def test_coverage_function_body_excludes_first_line() -> None:
    lines = {name: body for name, _, body in functions(_SOURCE)}
    assert lines["plain"] == {2, 3}
    assert lines["Thing.method"] == {8, 9, 10}
