"""A wire to a server, which can break in the middle of an answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

HERE = "127.0.0.1"


class Wire:
    """Passes everything on between its callers and a server; breaks once where it is told to."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server((HERE, 0))
        self._breaks_at: bytes | None = None
        self.broken = Event()
        Thread(target=self._accept, name="wire", daemon=True).start()

    @property
    def port(self) -> int:
        """Where it is called."""
        return int(self._listener.getsockname()[1])

    def break_at(self, text: bytes) -> None:
        """Break the next connection on which an answer with this text is under way; the answer is lost."""
        self._breaks_at = text

    def close(self) -> None:
        """Take no more calls."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                server = socket.create_connection((HERE, self._port))
                for ends in ((caller, server), (server, caller)):
                    Thread(target=self._pass_on, args=ends, name="wire", daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with source, sink, suppress(OSError):
            while (data := source.recv(65536)) and not self._breaks(source, data):
                sink.sendall(data)
            for end in (source, sink):
                end.shutdown(socket.SHUT_RDWR)

    def _breaks(self, source: socket.socket, data: bytes) -> bool:
        if self._breaks_at is None or self._breaks_at not in data or source.getpeername()[1] != self._port:
            return False
        self._breaks_at = None
        self.broken.set()
        return True


@contextmanager
def a_wire(port: int) -> Iterator[Wire]:
    """Give a wire to a server of this machine."""
    wire = Wire(port)
    try:
        yield wire
    finally:
        wire.close()
