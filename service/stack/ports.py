"""TCP ports of this machine: which are free, and whether a server listens."""

import random
import socket

PORTS = range(20_000, 32_768)
"""Below the ports that systems assign to outgoing connections, so that a restarted server gets its port back."""


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that is free now. It is not reserved."""
    ports = random.sample(PORTS, len(PORTS))
    return next(port for port in ports if is_free(host, port))


def accepts(host: str, port: int) -> bool:
    """Whether a server accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
