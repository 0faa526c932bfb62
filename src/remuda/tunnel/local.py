"""Connection to a local service, joined to a stream of the tunnel.

Its socket is non-blocking and registered with the session's selector: for reading while the stream has room, for
writing while the stream has data that the socket did not accept.
"""

from __future__ import annotations

import selectors
import socket
import struct
from collections.abc import Callable

from remuda.tunnel import protocol
from remuda.tunnel.dialer import describe_error
from remuda.tunnel.protocol import Buffer
from remuda.tunnel.streams import Stream

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

_CHUNK = 64 * 1024  # read at once
_CHUNKS_PER_TURN = 4  # before other sockets are read
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER 0, so that the service sees a reset and not an orderly end


class Local:
    """Connection to a local service. `forget` is called with it when it has ended."""

    __slots__ = ("_forget", "_interest", "_selector", "_socket", "_stream")

    def __init__(
        self,
        selector: selectors.BaseSelector,
        stream: Stream,
        made: socket.socket,
        forget: Callable[[Local], None],
    ) -> None:
        self._selector = selector
        self._stream = stream
        self._socket = made
        self._forget = forget
        self._interest = 0
        self._watch(READ)

    def on_ready(self, events: int) -> None:
        if events & WRITE:
            self._stream.flush()
            if not self._stream.held:
                self._watch(self._interest & ~WRITE)
        # The `flush` above may have closed the socket or the stream, and then nothing may be read.
        if events & READ and self._interest & READ:
            self._read()

    def _read(self) -> None:
        for _ in range(_CHUNKS_PER_TURN):
            try:
                data = self._socket.recv(_CHUNK)
            except BlockingIOError:
                return
            except OSError as error:
                self._stream.fail(f"read: {describe_error(error)}")
                self._close()
                return
            # The protocol has no half-closed streams: the end of one direction ends both.
            if not data:
                self._stream.close()
                self._close()
                return
            if not self._stream.write(data):
                self._watch(self._interest & ~READ)
                return

    # Calls of the stream

    def take(self, data: Buffer) -> int:
        try:
            count = self._socket.send(data)
        except BlockingIOError:
            count = 0
        except OSError as error:
            self._stream.fail(f"write: {describe_error(error)}")
            self._close()
            return 0
        if count < len(data):
            self._watch(self._interest | WRITE)
        return count

    def room(self) -> None:
        self._watch(self._interest | READ)

    def opened(self) -> None:
        pass

    def ended(self, reason: str) -> None:
        if reason != protocol.END and self._is_open and self._socket.family != socket.AF_UNIX:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._close()

    # The socket

    @property
    def _is_open(self) -> bool:
        return self._socket.fileno() >= 0

    def _close(self) -> None:
        if self._is_open:
            self._watch(0)
            self._socket.close()
            self._forget(self)

    def _watch(self, interest: int) -> None:
        if interest == self._interest or not self._is_open:
            return
        if not self._interest:
            self._selector.register(self._socket, interest, self.on_ready)
        elif interest:
            self._selector.modify(self._socket, interest, self.on_ready)
        else:
            self._selector.unregister(self._socket)
        self._interest = interest
