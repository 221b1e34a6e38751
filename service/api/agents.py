"""Calls that ask for trials: agents claim over all experiments, any caller may ask for a trial of one experiment."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.concurrency import run_in_threadpool

from service.api.http.access import needs
from service.api.http.dependencies import Ctx, IdempotencyKey
from service.api.http.problems import responses
from service.api.views.agents import AgentView
from service.domain.roles import Role
from service.operations.attempts import claim
from service.runtime.notifier import wait_for_notification
from service.store.agents import CONNECTED, all_agents
from service.store.attempts import living_attempts
from service.store.sql.database import database_now
from trainer.wire import Assignment, Claim, HeldAttempts, Instance

router = APIRouter(tags=["running trials"])

LOOK_AGAIN_SECONDS = 1.0
"""A waiting claim looks this often even without a notification: another service process may have made the change."""

AgentName = Annotated[str, Path(min_length=1, max_length=200)]

NOTHING_NOW: dict[int | str, dict[str, Any]] = {204: {"description": "Nothing to run now"}}


@router.get("/v1/agents", dependencies=[Depends(needs(Role.READ))])
def get_agents(context: Ctx) -> list[AgentView]:
    with context.database.read() as session:
        now = database_now(session)
        living = living_attempts(session)
        return [
            AgentView(
                name=row.name,
                connected=now - row.last_seen_at < CONNECTED,
                nodes=row.nodes,
                running=[attempt.trial_id for attempt in living if attempt.holder == row.name],
                first_seen_at=row.first_seen_at,
                last_seen_at=row.last_seen_at,
            )
            for row in all_agents(session)
        ]


@router.get("/v1/agents/{name}/attempts", dependencies=[Depends(needs(Role.AGENT))])
def get_attempts(name: AgentName, context: Ctx) -> HeldAttempts:
    """The attempts that the agent holds. An agent that restarts compares them with what its slots run."""
    return claim.attempts_of_agent(context, name)


@router.post(
    "/v1/agents/{name}/claim",
    response_model=Assignment,
    responses=NOTHING_NOW | responses(409, 422),
    dependencies=[Depends(needs(Role.AGENT))],
)
async def post_claim(name: AgentName, message: Claim, context: Ctx, request: Request) -> Assignment | Response:
    """Claims a trial of any experiment; waits up to `wait_seconds` for one that fits the agent's free resources."""
    await run_in_threadpool(claim.register_agent, context, name, message)
    if message.lost:
        await run_in_threadpool(claim.end_lost_attempts, context, name, message.lost)
    deadline = asyncio.get_running_loop().time() + message.wait_seconds
    with context.capacity_freed.subscribe() as capacity_freed:
        while True:
            capacity_freed.clear()
            if await request.is_disconnected():  # the trial would not be run
                return Response(status_code=204)
            assignment = await run_in_threadpool(claim.claim, context, name, message)
            left = deadline - asyncio.get_running_loop().time()
            if assignment is not None:
                return assignment
            if left <= 0 or context.stopping.is_set():
                return Response(status_code=204)
            await wait_for_notification(capacity_freed, min(left, LOOK_AGAIN_SECONDS))


@router.post("/v1/agents/{name}/leave", status_code=204, dependencies=[Depends(needs(Role.AGENT))])
def post_leave(name: AgentName, instance: Instance, context: Ctx) -> None:
    """Frees the name of an agent that ends, so that the next one need not wait. A repeat is harmless."""
    claim.release_name(context, name, instance)


@router.post(
    "/v1/experiments/{experiment}/ask",
    response_model=Assignment,
    responses=NOTHING_NOW | responses(404, 409),
    dependencies=[Depends(needs(Role.WRITE))],
)
def post_ask(experiment: str, context: Ctx, idempotency_key: IdempotencyKey = None) -> Assignment | Response:
    """A trial that the caller runs itself. With `Idempotency-Key`, a repeat gets the same trial while it runs."""
    return claim.ask(context, experiment, idempotency_key) or Response(status_code=204)
