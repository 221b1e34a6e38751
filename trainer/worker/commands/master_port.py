"""The port at which the ranks of a command meet. The program of the first rank listens there, some seconds later."""

import contextlib
import random
import socket

PORTS = range(20_000, 32_768)
"""Below those that systems assign to outgoing connections, one of which could take the port meanwhile."""


def find_master_port() -> int:
    """Return a port that is free now at all addresses of this node. Raises OSError where none is."""
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    raise OSError(f"no port from {PORTS.start} to {PORTS.stop - 1} is free on this node")
