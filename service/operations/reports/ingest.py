"""Takes the reports of running attempts. An answer is sent after the commit."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from service.domain.statuses import DECIDED_BY_REPORT
from service.errors import Invalid
from service.operations.attempts.leases import LeasedAttempt, lock_leased_attempts
from service.operations.attempts.orders import order_at_report
from service.operations.early_stopping.decisions import Decider
from service.operations.early_stopping.paused_trials import release
from service.operations.early_stopping.stored_choice import may_show_lowest_rung
from service.operations.reports.checkpoints import add_checkpoint, check_checkpoints, kept_without
from service.operations.reports.curve import add_point, set_aside, steps_of
from service.runtime.context import Context
from service.store.sql.bulk_writes import change_later
from service.store.sql.database import (
    BRIEF_LOCK_SECONDS,
    LOCK_SECONDS,
    is_database_down,
    is_locked,
    wait_little_for_locks,
)
from service.store.trials.trials import experiments_of
from trainer.process_log.context import log_context
from trainer.wire import Answer, Report


@dataclass(frozen=True)
class ReportBatch:
    """The reports of one call, with the trial and the lease token of the caller.

    `log_fields` is what the call has bound to the lines of its log.
    """

    trial_id: str
    token: str | None
    reports: Sequence[Report]
    world_size: int | None = None
    log_fields: dict[str, Any] = field(default_factory=log_context.current, compare=False)


def ingest_reports(context: Context, batches: Sequence[ReportBatch]) -> list[Answer | Exception]:
    """Store the batches of many callers in one transaction, and answer each in its place.

    Idempotent by (attempt, sequence). An answer may be LeaseLost, Unauthorized, NotFound or Invalid; such a batch
    changes nothing. If the transaction fails, such as because an experiment is locked, the batches are stored again,
    those of each experiment in a transaction of their own; if that fails for another reason, each batch in its own.
    None waits longer for a lock than LOCK_SECONDS: holders repeat what is not stored.
    """
    try:
        return _ingest(context, batches, BRIEF_LOCK_SECONDS if len(batches) > 1 else LOCK_SECONDS)
    except Exception as error:  # noqa: BLE001 - it is raised in each caller
        if len(batches) == 1 or is_database_down(error):
            return [error] * len(batches)
    answers: dict[int, Answer | Exception] = {}
    for places in _by_experiment(context, batches):
        answers |= zip(places, _ingest_of_one(context, [batches[place] for place in places]), strict=True)
    return [answers[place] for place in range(len(batches))]


def _by_experiment(context: Context, batches: Sequence[ReportBatch]) -> Iterable[list[int]]:
    """The places in `batches` of the batches of each experiment."""
    places = defaultdict[str | None, list[int]](list)
    with context.database.read() as session:
        experiments = experiments_of(session, {batch.trial_id for batch in batches})
    for place, batch in enumerate(batches):
        places[experiments.get(batch.trial_id)].append(place)
    return places.values()


def _ingest_of_one(context: Context, batches: Sequence[ReportBatch]) -> list[Answer | Exception]:
    """The batches of one experiment: its lock, if another transaction keeps it, is tried once."""
    try:
        return _ingest(context, batches, LOCK_SECONDS)
    except Exception as error:  # noqa: BLE001 - it is raised in each caller
        if len(batches) == 1 or is_database_down(error) or is_locked(error):
            return [error] * len(batches)
    return [answer for batch in batches for answer in _ingest_of_one(context, [batch])]


def _ingest(context: Context, batches: Sequence[ReportBatch], lock_seconds: float) -> list[Answer | Exception]:
    with context.database.write() as session:
        wait_little_for_locks(session, lock_seconds)
        found = lock_leased_attempts(session, [(batch.trial_id, batch.token) for batch in batches])
        open_before = {
            one.experiment for one in found if isinstance(one, LeasedAttempt) and one.experiment.end_reason is None
        }
        ingestion = _Ingestion(context)
        answers: list[Answer | Exception] = [
            ingestion.take_batch(one, batch) if isinstance(one, LeasedAttempt) else one
            for one, batch in zip(found, batches, strict=True)
        ]
        ingestion.choose_rules()
    context.new_events.notify()
    if ingestion.has_released:
        context.capacity_freed.notify()
    if any(experiment.end_reason for experiment in open_before):
        context.holder_changes.notify()
    return answers


@dataclass
class _Ingestion:
    """The batches of one transaction. `has_released`: a report has queued paused trials, which other slots may run.

    `telling` has the trials whose reports may tell enough to choose an early-stopping rule.
    """

    context: Context
    has_released: bool = False
    telling: list[LeasedAttempt] = field(default_factory=list)

    def take_batch(self, leased: LeasedAttempt, batch: ReportBatch) -> Answer | Invalid:
        """Store the reports of one call, and return its answer.

        The log gets what the call has bound to it: this thread stores the batches of many calls.
        """
        with log_context.resumed(batch.log_fields):
            leased.bind_to_log()
            ordered = sorted(batch.reports, key=attrgetter("sequence"))
            try:
                steps = steps_of(leased, ordered)
                check_checkpoints(leased, ordered, self.context.settings.storage)
            except Invalid as invalid:
                return invalid
            leased.extend_lease(self.context.settings.lease_seconds)
            leased.note_world_size(batch.world_size)
            kept: list[str] = []
            for report in ordered:
                kept = self._take_report(leased, report, steps[report.sequence]) or kept
            return order_at_report(leased.trial, leased.attempt, kept)

    def _take_report(self, leased: LeasedAttempt, report: Report, step: int) -> list[str]:
        """Return the checkpoints that the slot must keep, if the report has one."""
        attempt = leased.attempt
        counts = attempt.deciding_sequence is None or report.sequence <= attempt.deciding_sequence
        if report.sequence >= attempt.next_sequence:
            change_later(attempt, next_sequence=report.sequence + 1, last_report_at=leased.now)
            if counts:
                self._count(leased, report, step)
            else:
                set_aside(leased, report, step)
        if counts and report.checkpoint and may_show_lowest_rung(leased.experiment, leased.spec, leased.trial):
            self.telling.append(leased)
        return add_checkpoint(leased, report, step) if counts else kept_without(leased, report)

    def choose_rules(self) -> None:
        """After all reports: each was judged by the rule of before, and is compared with by the new one."""
        if not self.telling:
            return
        from service.operations.early_stopping.rule_choice import (  # noqa: PLC0415 - a killed service is to answer soon
            choose_while_training,
        )

        for leased in self.telling:
            choose_while_training(leased, leased.trial)

    def _count(self, leased: LeasedAttempt, report: Report, step: int) -> None:
        """Add the report to the curve, and let early stopping decide on the trial, and on paused ones."""
        trial = leased.trial
        was_asked_to_stop = trial.stop_cause is not None
        metrics = add_point(leased, report, step)
        if metrics is not None:
            decider = Decider(leased, leased.spec)
            judged = decider.judge(trial, step, metrics)
            self.has_released |= bool(judged) and release(decider, judged)
        if not was_asked_to_stop and trial.stop_cause in DECIDED_BY_REPORT:
            change_later(leased.attempt, deciding_sequence=report.sequence)
