"""Secrecy tests: secrets appear in no message, error, error chain, repr or log, at any level."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import traceback
from collections.abc import Iterator

from remuda.lab.driver_conformance.subject import Subject
from remuda.providers.shared.drivers.spi import DriverError

_TELLING = 24  # so many characters of a line of a key reveal it


class _Everything(logging.Handler):
    def __init__(self, into: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self._into = into

    def emit(self, record: logging.LogRecord) -> None:
        self._into.append(self.format(record))


@contextlib.contextmanager
def _overheard() -> Iterator[list[str]]:
    """Record everything that is logged or printed."""
    heard: list[str] = []
    root, handler, printed = logging.getLogger(), _Everything(heard), io.StringIO()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            yield heard
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        heard.append(printed.getvalue())


def _pieces(secret: str) -> list[str]:
    """Split a secret: any line of a multi-line key reveals it; its BEGIN and END lines do not."""
    lines = [line.strip() for line in secret.splitlines() if not line.startswith("-----")]
    return [line for line in lines if len(lines) == 1 or len(line) >= _TELLING]


class Confidence:
    async def test_no_secret_is_ever_printed(self, subject: Subject) -> None:
        order = subject.order()
        acting = subject.act(order)
        with _overheard() as heard:
            await acting.check(order)
            server = await acting.create(order, subject.user_data)
            found = await acting.find(order)
            heard += [repr(value) for value in (acting, acting.options, acting.context, order, server, found)]
            heard += [repr(acting.context.record), repr(await acting.owned(order.owner))]
            await acting.remove(order)
            await self._fail(subject, heard)
        secrets = [*subject.secrets, *subject.credentials.values()]
        if server.ssh is not None:
            secrets.append(server.ssh.private_key)
        for text in [*heard, *subject.said]:
            assert not any(piece in text for secret in secrets for piece in _pieces(secret)), "a secret was printed"

    async def _fail(self, subject: Subject, heard: list[str]) -> None:
        order, refusing = subject.order(), subject.refusing()
        if refusing is not None:
            async with refusing:
                try:
                    await subject.act(order).create(order, subject.user_data)
                except DriverError as error:
                    heard += await asyncio.to_thread(traceback.format_exception, error)  # it reads sources
            await subject.act(order).remove(order)
        for options in subject.bad_options.values():
            order = subject.order(options=options)
            try:
                await subject.act(order).check(order)
            except DriverError as error:
                heard += await asyncio.to_thread(traceback.format_exception, error)  # it reads sources
