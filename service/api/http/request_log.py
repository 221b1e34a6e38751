"""Gives each request an id, which its answer, its log lines and its errors have, and binds what the URL names.

Also counts and times every request, for `/metrics`.
"""

import logging
import re
import time
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from prometheus_client import CollectorRegistry, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainer.process_log.context import CREDENTIAL, log_context, new_request_id
from trainer.process_log.redaction import redacted
from trainer.traces import tracing

logger = logging.getLogger(__name__)

REQUEST_ID = b"x-request-id"

_WELL_FORMED = re.compile(rb"[\w.:=+/@-]{1,128}", re.ASCII)
"""A client's own id, which is kept: one word of ordinary characters."""
_NAMED = {"experiments": "experiment", "trials": "trial", "agents": "agent"}
MAX_NAME = 200

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


class RequestLog:
    """The outermost middleware, so that also Starlette's answer to an unhandled error has the id.

    A request is a line of its own at the level DEBUG only: most are reports and heartbeats. In the metrics, requests
    are labelled by route pattern, since there are as many URLs as trials. A long poll's time includes waiting.
    """

    def __init__(self, app: ASGIApp, seconds: Histogram) -> None:
        self._app = app
        self._of_labels = cache(seconds.labels)  # there are few labels, and a look-up of prometheus_client is slow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        given = headers.get(REQUEST_ID, b"")
        request = given.decode() if _WELL_FORMED.fullmatch(given) else new_request_id()
        token = headers.get(b"authorization", b"").rpartition(b" ")[2].decode("latin-1")
        # Not for this block only: uvicorn logs what is raised here, in the same task.
        log_context.begin(
            request=request,
            traceparent=tracing.traceparent,
            **{CREDENTIAL: token or None},  # it may be in a URL or in an error, too
            **dict(_named(scope["path"])),
        )
        began, status = time.perf_counter(), 500

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if tracing.is_on:  # a span ends with its answer
                    tracing.annotate({name: redacted(str(value)) for name, value in log_context.fields().items()})
                message = {**message, "headers": [*message.get("headers", ()), (REQUEST_ID, request.encode())]}
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            seconds = time.perf_counter() - began
            method = scope["method"] if scope["method"] in METHODS else "other"
            route = getattr(scope.get("route"), "path", "none")  # one label, or a scanner could create any number
            self._of_labels(method, route, status).observe(seconds)
            if logger.isEnabledFor(logging.DEBUG):
                fields = {"status": status, "seconds": round(seconds, 4)}
                logger.debug("%s %s %d", scope["method"], scope["path"], status, extra={"fields": fields})


def _named(path: str) -> Iterator[tuple[str, str]]:
    """What the path names. Once it is found, its ids take the place of what the caller has written."""
    for collection, name in pairwise(path.split("/", 4)[2:4]):
        if collection in _NAMED and name:
            yield _NAMED[collection], name[:MAX_NAME]
