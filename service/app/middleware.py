"""The middleware of both stages of the application."""

from starlette.applications import Starlette
from starlette.types import ASGIApp

from service.api.attempts import report_ingest
from service.api.http.bodies.body_budget import BodiesCounted
from service.api.http.nul_in_url import NulInUrlRefusal
from service.api.http.request_log import RequestLog
from service.api.http.security.cross_origin import CrossOriginProtection


class RequestsLogged(Starlette):
    """Starlette would put its own answer to unhandled errors outside of all middleware."""

    def build_middleware_stack(self) -> ASGIApp:
        return RequestLog(super().build_middleware_stack(), self.state.request_seconds)


def add_middleware(app: Starlette) -> None:
    """Around what was added before. The application must have its state and its exception handlers."""
    app.add_middleware(report_ingest.DirectReports, app.exception_handlers)
    app.add_middleware(BodiesCounted, app.state.body_budget)
    app.add_middleware(NulInUrlRefusal)
    app.add_middleware(CrossOriginProtection, app.state.context)
