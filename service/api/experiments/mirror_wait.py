"""The wait for the mirror to MLflow before an experiment is deleted, whose events are deleted with it.

Without its last events, runs in MLflow would lack reports and stay RUNNING.
"""

import asyncio
import logging
from datetime import datetime

from fastapi.concurrency import run_in_threadpool

from service.domain.statuses import LIVE_EXPERIMENT
from service.runtime.context import Context
from service.store.experiments import find_experiment
from service.store.mirrors import is_catching_up
from service.store.sql.database import database_now

POLL_SECONDS = 0.2
MAX_POLLS = 50
log = logging.getLogger(__name__)


async def wait_for_mirror(context: Context, name_or_id: str) -> None:
    """Return when MLflow has all events of an ended experiment; earlier if its mirror fails, or after ten seconds.

    An error from before does not count: MLflow may be back.
    """
    if context.settings.mlflow_uri is None:
        return
    began = await run_in_threadpool(_now, context)
    for _ in range(MAX_POLLS):
        if context.stopping.is_set() or not await run_in_threadpool(_is_catching_up, context, name_or_id, began):
            return
        await asyncio.sleep(POLL_SECONDS)
    log.warning("experiment %s is deleted before MLflow has its last events", name_or_id)


def _now(context: Context) -> datetime:
    with context.database.read() as session:
        return database_now(session)


def _is_catching_up(context: Context, name_or_id: str, since: datetime) -> bool:
    with context.database.read() as session:
        experiment = find_experiment(session, name_or_id)
        if experiment is None or experiment.status in LIVE_EXPERIMENT:  # it will not be deleted
            return False
        return is_catching_up(session, experiment, since)
