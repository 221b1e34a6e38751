"""Dependencies that many routes share: the context, the bearer token, the idempotency key."""

from typing import Annotated

from fastapi import Depends, Header, Path, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase

from service.api.http.headers import bearer_token
from service.runtime.context import Context
from service.runtime.events.event_feeds import EventFeeds

# Async although they do not await: FastAPI runs plain functions in other threads.


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


async def _event_feeds(request: Request) -> EventFeeds:
    feeds: EventFeeds = request.app.state.event_feeds
    return feeds


class _BearerToken(SecurityBase):
    """The call's bearer token, under the name of a security scheme in OpenAPI."""

    def __init__(self, scheme_name: str, description: str) -> None:
        self.scheme_name = scheme_name
        self.model = HTTPBearer(description=description)

    async def __call__(self, request: Request) -> str | None:
        return bearer_token(request.headers.get("authorization"))


_ACCESS_TOKEN = _BearerToken(
    "accessToken",
    "A token from `paceline token create`, with a role. A service that is bound to loopback needs none by default.",
)
_LEASE_TOKEN = _BearerToken(
    "leaseToken",
    "The token in the `lease` of an assignment. It is valid for calls on its own attempt, and for reading its package.",
)

Ctx = Annotated[Context, Depends(_context)]
Feeds = Annotated[EventFeeds, Depends(_event_feeds)]
Token = Annotated[str | None, Depends(_ACCESS_TOKEN)]
LeaseToken = Annotated[str | None, Depends(_LEASE_TOKEN)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="a text of your own that names this call: a repeat with the same key and body changes nothing, "
        "and gets the same experiment or trials; with another body, or for a trial that has ended, it is refused (409)",
    ),
]

ExperimentName = Annotated[str, Path(description="the experiment's name, or its id (`x-…`)")]
TrialId = Annotated[str, Path(description="the trial's id (`t-…`)")]
