"""The port that a command's ranks are given."""

import socket

import pytest

from trainer.worker.commands import master_port
from trainer.worker.commands.master_port import find_master_port


def test_it_is_free_and_not_one_that_outgoing_connections_get() -> None:
    port = find_master_port()
    assert port < 32_768  # the first of Linux's default net.ipv4.ip_local_port_range
    socket.create_server(("", port)).close()


def test_a_port_in_use_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("", 0)) as used:
        port = used.getsockname()[1]
        monkeypatch.setattr(master_port, "PORTS", range(port, port + 1))
        with pytest.raises(OSError, match=f"no port from {port} to {port} is free on this node"):
            find_master_port()
