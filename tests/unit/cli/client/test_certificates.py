"""The command line calls a service behind TLS whose certificate an own authority has issued."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.tls import Authority, authority
from tests.unit.cli.conftest import Run


class Empty(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"items": [], "next_cursor": null}')

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def own(tmp_path: Path) -> Authority:
    return authority(tmp_path)


@pytest.fixture
def url(own: Authority) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Empty) as server:
        own.serve(server)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_authority_of_ones_own_is_trusted(
    run: Run, monkeypatch: pytest.MonkeyPatch, own: Authority, url: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(own.file))
    ended = run("ls", "--url", url)
    assert (ended.code, ended.err) == (0, "")


def test_a_certificate_that_is_not_trusted_is_named_with_what_to_set(
    run: Run, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    ended = run("ls", "--url", url)
    assert f"the certificate at {url} cannot be verified (unable to get local issuer certificate)" in ended.err
    assert "set SSL_CERT_FILE" in ended.err
    assert ended.code == 1
