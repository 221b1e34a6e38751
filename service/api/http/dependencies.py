"""Dependencies that many routes share: the context, the bearer token, the idempotency key."""

from typing import Annotated

from fastapi import Depends, Header, Request

from service.operations.reports.ingest import ReportBatch
from service.runtime.context import Context
from service.runtime.group_commit import GroupCommit
from trainer.wire import Answer

# Async although they do not await: FastAPI runs plain functions in other threads.


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


async def _reporting(request: Request) -> GroupCommit[ReportBatch, Answer]:
    reporting: GroupCommit[ReportBatch, Answer] = request.app.state.reporting
    return reporting


async def bearer_token(authorization: Annotated[str | None, Header()] = None) -> str | None:
    """The token of an `Authorization` header; None for another scheme or an empty token."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


Ctx = Annotated[Context, Depends(_context)]
Reporting = Annotated[GroupCommit[ReportBatch, Answer], Depends(_reporting)]
Token = Annotated[str | None, Depends(bearer_token)]
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
