"""A network passes calls on, to another service where one is down, breaks connections when killed, and can be cut."""

import http.server
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import httpx
import pytest

from service.stack.ports import free_port
from tests.chaos.system.components import listens
from tests.chaos.system.network import network_command
from tests.chaos.system.stack import until

pytestmark = pytest.mark.slow


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: object) -> None:
        """Keep the test's output free of calls."""


@pytest.fixture
def service() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def network(service: int) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A network with one address, and a service that is down behind it beside the other."""
    port = free_port()
    command = [sys.executable, "-m", *network_command([(port, [free_port(), service])])]
    with subprocess.Popen(command) as process:
        until(listens(port), "the network is there", 30, every=0.05)
        yield process, f"http://127.0.0.1:{port}"
        process.kill()


def test_a_service_that_is_up_answers_behind_the_one_address(network: tuple[subprocess.Popen[bytes], str]) -> None:
    for _ in range(3):
        assert httpx.get(network[1], trust_env=False).text == "hello"


def test_a_killed_network_refuses_calls(network: tuple[subprocess.Popen[bytes], str]) -> None:
    process, url = network
    with httpx.Client(trust_env=False) as http:
        assert http.get(url).text == "hello"
        process.kill()
        process.wait()
        with pytest.raises(httpx.TransportError):
            http.get(url)


def test_through_a_cut_network_nothing_comes_until_it_is_whole(network: tuple[subprocess.Popen[bytes], str]) -> None:
    process, url = network
    with httpx.Client(trust_env=False) as http:
        assert http.get(url).text == "hello"
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(httpx.ReadTimeout):
            http.get(url, timeout=0.2)
        process.send_signal(signal.SIGCONT)
        assert http.get(url, timeout=30).text == "hello"
