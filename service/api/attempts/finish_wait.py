"""The end of an attempt that changes the stopping rule of an experiment with a long history.

It waits without a thread until the history has been read: claims and logs of all experiments need these.
"""

import asyncio
from math import inf

from service.operations.attempts.finish import finish
from service.operations.attempts.heartbeat import keep_ending
from service.operations.early_stopping.recorded_milestones import MilestonesMissing, catch_up, forget_milestones
from service.runtime.context import Context
from service.specification.models import ExperimentSpec
from trainer.wire import Finish, Finished

KEEP_SECONDS = 5.0
"""How often an attempt is kept, if neither a third of its lease nor of its `report_timeout_seconds` is shorter."""


async def finish_caught_up(context: Context, trial: str, token: str | None, message: Finish) -> Finished:
    """As `finish`. The attempt is kept while it waits, because its holder sends no heartbeats any more.

    Nothing cancels the reading: its thread would go on, while another call has its turn.
    """
    try:
        return await context.threads.assigning(finish, context, trial, token, message)
    except MilestonesMissing as missing:
        seconds = _seconds_to_keep(context, missing.spec)
        finishing = asyncio.ensure_future(_finish_in_turn(context, missing, trial, token, message))
    while not finishing.done():
        await context.threads.brief(keep_ending, context, trial, token)
        await asyncio.wait((finishing,), timeout=seconds)
    return finishing.result()


def _seconds_to_keep(context: Context, spec: ExperimentSpec) -> float:
    report_timeout = spec.failures.report_timeout_seconds or inf
    return min(KEEP_SECONDS, context.settings.lease_seconds / 3, report_timeout / 3)


async def _finish_in_turn(
    context: Context, missing: MilestonesMissing, trial: str, token: str | None, message: Finish
) -> Finished:
    """One call at a time reads a history, and until it has used it.

    Each tries again first in its turn: another one may have chosen the rule since its transaction.
    """
    threads = context.threads
    async with threads.replay_turn:
        try:
            while True:
                try:
                    return await threads.assigning(finish, context, trial, token, message)
                except MilestonesMissing as still_missing:
                    missing = still_missing
                    await threads.replaying(catch_up, context, missing)
        finally:
            forget_milestones(context, missing)
