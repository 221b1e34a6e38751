"""Counts and times every request, for `/metrics`."""

import time
from functools import cache
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)


def request_seconds(registry: CollectorRegistry) -> Histogram:
    return Histogram(
        "paceline_http_request_seconds",
        "Requests by method, route and status, with their time in seconds",
        ["method", "route", "status"],
        registry=registry,
        buckets=BUCKETS,
    )


class RequestMetrics:
    """Labels requests by route pattern, since there are as many URLs as trials. A long poll's time includes waiting."""

    def __init__(self, app: ASGIApp, seconds: Histogram) -> None:
        self._app = app
        self._of_labels = cache(seconds.labels)  # there are few labels, and a look-up of prometheus_client is slow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        began = time.perf_counter()

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noting_status)
        finally:
            seconds = time.perf_counter() - began
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._of_labels(method, _route(scope), status).observe(seconds)


def _route(scope: Scope) -> Any:
    """URLs without a route share one label, so that a scanner cannot create labels without limit."""
    return getattr(scope.get("route"), "path", "none")
