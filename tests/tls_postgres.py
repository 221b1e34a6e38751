"""TLS in front of a PostgreSQL that was built without it: the client's side is the real one."""

import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy.engine import make_url

from tests.tls import Authority

NO_GSS, TLS = struct.pack("!ii", 8, 80877104), struct.pack("!ii", 8, 80877103)
"""What a client may ask for, before it logs in."""

BLOCK_BYTES = 65_536
NEVER_SHOWN = "hunter2"


@contextmanager
def postgres_with_tls(url: str, own: Authority, **query: str) -> Iterator[str]:
    """Yield the URL of the same database through TLS at 127.0.0.1, with these settings of libpq and a password."""
    directory = make_url(url).query["host"]
    assert isinstance(directory, str)
    [path] = [one for one in Path(directory).glob(".s.PGSQL.*") if one.is_socket()]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=_accept, args=(listener, path, own), daemon=True)
        accepting.start()
        address = make_url(url).set(host="127.0.0.1", port=listener.getsockname()[1], password=NEVER_SHOWN, query=query)
        yield address.render_as_string(hide_password=False)
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()


def _accept(listener: socket.socket, path: Path, own: Authority) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_pass_on, args=(connection, path, own), daemon=True).start()


def _pass_on(connection: socket.socket, path: Path, own: Authority) -> None:
    with suppress(OSError), socket.socket(socket.AF_UNIX) as server:
        while (asked := connection.recv(8)) == NO_GSS:
            connection.sendall(b"N")
        assert asked == TLS
        connection.sendall(b"S")
        server.connect(str(path))
        with own.server.wrap_socket(connection, server_side=True) as encrypted:
            _copy(encrypted, server)


def _copy(encrypted: ssl.SSLSocket, server: socket.socket) -> None:
    """Both ways in one thread, because two must not use a TLS connection at the same time."""
    while True:
        readable = [encrypted] if encrypted.pending() else select.select([encrypted, server], [], [])[0]
        for one in readable:
            if not (block := one.recv(BLOCK_BYTES)):
                return
            (server if one is encrypted else encrypted).sendall(block)
