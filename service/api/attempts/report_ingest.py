"""Reports, the busiest call, without FastAPI's routing and dependencies, which would cost more than the call itself.

It is the first call that a service answers after its start. FastAPI's route of the same path, in `holder_calls.py`,
describes it in OpenAPI. The fields of the call and of its answer are in `trainer/wire/attempt.py`;
`operations/reports/ingest.py` fills the answer.
"""

from collections.abc import Mapping
from typing import Any

from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.routing import compile_path
from starlette.types import ASGIApp, ExceptionHandler, Receive, Scope, Send

from service.api.http.bodies.json_body import JsonBody
from service.api.http.error_precedence import with_error_precedence
from service.api.http.headers import bearer_token, header
from service.api.http.lease_checks import look_up_lease
from service.api.http.queries import check_query
from service.operations.reports.ingest import ReportBatch
from service.runtime.group_commit import GroupCommit
from trainer.traces import tracing
from trainer.wire import Answer, Reports

REPORTS = "/v1/trials/{trial}/reports"
BODY = JsonBody(Reports, leased=True)


class PostPath:
    """A path pattern with parameters that are texts, for POST. It takes the place of a route in the request's scope."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._pattern = compile_path(path)[0]

    def parameters(self, scope: Scope) -> dict[str, str] | None:
        """None for another request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            return None
        match = self._pattern.match(scope["path"])
        return None if match is None else match.groupdict()


POST_REPORTS = PostPath(REPORTS)


class DirectReports:
    """Middleware that answers reports.

    `handlers` answer exceptions as in FastAPI, except the handler of Exception itself, which FastAPI runs in its
    outermost middleware.
    """

    def __init__(self, app: ASGIApp, handlers: Mapping[Any, ExceptionHandler]) -> None:
        self._app = app
        known = {kind: handler for kind, handler in handlers.items() if kind is not Exception}
        self._served = ExceptionMiddleware(self._serve, known)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parameters = POST_REPORTS.parameters(scope)
        if parameters is None:
            await self._app(scope, receive, send)
            return
        scope["path_params"], scope["route"] = parameters, POST_REPORTS
        if tracing.is_on:
            tracing.rename(f"POST {REPORTS}")
        await self._served(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await with_error_precedence(Request(scope, receive, send), serve_reports, look_up_lease)
        body = answer.model_dump_json().encode()
        headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def serve_reports(request: Request) -> Answer:
    """Answers as `holder_calls.send_reports` describes."""
    if request.scope["query_string"]:
        check_query(request, ())
    token = bearer_token(header(request, b"authorization"))
    message = await BODY(request)
    reporting: GroupCommit[ReportBatch, Answer] = request.app.state.reporting
    return await reporting.submit(ReportBatch(request.path_params["trial"], token, message.reports, message.world_size))
