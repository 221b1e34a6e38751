"""What a child that a worker forks has of Ray, and gives up.

It has the worker's connection to its node's raylet, which takes the worker for dead when the connection is closed. Such
a child may outlive the worker, as those of a ProcessPoolExecutor may: Ray would notice its death only after theirs.

It has Ray's handler of SIGTERM, too, which is written in Python. It does not run in a child that waits for a lock of
multiprocessing and was just woken when the signal came; and Python drops a signal that comes to a child while it
starts. `Pool.terminate()`, also by the garbage collector, would wait for such a child without end.
"""

import contextlib
import os
import signal
import socket
import stat
import threading

from ray._private import worker as ray_worker

IS_RELEASED = "paceline_releases_raylet"
"""The attribute of Ray's description of its node that says that the children of this process give it up."""


def detach_children_from_ray() -> None:
    """From now on, a child that Python forks gives up both at its start. A repeated call does nothing more.

    It could not use Ray anyhow: a fork copies none of the threads that Ray needs.
    """
    node = ray_worker._global_node  # noqa: SLF001 - Ray offers no other way
    if node is None or hasattr(node, IS_RELEASED):
        return
    setattr(node, IS_RELEASED, True)
    raylet = node.raylet_socket_name
    connections = _connected_to(raylet)

    def release() -> None:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in connections:  # its number stays in use, because Ray's code still has it
            if _peer_of(descriptor) == raylet:  # or else this is the child of a child, and it is a file of that one
                os.dup2(null, descriptor, inheritable=False)
        os.close(null)

    os.register_at_fork(after_in_child=release)
    _end_children_by_sigterm()


def _end_children_by_sigterm() -> None:
    """The child has the default handler from its start, or the signal waits until it has.

    The main thread, which alone can set a handler, has it while it forks, too: what Ray's raises there, also where the
    signal is unblocked, Python ignores. For a fork of another thread, Ray's handler is called in the main thread.
    """
    own = threading.local()

    def before() -> None:
        own.handler = own.mask = None
        if threading.current_thread() is not threading.main_thread():
            own.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        elif _is_rays(signal.getsignal(signal.SIGTERM)):
            own.handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def in_parent() -> None:
        if own.handler is not None:
            signal.signal(signal.SIGTERM, own.handler)
        if own.mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, own.mask)

    def in_child() -> None:
        if _is_rays(signal.getsignal(signal.SIGTERM)):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if own.mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, own.mask)

    os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)


def _is_rays(handler: object) -> bool:
    return bool(getattr(handler, "__module__", None) == ray_worker.__name__)


def _connected_to(path: str) -> list[int]:
    """The descriptors of this process's connections to the socket at this path; none where there is no /proc."""
    with contextlib.suppress(FileNotFoundError):
        return [one for one in map(int, os.listdir("/proc/self/fd")) if _peer_of(one) == path]  # noqa: PTH208
    return []


def _peer_of(descriptor: int) -> object:
    """The address at the other end; None if it is no connection, or closed meanwhile."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None  # a duplicate of a pipe's end would keep the pipe open for a moment
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            return connection.getpeername()
    except OSError:
        return None
