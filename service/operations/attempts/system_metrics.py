"""The load of an attempt's nodes and GPUs: an event for each call with samples, and the attempt's summary."""

from collections.abc import Sequence
from datetime import timedelta
from operator import attrgetter
from typing import Any

from service.domain.system_metrics_summary import Utilization
from service.operations.attempts.leases import LeasedAttempt
from service.store.events import append_event
from service.store.sql.bulk_writes import change_later
from trainer.wire import SystemSample


def note_system_metrics(leased: LeasedAttempt, samples: Sequence[SystemSample]) -> None:
    """Keep the samples that are new. A repeated call changes nothing."""
    if not samples:
        return
    attempt = leased.attempt
    known = Utilization.from_json(attempt.utilization)
    new = []
    for sample in sorted(samples, key=attrgetter("sequence")):
        if sample.sequence >= known.next_sequence:
            known = known.after(sample.sequence, sample.metrics)
            new.append(_point(leased, sample))
    if new:
        change_later(attempt, utilization=known.to_json())
        data = {"attempt": attempt.number, "samples": new}
        append_event(
            leased.session,
            leased.experiment,
            "attempt.system_metrics",
            data,
            at=leased.now,
            trial_id=leased.trial.id,
        )


def _point(leased: LeasedAttempt, sample: SystemSample) -> dict[str, Any]:
    """The time is the database's, because a node's clock may be wrong. The step is the trial's age in seconds."""
    at = leased.now - timedelta(seconds=sample.age_seconds)
    age = at - (leased.trial.started_at or leased.attempt.started_at)
    node = {} if sample.node is None else {"node": sample.node}
    return {"at": at.isoformat(), "step": max(0, int(age.total_seconds())), **node, "metrics": sample.metrics}
