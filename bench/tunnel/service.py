"""The service behind the client's end, as a process of its own: what a connection asks for, it does.

A connection begins with eight bytes, a letter and a number of mebibytes: `S` sends so many, `R` receives so many and
then says so with one byte, `E` returns whatever comes.
"""

from __future__ import annotations

import socket
import threading

MEBIBYTE = 1 << 20
_ZEROS = bytes(MEBIBYTE)


def ask(address: tuple[str, int], letter: str, mebibytes: int = 0) -> socket.socket:
    made = socket.create_connection(address, 60)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.sendall(letter.encode() + b"%07d" % mebibytes)
    return made


def give(connection: socket.socket, mebibytes: int) -> None:
    for _ in range(mebibytes):
        connection.sendall(_ZEROS)


def take(connection: socket.socket, mebibytes: int) -> None:
    buffer = bytearray(MEBIBYTE)
    left = mebibytes * MEBIBYTE
    while left:
        count = connection.recv_into(buffer)
        if not count:
            raise EOFError(f"the stream ended {left} bytes too early")
        left -= count


def _answer(connection: socket.socket) -> None:
    with connection:
        try:
            wish = connection.recv(8, socket.MSG_WAITALL)
            if wish[:1] == b"S":
                give(connection, int(wish[1:]))
                connection.recv(1)
            elif wish[:1] == b"R":
                take(connection, int(wish[1:]))
                connection.sendall(b".")
            else:
                while data := connection.recv(65536):
                    connection.sendall(data)
        except (OSError, EOFError):
            pass  # whoever asked knows why


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
