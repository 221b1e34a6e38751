"""The calls of those who run trials: agents, slots, and anyone with curl. A lease token is the right to report."""

import asyncio
from typing import Any

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool

from service.api.dependencies import Ctx, IdempotencyKey, Token
from service.api.problems import responses
from service.api.streaming import stopping
from service.api.views import AgentView
from service.operations import claiming
from service.operations.bell import rung
from service.operations.finishing import finish
from service.operations.logs import take_log
from service.operations.reporting import take_heartbeat, take_reports
from service.store.agents import CONNECTED, all_agents
from service.store.attempts import living_attempts
from service.store.database import database_now
from trainer.wire import Answer, Assignment, Claim, Finish, Finished, LogChunk, Reports

router = APIRouter(tags=["running trials"])

LOOK_AGAIN_SECONDS = 1.0
"""A long poll looks this often even if nothing rang: another service process may have made the change."""

NOTHING_NOW: dict[int | str, dict[str, Any]] = {204: {"description": "Nothing to run now"}}


@router.get("/v1/agents")
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


@router.post("/v1/agents/{name}/claim", response_model=Assignment, responses=NOTHING_NOW | responses(422))
async def post_claim(name: str, message: Claim, context: Ctx) -> Assignment | Response:
    """An agent's ask over all experiments; waits up to `wait_seconds` for work that fits its free resources."""
    await run_in_threadpool(claiming.note_agent, context, name, message.nodes)
    deadline = asyncio.get_running_loop().time() + message.wait_seconds
    with context.freed.listening() as freed:
        while True:
            freed.clear()
            assignment = await run_in_threadpool(claiming.claim, context, name, message)
            left = deadline - asyncio.get_running_loop().time()
            if assignment is not None:
                return assignment
            if left <= 0 or stopping(context):
                return Response(status_code=204)
            await rung(freed, min(left, LOOK_AGAIN_SECONDS))


@router.post("/v1/experiments/{experiment}/ask", response_model=Assignment, responses=NOTHING_NOW | responses(404, 409))
def post_ask(experiment: str, context: Ctx, idempotency_key: IdempotencyKey = None) -> Assignment | Response:
    """A trial to run yourself. With `Idempotency-Key`, asking again gives the same trial while it runs."""
    return claiming.ask(context, experiment, idempotency_key) or Response(status_code=204)


@router.post("/v1/trials/{trial}/reports", responses=responses(401, 404, 409, 422))
def post_reports(trial: str, message: Reports, context: Ctx, token: Token) -> Answer:
    """What the training function reported, and what it is to do now. A repeat is harmless."""
    return take_reports(context, trial, token, message.reports)


@router.post("/v1/trials/{trial}/heartbeat", responses=responses(401, 404, 409))
def post_heartbeat(trial: str, context: Ctx, token: Token) -> Answer:
    """Extends the lease; a user's stop arrives here too."""
    return take_heartbeat(context, trial, token)


@router.post("/v1/trials/{trial}/logs", status_code=204, responses=responses(401, 409, 422, 507))
def post_log(trial: str, chunk: LogChunk, context: Ctx, token: Token) -> None:
    """A piece of a rank's output. A repeat is harmless."""
    take_log(context, trial, token, chunk)


@router.post("/v1/trials/{trial}/finish", responses=responses(401, 404, 409, 422))
def post_finish(trial: str, message: Finish, context: Ctx, token: Token) -> Finished:
    """Ends the attempt; with `next`, the answer may hold the experiment's next assignment. A repeat is harmless."""
    return finish(context, trial, token, message)
