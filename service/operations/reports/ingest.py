"""Takes the reports and heartbeats of running attempts. An answer is sent after the commit."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from service.errors import Invalid
from service.operations.attempts.leases import LeasedAttempt, check_lease, lock_leased_attempt, lock_leased_attempts
from service.operations.early_stopping.paused_trials import has_released
from service.operations.reports.checkpoints import add_checkpoint
from service.operations.reports.curve import add_point, steps_of
from service.runtime.context import Context
from service.store.sql.database import affects_all_calls
from service.store.sql.write_session import change_later
from service.store.tables import TrialRow
from trainer.wire import Answer, Decision, Report


@dataclass(frozen=True)
class ReportBatch:
    """The reports of one call, with the trial and the lease token of the caller."""

    trial_id: str
    token: str | None
    reports: Sequence[Report]


def ingest_reports(context: Context, batches: Sequence[ReportBatch]) -> list[Answer | Exception]:
    """Store the batches of many callers in one transaction, and answer each in its place.

    Idempotent by (attempt, sequence). An answer may be LeaseLost, Unauthorized, NotFound or Invalid; such a batch
    changes nothing. If one batch makes the transaction fail, each is stored in a transaction of its own.
    """
    try:
        return _ingest(context, batches)
    except (DBAPIError, PoolTimeout) as error:
        if len(batches) == 1 or affects_all_calls(error):
            return [error] * len(batches)
    except Exception as error:  # noqa: BLE001 - it is raised in the one caller
        if len(batches) == 1:
            return [error]
    return [answer for batch in batches for answer in ingest_reports(context, [batch])]


def _ingest(context: Context, batches: Sequence[ReportBatch]) -> list[Answer | Exception]:
    with context.database.write() as session:
        found = lock_leased_attempts(session, [(batch.trial_id, batch.token) for batch in batches])
        open_before = {
            one.experiment for one in found if isinstance(one, LeasedAttempt) and one.experiment.end_reason is None
        }
        answers: list[Answer | Exception] = [
            _ingest_batch(context, one, batch.reports) if isinstance(one, LeasedAttempt) else one
            for one, batch in zip(found, batches, strict=True)
        ]
    context.new_events.notify()
    if has_released(session):
        context.capacity_freed.notify()
    if any(experiment.end_reason for experiment in open_before):
        context.holder_news.notify()
    return answers


def _ingest_batch(context: Context, leased: LeasedAttempt, reports: Sequence[Report]) -> Answer | Invalid:
    ordered = sorted(reports, key=attrgetter("sequence"))
    try:
        steps = steps_of(leased, ordered)
    except Invalid as invalid:
        return invalid
    leased.extend_lease(context.settings.lease_seconds)
    for report in ordered:
        step = steps[report.sequence]
        if report.sequence >= leased.attempt.next_sequence:
            change_later(leased.attempt, next_sequence=report.sequence + 1, last_report_at=leased.now)
            add_point(leased, report, step)
        if report.checkpoint is not None:
            add_checkpoint(leased, step, report.sequence, report.checkpoint)
    return answer_to(leased.trial)


def take_heartbeat(context: Context, trial_id: str, token: str | None) -> Answer:
    """Extend the lease. Raises LeaseLost, Unauthorized, NotFound."""
    with context.database.write() as session:
        leased = lock_leased_attempt(session, trial_id, token)
        leased.extend_lease(context.settings.lease_seconds)
        return answer_to(leased.trial)


def current_answer(context: Context, trial_id: str, token: str | None) -> Answer:
    """Tell the holder what to do now, without a change. Raises LeaseLost, Unauthorized."""
    with context.database.read() as session:
        check_lease(session, trial_id, token)
        return answer_to(session.get_one(TrialRow, trial_id))


def answer_to(trial: TrialRow) -> Answer:
    if trial.killed:
        return Answer(decision=Decision.KILL, reason=trial.stop_reason)
    if trial.stop_cause is not None:
        return Answer(decision=Decision.STOP, reason=trial.stop_reason)
    return Answer()
