"""A network between two processes that can be cut."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Cable:
    """What connects to `url` reaches a port of this machine, until it is cut.

    Then no byte passes, without an error: connections stay open, and new ones are accepted. When it is restored,
    everything that was sent meanwhile arrives, as TCP does in a real network.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._is_connected = threading.Event()
        self._is_connected.set()
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._server]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.getsockname()[1]}"

    @contextmanager
    def laid(self) -> Iterator["Cable"]:
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.restore()
            for end in self._open:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
            thread.join()

    def cut(self) -> None:
        self._is_connected.clear()

    def restore(self) -> None:
        self._is_connected.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._open += [near, far]
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):  # either end is closed
            while data := source.recv(65536):
                self._is_connected.wait()
                target.sendall(data)
            self._is_connected.wait()
            target.shutdown(socket.SHUT_WR)
