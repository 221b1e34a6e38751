"""Routes that answer a request with several faults in one order: 400, 401, 403, 404, 409, 422."""

from collections.abc import Callable, Coroutine
from functools import cached_property, partial
from typing import Any

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from service.api.http.error_precedence import with_error_precedence
from service.api.http.lease_checks import look_up_lease
from service.api.http.queries import check_query
from service.errors import Invalid
from service.operations.packages.package_store import package_named
from service.runtime.context import Context
from service.store.lookup import experiment_named, trial_named


class Route(APIRoute):
    """Looks up what the URL names before it answers that the request has mistakes."""

    @cached_property
    def query_names(self) -> tuple[str, ...]:
        return tuple(field.alias for field in self.dependant.query_params)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, mistakes = super().get_route_handler(), (Invalid, RequestValidationError)
        return partial(with_error_precedence, call=handle, look_up=self.look_up, mistakes=mistakes)

    @staticmethod
    async def look_up(request: Request) -> None:
        """Raises NotFound."""
        await run_in_threadpool(_look_up, request.app.state.context, request.path_params)


class LeaseRoute(Route):
    """A call of an attempt's holder."""

    look_up = staticmethod(look_up_lease)


def _look_up(context: Context, names: dict[str, str]) -> None:
    if "package" in names:
        package_named(context, names["package"])
    with context.database.read() as session:
        if "experiment" in names:
            experiment_named(session, names["experiment"])
        if "trial" in names:
            trial_named(session, names["trial"])


async def refuse_unknown_query(request: Request) -> None:
    """A dependency of every route, after those for access. Raises Invalid."""
    if request.scope["query_string"]:
        route: Route = request.scope["route"]
        check_query(request, route.query_names)
