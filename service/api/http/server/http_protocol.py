"""HTTP/1.1 as uvicorn speaks it, with limits in time and size."""

import asyncio
import logging
from typing import Any, cast

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from service.api.http.problems import problem_response
from service.api.http.request_log import REQUEST_ID
from service.api.http.server.connection_limits import CHECK_SECONDS, ConnectionWatch
from service.api.http.server.upgrade_ignoring_parser import UpgradeIgnoringParser
from service.errors import BadRequest, Busy, HeaderTooLarge, RequestTimeout, ServiceError
from trainer.process_log.context import log_context, new_request_id

logger = logging.getLogger(__name__)

MAX_TARGET_BYTES = 65_535
"""Of a request target. httptools parses no longer one."""


class HttpProtocol(HttpToolsProtocol):
    """Answers what it refuses as a problem, and tells an absolute request target's host to the application.

    A connection is in one of three phases: it waits for a request's header (`waiting_since`), it waits for the rest of
    the body (`_body_since`), or its request is complete and being answered.
    """

    def __init__(
        self,
        watch: ConnectionWatch,
        *,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.parser = cast("httptools.HttpRequestParser", UpgradeIgnoringParser(self))
        self._answered: RequestResponseCycle | None = None
        """The request whose answer comes next. uvicorn's `cycle` is the newest one, of several in a pipeline."""
        self.waiting_since: float | None = None
        self._body_since: float | None = None
        self._body_bytes = 0
        self._unparsed_bytes = 0
        """Since the phase began, and since the last piece of a body."""
        self._unsent_since: float | None = None
        self._unsent_bytes = 0
        self._watch = watch

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_request()
        if not self._watch.admit(self):
            self._refuse(Busy("the service has no connection left; repeat the call later"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.discard(self)
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unparsed_bytes += len(data)
        super().data_received(data)
        most = self._watch.limits.header_bytes
        if self._unparsed_bytes > most and not self.transport.is_closing():
            self._refuse(HeaderTooLarge(f"the header of a request may have at most {most} bytes", max_bytes=most))

    def on_headers_complete(self) -> None:
        if self._is_upgraded:
            return
        if not self.url.startswith(b"/"):
            self._use_host_of_target()
        super().on_headers_complete()
        self.waiting_since, self._body_since = None, self.loop.time()
        self._body_bytes = self._unparsed_bytes = 0

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._is_upgraded:
            return
        self._body_since, self._unparsed_bytes = None, 0
        if self.cycle.response_complete:  # it was answered before its body was complete
            self._wait_for_request()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._body_since is None and not self.pipeline:
            self._wait_for_request()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unsent_since = None

    def send_400_response(self, msg: str) -> None:
        if len(self.url) > MAX_TARGET_BYTES:
            most = MAX_TARGET_BYTES
            self._refuse(HeaderTooLarge(f"the URL of a request may have at most {most} bytes", max_bytes=most))
            return
        self._refuse(BadRequest(f"this is not an HTTP/1.1 request: {msg}"))

    def check(self, now: float) -> None:
        """End the connection if it has exceeded a limit in time."""
        seconds = self._watch.limits.request_seconds
        if self._unsent_since is not None:
            self._check_reader(self._unsent_since, now)
        elif self.transport.is_closing():
            self._expect_reading()
        elif self.waiting_since is not None and now - self.waiting_since > seconds:
            if self._unparsed_bytes:
                self._refuse(RequestTimeout(f"the header of the request did not arrive within {seconds:g} s"))
            self.transport.close()
        elif self._body_since is not None:
            self._check_body(self._body_since, now)

    def abort(self) -> None:
        self.transport.abort()

    @property
    def _is_upgraded(self) -> bool:
        return cast("UpgradeIgnoringParser", self.parser).is_upgraded

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def _check_body(self, since: float, now: float) -> None:
        limits = self._watch.limits
        allowed = limits.request_seconds
        if not self.cycle.response_complete:
            allowed += min(self._body_bytes / limits.min_rate, limits.most_more_seconds)
        if self.flow.read_paused or self.cycle.waiting_for_100_continue:  # the client waits for the service
            self._body_since = since + CHECK_SECONDS
        elif now - since > allowed:
            more = f"a second more for each {limits.min_rate} bytes, up to {limits.most_more_seconds:g} s more"
            within = f"{limits.request_seconds:g} s, and {more}"
            self._refuse(RequestTimeout(f"the body of the request did not arrive within {within}"))

    def _check_reader(self, since: float, now: float) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent < self._unsent_bytes:
            self._unsent_since, self._unsent_bytes = now, unsent
        elif now - since > self._watch.limits.stall_seconds:
            self.transport.abort()

    def _expect_reading(self) -> None:
        self._unsent_since, self._unsent_bytes = self.loop.time(), self.transport.get_write_buffer_size()

    def _wait_for_request(self) -> None:
        self.waiting_since, self._unparsed_bytes = self.loop.time(), 0

    def _refuse(self, error: ServiceError) -> None:
        """Close the connection. Before that, answer with the error if the client may expect an answer next."""
        is_first = self.waiting_since is not None or (
            self._body_since is not None and not self.cycle.response_started and not self.pipeline
        )
        self.waiting_since = self._body_since = None
        with log_context.resumed({"request": new_request_id()}):  # no request, but what the client meant as one
            logger.info("%s: %s", self.client, error.detail)
            response = problem_response(error)
            request = (REQUEST_ID, str(log_context.request_id).encode())
        if is_first:
            head = [*self.server_state.default_headers, *response.raw_headers, request, (b"connection", b"close")]
            lines = b"".join(b"%b: %b\r\n" % header for header in head)
            self.transport.write(STATUS_LINE[error.status] + lines + b"\r\n" + bytes(response.body))
        self.transport.close()

    def _use_host_of_target(self) -> None:
        """Replace the Host header by the host of `GET http://host/path` (RFC 9112, section 3.2.2): uvicorn drops it."""
        target = httptools.parse_url(self.url)
        places = [index for index, (name, _) in enumerate(self.headers) if name == b"host"]
        if target.host and len(places) == 1:  # the number of Host headers is checked later
            host = b"[%b]" % target.host if b":" in target.host else target.host
            self.headers[places[0]] = (b"host", host if target.port is None else b"%b:%d" % (host, target.port))
