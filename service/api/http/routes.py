"""Routes that answer a request with several faults in one order: 400, 401, 403, 404, 409, 422."""

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from service.api.http.dependencies import bearer_token
from service.errors import BadRequest, Invalid, LeaseLost, NotFound, TooLarge, UnsupportedMediaType
from service.operations.attempts.leases import check_lease
from service.operations.packages.storage import find_package
from service.runtime.context import Context
from service.store.lookup import experiment_named, trial_named

Answer = TypeVar("Answer")


class Route(APIRoute):
    """Looks up what the URL names before it answers that the request has mistakes."""

    @cached_property
    def query_names(self) -> tuple[str, ...]:
        return tuple(field.alias for field in self.dependant.query_params)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, look_up = super().get_route_handler(), self.look_up

        async def handle_in_order(request: Request) -> Response:
            return await in_order(request, handle, look_up)

        return handle_in_order

    @staticmethod
    async def look_up(request: Request) -> None:
        """Raises NotFound."""
        await run_in_threadpool(_look_up, request.app.state.context, request.path_params)


class LeaseRoute(Route):
    """A call of an attempt's holder."""

    @staticmethod
    async def look_up(request: Request) -> None:
        """Raises Unauthorized, NotFound, and LeaseLost."""
        token = await bearer_token(request.headers.get("authorization"))
        context: Context = request.app.state.context
        await context.threads.brief(_check_lease, context, request.path_params["trial"], token)


async def in_order(
    request: Request, call: Callable[[Request], Awaitable[Answer]], look_up: Callable[[Request], Awaitable[None]]
) -> Answer:
    """The answer of `call`. If the request has mistakes, `look_up` may raise what comes before them.

    Only a missing token comes before a body that cannot be read.
    """
    try:
        return await call(request)
    except (Invalid, RequestValidationError):
        await look_up(request)
        raise
    except (BadRequest, TooLarge, UnsupportedMediaType):
        with suppress(NotFound, LeaseLost):
            await look_up(request)
        raise


def _look_up(context: Context, names: dict[str, str]) -> None:
    if "package" in names:
        find_package(context, names["package"])
    with context.database.read() as session:
        if "experiment" in names:
            experiment_named(session, names["experiment"])
        if "trial" in names:
            trial_named(session, names["trial"])


def _check_lease(context: Context, trial: str, token: str | None) -> None:
    with context.database.read() as session:
        check_lease(session, trial, token)
