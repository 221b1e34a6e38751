"""Where torch's ranks meet: at a port that no other process can get in between, at the address of the first rank."""

import errno
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import ray

from trainer.ray_train.torch_backend import open_store, reserve_port

pytestmark = pytest.mark.slow  # importing torch takes seconds

MINUTE = timedelta(seconds=60)


@pytest.fixture
def reserved() -> Iterator[tuple[str, int, int]]:
    host, port, listener = reserve_port()
    yield host, port, listener
    assert socket_at(host, port) is None, "the store has closed what was reserved"


def socket_at(host: str, port: int) -> int | None:
    """The reason for which a server cannot listen there, as torch's would."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind((host, port))
            other.listen()
        except OSError as error:
            return error.errno
    return None


def test_no_other_process_can_listen_at_a_reserved_port(reserved: tuple[str, int, int]) -> None:
    host, port, listener = reserved
    assert socket_at(host, port) == errno.EADDRINUSE
    store = open_store(listener)
    assert socket_at(host, port) == errno.EADDRINUSE
    del store


def test_ranks_that_come_before_the_store_is_open_meet_there(reserved: tuple[str, int, int]) -> None:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # noqa: PLC0415 - heavy

    host, port, listener = reserved
    with ThreadPoolExecutor() as threads:
        # As the second rank connects; the thread is ahead or not, which must make no difference.
        second = threads.submit(TCPStore, host, port, None, False, MINUTE)
        store = open_store(listener)
        store.set("from", "the first rank")
        assert second.result().get("from") == b"the first rank"
    del store, second


@pytest.mark.parametrize("method", ["env://", "tcp://"])
def test_torch_uses_the_open_store(
    reserved: tuple[str, int, int], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch.distributed as dist  # noqa: PLC0415 - heavy

    host, port, listener = reserved
    monkeypatch.setenv("MASTER_ADDR", host)
    monkeypatch.setenv("MASTER_PORT", str(port))
    store = open_store(listener)
    url = method if method == "env://" else f"tcp://{host}:{port}"
    dist.init_process_group("gloo", init_method=url, rank=0, world_size=1, timeout=MINUTE)
    try:
        assert store.num_keys() > 0
    finally:
        dist.destroy_process_group()
    del store


def test_a_node_without_its_own_address_listens_on_all_interfaces(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "203.0.113.7")  # RFC 5737: of no machine
    host, port, listener = reserve_port()
    assert host == "203.0.113.7"
    assert "listens on all interfaces, not only at 203.0.113.7" in caplog.text
    store = open_store(listener)
    socket.create_connection(("127.0.0.1", port)).close()
    del store
