"""Who asks for trials: agents, over all experiments, and anyone, of one."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.concurrency import run_in_threadpool

from service.api.http.access import needs
from service.api.http.dependencies import Ctx, IdempotencyKey
from service.api.http.problems import responses
from service.api.streams import stopping
from service.api.views import AgentView
from service.domain.roles import Role
from service.operations.attempts import claim
from service.runtime.notifier import rung
from service.store.agents import CONNECTED, all_agents
from service.store.attempts import living_attempts
from service.store.sql.database import database_now
from trainer.wire import Assignment, Claim, HeldAttempts, Instance

router = APIRouter(tags=["running trials"])

LOOK_AGAIN_SECONDS = 1.0
"""A long poll looks this often even if nothing rang: another service process may have made the change."""

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
    """What runs in the agent's name: one that starts anew compares it with what its slots run."""
    return claim.attempts_held_by(context, name)


@router.post(
    "/v1/agents/{name}/claim",
    response_model=Assignment,
    responses=NOTHING_NOW | responses(409, 422),
    dependencies=[Depends(needs(Role.AGENT))],
)
async def post_claim(name: AgentName, message: Claim, context: Ctx, request: Request) -> Assignment | Response:
    """An agent's ask over all experiments; waits up to `wait_seconds` for work that fits its free resources."""
    await run_in_threadpool(claim.note_agent, context, name, message)
    if message.lost:
        await run_in_threadpool(claim.give_up_lost, context, name, message.lost)
    deadline = asyncio.get_running_loop().time() + message.wait_seconds
    with context.freed.listening() as freed:
        while True:
            freed.clear()
            if await request.is_disconnected():  # nobody would run what it is given
                return Response(status_code=204)
            assignment = await run_in_threadpool(claim.claim, context, name, message)
            left = deadline - asyncio.get_running_loop().time()
            if assignment is not None:
                return assignment
            if left <= 0 or stopping(context):
                return Response(status_code=204)
            await rung(freed, min(left, LOOK_AGAIN_SECONDS))


@router.post("/v1/agents/{name}/leave", status_code=204, dependencies=[Depends(needs(Role.AGENT))])
def post_leave(name: AgentName, instance: Instance, context: Ctx) -> None:
    """An agent that ends gives its name back, so that the next one need not wait. A repeat is harmless."""
    claim.release_name(context, name, instance)


@router.post(
    "/v1/experiments/{experiment}/ask",
    response_model=Assignment,
    responses=NOTHING_NOW | responses(404, 409),
    dependencies=[Depends(needs(Role.WRITE))],
)
def post_ask(experiment: str, context: Ctx, idempotency_key: IdempotencyKey = None) -> Assignment | Response:
    """A trial to run yourself. With `Idempotency-Key`, asking again gives the same trial while it runs."""
    return claim.ask(context, experiment, idempotency_key) or Response(status_code=204)
