"""TCP ports of this machine: which are free, and whether a server listens."""

import contextlib
import errno
import random
import shlex
import socket
import time

RELEASE_SECONDS = 3.0
POLL_SECONDS = 0.02
MAX_COMMAND = 120
PORTS = range(20_000, 32_768)
"""Below the ports that systems assign to outgoing connections, so that a restarted server gets its port back."""

MIN_UNPRIVILEGED, MAX_PORT = 1024, 65_535
ANY_PORT = 8000
"""What is proposed in place of a port that has no next one."""

NEAREST = 20
"""So many ports are tried for the one that is proposed."""

_given: set[int] = set()


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    return _why_not_free(host, port) is None


def _why_not_free(host: str, port: int) -> OSError | None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


def becomes_free(host: str, port: int) -> bool:
    """Whether a server can listen there now, or soon: the socket of a killed process lives a little longer than it."""
    deadline = time.monotonic() + RELEASE_SECONDS
    while not is_free(host, port):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def holder_of(port: int) -> str | None:
    """The process that listens on a port, in words. None if it cannot be seen, as another user's cannot."""
    import psutil  # noqa: PLC0415 - every command of the command line imports this module

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            sockets = process.net_connections("tcp")
            if any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in sockets):
                return f"process {process.pid} ({shlex.join(process.cmdline())[:MAX_COMMAND]})"
    return None


def taken(host: str, port: int, option: str, variable: str) -> str:
    """What to say of a port that does not become free, and what to do. `option` and `variable` set the port."""
    error = _why_not_free(host, port)
    other = _free_after(host, port)
    choose = f"choose another port: `--{option} {other}` or {variable}={other}"
    if error is None or error.errno == errno.EADDRINUSE:
        holder = holder_of(port)
        by = f" by {holder}" if holder else ""
        return f"port {port} of {host} is already taken{by}. Stop what listens there, or {choose}"
    why = f"port {port} of {host} cannot be used: {error.strerror}"
    if error.errno == errno.EACCES:
        return f"{why} (ports below {MIN_UNPRIVILEGED} need privileges). Start it with them, or {choose}"
    return f"{why}. Choose another host, which is an address of this machine"


def _free_after(host: str, port: int) -> int:
    """The next port that is free, or the next one if none of the nearest ones is."""
    first = port + 1 if MIN_UNPRIVILEGED <= port < MAX_PORT else ANY_PORT
    nearest = range(first, min(first + NEAREST, MAX_PORT + 1))
    return next((other for other in nearest if is_free(host, other)), first)


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that is free now. It is not reserved; but this process is not given the same one twice.

    Ray, MLflow and the service get their ports before any of them listens.
    """
    ports = sorted(random.sample(PORTS, len(PORTS)), key=_given.__contains__)
    port = next(port for port in ports if is_free(host, port))
    _given.add(port)
    return port


def accepts(host: str, port: int) -> bool:
    """Whether a server accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
