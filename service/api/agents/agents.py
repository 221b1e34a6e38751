"""Calls that ask for trials: agents claim over all experiments, any caller may ask for a trial of one experiment."""

from collections import defaultdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import AfterValidator

from service.api.agents.claim_wait import wait_for_assignment
from service.api.http.bodies.json_body import JsonBody
from service.api.http.dependencies import Ctx, ExperimentName, IdempotencyKey
from service.api.http.error_responses import error_responses
from service.api.http.headers import services_header
from service.api.http.pages import NAME_KEY, Cursor, Limit, Page, from_cursor, next_cursor, to_cursor
from service.api.http.routes import Route, refuse_unknown_query
from service.api.http.security.access import needs
from service.api.views.agents import AgentView
from service.domain.attempt_holders import ASK_HOLDER, is_caller
from service.domain.roles import Role
from service.errors import AgentNameTaken, NotFound, WrongState
from service.operations.agents import lost_attempts, registration
from service.operations.attempts.scheduling.claim import AgentLeft, ask
from service.operations.checkpoints.checkpoint_deletions import take_deletion_results
from service.store.agents import is_connected, nodes_of, page_of_agents
from service.store.attempts import running_attempts
from service.store.sql.database import database_now
from trainer.wire import Assignment, Claim, DeletionResults, HeldAttempts, Instance

router = APIRouter(tags=["running trials"], route_class=Route)


def _check_agent_name(name: str) -> str:
    if is_caller(name):
        raise ValueError(f"must not begin with {ASK_HOLDER!r}, which is for callers that run trials themselves")
    return name


AgentName = Annotated[
    str, AfterValidator(_check_agent_name), Path(min_length=1, max_length=200, description="the agent's name")
]

NOTHING_NOW: dict[int | str, dict[str, Any]] = {204: {"description": "Nothing to run now"}}


_CLAIM = JsonBody(Claim)
_INSTANCE = JsonBody(Instance)
_RESULTS = JsonBody(DeletionResults)


def _admits(role: Role) -> list[Any]:
    return [Depends(needs(role)), Depends(refuse_unknown_query)]


@router.get("/v1/agents", dependencies=_admits(Role.READ))
def list_agents(context: Ctx, cursor: Cursor = None, limit: Limit = 100) -> Page[AgentView]:
    """The agents that have ever claimed, by name."""
    [after] = from_cursor(NAME_KEY, cursor) or ("",)
    with context.database.read() as session:
        now = database_now(session)
        running: defaultdict[str, list[str]] = defaultdict(list)
        for attempt in running_attempts(session):
            running[attempt.holder].append(attempt.trial_id)
        rows = page_of_agents(session, after=after, limit=limit + 1)
        agents = [
            AgentView(
                name=row.name,
                connected=is_connected(row, now),
                nodes=[node.model_dump(mode="json") for node in nodes_of(row)],
                storage_error=row.storage_error,
                running=running[row.name],
                first_seen_at=row.first_seen_at,
                last_seen_at=row.last_seen_at,
            )
            for row in rows[:limit]
        ]
    return Page(items=agents, next_cursor=next_cursor(rows, limit, lambda row: to_cursor(NAME_KEY, (row.name,))))


@router.get("/v1/agents/{name}/attempts", dependencies=_admits(Role.AGENT))
async def list_attempts_of_agent(name: AgentName, context: Ctx) -> HeldAttempts:
    """The attempts that the agent holds. An agent that restarts compares them with what its slots run."""
    return await context.threads.assigning(lost_attempts.attempts_of_agent, context, name)


@router.post(
    "/v1/agents/{name}/deletions", status_code=204, dependencies=_admits(Role.AGENT), openapi_extra=_RESULTS.openapi
)
async def send_deletion_results(
    name: AgentName,  # noqa: ARG001 - part of the path
    results: Annotated[DeletionResults, Depends(_RESULTS)],
    context: Ctx,
) -> None:
    """Says what became of the deletions that the agent was given. A repeat is harmless."""
    await context.threads.assigning(take_deletion_results, context, results)


@router.post(
    "/v1/agents/{name}/claim",
    response_model=Assignment,
    responses=NOTHING_NOW | error_responses(AgentNameTaken),
    dependencies=_admits(Role.AGENT),
    openapi_extra=_CLAIM.openapi,
)
async def claim_trial(
    name: AgentName, message: Annotated[Claim, Depends(_CLAIM)], context: Ctx, request: Request, response: Response
) -> Assignment | Response:
    """Claims a trial of any experiment; waits up to `wait_seconds` for one that fits the agent's free resources.

    The header `Paceline-Services` names the addresses of all services that serve the same experiments.
    """
    await context.threads.assigning(registration.register_agent, context, name, message)
    if message.lost:
        await context.threads.assigning(lost_attempts.end_lost_attempts, context, name, message.lost)
    outcome = await wait_for_assignment(context, request, name, message)
    if isinstance(outcome, AgentLeft):
        return Response(status_code=204)
    if outcome is None:
        return Response(status_code=204, headers=services_header(context))
    response.headers.update(services_header(context))
    return outcome


@router.post(
    "/v1/agents/{name}/leave", status_code=204, dependencies=_admits(Role.AGENT), openapi_extra=_INSTANCE.openapi
)
async def release_agent_name(name: AgentName, instance: Annotated[Instance, Depends(_INSTANCE)], context: Ctx) -> None:
    """Frees the name of an agent that ends, so that the next one need not wait. A repeat is harmless.

    A claim of the agent that still waits is answered now, with 204.
    """
    await context.threads.assigning(registration.release_name, context, name, instance)


@router.post(
    "/v1/experiments/{experiment}/ask",
    response_model=Assignment,
    responses=NOTHING_NOW | error_responses(NotFound, WrongState),
    dependencies=_admits(Role.WRITE),
)
async def ask_for_trial(
    experiment: ExperimentName, context: Ctx, idempotency_key: IdempotencyKey = None
) -> Assignment | Response:
    """A trial that the caller runs itself. With `Idempotency-Key`, a repeat gets the same trial while it runs."""
    assignment = await context.threads.assigning(ask, context, experiment, idempotency_key)
    return assignment or Response(status_code=204)
