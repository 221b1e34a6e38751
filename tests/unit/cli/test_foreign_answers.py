"""Answers that are none of Paceline's, as of a proxy: a sentence instead of a traceback."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from service.cli.client import Client, Refused

LOGIN = "https://login.example/"


class Proxy(BaseHTTPRequestHandler):
    """Redirects trials, and answers everything else with a page."""

    def do_GET(self) -> None:
        is_moved = "trials" in self.path
        self.send_response(302 if is_moved else 200)
        if is_moved:
            self.send_header("Location", LOGIN)
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def client() -> Iterator[Client]:
    with HTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with Client(f"http://127.0.0.1:{server.server_port}") as client:
            yield client
        server.shutdown()
        thread.join()


def test_a_redirection_is_named(client: Client) -> None:
    with pytest.raises(Refused, match=f"answered 302, a redirection to {LOGIN}, without a body of Paceline's"):
        client.trial("t-1")


def test_a_page_is_no_answer(client: Client) -> None:
    for call in (client.readiness, lambda: client.experiment("x"), lambda: list(client.agents())):
        with pytest.raises(Refused, match="answered 200 without a body of Paceline's"):
            call()
