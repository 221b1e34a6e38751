"""A proxy before a service, which does to the answers what a test wants."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit


@contextmanager
def proxying(url: str, pass_on: Callable[[socket.socket, socket.socket], None]) -> Iterator[str]:
    """Yield its URL. `pass_on` gets each connection of a client, with one to the service, one pair at a time."""
    parts = urlsplit(url)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    near, _ = server.accept()
                except OSError:
                    return
                with near, socket.create_connection((parts.hostname, parts.port)) as far:
                    pass_on(near, far)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def with_close(request: bytes) -> bytes:
    """The request, so that the service closes the connection after its answer."""
    return request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
