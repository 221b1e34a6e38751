"""The long poll of a claim: it waits for a trial that fits the agent's free resources."""

import asyncio

from fastapi import Request

from service.api.http.security.revocation import check_not_revoked, revocation_of
from service.operations.attempts.scheduling.claim import AgentLeft, claim
from service.runtime.context import Context
from service.runtime.events.notifier import wait_for_notification
from trainer.wire import Assignment, Claim

LOOK_AGAIN_SECONDS = 1.0
"""A waiting claim looks this often even without a notification: another service process may have made the change."""


async def wait_for_assignment(
    context: Context, request: Request, agent: str, message: Claim
) -> Assignment | AgentLeft | None:
    """Wait up to `wait_seconds` for a trial; None if there is none, and AgentLeft if the trial would not be run.

    Raises as `check_not_revoked`, also while it waits.
    """
    deadline = asyncio.get_running_loop().time() + message.wait_seconds
    with context.capacity_freed.subscribe() as capacity_freed, revocation_of(request.scope) as revoked:
        while True:
            check_not_revoked(revoked)
            capacity_freed.clear()
            if await request.is_disconnected():
                return AgentLeft()
            outcome = await context.threads.assigning(claim, context, agent, message)
            left = deadline - asyncio.get_running_loop().time()
            if outcome is not None or left <= 0 or context.stopping.is_set():
                return outcome
            await wait_for_notification(capacity_freed, min(left, LOOK_AGAIN_SECONDS))
