"""Takes the heartbeats of running attempts, and says what their holders have to do now."""

import logging
from contextlib import suppress
from datetime import timedelta

from sqlalchemy import update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from service.errors import LeaseLost
from service.operations.attempts.attempt_cost import note_phases
from service.operations.attempts.leases import check_lease, lock_leased_attempt
from service.operations.attempts.orders import order_between_reports
from service.operations.attempts.system_metrics import note_system_metrics
from service.runtime.context import Context
from service.store.sql.database import database_now, is_locked, wait_little_for_locks
from service.store.tables import AttemptRow, TrialRow
from trainer.wire import Answer, Heartbeat

logger = logging.getLogger(__name__)


def take_heartbeat(context: Context, trial_id: str, token: str | None, message: Heartbeat | None = None) -> Answer:
    """Extend the lease, and note what the holder says. Raises LeaseLost, Unauthorized, NotFound.

    It waits little for a lock, since the heartbeats of other experiments need its thread. While another transaction
    keeps it, the lease is extended all the same. Samples are refused then, so that the holder sends them again.
    """
    message = message or Heartbeat()
    try:
        return _take_heartbeat(context, trial_id, token, message)
    except DBAPIError as error:
        if not is_locked(error):
            raise
        answer = _keep_lease(context, trial_id, token)  # the next heartbeat says times again
        if message.system_metrics:
            raise
        return answer


def _keep_lease(context: Context, trial_id: str, token: str | None, *, counts_as_report: bool = False) -> Answer:
    """Extend the lease without the experiment's lock, which another transaction may keep.

    One statement, so an attempt that ends concurrently keeps its end.
    """
    with context.database.write() as session:
        wait_little_for_locks(session)
        attempt = check_lease(session, trial_id, token)
        now = database_now(session)
        times = {"lease_expires_at": now + timedelta(seconds=context.settings.lease_seconds)}
        if counts_as_report:
            times["last_report_at"] = now
        running = update(AttemptRow).where(AttemptRow.id == attempt.id, AttemptRow.ended_at.is_(None))
        session.execute(running.values(times))
        return order_between_reports(session.get_one(TrialRow, trial_id), attempt)


def _take_heartbeat(context: Context, trial_id: str, token: str | None, message: Heartbeat) -> Answer:
    with context.database.write() as session:
        wait_little_for_locks(session)
        leased = lock_leased_attempt(session, trial_id, token)
        leased.extend_lease(context.settings.lease_seconds)
        if message.running_seconds is not None and leased.attempt.began_at is None:
            leased.attempt.began_at = leased.now - timedelta(seconds=message.running_seconds)
        note_phases(leased, message.phases)
        if message.is_ending and not leased.attempt.is_ending:
            leased.attempt.is_ending = True
        leased.note_world_size(message.world_size)
        note_system_metrics(leased, message.system_metrics)
        only_service = None if message.has_alternatives else context.service_name
        if leased.attempt.service != only_service:
            leased.attempt.service = only_service
        return order_between_reports(leased.trial, leased.attempt)


def keep_ending(context: Context, trial_id: str, token: str | None) -> None:
    """Keep the attempt while its holder waits for the answer to its end: neither silence nor a lack of reports ends it.

    Without effect on an attempt that ends at this moment, or has ended. An error of the database says nothing about
    the end, which finds out itself whether the database works.
    """
    try:
        with suppress(LeaseLost):
            _keep_lease(context, trial_id, token, counts_as_report=True)
    except (DBAPIError, PoolTimeout) as error:
        if not is_locked(error):
            what = "the lease of trial %s could not be extended while its finish call waits; trying again: %s"
            logger.warning(what, trial_id, error)


def current_order(context: Context, trial_id: str, token: str | None) -> Answer:
    """Tell the holder what to do now, without a change. Raises LeaseLost, Unauthorized."""
    with context.database.read() as session:
        attempt = check_lease(session, trial_id, token)
        return order_between_reports(session.get_one(TrialRow, trial_id), attempt)
