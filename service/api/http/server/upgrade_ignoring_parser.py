"""Parses requests that offer to go over to another protocol, such as those of `curl --http2`, as if they did not."""

from collections.abc import Iterable
from typing import Protocol

import httptools

UPGRADE_HEADERS = b"upgrade", b"http2-settings"


class RequestCallbacks(Protocol):
    """The object that httptools calls back, with what has been parsed of a request's head."""

    url: bytes
    headers: list[tuple[bytes, bytes]]


class UpgradeIgnoringParser:
    """A parser as httptools', for `protocol`. A server may ignore an `Upgrade` (RFC 9110, section 7.8).

    httptools takes what follows the head of such a request for the other protocol, so its body would be lost, or parsed
    as the next request. Here the head is parsed again without the offer. `protocol` has to ignore the callbacks that
    come while `is_upgraded`, other than those of the head's parts.
    """

    def __init__(self, protocol: RequestCallbacks) -> None:
        self._protocol = protocol
        self._parser = _parser(protocol)

    @property
    def is_upgraded(self) -> bool:
        """Whether the head that is being parsed has an offer, and so is parsed again."""
        return self._parser.should_upgrade() and self._parser.get_method() != b"CONNECT"

    def feed_data(self, data: bytes) -> None:
        """Raises httptools.HttpParserError, and httptools.HttpParserUpgrade for CONNECT."""
        rest = memoryview(data)
        while rest:
            try:
                self._parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                if not self.is_upgraded:
                    raise
                [parsed] = upgrade.args
                head = self._head_without_upgrade()
                self._parser = _parser(self._protocol)
                self._parser.feed_data(head)
                rest = rest[parsed:]
            else:
                break

    def get_http_version(self) -> str:
        return self._parser.get_http_version()

    def get_method(self) -> bytes:
        return self._parser.get_method()

    def should_keep_alive(self) -> bool:
        return self._parser.should_keep_alive()

    def should_upgrade(self) -> bool:
        return self._parser.should_upgrade()

    def _head_without_upgrade(self) -> bytes:
        first = b"%b %b HTTP/%b\r\n" % (self.get_method(), self._protocol.url, self.get_http_version().encode())
        lines = (b"%b: %b\r\n" % header for header in _without_upgrade(self._protocol.headers))
        return first + b"".join(lines) + b"\r\n"


def _parser(protocol: RequestCallbacks) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
    return parser


def _without_upgrade(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[bytes, bytes]]:
    for name, value in headers:
        if name == b"connection":
            options = [option.strip() for option in value.split(b",")]
            yield name, b", ".join(option for option in options if option.lower() not in UPGRADE_HEADERS)
        elif name not in UPGRADE_HEADERS:
            yield name, value
