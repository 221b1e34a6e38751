"""Telling a running trial to leave: its holder hears of it with the answer to its next call."""

from service.domain.statuses import StopCause
from service.store.tables import TrialRow

_ENDING = frozenset({StopCause.TARGET_REACHED, StopCause.DIVERGED, StopCause.USER, StopCause.EXPERIMENT_ENDED})
"""What ends a trial that was only to pause."""


def request_stop(trial: TrialRow, cause: StopCause, reason: str) -> None:
    """The first cause stands, unless it was to pause and this one ends the trial."""
    if trial.stop_cause is None or (trial.stop_cause == StopCause.PAUSED and cause in _ENDING):
        trial.stop_cause = cause
        trial.stop_reason = reason
