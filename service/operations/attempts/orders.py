"""What the holder of an attempt has to do: at a report, and between two reports."""

from collections.abc import Sequence

from service.domain.statuses import StopCause
from service.store.tables import AttemptRow, TrialRow
from trainer.wire import Answer, Decision


def order_at_report(trial: TrialRow, attempt: AttemptRow, kept: Sequence[str] = ()) -> Answer:
    """The answer to a report: continue, stop, or kill. `kept`: as in `Answer`."""
    if not trial.killed and trial.stop_cause is None:
        return Answer(kept=[*kept])
    return Answer(
        decision=Decision.KILL if trial.killed else Decision.STOP,
        reason=trial.stop_reason,
        deciding_sequence=attempt.deciding_sequence,
        kept=[*kept],
    )


def order_between_reports(trial: TrialRow, attempt: AttemptRow) -> Answer:
    """The answer to the holder between two reports. A trial at its time limit leaves at a report, and not before."""
    waits_for_report = trial.stop_cause == StopCause.MAX_TRIAL_SECONDS and not trial.killed
    return Answer() if waits_for_report else order_at_report(trial, attempt)
