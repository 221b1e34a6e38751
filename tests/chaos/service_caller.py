"""Calls to any service that answers, as the documents tell a client to make them: repeated until there is an answer."""

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx

TIMEOUT_SECONDS = 60.0
RETRY_SECONDS = 0.2


class ServiceCaller:
    """`lost_count` are the tries that may have had an effect, and had no answer that says so."""

    def __init__(self, urls: Sequence[str], answer_seconds: float = 10) -> None:
        self._http = httpx.Client(timeout=answer_seconds, trust_env=False)
        self._urls = urls
        self.lost_count = 0
        self._first = itertools.cycle(range(len(urls)))

    def call(self, method: str, path: str, *, timeout: float = TIMEOUT_SECONDS, **arguments: Any) -> httpx.Response:
        """Return the first answer below 500, which may be a refusal; raise TimeoutError when no service gives one.

        With `timeout=0` each service is called once.
        """
        why = ""
        for url in self._urls_until(timeout):
            try:
                response = self._http.request(method, url + path, **arguments)
            except httpx.TransportError as error:
                self.lost_count += not isinstance(error, httpx.ConnectError)
                why = repr(error)
                continue
            if response.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                return response
            self.lost_count += 1
            why = response.text
        raise TimeoutError(f"no service answered {method} {path} within {timeout:g} s: {why}")

    def close(self) -> None:
        self._http.close()

    def _urls_until(self, timeout: float) -> Iterator[str]:
        """Each call begins with another service, so that a repeated call reaches another one."""
        first = next(self._first)
        deadline = time.monotonic() + timeout
        while True:
            yield from self._urls[first:]
            yield from self._urls[:first]
            if time.monotonic() > deadline:
                return
            time.sleep(RETRY_SECONDS)
